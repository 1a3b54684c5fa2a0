/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_TABLE_TABLE_H
#define ENGINE_CHECKPOINT_TABLE_TABLE_H

/* The table of a checkpoint: parameters and buffers, their states, and where in which file each
 * state's elements lie.  Every checkpoint format is translated to it.  A format fills it in
 * this order:
 *
 *	table_new
 *	  table_add_file ...			the files that pieces name
 *	  table_add_entry ...			zip entries whose CRC an edit keeps right
 *	  table_add_flat, table_add_segment ...	tensors that parameters are cut out of
 *	  table_begin_part			where there are several model-parallel ranks
 *	  table_add_tensor ...			a parameter or buffer, then what belongs to it:
 *	    table_add_state			a state of the newest tensor, then its pieces:
 *	      table_add_interval | table_add_box ...
 *	    table_add_flat_state, table_add_equal_state
 *	    table_add_copy			a copy of its values, which edits write too
 *	  table_add_group, table_add_hyper, table_add_partition ...
 *	  table_note, table_skip ...		what .frag/source says
 *	table_finish				checks that each state is covered exactly once
 *
 * A finished table never changes again.  ranks/<r>/ shows the pieces of rank r.
 *
 * ZeRO in rows per parameter, not per parameter and rank:
 *
 *	flat	stages 1, 2: one vector, rank 0's segments, then rank 1's ...; a parameter is
 *		[start, start + numel) of it
 *	equal	stage 3: a vector for each rank, of its segments; of a parameter, rank i has
 *		ceil(numel / ranks) elements from start on: those from i * that on
 *
 * Functions that return int return a number, 0 or -errno; after -EINVAL (a file says what
 * cannot be) t->why has one line.  Counts are elements, bases bytes.  No I/O but closing files.
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
	/* files and states that are skipped with a note; further ones are counted */
	TABLE_NOTES_MAX = 1000,
};

struct table_file {
	char *name; /* below the folder */
	int fd;
	dev_t dev;
	ino_t ino;
	uint64_t size;
	struct timespec mtime;
	uint64_t changed_ns; /* mtime; after an edit later than all changes before it */
	_Atomic bool told;   /* the log says that the file has changed */
};

struct table_tensor {
	uint64_t numel;
	uint32_t name, coordinate; /* in strings */
	uint32_t shape;            /* in numbers */
	uint32_t alias;            /* the tensor that has the states; TABLE_NONE: this one */
	uint32_t group;            /* TABLE_NONE: none */
	uint32_t position;         /* among the parameters of its group */
	uint32_t states, nstates;  /* after finish */
	uint32_t ncopies;          /* after finish: copies, which follow the states */
	uint32_t shown;            /* after finish: its number in engine.h */
	uint16_t part;             /* its number in parts */
	uint8_t dtype;
	uint8_t ndim;
	bool buffer;
	bool frozen;
};

/* A part of the checkpoint with a tree of its own, such as a model-parallel rank.  A table
 * without parts is one tree.
 */
struct table_part {
	uint32_t name; /* in strings; also the coordinate of its tensors */
	uint32_t groups, ranks;
	uint32_t params, nparams, buffers, nbuffers; /* after finish: numbers in engine.h */
	uint32_t ngroups, nranks;                    /* after finish */
};

/* The data of a zip entry that is stored (not compressed), and the places of its CRC, 32 bits
 * little-endian each.
 */
struct table_entry {
	uint32_t file;
	uint64_t at, size; /* bytes in the file */
	uint64_t crc_in_directory;
	uint64_t crc_in_descriptor; /* or in the local header; 0: none */
};

enum table_kind { TABLE_INTERVALS, TABLE_BOXES, TABLE_FLAT, TABLE_EQUAL };

struct table_state {
	uint64_t start; /* flat, equal: the state's first element in the vector */
	uint32_t tensor;
	uint32_t first; /* number of the first in pieces; flat, equal: in flats */
	uint32_t n;     /* pieces; equal: ranks */
	uint16_t key;   /* number in keys */
	uint8_t stored; /* enum frag_dtype, in the file */
	uint8_t shown;  /* FRAG_F32 where stored widens to it exactly; else stored */
	uint8_t kind;   /* enum table_kind */
	bool scalar;    /* one element, whatever the tensor has */
	bool copy;      /* a copy of the model's own values; not shown */
};

