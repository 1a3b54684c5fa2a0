/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/fail/history.h"

#include "tests/fail/edit.h"
#include "tests/fail/linearize.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 2, GENERATIONS = 1000000 /* of one boundary */ };

struct edit {
	unsigned param;
	long long begin, end; /* 0: not begun; OPERATION_NEVER: not returned */
	int error;
	bool seen;
	bool over;   /* ranks had it, and then another */
	int first;   /* step behind which ranks had it; 0: none */
	int made_at; /* steps before it; -1: not known */
};

struct event {
	char kind; /* R, F or G */
	unsigned client, param, key;
	long long value; /* errno, generation */
	long long begin, end;
};

struct step {
	long long begin, end; /* of the first, of the last rank; 0: none, OPERATION_NEVER */
	unsigned begun, ended;
	bool known[EDIT_PARAMS];
	long long values[EDIT_PARAMS];
};

struct history {
	struct edit edits[EDIT_STEPS];
	struct step steps[EDIT_STEPS];
	struct event *events;
	size_t n, room;
	unsigned client;
	unsigned boundaries; /* of each step */
	long long killed;    /* 0: nobody */
	char what[16];
	int stage;
	FILE *out;
	unsigned wrong;
};

struct history *history_new(void)
{
	struct history *h = calloc(1, sizeof(*h));

	for (int i = 0; h && i < EDIT_STEPS; i++)
		h->edits[i].made_at = -1;
	if (h) {
		h->edits[0].made_at = 0;
		h->boundaries = EDIT_BOUNDARIES;
	}
	return h;
}

void history_free(struct history *h)
{
	if (h)
		free(h->events);
	free(h);
}

#define WRONG(h, ...) ((h)->wrong++, fprintf((h)->out, __VA_ARGS__), fputc('\n', (h)->out))

/* ---- loading ---- */

static int add(struct history *h, struct event event)
{
	if (h->n == h->room) {
		size_t room = h->room * 2 + 256;
		struct event *events = realloc(h->events, room * sizeof(*events));

		if (!events)
			return -ENOMEM;
		h->events = events;
		h->room = room;
	}
	event.client = h->client;
	h->events[h->n++] = event;
	return 0;
}

static int edit_begins(struct history *h, unsigned param, unsigned n, long long time)
{
	struct edit *e = &h->edits[n % EDIT_STEPS];

	if (!n || n >= EDIT_STEPS || e->begin || param >= EDIT_PARAMS)
		return -EINVAL;
	*e = (struct edit){ param, time, OPERATION_NEVER, 0, false, false, 0, -1 };
	return 0;
}

static int edit_ends(struct history *h, unsigned n, long long time, int error)
{
	struct edit *e = &h->edits[n % EDIT_STEPS];

	if (n >= EDIT_STEPS || !e->begin)
		return -EINVAL;
	if (error == ECONNABORTED)
		return 0; /* the kernel says that the mount is gone, not what it has done */
	e->end = time;
	e->error = error;
	return 0;
}

static int step_begins(struct history *h, unsigned number, long long time)
{
	struct step *s = &h->steps[number % EDIT_STEPS];

	if (!number || number >= EDIT_STEPS)
		return -EINVAL;
	s->begin = s->begun && s->begin < time ? s->begin : time;
	s->begun++;
	return 0;
}

static int step_ends(struct history *h, unsigned number, long long time,
		     const long long *values)
{
	struct step *s = &h->steps[number % EDIT_STEPS];

	if (!number || number >= EDIT_STEPS || !s->begun)
		return -EINVAL;
	s->end = s->ended && s->end > time ? s->end : time;
	s->ended++;
	for (int p = 0; p < EDIT_PARAMS; p++) {
		if (values[p] < 0)
			continue;
		if (s->known[p] && s->values[p] != values[p])
			WRONG(h, "behind step %u ranks have %lld and %lld of p%d", number,
			      s->values[p], values[p], p);
		s->known[p] = true;
		s->values[p] = values[p];
	}
	return 0;
}

