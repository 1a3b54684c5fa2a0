/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/one-line.h"
#include "mount-helpers/commands.h"
#include "mount-helpers/status.h"
#include "mount-helpers/listing.h"

#include <inttypes.h>

enum { MOMENT_MS = 2000 };

static const char *state_name(const struct engine_rank *r)
{
	switch (r->state) {
	case ENGINE_RANK_ALIVE:
		return "alive";
	case ENGINE_RANK_LOST:
		return "lost";
	case ENGINE_RANK_LEFT:
		return "left";
	default:
		return "unknown";
	}
}

static uint32_t count_alive(const struct status *s)
{
	uint32_t n = 0;

	for (uint32_t rank = 0; rank < s->nranks; rank++)
		n += s->ranks[rank].state == ENGINE_RANK_ALIVE;
	return n;
}

struct tiers {
	uint64_t host, swap, device;
};

static struct tiers sum_bytes(const struct status *s)
{
	struct tiers sum = { 0 };

	for (uint32_t rank = 0; rank < s->nranks; rank++) {
		sum.host += s->ranks[rank].bytes_host;
		sum.swap += s->ranks[rank].bytes_swap;
		sum.device += s->ranks[rank].bytes_device;
	}
	return sum;
}

/* Counts errors of the disk and damaged blocks. */
static struct swap_faults {
	uint64_t errors, damaged;
} sum_faults(const struct status *s)
{
	struct swap_faults sum = { 0 };

	for (uint32_t rank = 0; rank < s->nranks; rank++) {
		sum.errors += s->ranks[rank].swap_errors;
		sum.damaged += s->ranks[rank].swap_damaged;
	}
	return sum;
}

/* ---- for people ---- */

static void put_faults(struct swap_faults f, const char *before, FILE *to)
{
	if (f.errors)
		fprintf(to, "%s%" PRIu64 " disk error%s", before, f.errors,
			f.errors == 1 ? "" : "s");
	if (f.damaged)
		fprintf(to, "%s%" PRIu64 " damaged block%s", f.errors ? ", " : before,
			f.damaged, f.damaged == 1 ? "" : "s");
}

static bool is_silent(const struct engine_rank *r)
{
	return r->state == ENGINE_RANK_ALIVE && r->silent_ms >= MOMENT_MS;
}

/* Returns true if the mount has seen the rank's control page, which has the phase. */
static bool is_seen(const struct engine_rank *r)
{
	return r->phase && strcmp(r->phase, "-") != 0;
}

enum {
	COLUMN_MOUNT,
	COLUMN_RANK,
	COLUMN_HOST,
	COLUMN_PID,
	COLUMN_STATE,
	COLUMN_WAY,
	COLUMN_STEP,
	COLUMN_PHASE,
	COLUMN_BYTES,
	COLUMN_NOTE
};

const struct listing_column status_columns[] = {
	[COLUMN_MOUNT] = { "mount", LISTING_TEXT, true },
	[COLUMN_RANK] = { "rank", LISTING_NUMBER },
	[COLUMN_HOST] = { "host", LISTING_TEXT },
	[COLUMN_PID] = { "pid", LISTING_NUMBER },
	[COLUMN_STATE] = { "state", LISTING_TEXT },
	[COLUMN_WAY] = { "way", LISTING_TEXT },
	[COLUMN_STEP] = { "step", LISTING_NUMBER },
	[COLUMN_PHASE] = { "phase", LISTING_TEXT },
	[COLUMN_BYTES] = { "bytes", LISTING_BYTES },
	[COLUMN_NOTE] = { "note", LISTING_TEXT },
	{ NULL },
};

/* Adds a note of what is wrong with a rank, or "". */
static void add_note(struct listing *t, const struct engine_rank *r)
{
	const char *separator = "";
	char *note = NULL;
	size_t size;
	FILE *to = open_memstream(&note, &size);

	if (!to)
		return;
	if (r->swap_errors || r->swap_damaged) {
		put_faults((struct swap_faults){ r->swap_errors, r->swap_damaged }, "", to);
		separator = "  ";
	}
	if (is_silent(r)) {
		fprintf(to, "%ssilent for %" PRIu64 " s", separator, r->silent_ms / 1000);
		separator = "  ";
	}
	if (r->why[0])
		fprintf(to, "%s%s", separator, r->why);
	fclose(to);
	if (note)
		listing_text(t, COLUMN_NOTE, note);
	free(note);
}

static void add_rank(struct listing *t, const struct status *s, uint32_t rank)
{
	const struct engine_rank *r = &s->ranks[rank];

	listing_row(t);
	listing_text(t, COLUMN_MOUNT, s->mountpoint ? s->mountpoint : s->source);
	listing_number(t, COLUMN_RANK, rank);
	if (r->host[0])
		listing_text(t, COLUMN_HOST, r->host);
	listing_number(t, COLUMN_PID, (uint64_t)r->pid);
	listing_text(t, COLUMN_STATE, state_name(r));
	if (r->way)
		listing_text(t, COLUMN_WAY, r->way);
	if (is_seen(r))
		listing_number(t, COLUMN_STEP, r->step);
	if (r->phase)
		listing_text(t, COLUMN_PHASE, r->phase);
	listing_number(t, COLUMN_BYTES, r->bytes_host + r->bytes_swap + r->bytes_device);
	add_note(t, r);
}

static void print_tier(const char *name, uint64_t bytes, FILE *to)
{
	char text[16];

	if (bytes)
		fprintf(to, ", %s %s", name, listing_size(bytes, text));
}

/* Finds the live ranks that are the furthest behind and ahead.  False: all are at one boundary,
 * or a rank has passed a boundary a moment ago.
 */
