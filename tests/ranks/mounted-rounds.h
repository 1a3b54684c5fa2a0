/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_RANKS_MOUNTED_ROUNDS_H
#define TESTS_RANKS_MOUNTED_ROUNDS_H

/* A job whose ranks are connected, rank 0 with two slots for mounts, and a mount on its host,
 * which reads by rounds.
 */

#include "tests/ranks/boundaries.h"

#include "engine/node/file.h"

enum { WORLD = 4, GOAL = 100000, OWNER = 3, AGENT = 0, LONG_MS = 10000, SHORT_MS = 50 };

/* PART: bytes that are read at a time.  OWN: the first bytes, which rank 0 holds; the mount
 * reads them from its memory unless that is a device's.
 */
enum { PART = 8, OWN = 40 };

extern const struct job_group sharded;
/* Two mounts: `observer` is tested, `other` may be opened beside it. */
extern struct engine *observer, *other;
/* exp_avg of "w", opened by observer */
extern struct engine_file *file;
/* The bytes read of the file, and the result of the last read, once it has ended. */
extern uint8_t got[BYTES];
extern int64_t ended;
extern bool has_ended;

void turn_all(void *arg);

void observe_as(struct engine **out, const char *host, const char *how);
void observe(const char *host, const char *how);
struct engine_file *open_state_of(struct engine *e, const char *key);
struct engine_file *open_state(const char *key);
void open_all(const char *host, const char *how);
void close_all(void);
/* Lets all trainers pass that many more boundaries. */
void all_go(uint64_t more);

void on_read(struct engine_read *read, const void *data, int64_t result);
int64_t read_of(struct engine_file *f, uint64_t offset, uint32_t size);
int64_t read_at(uint64_t offset, uint32_t size);
void read_all(void);
/* Reads a part, which opens the view, and for which no round is asked. */
void read_first_part(void);
void expect_truth(void);

/* Returns how many bytes from `from` on no memory in reach has. */
uint64_t elsewhere(uint64_t from);
uint64_t by_rounds(void);
uint64_t fallback(enum wire_fallback why);
/* Returns the window that observer has asked for at offset; NULL: none. */
struct prefetch_window *find_window(uint64_t offset);

#endif