static int killed(struct history *h, long long time, const char *what)
{
	if (!h->killed || time < h->killed)
		h->killed = time;
	snprintf(h->what, sizeof(h->what), "%s", what);
	return 0;
}

static int take_line(struct history *h, const char *line)
{
	unsigned a, b;
	long long x, y, z, v[EDIT_PARAMS];
	char what[16];
	int error;

	if (*line == 'U')
		return 0;
	if (sscanf(line, "W %u %u %lld", &a, &b, &x) == 3)
		return edit_begins(h, a, b, x);
	if (sscanf(line, "D %u %u %lld %d", &a, &b, &x, &error) == 4)
		return edit_ends(h, b, x, error);
	if (sscanf(line, "R %u %u %lld %lld %lld", &a, &b, &x, &y, &z) == 5 &&
	    a < EDIT_PARAMS && b < KEYS)
		return add(h, (struct event){ 'R', 0, a, b, x, y, z });
	if (sscanf(line, "F %u %u %d %lld", &a, &b, &error, &x) == 4)
		return add(h, (struct event){ 'F', 0, a, b, error, x, x });
	if (sscanf(line, "G %lld %lld %lld", &x, &y, &z) == 3)
		return add(h, (struct event){ 'G', 0, 0, 0, x, y, z });
	if (sscanf(line, "E %u", &a) == 1 && a >= EDIT_BOUNDARIES) {
		h->boundaries = a;
		return 0;
	}
	if (sscanf(line, "B %u %lld", &a, &x) == 2)
		return step_begins(h, a, x);
	if (sscanf(line, "S %u %lld %lld %lld %lld %lld", &a, &x, &v[0], &v[1], &v[2], &v[3]) ==
	    6)
		return step_ends(h, a, x, v);
	if (sscanf(line, "K %lld %15s", &x, what) == 2)
		return killed(h, x, what);
	if (sscanf(line, "T %u %u %lld %lld", &a, &b, &x, &y) == 4) {
		WRONG(h, "torn: p%u, key %u: %lld and %lld in one open file", a, b, x, y);
		return 0;
	}
	return -EINVAL;
}

int history_load(struct history *h, FILE *in, FILE *out)
{
	char line[256];

	h->client++;
	h->out = out;
	while (fgets(line, sizeof(line), in)) {
		int rc = take_line(h, line);

		if (!rc)
			continue;
		fprintf(out, "not a line of a history: %s", line);
		return rc;
	}
	return 0;
}

/* ---- which edits there were ---- */

static struct edit *edit_of(struct history *h, long long value)
{
	return value >= 0 && value < (long long)EDIT_STEPS * EDIT_STEPS
		       ? &h->edits[value / EDIT_STEPS]
		       : NULL;
}

static void see(struct history *h, unsigned param, long long value, const char *where)
{
	struct edit *e = edit_of(h, value);

	if (!e || (e != h->edits && (!e->begin || e->param != param)))
		WRONG(h, "%s p%u is %lld, which nobody has set", where, param, value);
	else if (e->error)
		WRONG(h, "%s p%u is %lld, of an edit that was refused (%s)", where, param,
		      value, strerror(e->error));
	else
		e->seen = true;
}

static void see_step(struct history *h, int number, unsigned param, long long value)
{
	struct edit *e = edit_of(h, value);
	int made_at = number - (int)(value % EDIT_STEPS);

	see(h, param, value, "on a rank");
	if (!e || e == h->edits)
		made_at = value == number ? 0 : -2;
	else if (!e->first) {
		e->first = number;
		e->made_at = made_at;
	}
	if (e && (e->made_at != made_at || e->over))
		WRONG(h, "behind step %d ranks have %lld of p%u: %s", number, value, param,
		      e->over ? "it had gone" : "steps are missing");
}

static void check_ranks(struct history *h)
{
	for (unsigned p = 0; p < EDIT_PARAMS; p++) {
		long long before = 0;

		for (int i = 1; i < EDIT_STEPS; i++) {
			if (!h->steps[i].known[p])
				continue;
			if (before / EDIT_STEPS != h->steps[i].values[p] / EDIT_STEPS &&
			    before / EDIT_STEPS)
				edit_of(h, before)->over = true;
			see_step(h, i, p, h->steps[i].values[p]);
			before = h->steps[i].values[p];
			if (!edit_of(h, before))
				return;
		}
	}
}

