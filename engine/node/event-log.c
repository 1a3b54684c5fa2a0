/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/node/event-log.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_event(struct engine *e, json_t *event)
{
	event_ring_add(&e->event_log->ring, event);
	e->event_log->changes++;
	if (e->is_rank)
		atomic_store_explicit(&e->registry.control->events, e->event_log->ring.count,
				      memory_order_release);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + (double)(t.tv_nsec / 1000000) / 1000;
}

static json_t *event_new(const char *name)
{
	return json_pack("{s:s, s:f}", "event", name, "time", now());
}

/* Puts a name of the trainer, which may have any bytes; JSON takes UTF-8 alone. */
static void put_text(json_t *to, const char *key, const char *text)
{
	json_t *value = json_string(text);

	json_object_set_new(to, key, value ? value : json_string("?"));
}

static void put_number(json_t *to, const char *key, uint64_t n)
{
	json_object_set_new(to, key, json_integer((json_int_t)n));
}

/* ---- the job, its ranks ---- */

static bool trains(const char *phase)
{
	return !strcmp(phase, "stable") || !strcmp(phase, "step");
}

void event_log_job(struct engine *e, uint64_t step, const char *phase)
{
	const struct event_log *l = e->event_log;
	json_t *event;

	if (l->step == step && trains(l->phase) && trains(phase))
		return;
	event = event_new(l->step != step ? "step" : "phase");
	put_number(event, "step", l->step);
	put_number(event, "generation", l->generation);
	put_text(event, "phase", l->phase);
	add_event(e, event);
}

void event_log_rank(struct engine *e, uint32_t rank)
{
	const struct peer *p = &e->peers[rank];
	bool lost = p->state == ENGINE_RANK_LOST;
	json_t *event = event_new(peer_has_left(p) ? "rank-left"
				  : lost           ? "rank-lost"
						   : "rank-back");

	put_number(event, "rank", rank);
	if (lost && !peer_has_left(p))
		put_text(event, "why", p->why);
	add_event(e, event);
}

/* ---- edits, views ---- */

static void put_param(const struct engine *e, json_t *event, uint32_t param)
{
	if (param >= e->catalog->nparams)
		return;
	put_text(event, "param", catalog_name(e->catalog, param));
	if (*catalog_coordinate(e->catalog, param))
		put_text(event, "coordinate", catalog_coordinate(e->catalog, param));
}

static void put_writer(json_t *event, const struct wire_origin *o)
{
	json_t *by = json_object();

	if (o->writer != WIRE_OBSERVER)
		put_number(by, "rank", o->writer);
	put_number(by, "uid", o->uid);
	put_number(by, "pid", (uint64_t)o->pid);
	put_text(by, "host", wire_text_ok(o->host, sizeof(o->host)) ? o->host : "?");
	json_object_set_new(event, "by", by);
}

static void put_origin(const struct engine *e, json_t *event, const struct wire_origin *o)
{
	put_writer(event, o);
	if (o->kind == ENGINE_PARAM || o->kind == ENGINE_RANK_PARAM)
		put_param(e, event, o->param);
	else
		put_number(event, "group", o->group);
	if (o->kind == ENGINE_RANK_PARTITION)
		put_number(event, "sub_group", o->sub);
	put_text(event, "state", wire_text_ok(o->key, sizeof(o->key)) ? o->key : "?");
	if (engine_is_local(o->kind))
		put_number(event, "local_to_rank", o->rank);
	if (o->files > 1)
		put_number(event, "files", o->files);
	if (*o->operation && wire_text_ok(o->operation, sizeof(o->operation)))
		put_text(event, "operation", o->operation);
	put_number(event, "bytes", o->bytes);
}

static bool is_told(const struct engine *e, const uint64_t id[2])
{
	uint64_t n = u64_min(e->event_log->ntold, EVENT_RING_KEPT);

	for (uint64_t i = 0; i < n; i++)
		if (!memcmp(e->event_log->told[i], id, sizeof(e->event_log->told[i])))
			return true;
	return false;
}

/* Returns true the first time that it is called with an id, and always with id 0. */
static bool is_new(struct engine *e, const uint64_t id[2])
{
	if (!id[0] && !id[1])
		return true;
	if (is_told(e, id))
		return false;
	memcpy(e->event_log->told[e->event_log->ntold++ % EVENT_RING_KEPT], id,
	       sizeof(e->event_log->told[0]));
	return true;
}

static void put_id(json_t *event, const uint64_t id[2])
{
	char text[40];

	if (!id[0] && !id[1])
		return;
	snprintf(text, sizeof(text), "%016llx-%llu", (unsigned long long)id[0],
		 (unsigned long long)id[1]);
	put_text(event, "id", text);
}

/* Reads an event's id from its JSON.  The events of one transaction differ in their ids: a thaw
 * has the first half inverted, the end of a watch the second half, as event_log_thaw and
 * event_log_break add them.
 */
