/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_PICKLE_MACHINE_H
#define ENGINE_CHECKPOINT_PARSE_PICKLE_MACHINE_H

/* The machine that reads a pickle, for the files pickle*.c alone.
 *
 *   pickle-read.c     the opcodes, and the loop that carries them out
 *   pickle-calls.c    the nodes that REDUCE and persistent ids yield
 *   pickle-machine.c  bytes, nodes, stack, memo, numbers and texts
 *   pickle.c          questions about nodes; sealing
 *
 * Each file calls only those below it.
 */

#include "engine/checkpoint/parse/pickle-internal.h"

enum { MARKS_MAX = 2000 }; /* nested marks; Python's writer nests fewer */

struct memo_far {
	uint32_t slot, node;
};

/* After the first error rc stays set, every node that is made is PICKLE_NOTHING, and all
 * further calls are safe and without effect on the result.
 */
struct pickle_machine {
	struct pickle *p;
	struct parse_error *error;
	int rc;
	bool stopped;  /* STOP was read */
	size_t at;     /* the next byte */
	size_t copied; /* items and bytes that were copied; bounded by 2 * at */
	uint32_t *stack;
	uint32_t nstack, stack_room;
	uint32_t *memo; /* nodes, by slot; 0: the slot is empty */
	uint32_t memo_room, memo_count;
	struct memo_far far[64]; /* slots with numbers beyond those that Python writes */
	uint32_t nfar;
	uint32_t nmarks;
	uint32_t marks[MARKS_MAX]; /* height of the stack at each mark */
};

static inline struct pickle_node *pickle_machine_at(struct pickle_machine *m, uint32_t node)
{
	return &m->p->nodes[node];
}

/* ---- pickle-machine.c ---- */

/* Sets m->rc and the error's text, unless an earlier error has set them. */
void pickle_machine_fail(struct pickle_machine *m, int rc, const char *fmt, ...) PRINTF(3, 4);

/* Makes n bytes from m->at on readable in p->data.  Returns false if the pickle ends before;
 * m->rc is set then.
 */
bool pickle_machine_need(struct pickle_machine *m, uint64_t n);
/* Counts n bytes or items as copied.  Copies beyond twice the bytes read fail with -EFBIG: a
 * small pickle must not make large memory.
 */
bool pickle_machine_charge(struct pickle_machine *m, size_t n);

/* Makes a node.  PICKLE_NOTHING: m->rc is set. */
uint32_t pickle_machine_node(struct pickle_machine *m, enum pickle_kind kind);
uint32_t pickle_machine_int(struct pickle_machine *m, int64_t value);
/* Makes a node of the n bytes of p->data from `from` on. */
uint32_t pickle_machine_bytes(struct pickle_machine *m, enum pickle_kind kind, size_t from,
			      size_t n);
/* Does pickle_machine_bytes() for a text; fails with -EBADMSG where the bytes are not UTF-8. */
uint32_t pickle_machine_text(struct pickle_machine *m, size_t from, size_t n);
/* Reserves n bytes at the end of p->decoded and returns them; NULL: m->rc is set. */
uint8_t *pickle_machine_decode(struct pickle_machine *m, size_t n);
/* Makes a node of the first n bytes that pickle_machine_decode() reserved last. */
uint32_t pickle_machine_decoded(struct pickle_machine *m, enum pickle_kind kind, size_t n);
/* Makes a node with these words, which are copied and must not be in p->words. */
uint32_t pickle_machine_words(struct pickle_machine *m, enum pickle_kind kind,
			      const uint32_t *words, uint32_t n);
/* Appends words, which must not be in p->words, to a list. */
void pickle_machine_append(struct pickle_machine *m, uint32_t list, const uint32_t *words,
			   uint32_t n);
/* Appends keys and values, alternating, n in all, to a dict.
 * -EBADMSG: a key is not hashable.
 */
void pickle_machine_set(struct pickle_machine *m, uint32_t dict, const uint32_t *pairs,
			uint32_t n);

/* The stack.  pickle_machine_top and pickle_machine_pop fail with -EBADMSG when no value stands
 * above the topmost mark.
 */
void pickle_machine_push(struct pickle_machine *m, uint32_t node);
uint32_t pickle_machine_pop(struct pickle_machine *m);
uint32_t pickle_machine_top(struct pickle_machine *m);

/* The memo.  pickle_machine_put stores the top of the stack in a slot; pickle_machine_get
 * pushes the node of a slot.
 */
void pickle_machine_put(struct pickle_machine *m, uint64_t slot);
void pickle_machine_get(struct pickle_machine *m, uint64_t slot);

/* Takes the bytes up to the next '\n' and the '\n', which is not counted in *size. */
bool pickle_machine_line(struct pickle_machine *m, size_t *from, size_t *size);
/* Read the operand of a text opcode, a line: INT, LONG, FLOAT, STRING, UNICODE. */
uint32_t pickle_machine_read_integer(struct pickle_machine *m);
uint32_t pickle_machine_read_long(struct pickle_machine *m);
uint32_t pickle_machine_read_float(struct pickle_machine *m);
uint32_t pickle_machine_read_string(struct pickle_machine *m);
uint32_t pickle_machine_read_unicode(struct pickle_machine *m);
/* Makes a node of an integer: n bytes of p->data, little-endian, in two's complement. */
uint32_t pickle_machine_little_endian(struct pickle_machine *m, size_t from, size_t n);

/* ---- pickle-calls.c ---- */

/* Returns the node that REDUCE yields: by the table of callees, else an inert object. */
uint32_t pickle_machine_call(struct pickle_machine *m, uint32_t callee, uint32_t arguments);
uint32_t pickle_machine_object(struct pickle_machine *m, uint32_t callee, uint32_t arguments);
/* Returns the node that a persistent id stands for: a storage, or the class of a module. */
uint32_t pickle_machine_persistent(struct pickle_machine *m, uint32_t id);

#endif
