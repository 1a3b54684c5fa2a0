/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/stats-pass.h"

#include "engine/base/thread.h"

#include <errno.h>
#include <string.h>

enum { CHUNK = ENGINE_READ_MAX, SLOTS = 3 };

struct slot { /* one chunk, being read or read */
	struct engine_read read;
	struct stats_run *run;
	int64_t result;
	bool is_reading;     /* under the lock, as all below */
	bool is_cancelling;  /* engine_read_cancel has not returned: done waits for it */
	pthread_t canceller; /* which done does not wait for: it may be called in there */
	uint8_t *memory;     /* CHUNK bytes, which the reader alone has while it is reading */
};

struct stats_run {
	struct stats_pass *pass;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool canceled;
	struct slot slots[SLOTS];
};

static void came(struct engine_read *read, const void *data, int64_t result)
{
	struct slot *slot = read->owner;
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
	struct slot *slot = &run->slots[i % SLOTS];

	if (i * CHUNK >= run->pass->bytes)
		return;
	slot->is_reading = true;
	slot->read = (struct engine_read){ .file = run->pass->file,
					   .offset = i * CHUNK,
					   .size = u64_min(CHUNK, run->pass->bytes - i * CHUNK),
					   .nowait = run->pass->nowait,
					   .into = slot->memory,
					   .done = came,
					   .owner = slot };
	engine_read(run->pass->engine, &slot->read);
}

/* Waits until the slot's read is over, or the pass is cancelled. */
static int wait_for(struct stats_run *run, const struct slot *slot)
{
	LOCKED(&run->lock);
	while (slot->is_reading && !run->canceled)
		pthread_cond_wait(&run->changed, &run->lock);
	return run->canceled ? -ECANCELED : slot->result < 0 ? (int)slot->result : 0;
}

/* Ends the reads that are under way, and waits for them. */
static void end_reads(struct stats_run *run)
{
	for (struct slot *slot = run->slots; slot < run->slots + SLOTS; slot++) {
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

static int add_all(struct stats_run *run)
{
	struct stats_pass *pass = run->pass;
	uint64_t element = frag_dtype_size(pass->dtype), first = 0;
	int rc = 0;

	for (uint64_t i = 0; i < SLOTS; i++)
		read_chunk(run, i);
	for (uint64_t i = 0; i * CHUNK < pass->bytes; i++) {
		struct slot *slot = &run->slots[i % SLOTS];
		uint64_t n;

		rc = wait_for(run, slot);
		if (rc)
			break;
		n = (uint64_t)slot->result / element;
		stats_add(pass->values, pass->dtype, slot->memory, n, first);
		first += n;
		read_chunk(run, i + SLOTS);
	}
	end_reads(run);
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

static void *run_pass(void *arg)
{
	struct stats_run *run = arg;
	struct stats_pass *pass = run->pass;
	int rc = add_all(run);

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
	for (struct slot *slot = run->slots; slot < run->slots + SLOTS; slot++) {
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
