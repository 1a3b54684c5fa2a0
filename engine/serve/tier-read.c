/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/serve/tier-read.h"

#include <errno.h>

bool tier_read_is_due(struct engine *e, const struct wire_read *read)
{
	return registry_versions_exist(read->view[0]
					       ? view_owner_tier(&e->view_owner, read->view)
					       : registry_tier(&e->registry, read->state));
}

static int look(struct engine *e, const struct wire_read *read, struct view_look *to)
{
	if (read->view[0])
		return view_owner_look(&e->view_owner, read->view, read->offset, read->size,
				       to);
	*to = (struct view_look){ .epoch = read->epoch,
				  .at = read->offset,
				  .row = read->state };
	return 0;
}

int tier_read_find(struct engine *e, const struct wire_read *read, struct view_look *shown)
{
	int rc = look(e, read, shown);

	if (rc || shown->version)
		return rc;
	return registry_version_newest(&e->registry, shown->epoch, shown->row, shown->at,
				       read->size, &shown->version);
}

int tier_read_check(struct engine *e, const struct wire_read *read,
		    const struct view_look *shown, struct registry_fetch *f, int status)
{
	struct view_look now;
	int rc = status;

	registry_fetch_log(f);
	/* preserved bytes cannot have changed during the fetch */
	if (rc || !registry_version_is_live(shown->version))
		return rc;
	rc = look(e, read, &now);
	if (rc)
		return rc;
	registry_version_put(now.version);
	/* the view has preserved the bytes meanwhile, or is of another generation */
	if (now.version || now.generation != shown->generation)
		return -EAGAIN;
	return registry_covers(&e->registry, now.epoch, now.row, now.at, read->size);
}
