/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_TREE_H
#define FS_TREE_H

/* The tree of files as arithmetic: an inode number says what its node is, so no node that is
 * listed needs memory.
 *
 *	63	58 57	   42 41		    10 9     0
 *	|  kind	  |   rank   |	      item	      |  slot  |
 *
 * rank	a rank's number below ranks/; 1 below now/, whose nodes are else those of params/
 *	with rank 0; a state's file has its alias, and a NODE_STAT its enum stat_id, in
 *	the upper 15 bits
 * item	a parameter, or group << 16 | sub-group, or a part; of a NODE_CELLS its name's number
 *	(fs/found.h), from which its directory and key are known
 * slot	a key's number in the table of keys, or an enum text_id, or that of a file in export/
 *
 * Inode 1 is the root.  Any thread.
 */

#include "engine/catalog/mesh.h"
#include "engine/engine.h"
#include "fs/export.h"
#include "fs/found.h"
#include "fs/names.h"
#include "fs/state-list.h"
#include "fs/universal.h"
#include "fs/cells.h"

#include <pthread.h>
#include <sys/stat.h>

enum { TREE_KEYS_MAX = 1024, TREE_BLOCK = 1 << 20, TREE_PATH_MAX = 512 };

enum node_kind {
	NODE_ROOT,
	NODE_PART,         /* mp_rank_NN/: item */
	NODE_PARAMS,       /* params/, now/: item is the part, as in the part's other folders */
	NODE_PARAM,        /* params/<name>/, now/<name>/: item */
	NODE_RANKS,        /* ranks/ */
	NODE_RANK,         /* ranks/<r>/: rank */
	NODE_RANK_PARAMS,  /* ranks/<r>/params/ */
	NODE_RANK_PARAM,   /* ranks/<r>/params/<name>/: rank, item */
	NODE_PARTITIONS,   /* ranks/<r>/partitions/ */
	NODE_PARTITION,    /* ranks/<r>/partitions/<group>.<sub>/: rank, item */
	NODE_GROUPS,       /* groups/ */
	NODE_GROUP,        /* groups/<i>/: item */
	NODE_GROUP_PARAMS, /* groups/<i>/params/ */
	/* buffers/, of a checkpoint: its NODE_PARAMs have the numbers after the parameters' */
	NODE_BUFFERS,
	NODE_STATS,           /* params/<name>/stats/, which is found but not listed: item */
	NODE_STATS_STATE,     /* params/<name>/stats/<state>/: item, slot */
	NODE_ELEM,            /* params/<name>/elem/, which is found but not listed: item */
	NODE_ELEM_STATE,      /* params/<name>/elem/<state>/: item, slot */
	NODE_EXPORT,          /* export/, which is found but not listed: item is the part */
	NODE_EXPORT_HF,       /* export/hf/: item is the part */
	NODE_UNIVERSAL,       /* export/universal/: item is the part */
	NODE_UNIVERSAL_ZERO,  /* export/universal/zero/: item is the part */
	NODE_UNIVERSAL_PARAM, /* export/universal/zero/<name>/: item */
	NODE_CONTROL,         /* .frag/ */
	NODE_TEXT,       /* slot is an enum text_id; rank, item as its directory has them */
	NODE_STATE,      /* item, slot */
	NODE_NPY,        /* item, slot */
	NODE_CELLS,      /* item, slot, name: found but not listed, as STATE[3].npy */
	NODE_RANK_STATE, /* rank, item, slot */
	NODE_PARTITION_STATE, /* rank, item, slot */
	NODE_UNIVERSAL_STATE, /* item, slot */
	NODE_HYPER,           /* item, slot */
	NODE_GROUP_LINK,      /* the field rank has the group; item: the parameter */
	NODE_EVENTS,          /* events */
	NODE_STAT,            /* item, slot, stat */
	NODE_STATS_TABLE,     /* .frag/stats, which is found but not listed */
	NODE_EXPORT_FILE,     /* item is the part; slot: EXPORT_MODEL ... */
	NODE_KINDS,
};

enum text_id {
	TEXT_STEP,
	TEXT_PHASE,
	TEXT_GENERATION,
	TEXT_SHAPE,
	TEXT_DTYPE,
	TEXT_NUMEL,
	TEXT_GROUP,
	TEXT_GROUP_INDEX,
	TEXT_FRAGMENTS,
	TEXT_RANK_STATE,
	TEXT_RANK_ADDRESS,
	TEXT_RANK_PID,
	TEXT_RANK_HOST,
	TEXT_RANK_SWAP,
	TEXT_RANK_PINNED,
	TEXT_RANK_LOG,
	TEXT_RANK_COMMS,
	TEXT_RANK_TIMERS,
	TEXT_RANK_ARENA,
	TEXT_GROUP_KIND,
	TEXT_GROUP_SHARDS,
	TEXT_GROUP_REPLICAS,
	TEXT_GROUP_SUB_GROUPS,
	TEXT_GROUP_RANKS,
	TEXT_GROUP_LOSS_SCALE,
	TEXT_VERSION,
	TEXT_OPTIONS,
	TEXT_CONFIG,
	TEXT_HEALTH,
	TEXT_METRICS,
	TEXT_INFLIGHT,
	TEXT_LOG,
	TEXT_FREEZE,
	TEXT_CONTROL,
	TEXT_NCCL,
	TEXT_COMMS,
	TEXT_PLACE,
	TEXT_LEAVES,
	TEXT_READERS,
	TEXT_SOURCE,
	TEXT_UNIVERSAL, /* and the others of enum universal_file */
	TEXT_UNIVERSAL_LAST = TEXT_UNIVERSAL + UNIVERSAL_STEP,
	TEXTS,
};