static void take_id(json_t *event, uint64_t id[2])
{
	const char *text = json_string_value(json_object_get(event, "id")), *what;
	unsigned long long first, second;

	id[0] = id[1] = 0;
	if (!text || sscanf(text, "%16llx-%llu", &first, &second) != 2)
		return;
	what = json_string_value(json_object_get(event, "event"));
	id[0] = what && !strcmp(what, "thaw") ? ~first : first;
	id[1] = what && !strncmp(what, "break", 5) ? ~second : second;
}

/* "failed": the edit was decided, but a rank could not apply it: it may be there in part. */
static const char *outcome_of(const struct event_settled *told)
{
	if (!told->status)
		return "committed";
	return told->boundary ? "failed" : "aborted";
}

static json_t *edit_event(const struct engine *e, const struct event_settled *told)
{
	json_t *event = event_new("edit");

	if (told->origin.files)
		put_origin(e, event, &told->origin);
	if (told->boundary)
		put_number(event, "boundary", told->boundary);
	put_text(event, "outcome", outcome_of(told));
	if (told->status || told->why)
		put_text(event, "why", told->why ? told->why : strerror(-told->status));
	put_id(event, told->id);
	return event;
}

void event_log_edit(struct engine *e, const struct event_settled *told)
{
	if (is_new(e, told->id))
		add_event(e, edit_event(e, told));
}

void event_log_store(struct engine *e, const struct event_settled *told)
{
	if (!e->is_rank)
		event_ring_add(&e->event_log->own, edit_event(e, told));
}

void event_log_freeze(struct engine *e, const struct event_settled *told)
{
	json_t *event;

	if (!is_new(e, told->id))
		return;
	event = event_new("freeze");
	put_writer(event, &told->origin);
	if (told->boundary)
		put_number(event, "boundary", told->boundary);
	if (told->status)
		put_text(event, "why", told->why ? told->why : strerror(-told->status));
	put_id(event, told->id);
	add_event(e, event);
}

void event_log_thaw(struct engine *e, const struct event_settled *told)
{
	/* the freeze's own id is in the log already */
	const uint64_t id[2] = { ~told->id[0], told->id[1] };
	json_t *event;

	if (!is_new(e, id))
		return;
	event = event_new("thaw");
	if (told->why)
		put_text(event, "why", told->why);
	else
		put_writer(event, &told->origin);
	put_number(event, "boundary", told->boundary);
	put_id(event, told->id);
	add_event(e, event);
}

/* ---- watches ---- */

/* Puts the indices of an element of a parameter, which is counted in stored order. */
static void put_index(const struct engine *e, json_t *event, uint32_t param, uint64_t at)
{
	const struct catalog_param *p = &e->catalog->params[param];
	const uint64_t *size = catalog_shape(e->catalog, param), *from = NULL;
	json_t *index = json_array();
	struct cuts_box box;

	if (p->cuts) {
		cuts_find(p->cuts, at, &box);
		at -= box.start;
		size = box.size;
		from = box.from;
	}
	for (uint32_t i = p->ndim; i-- > 0; at /= size[i])
		json_array_insert_new(
			index, 0,
			json_integer((json_int_t)(at % size[i] + (from ? from[i] : 0))));
	json_object_set_new(event, "index", index);
}

static void put_found(const struct engine *e, json_t *event, const struct event_break *told)
{
	put_param(e, event, told->param);
	put_text(event, "state", told->key);
	/* JSON has no infinity */
	json_object_set_new(event, "value", json_real(fmin(told->value, DBL_MAX)));
	if (told->has_element) {
		put_index(e, event, told->param, told->element);
		put_number(event, "rank", told->rank);
	}
	if (told->nparams > 1)
		put_number(event, "params", told->nparams);
	put_number(event, "step", told->step);
	put_number(event, "boundary", told->boundary);
}

void event_log_break(struct engine *e, const struct event_break *told)
{
	const uint64_t id[2] = { told->id[0], ~told->id[1] };
	json_t *event;

	if (!is_new(e, id))
		return;
	event = event_new(told->nparams ? "break" : "break-over");
	put_text(event, "condition", told->condition);
	if (told->nparams)
		put_found(e, event, told);
	else
		put_text(event, "why", told->why);
	put_id(event, told->id);
	add_event(e, event);
}

bool event_log_has_break(const struct engine *e, const uint64_t id[2])
{
	return is_told(e, (const uint64_t[2]){ id[0], ~id[1] });
}

void event_log_evicted(struct engine *e, const struct engine_file *f)
{
	json_t *event = event_new("view-evicted");

	put_param(e, event, f->parts->address.param);
	put_text(event, "state", f->parts->address.key);
	/* view.generation is a control_page_content: the generation + 1, or a window of
	 * gradients
	 */
	if (!f->is_grad)
		put_number(event, "generation", f->view.generation - 1);
	add_event(e, event);
}

/* ---- events that a rank has sent ---- */

static void see_line(void *arg, json_t *event)
{
	struct engine *e = arg;
	uint64_t id[2];

	take_id(event, id);
	if (is_new(e, id))
		add_event(e, json_incref(event));
}

void event_log_add_lines(struct engine *e, const char *text, size_t size)
{
	event_ring_parse(text, size, see_line, e);
}
