/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/collective/collective-common.h"
#include "tests/ports/collective-host.h"
#include "tests/ports/device-host.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* Ranks of one process find each other by the id, in a *world*.  Each rank has a thread, which
 * begins the rank's first launch when its event has passed, copies moves that pair up with
 * those of other ranks' first launches, calls done for its own launches, and looks at the
 * clock.
 */

enum { EVENT_PAUSE_MS = 1 }; /* between queries of an event */

struct world {
	LIST_ENTRY(world) next;
	struct collective_id id;
	unsigned nranks, users, came;
	struct collective *ranks[]; /* NULL: not here yet, or no longer */
};

struct launch {
	struct collective_io *io;
	STAILQ_ENTRY(launch) next;
	uint64_t until_ms;
	unsigned left; /* moves */
	bool begun, ended;
	bool paired[]; /* [nmoves] */
};

struct collective {
	struct world *world;
	struct collective_options options;
	struct collective_about about;
	uint64_t open_until_ms;
	STAILQ_HEAD(, launch) launches;
	struct collective_ios over; /* done is to be called */
	bool held, stop;
	pthread_t thread;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all there is here */
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static LIST_HEAD(, world) worlds;
static uint64_t last_id;

static void init_once(void)
{
	thread_cond_init(&changed);
}

/* ---- worlds; all under lock ---- */

static struct world *find_world(const struct collective_id *id)
{
	struct world *w;

	LIST_FOREACH (w, &worlds, next)
		if (!memcmp(&w->id, id, sizeof(*id)))
			break;
	return w;
}

static struct world *new_world(const struct collective_id *id, unsigned nranks)
{
	struct world *w = calloc(1, sizeof(*w) + nranks * sizeof(struct collective *));

	if (!w)
		return NULL;
	w->nranks = nranks;
	LIST_INSERT_HEAD(&worlds, w, next);
	if (id)
		w->id = *id;
	else
		snprintf((char *)w->id.bytes, sizeof(w->id.bytes), "host %" PRIu64, ++last_id);
	return w;
}

static int join_world(struct collective *c, const struct collective_id *id)
{
	unsigned rank = c->about.rank, nranks = c->about.nranks;
	struct world *w = id ? find_world(id) : NULL;

	if (w && (w->nranks != nranks || w->ranks[rank]))
		return -EINVAL;
	if (!w)
		w = new_world(id, nranks);
	if (!w)
		return -ENOMEM;
	w->users++;
	w->came++;
	w->ranks[rank] = c;
	c->world = w;
	return 0;
}

static void leave_world(struct collective *c)
{
	struct world *w = c->world;

	w->ranks[c->about.rank] = NULL;
	if (--w->users)
		return;
	LIST_REMOVE(w, next);
	free(w);
}

/* ---- one rank; all under lock ---- */

static void end_first(struct collective *c, int result)
{
	struct launch *l = STAILQ_TAKE(&c->launches, next);

	l->io->port.result = result;
	STAILQ_INSERT_TAIL(&c->over, l->io, port.next);
	collective_count(&c->about, l->io, result);
	free(l);
}

static void PRINTF(3, 4) fail(struct collective *c, int rc, const char *fmt, ...)
{
	va_list args;

	if (collective_has_failed(&c->about))
		return;
	va_start(args, fmt);
	vsnprintf(c->about.error, sizeof(c->about.error), fmt, args);
	va_end(args);
	log_warn("collective host: rank %u of %u: %s", c->about.rank, c->about.nranks,
		 c->about.error);
	c->about.state = rc;
	while (!STAILQ_EMPTY(&c->launches))
		end_first(c, rc);
	pthread_cond_broadcast(&changed);
}

/* The rank's first launch; NULL: none, or it has not begun. */
static struct launch *begun(const struct collective *c)
{
	struct launch *l = c ? STAILQ_FIRST(&c->launches) : NULL;

