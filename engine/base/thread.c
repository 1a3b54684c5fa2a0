/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"

#include <sched.h>

static _Thread_local const void *engine_here; /* NULL: not an engine's thread */
static struct cpus bound;
static bool is_bound;

static int start(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
		 void *arg)
{
	sigset_t every, before;
	int rc;

	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	rc = pthread_create(thread, attributes, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -rc;
}

/* The words of struct cpus are those of the kernel's mask. */
static int start_on(const struct cpus *cpus, pthread_t *thread, pthread_attr_t *attributes,
		    void *(*run)(void *), void *arg)
{
	int rc = -pthread_attr_setaffinity_np(attributes, sizeof(cpus->word),
					      (const cpu_set_t *)cpus->word);

	return rc ? rc : start(thread, attributes, run, arg);
}

static int start_bound(const struct cpus *cpus, pthread_t *thread, void *(*run)(void *),
		       void *arg)
{
	pthread_attr_t own;
	int rc = -pthread_attr_init(&own);

	if (rc)
		return rc;
	rc = start_on(cpus, thread, &own, run, arg);
	pthread_attr_destroy(&own);
	return rc;
}

int thread_start_with(pthread_t *thread, pthread_attr_t *attributes, void *(*run)(void *),
		      void *arg)
{
	if (!is_bound)
		return start(thread, attributes, run, arg);
	return attributes ? start_on(&bound, thread, attributes, run, arg)
			  : start_bound(&bound, thread, run, arg);
}

static void *end(void *arg)
{
	return arg;
}

int thread_bind(const struct cpus *cpus)
{
	pthread_t thread;
	/* a trial thread: the kernel checks the processors */
	int rc = cpus ? start_bound(cpus, &thread, end, NULL) : 0;

	if (rc)
		return rc;
	if (cpus) {
		pthread_join(thread, NULL);
		bound = *cpus;
	}
	is_bound = cpus;
	return 0;
}

const struct cpus *thread_bound(void)
{
	return is_bound ? &bound : NULL;
}

void thread_be_engine(const void *engine)
{
	engine_here = engine;
}

const void *thread_engine(void)
{
	return engine_here;
}
