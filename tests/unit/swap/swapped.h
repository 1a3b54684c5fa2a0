/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_SWAP_SWAPPED_H
#define TESTS_UNIT_SWAP_SWAPPED_H

/* A place in a folder of its own, for tests: over each disk, which may fail.  TEST_SEED;
 * TEST_DIR: where (/tmp).
 */

#include "engine/swap/swapper.h"
#include "tests/unit/swap/faulty-disk.h"

#include <check.h>
#include <sched.h>
#include <stdatomic.h>

enum { PLACED_DISKS = 2, PLACED_SLICE = 16384, PLACED_PATH = 40 };

extern struct swapper *place;
extern char placed_dir[200];
extern struct swapper_options
	placed_options; /* 8 buffers of PLACED_SLICE; set before placed_open */

/* Fixtures. */
void placed_make_dir(void);
void placed_remove_dir(void);

/* False: the machine does not have that disk. */
bool placed_open(int disk);
void placed_close(void);
/* A path to its file, which has no name. */
void placed_container(char path[PLACED_PATH]);
struct swapper_state *placed_add(const char *name, uint64_t floats);
struct swapper_figures placed_figures(void);
/* All of it, as values of one kind; then published. */
void placed_fill(struct swapper_state *s, uint32_t value);
/* Whether elements [first, first + numel) are all that, read by range, of what is current or
 * held.
 */
bool placed_is(struct swapper_state *s, struct swapper_pin *hold, uint64_t first,
	       uint64_t numel, uint32_t value);
/* Until it is so; not for ever. */
#define PLACED_UNTIL(condition)                                                                \
	for (uint64_t end = monotonic_ms() + 20000; !(condition);)                             \
		if (monotonic_ms() > end || sched_yield())                                     \
	ck_abort_msg("never %s", #condition)

struct placed_answer {
	struct swapper_read read;
	uint32_t out[64];
	atomic_int rc; /* 1: not yet */
};
/* Begins to read what there is at its start; waits for it. */
void placed_ask(struct placed_answer *a, struct swapper_state *s, struct swapper_pin *hold);
void placed_ask_at(struct placed_answer *a, struct swapper_state *s, struct swapper_pin *hold,
		   uint64_t offset);
int placed_answered(struct placed_answer *a);
bool placed_was_said(const char *what);
uint64_t placed_random(uint64_t below);

/* Runs all tests on each disk; their exit status. */
int placed_main(const char *name, const void *const *tests, unsigned n);

#endif
