/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/metrics.h"
#include "engine/base/phase.h"
#include "engine/base/text.h"
#include "engine/base/thread.h"
#include "engine/catalog/health.h"
#include "engine/commit/freezes.h"
#include "engine/node/comms.h"
#include "engine/node/event-log.h"
#include "engine/write/transaction.h"
#include "engine/live/live.h"
#include "engine/node/peers.h"
#include "engine/read/prefetch.h"
#include "engine/read/remote-read.h"
#include "engine/rounds/fallback.h"
#include "engine/serve/readers.h"
#include "engine/watch/edit-history.h"
#include "engine/watch/place-order.h"
#include "engine/watch/rank-query.h"
#include "engine/watch/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* An observer's reports of its job: numbers for fs/, texts for people and scrapers. */

static const char *way_name(const struct engine *e, const struct peer *p)
{
	if (p->way != PEER_WAY_MESSAGES)
		return p->way == PEER_WAY_MEMORY ? "host" : "-";
	if (p->bulk == PEER_BULK_ANSWERS)
		return e->job.key.is_there ? "tls" : "tcp";
	return "zmq";
}

static void fill_rank(struct engine *e, uint32_t rank, struct engine_rank *out)
{
	const struct peer *p = &e->peers[rank];

	peers_look(e, rank);
	*out = (struct engine_rank){
		.pid = p->entry.pid,
		.state = peer_has_left(p) ? ENGINE_RANK_LEFT : p->state,
		.since_ms = p->since_ms ? monotonic_ms() - p->since_ms : 0,
		.since = p->since,
		.silent_ms = rpc_silence_ms(e, NULL, &rank),
		.way = way_name(e, p),
		.step = p->control.step,
		.boundary = p->control.boundary,
		.boundary_ms = peers_stood_ms(p),
		.generation = p->control.generation,
		.phase = p->control.cookie[0] ? control_page_phase_name(p->control.phase) : "-",
		.bytes_host = p->control.bytes_host,
		.bytes_swap = p->control.swap_bytes,
		.kept_bytes = p->control.kept_bytes,
		.held_ns = p->control.held_ns,
		.swap_in_bytes = p->control.swap_in_bytes,
		.swap_out_bytes = p->control.swap_out_bytes,
		.swap_errors = p->control.swap_errors,
		.swap_damaged = p->control.swap_damaged,
		.fabric = p->fabric || p->bulk == PEER_BULK_ANSWERS,
		.grads_valid = p->control.grads & 1,
		.pinned_bytes = p->control.pinned_bytes,
		.pinned_lent = p->control.pinned_lent,
		.arena_bytes = p->control.arena_bytes,
		.arena_used = p->control.arena_used,
		.arena_used_max = p->control.arena_used_max,
		.arena_largest = p->control.arena_largest,
		.arena_moved = p->control.arena_moved,
		.bytes_device = p->control.bytes_device,
		.device_from_bytes = p->control.device_from_bytes,
		.device_to_bytes = p->control.device_to_bytes,
		.device_errors = p->control.device_errors,
		.device_kept = p->control.device_kept,
	};
	memcpy(&out->loss_scale, &p->control.loss_scale, sizeof(out->loss_scale));
	memcpy(out->host, p->entry.hostname, sizeof(out->host));
	memcpy(out->address, p->entry.address, sizeof(out->address));
	memcpy(out->why, p->why, sizeof(out->why));
}

bool live_rank(struct engine *e, uint32_t rank, struct engine_rank *out)
{
	if (rank >= e->world)
		return false;
	pthread_mutex_lock(&e->lock);
	fill_rank(e, rank, out);
	pthread_mutex_unlock(&e->lock);
	return true;
}

void live_job(struct engine *e, struct engine_job *out)
{
	memset(out, 0, sizeof(*out));
	pthread_mutex_lock(&e->lock);
	watch_look(e);
	out->ended = true;
	for (uint32_t i = 0; i < e->world; i++) {
		out->alive += e->peers[i].state == ENGINE_RANK_ALIVE;
		out->ended &= peers_has_ended(e, i);
	}
	snprintf(out->id, sizeof(out->id), "%s", e->job.name);
	snprintf(out->address, sizeof(out->address), "%.127s", e->job.address);
	out->has_step = true;
	out->phase = e->event_log->phase;
	out->step = e->event_log->step;
	out->generation = e->event_log->generation;
	out->authenticated = e->job.key.is_there;
	pthread_mutex_unlock(&e->lock);
}

