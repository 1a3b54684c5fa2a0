/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/collective-life.h"
#include "engine/log.h"
#include "engine/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static struct collective_life *life_of(struct collective *c)
{
	return (struct collective_life *)c;
}

/* Under lock. */
static void tell_of_change(struct collective *c)
{
	struct collective_life *l = life_of(c);

	pthread_cond_broadcast(&l->changed);
	if (l->wake)
		l->wake(c);
}

/* ---- failing ---- */

int collective_life_state(struct collective *c)
{
	struct collective_about about;

	collective_life_about(c, &about);
	return about.state;
}

bool collective_life_has_failed(struct collective *c)
{
	int state = collective_life_state(c);

	return state && state != -EINPROGRESS;
}

static void say(const struct collective_life *l, int before)
{
	bool asked_for = l->about.state == -ENODEV || l->about.state == -ECANCELED;
	bool idle = !before && !l->launched.first;

	log_line(asked_for || idle ? LOG_INFO : LOG_WARN, "%s: rank %u of %u: %s", l->name,
		 l->about.rank, l->about.nranks, l->about.error);
}

void collective_life_fail(struct collective *c, int rc, const char *fmt, ...)
{
	struct collective_life *l = life_of(c);
	va_list args;
	int before;

	pthread_mutex_lock(&l->lock);
	if (!collective_has_failed(&l->about)) {
		va_start(args, fmt);
		vsnprintf(l->about.error, sizeof(l->about.error), fmt, args);
		va_end(args);
		before = l->about.state;
		l->about.state = rc;
		l->failed_ms = monotonic_ms();
		say(l, before);
		tell_of_change(c);
	}
	pthread_mutex_unlock(&l->lock);
}

void collective_life_be_ready(struct collective *c)
{
	struct collective_life *l = life_of(c);

	pthread_mutex_lock(&l->lock);
	if (l->about.state == -EINPROGRESS)
		l->about.state = 0;
	pthread_mutex_unlock(&l->lock);
}

bool collective_life_is_late(struct collective *c)
{
	return collective_life_has_failed(c) || monotonic_ms() >= life_of(c)->open_until_ms;
}

/* ---- errands ---- */

static void *run_errand(void *arg)
{
	struct collective_life *l = arg;
	bool left;

	l->errand(arg);
	pthread_mutex_lock(&l->lock);
	l->errand_over = true;
	left = l->left;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
	if (left && l->errand != l->let_go)
		l->let_go(arg);
	return NULL;
}

/* Opening ends soon after a failure. */
static uint64_t errand_until(const struct collective_life *l, uint64_t until_ms)
{
	if (l->errand != l->let_go && collective_has_failed(&l->about))
		return u64_min(l->failed_ms + l->options.end_ms, until_ms);
	return until_ms;
}

static void await_errand(struct collective_life *l, uint64_t until_ms)
{
	pthread_mutex_lock(&l->lock);
	for (uint64_t now = monotonic_ms(); !l->errand_over && now < errand_until(l, until_ms);
	     now = monotonic_ms()) {
		struct timespec until = thread_in_ms(errand_until(l, until_ms) - now);

		pthread_cond_timedwait(&l->changed, &l->lock, &until);
	}
	l->left = !l->errand_over;
	pthread_mutex_unlock(&l->lock);
}

void collective_life_do(struct collective *c, void (*errand)(struct collective *c),
			uint64_t until_ms)
{
	struct collective_life *l = life_of(c);
	pthread_t thread;
	int rc;

	l->errand = errand;
	l->errand_over = false;
	rc = thread_start(&thread, run_errand, c);
	if (rc) {
		collective_life_fail(c, rc, "no thread");
		l->left = errand == l->let_go;
		return;
	}
	await_errand(l, until_ms);
	if (l->left)
		pthread_detach(thread);
	else
		pthread_join(thread, NULL);
}

void collective_life_let_go(struct collective *c)
{
	struct collective_life *l = life_of(c);

	if (l->left)
		return;
	collective_life_do(c, l->let_go, monotonic_ms() + l->options.end_ms);
	if (l->left)
		log_warn("%s: rank %u of %u: it does not let go of what it was given within "
			 "%" PRIu64 " ms",
			 l->name, l->about.rank, l->about.nranks, l->options.end_ms);
}

