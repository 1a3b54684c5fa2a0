/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/node/peers.h"
#include "engine/rank/devices.h"
#include "engine/rounds/communicator-internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* RETRY_MS, doubled at each failure: until another one is made.  FORM is repeated after
 * CHECK_MS, or ASK_MS if a rank still disbands an older one.  DISBAND_MS: the longest wait for
 * the members' answers.
 */
enum { RETRY_MS = 50, RETRY_MAX_MS = 60000, ASK_MS = 200, CHECK_MS = 1000, DISBAND_MS = 5000 };
enum { WAIT_MS = 100 }; /* between two looks of communicator_wait */

/* The state of a rank that was asked; 0: it is silent, or came later. */
enum { HAS_DECLINED = 1, TAKES_PART, HAS_IT };

int communicator_use(struct engine *e, const struct collective_ops *ops,
		     const struct collective_options *options)
{
	struct communicator *c = calloc(1, sizeof(*c));

	assert(thread_may_be_trainer());
	if (!c)
		return -ENOMEM;
	c->ops = ops;
	c->options = *options;
	pthread_mutex_init(&c->lock, NULL);
	e->rounds.communicator = c;
	return 0;
}

static void set_collective(struct communicator *c, struct collective *collective,
			   uint64_t number)
{
	pthread_mutex_lock(&c->lock);
	c->c = collective;
	c->number = number;
	pthread_mutex_unlock(&c->lock);
}

static void close_collective(struct communicator *c)
{
	struct collective *collective = c->c;

	c->left = c->number;
	set_collective(c, NULL, 0);
	if (collective)
		c->ops->close(collective);
}

static void forget_members(struct communicator *c)
{
	free(c->ranks);
	free(c->answers);
	c->ranks = NULL;
	c->answers = NULL;
	c->nranks = 0;
}

void communicator_free(struct engine *e)
{
	struct communicator *c = e->rounds.communicator;

	if (!c)
		return;
	close_collective(c);
	forget_members(c);
	pthread_mutex_destroy(&c->lock);
	free(c);
	e->rounds.communicator = NULL;
}

/* ---- disbanding ---- */

static bool on_disbanded(struct engine *e, void *owner, uint64_t rank,
			 const struct answer *answer)
{
	struct communicator *c = owner;

	c->outstanding--;
	return false;
}

static void tell_members(struct engine *e, struct communicator *c, const char *why)
{
	struct wire_disband body = { .number = c->number };

	snprintf(body.why, sizeof(body.why), "rank %u: %s", e->rank, why);
	for (uint32_t i = 0; i < c->nranks; i++)
		if (c->ranks[i] != e->rank)
			c->outstanding += !peers_call(e, c->ranks[i], WIRE_DISBAND, &body, NULL,
						      0, on_disbanded, c, c->ranks[i]);
}

static const char has_left[] = "has left";

static bool has_lost_member(struct engine *e, const struct communicator *c, char why[64])
{
	for (uint32_t i = 0; i < c->nranks; i++) {
		if (c->ranks[i] == e->rank || peer_is_live(&e->peers[c->ranks[i]]))
			continue;
		snprintf(why, 64, "rank %u %s", c->ranks[i],
			 e->peers[c->ranks[i]].leaving ? has_left : "was lost");
		return true;
	}
	return false;
}

/* The end of a job is logged without a warning, also by a rank that hears of it from another
 * one that has heard of it before.
 */
static bool has_leaving_member(const struct engine *e, const struct communicator *c,
			       const char *why)
{
	bool leaving = e->job.is_leaving || strstr(why, has_left);

	for (uint32_t i = 0; i < c->nranks; i++)
		leaving |= e->peers[c->ranks[i]].leaving;
	return leaving;
}

/* Aborts the collective.  turn_disbanding closes it when all launched here is over and the
 * members that this rank tells have answered: until then their devices may reach this rank's
 * memory.
 */
static void disband(struct engine *e, struct communicator *c, const char *why)
{
	rpc_forget(e, c);
	c->outstanding = 0;
	if (c->c)
		c->ops->abort(c->c);
	c->state = COMMUNICATOR_DISBANDING;
	c->since_ms = monotonic_ms();
	c->failed++;
	c->failures++;
	snprintf(c->why, sizeof(c->why), "%s", why);
	log_line(has_leaving_member(e, c, why) ? LOG_INFO : LOG_WARN,
		 "ranks' devices are not connected any more, bytes go by the host: %s", why);
}

