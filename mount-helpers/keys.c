/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/key.h"
#include "engine/base/one-line.h"
#include "engine/launch/keyfile.h"
#include "mount-helpers/call.h"
#include "mount-helpers/commands.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

enum { READERS_TEXT = sizeof("readers ") + 2 * KEY_BYTES };

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

/* Makes the readers' key, and writes it as its file has it. */
static int make_readers(const char *path, char text[READERS_TEXT], char *why, size_t whysize)
{
	int rc, n = snprintf(text, READERS_TEXT, "readers ");
	uint8_t key[KEY_BYTES];
	bool readers;

	rc = keyfile_load(path, key, &readers, why, whysize);
	if (rc)
		return rc;
	if (!readers && (rc = key_for_readers(key, key)))
		snprintf(why, whysize, "this libzmq has no CURVE");
	for (int i = 0; i < KEY_BYTES; i++)
		n += snprintf(text + n, READERS_TEXT - (size_t)n, "%02x", key[i]);
	explicit_bzero(key, sizeof(key));
	return rc;
}

static int report(const struct call *call, const char *readers)
{
	if (!call_has(call, 'J')) {
		if (*readers)
			puts(readers);
		return 0;
	}
	return call_print_object(call, "key",
				 json_pack("{s:o s:s?}", "file", one_line_json(*call->words),
					   "readers", *readers ? readers : NULL));
}

int keys_run(const struct call *call)
{
	char why[PATH_MAX + 100], readers[READERS_TEXT] = "";
	int rc = call_has(call, 'r') ? make_readers(*call->words, readers, why, sizeof(why))
				     : make(*call->words, why, sizeof(why));

	rc = rc ? call_fail("%s", why) : report(call, readers);
	explicit_bzero(readers, sizeof(readers));
	return rc;
}
