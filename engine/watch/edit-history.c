/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/catalog/event-ring.h"
#include "engine/node/event-log.h"
#include "engine/node/peers.h"
#include "engine/watch/edit-history.h"
#include "engine/watch/watch.h"

#include <errno.h>
#include <string.h>

/* PATIENCE_MS: the most that a fetch takes.  ANSWER_MS: a rank that says nothing for so long
 * counts as silent.  BYTES_MAX: the lines that one rank may send.
 */
enum { PATIENCE_MS = 2000, ANSWER_MS = 400, BYTES_MAX = 1 << 20, RANKS_MAX = 8 };

/* A rank that is asked for the event lines that it has kept. */
enum source_state {
	SOURCE_TO_ASK,
	SOURCE_ASKED, /* a WAIT to it is under way */
	SOURCE_OVER,  /* all its lines are here, or status says why not */
};

struct edit_history_source {
	uint32_t rank;
	enum source_state state;
	int status;     /* OVER: 0, or -errno: why its lines are not known */
	uint64_t after; /* number of the last line in text */
	char *text;
	size_t size;
};

enum history_state { HISTORY_IDLE, HISTORY_WANTED, HISTORY_FETCHING };

struct edit_history {
	enum history_state state;
	uint64_t began_ns; /* when the fetch under way began */
	uint64_t told_ns;  /* when the fetch began whose lines the sources have; 0: none has */
	struct edit_history_source sources[RANKS_MAX];
	unsigned n;
	/* this observer's lines; only in the copy of a caller */
	struct edit_history_source own;
};

/* ---- fetching: engine thread, with the lock ---- */

static void forget(struct edit_history *p)
{
	for (unsigned i = 0; i < p->n; i++)
		free(p->sources[i].text);
	free(p->own.text);
	p->n = 0;
}

/* Returns true if the last fetch found the rank silent, and it has not been heard since. */
static bool is_silent_still(const struct engine *e, uint32_t rank)
{
	const struct edit_history *p = e->watch->edit_history;

	for (unsigned i = 0; i < p->n; i++)
		if (p->sources[i].rank == rank && p->sources[i].status == -ETIMEDOUT)
			return peer_is_silent_since(&e->peers[rank], p->told_ns);
	return false;
}

static void begin_history(struct engine *e)
{
	struct edit_history *p = e->watch->edit_history;
	struct edit_history_source sources[RANKS_MAX];
	unsigned n = 0;

	for (uint32_t rank = 0; rank < e->world && n < RANKS_MAX; rank++)
		if (peer_is_live(&e->peers[rank]))
			sources[n++] = (struct edit_history_source){
				.rank = rank,
				.state = is_silent_still(e, rank) ? SOURCE_OVER : SOURCE_TO_ASK,
				.status = -ETIMEDOUT
			};
	forget(p);
	memcpy(p->sources, sources, sizeof(sources[0]) * n);
	p->n = n;
	p->state = HISTORY_FETCHING;
	p->began_ns = monotonic_ns();
}

static void end_history(struct engine *e)
{
	struct edit_history *p = e->watch->edit_history;

	rpc_forget(e, p);
	p->state = HISTORY_IDLE;
	p->told_ns = p->began_ns;
	atomic_fetch_add(&e->event_log->epoch, 1);
	pthread_cond_broadcast(&e->changed);
}

static int append(struct edit_history_source *s, const void *lines, size_t size)
{
	char *text = realloc(s->text, s->size + size);

	if (!text)
		return -ENOMEM;
	memcpy(text + s->size, lines, size);
	s->text = text;
	s->size += size;
	return 0;
}

/* Adds the lines of an answer; -EAGAIN: there may be more. */
static int add_lines(struct edit_history_source *s, const struct answer *answer)
{
	struct wire_changed changed;
	int rc;

	if (answer->status || answer->type != WIRE_CHANGED)
		return answer->status ? answer->status : -EPROTO;
	memcpy(&changed, answer->body, sizeof(changed));
	if (!answer->tail_size)
		return 0;
	if (changed.size != answer->tail_size || changed.size > BYTES_MAX - s->size ||
	    changed.events <= s->after)
		return -EPROTO;
	s->after = changed.events;
	rc = append(s, answer->tail, changed.size);
	return rc ? rc : -EAGAIN;
}

static void finish(struct edit_history_source *s, int status)
{
	s->state = SOURCE_OVER;
	s->status = status;
}

