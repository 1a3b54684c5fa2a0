/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_RANKS_BOUNDARIES_H
#define TESTS_RANKS_BOUNDARIES_H

/* A job of three parameters, "w", "v" and "u", in one process.  Its ranks pass boundaries one
 * by one while engines are turned in a seeded order and messages get lost.
 */

#include "tests/ranks/job.h"

#include "engine/node/node.h"
#include "engine/rounds/rounds.h"

enum { NUMEL = 37, BYTES = NUMEL * 4, EVEN = 8 };

extern struct job job;
extern bool asleep[JOB_WORLD_MAX]; /* ranks whose engines are not turned */
extern struct loss {               /* the messages that are lost on their way; type 0: none */
	uint32_t from, to;
	enum wire_type type;
	unsigned dropped;
	int result; /* -errno: they are refused instead, as by a full queue */
} loss;
extern struct sent { /* how many messages of the type all ranks have sent */
	enum wire_type type;
	unsigned n;
} sent;

/* Settings of the next boundaries_open: whether states are in memory of devices (job_spec's
 * on_device), and the dtype of gradients.
 */
extern bool on_devices;
extern enum frag_dtype grads_dtype;
void boundaries_open(uint32_t world, const struct job_group *group);
/* Starts the bound of turn() anew. */
void boundaries_wait_anew(void);
/* Connects all ranks by collective_host, of devices' memory if on_devices, so that they take
 * part in rounds.
 */
void boundaries_connect(void);
void boundaries_connect_some(uint32_t ranks); /* the first `ranks` ranks alone */
struct engine *engine_of(uint32_t rank);
/* Turns all engines that are awake; aborts when turns have gone on for too long. */
void turn(void *arg);

/* Lets rank's trainer pass boundaries up to number `goal`, one in each turn, or wait in one. */
void go_to(uint32_t rank, uint64_t goal);
/* Lets rank's trainer call errand once, before its next boundary. */
void send_off(uint32_t rank, void (*errand)(uint32_t rank));
bool waits_inside(uint32_t rank);
/* Closes the job; no trainer may wait any more. */
void boundaries_close(void);

void boundary(uint32_t rank);
/* boundaries that rank has passed, with the one that it is in */
uint64_t passed(uint32_t rank);
uint64_t generation(uint32_t rank);
/* Lets every living rank pass boundary n. */
void all_pass(uint64_t n);
/* Any thread, without the lock. */
void cancel_round(struct engine *e, struct rounds_get *get);

/* Ends a rank.  at_once: the others see it at once, as on one host; else they find it silent.
 */
void die(uint32_t rank, bool at_once);

struct writer {
	struct engine *e;
	struct engine_write write;
	struct engine_extent extent;
	float value[NUMEL];
	bool ended;
	int result;
};

/* Rank starts to set parameter w's state to value everywhere; it does not wait. */
void start(struct writer *w, uint32_t rank, const char *key, float value);
/* Turns until all ranks have promised, and the writer waits for its boundary. */
void until_accepted(struct writer *w);
int result(struct writer *w);
void expect(const char *key, const struct writer *w);

#endif