	return l && l->begun && !l->ended ? l : NULL;
}

static void end_launch(struct launch *l)
{
	l->ended = true;
	pthread_cond_broadcast(&changed);
}

/* ---- moves ---- */

static unsigned find_other(const struct launch *other, unsigned rank, bool to_peer)
{
	unsigned i;

	for (i = 0; i < other->io->nmoves; i++) {
		const struct collective_move *m = &other->io->moves[i];

		if (!other->paired[i] && m->peer == rank && m->to_peer != to_peer)
			break;
	}
	return i;
}

static void count_paired(struct launch *l, unsigned i)
{
	l->paired[i] = true;
	if (!--l->left)
		end_launch(l);
}

static void *reach(const struct collective *c, const void *memory)
{
	return c->options.device ? device_host_reach(c->options.device, memory)
				 : (void *)(uintptr_t)memory;
}

static void copy(const struct collective *of_a, const struct collective_move *a,
		 const struct collective *of_b, const struct collective_move *b)
{
	void *at_a = reach(of_a, a->memory), *at_b = reach(of_b, b->memory);

	memcpy(a->to_peer ? at_b : at_a, a->to_peer ? at_a : at_b, a->size);
}

static void pair(struct collective *c, unsigned i)
{
	struct launch *mine = STAILQ_FIRST(&c->launches), *theirs;
	const struct collective_move *m = &mine->io->moves[i];
	struct collective *peer = c->world->ranks[m->peer];
	unsigned j;

	theirs = begun(peer);
	if (!theirs || theirs->io->what != COLLECTIVE_MOVES)
		return;
	j = find_other(theirs, c->about.rank, m->to_peer);
	if (j == theirs->io->nmoves)
		return;
	if (theirs->io->moves[j].size != m->size) {
		fail(peer, -EIO, "a size is not that of rank %u", c->about.rank);
		fail(c, -EIO, "a size is not that of rank %u", m->peer);
		return;
	}
	copy(c, m, peer, &theirs->io->moves[j]);
	count_paired(theirs, j);
	count_paired(mine, i);
}

static void pair_all(struct collective *c)
{
	struct launch *l = STAILQ_FIRST(&c->launches);

	for (unsigned i = 0; STAILQ_FIRST(&c->launches) == l && i < l->io->nmoves; i++)
		if (!l->paired[i])
			pair(c, i);
}

/* ---- gathers ---- */

static bool all_gather(const struct collective *c)
{
	const struct world *w = c->world;
	uint64_t size = STAILQ_FIRST(&c->launches)->io->size;

	for (unsigned r = 0; r < w->nranks; r++) {
		const struct launch *l = begun(w->ranks[r]);

		if (!l || l->io->what != COLLECTIVE_GATHER_ALL || l->io->size != size)
			return false;
	}
	return true;
}

static void gather_to(const struct collective *c, const struct collective_io *io)
{
	const struct world *w = c->world;

	for (unsigned r = 0; r < w->nranks; r++) {
		uint8_t *to = (uint8_t *)io->to + r * io->size;
		const void *from = STAILQ_FIRST(&w->ranks[r]->launches)->io->from;

		if (to != from)
			memcpy(reach(c, to), reach(w->ranks[r], from), io->size);
	}
}

static void gather(struct collective *c)
{
	const struct world *w = c->world;

	if (!all_gather(c))
		return;
	for (unsigned r = 0; r < w->nranks; r++)
		gather_to(w->ranks[r], STAILQ_FIRST(&w->ranks[r]->launches)->io);
	for (unsigned r = 0; r < w->nranks; r++)
		end_launch(STAILQ_FIRST(&w->ranks[r]->launches));
}

/* ---- the thread ---- */

static void begin(struct collective *c, struct launch *l)
{
	if (c->held || (l->io->after && !device_host_passed(l->io->after)))
		return;
	l->begun = true;
	l->until_ms = monotonic_ms() + collective_limit_ms(&c->options, l->io);
	if (l->io->what == COLLECTIVE_MOVES && !l->left)
		end_launch(l);
}

static void go_on(struct collective *c)
{
	struct launch *l = STAILQ_FIRST(&c->launches);

	if (l && !l->begun)
		begin(c, l);
	if (!begun(c))
		return;
	if (l->io->what == COLLECTIVE_MOVES)
		pair_all(c);
	else
		gather(c);
}

static void end_all(struct collective *c)
{
	struct launch *l;

	for (go_on(c); (l = STAILQ_FIRST(&c->launches)) && l->ended; go_on(c))
		end_first(c, 0);
}

static void look_at_clock(struct collective *c)
{
	struct launch *l = STAILQ_FIRST(&c->launches);

	if (c->about.state == -EINPROGRESS && monotonic_ms() >= c->open_until_ms)
		fail(c, -ETIMEDOUT, "not all ranks have come");
	else if (l && monotonic_ms() >= l->until_ms)
		fail(c, -ETIMEDOUT, "%s within %" PRIu64 " ms",
		     l->begun ? "a peer has not done its part"
			      : "the stream has not come there",
		     l->begun ? collective_limit_ms(&c->options, l->io) : c->options.wait_ms);
}

static uint64_t next_ms(const struct collective *c)
{
	const struct launch *l = STAILQ_FIRST(&c->launches);
	uint64_t now = monotonic_ms(), until = UINT64_MAX;

	if (l && !l->begun && !c->held)
		return EVENT_PAUSE_MS;
	if (c->about.state == -EINPROGRESS)
		until = c->open_until_ms;
	if (l)
		until = l->until_ms;
	return until > now ? until - now : 0;
}

static void wait_for_change(struct collective *c)
{
	uint64_t ms = next_ms(c);
	struct timespec until = thread_in_ms(u64_min(ms, 3600000));

	if (ms)
		pthread_cond_timedwait(&changed, &lock, &until);
}

/* Calls done without the lock. */
static void tell(struct collective *c)
{
	struct collective_io *io;

	while ((io = STAILQ_TAKE(&c->over, port.next))) {
		pthread_mutex_unlock(&lock);
		io->done(io, io->port.result);
		pthread_mutex_lock(&lock);
	}
}

static void *run(void *arg)
{
	struct collective *c = arg;

	pthread_mutex_lock(&lock);
	while (!c->stop || !STAILQ_EMPTY(&c->over)) {
		end_all(c);
		look_at_clock(c);
		if (!STAILQ_EMPTY(&c->over))
			tell(c);
		else if (!c->stop)
			wait_for_change(c);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* ---- the port ---- */

static void ready_all(struct world *w)
{
	for (unsigned r = 0; r < w->nranks; r++)
		if (w->ranks[r] && !collective_has_failed(&w->ranks[r]->about))
			w->ranks[r]->about.state = 0;
	pthread_cond_broadcast(&changed);
}

static int open_locked(struct collective *c, const struct collective_id *id)
{
	int rc = join_world(c, id);

	if (rc)
		return rc;
	rc = thread_start(&c->thread, run, c);
	if (rc)
		leave_world(c);
	else if (c->world->came == c->world->nranks)
		ready_all(c->world);
	return rc;
}

static int host_open(struct collective **out, const struct collective_options *options,
		     unsigned rank, unsigned nranks, const struct collective_id *id)
{
	struct collective_options checked = *options;
	struct collective *c;
	int rc = collective_check(&checked, rank, nranks);

	if (rc)
		return rc;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->options = checked;
	c->about = (struct collective_about){ .version = 1,
					      .rank = rank,
					      .nranks = nranks,
					      .number = checked.device ? checked.number
								       : DEVICE_NONE,
					      .state = -EINPROGRESS };
	STAILQ_INIT(&c->launches);
	STAILQ_INIT(&c->over);
	c->open_until_ms = monotonic_ms() + checked.open_ms;
	pthread_once(&once, init_once);
	pthread_mutex_lock(&lock);
	rc = open_locked(c, id);
	pthread_mutex_unlock(&lock);
	if (rc)
		free(c);
	else
		*out = c;
	return rc;
}

static void host_close(struct collective *c)
{
	pthread_mutex_lock(&lock);
	if (!STAILQ_EMPTY(&c->launches))
		fail(c, -ECANCELED, "closed");
	c->stop = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	pthread_join(c->thread, NULL);
	pthread_mutex_lock(&lock);
	leave_world(c);
	pthread_mutex_unlock(&lock);
	free(c);
}

static int host_id(struct collective *c, struct collective_id *id)
{
	pthread_mutex_lock(&lock);
	*id = c->world->id;
	pthread_mutex_unlock(&lock);
	return 0;
}

static void host_about(struct collective *c, struct collective_about *about)
{
	pthread_mutex_lock(&lock);
	*about = c->about;
	pthread_mutex_unlock(&lock);
}

static int host_state(struct collective *c)
{
	struct collective_about about;

	host_about(c, &about);
	return about.state;
}

static struct launch *new_launch(const struct collective *c, struct collective_io *io)
{
	unsigned n = io->what == COLLECTIVE_MOVES ? io->nmoves : 0;
	struct launch *l = calloc(1, sizeof(*l) + n * sizeof(l->paired[0]));

	if (!l)
		return NULL;
	l->io = io;
	l->until_ms = monotonic_ms() + c->options.wait_ms;
	for (unsigned i = 0; i < n; i++) {
		l->paired[i] = !io->moves[i].size;
		l->left += !l->paired[i];
	}
	return l;
}

static int host_launch(struct collective *c, struct collective_io *io)
{
	struct launch *l;
	int rc = collective_io_check(&device_host, &c->options, c->about.nranks, io);

	if (rc)
		return rc;
	l = new_launch(c, io);
	if (!l)
		return -ENOMEM;
	pthread_mutex_lock(&lock);
	rc = c->about.state;
	if (!rc) {
		STAILQ_INSERT_TAIL(&c->launches, l, next);
		c->about.launched++;
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&lock);
	if (rc)
		free(l);
	return rc;
}

static void host_abort(struct collective *c)
{
	pthread_mutex_lock(&lock);
	fail(c, -ECANCELED, "aborted");
	pthread_mutex_unlock(&lock);
}

static bool host_is_over(struct collective *c)
{
	bool over;

	pthread_mutex_lock(&lock);
	over = collective_has_failed(&c->about) && STAILQ_EMPTY(&c->launches) &&
	       STAILQ_EMPTY(&c->over);
	pthread_mutex_unlock(&lock);
	return over;
}

/* ---- how it fails ---- */

void collective_host_hold(struct collective *c, bool hold)
{
	pthread_mutex_lock(&lock);
	c->held = hold;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

void collective_host_break(struct collective *c)
{
	pthread_mutex_lock(&lock);
	fail(c, -EIO, "broken");
	pthread_mutex_unlock(&lock);
}

const struct collective_ops collective_host = {
	.name = "host",
	.open = host_open,
	.close = host_close,
	.id = host_id,
	.state = host_state,
	.launch = host_launch,
	.abort = host_abort,
	.is_over = host_is_over,
	.about = host_about,
};
