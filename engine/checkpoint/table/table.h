/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_TABLE_TABLE_H
#define ENGINE_CHECKPOINT_TABLE_TABLE_H

/* What every checkpoint format is translated to: parameters and buffers, their states, and
 * where in which file each state's elements lie.  A source fills it from beginning to end:
 *
 *	table_new
 *	  table_add_file ...			the files that pieces name
 *	  table_add_entry ...			zip entries whose CRC an edit keeps right
 *	  table_add_flat, table_add_segment ...	tensors that parameters are cut out of
 *	  table_begin_part			where there are several model-parallel ranks
 *	  table_add_tensor ...			a parameter or buffer, then what belongs to it:
 *	    table_add_state			a state of the newest tensor, then its pieces, in any order:
 *	      table_add_interval | table_add_box ...
 *	    table_add_flat_state, table_add_equal_state
 *	    table_add_copy			more bytes that an edit of the tensor's values also writes
 *	  table_add_group, table_add_hyper, table_add_partition ...
 *	  table_note, table_skip ...		what .frag/source says
 *	table_finish				checks that each state is covered once, everywhere
 *
 * and it never changes again.  A state's rank r pieces are what ranks/<r>/ shows.
 *
 * ZeRO in rows per parameter, not per parameter and rank:
 *
 *	flat	stages 1, 2: one vector, rank 0's segments, then rank 1's ...; a parameter is
 *		[start, start + numel) of it
 *	equal	stage 3: a vector for each rank, of its segments; of a parameter, rank i has
 *		ceil(numel / ranks) elements from start on: those from i * that on
 *
 * Functions that return int: a number, 0 or -errno; after -EINVAL (what the file says cannot
 * be) why has one line.  Counts are elements, bases bytes.  No I/O but closing files.
 */

#include "engine/base/base.h"
#include "engine/frag.h"

#include <stdio.h>
#include <sys/stat.h>

#define TABLE_NONE UINT32_MAX

enum {
	TABLE_FILES_MAX = 1 << 17,
	TABLE_RANKS_MAX = 1 << 16,
	TABLE_KEYS_MAX = 512,
	TABLE_PARTS_MAX = 1 << 15,
	TABLE_NOTES_MAX = 1000, /* skipped things that are named; the others are counted */
};

struct table_file {
	char *name; /* below the folder */
	int fd;
	dev_t dev;
	ino_t ino;
	uint64_t size;
	struct timespec mtime;
	_Atomic bool told; /* that it is not what it was */
};

struct table_tensor {
	uint64_t numel;
	uint32_t name, coordinate; /* in strings */
	uint32_t shape;            /* in numbers */
	uint32_t alias;            /* the tensor whose states it has; TABLE_NONE: its own */
	uint32_t group;            /* TABLE_NONE: none */
	uint32_t position;         /* among its group's */
	uint32_t states, nstates;  /* after finish */
	uint32_t ncopies;          /* after finish: behind the states */
	uint32_t shown;            /* after finish: its number at the door */
	uint16_t part;             /* of parts */
	uint8_t dtype;
	uint8_t ndim;
	bool buffer;
	bool frozen;
};

/* A part of the checkpoint that has a tree of its own; without any, all is one. */
struct table_part {
	uint32_t name; /* in strings: the coordinate of its tensors, too */
	uint32_t groups, ranks;
	uint32_t params, nparams, buffers, nbuffers; /* after finish: at the door */
	uint32_t ngroups, nranks;                    /* after finish */
};

/* Data of a stored zip entry, and where its CRC stands, 32 bits little-endian each. */
struct table_entry {
	uint32_t file;
	uint64_t at, size; /* bytes in the file */
	uint64_t crc_in_directory;
	uint64_t crc_in_descriptor; /* or in the local header; 0: none */
};

enum table_kind { TABLE_INTERVALS, TABLE_BOXES, TABLE_FLAT, TABLE_EQUAL };

struct table_state {
	uint64_t start; /* flat, equal: in the vector */
	uint32_t tensor;
	uint32_t first; /* of pieces; flat, equal: of flats */
	uint32_t n;     /* pieces; equal: ranks */
	uint16_t key;   /* of keys */
	uint8_t stored; /* enum frag_dtype, in the file */
	uint8_t shown;  /* FRAG_F32 where stored widens to it exactly; else stored */
	uint8_t kind;   /* enum table_kind */
	bool scalar;    /* one element, whatever the tensor has */
	bool copy;      /* of the model's own values; not shown */
};

