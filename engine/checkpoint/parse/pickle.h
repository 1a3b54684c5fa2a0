/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_PICKLE_H
#define ENGINE_CHECKPOINT_PARSE_PICKLE_H

/* A pickle, protocols 0 to 5, read into nodes.  Nothing in it is ever called or imported: the
 * few callees that torch and DeepSpeed need are a table (pickle-calls.c), everything else is an
 * inert object.  Memory is bounded by a multiple of the pickle's size; no recursion.
 *
 * Nodes are numbers.  They form a graph, in which one may be met many times and cycles are
 * possible: who walks it keeps a list of what is left to do, and marks what has been done.
 * Every function takes every node: what does not fit its kind has no items, is no number, and
 * so on, and what is not there is PICKLE_NOTHING, so that lookups can be nested without looking
 * at each step. A pickle that has been read does not change: any thread.
 */

#include "engine/checkpoint/parse/blob.h"
#include "engine/frag.h"

enum pickle_kind {
	PICKLE_NOTHING, /* also the node 0 */
	PICKLE_NONE,
	PICKLE_BOOL,
	PICKLE_INT,
	PICKLE_BIG, /* an integer beyond 64 bits: its bytes, as they stand */
	PICKLE_REAL,
	PICKLE_TEXT, /* UTF-8, lone surrogates possible, any byte of value 0 too */
	PICKLE_BYTES,
	PICKLE_LIST,   /* also a set */
	PICKLE_TUPLE,  /* also a torch.Size, a frozenset */
	PICKLE_DICT,   /* in order; of equal keys that are texts or integers the last */
	PICKLE_GLOBAL, /* the name of a class or function */
	PICKLE_STORAGE,
	PICKLE_TENSOR,
	PICKLE_OBJECT, /* anything else: a callee, its arguments, its state */
};

struct pickle;

/* Reads the pickle that begins at byte `at` of b and is no longer than size.
 * -EBADMSG, -EOPNOTSUPP (a refused opcode), -EFBIG, -EIO, -ENOMEM.
 */
int pickle_read(struct pickle **out, const struct blob *b, uint64_t at, uint64_t size,
		struct parse_error *error);
void pickle_free(struct pickle *p);

uint32_t pickle_root(const struct pickle *p);
/* Bytes it has, up to and with its STOP. */
uint64_t pickle_size(const struct pickle *p);
/* All nodes are below this, reachable or not: for lists of what has been seen. */
uint32_t pickle_nodes(const struct pickle *p);

enum pickle_kind pickle_kind(const struct pickle *p, uint32_t node);

/* Items of a list or tuple, pairs of a dict. */
uint32_t pickle_count(const struct pickle *p, uint32_t node);
uint32_t pickle_item(const struct pickle *p, uint32_t node, uint32_t i);
uint32_t pickle_key(const struct pickle *p, uint32_t dict, uint32_t i);
uint32_t pickle_value(const struct pickle *p, uint32_t dict, uint32_t i);

/* The value under a key of a dict.  O(log n). */
uint32_t pickle_get(const struct pickle *p, uint32_t dict, const char *key);
uint32_t pickle_get_text(const struct pickle *p, uint32_t dict, const char *key, size_t size);
/* Under the text that a node of another pickle, or of this one, is. */
uint32_t pickle_get_as(const struct pickle *p, uint32_t dict, const struct pickle *other,
		       uint32_t key);
uint32_t pickle_get_int(const struct pickle *p, uint32_t dict, int64_t key);

/* false, and *out is left: of another kind. */
bool pickle_bool(const struct pickle *p, uint32_t node, bool *out);
bool pickle_int(const struct pickle *p, uint32_t node, int64_t *out);
/* An integer or a real. */
bool pickle_number(const struct pickle *p, uint32_t node, double *out);

/* The bytes of a text, of bytes, of a big integer; not terminated; NULL: of another kind. */
const char *pickle_text(const struct pickle *p, uint32_t node, size_t *size);
bool pickle_is_text(const struct pickle *p, uint32_t node, const char *text);

/* A global's module and name; PICKLE_NOTHING: it is none. */
uint32_t pickle_module(const struct pickle *p, uint32_t node);
uint32_t pickle_name(const struct pickle *p, uint32_t node);
/* module NULL: any. */
bool pickle_is_global(const struct pickle *p, uint32_t node, const char *module,
		      const char *name);

/* Parts of an object.  items: the dict of what was set by key; sequence: the list of what was
 * appended.
 */
uint32_t pickle_callee(const struct pickle *p, uint32_t node);
uint32_t pickle_arguments(const struct pickle *p, uint32_t node);
uint32_t pickle_state(const struct pickle *p, uint32_t node);
uint32_t pickle_items(const struct pickle *p, uint32_t node);
uint32_t pickle_sequence(const struct pickle *p, uint32_t node);
/* An attribute from its state, which is a dict, or a pair of dicts. */
uint32_t pickle_field(const struct pickle *p, uint32_t node, const char *name);
bool pickle_is_object(const struct pickle *p, uint32_t node, const char *module,
		      const char *callee);

struct pickle_storage {
	enum frag_dtype dtype; /* UntypedStorage: FRAG_U8 */
	uint32_t key;
	uint64_t numel; /* as it says; < 2^62 */
};
bool pickle_storage(const struct pickle *p, uint32_t node, struct pickle_storage *out);

/* As it stands in the pickle: none of the numbers is checked. */
struct pickle_tensor {
	enum frag_dtype dtype;
	uint32_t storage;
	int64_t offset;         /* elements */
	uint32_t shape, stride; /* tuples of the same length */
};
bool pickle_tensor(const struct pickle *p, uint32_t node, struct pickle_tensor *out);

#endif
