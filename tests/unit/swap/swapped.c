/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/swap/swap-file-internal.h"
#include "engine/swap/swapper-internal.h"
#include "tests/run-suite.h"
#include "tests/unit/swap/read-now.h"
#include "tests/unit/swap/swapped.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct swapper *place;
char placed_dir[200];
struct swapper_options placed_options;

static const struct disk_ops *const disks[PLACED_DISKS] = { &disk_uring, &disk_threads };
static uint64_t seed;

uint64_t placed_random(uint64_t below)
{
	seed = seed * 6364136223846793005 + 1442695040888963407;
	return (seed >> 20) % below;
}

void placed_make_dir(void)
{
	const char *given = getenv("TEST_DIR");

	snprintf(placed_dir, sizeof(placed_dir), "%s/test-place-XXXXXX",
		 given ? given : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(placed_dir));
	placed_options = (struct swapper_options){ .dir = placed_dir,
						   .name = "rank0.swap",
						   .budget = 8 * PLACED_SLICE,
						   .slice = PLACED_SLICE,
						   .least = 1,
						   .disk_ops = &faulty_disk };
}

void placed_remove_dir(void)
{
	rmdir(placed_dir);
}

bool placed_open(int disk)
{
	char why[512];
	struct disk *probe;

	if (disks[disk]->open(&probe, NULL)) {
		printf("%s: not here\n", disks[disk]->name);
		return false;
	}
	disks[disk]->close(probe);
	faulty_over(disks[disk]);
	ck_assert_msg(!swapper_open(&place, &placed_options, why, sizeof(why)), "%s", why);
	return true;
}

void placed_close(void)
{
	swapper_close(place);
	place = NULL;
}

void placed_container(char path[PLACED_PATH])
{
	snprintf(path, PLACED_PATH, "/proc/self/fd/%d", place->file->fd);
}

struct swapper_state *placed_add(const char *name, uint64_t floats)
{
	struct swapper_state *s;

	ck_assert_int_eq(swapper_add(place, name, SWAPPER_STATE, 4, floats, &s), 0);
	return s;
}

struct swapper_figures placed_figures(void)
{
	struct swapper_figures f;

	swapper_figures(place, &f);
	return f;
}

void placed_fill(struct swapper_state *s, uint32_t value)
{
	struct swapper_sweep *w;
	uint64_t first, numel;

	ck_assert_int_eq(
		swapper_sweep_begin(place, &(struct swapper_swept){ s, SWAPPER_WRITE }, 1, &w),
		0);
	while (swapper_sweep_next(w, &first, &numel) == 1)
		for (uint64_t i = 0; i < numel; i++)
			((uint32_t *)swapper_sweep_memory(w, 0))[i] = value;
	swapper_sweep_end(w);
	ck_assert_int_eq(swapper_publish(place), 0);
}

bool placed_is(struct swapper_state *s, struct swapper_pin *hold, uint64_t first,
	       uint64_t numel, uint32_t value)
{
	uint32_t *memory = malloc(numel * 4);
	bool is;

	ck_assert_int_eq(read_now(place, s, hold, first * 4, numel * 4, memory), 0);
	is = memory[0] == value && !memcmp(memory, memory + 1, (numel - 1) * 4);
	if (!is)
		printf("%u, not %u\n", memory[0], value);
	free(memory);
	return is;
}

static void on_answer(struct swapper_read *r, int rc)
{
	container_of(r, struct placed_answer, read)->rc = rc;
}

void placed_ask(struct placed_answer *a, struct swapper_state *s, struct swapper_pin *hold)
{
	placed_ask_at(a, s, hold, 0);
}

void placed_ask_at(struct placed_answer *a, struct swapper_state *s, struct swapper_pin *hold,
		   uint64_t offset)
{
	a->rc = 1;
	a->read = (struct swapper_read){ .state = s,
					 .pin = hold,
					 .offset = offset,
					 .size = sizeof(a->out),
					 .memory = a->out,
					 .done = on_answer };
	swapper_read(place, &a->read);
}

int placed_answered(struct placed_answer *a)
{
	uint64_t end = monotonic_ms() + 60000;

	while (a->rc == 1 && monotonic_ms() < end)
		sched_yield();
	return a->rc;
}

bool placed_was_said(const char *what)
{
	static char text[65536];

	log_tail(text, sizeof(text));
	return strstr(text, what);
}

int placed_main(const char *name, const void *const *tests, unsigned n)
{
	const char *given = getenv("TEST_SEED");
	Suite *suite = suite_create(name);
	TCase *c = tcase_create("all");

	seed = given ? strtoull(given, NULL, 10) : monotonic_ms();
	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	tcase_add_checked_fixture(c, placed_make_dir, placed_remove_dir);
	tcase_set_timeout(c, 60);
	for (unsigned i = 0; i < n; i++)
		tcase_add_loop_test(c, (const TTest *)tests[i], 0, PLACED_DISKS);
	return run_suite(suite, c);
}