static bool on_kept(struct engine *e, void *owner, uint64_t i, const struct answer *answer)
{
	struct edit_history *p = owner;
	struct edit_history_source *s = &p->sources[i];
	int rc = add_lines(s, answer);

	if (rc != -EAGAIN)
		finish(s, rc);
	else if (s->state == SOURCE_ASKED)
		s->state = SOURCE_TO_ASK;
	return false;
}

static void ask(struct engine *e, struct edit_history_source *s)
{
	struct edit_history *p = e->watch->edit_history;
	struct wire_wait wait = { .events = s->after, .how = WIRE_WAIT_KEPT };
	int rc = peers_call(e, s->rank, WIRE_WAIT, &wait, NULL, 0, on_kept, p,
			    (uint64_t)(s - p->sources));

	if (!rc)
		s->state = SOURCE_ASKED;
	else if (rc != -EAGAIN)
		finish(s, rc);
}

/* Asks each source that is neither asked nor over; returns true if all sources are over. */
static bool turn(struct engine *e, bool late)
{
	struct edit_history *p = e->watch->edit_history;
	bool all = true;

	for (unsigned i = 0; i < p->n; i++) {
		struct edit_history_source *s = &p->sources[i];

		if (s->state != SOURCE_OVER &&
		    (late ||
		     peers_is_mute(e, s->rank, rpc_silence_ms(e, p, &s->rank), ANSWER_MS)))
			finish(s, -ETIMEDOUT);
		else if (s->state == SOURCE_TO_ASK)
			ask(e, s);
		all &= s->state == SOURCE_OVER;
	}
	return all;
}

void edit_history_turn(struct engine *e, uint64_t now)
{
	struct edit_history *p = e->watch->edit_history;

	assert(node_is_engine_thread(e));
	if (!p)
		return;
	if (p->state == HISTORY_WANTED)
		begin_history(e);
	if (p->state == HISTORY_FETCHING && turn(e, now >= p->began_ns / 1000000 + PATIENCE_MS))
		end_history(e);
}

void edit_history_free(struct engine *e)
{
	if (e->watch->edit_history)
		forget(e->watch->edit_history);
	free(e->watch->edit_history);
}

bool edit_history_ticks(const struct engine *e)
{
	return e->watch->edit_history && e->watch->edit_history->state == HISTORY_FETCHING;
}

/* ---- the door ---- */

static int await(struct engine *e)
{
	uint64_t since = engine_asked_since();
	uint64_t deadline = since / 1000000 + e->timeout_ms;
	struct edit_history *p;
	int rc = 0;

	if (!e->watch->edit_history &&
	    !(e->watch->edit_history = calloc(1, sizeof(*e->watch->edit_history))))
		return -ENOMEM;
	p = e->watch->edit_history;
	while ((p->told_ns < since || p->state == HISTORY_FETCHING) && !rc &&
	       monotonic_ms() < deadline) {
		if (p->state == HISTORY_IDLE)
			p->state = HISTORY_WANTED;
		rc = node_wait_answer(e, deadline);
	}
	return rc;
}

struct lines { /* of all ranks, each edit once */
	json_t *list, *ids;
	char whose[24]; /* the lines that are added */
	FILE *out;
};

static void put_dropped(const struct lines *l, json_int_t count)
{
	char now[LOG_TIME_MAX];

	log_time(now);
	fprintf(l->out,
		"fragfs: warn: %s: %s has dropped its %lld oldest events: edits of which it "
		"alone "
		"knew are not here\n",
		now, l->whose, (long long)count);
}

static void add_line(void *arg, json_t *event)
{
	const char *id = json_string_value(json_object_get(event, "id"));
	const char *what = json_string_value(json_object_get(event, "event"));
	struct lines *l = arg;
	char key[64];

	/* an event of event_ring_read: lines were dropped */
	if (what && !strcmp(what, "lost")) {
		put_dropped(l, json_integer_value(json_object_get(event, "count")));
		return;
	}
	/* a thaw has the id of its freeze: the event's name tells them apart */
	snprintf(key, sizeof(key), "%.20s %.40s", what ? what : "", id ? id : "");
	if (id && json_object_get(l->ids, key))
		return;
	if (id)
		json_object_set_new(l->ids, key, json_true());
	json_array_append(l->list, event);
}

static void put_event(FILE *out, const json_t *event)
{
	char *line = json_dumps(event, EVENT_RING_JSON);

	if (line)
		fprintf(out, "fragfs: job: %s\n", line);
	free(line);
}

static int by_time(const void *a, const void *b)
{
	double x = json_number_value(json_object_get(*(json_t *const *)a, "time"));
	double y = json_number_value(json_object_get(*(json_t *const *)b, "time"));

	return (x > y) - (x < y);
}

