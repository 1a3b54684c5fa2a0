/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/model/explore.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum { TABLE = 1 << 16 }; /* slots of the first table */

struct explore {
	const struct explore_model *model;
	/* states, one after the other, without their zero bytes, which are most */
	uint8_t *packed;
	uint64_t packed_room;
	uint64_t *first_byte; /* [n + 1] */
	uint8_t *scratch;     /* a packed state */
	uint8_t *here;        /* an unpacked state, whose steps are looked for */
	uint32_t *parents;
	uint64_t *first_step; /* [n + 1]: where the steps of each state begin in steps */
	uint32_t n, max;
	uint32_t *table; /* by hash: numbers of states */
	uint32_t mask;
	uint32_t *steps; /* numbers of the states that the steps lead to */
	uint64_t nsteps, steps_room;
	uint32_t at;    /* number of the state whose steps are looked for */
	uint8_t *named; /* when a way is printed: the state whose step is looked for, or NULL */
	bool was_named;
	int rc;
	const char *wrong;
};

/* Packs: of each eight bytes, which are not 0, a bit each, and these bytes.  There are no
 * branches on single bytes, which no processor predicts: half of a model's time goes here.  out
 * has room for a byte more than the packed state.
 */
static size_t pack(const uint8_t *bytes, size_t size, uint8_t *out)
{
	uint8_t *to = out;

	for (size_t i = 0; i < size; i += 8) {
		size_t n = size - i < 8 ? size - i : 8;
		uint8_t *which = to++;
		uint64_t word = 0;
		unsigned set = 0;

		memcpy(&word, bytes + i, n);
		for (unsigned j = 0; word; j++, word >>= 8) {
			*to = (uint8_t)word;
			to += *to != 0;
			set |= (unsigned)((uint8_t)word != 0) << j;
		}
		*which = (uint8_t)set;
	}
	return (size_t)(to - out);
}

static void unpack(const uint8_t *packed, size_t size, uint8_t *out)
{
	memset(out, 0, size);
	for (size_t i = 0; i < size; i += 8) {
		unsigned which = *packed++;

		for (size_t j = i; which; j++, which >>= 1)
			if (which & 1)
				out[j] = *packed++;
	}
}

static const uint8_t *state(const struct explore *x, uint32_t i)
{
	unpack(x->packed + x->first_byte[i], x->model->size, x->here);
	return x->here;
}

static uint64_t hash(const uint8_t *bytes, size_t size)
{
	uint64_t h = size, word;

	for (; size >= sizeof(word); size -= sizeof(word), bytes += sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		h = (h ^ word) * 0x9e3779b97f4a7c15u;
		h ^= h >> 32;
	}
	for (; size; size--)
		h = (h ^ *bytes++) * 0x100000001b3u;
	return h ^ h >> 29;
}

static bool is_same(const struct explore *x, uint32_t i, size_t size)
{
	return x->first_byte[i + 1] - x->first_byte[i] == size &&
	       !memcmp(x->packed + x->first_byte[i], x->scratch, size);
}

/* Returns the slot of the packed state in the table, or the empty one for it. */
static uint32_t *slot(const struct explore *x, size_t size)
{
	uint32_t at = (uint32_t)hash(x->scratch, size) & x->mask;

	while (x->table[at] != NONE && !is_same(x, x->table[at], size))
		at = (at + 1) & x->mask;
	return &x->table[at];
}

static void insert(const struct explore *x, uint32_t i)
{
	uint64_t first = x->first_byte[i];
	uint32_t at = (uint32_t)hash(x->packed + first, x->first_byte[i + 1] - first) & x->mask;

	while (x->table[at] != NONE)
		at = (at + 1) & x->mask;
	x->table[at] = i;
}