/* close(2) returns when all ranks have the edit: none ends a step without it any more. */
static void check_returns(struct history *h)
{
	for (int n = 1; n < EDIT_STEPS; n++) {
		const struct edit *e = &h->edits[n];

		if (!e->begin || e->error || e->end == OPERATION_NEVER || e->first <= 1)
			continue;
		if (h->steps[e->first - 1].end > e->end)
			WRONG(h, "edit %d of p%u returned, and a rank ended step %d without it",
			      n, e->param, e->first - 1);
	}
}

/* ---- what may fail ---- */

static bool may_fail(const struct history *h, long long time, int error)
{
	return error == EINTR || (h->killed && time >= h->killed && strcmp(h->what, "writer"));
}

static void check_failures(struct history *h)
{
	for (size_t i = 0; i < h->n; i++) {
		const struct event *e = &h->events[i];

		if (e->kind == 'F' && !may_fail(h, e->begin, (int)e->value))
			WRONG(h, "p%u, key %u: not read: %s", e->param, e->key,
			      strerror((int)e->value));
	}
	for (int n = 1; n < EDIT_STEPS; n++) {
		const struct edit *e = &h->edits[n];

		if (e->error && !may_fail(h, e->end, e->error))
			WRONG(h, "edit %d of p%u: %s", n, e->param, strerror(e->error));
	}
}

/* ---- registers ---- */

/* From when on other ranks' copies are read, which may be a step behind. */
static long long copies_change(const struct history *h, unsigned key)
{
	bool copied = key ? h->stage < 3 : h->stage == 0;

	return copied && h->killed && !strcmp(h->what, "rank") ? h->killed : OPERATION_NEVER;
}

static size_t put_reads(const struct history *h, unsigned param, unsigned key,
			struct operation *operations)
{
	size_t n = 0;

	for (size_t i = 0; i < h->n; i++) {
		const struct event *e = &h->events[i];

		if (e->kind == 'R' && e->param == param && e->key == key &&
		    e->end < copies_change(h, key))
			operations[n++] = (struct operation){ OPERATION_READ, e->value,
							      e->begin, e->end };
	}
	return n;
}

static bool is_read(const struct operation *reads, size_t n, int edit)
{
	for (size_t i = 0; i < n; i++)
		if (reads[i].value / EDIT_STEPS == edit)
			return true;
	return false;
}

static size_t put_edits(const struct history *h, unsigned param, struct operation *operations,
			size_t n)
{
	size_t reads = n;

	for (int i = 1; i < EDIT_STEPS; i++) {
		const struct edit *e = &h->edits[i];

		if (!e->begin || e->param != param || e->error)
			continue;
		if (e->end == OPERATION_NEVER && !is_read(operations, reads, i))
			continue; /* it may never have been */
		operations[n++] = (struct operation){ OPERATION_SET, (long long)i * EDIT_STEPS,
						      e->begin, e->end };
	}
	return n;
}

static size_t put_steps(const struct history *h, struct operation *operations, size_t n)
{
	for (int i = 1; i < EDIT_STEPS; i++) {
		const struct step *s = &h->steps[i];

		if (s->begun)
			operations[n++] =
				(struct operation){ OPERATION_ADD, 0, s->begin,
						    s->ended ? s->end : OPERATION_NEVER };
	}
	return n;
}

static void check_register(struct history *h, unsigned param, unsigned key,
			   struct operation *operations)
{
	size_t n = put_steps(
		h, operations,
		put_edits(h, param, operations, put_reads(h, param, key, operations)));
	static const char *const kinds[] = { "read", "edit", "step" };
	long stuck = linearize(operations, n);

	if (stuck == LINEARIZE_OUT_OF_MEMORY)
		WRONG(h, "no memory to search an order with");
	else if (stuck >= 0)
		WRONG(h, "p%u, key %u: no order explains the %s of %lld from %lld to %lld",
		      param, key, kinds[operations[stuck].kind], operations[stuck].value,
		      operations[stuck].begin, operations[stuck].end);
}

