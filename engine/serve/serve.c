/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/catalog/condition.h"
#include "engine/commit/coordinator.h"
#include "engine/commit/edit-report.h"
#include "engine/commit/termination.h"
#include "engine/job/barrier.h"
#include "engine/job/join.h"
#include "engine/job/leave.h"
#include "engine/job/rendezvous.h"
#include "engine/memory/memory.h"
#include "engine/node/fabric.h"
#include "engine/node/peers.h"
#include "engine/node/writer-memory.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/landing.h"
#include "engine/rounds/rounds.h"
#include "engine/serve/checks.h"
#include "engine/serve/readers.h"
#include "engine/serve/serve-figures.h"
#include "engine/serve/serve-place.h"
#include "engine/serve/serve-pending.h"
#include "engine/serve/serve-stats.h"
#include "engine/serve/serve-texts.h"
#include "engine/serve/serve.h"
#include "engine/serve/watch-server.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	/* buffers of views and edits that are unused for so long are freed */
	ROOM_IDLE_MS = 10000,
	STEPPING_MS = 10000, /* without a step for so long nothing is copied ahead */
};

struct served_request {
	uint32_t peer;
	const struct wire_header *header;
	const void *body, *tail;
	size_t tail_size;
};

static void serve_table(struct engine *e, uint32_t peer, uint64_t request, const void *body)
{
	CLEANUP(free) struct wire_entry *rows = NULL;
	struct wire_page page;
	struct wire_table t = { .membership = e->job.membership, .total = e->world };

	memcpy(&page, body, sizeof(page));
	if (!e->job.ready) { /* a rank 0 that has come back does not know all ranks yet */
		node_ack(e, peer, request, -EAGAIN);
		return;
	}
	if (page.first >= e->world) {
		node_ack(e, peer, request, -EINVAL);
		return;
	}
	t.first = (uint32_t)page.first;
	t.count = (uint32_t)u64_min(WIRE_TABLE_ROWS, e->world - page.first);
	rows = malloc(t.count * sizeof(*rows));
	if (!rows) {
		node_ack(e, peer, request, -ENOMEM);
		return;
	}
	for (uint32_t i = 0; i < t.count; i++) {
		rows[i] = e->peers[t.first + i].entry;
		rows[i].rank = t.first + i;
	}
	fabric_reply(e, peer, WIRE_TABLE, request, &t, rows, t.count * sizeof(rows[0]));
}

static void serve_catalog(struct engine *e, uint32_t peer, uint64_t request, const void *body)
{
	struct wire_page page;
	struct wire_catalog part = { 0 };
	int rc = 0;

	memcpy(&page, body, sizeof(page));
	if (!e->job.ready)
		rc = -EAGAIN;
	else if (page.first >= e->catalog->encoded_size)
		rc = -EINVAL;
	else if (!e->job.catalog_bytes.size)
		rc = catalog_encode(e->catalog, &e->job.catalog_bytes);
	if (rc) {
		node_ack(e, peer, request, rc);
		return;
	}
	part.hash = e->catalog->hash;
	part.total = e->job.catalog_bytes.size;
	part.offset = page.first;
	part.size = u64_min(WIRE_CHUNK, part.total - part.offset);
	fabric_reply(e, peer, WIRE_CATALOG, request, &part,
		     e->job.catalog_bytes.data + part.offset, part.size);
}

static int encode_states(struct engine *e, struct wire_writer *w)
{
	int rc;

	pthread_mutex_lock(&e->registry.lock);
	rc = states_encode(&e->registry.states, e->job.map_params, e->job.map_groups, w);
	pthread_mutex_unlock(&e->registry.lock);
	return rc;
}

void serve_tell_asked(struct engine *e)
{
	uint64_t one = 1;

	if (!e->serve.asked_fd)
		return;
	if (write(e->serve.asked_fd, &one, sizeof(one)) < 0)
		log_debug("nobody hears that states were asked for: %s", strerror(errno));
	close(e->serve.asked_fd);
	e->serve.asked_fd = 0;
}