struct table_piece {
	uint32_t file;
	uint32_t rank;
	uint64_t base; /* bytes in the file */
	/* Element of the state, or of the vector; a box: where in numbers are offsets, then
	 * sizes.
	 */
	uint64_t first;
	uint64_t count;
};

struct table_flat {
	uint32_t first; /* of segments */
	uint32_t n;
	uint64_t count;
	uint64_t least; /* equal's first one: the smallest count of as many as `of` */
	uint32_t of;
	uint8_t dtype;
};

/* A state of a rank's whole flat partition. */
struct table_partition {
	uint32_t rank, group, sub;
	struct table_state state; /* flat, of no tensor */
};

struct table_hyper {
	char name[FRAG_KEY_MAX + 1];
	double value;
};

struct table_group {
	char kind[16]; /* "zero2" */
	uint32_t shards;
	uint32_t replicas;
	uint32_t sub_groups;
	uint32_t nparams, params_room;
	uint32_t *params; /* tensors; after finish, numbers at the door */
	uint32_t nranks;
	uint32_t *ranks;
	struct table_hyper *hypers;
	uint32_t nhypers;
};

struct table {
	struct table_file *files;
	struct table_tensor *tensors;
	struct table_state *states; /* after finish: by tensor, then key */
	struct table_piece *pieces;
	struct table_flat *flats;
	struct table_piece *segments; /* of flats */
	struct table_entry *entries;  /* after finish: by file and place */
	struct table_group *groups;
	struct table_part *parts;
	struct table_partition *partitions; /* after finish: by rank, group, sub, key */
	uint64_t *numbers;                  /* shapes and boxes */
	char *strings;
	char (*keys)[FRAG_KEY_MAX + 1];
	uint32_t nfiles, ntensors, nstates, npieces, nflats, nsegments, nentries, ngroups,
		npartitions, nparts, nkeys;
	uint64_t nnumbers, numbers_room, strings_size, strings_room;
	uint32_t
		nparams; /* after finish: at the door they come first, the buffers behind them */
	uint32_t *shown;   /* after finish: [ntensors], tensor of a number at the door */
	uint32_t *by_name; /* after finish: tensors, sorted */
	uint32_t nranks;
	bool has_step;
	uint64_t step;
	char *source; /* after finish */
	size_t source_size;
	FILE *notes;
	uint32_t nskipped;
	bool finished;
	char why[256];
};

struct table *table_new(void); /* NULL: no memory */
void table_free(struct table *t);

/* Takes fd, also on error. */
int table_add_file(struct table *t, const char *name, int fd, const struct stat *st);

/* Once per storage that pieces are in; finish drops what was said twice.  -EINVAL: not all in
 * the file.
 */
int table_add_entry(struct table *t, const struct table_entry *entry);

/* What is added from now on, tensors, groups and ranks, is of it. */
int table_begin_part(struct table *t, const char *name);

struct table_spec {
	const char *name;
	const char *coordinate; /* NULL: none, or its part's name */
	enum frag_dtype dtype;  /* of the parameter in the model */
	uint32_t ndim;
	const uint64_t *shape;
	bool buffer;
	bool frozen;
};

/* -EINVAL: the name is too long, the shape has too many elements. */
int table_add_tensor(struct table *t, const struct table_spec *spec);
/* Another name of a tensor: the same shape, the same bytes. */
int table_add_alias(struct table *t, const char *name, uint32_t of);

/* A state of the newest tensor; the key "bf16", "fp16" ... (dtype_lp_key) is the model's own
 * copy.
 */
int table_add_state(struct table *t, const char *key, enum frag_dtype dtype);
/* A state of the newest tensor that is not shown: the model's own values a second time, which
 * an edit of them must write too.  Where fp32 has a master beside it, the model's own shown
 * state is such a copy anyway.
 */
int table_add_copy(struct table *t, enum frag_dtype dtype);
/* The same of another tensor, which is no alias. */
int table_add_copy_of(struct table *t, uint32_t tensor, enum frag_dtype dtype);
/* The key of a tensor that has no master: "fp32", "bf16", "int64" ... */
const char *table_own_key(enum frag_dtype dtype);
/* Of one element: `step`. */
int table_add_scalar(struct table *t, const char *key, enum frag_dtype dtype);
/* As if it, the newest state, had not been added. */
void table_drop_state(struct table *t);
/* As if it, the newest tensor, had not been added; it has no states and is in no group. */
void table_drop_tensor(struct table *t);
/* Whether the newest tensor has any state. */
bool table_has_states(const struct table *t);
/* A piece of the newest state.  An empty one is no piece. */
int table_add_interval(struct table *t, uint32_t file, uint32_t rank, uint64_t base,
		       uint64_t first, uint64_t count);