static void check_registers(struct history *h)
{
	struct operation *operations = calloc(h->n + 2 * EDIT_STEPS, sizeof(*operations));

	for (unsigned i = 0; operations && i < EDIT_PARAMS * KEYS; i++)
		check_register(h, i / KEYS, i % KEYS, operations);
	if (!operations)
		WRONG(h, "no memory");
	free(operations);
}

/* ---- generations ---- */

/* That ended at the generation's boundary, or before it: a step ends at its second one. */
static long long step_of(const struct history *h, long long generation)
{
	return (generation / GENERATIONS + h->boundaries - 2) / h->boundaries;
}

/* Steps that were over at that time, on all ranks; that had been begun. */
static void steps_at(const struct history *h, long long time, int *over, int *begun)
{
	*over = *begun = 0;
	for (int i = 1; i < EDIT_STEPS && h->steps[i].begun; i++) {
		if (h->steps[i].ended && h->steps[i].end < time)
			*over = i;
		if (h->steps[i].begin <= time)
			*begun = i;
	}
}

static void check_generation(struct history *h, const struct event *e)
{
	int over, begun, ignored;

	steps_at(h, e->begin, &over, &ignored);
	steps_at(h, e->end, &ignored, &begun);
	if (step_of(h, e->value) < over && !h->killed)
		WRONG(h, "generation %lld, when step %d was over", e->value, over);
	if (step_of(h, e->value) > begun)
		WRONG(h, "generation %lld, when step %d had not begun", e->value, begun + 1);
}

/* Ranks are a step apart at most: what is read behind a generation is no older than the one
 * before its step.
 */
static void check_behind(struct history *h, const struct event *e, long long generation)
{
	const struct edit *edit = edit_of(h, e->value);
	long long step;

	if (!edit || edit->made_at < 0)
		return;
	step = edit->made_at + e->value % EDIT_STEPS;
	if (step < step_of(h, generation) - 1)
		WRONG(h, "p%u, key %u: %lld, of step %lld, was read behind generation %lld",
		      e->param, e->key, e->value, step, generation);
}

static void check_generations(struct history *h)
{
	long long newest = 0;

	for (size_t i = 0; i < h->n; i++) {
		const struct event *e = &h->events[i];

		if (!i || e->client != e[-1].client)
			newest = 0;
		if (e->kind == 'R')
			check_behind(h, e, newest);
		if (e->kind != 'G')
			continue;
		if (e->value < newest && !h->killed)
			WRONG(h, "generation %lld behind %lld", e->value, newest);
		newest = e->value > newest ? e->value : newest;
		check_generation(h, e);
	}
}

/* ---- all ---- */

static void count_edit(const struct history *h, const struct edit *e, struct history_counts *c)
{
	bool refused = e->error || (e->end == OPERATION_NEVER && !e->seen);

	c->edits++;
	c->refused += refused;
	if (!h->killed || e->begin > h->killed || e->end < h->killed)
		return;
	c->committed += !refused;
	c->aborted += refused;
}

static void count(const struct history *h, struct history_counts *c)
{
	*c = (struct history_counts){ 0 };
	for (int i = 1; i < EDIT_STEPS; i++) {
		if (h->edits[i].begin)
			count_edit(h, &h->edits[i], c);
		c->steps += h->steps[i].ended > 0;
	}
	for (size_t i = 0; i < h->n; i++)
		c->reads += h->events[i].kind == 'R';
}

unsigned history_check(struct history *h, int stage, FILE *out, struct history_counts *counts)
{
	h->out = out;
	h->stage = stage;
	for (size_t i = 0; i < h->n; i++)
		if (h->events[i].kind == 'R')
			see(h, h->events[i].param, h->events[i].value, "in a file");
	check_ranks(h);
	check_returns(h);
	check_failures(h);
	check_registers(h);
	check_generations(h);
	count(h, counts);
	return h->wrong;
}
