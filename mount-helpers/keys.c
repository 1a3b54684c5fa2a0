/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/fragctl.h"
#include "engine/base/key.h"
#include "engine/launch/keyfile.h"
#include "mount-helpers/command.h"
#include "mount-helpers/commands.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

static int make(const char *path, char *why, size_t whysize)
{
	uint8_t key[KEY_BYTES];
	char used[PATH_MAX];
	int rc = keyfile_create("", path, used, sizeof(used), key);

	explicit_bzero(key, sizeof(key));
	if (rc)
		snprintf(why, whysize, "%s: %s", path, strerror(-rc));
	return rc;
}

static int print_readers(const char *path, char *why, size_t whysize)
{
	uint8_t key[KEY_BYTES];
	bool readers;
	int rc = keyfile_load(path, key, &readers, why, whysize);

	if (rc)
		return rc;
	if (!readers && (rc = key_for_readers(key, key)))
		snprintf(why, whysize, "this libzmq has no CURVE");
	else
		fputs("readers ", stdout);
	for (int i = 0; i < KEY_BYTES && !rc; i++)
		printf(i < KEY_BYTES - 1 ? "%02x" : "%02x\n", key[i]);
	explicit_bzero(key, sizeof(key));
	return rc;
}

int keys_run(const struct call *call)
{
	char why[PATH_MAX + 100];
	int rc = call_has(call, 'r') ? print_readers(*call->words, why, sizeof(why))
				     : make(*call->words, why, sizeof(why));

	return rc ? call_fail("%s", why) : 0;
}
