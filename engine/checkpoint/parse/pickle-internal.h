/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_PICKLE_INTERNAL_H
#define ENGINE_CHECKPOINT_PARSE_PICKLE_INTERNAL_H

/* The inside of a pickle that has been read: its nodes and their words. */

#include "engine/checkpoint/parse/pickle.h"

enum {
	NODES_MAX = 1 << 26,
	WORDS_MAX = 1 << 28,
	NODE_NONE = 1, /* the nodes that every pickle has */
	NODE_FALSE,
	NODE_TRUE,
	NODE_EMPTY_TUPLE,
	NODES_FIXED,
	LOOKUP_MIN = 9, /* pairs: a smaller dict is searched from its end */
};

/* A node.  A list, tuple, dict (two words a pair), global (module, name), storage, tensor or
 * object has its parts in the pickle's words, a text or bytes in the pickle's bytes.
 */
struct pickle_node {
	uint8_t kind;
	bool hashable;
	bool decoded;   /* a text's bytes are in the pickle's `decoded`, not in its `data` */
	uint32_t count; /* words; a text: bytes */
	union {
		int64_t integer;
		double real;
		struct {
			uint32_t at; /* first word, or first byte */
			union {
				uint32_t room; /* words reserved, while the node grows */
				/* a large dict that is sealed: the first word of its order */
				uint32_t order;
				/* a text that is a key: its number in the order of bytes */
				uint32_t rank;
			};
		};
	};
};

/* The words of a tensor, a storage, an object. */
enum { TENSOR_DTYPE, TENSOR_STORAGE, TENSOR_OFFSET, TENSOR_SHAPE, TENSOR_STRIDE, TENSOR_WORDS };
enum { STORAGE_DTYPE, STORAGE_KEY, STORAGE_NUMEL, STORAGE_WORDS };
enum {
	OBJECT_CALLEE,
	OBJECT_ARGUMENTS,
	OBJECT_STATE,
	OBJECT_ITEMS,
	OBJECT_SEQUENCE,
	OBJECT_WORDS
};

struct pickle {
	struct blob blob; /* begins where the pickle does, and may be longer */
	uint8_t *data;    /* the first `loaded` bytes of the blob */
	size_t loaded;
	struct pickle_node *nodes;
	uint32_t nnodes, nodes_room;
	uint32_t *words;
	uint32_t nwords, words_room;
	uint8_t *decoded; /* bytes of texts whose escapes were decoded */
	size_t ndecoded, decoded_room;
	uint32_t root;
	uint64_t size; /* bytes; 0 until STOP has been read */
};

static inline const uint32_t *pickle_words(const struct pickle *p, uint32_t node)
{
	return p->words + p->nodes[node].at;
}

/* Returns the bytes of a text or of bytes. */
const uint8_t *pickle_bytes_of(const struct pickle *p, const struct pickle_node *n);

/* Drops repeated keys and sorts large dicts, after which lookups bisect.
 * -ENOMEM.
 * -EFBIG: more than WORDS_MAX words.
 */
int pickle_seal(struct pickle *p);

#endif
