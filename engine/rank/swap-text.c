/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/rank/swap-text.h"

#include "engine/base/one-line.h"
#include "engine/base/text.h"
#include "engine/swap/swapper.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *yes(bool it_is)
{
	return it_is ? "yes" : "no";
}

static void put(FILE *out, const char *name, uint64_t value)
{
	fprintf(out, "%s %" PRIu64 "\n", name, value);
}

static void put_error(FILE *out, int error)
{
	fprintf(out, "last_error %s\n", error ? strerror(-error) : "none");
}

static void put_totals(FILE *out, const struct swapper_figures *f)
{
	fprintf(out, "disk %s\nregistered %s\ndirect %s\n", f->disk, yes(f->registered),
		yes(f->file.direct));
	put(out, "request_bytes", f->chunk);
	put(out, "requests_at_once", f->depth);
	put(out, "disk_threads", f->threads);
	put(out, "least_bytes", f->least);
	fprintf(out, "read_ahead %s\nwritten_behind %s\n", yes(f->ahead), yes(f->behind));
	put(out, "states", f->states);
	put(out, "state_bytes", f->bytes);
	put(out, "slice_bytes", f->slice);
	put(out, "small_bytes", f->small);
	put(out, "file_bytes", f->file.file_bytes);
	put(out, "extent_bytes", f->file.extent_bytes);
	put(out, "extent_bytes_max", f->file.extent_bytes_max);
	put(out, "extent_bytes_limit", f->file.extent_bytes_limit);
	put(out, "slices_being_written", f->writing);
	put(out, "spare_bytes", f->spare);
	put(out, "spare_bytes_max", f->spare_max);
	put(out, "spare_bytes_limit", f->spare_limit);
	put(out, "holds", f->pins);
	put(out, "holds_given_up", f->evicted);
	put(out, "reads", f->reads);
	put(out, "read_bytes", f->read_bytes);
	put(out, "edits", f->edits);
	put(out, "patches", f->patches);
	put(out, "puts", f->puts);
	put(out, "publishes", f->publishes);
}

/* Writes the counters of the disk. */
static void put_disk(FILE *out, const struct swap_counters *c)
{
	put(out, "disk_reads", c->reads);
	put(out, "disk_read_bytes", c->read_bytes);
	put(out, "disk_writes", c->writes);
	put(out, "disk_written_bytes", c->written_bytes);
	put(out, "disk_short_requests", c->short_requests);
	put(out, "disk_errors", c->errors);
	put(out, "damaged_blocks", c->damaged_blocks);
}

static uint64_t rate(const struct swapper_timer *t)
{
	return t->busy_ns ? (uint64_t)((double)t->bytes * 1e9 / (double)t->busy_ns) : 0;
}

static void put_timer(FILE *out, const struct swapper_figures *f, enum swapper_kind kind,
		      enum swapper_timed timed)
{
	const struct swapper_timer *t = &f->timers[kind][timed];
	const struct swapper_timer *step = &f->last_step[kind][timed];
	const char *name = swapper_timer_name(kind, timed, f->ahead || f->behind);

	if (t->count && name)
		fprintf(out,
			"%s\t%" PRIu64 "\t%" PRIu64 "\t%.6f\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64
			"\t%.6f\n",
			name, t->count, t->bytes, (double)t->ns / 1e9, rate(t), step->count,
			step->bytes, (double)step->ns / 1e9);
}

static void put_timers(FILE *out, const struct swapper_figures *f)
{
	fprintf(out, "\ntimer\tcount\tbytes\tseconds\tbytes_per_second\tstep_count\t"
		     "step_bytes\tstep_seconds\n");
	for (int kind = 0; kind < SWAPPER_KINDS; kind++)
		for (int timed = 0; timed < SWAPPER_TIMED; timed++)
			put_timer(out, f, (enum swapper_kind)kind, (enum swapper_timed)timed);
}

static void put_figures(FILE *out, const struct swapper_state_figures *f)
{
	fprintf(out,
		"\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64
		"\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%s\n",
		f->bytes, f->disk, f->memory, f->zeros, f->lost, f->lent, f->reads, f->writes,
		f->errors, f->damaged, f->error ? strerror(-f->error) : "none");
}

/* Reduces figures of a buffer to those of a state in it.  Reads, writes, errors and damaged
 * reads stay those of the buffer.
 */
static void cut(struct swapper_state_figures *f, uint64_t bytes)
{
	f->bytes = bytes;
	f->disk = u64_min(f->disk, bytes);
	f->memory = u64_min(f->memory, bytes);
	f->zeros = u64_min(f->zeros, bytes);
	f->lost = u64_min(f->lost, bytes);
	f->lent = u64_min(f->lent, bytes);
}

static void put_row(FILE *out, struct swapper *p, const struct catalog *own,
		    const struct state_row *row)
{
	uint64_t bytes = states_row_whole(row);
	struct swapper_state_figures f = { .bytes = bytes, .memory = bytes };

	if (row->swap_state)
		swapper_state_figures(p, row->swap_state, &f);
	if (row->kind == STATE_PARTITION) {
		fprintf(out, "%u.%u\t", row->index, row->sub);
		one_line_put(out, row->key);
	} else {
		cut(&f, bytes);
		one_line_put(out, catalog_name(own, row->index));
		fputs("\tlp", out);
	}
	put_figures(out, &f);
}

