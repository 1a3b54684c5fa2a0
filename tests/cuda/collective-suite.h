/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CUDA_COLLECTIVE_SUITE_H
#define TESTS_CUDA_COLLECTIVE_SUITE_H

/* What holds for each implementation of engine/collective/collective.h: ranks of one process,
 * as many as there are devices for.
 */

#include "engine/collective/collective.h"
#include "tests/cuda/device-suite.h"

enum { RANKS_MAX = 4 };

struct many {
	const struct collective_ops *ops;
	const struct trainer *trainer; /* has devices and streams of its kind */
	unsigned nranks;               /* rank r is on device r % trainer->ndevices() */
	uint64_t end_ms;               /* enough for the port to let go of what has failed */
};

/* For main: runs that, and more, up to NULL, where there is more; returns its exit status. */
int collective_suite_run(const struct many *many, TCase *const more[]);

/* ---- for further tests; device-suite's device is open between port_open and port_close ----
 */

struct part { /* a rank's part in an operation */
	struct collective_io io;
	int result;
	bool over;
};

extern const struct many *many;
extern struct collective *ranks[RANKS_MAX];
extern struct collective_options collective_test_options;

void many_open(void); /* and waits until all are ready */
void many_close(void);
/* Of the first n, without waiting. */
void ranks_open(unsigned n);
void ranks_close(unsigned n);
/* What state() is when it is no longer -EINPROGRESS. */
int rank_opened(unsigned rank);
int rank_device(unsigned rank);

int part_start(unsigned rank, struct part *p);
int part_wait(struct part *p);
bool part_is_over(struct part *p);

/* ---- between its files ---- */

TCase *collective_suite_failing(void);
TCase *collective_suite_opening(void);
struct collective_options options_of(unsigned rank);
struct collective_id wait_for_id(struct collective *c);
void open_some(unsigned n, unsigned nranks);
void expect_ready(unsigned n);
void short_pause(void);
/* A rank's own, on its device. */
uint8_t *device_bytes(unsigned rank, uint64_t size);
void expect_on_device(const void *memory, unsigned rank, uint64_t from, uint64_t size);
void start_moves(unsigned rank, struct part *p, const struct collective_move *moves,
		 unsigned n);
void expect_done(struct part *p, unsigned n);

#endif
