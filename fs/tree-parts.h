/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_TREE_PARTS_H
#define FS_TREE_PARTS_H

/* What the files of tree share. */

#include "fs/tree.h"

enum { TREE_FIXED = 44, TREE_SUBS_MAX = 1 << 16 };

/* Entries that a directory always has. */
struct tree_fixed {
	enum node_kind dir;
	const char *name;
	enum node_kind kind;
	enum text_id text;
	unsigned needs; /* TREE_...; 0: always there */
};

extern const struct tree_fixed tree_fixed[TREE_FIXED];

/* Of that directory; NULL: it has none such. */
const struct tree_fixed *tree_find_fixed(enum node_kind dir, const char *name);
bool tree_has_fixed(const struct tree *t, const struct tree_fixed *f);
/* Whether it is in this directory now: 1, 0; -errno: its rank cannot be asked. */
int tree_shows_fixed(const struct tree *t, const struct tree_fixed *f, struct node dir);

/* What the other entries of a directory are. */
extern const enum node_kind tree_content[NODE_KINDS];

/* Of a directory that has states; returns how many are written, at most max; -errno. */
int tree_states(struct tree *t, struct node dir, struct engine_state *out, int max);

/* -ENOSPC: the table of keys is full. */
int tree_state_entry(struct tree *t, struct node dir, const struct engine_state *state,
		     bool npy, struct tree_entry *entry);

/* The file of a key. */
void tree_state_file(enum node_kind dir, const char *key, bool npy, char *out);

struct node tree_fixed_node(const struct tree_fixed *f, struct node dir);
/* How many states of it; -EIO, -ETIMEDOUT. */
int tree_rank_holds(struct tree *t, uint32_t rank, uint32_t param);
bool tree_group_has_rank(struct tree *t, uint32_t group, uint32_t rank, struct engine_group *g);

/* -ENOMEM. */
int tree_init_parts(struct tree *t);
void tree_fini_parts(struct tree *t);
uint32_t tree_part_of_param(const struct tree *t, uint32_t param);
uint32_t tree_part_of_group(const struct tree *t, uint32_t group);
uint32_t tree_part_of_rank(const struct tree *t, uint32_t rank);
/* Of its groups, those that are shown. */
uint32_t tree_part_groups(const struct tree *t, uint32_t part);
/* A parameter's file name, and the parameter that has it.  -ENOENT. */
const char *tree_name(const struct tree *t, uint32_t param);
int64_t tree_find(const struct tree *t, uint32_t part, const char *file);

bool node_has_param(enum node_kind kind);

#endif