struct table_piece {
	uint32_t file;
	uint32_t rank;
	uint64_t base; /* bytes in the file */
	/* First element of the state, or of the vector; a box: index in numbers of its offsets,
	 * which its sizes follow.
	 */
	uint64_t first;
	uint64_t count;
};

struct table_flat {
	uint32_t first; /* of segments */
	uint32_t n;
	uint64_t count;
	/* in the first of an equal state's vectors: the smallest count of its `of` vectors */
	uint64_t least;
	uint32_t of;
	uint8_t dtype;
};

/* A state of the whole flat partition of a rank. */
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
	uint32_t nparams;
	uint32_t *params; /* tensors; after finish, numbers in engine.h */
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
	struct table_state whole;     /* table_add_whole; stored 0: none */
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
	uint32_t nparams; /* after finish; parameters have the first numbers in engine.h */
	uint32_t *shown;  /* after finish: [ntensors], the tensor of a number in engine.h */
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

/* Adds a file; returns its number.  Takes fd, also on error. */
int table_add_file(struct table *t, const char *name, int fd, const struct stat *st);

/* Adds the zip entry that pieces lie in; table_finish() drops repeated ones.
 * -EINVAL: the entry reaches behind the end of its file.
 */
int table_add_entry(struct table *t, const struct table_entry *entry);

/* Begins a part: tensors, groups and ranks that are added from now on belong to it. */
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

/* Adds a tensor; returns its number.
 * -EINVAL: the name is too long, or the shape has too many elements.
 */
int table_add_tensor(struct table *t, const struct table_spec *spec);
/* Adds another name of a tensor, with the same shape and the same bytes. */
int table_add_alias(struct table *t, const char *name, uint32_t of);

/* Adds a state of the newest tensor.  The model's own values have the key "bf16", "fp16" ...
 * (dtype_lp_key).
 */
int table_add_state(struct table *t, const char *key, enum frag_dtype dtype);
/* Adds a state of the newest tensor that is not shown: another copy of the model's own values,
 * which edits of these values write too.  The model's own shown state beside a master is such a
 * copy already.
 */
int table_add_copy(struct table *t, enum frag_dtype dtype);
/* Does table_add_copy() for any tensor that is no alias. */
int table_add_copy_of(struct table *t, uint32_t tensor, enum frag_dtype dtype);
/* Returns the key of the own values of a tensor that has no master: "fp32", "bf16", "int64" ...
 */
const char *table_own_key(enum frag_dtype dtype);
/* Adds a state of one element, such as `step`, of the newest tensor. */
int table_add_scalar(struct table *t, const char *key, enum frag_dtype dtype);
/* Removes the newest state. */
void table_drop_state(struct table *t);
/* Removes the newest tensor, which has no states and is in no group. */
void table_drop_tensor(struct table *t);
/* Returns true if the newest tensor has any state. */
bool table_has_states(const struct table *t);
/* Adds a piece to the newest state, in any order; an empty one adds nothing. */
int table_add_interval(struct table *t, uint32_t file, uint32_t rank, uint64_t base,
		       uint64_t first, uint64_t count);
int table_add_box(struct table *t, uint32_t file, uint32_t rank, uint64_t base,
		  const uint64_t *offsets, const uint64_t *sizes);

/* Adds a vector, and appends a segment to the newest one. */
int table_add_flat(struct table *t, enum frag_dtype dtype);
int table_add_segment(struct table *t, uint32_t file, uint32_t rank, uint64_t base,
		      uint64_t count);
/* Add a state of the newest tensor that is cut out of vectors.  An equal state has nranks
 * vectors from `first` on; the vectors are those of consecutive ranks.
 */
