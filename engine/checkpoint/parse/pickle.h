/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_PICKLE_H
#define ENGINE_CHECKPOINT_PARSE_PICKLE_H

/* A pickle, protocols 0 to 5, read into a graph of nodes.  Nothing in it is ever called or
 * imported: a table has the few callees that torch and DeepSpeed need (pickle-calls.c), all
 * others yield an inert object.  Memory is bounded by a multiple of the pickle's size; there is
 * no recursion.
 *
 * A node is a number.  The graph may have cycles, and a node several parents: whoever walks it
 * keeps a list of nodes to visit and marks those that were visited.  Each function takes any
 * node.  A node of another kind has no items, is no number, and so on; a part that is missing
 * is PICKLE_NOTHING, which is a node too, so lookups can be nested without a check at each
 * step.  A pickle that has been read does not change: any thread.
 */

#include "engine/checkpoint/parse/blob.h"
#include "engine/frag.h"

enum pickle_kind {
	PICKLE_NOTHING, /* also the node 0 */
	PICKLE_NONE,
	PICKLE_BOOL,
	PICKLE_INT,
	PICKLE_BIG, /* an integer beyond 64 bits: its bytes as in the pickle */
	PICKLE_REAL,
	PICKLE_TEXT, /* UTF-8, may have lone surrogates and NULs */
	PICKLE_BYTES,
	PICKLE_LIST,   /* also a set */
	PICKLE_TUPLE,  /* also a torch.Size, a frozenset */
	PICKLE_DICT,   /* in order; the last of equal keys that are texts or integers */
	PICKLE_GLOBAL, /* the name of a class or function */
	PICKLE_STORAGE,
	PICKLE_TENSOR,
	PICKLE_OBJECT, /* anything else: a callee, its arguments, its state */
};

struct pickle;

/* Reads the pickle that begins at byte `at` of b and has at most `size` bytes.
 * -EOPNOTSUPP: an opcode that is refused.
 * Errors of parse-error.h.
 */
int pickle_read(struct pickle **out, const struct blob *b, uint64_t at, uint64_t size,
		struct parse_error *error);
void pickle_free(struct pickle *p);

uint32_t pickle_root(const struct pickle *p);
/* Returns the number of the pickle's bytes, up to and including its STOP. */
uint64_t pickle_size(const struct pickle *p);
/* Returns a number that is above all nodes, reachable or not: the size of a walk's marks. */
uint32_t pickle_nodes(const struct pickle *p);

enum pickle_kind pickle_kind(const struct pickle *p, uint32_t node);

/* Returns the number of items of a list or tuple, or of pairs of a dict. */
uint32_t pickle_count(const struct pickle *p, uint32_t node);
uint32_t pickle_item(const struct pickle *p, uint32_t node, uint32_t i);
uint32_t pickle_key(const struct pickle *p, uint32_t dict, uint32_t i);
uint32_t pickle_value(const struct pickle *p, uint32_t dict, uint32_t i);

/* Returns the value under a key of a dict, in O(log n). */
uint32_t pickle_get(const struct pickle *p, uint32_t dict, const char *key);
uint32_t pickle_get_text(const struct pickle *p, uint32_t dict, const char *key, size_t size);
/* Returns the value under the key that equals the text `key` of the pickle `other`. */
uint32_t pickle_get_as(const struct pickle *p, uint32_t dict, const struct pickle *other,
		       uint32_t key);
uint32_t pickle_get_int(const struct pickle *p, uint32_t dict, int64_t key);

/* Return false if the node is of another kind; *out is unchanged then. */
bool pickle_bool(const struct pickle *p, uint32_t node, bool *out);
bool pickle_int(const struct pickle *p, uint32_t node, int64_t *out);
/* Takes the value of an integer or a real. */
bool pickle_number(const struct pickle *p, uint32_t node, double *out);

/* Returns the bytes of a text, of bytes, or of a big integer; not terminated.  NULL: the node
 * is of another kind.
 */
const char *pickle_text(const struct pickle *p, uint32_t node, size_t *size);
bool pickle_is_text(const struct pickle *p, uint32_t node, const char *text);

/* Return the module and the name of a global, which are texts. */
uint32_t pickle_module(const struct pickle *p, uint32_t node);
uint32_t pickle_name(const struct pickle *p, uint32_t node);
/* Returns true if the node is that global; module NULL: of any module. */
bool pickle_is_global(const struct pickle *p, uint32_t node, const char *module,
		      const char *name);
/* Returns true for the classes of torch whose tensors are as those without a class: Tensor,
 * Parameter, Buffer.
 */
bool pickle_is_plain_class(const struct pickle *p, uint32_t node);

/* Return the parts of an object.  pickle_items: a dict of the pairs that were set;
 * pickle_sequence: a list of the items that were appended.
 */
uint32_t pickle_callee(const struct pickle *p, uint32_t node);
uint32_t pickle_arguments(const struct pickle *p, uint32_t node);
uint32_t pickle_state(const struct pickle *p, uint32_t node);
uint32_t pickle_items(const struct pickle *p, uint32_t node);
uint32_t pickle_sequence(const struct pickle *p, uint32_t node);
/* Returns an attribute of an object, from its state, which is a dict or a pair of dicts. */
uint32_t pickle_field(const struct pickle *p, uint32_t node, const char *name);
bool pickle_is_object(const struct pickle *p, uint32_t node, const char *module,
		      const char *callee);

struct pickle_storage {
	enum frag_dtype dtype; /* UntypedStorage: FRAG_U8 */
	uint32_t key;
	uint64_t numel; /* as in the pickle, not checked against the data; below 2^62 */
};
bool pickle_storage(const struct pickle *p, uint32_t node, struct pickle_storage *out);

/* A tensor as the pickle has it: none of the numbers is checked. */
struct pickle_tensor {
	enum frag_dtype dtype;
	uint32_t storage;
	int64_t offset;         /* elements */
	uint32_t shape, stride; /* tuples of the same length */
};
bool pickle_tensor(const struct pickle *p, uint32_t node, struct pickle_tensor *out);

#endif