/* Notes that somebody reads this rank's states.  A rank may read again at any time, and counts
 * for ever.  An observer pings as long as it lives, and may end without a word: it counts
 * until it was silent for the timeout.
 */
static void note_asked(struct engine *e, const struct wire_header *header)
{
	uint64_t until =
		header->rank == WIRE_OBSERVER ? monotonic_ms() + e->timeout_ms : UINT64_MAX;

	e->serve.asked_until_ms = u64_max(e->serve.asked_until_ms, until);
	atomic_store_explicit(&e->serve.asked, true, memory_order_relaxed);
	serve_tell_asked(e);
}

static bool names_this_job(const struct engine *e, const struct wire_header *header)
{
	return header->job == e->job.hash && header->incarnation == e->job.incarnation;
}

/* Notes that an observer lives, if one has asked for states.  HELLOs of a mount whose own job
 * has ended, sent for ever to whoever has that address now, do not count.
 */
static void note_observer(struct engine *e, const struct wire_header *header)
{
	if (header->rank == WIRE_OBSERVER && e->serve.asked_until_ms &&
	    names_this_job(e, header))
		e->serve.asked_until_ms =
			u64_max(e->serve.asked_until_ms, monotonic_ms() + e->timeout_ms);
}

static void forget_asked(struct engine *e, uint64_t now)
{
	if (now < e->serve.asked_until_ms || !e->serve.asked_until_ms)
		return;
	e->serve.asked_until_ms = 0;
	atomic_store_explicit(&e->serve.asked, false, memory_order_relaxed);
}

static void serve_states(struct engine *e, uint32_t peer, const struct wire_header *header,
			 const void *body)
{
	struct wire_writer w = { 0 };
	struct wire_states part = { 0 };
	struct wire_page page;
	/* the first question wakes frag_asked's fd: the trainer shows its gradients by the next
	 * try
	 */
	bool early = e->serve.asked_fd || !e->job.ready;
	int rc = early ? -EAGAIN : encode_states(e, &w);

	memcpy(&page, body, sizeof(page));
	note_asked(e, header);
	if (!rc && page.first >= w.size)
		rc = -EINVAL;
	if (rc) {
		node_ack(e, peer, header->request, rc);
	} else {
		memcpy(&part.epoch, w.data, sizeof(part.epoch));
		part.total = w.size;
		part.offset = page.first;
		part.size = u64_min(WIRE_CHUNK, w.size - page.first);
		fabric_reply(e, peer, WIRE_STATES, header->request, &part, w.data + part.offset,
			     part.size);
	}
	free(w.data);
}

static int open_view(struct engine *e, uint32_t peer, const struct wire_view_open *open,
		     const void *tail, size_t tail_size, struct view *view)
{
	CLEANUP(free) struct view_run *runs = NULL;
	struct wire_view_run run;

	if (!open->epoch)
		return -ESTALE;
	if (!open->count || tail_size != open->count * sizeof(run))
		return -EINVAL;
	runs = calloc(open->count, sizeof(*runs));
	if (!runs)
		return -ENOMEM;
	for (uint32_t i = 0; i < open->count; i++) {
		memcpy(&run, (const char *)tail + i * sizeof(run), sizeof(run));
		runs[i] = (struct view_run){ .row = run.state,
					     .offset = run.offset,
					     .size = run.size };
	}
	return view_owner_open(
		&e->view_owner, &e->registry,
		&(struct view_request){ .id = { open->view[0], open->view[1] },
					.peer = peer,
					.epoch = open->epoch,
					.is_grad = registry_is_grad(&e->registry, runs->row),
					.want = open->want,
					.runs = runs,
					.nruns = open->count },
		monotonic_ms(), view);
}

