/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/serve/serve-device.h"
#include "engine/serve/serve-pending.h"

#include <errno.h>

/* READs of states in a device's memory: copied from there behind the newest mark, then looked
 * at again.
 */

static void on_copied(struct devices_copy *c, int result)
{
	pending_reads_came(container_of(c, struct pending_read, copy), result);
}

/* Without a view there is any generation. */
static int look(struct engine *e, const struct wire_read *read, struct view_look *to)
{
	if (read->view[0])
		return view_owner_look(&e->views, read->view, read->offset, read->size, to);
	*to = (struct view_look){ .epoch = read->epoch,
				  .at = read->offset,
				  .row = read->state };
	return 0;
}

static int find(struct engine *e, const struct wire_read *read, struct pending_found *f)
{
	int rc = look(e, read, &f->look);

	if (rc || f->look.kept)
		return rc;
	return registry_device_mark(&e->registry, f->look.epoch, f->look.row, &f->mark);
}

static void put_found(struct engine *e, struct pending_found *f)
{
	devices_kept_put(f->look.kept);
	devices_mark_put(e->registry.devices, f->mark);
}

static bool same(const struct pending_found *a, const struct pending_found *b)
{
	return a->mark == b->mark && a->look.kept == b->look.kept &&
	       a->look.generation == b->look.generation;
}

static int begin(struct engine *e, struct pending_read *r)
{
	const struct view_look *at = &r->found.look;
	uint32_t size = r->asked.size;

	r->copy = (struct devices_copy){ .host = r->bytes, .done = on_copied };
	if (at->kept)
		return devices_kept_begin(at->kept, at->inside, size, &r->copy);
	r->copy.after = devices_mark_event(r->found.mark);
	return registry_device_begin(&e->registry, at->epoch, at->row, at->at, size, &r->copy);
}

/* Live bytes may have been changed, or dropped, while they were copied: -EAGAIN: now they are
 * kept.
 */
static int check(struct engine *e, struct pending_read *r)
{
	const struct view_look *before = &r->found.look;
	struct view_look now;
	int rc = r->status || before->kept ? r->status : look(e, &r->asked, &now);

	if (rc || before->kept)
		return rc;
	devices_kept_put(now.kept);
	if (now.kept || now.generation != before->generation)
		return -EAGAIN;
	return registry_covers(&e->registry, now.epoch, now.row, now.at, r->asked.size);
}

const struct pending_source serve_device_source = {
	.find = find,
	.put = put_found,
	.same = same,
	.begin = begin,
	.check = check,
};

/* ---- figures ---- */

void serve_device_turn(struct engine *e)
{
	struct control_page *c = e->registry.control;
	struct devices_figures f;

	if (!e->registry.devices)
		return;
	devices_figures(e->registry.devices, &f);
	control_put(&c->device_from_bytes, f.from_bytes);
	control_put(&c->device_to_bytes, f.to_bytes);
	control_put(&c->device_errors, f.errors);
	control_put(&c->device_kept, f.kept);
}
