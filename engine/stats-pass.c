/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/stats-pass.h"

#include "engine/base/thread.h"

#include <errno.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { CHUNK = ENGINE_READ_MAX, SLOTS = 3 };

/* One chunk, being read or read.  While is_reading is set, the read has the memory and the
 * result; else the thread of the pass has them.
 */
struct chunk_read {
	struct engine_read read;
	struct stats_run *run;
	uint8_t *memory; /* CHUNK bytes */
	int64_t result;
	/* Under the lock; is_reading is set without it, when no read is under way. */
	bool is_reading;
	bool is_cancelling; /* engine_read_cancel has not returned: `came` waits for it */
	/* `came` does not wait for this thread, which may have called it */
	pthread_t canceller;
};

struct stats_run {
	struct stats_pass *pass;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool canceled;   /* under the lock */
	bool is_summing; /* the owners are asked; under the lock */
	struct chunk_read slots[SLOTS];
};

static void came(struct engine_read *read, const void *data, int64_t result)
{
	struct chunk_read *slot = read->owner;
	struct stats_run *run = slot->run;

	if (result > 0 && data != slot->memory)
		memcpy(slot->memory, data, (size_t)result);
	pthread_mutex_lock(&run->lock);
	while (slot->is_cancelling && !pthread_equal(slot->canceller, pthread_self()))
		pthread_cond_wait(&run->changed, &run->lock);
	slot->result = result;
	slot->is_reading = false;
	pthread_cond_broadcast(&run->changed);
	pthread_mutex_unlock(&run->lock);
}

/* Reads chunk number i of the file, if there is one. */
static void read_chunk(struct stats_run *run, uint64_t i)
{
	struct chunk_read *slot = &run->slots[i % SLOTS];

	if (i * CHUNK >= run->pass->bytes)
		return;
	slot->is_reading = true;
	slot->read = (struct engine_read){ .file = run->pass->file,
					   .offset = i * CHUNK,
					   .size = u64_min(CHUNK, run->pass->bytes - i * CHUNK),
					   .nowait = run->pass->nowait,
					   .thread = run->pass->thread,
					   .into = slot->memory,
					   .done = came,
					   .owner = slot };
	engine_read(run->pass->engine, &slot->read);
}

/* Waits until the slot's read is over, or the pass is cancelled. */
static int wait_for(struct stats_run *run, const struct chunk_read *slot)
{
	LOCKED(&run->lock);
	while (slot->is_reading && !run->canceled)
		pthread_cond_wait(&run->changed, &run->lock);
	return run->canceled ? -ECANCELED : slot->result < 0 ? (int)slot->result : 0;
}

/* Ends the reads that are under way, and waits for them. */
static void end_reads(struct stats_run *run)
{
	for (struct chunk_read *slot = run->slots; slot < run->slots + SLOTS; slot++) {
		pthread_mutex_lock(&run->lock);
		slot->is_cancelling = slot->is_reading;
		slot->canceller = pthread_self();
		pthread_mutex_unlock(&run->lock);
		if (slot->is_cancelling)
			engine_read_cancel(run->pass->engine, &slot->read);
		pthread_mutex_lock(&run->lock);
		slot->is_cancelling = false;
		pthread_cond_broadcast(&run->changed);
		while (slot->is_reading)
			pthread_cond_wait(&run->changed, &run->lock);
		pthread_mutex_unlock(&run->lock);
	}
}

/* ---- by the owners ---- */

static void summed(struct engine_sums *sums)
{
	struct stats_run *run = sums->owner;

	LOCKED(&run->lock);
	run->is_summing = false;
	pthread_cond_broadcast(&run->changed);
}

/* Waits for the owners.  The lock is held over the cancellation: `summed` waits for it. */
static void wait_for_sums(struct stats_run *run, struct engine_sums *sums)
{
	bool told = false;

	LOCKED(&run->lock);
	while (run->is_summing) {
		if (run->canceled && !told)
			engine_sums_cancel(run->pass->engine, sums);
		told = run->canceled;
		pthread_cond_wait(&run->changed, &run->lock);
	}
}

/* Lets the owners of the bytes make the statistics.
 * -EOPNOTSUPP, -EAGAIN: the bytes are to be read.
 * Errors of engine_sums.
 */