static void serve_view_open(struct engine *e, uint32_t peer, uint64_t request, const void *body,
			    const void *tail, size_t tail_size)
{
	struct wire_view_open open;
	struct wire_view reply = { 0 };
	struct view view;

	memcpy(&open, body, sizeof(open));
	reply.status = open_view(e, peer, &open, tail, tail_size, &view);
	if (!reply.status) {
		reply.state = view.state;
		reply.generation = view.generation;
		reply.buffer = view.buffer ? (uintptr_t)view.buffer->bytes : 0;
	}
	node_send(e, peer, WIRE_VIEW, request, &reply, NULL, 0);
}

static int read_bytes(struct engine *e, const struct wire_read *read, void *bytes)
{
	int rc;

	if (read->view[0])
		rc = view_owner_read(&e->view_owner, &e->registry, read->view, read->offset,
				     bytes, read->size);
	else
		rc = registry_read_memory(&e->registry, read->epoch, read->state, read->offset,
					  bytes, read->size);
	/* the row has moved since serve_pending_start looked: the reader asks again */
	return rc == -EREMOTE ? -EAGAIN : rc;
}

static void serve_read(struct engine *e, uint32_t peer, uint64_t request, const void *body)
{
	struct wire_read read;
	int status = -EINVAL;

	memcpy(&read, body, sizeof(read));
	if (!read.view[0] && !read.epoch) {
		status = -ESTALE;
	} else if (serve_pending_start(e, peer, request, &read)) {
		return; /* bytes on NVMe or a device: answered when they have come */
	} else if (read.size <= WIRE_CHUNK) {
		if (!e->serve.state->chunk)
			e->serve.state->chunk = memory_for_copies(WIRE_CHUNK);
		status = e->serve.state->chunk ? read_bytes(e, &read, e->serve.state->chunk)
					       : -ENOMEM;
	}
	serve_pending_data(e, peer, request, status, e->serve.state->chunk, read.size);
}

static int check_stage(struct engine *e, const struct wire_stage *stage, size_t tail_size)
{
	bool is_copied = stage->from.pid != 0;

	if (tail_size != (is_copied ? 0 : stage->size) || !stage->size ||
	    stage->size > (is_copied ? WIRE_COPIED_MAX : WIRE_CHUNK))
		return -EINVAL;
	return registry_check(&e->registry, stage->epoch, stage->state, stage->offset,
			      stage->size);
}

static int stage_bytes(struct engine *e, uint32_t peer, const struct wire_stage *stage,
		       const void *tail)
{
	struct edit_piece *pieces[WIRE_COPIED_MAX / WIRE_CHUNK];
	struct iovec data[ARRAY_SIZE(pieces)];
	unsigned n = 0;
	int rc = 0;

	for (uint32_t done = 0, size; done < stage->size; done += size) {
		size = (uint32_t)u64_min(WIRE_CHUNK, stage->size - done);
		pieces[n] = participant_piece(&e->participant, stage->epoch, stage->state,
					      stage->offset + done, size);
		if (!pieces[n]) {
			rc = -ENOMEM;
			break;
		}
		data[n] = (struct iovec){ pieces[n]->data, size };
		n++;
	}
	if (!rc && stage->from.pid)
		rc = writer_memory_copy(e, &stage->from, data, n);
	else if (!rc)
		/* a tail has WIRE_CHUNK bytes at the most (check_stage): one piece */
		memcpy(pieces[0]->data, tail, stage->size);
	for (unsigned i = 0; i < n; i++) {
		if (rc)
			participant_put_piece(&e->participant, pieces[i]);
		else
			rc = participant_stage(
				&e->participant, stage->transaction, peer, monotonic_ms(),
				registry_is_grad(&e->registry, stage->state), pieces[i]);
	}
	return rc;
}