static bool is_of_rank(const struct engine_address *a)
{
	return a->kind == ENGINE_RANK_PARAM || a->kind == ENGINE_RANK_PARTITION ||
	       a->kind == ENGINE_RANK_PUBLISHED;
}

uint64_t live_changed_ns(struct engine *e, const struct engine_address *a)
{
	uint64_t ns;

	pthread_mutex_lock(&e->lock);
	if (is_of_rank(a) && a->rank < e->world) {
		peers_look(e, a->rank);
		ns = e->peers[a->rank].control.generation_ns;
	} else {
		watch_look(e);
		ns = e->event_log->generation_ns;
	}
	pthread_mutex_unlock(&e->lock);
	return ns;
}

static int put_config(struct engine *e, FILE *out)
{
	struct engine_job job;

	live_job(e, &job);
	fprintf(out,
		"job %s\naddress %s\nworld %u\ntimeout_ms %u\nwritable %s\n"
		"authenticated %s\nreadahead %s\nmemory %s\n",
		job.id, job.address, e->world, e->timeout_ms, e->write.allowed ? "yes" : "no",
		e->job.key.is_there ? "yes" : "no", e->read.ahead ? "yes" : "no",
		e->memory.ops ? e->memory.ops->name : "never");
	return 0;
}

/* Returns all ranks, for the caller to free; NULL: out of memory. */
static struct engine_rank *all_ranks(struct engine *e)
{
	struct engine_rank *ranks = calloc(e->world, sizeof(*ranks));

	for (uint32_t i = 0; i < e->world && ranks; i++)
		live_rank(e, i, &ranks[i]);
	return ranks;
}

/* Ranks that are heard for the first time have their numbers in the next report. */
static int put_health(struct engine *e, FILE *out)
{
	CLEANUP(free) struct engine_rank *ranks = all_ranks(e);
	CLEANUP(free) char *text = NULL;

	if (!ranks)
		return -ENOMEM;
	node_wake(e);
	text = health_text(ranks, e->world);
	if (!text)
		return -ENOMEM;
	fputs(text, out);
	return 0;
}

/* Puts by which way bytes have come, and why they did not come by rounds. */
static void put_ways(FILE *out, struct engine_counters *c)
{
	metrics_counter(out, "owner_memory_reads_total", "pieces copied from owners' memory",
			&c->owner_reads_memory);
	metrics_counter(out, "owner_message_reads_total", "pieces owners sent as messages",
			&c->owner_reads_messages);
	metrics_counter(out, "owner_round_bytes_total",
			"bytes that came by rounds of the ranks", &c->owner_bytes_rounds);
	metrics_counter(out, "owner_round_reads_total", "pieces that came so",
			&c->owner_reads_rounds);
	fputs("# HELP fragfs_round_unfit_total why bytes did not come by a round\n"
	      "# TYPE fragfs_round_unfit_total counter\n",
	      out);
	for (unsigned i = WIRE_FALLBACK_NONE + 1; i < WIRE_FALLBACKS; i++)
		fprintf(out, "fragfs_round_unfit_total{reason=\"%s\"} %llu\n",
			fallback_name((enum wire_fallback)i),
			(unsigned long long)atomic_load_explicit(&c->rounds_fallback[i],
								 memory_order_relaxed));
}

