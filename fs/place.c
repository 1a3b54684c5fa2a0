/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/place.h"

#include "engine/base/log.h"

#include <errno.h>
#include <string.h>

static void log_refused(const char *line, int rc)
{
	/* For -EOPNOTSUPP the engine has logged which rank, and why; EBUSY and ECANCELED answer
	 * `placed`.
	 */
	if (rc != -EOPNOTSUPP && rc != -EBUSY && rc != -ECANCELED)
		log_warn(".frag/control: %s: %s", line,
			 rc == -EINVAL   ? "expected \"place params/NAMES/STATES TIER\", where "
					   "TIER is host, swap or device"
			 : rc == -ENOENT ? "no rank has such a state"
			 : rc == -ENAMETOOLONG ? "the pattern of states has 63 bytes at most, "
						 "that of names 127"
					       : strerror(-rc));
}

int place_line(fuse_req_t req, const struct deferred_call *c)
{
	struct handle *h = (struct handle *)(uintptr_t)c->file->fh;
	bool asks = !strncmp(c->name, PLACED_WORD, strlen(PLACED_WORD));
	CLEANUP(free) char *states = strdup(c->name + strcspn(c->name, " ") + 1);
	char *tier = states ? strrchr(states, ' ') : NULL;
	int rc = !states ? -ENOMEM : tier ? 0 : -EINVAL;

	if (tier) { /* names of parameters may have blanks, the last word is the tier */
		*tier++ = '\0';
		for (size_t n = strlen(states); n && states[n - 1] == ' '; n--)
			states[n - 1] = '\0';
		rc = (asks ? engine_place_check
			   : engine_place)(h->fs->engine, states + strspn(states, " "), tier);
	}
	if (!rc)
		fuse_reply_write(req, c->size);
	else if (rc != -EAGAIN)
		log_refused(c->name, rc);
	return rc;
}
