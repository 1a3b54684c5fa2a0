/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/fail/linearize.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* Begins and ends of operations in order of time.  One that is taken out is part of the order
 * that is being tried.
 */
struct entry {
	struct entry *previous, *next;
	struct entry *end; /* of a begin; NULL: it is an end */
	size_t operation;
	long long time;
};

struct taken {
	struct entry *begin;
	long long before; /* the register */
};

/* Which operations were taken, and the register then: it need not be tried twice. */
struct been {
	uint64_t *slots; /* 0: free */
	size_t size, used;
};

struct search {
	const struct operation *operations;
	struct entry *entries, head;
	struct taken *stack;
	size_t depth, deepest;
	uint64_t set; /* hash of those taken */
	long long value;
	struct been been;
	long stuck;
};

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static bool put(struct been *b, uint64_t hash)
{
	size_t at = hash % b->size;

	while (b->slots[at] && b->slots[at] != hash)
		at = (at + 1) % b->size;
	if (b->slots[at])
		return false;
	b->slots[at] = hash;
	b->used++;
	return true;
}

static bool grow(struct been *b)
{
	struct been larger = { .size = b->size * 2 + 1021 };

	larger.slots = calloc(larger.size, sizeof(*larger.slots));
	if (!larger.slots)
		return false;
	for (size_t i = 0; i < b->size; i++)
		if (b->slots[i])
			put(&larger, b->slots[i]);
	free(b->slots);
	*b = larger;
	return true;
}

/* ---- the list ---- */

static int by_time(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	return !x->end - !y->end; /* at one time: they overlap */
}

static void chain(struct search *s, size_t n)
{
	struct entry *last = &s->head, **begins = (struct entry **)s->stack;

	qsort(s->entries, n * 2, sizeof(*s->entries), by_time);
	for (size_t i = 0; i < n * 2; i++) {
		struct entry *e = &s->entries[i];

		if (e->end)
			begins[e->operation] = e;
		else
			begins[e->operation]->end = e;
		e->previous = last;
		last = last->next = e;
	}
}

static void lay_out(struct search *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		s->entries[2 * i] = (struct entry){ .operation = i,
						    .time = s->operations[i].begin,
						    .end = &s->head };
		s->entries[2 * i + 1] =
			(struct entry){ .operation = i, .time = s->operations[i].end };
	}
	chain(s, n);
}

static void take_out(struct entry *e)
{
	e->previous->next = e->next;
	if (e->next)
		e->next->previous = e->previous;
}

static void put_back(struct entry *e)
{
	e->previous->next = e;
	if (e->next)
		e->next->previous = e;
}

/* ---- the search ---- */

static bool explains(const struct operation *o, long long *value)
{
	if (o->kind == OPERATION_READ)
		return *value == o->value;
	*value = o->kind == OPERATION_ADD ? *value + 1 : o->value;
	return true;
}

/* 1: e's operation is the next of the order; 0: it cannot be, or has been tried; -1: no memory.
 */
static int try(struct search *s, struct entry *e)
{
	long long value = s->value;
	uint64_t set = s->set ^ mix(e->operation + 1);

	if (!explains(&s->operations[e->operation], &value))
		return 0;
	if (s->been.used * 2 >= s->been.size && !grow(&s->been))
		return -1;
	if (!put(&s->been, mix(set ^ mix((uint64_t)value ^ 0x5bd1e995)) | 1))
		return 0;
	s->stack[s->depth++] = (struct taken){ e, s->value };
	s->value = value;
	s->set = set;
	take_out(e);
	take_out(e->end);
	return 1;
}

static struct entry *undo(struct search *s)
{
	struct taken *t = &s->stack[--s->depth];

	put_back(t->begin->end);
	put_back(t->begin);
	s->set ^= mix(t->begin->operation + 1);
	s->value = t->before;
	return t->begin->next;
}

static long search(struct search *s)
{
	struct entry *e = s->head.next;

	while (s->head.next) {
		int rc = e->end ? try(s, e) : 0;

		if (rc < 0)
			return LINEARIZE_OUT_OF_MEMORY;
		if (rc) {
			e = s->head.next;
			continue;
		}
		if (e->end) {
			e = e->next;
			continue;
		}
		/* It has returned, and has no place yet. */
		if (s->depth >= s->deepest) {
			s->deepest = s->depth;
			s->stuck = (long)e->operation;
		}
		if (!s->depth)
			return s->stuck;
		e = undo(s);
	}
	return LINEARIZE_YES;
}

long linearize(const struct operation *operations, size_t n)
{
	struct search s = { .operations = operations };
	long result = LINEARIZE_OUT_OF_MEMORY;

	s.entries = calloc(2 * n + 1, sizeof(*s.entries));
	s.stack = calloc(n + 1, sizeof(*s.stack));
	if (s.entries && s.stack && grow(&s.been)) {
		lay_out(&s, n);
		result = search(&s);
	}
	free(s.entries);
	free(s.stack);
	free(s.been.slots);
	return result;
}
