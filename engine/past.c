/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/past.h"
#include "engine/peers.h"

#include <errno.h>
#include <string.h>

enum { PATIENCE_MS = 2000, BYTES_MAX = 1 << 20 };

/* ---- fetching: engine thread, with the lock ---- */

static void begin(struct engine *e)
{
	struct past *p = &e->past;

	free(p->text);
	*p = (struct past){ .fetching = true,
			    .rank = peers_first_live(e),
			    .began_ns = monotonic_ns(),
			    .told_ns = p->told_ns };
}

static void end(struct engine *e, int status)
{
	struct past *p = &e->past;

	rpc_forget(e, p);
	p->fetching = p->asked = false;
	p->status = status;
	p->told_ns = p->began_ns;
	atomic_fetch_add(&e->epoch, 1);
	pthread_cond_broadcast(&e->changed);
}

static int append(struct past *p, const void *lines, size_t size)
{
	char *text = realloc(p->text, p->size + size);

	if (!text)
		return -ENOMEM;
	memcpy(text + p->size, lines, size);
	p->text = text;
	p->size += size;
	return 0;
}

/* -EAGAIN: there may be more. */
static int take(struct past *p, const struct answer *answer)
{
	struct wire_changed changed;
	int rc;

	if (answer->status || answer->type != WIRE_CHANGED)
		return answer->status ? answer->status : -EPROTO;
	memcpy(&changed, answer->body, sizeof(changed));
	if (!answer->tail_size)
		return 0;
	if (changed.size != answer->tail_size || changed.size > BYTES_MAX - p->size ||
	    changed.events <= p->after)
		return -EPROTO;
	p->after = changed.events;
	rc = append(p, answer->tail, changed.size);
	return rc ? rc : -EAGAIN;
}

static bool on_kept(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct past *p = owner;
	int rc = take(p, answer);

	p->asked = false;
	if (rc != -EAGAIN)
		end(e, rc);
	return false;
}

static void ask(struct engine *e)
{
	struct past *p = &e->past;
	struct wire_wait wait = { .events = p->after, .how = WIRE_WAIT_KEPT };
	int rc = p->rank == WIRE_OBSERVER
			 ? -EIO
			 : peers_call(e, p->rank, WIRE_WAIT, &wait, NULL, 0, on_kept, p, 0);

	p->asked = !rc;
	if (rc && rc != -EAGAIN)
		end(e, rc);
}

void past_turn(struct engine *e, uint64_t now)
{
	struct past *p = &e->past;

	if (!p->fetching && p->wanted)
		begin(e);
	if (p->fetching && !p->asked)
		ask(e);
	if (p->fetching && now >= p->began_ns / 1000000 + PATIENCE_MS)
		end(e, -ETIMEDOUT);
}

void past_free(struct engine *e)
{
	free(e->past.text);
}

/* ---- the door ---- */

static int await(struct engine *e)
{
	uint64_t since = engine_asked_since();
	uint64_t deadline = since / 1000000 + e->timeout_ms;
	int rc = 0;

	while ((e->past.told_ns < since || e->past.fetching) && !rc &&
	       monotonic_ms() < deadline) {
		e->past.wanted |= !e->past.fetching;
		rc = node_wait_answer(e, deadline);
	}
	return rc;
}

static void put_event(void *out, json_t *event)
{
	char *line = json_dumps(event, EVENTS_JSON);

	if (line)
		fprintf(out, "fragfs: job: %s\n", line);
	free(line);
}

static void put(const struct past *p, FILE *out)
{
	if (p->status)
		fprintf(out, "fragfs: warn: what became of the job's edits is not known: %s\n",
			strerror(-p->status));
	events_parse(p->text, p->size, put_event, out);
}

int past_tell(struct engine *e, FILE *out)
{
	int rc;

	pthread_mutex_lock(&e->lock);
	rc = await(e);
	if (rc != -EAGAIN)
		put(&e->past, out);
	pthread_mutex_unlock(&e->lock);
	return rc == -EAGAIN ? rc : 0;
}
