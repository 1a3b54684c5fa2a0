/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* The arena at 90 % fill: time of an allocation or release beside glibc's malloc and, with
 * python3, DeepSpeed's algorithm; units that compaction moves beside the fewest possible.
 */

#include "tests/unit/memory/arena-look.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
	ACTIONS = 1000000,
	OF_PYTHON = 1000, /* timed actions; each takes as long as there are holes */
	ROUNDS = 3,
	PLANS = 50,
	LEAST = 256,  /* bytes of a block */
	DOUBLINGS = 8 /* up to 64 KiB */
};
#define SIZE (256ul << 20)
#define FILL (SIZE / 10 * 9)

/* ---- one list of actions for all: allocate size, or release the block of an earlier number
 * ----
 */

struct action {
	uint32_t size; /* 0: release */
	uint32_t number;
};

struct actions {
	struct action *all; /* before: up to the fill; then ACTIONS */
	uint32_t n, before, numbers;
};

static uint64_t state = 1;

static uint64_t draw(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return state >> 33;
}

static uint32_t draw_size(void)
{
	uint64_t least = (uint64_t)LEAST << draw() % DOUBLINGS;

	return (uint32_t)(least + draw() % least);
}

struct making {
	struct actions *s;
	uint32_t *live, *sizes; /* live: [nlive] numbers; sizes: by number */
	uint32_t nlive;
	uint64_t used;
};

static bool make_alloc(struct making *m, uint64_t most)
{
	uint32_t size = draw_size();

	if (m->used + size > most)
		return false;
	m->s->all[m->s->n++] = (struct action){ size, m->s->numbers };
	m->sizes[m->s->numbers] = size;
	m->live[m->nlive++] = m->s->numbers++;
	m->used += size;
	return true;
}

static void make_release(struct making *m)
{
	uint32_t *live = &m->live[draw() % m->nlive];

	m->s->all[m->s->n++] = (struct action){ 0, *live };
	m->used -= m->sizes[*live];
	*live = m->live[--m->nlive];
}

/* Allocates SIZE bytes in a row and releases blocks at random until FILL are used, so that the
 * first hole, behind all blocks, is gone; then makes ACTIONS random actions.
 */
static void make_actions(struct actions *s)
{
	enum { MOST = ACTIONS + 2 * (SIZE / LEAST) };
	CLEANUP(free) uint32_t *live = malloc(sizeof(*live) * MOST);
	CLEANUP(free) uint32_t *sizes = malloc(sizeof(*sizes) * MOST);
	struct making m = { s, live, sizes, 0, 0 };

	s->all = malloc(sizeof(*s->all) * MOST);
	if (!live || !sizes || !s->all)
		exit(1);
	while (make_alloc(&m, SIZE))
		;
	while (m.used > FILL)
		make_release(&m);
	s->before = s->n;
	while (s->n < s->before + ACTIONS)
		if (!make_alloc(&m, FILL))
			make_release(&m);
}

/* ---- each way, in CPU time ---- */

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t *blocks; /* by number; 0: no block */
static void **memory;
static uint32_t refused;

static void arena_acts(struct arena *a, const struct action *act)
{
	if (!act->size) {
		if (blocks[act->number] && arena_release(a, blocks[act->number]))
			exit(1);
		return;
	}
	if (arena_alloc(a, act->size, &blocks[act->number])) {
		blocks[act->number] = 0;
		refused++;
	}
}

static double arena_ns(const struct actions *s, enum arena_tie tie)
{
	struct arena a;
	uint64_t begin = 0;
	double ns;

	if (arena_init(&a, &(struct arena_options){ SIZE, .align = 1, .tie = tie }))
		exit(1);
	refused = 0;
	for (uint32_t i = 0; i < s->n; i++) {
		if (i == s->before)
			begin = cpu_ns();
		arena_acts(&a, &s->all[i]);
	}
	ns = (double)(cpu_ns() - begin) / ACTIONS;
	arena_fini(&a);
	return ns;
}

static double malloc_ns(const struct actions *s)
{
	uint64_t begin = 0;
	double ns;

	memset(memory, 0, s->numbers * sizeof(*memory));
	for (uint32_t i = 0; i < s->n; i++) {
		const struct action *act = &s->all[i];

		if (i == s->before)
			begin = cpu_ns();
		if (act->size) {
			memory[act->number] = malloc(act->size);
		} else {
			free(memory[act->number]);
			memory[act->number] = NULL;
		}
	}
	ns = (double)(cpu_ns() - begin) / ACTIONS;
	for (uint32_t i = 0; i < s->numbers; i++)
		free(memory[i]);
	return ns;
}

/* Writes the actions, and the places that the arena gave their blocks, for the script. */
static void write_actions(const struct actions *s, FILE *to)
{
	struct arena a;

	if (arena_init(&a, &(struct arena_options){ SIZE, .align = 1, .tie = ARENA_OLDEST }))
		exit(1);
	fprintf(to, "arena %lu\n", SIZE);
	for (uint32_t i = 0; i < s->before + OF_PYTHON; i++) {
		const struct action *act = &s->all[i];
		uint64_t at = 0, run;

		if (i == s->before)
			fprintf(to, "time\n");
		arena_acts(&a, act);
		if (!blocks[act->number])
			continue;
		if (!act->size)
			fprintf(to, "r %u\n", act->number);
		else if (arena_find(&a, blocks[act->number], 0, &at, &run))
			exit(1);
		else
			fprintf(to, "a %u %u %" PRIu64 "\n", act->number, act->size, at);
	}
	arena_fini(&a);
}

