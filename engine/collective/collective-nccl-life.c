/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/collective/collective-nccl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

/* How a communicator begins, fails once and for good, ends what was launched, and leaves
 * behind a thread that does not return.
 */

/* ---- failing ---- */

int collective_nccl_state(struct collective *c)
{
	struct collective_about about;

	collective_nccl_about(c, &about);
	return about.state;
}

bool collective_nccl_has_failed(struct collective *c)
{
	int state = collective_nccl_state(c);

	return state && state != -EINPROGRESS;
}

static void say(const struct collective *c, int before)
{
	bool asked_for = c->about.state == -ENODEV || c->about.state == -ECANCELED;
	bool idle = !before && STAILQ_EMPTY(&c->launched);

	log_line(asked_for || idle ? LOG_INFO : LOG_WARN, "nccl: rank %u of %u: %s",
		 c->about.rank, c->about.nranks, c->about.error);
}

void collective_nccl_fail(struct collective *c, int rc, const char *fmt, ...)
{
	va_list args;
	int before;

	pthread_mutex_lock(&c->lock);
	if (!collective_has_failed(&c->about)) {
		va_start(args, fmt);
		vsnprintf(c->about.error, sizeof(c->about.error), fmt, args);
		va_end(args);
		before = c->about.state;
		c->about.state = rc;
		c->failed_ms = monotonic_ms();
		say(c, before);
		pthread_cond_broadcast(&c->changed);
	}
	pthread_mutex_unlock(&c->lock);
}

void collective_nccl_be_ready(struct collective *c)
{
	pthread_mutex_lock(&c->lock);
	if (c->about.state == -EINPROGRESS)
		c->about.state = 0;
	pthread_mutex_unlock(&c->lock);
}

bool collective_nccl_is_late(struct collective *c)
{
	return collective_nccl_has_failed(c) || monotonic_ms() >= c->open_until_ms;
}

/* ---- errands ---- */

static void *errand_thread(void *arg)
{
	struct collective *c = arg;
	bool left;

	c->errand(arg);
	pthread_mutex_lock(&c->lock);
	c->errand_over = true;
	left = c->left;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	if (left && c->errand != collective_nccl_let_go)
		collective_nccl_let_go(arg);
	return NULL;
}

/* Opening ends soon after a failure. */
static uint64_t errand_until(const struct collective *c, uint64_t until_ms)
{
	if (c->errand != collective_nccl_let_go && collective_has_failed(&c->about))
		return u64_min(c->failed_ms + c->options.end_ms, until_ms);
	return until_ms;
}

static void await_errand(struct collective *c, uint64_t until_ms)
{
	pthread_mutex_lock(&c->lock);
	for (uint64_t now = monotonic_ms(); !c->errand_over && now < errand_until(c, until_ms);
	     now = monotonic_ms()) {
		struct timespec until = thread_in_ms(errand_until(c, until_ms) - now);

		pthread_cond_timedwait(&c->changed, &c->lock, &until);
	}
	c->left = !c->errand_over;
	pthread_mutex_unlock(&c->lock);
}

void collective_nccl_run_errand(struct collective *c, void (*errand)(struct collective *c),
				uint64_t until_ms)
{
	pthread_t thread;
	int rc;

	c->errand = errand;
	c->errand_over = false;
	rc = thread_start(&thread, errand_thread, c);
	if (rc) {
		collective_nccl_fail(c, rc, "no thread");
		c->left = errand == collective_nccl_let_go;
		return;
	}
	await_errand(c, until_ms);
	if (c->left)
		pthread_detach(thread);
	else
		pthread_join(thread, NULL);
}

void collective_nccl_let_go_in_time(struct collective *c)
{
	if (c->left)
		return;
	collective_nccl_run_errand(c, collective_nccl_let_go,
				   monotonic_ms() + c->options.end_ms);
	if (c->left)
		log_warn("nccl: rank %u of %u: it does not let go of what it was given within "
			 "%" PRIu64 " ms",
			 c->about.rank, c->about.nranks, c->options.end_ms);
}