/* Keeps at least two slots for each state. */
static void grow_table(struct explore *x)
{
	uint32_t mask = x->mask * 2 + 1;
	uint32_t *table;

	if (x->n < x->mask / 2)
		return;
	table = malloc(((size_t)mask + 1) * sizeof(*table));
	if (!table) {
		x->rc = -ENOMEM;
		return;
	}
	free(x->table);
	x->table = table;
	x->mask = mask;
	memset(table, 0xff, ((size_t)mask + 1) * sizeof(*table));
	for (uint32_t i = 0; i < x->n; i++)
		insert(x, i);
}

static bool has_room(struct explore *x, size_t size)
{
	uint64_t room = x->packed_room * 2 + 4096;
	uint8_t *packed;

	if (x->n == x->max)
		x->rc = -E2BIG;
	if (x->rc || x->first_byte[x->n] + size <= x->packed_room)
		return !x->rc;
	packed = realloc(x->packed, room);
	if (!packed) {
		x->rc = -ENOMEM;
		return false;
	}
	x->packed = packed;
	x->packed_room = room;
	return true;
}

static uint32_t add(struct explore *x, const void *s)
{
	size_t size = pack(s, x->model->size, x->scratch);
	uint32_t *found = slot(x, size);

	if (*found != NONE || !has_room(x, size))
		return *found;
	memcpy(x->packed + x->first_byte[x->n], x->scratch, size);
	x->first_byte[x->n + 1] = x->first_byte[x->n] + size;
	x->parents[x->n] = x->at;
	*found = x->n++;
	grow_table(x);
	return x->n - 1;
}

static void add_step(struct explore *x, uint32_t to)
{
	if (x->nsteps == x->steps_room) {
		uint64_t room = x->steps_room * 2 + 1024;
		uint32_t *steps = realloc(x->steps, room * sizeof(*steps));

		if (!steps) {
			x->rc = -ENOMEM;
			return;
		}
		x->steps = steps;
		x->steps_room = room;
	}
	x->steps[x->nsteps++] = to;
}

static void name_step(struct explore *x, const void *s, const char *what, int a, int b)
{
	if (x->was_named || memcmp(s, x->named, x->model->size))
		return;
	printf("  ");
	printf(what, a, b);
	putchar('\n');
	x->was_named = true;
}

void explore_next(struct explore *x, const void *s, const char *what, int a, int b)
{
	if (x->named)
		name_step(x, s, what, a, b);
	else if (!x->rc && memcmp(s, x->here, x->model->size))
		add_step(x, add(x, s));
}

static void print_step(struct explore *x, uint32_t from, uint32_t to)
{
	x->named = malloc(x->model->size);
	x->was_named = !x->named;
	if (x->named)
		memcpy(x->named, state(x, to), x->model->size);
	x->model->step(x, state(x, from));
	free(x->named);
	x->named = NULL;
}

static void print_way(struct explore *x, uint32_t to)
{
	if (x->parents[to] == NONE)
		return;
	print_way(x, x->parents[to]);
	print_step(x, x->parents[to], to);
}

static void complain(struct explore *x, uint32_t at, const char *why, bool quiet)
{
	x->wrong = why;
	if (quiet)
		return;
	putchar('\n');
	print_way(x, at);
	x->model->print(state(x, at));
}

static void visit_all(struct explore *x, bool quiet)
{
	for (x->at = 0; x->at < x->n && !x->rc && !x->wrong; x->at++) {
		const char *why = x->model->broken(state(x, x->at));

		x->first_step[x->at] = x->nsteps;
		if (why)
			complain(x, x->at, why, quiet);
		else
			x->model->step(x, x->here);
	}
	x->first_step[x->n] = x->nsteps;
}

/* ---- from which states can the model end? ---- */

struct backwards {
	uint64_t *first; /* [n + 1]: where the states before each state begin in from */
	uint32_t *from;  /* numbers of the states whose steps lead to a state */
	uint32_t *queue;
	uint8_t *ends;
	uint32_t n;
};

