/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_THREAD_H
#define ENGINE_BASE_THREAD_H

/* Threads that block all signals, which are for the trainer's own threads; and deadlines by
 * CLOCK_MONOTONIC, which nobody sets.
 */

#include "engine/base/base.h"
#include "engine/base/cpus.h"

#include <pthread.h>
#include <signal.h>

/* Makes threads that thread_start starts from now on run on these processors alone; NULL: where
 * the thread that starts them may run.  Not while another thread starts some.
 * -EINVAL: this process may use none of these processors; nothing has changed.
 * Other errors of pthread_create.
 */
int thread_bind(const struct cpus *cpus);
/* The processors that were given to thread_bind; NULL: none were. */
const struct cpus *thread_bound(void);

/* Starts a thread that blocks all signals.  attributes may be NULL; the processors that they
 * name may be replaced.  -errno of pthread_create.
 */
int thread_start_with(pthread_t *thread, pthread_attr_t *attributes, void *(*run)(void *),
		      void *arg);

static inline int thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
	return thread_start_with(thread, NULL, run, arg);
}

/* Notes that the calling thread is the engine thread of `engine`, for assertions at doors. */
void thread_be_engine(const void *engine);
/* Returns the engine whose thread the calling one is; NULL: of none. */
const void *thread_engine(void);
/* Returns true if the calling thread may do what the trainer's alone does: it is no engine's.
 * The trainer may be one thread after another, in one call at a time.
 */
static inline bool thread_may_be_trainer(void)
{
	return !thread_engine();
}

static inline pthread_mutex_t *thread_lock(pthread_mutex_t *lock)
{
	pthread_mutex_lock(lock);
	return lock;
}

static inline void thread_unlock(pthread_mutex_t **lock)
{
	pthread_mutex_unlock(*lock);
}

/* A declaration: the lock is held from here to the end of the block, however that is left. */
#define LOCKED(lock)                                                                           \
	__attribute__((cleanup(thread_unlock), unused)) pthread_mutex_t *locked_ =             \
		thread_lock(lock)

/* Makes a condition for pthread_cond_timedwait with thread_in_ms. */
static inline void thread_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

static inline struct timespec thread_in(uint64_t seconds, uint64_t ns)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += (time_t)seconds;
	t.tv_nsec += (long)ns;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

static inline struct timespec thread_in_ms(uint64_t ms)
{
	return thread_in(ms / 1000, ms % 1000 * 1000000);
}

static inline struct timespec thread_in_us(uint64_t us)
{
	return thread_in(us / 1000000, us % 1000000 * 1000);
}

#endif