static void put_counters(FILE *out, struct engine_counters *c)
{
	metrics_counter(out, "reads_total", "read requests served", &c->reads);
	metrics_counter(out, "read_bytes_total", "bytes given to readers", &c->read_bytes);
	metrics_counter(out, "read_errors_total", "read requests that failed", &c->read_errors);
	metrics_counter(out, "owner_memory_bytes_total", "bytes copied from owners' memory",
			&c->owner_bytes_memory);
	metrics_counter(out, "owner_message_bytes_total", "bytes owners sent as messages",
			&c->owner_bytes_messages);
	put_ways(out, c);
	metrics_counter(out, "readahead_hits_total", "reads found copied ahead",
			&c->readahead_hits);
	metrics_counter(out, "readahead_misses_total", "large reads not found copied ahead",
			&c->readahead_misses);
	metrics_counter(out, "commits_total", "edits that every holder took", &c->writes);
	metrics_counter(out, "commit_bytes_total", "bytes written by them", &c->write_bytes);
	metrics_counter(out, "commit_memory_bytes_total",
			"bytes of edits that holders copied out of this mount's memory",
			&c->staged_memory);
	metrics_counter(out, "commit_message_bytes_total",
			"bytes of edits that were sent to holders", &c->staged_messages);
	metrics_counter(out, "commit_errors_total", "edits that failed", &c->write_errors);
	metrics_counter(out, "messages_in_total", "messages received", &c->messages_in);
	metrics_counter(out, "messages_out_total", "messages sent", &c->messages_out);
	metrics_counter(out, "messages_bad_total", "messages that were none of this protocol",
			&c->messages_bad);
}

static const struct rank_number {
	const char *name, *type, *help, *label;
	size_t field; /* of struct engine_rank */
	double unit;
	size_t needs; /* a field: ranks where it is 0 are left out; 0: none is left out */
} rank_numbers[] = {
#define FIELD(field) offsetof(struct engine_rank, field)
#define NUMBER(name, type, help, label, field, unit, needs)                                    \
	{                                                                                      \
		name, type, help, label, FIELD(field), unit, needs                             \
	}
	NUMBER("step", "gauge", "steps a rank has ended", "", step, 1, 0),
	NUMBER("state_bytes", "gauge", "bytes of states by tier", ",tier=\"host\"", bytes_host,
	       1, 0),
	NUMBER("state_bytes", NULL, NULL, ",tier=\"swap\"", bytes_swap, 1, FIELD(pinned_bytes)),
	NUMBER("state_bytes", NULL, NULL, ",tier=\"device\"", bytes_device, 1,
	       FIELD(bytes_device)),
	NUMBER("kept_bytes_total", "counter", "copied for readers before they changed", "",
	       kept_bytes, 1, 0),
	NUMBER("held_seconds_total", "counter",
	       "of the trainer's thread, for readers, edits and freezes", "", held_ns, 1e9, 0),
	NUMBER("swap_in_bytes_total", "counter", "read from NVMe for the trainer", "",
	       swap_in_bytes, 1, FIELD(pinned_bytes)),
	NUMBER("swap_out_bytes_total", "counter", "written to NVMe", "", swap_out_bytes, 1,
	       FIELD(pinned_bytes)),
	NUMBER("swap_errors_total", "counter", "requests to NVMe that failed", "", swap_errors,
	       1, FIELD(pinned_bytes)),
	NUMBER("swap_damaged_blocks_total", "counter",
	       "of 4 KiB on NVMe that were not what was written", "", swap_damaged, 1,
	       FIELD(pinned_bytes)),
	NUMBER("pinned_bytes", "gauge", "memory that states on NVMe visit", "", pinned_bytes, 1,
	       FIELD(pinned_bytes)),
	NUMBER("pinned_lent_bytes", "gauge", "of that, in use", "", pinned_lent, 1,
	       FIELD(pinned_bytes)),
	NUMBER("arena_bytes", "gauge", "of the arena of low-precision parameters", "",
	       arena_bytes, 1, FIELD(arena_bytes)),
	NUMBER("arena_used_bytes", "gauge", "of that, in blocks", "", arena_used, 1,
	       FIELD(arena_bytes)),
	NUMBER("arena_used_max_bytes", "gauge", "most that ever were", "", arena_used_max, 1,
	       FIELD(arena_bytes)),
	NUMBER("arena_largest_bytes", "gauge", "free in one piece, to be had now", "",
	       arena_largest, 1, FIELD(arena_bytes)),
	NUMBER("arena_moved_bytes_total", "counter", "moved to make larger pieces", "",
	       arena_moved, 1, FIELD(arena_bytes)),
	NUMBER("device_from_bytes_total", "counter", "copied from memory of devices", "",
	       device_from_bytes, 1, FIELD(bytes_device)),
	NUMBER("device_to_bytes_total", "counter", "copied to memory of devices", "",
	       device_to_bytes, 1, FIELD(bytes_device)),
	NUMBER("device_kept_bytes", "gauge",
	       "of devices' memory, for what open files still need", "", device_kept, 1,
	       FIELD(bytes_device)),
	NUMBER("device_errors_total", "counter", "such copies that failed", "", device_errors,
	       1, FIELD(bytes_device)),
#undef FIELD
#undef NUMBER
};