static int ask_owners(struct stats_run *run)
{
	struct stats_pass *pass = run->pass;
	struct engine_sum sum = { .address = pass->address,
				  .file = pass->file,
				  .values = pass->values };
	struct engine_sums sums = { .states = &sum,
				    .n = 1,
				    .with_bins = pass->with_bins,
				    .done = summed,
				    .owner = run };
	int rc;

	run->is_summing = true;
	rc = engine_sums(pass->engine, &sums);
	if (rc)
		return rc;
	wait_for_sums(run, &sums);
	return sum.result;
}

/* A read of a few bytes opens the view, or says why there is none. */
static int open_view(struct stats_run *run)
{
	run->slots[0].is_reading = true;
	run->slots[0].read = (struct engine_read){ .file = run->pass->file,
						   .size = frag_dtype_size(run->pass->dtype),
						   .nowait = run->pass->nowait,
						   .thread = run->pass->thread,
						   .into = run->slots[0].memory,
						   .done = came,
						   .owner = &run->slots[0] };
	engine_read(run->pass->engine, &run->slots[0].read);
	return wait_for(run, &run->slots[0]);
}

/* ---- by reading ---- */

static int add_all(struct stats_run *run)
{
	struct stats_pass *pass = run->pass;
	uint64_t element = pass->hash ? 1 : frag_dtype_size(pass->dtype), first = 0;
	XXH64_state_t hash;
	int rc = 0;

	XXH64_reset(&hash, 0);
	for (uint64_t i = 0; i < SLOTS; i++)
		read_chunk(run, i);
	for (uint64_t i = 0; i * CHUNK < pass->bytes; i++) {
		struct chunk_read *slot = &run->slots[i % SLOTS];
		uint64_t n;

		rc = wait_for(run, slot);
		if (rc)
			break;
		n = (uint64_t)slot->result / element;
		if (pass->hash)
			XXH64_update(&hash, slot->memory, n);
		else
			stats_add(pass->values, pass->dtype, slot->memory, n, first);
		first += n;
		read_chunk(run, i + SLOTS);
	}
	end_reads(run);
	if (pass->hash)
		*pass->hash = XXH64_digest(&hash);
	return rc || first == pass->bytes / element ? rc : -ESTALE;
}

static void run_free(struct stats_run *run)
{
	for (unsigned i = 0; i < SLOTS; i++)
		free(run->slots[i].memory);
	pthread_cond_destroy(&run->changed);
	pthread_mutex_destroy(&run->lock);
	free(run);
}

/* A state of one chunk is read sooner than its owners answer a question for statistics; a hash
 * needs the bytes in their order.
 */
static int make(struct stats_run *run)
{
	struct stats_pass *pass = run->pass;
	int rc = -EOPNOTSUPP;

	if (!pass->hash && pass->bytes > CHUNK && engine_is_live(pass->engine)) {
		rc = open_view(run);
		if (!rc)
			rc = ask_owners(run);
		end_reads(run);
	}
	if (rc != -EOPNOTSUPP && rc != -EAGAIN)
		return rc;
	if (!pass->hash)
		stats_init(pass->values, pass->with_bins);
	return add_all(run);
}

static void *run_pass(void *arg)
{
	struct stats_run *run = arg;
	struct stats_pass *pass = run->pass;
	int rc = make(run);

	pass->done(pass, rc);
	run_free(run);
	return NULL;
}

static struct stats_run *run_new(struct stats_pass *pass)
{
	struct stats_run *run = calloc(1, sizeof(*run));
	bool missing = false;

	if (!run)
		return NULL;
	run->pass = pass;
	pthread_mutex_init(&run->lock, NULL);
	pthread_cond_init(&run->changed, NULL);
	for (struct chunk_read *slot = run->slots; slot < run->slots + SLOTS; slot++) {
		slot->run = run;
		slot->memory = malloc(u64_min(CHUNK, u64_max(pass->bytes, 1)));
		missing |= !slot->memory;
	}
	if (!missing)
		return run;
	run_free(run);
	return NULL;
}

int stats_pass_start(struct stats_pass *pass)
{
	struct stats_run *run = run_new(pass);
	pthread_t thread;
	int rc;

	if (!run)
		return -ENOMEM;
	pass->run = run;
	if (!pass->hash)
		stats_init(pass->values, pass->with_bins);
	rc = thread_start(&thread, run_pass, run);
	if (rc)
		run_free(run);
	else
		pthread_detach(thread);
	return rc;
}

void stats_pass_cancel(struct stats_pass *pass)
{
	struct stats_run *run = pass->run;

	LOCKED(&run->lock);
	run->canceled = true;
	pthread_cond_broadcast(&run->changed);
}
