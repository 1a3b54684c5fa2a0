/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/swap/swap-file-internal.h"

/* Threads that compute the checksums of chunks, those of writes while the disk writes, those of
 * reads while it reads others: a thread of the disk that computed them would not give the disk
 * its next request meanwhile.  Two, so that the sums keep up with a disk that is faster than
 * one core reads memory.
 */

enum { LEAST = 256 << 10 }; /* bytes; fewer are summed sooner than a thread is woken */

static struct swap_chunk *next_chunk(struct swap_sum_threads *s)
{
	struct swap_chunk *c;

	pthread_mutex_lock(&s->lock);
	while (!(c = TAILQ_FIRST(&s->queue)) && !s->stop)
		pthread_cond_wait(&s->queued, &s->lock);
	if (c)
		TAILQ_REMOVE(&s->queue, c, in_queue);
	pthread_mutex_unlock(&s->lock);
	return c;
}

static void *run(void *arg)
{
	struct swap_sum_threads *s = arg;
	struct swap_chunk *c;

	while ((c = next_chunk(s)))
		swap_file_sum_chunk(c);
	return NULL;
}

void swap_file_sum_threads_start(struct swap_sum_threads *s)
{
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->queued, NULL);
	TAILQ_INIT(&s->queue);
	while (s->n < SWAP_SUM_THREADS && !thread_start(&s->threads[s->n], run, s))
		s->n++;
	if (!s->n)
		log_info("swap: no thread for checksums: the disk's threads compute them");
}

void swap_file_sum_threads_stop(struct swap_sum_threads *s)
{
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_broadcast(&s->queued);
	pthread_mutex_unlock(&s->lock);
	while (s->n)
		pthread_join(s->threads[--s->n], NULL);
	assert(TAILQ_EMPTY(&s->queue));
	pthread_cond_destroy(&s->queued);
	pthread_mutex_destroy(&s->lock);
}

bool swap_file_sum_threads_want(const struct swap_sum_threads *s, const struct swap_chunk *c)
{
	return s->n && c->size >= LEAST;
}

void swap_file_sum_threads_add(struct swap_sum_threads *s, struct swap_chunk *c)
{
	pthread_mutex_lock(&s->lock);
	TAILQ_INSERT_TAIL(&s->queue, c, in_queue);
	pthread_cond_signal(&s->queued);
	pthread_mutex_unlock(&s->lock);
}
