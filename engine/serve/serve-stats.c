/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/memory/memory.h"
#include "engine/serve/serve-stats.h"
#include "engine/serve/tier-fetch.h"
#include "engine/stats/stats.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
	/* bytes of host memory at a time: they stay in the processor's cache */
	CHUNK = 128 << 10,
	TIER_CHUNK = 4 << 20, /* bytes of one fetch from a disk or a device */
	/* bytes that a device sums at a time: then `abandoned` is looked at */
	SUMS_CHUNK = 1 << 30,
	JOBS_MAX = 64,
	JOBS_OF_PEER_MAX = JOBS_MAX / 4 * 3
};

struct stats_job {
	STAILQ_ENTRY(stats_job) link;
	uint32_t peer;
	uint64_t request; /* the newest request for it */
	struct wire_stats asked;
	bool ended;             /* under the lock of stats_server */
	_Atomic bool abandoned; /* the peer has left, or does not want the answer */
	struct wire_sums *sums; /* [count], then their bins */
	struct wire_range ranges[];
};

struct stats_server {
	struct engine *engine;
	pthread_mutex_t lock; /* guards jobs, and their `ended`; under it no lock is taken */
	pthread_cond_t changed;
	pthread_t thread;
	bool stop; /* under the lock */
	STAILQ_HEAD(, stats_job) jobs;
	uint8_t *chunk; /* CHUNK bytes, the worker's */
};

/* ---- sums of devices ---- */

enum device_what serve_stats_on_device(enum frag_dtype dtype, bool with_bins)
{
	if (dtype == FRAG_F32 && !with_bins)
		return DEVICE_SUMS_F32;
	if (dtype == FRAG_BF16 && !with_bins)
		return DEVICE_SUMS_BF16;
	return dtype == FRAG_F16 && !with_bins ? DEVICE_SUMS_F16 : DEVICE_COPY;
}

void serve_stats_add(struct stats *to, const struct device_sums *sums, uint64_t n,
		     uint64_t first)
{
	struct stats some;

	stats_init(&some, false);
	some.count = n;
	some.finite = sums->finite;
	some.nan = sums->nan;
	some.inf = sums->inf;
	some.zero = sums->zero;
	if (sums->nan)
		some.first_nan = first + sums->first_nan;
	if (sums->inf)
		some.first_inf = first + sums->first_inf;
	some.min = sums->min;
	some.max = sums->max;
	some.mean = sums->mean;
	some.deviations = sums->deviations;
	some.squares = sums->squares;
	stats_join(to, &some);
}

/* ---- the worker ---- */

/* Bytes [offset, offset + size) of a range. */
struct stats_part {
	struct stats_server *server;
	const struct stats_job *job;
	const struct wire_range *range;
	uint64_t offset, size;
	struct stats *values;  /* the part's sums are added to these */
	enum device_what what; /* of bytes on a device or NVMe: DEVICE_COPY, or sums */
	bool is_grad;
	uint64_t content; /* without a view: control_page_content of the bytes */
};

static uint64_t element_of(const struct stats_part *p)
{
	return frag_dtype_size((enum frag_dtype)p->range->dtype);
}

static void add_bytes(const struct stats_part *p, const void *bytes)
{
	stats_add(p->values, (enum frag_dtype)p->range->dtype, bytes, p->size / element_of(p),
		  p->offset / element_of(p));
}

static int add_host_part(const struct stats_part *p)
{
	struct engine *e = p->server->engine;
	const struct wire_range *r = p->range;
	uint8_t *out = p->server->chunk;
	int rc;

	if (r->view[0])
		rc = view_owner_read(&e->view_owner, &e->registry, r->view,
				     r->offset + p->offset, out, p->size);
	else
		rc = registry_read_memory(&e->registry, r->epoch, r->state,
					  r->offset + p->offset, out, p->size);
	if (!rc)
		add_bytes(p, out);
	return rc;
}

static struct wire_read read_of(const struct stats_part *p)
{
	return (struct wire_read){ .epoch = p->range->epoch,
				   .state = p->range->state,
				   .size = (uint32_t)p->size,
				   .offset = p->range->offset + p->offset,
				   .view = { p->range->view[0], p->range->view[1] } };
}

static int add_tier_part(const struct stats_part *p)
{
	const struct wire_read read = read_of(p);
	struct tier_fetch *fetched;
	int rc =
		tier_fetch_now(p->server->engine, &read, p->what, &p->job->abandoned, &fetched);

	if (rc)
		return rc;
	if (device_is_sums(p->what))
		serve_stats_add(p->values, tier_fetch_result(fetched), p->size / element_of(p),
				p->offset / element_of(p));
	else
		add_bytes(p, tier_fetch_result(fetched));
	tier_fetch_free(fetched);
	return 0;
}

/* Returns true unless the present bytes are being changed, or were since p->content. */
static bool is_unchanged(const struct stats_part *p)
{
	const struct registry *r = &p->server->engine->registry;

	return p->range->view[0] ||
	       (p->content && p->content == control_page_content(r->control, p->is_grad));
}