static void serve_stage(struct engine *e, uint32_t peer, const struct wire_header *header,
			const void *body, const void *tail, size_t tail_size)
{
	struct wire_stage stage;
	int rc;

	memcpy(&stage, body, sizeof(stage));
	stage.origin.writer = header->rank;
	rc = check_stage(e, &stage, tail_size);
	if (!rc)
		rc = stage_bytes(e, peer, &stage, tail);
	if (!rc)
		participant_name(&e->participant, stage.transaction, &stage.origin);
	node_ack(e, peer, header->request, rc);
}

static int stage_compute(struct engine *e, uint32_t peer, const struct wire_compute *message)
{
	struct compute *c = malloc(sizeof(*c));
	int rc = c ? compute_decode(c, message) : -ENOMEM;

	if (!rc)
		rc = compute_check(c, &e->registry);
	if (!rc && compute_is_scattered(c, &e->registry))
		rc = -EOPNOTSUPP;
	if (rc) {
		free(c);
		return rc;
	}
	return participant_stage_compute(&e->participant, message->transaction, peer,
					 monotonic_ms(),
					 registry_is_grad(&e->registry, message->state), c);
}

static void serve_compute(struct engine *e, const struct served_request *r)
{
	struct wire_compute message;
	int rc;

	memcpy(&message, r->body, sizeof(message));
	message.origin.writer = r->header->rank;
	rc = r->tail_size ? -EINVAL : stage_compute(e, r->peer, &message);
	if (!rc)
		participant_name(&e->participant, message.transaction, &message.origin);
	node_ack(e, r->peer, r->header->request, rc);
}

static void tell_applied_again(struct engine *e, uint32_t peer, uint64_t request,
			       const uint64_t transaction[2])
{
	struct wire_applied applied = { 0 };

	participant_recall(&e->participant, transaction, &applied.status);
	node_send(e, peer, WIRE_APPLIED, request, &applied, NULL, 0);
}

/* Serves DECIDE: of the coordinator for a promised edit, or of the writer, who takes back an
 * edit that is not promised.
 */
static void serve_decide(struct engine *e, uint32_t peer, const struct wire_header *header,
			 const void *body)
{
	struct wire_decide decide;
	uint32_t coordinator;
	int rc = -EACCES;

	memcpy(&decide, body, sizeof(decide));
	coordinator = participant_coordinator(&e->participant, decide.transaction);
	if (coordinator == UINT32_MAX || coordinator == header->rank)
		rc = participant_decide(&e->participant, decide.transaction, decide.commit,
					wire_status(decide.status), peer, header->request);
	/* an abort that changes nothing here is acknowledged all the same */
	if (!decide.commit && (rc == -ENOENT || rc == -EALREADY))
		rc = 0;
	if (rc == -EALREADY)
		tell_applied_again(e, peer, header->request, decide.transaction);
	else
		node_ack(e, peer, header->request, rc);
}

static void serve_prepare(struct engine *e, const struct served_request *r)
{
	const struct wire_header *header = r->header;
	struct wire_condition condition;
	struct wire_prepare prepare;
	struct wire_vote vote = { .status = -EINVAL };
	bool watch = r->tail_size;

	memcpy(&prepare, r->body, sizeof(prepare));
	note_asked(e, header);
	if (r->tail_size == sizeof(condition))
		memcpy(&condition, r->tail, sizeof(condition));
	if (prepare.coordinator == header->rank &&
	    (!watch || (r->tail_size == sizeof(condition) && prepare.freeze_ms &&
			condition_is_valid(&condition))))
		vote.status = participant_prepare(&e->participant, &e->registry, &prepare,
						  watch ? &condition : NULL, monotonic_ms());
	vote.boundary = atomic_load(&e->registry.control->boundary);
	node_send(e, r->peer, WIRE_VOTE, header->request, &vote, NULL, 0);
}

static void serve_commit(struct engine *e, uint32_t peer, const struct wire_header *header,
			 const void *body, const void *tail, size_t tail_size)
{
	struct wire_commit commit;

	memcpy(&commit, body, sizeof(commit));
	commit.origin.writer = header->rank;
	coordinator_commit(e, peer, header->request, &commit, tail, tail_size);
}