static bool find_apart(const struct status *s, uint32_t *behind, uint32_t *ahead)
{
	const struct engine_rank *r = s->ranks;

	*behind = *ahead = s->nranks;
	for (uint32_t rank = 0; rank < s->nranks; rank++) {
		if (r[rank].state != ENGINE_RANK_ALIVE || !is_seen(&r[rank]))
			continue;
		if (r[rank].boundary_ms < MOMENT_MS)
			return false;
		if (*behind == s->nranks || r[rank].boundary < r[*behind].boundary)
			*behind = rank;
		if (*ahead == s->nranks || r[rank].boundary > r[*ahead].boundary)
			*ahead = rank;
	}
	return *behind < s->nranks && r[*behind].boundary != r[*ahead].boundary;
}

static void print_stands(uint32_t rank, const struct engine_rank *r, FILE *to)
{
	fprintf(to, "rank %" PRIu32 " at boundary %" PRIu64 " for %" PRIu64 " s", rank,
		r->boundary, r->boundary_ms / 1000);
}

static void print_waits(const struct status *s, FILE *to)
{
	uint32_t behind, ahead;

	if (find_apart(s, &behind, &ahead)) {
		fputs("no rank gets on: ", to);
		print_stands(behind, &s->ranks[behind], to);
		fputs(", ", to);
		print_stands(ahead, &s->ranks[ahead], to);
		fputc('\n', to);
	}
	if (s->waiting)
		fprintf(to, "%" PRIu64 " read%s for ranks that are behind or silent: %s\n",
			s->nwaiting, s->nwaiting == 1 ? " waits" : "s wait", s->waiting);
	if (s->editing)
		fprintf(to, "%" PRIu64 " edit%s for ranks or their boundary: %s\n", s->nediting,
			s->nediting == 1 ? " waits" : "s wait", s->editing);
}

static void print_summary(const struct status *s)
{
	struct tiers sum = sum_bytes(s);
	char bytes[16];

	if (s->mountpoint)
		printf("%s: ", s->mountpoint);
	printf("%s%s%s\n", s->source, s->job[0] ? ", job " : "", s->job);
	printf("world %" PRIu32 " (%" PRIu32 " alive), step %" PRIu64 ", generation %" PRIu64
	       ", phase %s, %" PRIu64 " params, host %s",
	       s->nranks, count_alive(s), s->step, s->generation, s->phase, s->nparams,
	       listing_size(sum.host, bytes));
	print_tier("NVMe", sum.swap, stdout);
	print_tier("devices", sum.device, stdout);
	put_faults(sum_faults(s), ", ", stdout);
	putchar('\n');
}

int status_print(const struct status *s, const struct call *call)
{
	struct listing t;
	int rc = listing_init(&t, call, status_columns);

	if (rc)
		return rc;
	if (!call_has(call, 'H'))
		print_summary(s);
	for (uint32_t rank = 0; rank < s->nranks; rank++)
		add_rank(&t, s, rank);
	rc = listing_print(&t, "ranks");
	listing_fini(&t);
	if (!call_has(call, 'H'))
		print_waits(s, stdout);
	return rc;
}

/* ---- for programs ---- */

static json_t *tiers_json(struct tiers t)
{
	return json_pack("{s:I s:I s:I}", "host", (json_int_t)t.host, "swap",
			 (json_int_t)t.swap, "device", (json_int_t)t.device);
}

static json_t *rank_json(uint32_t rank, const struct engine_rank *r)
{
	return json_pack(
		"{s:I s:o s:o s:I s:s s:o s:I s:I s:s s:I s:I s:I s:I s:s s:I s:I s:b s:o}",
		"rank", (json_int_t)rank, "host", one_line_json(r->host), "address",
		one_line_json(r->address), "pid", (json_int_t)r->pid, "state", state_name(r),
		"why", one_line_json(r->why), "since_ms", (json_int_t)r->since_ms, "silent_ms",
		(json_int_t)r->silent_ms, "way", r->way ? r->way : "-", "step",
		(json_int_t)r->step, "generation", (json_int_t)r->generation, "boundary",
		(json_int_t)r->boundary, "boundary_ms", (json_int_t)r->boundary_ms, "phase",
		r->phase ? r->phase : "-", "swap_errors", (json_int_t)r->swap_errors,
		"swap_damaged", (json_int_t)r->swap_damaged, "fabric", r->fabric, "bytes",
		tiers_json((struct tiers){ r->bytes_host, r->bytes_swap, r->bytes_device }));
}

json_t *status_json(const struct status *s)
{
	json_t *ranks = json_array();

	for (uint32_t rank = 0; rank < s->nranks; rank++) {
		if (json_array_append_new(ranks, rank_json(rank, &s->ranks[rank]))) {
			json_decref(ranks);
			return NULL;
		}
	}
	return json_pack("{s:o s:o s:o s:I s:I s:I s:I s:s s:I s:I s:I s:I s:I s:o s:o}",
			 "mountpoint",
			 s->mountpoint ? one_line_json(s->mountpoint) : json_null(), "source",
			 one_line_json(s->source), "job", one_line_json(s->job), "world",
			 (json_int_t)s->nranks, "alive", (json_int_t)count_alive(s), "step",
			 (json_int_t)s->step, "generation", (json_int_t)s->generation, "phase",
			 s->phase, "params", (json_int_t)s->nparams, "swap_errors",
			 (json_int_t)sum_faults(s).errors, "swap_damaged",
			 (json_int_t)sum_faults(s).damaged, "waiting", (json_int_t)s->nwaiting,
			 "waiting_edits", (json_int_t)s->nediting, "bytes",
			 tiers_json(sum_bytes(s)), "ranks", ranks);
}