void communicator_fail(struct engine *e, uint64_t number, const char *why)
{
	struct communicator *c = e->rounds.communicator;

	if (!c || !number || c->number != number || c->state < COMMUNICATOR_OPENING ||
	    c->state == COMMUNICATOR_DISBANDING)
		return;
	disband(e, c, why);
	tell_members(e, c, why);
}

static uint64_t pause_of(const struct communicator *c)
{
	return u64_min((uint64_t)RETRY_MS << u64_min(c->failures, 10), RETRY_MAX_MS);
}

static void be_none(struct engine *e, struct communicator *c, uint64_t now)
{
	forget_members(c);
	c->state = COMMUNICATOR_NONE;
	c->retry_ms = now + pause_of(c);
}

static void turn_disbanding(struct engine *e, struct communicator *c, uint64_t now)
{
	if (atomic_load(&c->under_way) || (c->outstanding && now < c->since_ms + DISBAND_MS) ||
	    (c->c && !c->ops->is_over(c->c)))
		return;
	rpc_forget(e, c);
	c->outstanding = 0;
	close_collective(c);
	be_none(e, c, now);
}

/* ---- inviting and forming ---- */

static bool on_invited(struct engine *e, void *owner, uint64_t rank,
		       const struct answer *answer)
{
	struct communicator *c = owner;

	c->outstanding--;
	if (answer->type) /* 0: the rank is lost, or the question is */
		c->answers[rank] = answer->status ? HAS_DECLINED : TAKES_PART;
	if (answer->status == -EAGAIN) /* the question got lost */
		c->outstanding += !peers_call(e, (uint32_t)rank, WIRE_INVITE, NULL, NULL, 0,
					      on_invited, c, rank);
	return false;
}

static void invite(struct engine *e, struct communicator *c, uint64_t now)
{
	c->answers = calloc(e->world, sizeof(*c->answers));
	c->ranks = calloc(e->world, sizeof(*c->ranks));
	if (!c->answers || !c->ranks) {
		be_none(e, c, now);
		return;
	}
	c->state = COMMUNICATOR_ASKING;
	c->membership = e->job.membership;
	c->answers[e->rank] = TAKES_PART;
	for (uint32_t rank = 0; rank < e->world; rank++)
		if (rank != e->rank && peer_is_live(&e->peers[rank]))
			c->outstanding += !peers_call(e, rank, WIRE_INVITE, NULL, NULL, 0,
						      on_invited, c, rank);
}

static void count_members(struct engine *e, struct communicator *c)
{
	size_t used = 0;

	c->without[0] = '\0';
	for (uint32_t rank = 0; rank < e->world; rank++)
		if (c->answers[rank] == TAKES_PART)
			c->ranks[c->nranks++] = rank;
		else if (used < sizeof(c->without))
			used += (size_t)snprintf(c->without + used, sizeof(c->without) - used,
						 " %u", rank);
}

static void open_first(struct engine *e, struct communicator *c, uint64_t now)
{
	struct collective *collective;
	int rc = -ENOENT;

	count_members(e, c);
	c->again_ms = now;
	if (c->nranks > 1) {
		rc = c->ops->open(&collective, &c->options, 0, c->nranks, NULL);
		if (rc)
			snprintf(c->why, sizeof(c->why), "%s: %s", c->ops->name, strerror(-rc));
	}
	if (rc) {
		c->failures++;
		be_none(e, c, now);
		return;
	}
	set_collective(c, collective, e->job.engine_id + ++c->newest);
	c->state = COMMUNICATOR_OPENING;
	c->since_ms = now;
}

static bool on_formed(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct communicator *c = owner;
	char why[64];

	c->outstanding--;
	if (answer->status == -EAGAIN) { /* the rank still disbands an older one */
		c->again_ms = monotonic_ms() + ASK_MS;
	} else if (!answer->status) {
		c->answers[rank] = HAS_IT;
	} else {
		snprintf(why, sizeof(why), "rank %u is not in it: %s", (uint32_t)rank,
			 strerror(-answer->status));
		communicator_fail(e, c->number, why);
	}
	return false;
}

static int form(struct engine *e, struct communicator *c, uint32_t rank,
		const struct collective_id *id)
{
	struct wire_form body = { .number = c->number,
				  .count = c->nranks,
				  .made = c->answers[rank] == HAS_IT };

	memcpy(body.id, id->bytes, sizeof(body.id));
	return peers_call(e, rank, WIRE_FORM, &body, c->ranks, c->nranks * sizeof(*c->ranks),
			  on_formed, c, rank);
}

/* Sends FORM every CHECK_MS, also to members that have joined: a rank that was not ready joins
 * then, and a rank whose communicator has failed unheard answers -ENOENT.
 */