static void put_states(FILE *out, struct registry *r, const struct catalog *own)
{
	fprintf(out, "\npartition\tstate\tbytes\tdisk\tmemory\tzeros\tlost\tlent\treads\t"
		     "writes\terrors\tdamaged\tlast_error\n");
	pthread_mutex_lock(&r->lock);
	for (uint32_t i = 0; i < r->states.nrows; i++)
		if (r->states.rows[i].swap_state || r->states.rows[i].stays)
			put_row(out, r->swapper, own, &r->states.rows[i]);
	pthread_mutex_unlock(&r->lock);
}

char *swap_text_states(struct registry *r, const struct catalog *own)
{
	struct swapper_figures f;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	swapper_figures(r->swapper, &f);
	put_totals(out, &f);
	put_disk(out, &f.file);
	put(out, "errors", f.errors);
	put(out, "damaged_reads", f.damaged);
	put_error(out, f.error);
	put_timers(out, &f);
	put_states(out, r, own);
	return text_end(out, &text);
}

/* ---- names of a state's bytes ---- */

struct params_found { /* n parameters, of which `param` begins first, at `at` */
	uint32_t n, param;
	uint64_t at;
};

static void note_param(struct params_found *f, uint32_t param, uint64_t at)
{
	if (!f->n++ || at < f->at) {
		f->param = param;
		f->at = at;
	}
}

static bool overlap(uint64_t a, uint64_t a_end, uint64_t b, uint64_t b_end)
{
	return a < b_end && b < a_end;
}

/* Finds the parameters with bytes in [from, to) of a partition's row. */
static void find_fragments(struct params_found *f, const struct catalog *own, uint32_t rank,
			   const struct state_row *row, uint64_t from, uint64_t to)
{
	const struct catalog_group *g = &own->groups[row->index];
	uint64_t element = frag_dtype_size(row->dtype);
	uint32_t shard = catalog_member(g, rank) % catalog_shards(g);
	struct layout_fragment at;

	for (uint32_t i = 0; i < g->nparams; i++)
		if (layout_on_shard(&g->layout, i, shard, &at) && at.sub == row->sub &&
		    overlap(from, to, at.partition_offset * element,
			    (at.partition_offset + at.numel) * element))
			note_param(f, g->params[i], at.partition_offset);
}

static void put_found(FILE *out, const struct params_found *f, const struct catalog *own)
{
	one_line_put(out, f->n ? catalog_name(own, f->param) : "padding");
	if (f->n > 1)
		fprintf(out, " and %u more", f->n - 1);
}

static void put_range(FILE *out, struct registry *r, const struct catalog *own, uint32_t rank,
		      const struct swapper_state *s, uint64_t from, uint64_t to)
{
	const struct state_row *partition = NULL;
	struct params_found f = { 0 };

	for (uint32_t i = 0; i < r->states.nrows; i++) {
		const struct state_row *row = &r->states.rows[i];

		if (row->swap_state != s)
			continue;
		if (row->kind == STATE_PARTITION)
			partition = row;
		else if (overlap(from, to, row->swap_at, row->swap_at + states_row_whole(row)))
			note_param(&f, row->index, row->swap_at);
	}
	if (partition)
		find_fragments(&f, own, rank, partition, from, to);
	fprintf(out, "%s of ", partition ? partition->key : "lp");
	put_found(out, &f, own);
	if (partition)
		fprintf(out, " (group %u, sub-group %u)", partition->index, partition->sub);
}

void swap_text_range(struct registry *r, const struct catalog *own, uint32_t rank,
		     const struct swapper_state *s, uint64_t from, uint64_t to, char *text,
		     size_t size)
{
	FILE *out = fmemopen(text, size, "w");

	if (!out)
		return;
	pthread_mutex_lock(&r->lock);
	put_range(out, r, own, rank, s, from, to);
	pthread_mutex_unlock(&r->lock);
	fclose(out);
}

/* ---- buffers ---- */

char *swap_text_pinned(struct registry *r)
{
	static const char *const pages[] = { "4096", "huge", "hugetlb" };
	struct swapper_figures f;
	char *text = NULL;
	bool on_devices;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	swapper_figures(r->swapper, &f);
	put(out, "buffer_bytes", f.pinned.size);
	put(out, "buffers", f.pinned.count);
	put(out, "lent", f.pinned.lent);
	put(out, "lent_max", f.pinned.lent_max);
	put(out, "gets", f.pinned.gets);
	put(out, "waits", f.pinned.waits);
	put(out, "refusals", f.pinned.refusals);
	pthread_mutex_lock(&r->lock);
	on_devices = r->buffers_on_devices;
	pthread_mutex_unlock(&r->lock);
	fprintf(out, "pages %s\nlocked %s\npinned_by_devices %s\n", pages[f.pinned.pages],
		yes(f.pinned.locked), yes(on_devices));
	return text_end(out, &text);
}

size_t swap_text_lines(const char *text, size_t most)
{
	size_t size = strlen(text);

	if (size <= most)
		return size;
	for (size = most; size && text[size - 1] != '\n';)
		size--;
	return size;
}