/* Adds all parts of the range, of at_once bytes each. */
static int add_parts(struct stats_part *p, uint64_t at_once,
		     int (*add)(const struct stats_part *p))
{
	int rc = 0;

	for (p->offset = 0; p->offset < p->range->size && !rc; p->offset += p->size) {
		p->size = u64_min(at_once, p->range->size - p->offset);
		if (atomic_load_explicit(&p->job->abandoned, memory_order_relaxed))
			return -ECANCELED;
		rc = add(p);
		/* the control page is read after the bytes, as by a one-sided read */
		if (!rc && !is_unchanged(p))
			rc = -EAGAIN;
	}
	return rc;
}

/* Adds the sums that the device makes, or, where it makes none, sums of fetched bytes. */
static int add_tier_range(struct stats_part *p)
{
	int rc = -EOPNOTSUPP;

	p->what = serve_stats_on_device((enum frag_dtype)p->range->dtype, p->job->asked.bins);
	if (device_is_sums(p->what))
		rc = add_parts(p, SUMS_CHUNK, add_tier_part);
	if (rc == -EOPNOTSUPP || rc == -ENOSYS) {
		stats_init(p->values, p->job->asked.bins);
		p->what = DEVICE_COPY;
		rc = add_parts(p, TIER_CHUNK, add_tier_part);
	}
	return rc;
}

/* Adds a range.
 * -EAGAIN: the present bytes are being changed, or were meanwhile.
 * Errors of view_owner_read, registry_read_memory and tier_fetch_now.
 */
static int add_range(struct stats_server *s, const struct stats_job *job,
		     const struct wire_range *r, struct stats *values, uint64_t *content)
{
	struct registry *registry = &s->engine->registry;
	struct stats_part p = { .server = s, .job = job, .range = r, .values = values };
	const struct wire_read read = read_of(&p);

	if (!r->view[0]) {
		p.is_grad = registry_is_grad(registry, r->state);
		p.content = control_page_content(registry->control, p.is_grad);
	}
	*content = p.content;
	if (!is_unchanged(&p))
		return -EAGAIN;
	return tier_read_is_due(s->engine, &read) ? add_tier_range(&p)
						  : add_parts(&p, CHUNK, add_host_part);
}

static void run_job(struct stats_server *s, struct stats_job *job)
{
	uint64_t(*bins)[STATS_BINS] = (void *)(job->sums + job->asked.count);
	struct stats values;
	int rc = 0;

	for (uint32_t i = 0; i < job->asked.count; i++) {
		uint64_t content = 0;

		stats_init(&values, job->asked.bins);
		/* a silent disk is not waited for again: the other ranges get its status */
		if (rc != -ECANCELED && rc != -ETIMEDOUT)
			rc = add_range(s, job, &job->ranges[i], &values, &content);
		stats_to_wire(&job->sums[i], &values);
		job->sums[i].status = rc;
		job->sums[i].content = content;
		if (job->asked.bins)
			memcpy(bins[i], values.bins, sizeof(values.bins));
	}
}

static struct stats_job *next_job(struct stats_server *s)
{
	struct stats_job *job;

	STAILQ_FOREACH (job, &s->jobs, link)
		if (!job->ended)
			return job;
	return NULL;
}

static void *work(void *arg)
{
	struct stats_server *s = arg;
	struct stats_job *job;

	LOCKED(&s->lock);
	while (!s->stop) {
		job = next_job(s);
		if (!job) {
			pthread_cond_wait(&s->changed, &s->lock);
			continue;
		}
		/* without the lock: only ended jobs are freed, and stop abandons this one */
		pthread_mutex_unlock(&s->lock);
		run_job(s, job);
		pthread_mutex_lock(&s->lock);
		job->ended = true;
		node_wake(s->engine);
	}
	return NULL;
}

/* ---- engine thread ---- */

static void server_free(struct stats_server *s)
{
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s->chunk);
	free(s);
}

static int need_server(struct engine *e)
{
	struct stats_server *s;
	int rc;

	if (e->serve.stats)
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->engine = e;
	s->chunk = memory_for_copies(CHUNK);
	STAILQ_INIT(&s->jobs);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	rc = s->chunk ? thread_start(&s->thread, work, s) : -ENOMEM;
	if (rc)
		server_free(s);
	else
		e->serve.stats = s;
	return rc;
}

static int check(const struct wire_stats *asked, const struct wire_range *ranges,
		 size_t tail_size)
{
	if (!asked->count || asked->count > WIRE_STATS_RANGES || asked->bins > 1 ||
	    (asked->bins && asked->count > 1) || tail_size != asked->count * sizeof(*ranges))
		return -EINVAL;
	for (uint32_t i = 0; i < asked->count; i++) {
		struct wire_range r;

		memcpy(&r, &ranges[i], sizeof(r));
		if (!stats_has((enum frag_dtype)r.dtype) ||
		    r.size % frag_dtype_size((enum frag_dtype)r.dtype))
			return -EINVAL;
		if (!r.view[0] && !r.epoch)
			return -ESTALE;
	}
	return 0;
}