static void serve_dropped(struct engine *e, const void *body)
{
	struct wire_dropped dropped;

	memcpy(&dropped, body, sizeof(dropped));
	edit_report_dropped(e, &dropped);
}

static void serve_renew(struct engine *e, uint32_t peer, const struct wire_header *header,
			const void *body)
{
	struct wire_transaction t;

	memcpy(&t, body, sizeof(t));
	node_ack(e, peer, header->request, participant_renew(&e->participant, t.transaction));
}

static void serve_thaw(struct engine *e, uint32_t peer, const struct wire_header *header,
		       const void *body)
{
	struct wire_thaw thaw;

	memcpy(&thaw, body, sizeof(thaw));
	thaw.origin.writer = header->rank;
	node_ack(e, peer, header->request,
		 participant_thaw(&e->participant, thaw.transaction, &thaw.origin));
}

static void serve_checked(struct engine *e, const struct served_request *r)
{
	struct wire_checked checked;
	struct wire_known known = { 0 };

	memcpy(&checked, r->body, sizeof(checked));
	memcpy(known.transaction, checked.transaction, sizeof(known.transaction));
	if (checked.count > WIRE_FOUND_MAX ||
	    r->tail_size != checked.count * sizeof(struct wire_found)) {
		node_ack(e, r->peer, r->header->request, -EINVAL);
		return;
	}
	known.outcome = coordinator_checked(e, r->header->rank, &checked, r->tail);
	if (known.outcome)
		node_send(e, r->peer, WIRE_KNOWN, r->header->request, &known, NULL, 0);
	else
		node_ack(e, r->peer, r->header->request, 0);
}

/* CANCEL, ARRIVED, OUTCOME, VIEW_CLOSE. */
static void serve_transaction(struct engine *e, uint32_t peer, const struct wire_header *header,
			      const void *body)
{
	struct wire_transaction t;
	struct wire_known known = { 0 };

	memcpy(&t, body, sizeof(t));
	memcpy(known.transaction, t.transaction, sizeof(t.transaction));
	switch (header->type) {
	case WIRE_VIEW_CLOSE:
		view_owner_close(&e->view_owner, t.transaction);
		landing_close(e, t.transaction);
		break;
	case WIRE_CANCEL:
		coordinator_cancel(e, t.transaction);
		break;
	case WIRE_OUTCOME:
		known.outcome = termination_outcome(e, t.transaction);
		break;
	default:
		known.outcome = coordinator_arrived(e, header->rank, t.transaction);
	}
	if (header->type == WIRE_OUTCOME || known.outcome)
		node_send(e, peer, WIRE_KNOWN, header->request, &known, NULL, 0);
	else
		node_ack(e, peer, header->request, 0);
}

static void serve_ping(struct engine *e, const struct served_request *r)
{
	const struct wire_header *header = r->header;
	uint32_t peer = r->peer;
	struct wire_control control;

	if (view_owner_any(&e->view_owner))
		view_owner_touch(&e->view_owner, peer, header->life, monotonic_ms());
	participant_touch(&e->participant, peer, monotonic_ms());
	readers_heard(e, peer, header, r->tail, r->tail_size, monotonic_ms());
	wire_control_from_page(&control, e->registry.control);
	node_send(e, peer, WIRE_PONG, header->request, &control, NULL, 0);
	fabric_answer(e, peer, WIRE_PONG, header->request, &control, NULL, 0);
}

/* ---- silence ---- */

static void drop_silent_views(struct engine *e, uint64_t now)
{
	unsigned dropped = 0;

	if (view_owner_any(&e->view_owner) && now > VIEW_SILENT_MS)
		dropped = view_owner_expire(&e->view_owner, now - VIEW_SILENT_MS);
	if (dropped)
		log_info("dropped %u views whose observers went silent", dropped);
}