static void tell_id(struct engine *e, struct communicator *c, uint64_t now)
{
	struct collective_id id;

	if (now < c->again_ms || c->outstanding || c->ops->id(c->c, &id))
		return;
	c->again_ms = now + CHECK_MS;
	for (uint32_t i = 0; i < c->nranks; i++)
		if (c->ranks[i] != e->rank)
			c->outstanding += !form(e, c, c->ranks[i], &id);
}

/* Returns true if a rank has come since the members were asked: a new process, or one that was
 * silent then.
 */
static bool has_come(struct engine *e, struct communicator *c, char why[64])
{
	bool came = c->answers && c->membership != e->job.membership;

	for (uint32_t rank = 0; c->answers && rank < e->world && !came; rank++)
		came = !c->answers[rank] && peer_is_live(&e->peers[rank]);
	if (!came)
		return false;
	c->membership = e->job.membership;
	snprintf(why, 64, "the job's ranks are others");
	return true;
}

static void watch(struct engine *e, struct communicator *c)
{
	int rc = c->ops->state(c->c);
	struct collective_about about;
	char why[64];

	if (has_lost_member(e, c, why) || has_come(e, c, why)) {
		communicator_fail(e, c->number, why);
	} else if (rc && rc != -EINPROGRESS) {
		c->ops->about(c->c, &about);
		communicator_fail(e, c->number, *about.error ? about.error : strerror(-rc));
	} else if (!rc && c->state == COMMUNICATOR_OPENING) {
		c->state = COMMUNICATOR_UP;
		c->failures = 0;
		c->made++;
		log_info("%u ranks' devices are connected by %s", c->nranks, c->ops->name);
	}
}

void communicator_turn(struct engine *e, uint64_t now)
{
	struct communicator *c = e->rounds.communicator;

	assert(node_is_engine_thread(e));
	if (!c || !e->job.ready)
		return;
	if (atomic_exchange(&c->news, false))
		pthread_cond_broadcast(&e->changed);
	communicator_fail(e, atomic_exchange(&c->broken, 0),
			  "a rank could not launch its part");
	if (c->state == COMMUNICATOR_NONE && now >= c->retry_ms && e->world > 1 &&
	    peers_first_live(e) == e->rank)
		invite(e, c, now);
	if (c->state == COMMUNICATOR_ASKING && !c->outstanding)
		open_first(e, c, now);
	if (c->state == COMMUNICATOR_OPENING || c->state == COMMUNICATOR_UP)
		watch(e, c);
	if ((c->state == COMMUNICATOR_OPENING || c->state == COMMUNICATOR_UP) && c->answers)
		tell_id(e, c, now);
	if (c->state == COMMUNICATOR_DISBANDING)
		turn_disbanding(e, c, now);
}

/* ---- asked by others ---- */

static int index_in(const uint32_t *ranks, uint32_t n, uint32_t rank)
{
	for (uint32_t i = 0; i < n; i++)
		if (ranks[i] == rank)
			return (int)i;
	return -ENOENT;
}

static int take_members(struct engine *e, struct communicator *c, const struct wire_form *form,
			const void *tail, size_t tail_size)
{
	if (form->count < 2 || form->count > e->world ||
	    tail_size != form->count * sizeof(*c->ranks))
		return -EINVAL;
	c->ranks = malloc(tail_size);
	if (!c->ranks)
		return -ENOMEM;
	memcpy(c->ranks, tail, tail_size);
	c->nranks = form->count;
	for (uint32_t i = 0; i < c->nranks; i++)
		if (c->ranks[i] >= e->world)
			return -EINVAL;
	return index_in(c->ranks, c->nranks, e->rank);
}

static int join(struct engine *e, struct communicator *c, const struct wire_form *form,
		const void *tail, size_t tail_size)
{
	struct collective *collective;
	struct collective_id id;
	int member, rc;

	if (c->number == form->number && c->state != COMMUNICATOR_DISBANDING)
		return 0; /* FORM is repeated */
	if (form->made || form->number == c->left)
		return -ENOENT; /* this rank had joined it, and has left: an id is used once */
	if (c->state == COMMUNICATOR_OPENING || c->state == COMMUNICATOR_UP)
		disband(e, c, "another one is made");
	if (c->state == COMMUNICATOR_DISBANDING)
		return -EAGAIN;
	if (c->state == COMMUNICATOR_ASKING)
		return -EBUSY; /* this rank forms one as the lowest live rank */
	member = take_members(e, c, form, tail, tail_size);
	memcpy(id.bytes, form->id, sizeof(id.bytes));
	rc = member < 0
		     ? member
		     : c->ops->open(&collective, &c->options, (unsigned)member, c->nranks, &id);
	if (rc) {
		forget_members(c);
		return rc;
	}
	set_collective(c, collective, form->number);
	c->state = COMMUNICATOR_OPENING;
	return 0;
}

