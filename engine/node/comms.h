/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_COMMS_H
#define ENGINE_NODE_COMMS_H

/* Counts this engine's operations on ranks, if FRAG_COMMS is 1.  A row has the number, bytes,
 * latencies and rates of one operation, of one power of two of bytes, called at one place in
 * the source: of reads and stages, the call of engine_read, engine_write or a frag_ function
 * that asked for them, or readahead.c; of all else, where the message is sent.  A
 * rank's row has how far behind the first rank it answers, where several are asked the same at
 * once: VIEW_OPEN, PREPARE, DECIDE.  Quantiles of latencies are a histogram's
 * (engine/base/histogram.h).
 *
 * algbw is bytes by time.  A round, in which n ranks bring their parts to one of them, has
 * busbw = algbw * (n - 1) / n, as an all_gather; all else, between two, has algbw.
 */

#include "engine/base/base.h"

enum comms_op {
	COMMS_NONE,
	COMMS_READ,     /* READ: by message */
	COMMS_ONESIDED, /* of the owner's memory, on this host */
	COMMS_VIEW,     /* VIEW_OPEN */
	COMMS_STATS,
	COMMS_STAGE,
	COMMS_COMMIT,  /* COMMIT until the coordinator has taken it */
	COMMS_PREPARE, /* PREPARE until the vote */
	COMMS_APPLY,   /* DECIDE until a rank has applied the edit at its boundary */
	COMMS_ROUND,   /* of this rank's part until all bytes are there */
	COMMS_OPS,
};

enum { COMMS_ROWS = 512 };

struct comms;

/* NULL: FRAG_COMMS is not 1, or no memory, which a line says. */
struct comms *comms_new(void);
void comms_free(struct comms *c);

/* Returns the time; 0: c is NULL, and nothing is to be counted. */
static inline uint64_t comms_begin(const struct comms *c)
{
	return c ? monotonic_ns() : 0;
}

/* Counts an operation that took ns; caller, a LOG_PLACE, is kept.  nranks > 1: of a round.
 * Beyond COMMS_ROWS rows it is counted among those left out.  Any thread.
 */
void comms_count(struct comms *c, enum comms_op op, unsigned nranks, uint64_t bytes,
		 uint64_t ns, const char *caller);
/* Counts that a rank answered ns after the first one; 0: it was the first.  Any thread. */
void comms_behind(struct comms *c, uint32_t rank, uint64_t ns);

/* Makes a text that the caller frees: a heading and a line for each row, an empty line, then a
 * heading and a line for each rank that was asked together with others; tabs between fields.
 * "off\n": c is NULL.  NULL: no memory.
 */
char *comms_text(struct comms *c);

#endif