int table_add_box(struct table *t, uint32_t file, uint32_t rank, uint64_t base,
		  const uint64_t *offsets, const uint64_t *sizes);

/* A vector, and what comes next in the newest one. */
int table_add_flat(struct table *t, enum frag_dtype dtype);
int table_add_segment(struct table *t, uint32_t file, uint32_t rank, uint64_t base,
		      uint64_t count);
/* States of the newest tensor.  Equal: nranks vectors, from `first` on; vector i is one of rank
 * (that of the first) + i.
 */
int table_add_flat_state(struct table *t, const char *key, uint32_t flat, uint64_t start);
int table_add_equal_state(struct table *t, const char *key, uint32_t first, uint32_t nranks,
			  uint64_t start);

/* The newest state's elements as fp32 too: a master that is stored in low precision. */
int table_add_widened(struct table *t);

/* ranks are shards * replicas.  A tensor may be in one. */
int table_add_group(struct table *t, const char *kind, uint32_t shards, uint32_t replicas,
		    uint32_t sub_groups, const uint32_t *ranks);
int table_add_member(struct table *t, uint32_t group, uint32_t tensor);
int table_add_hyper(struct table *t, uint32_t group, const char *name, double value);
/* of: rank, group and sub; count elements from base on. */
int table_add_partition(struct table *t, const char *key, enum frag_dtype dtype,
			const struct table_partition *of, uint32_t file, uint64_t base,
			uint64_t count);

/* Ranks there are even where they hold nothing. */
int table_need_ranks(struct table *t, uint32_t nranks);
void table_set_step(struct table *t, uint64_t step);
void table_note(struct table *t, const char *fmt, ...) PRINTF(2, 3);
/* "skipped NAME: ...". */
void table_skip(struct table *t, const char *name, const char *fmt, ...) PRINTF(3, 4);

/* Sets why and returns rc: for a source, too. */
int table_refuse(struct table *t, int rc, const char *fmt, ...) PRINTF(3, 4);

/* Sorts, checks, and adds `fp32` to tensors of a type that widens to it and that have none; not
 * to buffers of integers. -EINVAL: a state is not covered exactly once; two tensors, or states
 * of one, have the same name.
 */
int table_finish(struct table *t);

/* ---- a finished table; any thread ---- */

static inline const char *table_string(const struct table *t, uint32_t at)
{
	return t->strings + at;
}

static inline const uint64_t *table_shape(const struct table *t, const struct table_tensor *x)
{
	return t->numbers + x->shape;
}

/* TABLE_NONE. */
uint32_t table_find(const struct table *t, const char *name, const char *coordinate);
/* NULL. */
const struct table_state *table_find_state(const struct table *t, uint32_t tensor,
					   const char *key);
/* The states of a rank's partition, n of them, sorted by key. */
const struct table_partition *table_partitions(const struct table *t, uint32_t rank,
					       uint32_t group, uint32_t sub, uint32_t *n);
/* Elements of a state. */
uint64_t table_numel(const struct table *t, const struct table_state *s);
/* A tensor's states, an alias's too: n of them, sorted by key. */
const struct table_state *table_states(const struct table *t, uint32_t tensor, uint32_t *n);

/* What table_add_copy made of it, an alias's too; n of them. */
const struct table_state *table_copies(const struct table *t, uint32_t tensor, uint32_t *n);

/* The first entry of a file that ends behind byte `at`; the following ones stand behind it, up
 * to t->entries + t->nentries.
 */
const struct table_entry *table_find_entry(const struct table *t, uint32_t file, uint64_t at);

/* Elements of one piece, neighbours in the file. */
struct table_run {
	uint32_t file, rank;
	uint64_t base;  /* bytes in the file, of the first */
	uint64_t first; /* element of the state; of a box: in the box's own order */
	uint64_t count;
	const uint64_t *box; /* offsets, sizes; NULL: an interval */
};

/* Calls see for the pieces that hold elements [first, first + count) of a state, cut to them,
 * until it returns other than 0; returns that.  Intervals come in the state's order.
 */
typedef int (*table_see)(void *arg, const struct table_run *run);
int table_walk(const struct table *t, const struct table_state *s, uint64_t first,
	       uint64_t count, table_see see, void *arg);
/* All that a rank holds of it. */
int table_walk_rank(const struct table *t, const struct table_state *s, uint32_t rank,
		    table_see see, void *arg);
uint64_t table_rank_count(const struct table *t, const struct table_state *s, uint32_t rank);
/* Of all pieces and segments, padding too. */
uint64_t table_bytes(const struct table *t);

#endif