int table_add_flat_state(struct table *t, const char *key, uint32_t flat, uint64_t start);
int table_add_equal_state(struct table *t, const char *key, uint32_t first, uint32_t nranks,
			  uint64_t start);

/* Shows the newest state, a master that is stored in low precision, as fp32 too. */
int table_add_widened(struct table *t);

/* Adds a group of the optimizer; ranks has shards * replicas elements.  A tensor is a member of
 * at most one group.
 */
int table_add_group(struct table *t, const char *kind, uint32_t shards, uint32_t replicas,
		    uint32_t sub_groups, const uint32_t *ranks);
int table_add_member(struct table *t, uint32_t group, uint32_t tensor);
int table_add_hyper(struct table *t, uint32_t group, const char *name, double value);
/* Adds all bytes of a file as t->whole, a state of no tensor, unless t->whole is set already.
 */
int table_add_whole(struct table *t, uint32_t file);
/* Adds a state of the partition of of->rank, of->group, of->sub: count elements from base on.
 */
int table_add_partition(struct table *t, const char *key, enum frag_dtype dtype,
			const struct table_partition *of, uint32_t file, uint64_t base,
			uint64_t count);

/* Makes sure that the table has ranks 0 to nranks - 1, even where they hold nothing. */
int table_need_ranks(struct table *t, uint32_t nranks);
void table_set_step(struct table *t, uint64_t step);
void table_note(struct table *t, const char *fmt, ...) PRINTF(2, 3);
/* Notes "skipped NAME: ...". */
void table_skip(struct table *t, const char *name, const char *fmt, ...) PRINTF(3, 4);

/* Sets t->why and returns rc; formats call it too. */
int table_refuse(struct table *t, int rc, const char *fmt, ...) PRINTF(3, 4);

/* Sorts and checks the table, and adds `fp32` to tensors without it whose dtype widens to
 * float32, but not to buffers of integers.
 * -EINVAL: a state is not covered exactly once; or two tensors, or two states of one, have the
 * same name.
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

/* Returns the state of that key; NULL: none. */
const struct table_state *table_find_state(const struct table *t, uint32_t tensor,
					   const char *key);
/* Returns the states of a rank's partition, n of them, sorted by key. */
const struct table_partition *table_partitions(const struct table *t, uint32_t rank,
					       uint32_t group, uint32_t sub, uint32_t *n);
/* Returns the number of a state's elements. */
uint64_t table_numel(const struct table *t, const struct table_state *s);
/* Returns the shown states, n of them, sorted by key; an alias has those of its tensor. */
const struct table_state *table_states(const struct table *t, uint32_t tensor, uint32_t *n);

/* Returns the states that table_add_copy() added, n of them; an alias has those of its tensor.
 */
const struct table_state *table_copies(const struct table *t, uint32_t tensor, uint32_t *n);

/* Returns the first entry that ends behind byte `at` of a file, or is in a later file; further
 * entries follow it up to t->entries + t->nentries.  NULL: none.
 */
const struct table_entry *table_find_entry(const struct table *t, uint32_t file, uint64_t at);

/* Elements of one piece that are adjacent in the file. */
struct table_run {
	uint32_t file, rank;
	uint64_t base;  /* the first element's byte in the file */
	uint64_t first; /* element of the state; of a box: in the box's own order */
	uint64_t count;
	const uint64_t *box; /* offsets, sizes; NULL: an interval */
};

/* Calls see for the pieces that hold elements [first, first + count) of a state, cut to this
 * range, until see returns other than 0; returns that.  Intervals come in the state's order.
 */
typedef int (*table_see)(void *arg, const struct table_run *run);
int table_walk(const struct table *t, const struct table_state *s, uint64_t first,
	       uint64_t count, table_see see, void *arg);
/* Does table_walk() for all pieces that a rank holds of the state. */
int table_walk_rank(const struct table *t, const struct table_state *s, uint32_t rank,
		    table_see see, void *arg);
uint64_t table_rank_count(const struct table *t, const struct table_state *s, uint32_t rank);
/* Returns the bytes of all pieces and segments, padding included. */
uint64_t table_bytes(const struct table *t);

#endif