static void put_head(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP fragfs_rank_%s %s\n# TYPE fragfs_rank_%s %s\n", name, help, name,
		type);
}

static void put_up(FILE *out, const struct engine_rank *ranks, uint32_t nranks)
{
	put_head(out, "up", "gauge", "whether a rank lives");
	for (uint32_t i = 0; i < nranks; i++)
		fprintf(out, "fragfs_rank_up{rank=\"%u\"} %d\n", i,
			ranks[i].state == ENGINE_RANK_ALIVE);
}

static uint64_t number_at(const struct engine_rank *rank, size_t field)
{
	uint64_t value;

	memcpy(&value, (const char *)rank + field, sizeof(value));
	return value;
}

static void put_rank_number(FILE *out, const struct engine_rank *ranks, uint32_t nranks,
			    const struct rank_number *n)
{
	bool headed = !n->help;

	for (uint32_t i = 0; i < nranks; i++) {
		uint64_t value = number_at(&ranks[i], n->field);

		if (n->needs && !number_at(&ranks[i], n->needs))
			continue;
		if (!headed)
			put_head(out, n->name, n->type, n->help);
		headed = true;
		fprintf(out, "fragfs_rank_%s{rank=\"%u\"%s} %.16g\n", n->name, i, n->label,
			(double)value / n->unit);
	}
}

static int put_ranks(FILE *out, struct engine *e)
{
	CLEANUP(free) struct engine_rank *ranks = all_ranks(e);

	if (!ranks)
		return -ENOMEM;
	put_up(out, ranks, e->world);
	for (unsigned n = 0; n < ARRAY_SIZE(rank_numbers); n++)
		put_rank_number(out, ranks, e->world, &rank_numbers[n]);
	return 0;
}

/* Copies the lines of that metric that have the rank's label, and no others: a rank must not
 * put what it likes into the mount's page.
 */
static void copy_lines(FILE *out, const char *text, const char *metric, uint32_t rank)
{
	char label[32];

	snprintf(label, sizeof(label), "{rank=\"%u\",", rank);
	for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
		const char *name_end = text + strcspn(text, "{\n");

		if (!strncmp(text, metric, strlen(metric)) &&
		    !strncmp(name_end, label, strlen(label)))
			fwrite(text, 1, (size_t)(end + 1 - text), out);
	}
}

/* Adds the rank's lines to the two texts.
 * -EAGAIN: the calling thread may not wait for the rank (engine_hurry).
 */
static int add_rank_phases(struct engine *e, uint32_t rank, uint64_t since, FILE *histograms,
			   FILE *last_step)
{
	CLEANUP(free) char *text = rank_query_text_since(e, rank, "phases", since);

	if (!text)
		return errno == EAGAIN ? -EAGAIN : 0;
	copy_lines(histograms, text, "fragfs_rank_phase_seconds", rank);
	copy_lines(last_step, text, "fragfs_rank_phase_last_step_seconds", rank);
	return 0;
}

static int put_phases(FILE *out, struct engine *e)
{
	CLEANUP(free) char *last = NULL;
	size_t size;
	FILE *last_step = open_memstream(&last, &size);
	uint64_t since;
	int rc = 0;

	if (!last_step)
		return -ENOMEM;
	fputs("# HELP fragfs_phase_seconds times of this mount\n"
	      "# TYPE fragfs_phase_seconds histogram\n",
	      out);
	phase_put_histograms(out, "fragfs_phase", "");
	fputs("# HELP fragfs_rank_phase_seconds times of ranks\n"
	      "# TYPE fragfs_rank_phase_seconds histogram\n",
	      out);
	since = rank_query_ask_all(e, "phases");
	for (uint32_t rank = 0; rank < e->world && !rc; rank++)
		rc = add_rank_phases(e, rank, since, out, last_step);
	if (!text_end(last_step, &last))
		return -ENOMEM;
	fprintf(out,
		"# HELP fragfs_rank_phase_last_step_seconds quantiles of a rank's last step\n"
		"# TYPE fragfs_rank_phase_last_step_seconds gauge\n%s",
		last);
	return rc;
}