/* Frees rooms for bytes of views and edits that nobody has used for some time. */
static void free_rooms(struct engine *e, uint64_t now)
{
	if (now <= ROOM_IDLE_MS)
		return;
	view_owner_trim(&e->view_owner, now - ROOM_IDLE_MS);
	participant_trim(&e->participant, now - ROOM_IDLE_MS);
}

/* Loses silent ranks: rank 0 hears from every rank once a second. */
static void find_silent(struct engine *e, uint64_t now)
{
	for (uint32_t i = 1; i < e->world && !e->rank && e->job.ready; i++)
		if (e->peers[i].entry.present && now > e->peers[i].heard_ms + e->timeout_ms)
			peers_lose(e, i, -EIO, "silent");
}

static bool is_stepping(struct engine *e, uint64_t now)
{
	uint64_t step = atomic_load_explicit(&e->registry.control->step, memory_order_relaxed);
	struct serve *s = e->serve.state;

	if (step != s->step) {
		s->step = step;
		s->step_ms = now;
	}
	return step && now < s->step_ms + STEPPING_MS;
}

void serve_turn(struct engine *e, uint64_t now)
{
	assert(node_is_engine_thread(e));
	e->serve.state->copies_ahead =
		is_stepping(e, now) && view_owner_copy_ahead(&e->view_owner, &e->registry, now);
	edit_report_turn(e, now);
	serve_pending_turn(e, now);
	serve_stats_turn(e);
	checks_turn(e, now);
	serve_figures_turn(e, now);
	drop_silent_views(e, now);
	free_rooms(e, now);
	find_silent(e, now);
	forget_asked(e, now);
	barrier_turn(e);
	if (e->rank && e->job.ready) /* a link to rank 0, which this rank pings */
		peers_reach(e, 0);
}

static bool of_this_job(struct engine *e, uint32_t peer, const struct wire_header *header)
{
	if (header->type == WIRE_HELLO || header->type == WIRE_JOIN ||
	    names_this_job(e, header))
		return true;
	node_ack(e, peer, header->request, -ESTALE);
	return false;
}

/* ---- each kind ---- */

/* Each of the next four functions returns false for a message that is not of its kind. */
static bool serve_member(struct engine *e, const struct served_request *r)
{
	struct wire_catalog part;
	struct wire_join join;

	switch (r->header->type) {
	case WIRE_HELLO:
		join_serve_hello(e, r->peer, r->header);
		return true;
	case WIRE_JOIN:
		memcpy(&join, r->body, sizeof(join));
		join_serve_join(e, r->peer, r->header, &join);
		return true;
	case WIRE_CATALOG_PUT:
		memcpy(&part, r->body, sizeof(part));
		join_serve_put(e, r->peer, r->header, &part, r->tail, r->tail_size);
		return true;
	case WIRE_LEAVE:
		leave_serve(e, r->peer, r->header);
		return true;
	case WIRE_LEFT:
		leave_serve_left(e, r->peer, r->header, r->body);
		return true;
	case WIRE_PING:
		serve_ping(e, r);
		return true;
	case WIRE_BARRIER:
		barrier_serve(e, r->peer, r->header, r->body);
		return true;
	case WIRE_FABRIC:
		fabric_serve(e, r->peer, r->header, r->body);
		return true;
	}
	return false;
}

