/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_CATALOG_H
#define ENGINE_CATALOG_CATALOG_H

/* The parameters and param groups of one rank, or, merged, of a whole job.  A catalog grows by
 * add, until catalog_finish computes the layouts and the index; it never changes again.  No
 * I/O, no threads.
 *
 * (name, coordinate) identifies a parameter; the list of ranks, with the ordinal among the
 * groups of that list, a group.
 */

#include "engine/base/base.h"
#include "engine/catalog/cuts.h"
#include "engine/catalog/layout.h"
#include "engine/catalog/wire.h"
#include "engine/frag.h"

#define CATALOG_NONE UINT32_MAX

struct catalog_param {
	uint64_t numel;
	struct cuts *cuts;   /* NULL: none */
	uint32_t name;       /* offsets in strings */
	uint32_t coordinate; /* "" : none */
	uint32_t shape;      /* offset in shapes */
	uint32_t group;      /* CATALOG_NONE */
	uint32_t position;   /* in the group */
	uint32_t owner;      /* merged: lowest rank that registered the parameter; else 0 */
	uint8_t dtype;
	uint8_t ndim;
	uint8_t flags; /* FRAG_FROZEN */
	uint8_t reserved;
};

struct catalog_group {
	uint8_t stage;
	uint8_t sharding; /* enum frag_sharding */
	uint8_t flags;
	uint32_t replicas;
	uint32_t alignment; /* FSDP1: elements between which parameters begin */
	uint32_t nranks;
	uint32_t *ranks; /* ranks[replica * shards + shard] */
	uint32_t nparams;
	uint32_t *params;
	uint64_t sub_group_size;
	struct layout layout; /* after finish */
};

struct catalog {
	char *strings;
	size_t strings_size, strings_room;
	uint64_t *shapes;
	size_t shapes_count, shapes_room;
	struct catalog_param *params;
	uint32_t nparams, params_room;
	struct catalog_group *groups;
	uint32_t ngroups, groups_room;
	uint32_t *index; /* open addressing over (name, coordinate): param + 1 */
	uint32_t index_room;
	uint64_t hash;         /* of the encoding, after finish */
	uint64_t encoded_size; /* in bytes, after finish */
};

struct catalog *catalog_new(void);
void catalog_free(struct catalog *c);

/* Returns the number of the parameter.
 * -EINVAL: the name, dtype or ndim.
 * -EEXIST: there is a parameter with that name and coordinate.
 * -EOVERFLOW: its bytes do not fit 63 bits.
 * -ENOSPC: there are FRAG_PARAMS_MAX parameters, or 32 bits do not count the names and shapes.
 * -ENOMEM.
 */
int catalog_add_param(struct catalog *c, const char *name, const char *coordinate,
		      enum frag_dtype dtype, uint32_t ndim, const uint64_t *shape,
		      unsigned flags, uint32_t owner);

/* Gives a parameter cuts, before it is in a group.  Errors of cuts_new. */
int catalog_cut_param(struct catalog *c, uint32_t param, const struct frag_cut *cut,
		      uint32_t n);

/* Copies the arrays of *g.
 * -EINVAL: a parameter is unknown, listed twice, or in a group already, or its cuts are not the
 * group's; a rank is listed twice; nranks is no multiple of replicas.  why has one line.
 * -ENOSPC: there are FRAG_GROUPS_MAX groups.
 * -ENOMEM.
 */
int catalog_add_group(struct catalog *c, const struct catalog_group *g, char *why,
		      size_t whysize);

/* Computes the layout of one group, anew if called again.
 * -EOVERFLOW: its bytes do not fit 63 bits.
 */
int catalog_finish_group(struct catalog *c, uint32_t group);
/* Takes the newest group out again. */
void catalog_drop_group(struct catalog *c);

/* Computes the layouts that are not there yet, and the hash.
 * -EOVERFLOW: a layout does not fit 63 bits, or the encoding WIRE_CATALOG_MAX.
 * -ENOMEM.
 */
int catalog_finish(struct catalog *c);

uint32_t catalog_find(const struct catalog *c, const char *name, const char *coordinate);

static inline const char *catalog_name(const struct catalog *c, uint32_t param)
{
	return c->strings + c->params[param].name;
}

static inline const char *catalog_coordinate(const struct catalog *c, uint32_t param)
{
	return c->strings + c->params[param].coordinate;
}

static inline const uint64_t *catalog_shape(const struct catalog *c, uint32_t param)
{
	return c->shapes + c->params[param].shape;
}

/* The cuts of a parameter whose stored order is not file order; else NULL. */
static inline const struct cuts *catalog_file_cuts(const struct catalog *c, uint32_t param)
{
	const struct cuts *cuts = c->params[param].cuts;

	return cuts && !cuts_keep_order(cuts) ? cuts : NULL;
}

static inline uint32_t catalog_shards(const struct catalog_group *g)
{
	return g->nranks / g->replicas;
}

/* The index of the rank in the group's list; CATALOG_NONE: not in it. */
uint32_t catalog_member(const struct catalog_group *g, uint32_t rank);

/* Returns true if a sub-group is among the first of the rank's sub-groups, counted through all
 * its groups, when these first are `part` of them, 0 to 1.
 */
bool catalog_is_among_first(const struct catalog *c, uint32_t rank, uint32_t group,
			    uint32_t sub, double part);

/* Returns true if lp pieces of the group's parameters are cut per parameter (stage 3, FSDP2).
 */
bool catalog_lp_is_sharded(const struct catalog_group *g);
/* Returns the elements, padding included, of each shard's piece of a parameter's lp, in a group
 * for which catalog_lp_is_sharded.  Frozen parameters are cut like the others, though they have
 * no fragment.
 */
uint64_t catalog_lp_piece(const struct catalog *c, uint32_t param);
/* Returns the elements of the piece that one rank of the group has: without padding, if the
 * parameter has cuts.
 */
uint64_t catalog_lp_held(const struct catalog *c, uint32_t param, uint32_t rank);

/* Writes a finished catalog; after an error w is empty.  -ENOMEM. */
int catalog_encode(const struct catalog *c, struct wire_writer *w);
/* Reads a catalog, which is then finished.  Every count and length is checked; world bounds the
 * ranks.
 * -EBADMSG: why has one line.
 * -ENOMEM.
 */
int catalog_decode(struct catalog **c, const void *bytes, size_t size, uint32_t world,
		   char *why, size_t whysize);

/* Adds the rank's catalog `from` to `into`.  map_params[parameter of from] and map_groups get
 * the numbers in into.
 * -EINVAL: `into` describes a parameter or group otherwise; why has one line.
 */
int catalog_merge(struct catalog *into, const struct catalog *from, uint32_t rank,
		  uint32_t *map_params, uint32_t *map_groups, char *why, size_t whysize);

#endif