static int put_metrics(struct engine *e, FILE *out)
{
	int rc;

	put_counters(out, &e->counters);
	rc = put_ranks(out, e);
	return rc ? rc : put_phases(out, e);
}

static int put_inflight(struct engine *e, FILE *out)
{
	LOCKED(&e->lock);
	remote_read_describe(e, out);
	transaction_describe(e, out);
	freezes_describe(e, out);
	return 0;
}

/* Another mount's freeze is seen by the job's phase alone. */
static int put_freeze(struct engine *e, FILE *out)
{
	struct engine_job job;

	live_job(e, &job);
	pthread_mutex_lock(&e->lock);
	freezes_tell(e, out);
	pthread_mutex_unlock(&e->lock);
	if (!ftell(out))
		fputs(strcmp(job.phase, "frozen") ? "thawed\n" : "frozen\n", out);
	return 0;
}

static int put_control(struct engine *e, FILE *out)
{
	LOCKED(&e->lock);
	freezes_tell_watch(e, out);
	if (!ftell(out))
		fputs("break off\n", out);
	return 0;
}

static int put_log(struct engine *e, FILE *out)
{
	CLEANUP(free) char *text = log_text();

	if (text)
		fputs(text, out);
	return edit_history_tell(e, out);
}

/* Puts a text of the lowest live rank.
 * -EIO: no rank lives.
 * Other errors: those of rank_query_text.
 */
static int put_of_first(struct engine *e, const char *what, FILE *out)
{
	CLEANUP(free) char *text = NULL;
	uint32_t first;

	pthread_mutex_lock(&e->lock);
	first = peers_first_live(e);
	pthread_mutex_unlock(&e->lock);
	if (first == WIRE_OBSERVER)
		return -EIO;
	text = rank_query_text(e, first, what);
	if (!text)
		return -errno;
	fputs(text, out);
	return 0;
}

/* The lowest live rank makes communicators. */
static int put_nccl(struct engine *e, FILE *out)
{
	int rc = put_of_first(e, "nccl", out);

	if (!rc)
		prefetch_describe(e, out);
	return rc;
}

/* The lowest live rank speaks for all: the marks are in the script that every rank runs. */
static int put_leaves(struct engine *e, FILE *out)
{
	fputs("leaf\tparameters\n", out);
	return put_of_first(e, "leaves", out);
}

/* A rank that does not answer within a second, or is lost, has no lines. */
static int put_readers(struct engine *e, FILE *out)
{
	uint64_t since = rank_query_ask_all(e, "readers");

	fputs(READERS_COLUMNS, out);
	for (uint32_t rank = 0; rank < e->world; rank++) {
		CLEANUP(free) char *text = rank_query_text_since(e, rank, "readers", since);

		if (!text && errno == EAGAIN)
			return -EAGAIN;
		fputs(text ? text : "", out);
	}
	return 0;
}

static int put_comms(struct engine *e, FILE *out)
{
	CLEANUP(free) char *text = comms_text(e->comms);

	if (!text)
		return -ENOMEM;
	fputs(text, out);
	return 0;
}

static const struct {
	const char *what;
	int (*put)(struct engine *e, FILE *out);
} texts[] = {
	{ "config", put_config },     { "health", put_health }, { "metrics", put_metrics },
	{ "inflight", put_inflight }, { "freeze", put_freeze }, { "control", put_control },
	{ "nccl", put_nccl },         { "comms", put_comms },   { "log", put_log },
	{ "place", place_order_put }, { "leaves", put_leaves }, { "readers", put_readers },
};

char *live_text(struct engine *e, const char *what)
{
	char *text = NULL;
	unsigned i = 0;
	size_t size;
	FILE *out;
	int rc;

	while (i < ARRAY_SIZE(texts) && strcmp(what, texts[i].what) != 0)
		i++;
	out = i < ARRAY_SIZE(texts) ? open_memstream(&text, &size) : NULL;
	if (!out)
		return NULL;
	rc = texts[i].put(e, out);
	if (!text_end(out, &text))
		rc = -ENOMEM;
	if (!rc)
		return text;
	free(text);
	errno = -rc;
	return NULL;
}