static bool serve_look(struct engine *e, const struct served_request *r)
{
	uint64_t request = r->header->request;
	struct wire_wait wait;

	switch (r->header->type) {
	case WIRE_TABLE_GET:
		serve_table(e, r->peer, request, r->body);
		return true;
	case WIRE_CATALOG_GET:
		serve_catalog(e, r->peer, request, r->body);
		return true;
	case WIRE_STATES_GET:
		serve_states(e, r->peer, r->header, r->body);
		return true;
	case WIRE_READ:
		note_asked(e, r->header);
		serve_read(e, r->peer, request, r->body);
		return true;
	case WIRE_STATS:
		note_asked(e, r->header);
		serve_stats(e, r->peer, request, r->body, r->tail, r->tail_size);
		return true;
	case WIRE_VIEW_OPEN:
		note_asked(e, r->header);
		serve_view_open(e, r->peer, request, r->body, r->tail, r->tail_size);
		return true;
	case WIRE_RANK_QUERY:
		serve_texts_answer(e, r->peer, request, r->body);
		return true;
	case WIRE_WAIT:
		memcpy(&wait, r->body, sizeof(wait));
		watch_server_add(e, r->peer, request, &wait);
		return true;
	}
	return false;
}

static bool serve_edit(struct engine *e, const struct served_request *r)
{
	switch (r->header->type) {
	case WIRE_STAGE:
		serve_stage(e, r->peer, r->header, r->body, r->tail, r->tail_size);
		return true;
	case WIRE_COMPUTE:
		serve_compute(e, r);
		return true;
	case WIRE_PLACE:
		note_asked(e, r->header);
		serve_place(e, r->peer, r->header->request, r->body);
		return true;
	case WIRE_COMMIT:
		serve_commit(e, r->peer, r->header, r->body, r->tail, r->tail_size);
		return true;
	case WIRE_PREPARE:
		serve_prepare(e, r);
		return true;
	case WIRE_CHECKED:
		serve_checked(e, r);
		return true;
	case WIRE_DECIDE:
		serve_decide(e, r->peer, r->header, r->body);
		return true;
	case WIRE_DROPPED:
		serve_dropped(e, r->body);
		return true;
	case WIRE_RENEW:
		serve_renew(e, r->peer, r->header, r->body);
		return true;
	case WIRE_THAW:
		serve_thaw(e, r->peer, r->header, r->body);
		return true;
	case WIRE_CANCEL:
	case WIRE_ARRIVED:
	case WIRE_OUTCOME:
	case WIRE_VIEW_CLOSE:
		serve_transaction(e, r->peer, r->header, r->body);
		return true;
	}
	return false;
}

static bool serve_round(struct engine *e, const struct served_request *r)
{
	switch (r->header->type) {
	case WIRE_ROUND:
		rounds_serve(e, r->peer, r->header, r->body, r->tail, r->tail_size);
		return true;
	case WIRE_PREFETCH:
		landing_serve(e, r->peer, r->header, r->body, r->tail, r->tail_size);
		return true;
	case WIRE_RENDEZVOUS:
		rendezvous_serve(e, r->peer, r->header, r->body);
		return true;
	case WIRE_INVITE:
	case WIRE_FORM:
	case WIRE_DISBAND:
		communicator_serve(e, r->peer, r->header, r->body, r->tail, r->tail_size);
		return true;
	}
	return false;
}

static bool tells_rank_0_it_lives(const struct engine *e, const struct wire_header *header)
{
	return !e->rank && header->rank < e->world &&
	       (header->type == WIRE_PING || header->type == WIRE_HELLO) &&
	       header->life == node_life(e->peers[header->rank].entry.cookie);
}

void serve_request(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *body, const void *tail, size_t tail_size)
{
	const struct served_request r = { peer, header, body, tail, tail_size };

	assert(node_is_engine_thread(e));
	if (!e->is_rank) {
		if (header->type == WIRE_LEFT)
			leave_serve_left(e, peer, header, body);
		else
			node_ack(e, peer, header->request, -EOPNOTSUPP);
		return;
	}
	if (!of_this_job(e, peer, header))
		return;
	leave_note(e, peer, header);
	note_observer(e, header);
	if (tells_rank_0_it_lives(e, header))
		peers_heard(e, header->rank, NULL);
	if (!serve_look(e, &r) && !serve_edit(e, &r) && !serve_member(e, &r))
		serve_round(e, &r);
}