/* ---- what is launched ---- */

int collective_life_append(struct collective *c, struct collective_io *io)
{
	struct collective_life *l = life_of(c);
	int rc = 0;

	pthread_mutex_lock(&l->lock);
	if (l->told) {
		rc = l->about.state;
	} else {
		io->port.until_ms = monotonic_ms() + l->options.wait_ms;
		collective_list_append(&l->launched, io);
		l->about.launched++;
		tell_of_change(c);
	}
	pthread_mutex_unlock(&l->lock);
	return rc;
}

struct collective_io *collective_life_first(struct collective *c)
{
	struct collective_life *l = life_of(c);
	struct collective_io *io;

	pthread_mutex_lock(&l->lock);
	io = l->launched.first;
	pthread_mutex_unlock(&l->lock);
	return io;
}

/* Under lock. */
static struct collective_io *take(struct collective_life *l, int result)
{
	struct collective_io *io = collective_list_take(&l->launched);

	if (io) {
		io->port.result = result;
		collective_count(&l->about, io, result);
	}
	return io;
}

struct collective_io *collective_life_take(struct collective *c, int result)
{
	struct collective_life *l = life_of(c);
	struct collective_io *io;

	pthread_mutex_lock(&l->lock);
	io = take(l, result);
	pthread_mutex_unlock(&l->lock);
	return io;
}

struct collective_io *collective_life_take_rest(struct collective *c, bool last)
{
	struct collective_life *l = life_of(c);
	struct collective_io *io;

	pthread_mutex_lock(&l->lock);
	io = take(l, l->left ? -EIO : l->about.state);
	l->told = last && !io;
	pthread_mutex_unlock(&l->lock);
	return io;
}

/* ---- beginning and end ---- */

int collective_life_start(struct collective *c, unsigned rank, unsigned nranks)
{
	struct collective_life *l = life_of(c);
	int rc;

	l->about.rank = rank;
	l->about.nranks = nranks;
	l->about.number = l->options.number;
	l->about.state = -EINPROGRESS;
	l->open_until_ms = monotonic_ms() + l->options.open_ms;
	pthread_mutex_init(&l->lock, NULL);
	thread_cond_init(&l->changed);
	rc = thread_start(&l->thread, l->run, c);
	if (rc) {
		pthread_cond_destroy(&l->changed);
		pthread_mutex_destroy(&l->lock);
	}
	return rc;
}

/* An errand may use it yet. */
static void leave_behind(struct collective *c)
{
	static struct collective *_Atomic left;

	life_of(c)->next_left = atomic_exchange(&left, c);
}

static bool is_busy(struct collective_life *l)
{
	bool busy;

	pthread_mutex_lock(&l->lock);
	busy = l->about.state == -EINPROGRESS || l->launched.first;
	pthread_mutex_unlock(&l->lock);
	return busy;
}

bool collective_life_stop(struct collective *c)
{
	struct collective_life *l = life_of(c);

	if (is_busy(l))
		collective_life_fail(c, -ECANCELED, "closed");
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	tell_of_change(c);
	pthread_mutex_unlock(&l->lock);
	pthread_join(l->thread, NULL);
	if (l->left) {
		leave_behind(c);
		return false;
	}
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->lock);
	return true;
}

/* ---- the port ---- */

int collective_life_id(struct collective *c, struct collective_id *id)
{
	struct collective_life *l = life_of(c);
	int rc;

	pthread_mutex_lock(&l->lock);
	rc = l->has_id ? 0 : l->about.state;
	if (!rc)
		*id = l->id;
	pthread_mutex_unlock(&l->lock);
	return rc;
}

void collective_life_about(struct collective *c, struct collective_about *about)
{
	struct collective_life *l = life_of(c);

	pthread_mutex_lock(&l->lock);
	*about = l->about;
	pthread_mutex_unlock(&l->lock);
}

void collective_life_abort(struct collective *c)
{
	collective_life_fail(c, -ECANCELED, "aborted");
}

bool collective_life_is_over(struct collective *c)
{
	struct collective_life *l = life_of(c);
	bool over;

	pthread_mutex_lock(&l->lock);
	over = l->told;
	pthread_mutex_unlock(&l->lock);
	return over;
}