static void count_steps_to(const struct explore *x, struct backwards *b)
{
	for (uint64_t i = 0; i < x->nsteps; i++)
		b->first[x->steps[i] + 1]++;
	for (uint32_t i = 0; i < x->n; i++)
		b->first[i + 1] += b->first[i];
}

/* Fills from.  Uses up first: afterwards first[i] is where the states before i + 1 begin. */
static void turn_round(const struct explore *x, struct backwards *b)
{
	for (uint32_t i = 0; i < x->n; i++)
		for (uint64_t at = x->first_step[i]; at < x->first_step[i + 1]; at++)
			b->from[b->first[x->steps[at]]++] = i;
}

static void reach(struct backwards *b, uint32_t i)
{
	if (b->ends[i])
		return;
	b->ends[i] = 1;
	b->queue[b->n++] = i;
}

static uint32_t spread(const struct explore *x, struct backwards *b)
{
	uint32_t ends;

	for (uint32_t i = 0; i < x->n; i++)
		if (x->model->is_end(state(x, i)))
			reach(b, i);
	ends = b->n;
	for (uint32_t done = 0; done < b->n; done++) {
		uint32_t i = b->queue[done];

		for (uint64_t at = i ? b->first[i - 1] : 0; at < b->first[i]; at++)
			reach(b, b->from[at]);
	}
	return ends;
}

static void look_for_ends(struct explore *x, bool quiet, uint32_t *ends)
{
	struct backwards b = { .first = calloc((size_t)x->n + 1, sizeof(*b.first)),
			       .from = calloc(x->nsteps + 1, sizeof(*b.from)),
			       .queue = calloc(x->n, sizeof(*b.queue)),
			       .ends = calloc(x->n, 1) };
	uint32_t i = 0;

	if (b.first && b.from && b.queue && b.ends) {
		count_steps_to(x, &b);
		turn_round(x, &b);
		*ends = spread(x, &b);
		while (i < x->n && b.ends[i])
			i++;
	} else {
		x->rc = -ENOMEM;
	}
	free(b.first);
	free(b.from);
	free(b.queue);
	free(b.ends);
	if (!x->rc && i < x->n)
		complain(x, i, "it can never come to an end from here", quiet);
}

/* ---- the exploration ---- */

static int open_explore(struct explore *x, const struct explore_model *model, uint32_t max)
{
	*x = (struct explore){ .model = model, .max = max, .mask = TABLE - 1, .at = NONE };
	x->first_byte = calloc((size_t)max + 1, sizeof(*x->first_byte));
	x->scratch = malloc(model->size * 2);
	x->here = malloc(model->size);
	x->parents = malloc(max * sizeof(*x->parents));
	x->first_step = malloc(((size_t)max + 1) * sizeof(*x->first_step));
	x->table = malloc(TABLE * sizeof(*x->table));
	if (!x->first_byte || !x->scratch || !x->here || !x->parents || !x->first_step ||
	    !x->table)
		return -ENOMEM;
	memset(x->table, 0xff, TABLE * sizeof(*x->table));
	return 0;
}

static void close_explore(struct explore *x)
{
	free(x->packed);
	free(x->first_byte);
	free(x->scratch);
	free(x->here);
	free(x->parents);
	free(x->first_step);
	free(x->table);
	free(x->steps);
}

int explore(const struct explore_model *model, uint32_t states_max, bool quiet,
	    struct explore_result *result)
{
	struct explore x;
	int rc = open_explore(&x, model, states_max);
	CLEANUP(free) void *start = calloc(1, model->size);

	*result = (struct explore_result){ 0 };
	if (!rc && start) {
		model->start(start);
		add(&x, start);
		visit_all(&x, quiet);
		if (!x.rc && !x.wrong)
			look_for_ends(&x, quiet, &result->ends);
		result->wrong = x.wrong;
		result->states = x.n;
		result->steps = x.nsteps;
		rc = x.rc;
	}
	close_explore(&x);
	return start ? rc : -ENOMEM;
}