/* Returns the nanoseconds of an action in the script; 0: there is no python3. */
static double python_ns(const struct actions *s)
{
	const char *top = getenv("top_srcdir");
	char path[] = "/tmp/bench-arena-XXXXXX", command[4096];
	int fd = mkstemp(path);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w"), *answer;
	double seconds = 0;

	if (!file)
		exit(1);
	write_actions(s, file);
	fclose(file);
	snprintf(command, sizeof(command), "python3 '%s/tests/bench/contiguous-memory.py' <%s",
		 top ? top : ".", path);
	answer = popen(command, "r");
	if (!answer || fscanf(answer, "%lf", &seconds) != 1)
		seconds = 0;
	if (answer && pclose(answer))
		seconds = 0;
	unlink(path);
	return seconds * 1e9;
}

/* ---- compaction ---- */

struct moved {
	uint64_t units, minimum, packing, plans;
	double plan_ms;
};

static uint64_t packing_moves(const struct arena *a)
{
	struct arena_part part;
	uint32_t cursor = 0;
	uint64_t first = UINT64_MAX, used = 0;

	while (arena_next_part(a, &cursor, &part)) {
		if (part.kind == ARENA_HOLE)
			first = u64_min(first, part.start);
		else if (part.start > first)
			used += part.size;
	}
	return used;
}

static void plan(struct arena *a, uint64_t want, struct moved *m)
{
	uint64_t begin = cpu_ns();

	if (arena_plan(a, want))
		exit(1);
	m->plan_ms += (double)(cpu_ns() - begin) / 1e6;
	m->units += a->plan.units;
	m->minimum += a->plan.minimum;
	m->plans++;
	arena_plan_drop(a);
	m->packing += packing_moves(a);
}

static const struct want {
	const char *name;
	uint64_t divisor; /* of the free units */
} wants[] = { { "a tenth of what is free", 10 }, { "half of what is free", 2 } };

/* Plans compactions, and makes none, now and then among the actions. */
static void plan_often(const struct actions *s, struct moved moved[ARRAY_SIZE(wants)])
{
	struct arena a;

	if (arena_init(&a, &(struct arena_options){ SIZE, .align = 1 }))
		exit(1);
	for (uint32_t i = 0; i < s->n; i++) {
		arena_acts(&a, &s->all[i]);
		if (i <= s->before || (i - s->before) % (ACTIONS / PLANS))
			continue;
		for (size_t w = 0; w < ARRAY_SIZE(wants); w++)
			plan(&a, arena_total_free(&a) / wants[w].divisor, &moved[w]);
	}
	arena_fini(&a);
}

/* ---- rows ---- */

static void row(const char *name, double value, const char *unit, const char *reference,
		double of, const char *goal)
{
	printf("{\"name\": \"arena, %s\", \"value\": %.6g, \"unit\": \"%s\", ", name, value,
	       unit);
	if (reference)
		printf("\"reference\": \"%s\", \"reference_value\": %.6g, \"ratio\": %.6g, ",
		       reference, of, of ? value / of : 1);
	else
		printf("\"reference\": null, \"reference_value\": null, \"ratio\": null, ");
	printf("\"goal\": %s, \"better\": \"lower\"}\n", goal);
}

static void moved_rows(const char *want, const struct moved *m)
{
	double n = (double)m->plans, units = (double)m->units / n;
	char name[128];

	snprintf(name, sizeof(name), "room for %s: bytes moved", want);
	row(name, units, "B", "the fewest", (double)m->minimum / n, "1.05");
	row(name, units, "B", "DeepSpeed's way", (double)m->packing / n, "null");
	snprintf(name, sizeof(name), "room for %s: the plan", want);
	row(name, m->plan_ms / n, "ms", NULL, 0, "null");
}

static double least(double a, double b)
{
	return a && a < b ? a : b;
}

int main(void)
{
	double lowest = 0, oldest = 0, libc = 0, python;
	struct actions s = { 0 };
	struct moved moved[ARRAY_SIZE(wants)] = { 0 };

	make_actions(&s);
	blocks = calloc(s.numbers, sizeof(*blocks));
	memory = calloc(s.numbers, sizeof(*memory));
	if (!blocks || !memory)
		return 1;
	for (int round = 0; round < ROUNDS; round++) {
		lowest = least(lowest, arena_ns(&s, ARENA_LOWEST));
		libc = least(libc, malloc_ns(&s));
		oldest = least(oldest, arena_ns(&s, ARENA_OLDEST));
	}
	row("90 % full: an action", lowest, "ns", "glibc malloc", libc, "1.5");
	row("90 % full, oldest of equals: an action", oldest, "ns", "glibc malloc", libc,
	    "1.5");
	row("90 % full: refused, of a million", refused, "", NULL, 0, "null");
	python = python_ns(&s);
	if (python)
		row("90 % full: an action", oldest, "ns", "DeepSpeed's way", python, "null");
	else
		fprintf(stderr, "bench-arena: DeepSpeed's way: skipped: no python3\n");
	plan_often(&s, moved);
	for (size_t w = 0; w < ARRAY_SIZE(wants); w++)
		moved_rows(wants[w].name, &moved[w]);
	free(s.all);
	free(blocks);
	free(memory);
	return 0;
}
