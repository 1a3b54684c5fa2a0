/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_TREE_INTERNAL_H
#define FS_TREE_INTERNAL_H

/* The inside of the tree, shared by tree.c, tree-list.c, tree-lookup.c and tree-part.c. */

#include "fs/tree.h"

enum { TREE_FIXED = 84, TREE_SUBS_MAX = 1 << 16 };

/* An entry that every directory of a kind has. */
struct tree_fixed {
	enum node_kind dir;
	const char *name;
	enum node_kind kind;
	unsigned text;  /* enum text_id; enum stat_id of a NODE_STAT; slot in export/ */
	unsigned needs; /* TREE_... that the source must have; 0: none */
};

extern const struct tree_fixed tree_fixed[TREE_FIXED];

/* Finds a fixed entry of a directory; NULL: it has none of that name. */
const struct tree_fixed *tree_find_fixed(enum node_kind dir, const char *name);
bool tree_has_fixed(const struct tree *t, const struct tree_fixed *f);
/* Returns 1 if the entry is in this directory now, 0 if not; -errno: its rank cannot be asked.
 */
int tree_shows_fixed(const struct tree *t, const struct tree_fixed *f, struct node dir);

/* The kind of a directory's entries that are not fixed. */
extern const enum node_kind tree_content[NODE_KINDS];

/* Lists the states of a directory.  Errors of state_list_fill. */
int tree_states(struct tree *t, struct node dir, struct state_list *out);

/* Returns true if LOOKUP finds entries of the kind and no listing shows them. */
bool tree_kind_is_hidden(enum node_kind kind);

/* Returns the slot of a key, a new one if it has none.
 * -ENOSPC: the table is full.
 */
int64_t tree_key_slot(struct tree *t, const char *key);
/* Returns the key that has the slot; NULL: none. */
const char *tree_slot_key(const struct tree *t, uint64_t slot);

/* Fills the entry of a state's file.  -ENOSPC: the table of keys is full. */
int tree_state_entry(struct tree *t, struct node dir, const struct engine_state *state,
		     bool npy, struct tree_entry *entry);

/* Writes the file name of a key. */
void tree_state_file(enum node_kind dir, const char *key, bool npy, char *out);

struct node tree_fixed_node(const struct tree_fixed *f, struct node dir);
/* Returns how many states of param the rank holds.
 * -ETIMEDOUT: it is silent.
 * -EIO: it is gone.
 */
int tree_rank_holds(struct tree *t, uint32_t rank, uint32_t param);
bool tree_group_has_rank(struct tree *t, uint32_t group, uint32_t rank, struct engine_group *g);

/* -ENOMEM. */
int tree_init_parts(struct tree *t);
void tree_fini_parts(struct tree *t);
uint32_t tree_part_of_param(const struct tree *t, uint32_t param);
uint32_t tree_part_of_group(const struct tree *t, uint32_t group);
uint32_t tree_part_of_rank(const struct tree *t, uint32_t rank);
/* Returns how many of the part's groups are shown. */
uint32_t tree_part_groups(const struct tree *t, uint32_t part);
/* Converts a parameter's number to its file name, and back.
 * -ENOENT: the part has no parameter with that file name.
 */
const char *tree_name(const struct tree *t, uint32_t param);
int64_t tree_find(const struct tree *t, uint32_t part, const char *file);

bool tree_node_has_param(enum node_kind kind);

#endif