static void serve_disband(struct engine *e, struct communicator *c, const void *body)
{
	struct wire_disband told;

	memcpy(&told, body, sizeof(told));
	if (told.number == c->number && wire_text_ok(told.why, sizeof(told.why)) &&
	    (c->state == COMMUNICATOR_OPENING || c->state == COMMUNICATOR_UP))
		disband(e, c, told.why);
}

void communicator_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
			const void *body, const void *tail, size_t tail_size)
{
	struct communicator *c = e->rounds.communicator;
	struct wire_form form;
	int rc = c ? 0 : -ENODEV;

	if (c && header->type == WIRE_DISBAND) {
		serve_disband(e, c, body);
	} else if (c && header->type == WIRE_FORM) {
		memcpy(&form, body, sizeof(form));
		rc = join(e, c, &form, tail, tail_size);
	}
	node_ack(e, peer, header->request, rc);
}

/* ---- use ---- */

uint64_t communicator_number(const struct engine *e)
{
	const struct communicator *c = e->rounds.communicator;

	return c && c->state == COMMUNICATOR_UP ? c->number : 0;
}

int communicator_member(const struct engine *e, uint32_t rank)
{
	const struct communicator *c = e->rounds.communicator;

	return c ? index_in(c->ranks, c->nranks, rank) : -ENOENT;
}

uint32_t communicator_ranks(const struct engine *e)
{
	return e->rounds.communicator ? e->rounds.communicator->nranks : 0;
}

bool communicator_reaches(const struct engine *e, enum state_tier tier)
{
	const struct communicator *c = e->rounds.communicator;

	return c && tier == (c->options.device ? STATE_DEVICE : STATE_HOST);
}

bool communicator_sends(const struct engine *e, uint32_t rank, uint32_t row)
{
	return communicator_member(e, rank) >= 0 &&
	       communicator_reaches(e, e->peers[rank].states->rows[row].tier);
}

bool communicator_reaches_memory(const struct engine *e, const void *memory, uint64_t size)
{
	const struct communicator *c = e->rounds.communicator;
	const uint8_t *last = (const uint8_t *)memory + size - 1;
	int first_number, last_number;

	if (!c || !c->options.device)
		return c;
	return size && !devices_where(e->registry.devices, memory, &first_number) &&
	       !devices_where(e->registry.devices, last, &last_number) &&
	       first_number == c->options.number && last_number == first_number;
}

void communicator_break(struct engine *e, uint64_t number)
{
	atomic_store(&e->rounds.communicator->broken, number);
	node_wake(e);
}

static void on_launched(struct collective_io *collective_io, int result)
{
	struct communicator_io *io = container_of(collective_io, struct communicator_io, io);
	struct engine *e = io->engine;

	atomic_store(&io->result, result); /* from here on io is its owner's */
	atomic_store(&e->rounds.communicator->news, true);
	node_wake(e);
	/* last: while it counts, turn_disbanding does not close the collective */
	atomic_fetch_sub(&e->rounds.communicator->under_way, 1);
}

int communicator_launch(struct engine *e, uint64_t number, struct communicator_io *io)
{
	struct communicator *c = e->rounds.communicator;
	int rc = -EIO;

	assert(thread_may_be_trainer());
	io->engine = e;
	io->io.done = on_launched;
	atomic_store(&io->result, -EINPROGRESS);
	if (!c)
		return rc;
	atomic_fetch_add(&c->under_way, 1);
	pthread_mutex_lock(&c->lock);
	if (c->c && c->number == number)
		rc = c->ops->launch(c->c, &io->io);
	pthread_mutex_unlock(&c->lock);
	if (rc)
		atomic_fetch_sub(&c->under_way, 1);
	return rc;
}

int communicator_wait(struct engine *e, const struct communicator_io *io)
{
	int rc;

	while ((rc = atomic_load(&io->result)) == -EINPROGRESS)
		node_wait(e, monotonic_ms() + WAIT_MS);
	return rc;
}

/* ---- words ---- */

bool communicator_ticks(const struct engine *e)
{
	const struct communicator *c = e->rounds.communicator;

	return c && (c->state == COMMUNICATOR_ASKING || c->state == COMMUNICATOR_OPENING ||
		     c->state == COMMUNICATOR_DISBANDING || atomic_load(&c->under_way));
}
