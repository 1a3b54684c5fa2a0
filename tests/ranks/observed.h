/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_RANKS_OBSERVED_H
#define TESTS_RANKS_OBSERVED_H

/* A job of three ranks and an observer of it in one process, over a transport that fails by
 * rule (faults.h) and with a clock that runs ahead (scarce.h).  Its parameters are "w", cut
 * over the ranks, "frozen", in no group, and "short".
 */

#include "tests/ranks/faults.h"
#include "tests/ranks/job.h"

enum { WORLD = 3, NUMEL = 37, BYTES = NUMEL * 4, TURNS = 6000, MANY = 1000000 };

extern struct job job;
extern struct engine *observer;

/* Open the job: with all ranks' memory in the observer's reach, or with none. */
void open_near(void);
void open_far(void);
/* Opens it with no memory in reach, and with four ranks that have this group. */
void open_group(const struct job_group *group);
/* Opens it with no memory in reach, and fp32 and exp_avg in a tier; ops: see job_spec. */
extern struct frag_devices observed_devices; /* settings of the next job's devices */
void open_tier(enum job_how how, const struct device_ops *on_device);
void close_job(void);
/* Opens an observer of the open job, if it has none, where the first one was. */
void observe(void);

/* Turns every engine once.  turned_ms: how far turns have put the clock ahead; on a slow
 * machine the clock runs on between turns, too.
 */
extern uint64_t turned_ms;
void turn(void *arg);

struct engine_file *open_state(enum engine_address_kind kind, const char *key);
/* Starts a read, cancels it if asked to and not over, and turns until it is over.  Returns its
 * result; read_bytes has the bytes.
 */
extern uint8_t read_bytes[BYTES];
int64_t read_file(struct engine_file *file, uint64_t offset, uint32_t size, bool nowait,
		  bool cancel);
/* Reads parameter "w" by a file opened for this read. */
int64_t read_at(uint64_t offset, uint32_t size, const char *key, bool nowait, bool cancel);

#endif
