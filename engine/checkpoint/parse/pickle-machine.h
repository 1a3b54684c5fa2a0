/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_PICKLE_MACHINE_H
#define ENGINE_CHECKPOINT_PARSE_PICKLE_MACHINE_H

/* What the files pickle-*.c share. */

#include "engine/checkpoint/parse/pickle.h"

enum {
	NODES_MAX = 1 << 26,
	WORDS_MAX = 1 << 28,
	MARKS_MAX = 2000, /* nesting of what Python itself can write is less */
	NODE_NONE = 1,    /* these are always there */
	NODE_FALSE,
	NODE_TRUE,
	NODE_EMPTY_TUPLE,
	NODES_FIXED,
	LOOKUP_MIN = 9, /* pairs: a smaller dict is searched from its beginning */
};

/* A list, tuple, dict (two words a pair), global (module, name), storage (dtype, key, numel),
 * tensor or object has its parts as words.
 */
struct pickle_node {
	uint8_t kind;
	bool hashable;
	bool decoded;   /* a text: its bytes are in the pickle's decoded, not in its data */
	uint32_t count; /* words; of a text bytes */
	union {
		int64_t integer;
		double real;
		struct {
			uint32_t at;
			union {
				uint32_t room; /* words, while it grows */
				uint32_t
					order; /* of a large dict, at the end: see pickle-seal.c */
				uint32_t
					rank; /* of a text that is a key: as its bytes compare */
			};
		};
	};
};

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
	uint8_t *data;    /* its first bytes */
	size_t loaded, data_room;
	struct pickle_node *nodes;
	uint32_t nnodes, nodes_room;
	uint32_t *words;
	uint32_t nwords, words_room;
	uint8_t *decoded;
	size_t ndecoded, decoded_room;
	uint32_t root;
	uint64_t size;
};

struct memo_far {
	uint32_t slot, node;
};

/* While it is read.  After the first fault rc stays set, nodes are PICKLE_NOTHING, and all else
 * that is done is without meaning, but safe.
 */
struct machine {
	struct pickle *p;
	struct parse_error *error;
	int rc;
	bool stopped;
	size_t at;     /* the next byte */
	size_t copied; /* items and bytes not moved, but copied: no more than bytes read */
	uint32_t *stack;
	uint32_t nstack, stack_room;
	uint32_t *memo; /* slots below the bytes read so far */
	uint32_t memo_room, memo_count;
	struct memo_far far[64]; /* other slots: Python writes none */
	uint32_t nfar;
	uint32_t nmarks;
	uint32_t marks[MARKS_MAX];
};

void machine_fail(struct machine *m, int rc, const char *fmt, ...) PRINTF(3, 4);
/* Room for one more of `size` bytes each; max: in all.  Sets rc when there is none. */
bool machine_room(struct machine *m, void **array, uint32_t *room, uint32_t used, uint32_t more,
		  size_t size, uint32_t max);

/* The next n bytes, at m->at, are in memory. */
bool machine_need(struct machine *m, uint64_t n);
/* They may be copied once more. */
bool machine_charge(struct machine *m, size_t n);

uint32_t machine_node(struct machine *m, enum pickle_kind kind);
uint32_t machine_int(struct machine *m, int64_t value);
/* n bytes of the data, from `from`. */
uint32_t machine_bytes(struct machine *m, enum pickle_kind kind, size_t from, size_t n);
/* A text where it is UTF-8; fails where it must be. */
uint32_t machine_text(struct machine *m, size_t from, size_t n);
/* Room for n bytes more among the decoded; they count when machine_decoded has been called. */
uint8_t *machine_decode(struct machine *m, size_t n);
uint32_t machine_decoded(struct machine *m, enum pickle_kind kind, size_t n);
/* A node whose parts are these words, which are not among the pickle's. */
uint32_t machine_words(struct machine *m, enum pickle_kind kind, const uint32_t *words,
		       uint32_t n);
/* words are not among the pickle's. */
void machine_append(struct machine *m, uint32_t list, const uint32_t *words, uint32_t n);
/* n: an even number of keys and values. */
void machine_set(struct machine *m, uint32_t dict, const uint32_t *pairs, uint32_t n);

void machine_push(struct machine *m, uint32_t node);
uint32_t machine_pop(struct machine *m);
uint32_t machine_top(struct machine *m);

static inline struct pickle_node *machine_at(struct machine *m, uint32_t node)
{
	return &m->p->nodes[node];
}

static inline const uint32_t *pickle_words(const struct pickle *p, uint32_t node)
{
	return p->words + p->nodes[node].at;
}

/* The top of the stack goes to a slot of the memo; what is in one is pushed: pickle-memo.c. */
void machine_put(struct machine *m, uint64_t slot);
void machine_get(struct machine *m, uint64_t slot);

/* Does one instruction: pickle-ops.c. */
void machine_step(struct machine *m);
/* Lines up to '\n', of text opcodes: pickle-text.c. */
bool machine_line(struct machine *m, size_t *from, size_t *size);
uint32_t machine_read_integer(struct machine *m);
uint32_t machine_read_long(struct machine *m);
uint32_t machine_read_float(struct machine *m);
uint32_t machine_read_string(struct machine *m);
uint32_t machine_read_unicode(struct machine *m);
uint32_t machine_little_endian(struct machine *m, size_t from, size_t n);

/* What REDUCE makes; what a persistent id is: pickle-calls.c. */
uint32_t machine_call(struct machine *m, uint32_t callee, uint32_t arguments);
uint32_t machine_object(struct machine *m, uint32_t callee, uint32_t arguments);
uint32_t machine_persistent(struct machine *m, uint32_t id);

/* Drops repeated keys and sorts large dicts for lookups: pickle-seal.c.  -ENOMEM, -EFBIG. */
void machine_seal(struct machine *m);
/* The text's bytes. */
const uint8_t *pickle_bytes_of(const struct pickle *p, const struct pickle_node *n);

#endif