/* The files in params/<name>/stats/<state>/. */
enum stat_id {
	STAT_NORM,
	STAT_MEAN,
	STAT_STD,
	STAT_MIN,
	STAT_MAX,
	STAT_ABSMAX,
	STAT_NAN,
	STAT_INF,
	STAT_ZERO,
	STAT_FIRST_NAN,
	STAT_FIRST_INF,
	STAT_HIST,
	STAT_ALL,
	STAT_XXH64,
	STATS,
};

enum { NODE_ALIAS_MAX = 0x7fff };

struct node {
	enum node_kind kind;
	uint32_t rank;
	uint32_t item;
	uint32_t slot;
	uint32_t alias;    /* which of the inodes that show the same file; fs/pages.h */
	enum stat_id stat; /* of a NODE_STAT */
	uint32_t name;     /* of a NODE_CELLS: the number of its name */
};

static inline uint32_t tree_node_group(struct node n)
{
	return n.kind == NODE_GROUP_LINK ? n.rank : n.item >> 16;
}

/* Returns true if the kind belongs to params/ and, with rank 1, to now/.  NODE_TEXT may too. */
static inline bool tree_kind_is_of_params(enum node_kind kind)
{
	return kind == NODE_PARAMS || kind == NODE_PARAM || kind == NODE_STATE ||
	       kind == NODE_NPY || kind == NODE_STATS || kind == NODE_STATS_STATE ||
	       kind == NODE_STAT || kind == NODE_CELLS || kind == NODE_ELEM ||
	       kind == NODE_ELEM_STATE;
}

/* Returns true if the node is below now/, whose files show the bytes of the moment of the read.
 */
static inline bool tree_node_is_now(struct node n)
{
	bool text = n.kind == NODE_TEXT && n.slot >= TEXT_SHAPE && n.slot <= TEXT_FRAGMENTS;

	return n.rank && (text || tree_kind_is_of_params(n.kind));
}

static inline bool tree_node_has_aliases(struct node n)
{
	return n.kind == NODE_STATE || n.kind == NODE_NPY || n.kind == NODE_CELLS ||
	       n.kind == NODE_EXPORT_FILE || n.kind == NODE_UNIVERSAL_STATE;
}

static inline bool tree_node_is_universal_text(struct node n)
{
	return n.kind == NODE_TEXT && n.slot >= TEXT_UNIVERSAL;
}

/* Returns true for the files to which commands are written: fs/freeze.h. */
static inline bool tree_node_is_command(struct node n)
{
	return n.kind == NODE_TEXT && (n.slot == TEXT_FREEZE || n.slot == TEXT_CONTROL);
}

static inline uint32_t tree_node_sub(struct node n)
{
	return n.item & 0xffff;
}

/* Flags of a tree: what its source has. */
enum {
	TREE_LIVE = 1 << 0,  /* a job */
	TREE_STILL = 1 << 1, /* a checkpoint */
	TREE_STEP = 1 << 2,
	TREE_BUFFERS = 1 << 3,
	TREE_GROUPS = 1 << 4,
	TREE_WHOLE = 1 << 5, /* one part, which is the root folder */
	TREE_PARTS = 1 << 6,
	TREE_PART_BUFFERS = 1 << 7, /* as TREE_BUFFERS, where there are parts */
	TREE_PART_GROUPS = 1 << 8,
	TREE_PARTITIONS = 1 << 9,
	TREE_NOW = 1 << 10,       /* now/, of a job */
	TREE_UNIVERSAL = 1 << 11, /* one part, and groups of an optimizer */
};

struct tree_key {
	_Atomic bool taken; /* once true, text does not change */
	char text[FRAG_KEY_MAX + 1];
};

struct tree_part {
	struct engine_part is; /* name NULL: the part is the whole source */
	struct names names;    /* of its parameters, then of its buffers */
};