/* ---- what is launched ---- */

int collective_nccl_append(struct collective *c, struct collective_io *io)
{
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	if (c->told) {
		rc = c->about.state;
	} else {
		io->port.until_ms = monotonic_ms() + c->options.wait_ms;
		STAILQ_INSERT_TAIL(&c->launched, io, port.next);
		c->about.launched++;
		pthread_cond_broadcast(&c->changed);
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

struct collective_io *collective_nccl_first(struct collective *c)
{
	struct collective_io *io;

	pthread_mutex_lock(&c->lock);
	io = STAILQ_FIRST(&c->launched);
	pthread_mutex_unlock(&c->lock);
	return io;
}

/* Under lock. */
static struct collective_io *take(struct collective *c, int result)
{
	struct collective_io *io = STAILQ_TAKE(&c->launched, port.next);

	if (io) {
		io->port.result = result;
		collective_count(&c->about, io, result);
	}
	return io;
}

struct collective_io *collective_nccl_take(struct collective *c, int result)
{
	struct collective_io *io;

	pthread_mutex_lock(&c->lock);
	io = take(c, result);
	pthread_mutex_unlock(&c->lock);
	return io;
}

struct collective_io *collective_nccl_take_rest(struct collective *c)
{
	struct collective_io *io;

	pthread_mutex_lock(&c->lock);
	io = take(c, c->left ? -EIO : c->about.state);
	c->told = !io;
	pthread_mutex_unlock(&c->lock);
	return io;
}

/* ---- beginning and end ---- */

int collective_nccl_start(struct collective *c, void *(*run)(void *collective), unsigned rank,
			  unsigned nranks)
{
	int rc;

	c->about.rank = rank;
	c->about.nranks = nranks;
	c->about.number = c->options.number;
	c->about.state = -EINPROGRESS;
	STAILQ_INIT(&c->launched);
	c->open_until_ms = monotonic_ms() + c->options.open_ms;
	pthread_mutex_init(&c->lock, NULL);
	thread_cond_init(&c->changed);
	rc = thread_start(&c->thread, run, c);
	if (rc) {
		pthread_cond_destroy(&c->changed);
		pthread_mutex_destroy(&c->lock);
	}
	return rc;
}

/* An errand may use it yet. */
static void leave_behind(struct collective *c)
{
	static struct collective *_Atomic left;

	c->next_left = atomic_exchange(&left, c);
}

static bool is_busy(struct collective *c)
{
	bool busy;

	pthread_mutex_lock(&c->lock);
	busy = c->about.state == -EINPROGRESS || !STAILQ_EMPTY(&c->launched);
	pthread_mutex_unlock(&c->lock);
	return busy;
}

bool collective_nccl_stop(struct collective *c)
{
	if (is_busy(c))
		collective_nccl_fail(c, -ECANCELED, "closed");
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	if (c->left) {
		leave_behind(c);
		return false;
	}
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	return true;
}

/* ---- the port ---- */

int collective_nccl_id(struct collective *c, struct collective_id *id)
{
	int rc;

	pthread_mutex_lock(&c->lock);
	rc = c->has_id ? 0 : c->about.state;
	if (!rc)
		*id = c->id;
	pthread_mutex_unlock(&c->lock);
	return rc;
}

void collective_nccl_about(struct collective *c, struct collective_about *about)
{
	pthread_mutex_lock(&c->lock);
	*about = c->about;
	pthread_mutex_unlock(&c->lock);
}

void collective_nccl_abort(struct collective *c)
{
	collective_nccl_fail(c, -ECANCELED, "aborted");
}

bool collective_nccl_is_over(struct collective *c)
{
	bool over;

	pthread_mutex_lock(&c->lock);
	over = c->told;
	pthread_mutex_unlock(&c->lock);
	return over;
}
