/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/catalog.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* u32 nparams, u32 ngroups,
 * params: text name, text coordinate (u32 length, bytes), u8 dtype, u8 ndim, u8 flags,
 *         u32 owner, u64 shape[ndim]
 * groups: u8 stage, u8 sharding, u8 flags, u32 replicas, u64 sub_group_size,
 *         u32 nranks, u32 ranks[], u32 nparams, u32 params[]
 */

static void put_text(struct wire_writer *w, const char *text)
{
	wire_put_u32(w, (uint32_t)strlen(text));
	wire_put_bytes(w, text, strlen(text));
}

static void put_param(struct wire_writer *w, const struct catalog *c, uint32_t i)
{
	const struct catalog_param *p = &c->params[i];

	put_text(w, catalog_name(c, i));
	put_text(w, catalog_coordinate(c, i));
	wire_put_u8(w, p->dtype);
	wire_put_u8(w, p->ndim);
	wire_put_u8(w, p->flags);
	wire_put_u32(w, p->owner);
	wire_put_bytes(w, c->shapes + p->shape, p->ndim * sizeof(uint64_t));
}

static void put_group(struct wire_writer *w, const struct catalog_group *g)
{
	wire_put_u8(w, g->stage);
	wire_put_u8(w, g->sharding);
	wire_put_u8(w, g->flags);
	wire_put_u32(w, g->replicas);
	wire_put_u64(w, g->sub_group_size);
	wire_put_u32(w, g->nranks);
	wire_put_bytes(w, g->ranks, g->nranks * sizeof(*g->ranks));
	wire_put_u32(w, g->nparams);
	wire_put_bytes(w, g->params, g->nparams * sizeof(*g->params));
}

int catalog_encode(const struct catalog *c, struct wire_writer *w)
{
	int rc = 0;

	wire_put_u32(w, c->nparams);
	wire_put_u32(w, c->ngroups);
	for (uint32_t i = 0; i < c->nparams; i++)
		put_param(w, c, i);
	for (uint32_t i = 0; i < c->ngroups; i++)
		put_group(w, &c->groups[i]);
	if (w->bad)
		rc = -ENOMEM;
	else if (w->size > WIRE_CATALOG_MAX)
		rc = -EOVERFLOW;
	if (rc) {
		free(w->data);
		*w = (struct wire_writer){ 0 };
	}
	return rc;
}

int catalog_finish(struct catalog *c)
{
	struct wire_writer w = { 0 };
	int rc;

	for (uint32_t i = 0; i < c->ngroups; i++)
		if ((rc = catalog_finish_group(c, i)))
			return rc;
	rc = catalog_encode(c, &w);
	if (!rc)
		c->hash = wire_hash(w.data, w.size);
	free(w.data);
	return rc;
}

/* text has room for max + 1.  False: too long, cut off, or with a NUL inside. */
static bool get_text(struct wire_reader *r, char *text, uint32_t max)
{
	uint32_t length = wire_get_u32(r);
	const char *bytes = length <= max ? wire_get_bytes(r, length) : NULL;

	if (!bytes || memchr(bytes, '\0', length))
		return false;
	memcpy(text, bytes, length);
	text[length] = '\0';
	return true;
}

static int get_param(struct wire_reader *r, struct catalog *c, uint32_t world)
{
	char name[FRAG_NAME_MAX + 1], coordinate[FRAG_KEY_MAX + 1];
	uint64_t shape[FRAG_DIMS_MAX];
	const void *bytes;
	uint8_t dtype, ndim, flags;
	uint32_t owner;

	if (!get_text(r, name, FRAG_NAME_MAX) || !get_text(r, coordinate, FRAG_KEY_MAX))
		return -EBADMSG;
	dtype = wire_get_u8(r);
	ndim = wire_get_u8(r);
	flags = wire_get_u8(r);
	owner = wire_get_u32(r);
	if (ndim > FRAG_DIMS_MAX || owner >= world)
		return -EBADMSG;
	bytes = wire_get_bytes(r, ndim * sizeof(*shape));
	if (!bytes)
		return -EBADMSG;
	memcpy(shape, bytes, ndim * sizeof(*shape));
	return catalog_add_param(c, name, coordinate, dtype, ndim, shape, flags, owner);
}

static int get_list(struct wire_reader *r, uint32_t **list, uint32_t *n)
{
	uint32_t count = wire_get_u32(r);
	const void *bytes = wire_get_bytes(r, (uint64_t)count * sizeof(**list));

	if (!bytes)
		return -EBADMSG;
	*list = malloc(count ? count * sizeof(**list) : 1);
	if (!*list)
		return -ENOMEM;
	memcpy(*list, bytes, count * sizeof(**list));
	*n = count;
	return 0;
}

static bool all_below(const uint32_t *list, uint32_t n, uint32_t limit)
{
	for (uint32_t i = 0; i < n; i++)
		if (list[i] >= limit)
			return false;
	return true;
}

static int get_group(struct wire_reader *r, struct catalog *c, uint32_t world, char *why,
		     size_t size)
{
	struct catalog_group g = {
		.stage = wire_get_u8(r),
		.sharding = wire_get_u8(r),
		.flags = wire_get_u8(r),
		.replicas = wire_get_u32(r),
		.sub_group_size = wire_get_u64(r),
	};
	CLEANUP(free) uint32_t *ranks = NULL;
	CLEANUP(free) uint32_t *params = NULL;
	int rc = get_list(r, &ranks, &g.nranks);

	if (!rc)
		rc = get_list(r, &params, &g.nparams);
	if (rc)
		return rc;
	g.ranks = ranks;
	g.params = params;
	return all_below(ranks, g.nranks, world) ? catalog_add_group(c, &g, why, size)
						 : -EBADMSG;
}

static int decode_into(struct catalog *c, struct wire_reader *r, uint32_t world, char *why,
		       size_t size)
{
	uint32_t nparams = wire_get_u32(r), ngroups = wire_get_u32(r);
	int rc;

	for (uint32_t i = 0; i < nparams; i++)
		if ((rc = get_param(r, c, world)) < 0)
			return rc;
	for (uint32_t i = 0; i < ngroups; i++)
		if ((rc = get_group(r, c, world, why, size)) < 0)
			return rc;
	return r->bad || r->at != r->end ? -EBADMSG : catalog_finish(c);
}

int catalog_decode(struct catalog **out, const void *bytes, size_t size, uint32_t world,
		   char *why, size_t whysize)
{
	struct wire_reader r = { .at = bytes, .end = (const uint8_t *)bytes + size };
	struct catalog *c = catalog_new();
	int rc;

	snprintf(why, whysize, "the catalog is damaged");
	rc = c ? decode_into(c, &r, world, why, whysize) : -ENOMEM;
	if (rc == -ENOMEM)
		snprintf(why, whysize, "%s", strerror(ENOMEM));
	if (rc) {
		catalog_free(c);
		return rc == -ENOMEM ? rc : -EBADMSG;
	}
	*out = c;
	return 0;
}