struct tree {
	struct engine *engine;
	struct tree_part *parts;
	uint32_t nparts;                             /* at least one */
	uint32_t nparams, ntensors, nranks, ngroups; /* tensors: parameters, then buffers */
	unsigned has;                                /* TREE_... */
	bool writable;
	struct mesh mesh;    /* of a job's ranks; world 0: no parameter has a coordinate */
	const char *options; /* borrowed: the text of .frag/options */
	uid_t uid;
	gid_t gid;
	/* of mounting: atime and ctime of all nodes, and mtime of those without a change time
	 */
	struct timespec time;
	struct timespec data; /* mtime of a checkpoint's newest file, as of mounting */
	struct exports exports;
	pthread_mutex_t lock; /* held while a key is added */
	/* [TREE_KEYS_MAX], by hash, so that another mount gives the same numbers. */
	struct tree_key *keys;
	struct found *found; /* names of NODE_CELLS */
};

/* Borrows engine until tree_fini.  -ENOMEM. */
int tree_init(struct tree *t, struct engine *engine, bool writable);
void tree_fini(struct tree *t);

uint64_t tree_inode(struct node n);
static inline bool tree_node_is_same(struct node a, struct node b)
{
	return tree_inode(a) == tree_inode(b);
}
/* -ESTALE: no node has the number, or its parameter, rank or group is not there. */
int tree_node(const struct tree *t, uint64_t inode, struct node *n);
struct node tree_parent(const struct tree *t, struct node n);

/* Sets *t to a time in ns; 0: leaves it as it is. */
void tree_set_time(struct timespec *t, uint64_t ns);

/* Returns the key of a node's slot; the text is the tree's. */
const char *tree_key(const struct tree *t, struct node n);

/* Returns the group's number as its directory shows it, counted within its part. */
uint32_t tree_group_shown(const struct tree *t, uint32_t group);

/* Returns the engine's address of a state's node. */
struct engine_address tree_address(const struct tree *t, struct node n);

/* Fills the state of a state's node as it is now.
 * -ENOENT: there is none now.
 * -EIO: its rank is lost.
 * -ETIMEDOUT: its rank is silent.
 * -EAGAIN: its rank's table is on its way.
 */
int tree_state(struct tree *t, struct node n, struct engine_state *state);
/* Sets *c to the form in which the node of a state, which is not in a group, shows the state.
 * Unless text is NULL, *text becomes the header and trailer of a NODE_UNIVERSAL_STATE; the
 * caller frees it.
 * -ENOENT: the node cannot show the state, or no longer.
 */
int tree_cells(const struct tree *t, struct node n, const struct engine_state *state,
	       struct cells *c, char **text);
/* Takes n uses from the name of a NODE_CELLS; other inodes have none. */
void tree_forget(struct tree *t, uint64_t inode, uint64_t n);

/* Gives the files of the folder export/ that the node is in, which the caller puts.
 * -ENOENT: the node is a shard, and there are fewer shards.
 * Errors of exports_get.
 */
int tree_export(struct tree *t, struct node n, struct export_set **set);

struct tree_entry {
	struct node node;
	char name[NAMES_FILE_MAX + 1];
	bool has_state; /* state is filled: the caller need not look it up */
	struct engine_state state;
};

/* Finds a name in a directory.  A NODE_CELLS gets a use, for tree_forget.
 * -ENOENT: there is no such entry.
 * -ENOTDIR: dir is no directory.
 * -ENAMETOOLONG: no name is so long.
 * Others: as tree_state().
 */
int tree_lookup(struct tree *t, struct node dir, const char *name, struct tree_entry *entry);

/* A directory that is being read.  Offset 0 is its beginning; *next is the offset behind an
 * entry.
 */
struct tree_dir {
	struct tree *tree;
	struct node node;
	bool has_states; /* the states were listed */
	int error;       /* of tree_state, on which the listing ended; 0: none */
	struct state_list states;
};

void tree_dir_init(struct tree_dir *d, struct tree *t, struct node node);
void tree_dir_fini(struct tree_dir *d);
/* Gives the entry at offset.  False: there are no more, or d->error says why. */
bool tree_dir_get(struct tree_dir *d, uint64_t offset, struct tree_entry *entry,
		  uint64_t *next);

/* Fills a node's attributes, but for st_size of texts and hypers.  `state` is the state of the
 * node, or NULL: tree_attr looks it up.
 * -ENOENT: the state is not there now.
 */
int tree_attr(struct tree *t, struct node n, const struct engine_state *state, struct stat *st);

/* Returns the seconds for which the kernel may keep a node's name and attributes. */
double tree_timeout(const struct tree *t, struct node n);

/* Returns true if a file's bytes never change while mounted, so that the kernel may cache
 * them.
 */
bool tree_is_still(const struct tree *t, struct node n);

bool tree_node_is_dir(struct node n);
bool tree_node_is_state(struct node n); /* has a struct engine_state; NODE_NPY too */

/* Writes the target of a symbolic link and returns its length; as snprintf. */
int tree_link(const struct tree *t, struct node n, char *out, size_t size);

/* Writes a node's path below the mount, for people, and returns its length; as snprintf. */
int tree_path(const struct tree *t, struct node n, char *out, size_t size);

#endif