static void put_sorted(FILE *out, const json_t *list)
{
	size_t n = json_array_size(list);
	CLEANUP(free) json_t **events = malloc((n + 1) * sizeof(json_t *));

	for (size_t i = 0; events && i < n; i++)
		events[i] = json_array_get(list, i);
	if (events)
		qsort(events, n, sizeof(json_t *), by_time);
	for (size_t i = 0; events && i < n; i++)
		put_event(out, events[i]);
}

/* Returns 0 if a source has told its lines.
 * -EHOSTDOWN: no rank lives.
 * -ETIMEDOUT: no fetch has ended.
 * Other errors: why the first source has not.
 */
static int status_of(const struct edit_history *p)
{
	int rc = p->n ? p->sources[0].status : p->told_ns ? -EHOSTDOWN : -ETIMEDOUT;

	for (unsigned i = 0; i < p->n && rc; i++)
		rc = p->sources[i].status ? rc : 0;
	return rc;
}

/* Returns true if the ranks, as far as they were heard, have all ended without an event, and
 * this observer has made no edit.
 */
static bool has_none(const struct engine *e)
{
	for (uint32_t rank = 0; rank < e->world; rank++)
		if (e->peers[rank].control.events || !peers_has_ended(e, rank))
			return false;
	return !atomic_load(&e->counters.writes);
}

static void put_source(const struct edit_history_source *s, struct lines *lines)
{
	if (s->text)
		event_ring_parse(s->text, s->size, add_line, lines);
}

static void put(const struct edit_history *p, bool none, FILE *out)
{
	struct lines lines = { .list = json_array(), .ids = json_object(), .out = out };
	int rc = none ? 0 : status_of(p);
	char now[LOG_TIME_MAX];

	log_time(now);
	if (rc == -EHOSTDOWN)
		fprintf(out,
			"fragfs: warn: %s: no rank lives that can tell what became of the "
			"job's edits\n",
			now);
	else if (rc)
		fprintf(out,
			"fragfs: warn: %s: what became of the job's edits is not known: %s\n",
			now, strerror(-rc));
	for (unsigned i = 0; i < p->n && !rc; i++)
		if (p->sources[i].status == -ETIMEDOUT)
			fprintf(out,
				"fragfs: warn: %s: rank %u has not answered: edits of which it "
				"alone knows are not here\n",
				now, p->sources[i].rank);
	for (unsigned i = 0; i < p->n; i++) {
		snprintf(lines.whose, sizeof(lines.whose), "rank %u", p->sources[i].rank);
		put_source(&p->sources[i], &lines);
	}
	snprintf(lines.whose, sizeof(lines.whose), "this mount");
	/* last: of two lines about an edit the first is kept, and a rank's says more of why */
	put_source(&p->own, &lines);
	put_sorted(out, lines.list);
	json_decref(lines.list);
	json_decref(lines.ids);
}

/* Fills mine->own with the lines of e's own edits; those for which there is no memory are left
 * out.
 */
static void copy_own(const struct engine *e, struct edit_history *mine)
{
	CLEANUP(free) char *lines = malloc(EVENT_RING_LINE_MAX);
	size_t n;

	while (lines && (n = event_ring_read(&e->event_log->own, &mine->own.after, lines,
					     EVENT_RING_LINE_MAX)))
		if (append(&mine->own, lines, n))
			break;
}

/* Copies the sources to *mine.  A text for which there is no memory is left out, with -ENOMEM
 * as its status.
 */
static void copy(const struct edit_history *p, struct edit_history *mine)
{
	mine->n = p->n;
	mine->told_ns = p->told_ns;
	for (unsigned i = 0; i < p->n; i++) {
		const struct edit_history_source *s = &p->sources[i];

		mine->sources[i] =
			(struct edit_history_source){ .rank = s->rank, .status = s->status };
		if (s->text && append(&mine->sources[i], s->text, s->size))
			mine->sources[i].status = -ENOMEM;
	}
}

int edit_history_tell(struct engine *e, FILE *out)
{
	struct edit_history mine = { .n = 0 };
	bool none;
	int rc;

	pthread_mutex_lock(&e->lock);
	rc = await(e);
	if (rc != -EAGAIN && e->watch->edit_history)
		copy(e->watch->edit_history, &mine);
	if (rc != -EAGAIN)
		copy_own(e, &mine);
	none = has_none(e);
	pthread_mutex_unlock(&e->lock);
	if (rc == -EAGAIN || rc == -ENOMEM) {
		forget(&mine);
		return rc;
	}
	put(&mine, none, out);
	forget(&mine);
	return 0;
}