static struct stats_job *job_new(uint32_t peer, uint64_t request,
				 const struct wire_stats *asked, const void *ranges)
{
	size_t bins = asked->bins ? sizeof(uint64_t) * STATS_BINS : 0;
	struct stats_job *job = calloc(1, sizeof(*job) + asked->count * sizeof(job->ranges[0]));

	if (!job)
		return NULL;
	job->sums = calloc(asked->count, sizeof(*job->sums) + bins);
	if (!job->sums) {
		free(job);
		return NULL;
	}
	job->peer = peer;
	job->request = request;
	job->asked = *asked;
	memcpy(job->ranges, ranges, asked->count * sizeof(job->ranges[0]));
	return job;
}

static void job_free(struct stats_job *job)
{
	free(job->sums);
	free(job);
}

/* Under the lock.  Returns true if the request is a repetition of a queued one.  Else *full
 * says whether the queue takes no more of this peer.
 */
static bool take_again(struct stats_server *s, uint32_t peer, uint64_t request, uint64_t id,
		       bool *full)
{
	unsigned all = 0, own = 0;
	struct stats_job *job;

	STAILQ_FOREACH (job, &s->jobs, link) {
		all++;
		own += job->peer == peer;
		if (job->peer == peer && job->asked.id == id && !job->abandoned) {
			job->request = request;
			return true;
		}
	}
	*full = all >= JOBS_MAX || own >= JOBS_OF_PEER_MAX;
	return false;
}

static int queue(struct engine *e, uint32_t peer, uint64_t request,
		 const struct wire_stats *asked, const void *ranges)
{
	struct stats_server *s = e->serve.stats;
	struct stats_job *job;
	bool full;

	LOCKED(&s->lock);
	if (take_again(s, peer, request, asked->id, &full))
		return 0;
	if (full)
		return -EAGAIN;
	job = job_new(peer, request, asked, ranges);
	if (!job)
		return -ENOMEM;
	STAILQ_INSERT_TAIL(&s->jobs, job, link);
	pthread_cond_signal(&s->changed);
	return 0;
}

static void abandon(struct stats_server *s, uint32_t peer, uint64_t id)
{
	struct stats_job *job;

	LOCKED(&s->lock);
	STAILQ_FOREACH (job, &s->jobs, link)
		if (job->peer == peer && job->asked.id == id)
			job->abandoned = true;
}

void serve_stats(struct engine *e, uint32_t peer, uint64_t request, const void *body,
		 const void *tail, size_t tail_size)
{
	struct wire_stats asked;
	int rc;

	assert(node_is_engine_thread(e));
	memcpy(&asked, body, sizeof(asked));
	if (!asked.count) {
		if (e->serve.stats)
			abandon(e->serve.stats, peer, asked.id);
		node_ack(e, peer, request, 0);
		return;
	}
	rc = check(&asked, tail, tail_size);
	if (!rc)
		rc = need_server(e);
	if (!rc)
		rc = queue(e, peer, request, &asked, tail);
	if (rc)
		node_ack(e, peer, request, rc);
}

/* Takes out and returns a job that has ended; NULL: none. */
static struct stats_job *take_ended(struct stats_server *s)
{
	struct stats_job *job;

	LOCKED(&s->lock);
	STAILQ_FOREACH (job, &s->jobs, link)
		if (job->ended)
			break;
	if (job)
		STAILQ_REMOVE(&s->jobs, job, stats_job, link);
	return job;
}

static void answer(struct engine *e, const struct stats_job *job)
{
	struct wire_summed body = { job->asked.count, job->asked.bins };
	size_t bins = job->asked.bins ? sizeof(uint64_t) * STATS_BINS : 0;

	/* an answer that gets lost is asked for again, and made anew */
	node_send(e, job->peer, WIRE_SUMS, job->request, &body, job->sums,
		  body.count * (sizeof(*job->sums) + bins));
}

void serve_stats_turn(struct engine *e)
{
	struct stats_job *job;

	assert(node_is_engine_thread(e));
	while (e->serve.stats && (job = take_ended(e->serve.stats))) {
		if (!job->abandoned)
			answer(e, job);
		job_free(job);
	}
}

void serve_stats_gone(struct engine *e, uint32_t peer)
{
	struct stats_job *job;

	if (!e->serve.stats)
		return;
	LOCKED(&e->serve.stats->lock);
	STAILQ_FOREACH (job, &e->serve.stats->jobs, link)
		if (job->peer == peer)
			job->abandoned = true;
}

void serve_stats_free(struct engine *e)
{
	struct stats_server *s = e->serve.stats;
	struct stats_job *job;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	STAILQ_FOREACH (job, &s->jobs, link)
		job->abandoned = true;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	while ((job = STAILQ_FIRST(&s->jobs))) {
		STAILQ_REMOVE_HEAD(&s->jobs, link);
		job_free(job);
	}
	server_free(s);
	e->serve.stats = NULL;
}
