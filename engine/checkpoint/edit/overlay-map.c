/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/edit/overlay-map.h"

#include "engine/base/fd.h"

#include <errno.h>

void overlay_map_fini(struct overlay_map *l)
{
	free(l->ranges.items);
}

/* ---- laying one over the other ---- */

static int put(struct vec *out, const struct overlay_map_range *r)
{
	struct overlay_map_range *last =
		out->count ? (struct overlay_map_range *)out->items + out->count - 1 : NULL;

	if (last && last->file == r->file && last->offset + last->size == r->offset &&
	    last->at + last->size == r->at) {
		last->size += r->size;
		return 0;
	}
	last = vec_add(out, sizeof(*last));
	if (last)
		*last = *r;
	return last ? 0 : -ENOMEM;
}

static bool is_before(const struct overlay_map_range *a, const struct overlay_map_range *b)
{
	return a->file != b->file ? a->file < b->file : a->offset + a->size <= b->offset;
}

static void cut_front(struct overlay_map_range *r, uint64_t size)
{
	r->offset += size;
	r->at += size;
	r->size -= size;
}

struct merging {
	const struct vec *below;
	uint32_t next;
	/* what is left of the range before `next`; size 0: no range is left */
	struct overlay_map_range rest;
};

static void next_below(struct merging *m)
{
	const struct overlay_map_range *all = m->below->items;

	m->rest.size = 0;
	if (m->next < m->below->count)
		m->rest = all[m->next++];
}

/* Puts the parts of `below` that lie before `above`, and skips those that `above` covers. */
static int put_before(struct vec *out, struct merging *m, const struct overlay_map_range *above)
{
	uint64_t end = above->offset + above->size;
	int rc = 0;

	for (; m->rest.size && is_before(&m->rest, above) && !rc; next_below(m))
		rc = put(out, &m->rest);
	while (m->rest.size && !is_before(above, &m->rest) && !rc) {
		struct overlay_map_range head = m->rest;

		if (head.offset < above->offset) {
			head.size = above->offset - head.offset;
			rc = put(out, &head);
			cut_front(&m->rest, head.size);
		} else if (m->rest.offset + m->rest.size > end) {
			cut_front(&m->rest, end - m->rest.offset);
		} else {
			next_below(m);
		}
	}
	return rc;
}

int overlay_map_merge(struct vec *out, const struct vec *below, const struct vec *above)
{
	const struct overlay_map_range *ranges = above->items;
	struct merging m = { .below = below };
	int rc = 0;

	next_below(&m);
	for (uint32_t i = 0; i < above->count && !rc; i++) {
		rc = put_before(out, &m, &ranges[i]);
		if (!rc)
			rc = put(out, &ranges[i]);
	}
	for (; m.rest.size && !rc; next_below(&m))
		rc = put(out, &m.rest);
	return rc;
}

/* ---- looking ---- */

struct overlay_map_run overlay_map_find(const struct overlay_map *l, const struct table *t,
					uint32_t file, uint64_t offset, uint64_t size)
{
	struct overlay_map_run run = { t->files[file].fd, offset, size };
	const struct overlay_map_range *r = l ? l->ranges.items : NULL;
	uint32_t n = l ? l->ranges.count : 0;
	uint64_t i = LOWER_BOUND(
		n, k,
		r[k].file < file || (r[k].file == file && r[k].offset + r[k].size <= offset));

	r = i < n ? r + i : NULL;
	if (!r || r->file != file || r->offset >= offset + size)
		return run;
	if (r->offset > offset) {
		run.size = r->offset - offset;
		return run;
	}
	return (struct overlay_map_run){ l->fd, r->at + (offset - r->offset),
					 u64_min(size, r->offset + r->size - offset) };
}

int overlay_map_read(const struct overlay_map *l, const struct table *t, uint32_t file,
		     uint64_t offset, void *to, uint64_t size)
{
	uint8_t *bytes = to;
	int rc = 0;

	while (size && !rc) {
		struct overlay_map_run run = overlay_map_find(l, t, file, offset, size);

		rc = fd_read_all(run.fd, bytes, run.size, run.at);
		bytes += run.size;
		offset += run.size;
		size -= run.size;
	}
	return rc;
}
