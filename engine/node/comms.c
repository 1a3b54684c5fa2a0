/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/histogram.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/node/comms.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

static const char *const names[COMMS_OPS] = {
	[COMMS_READ] = "read",   [COMMS_ONESIDED] = "onesided", [COMMS_VIEW] = "view",
	[COMMS_STATS] = "stats", [COMMS_STAGE] = "stage",       [COMMS_COMMIT] = "commit",
	[COMMS_APPLY] = "apply", [COMMS_PREPARE] = "prepare",   [COMMS_ROUND] = "round",
};

struct row {
	enum comms_op op;
	unsigned class; /* 0: no bytes; else bytes in [1 << (class - 1), 1 << class) */
	const char *caller;
	uint64_t bytes;
	double bus_bytes; /* bytes * (n - 1) / n */
	struct histogram ns;
};

struct behind {
	uint64_t count, total_ns, max_ns;
};

struct comms {
	pthread_mutex_t lock;
	struct row *rows[COMMS_ROWS]; /* in the order of compare() */
	unsigned nrows;
	uint64_t left_out;
	struct behind *ranks;
	uint32_t nranks;
};

struct comms *comms_new(void)
{
	const char *text = env_text("FRAG_COMMS");
	struct comms *c;

	if (text && strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
		log_warn("FRAG_COMMS=%s is neither 0 nor 1", text);
	if (!text || strcmp(text, "1") != 0)
		return NULL;
	c = calloc(1, sizeof(*c));
	if (c)
		pthread_mutex_init(&c->lock, NULL);
	else
		log_warn("FRAG_COMMS: no memory");
	return c;
}

void comms_free(struct comms *c)
{
	if (!c)
		return;
	for (unsigned i = 0; i < c->nrows; i++)
		free(c->rows[i]);
	free(c->ranks);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static int compare(const struct row *r, enum comms_op op, unsigned class, const char *caller)
{
	if (r->op != op)
		return r->op < op ? -1 : 1;
	if (r->class != class)
		return r->class < class ? -1 : 1;
	return strcmp(r->caller, caller);
}

/* Returns the row, which it adds if there is none; NULL: no room, or no memory. */
static struct row *find_or_add(struct comms *c, enum comms_op op, unsigned class,
			       const char *caller)
{
	uint64_t at = LOWER_BOUND(c->nrows, i, compare(c->rows[i], op, class, caller) < 0);
	struct row *row;

	if (at < c->nrows && !compare(c->rows[at], op, class, caller))
		return c->rows[at];
	row = c->nrows < COMMS_ROWS ? calloc(1, sizeof(*row)) : NULL;
	if (!row)
		return NULL;
	*row = (struct row){ .op = op, .class = class, .caller = caller };
	memmove(c->rows + at + 1, c->rows + at, (c->nrows++ - at) * sizeof(struct row *));
	c->rows[at] = row;
	return row;
}

void comms_count(struct comms *c, enum comms_op op, unsigned nranks, uint64_t bytes,
		 uint64_t ns, const char *caller)
{
	unsigned class = bytes ? 64 - (unsigned)__builtin_clzll(bytes) : 0;
	struct row *row;

	pthread_mutex_lock(&c->lock);
	row = find_or_add(c, op, class, caller);
	if (row) {
		row->bytes += bytes;
		row->bus_bytes += (double)bytes * (nranks > 1 ? (nranks - 1.0) / nranks : 1);
		histogram_add(&row->ns, ns);
	}
	c->left_out += !row;
	pthread_mutex_unlock(&c->lock);
}

void comms_behind(struct comms *c, uint32_t rank, uint64_t ns)
{
	pthread_mutex_lock(&c->lock);
	if (rank >= c->nranks) {
		struct behind *ranks = realloc(c->ranks, (rank + 1) * sizeof(*ranks));

		if (ranks) {
			memset(ranks + c->nranks, 0, (rank + 1 - c->nranks) * sizeof(*ranks));
			c->ranks = ranks;
			c->nranks = rank + 1;
		}
	}
	if (rank < c->nranks) {
		struct behind *b = &c->ranks[rank];

		b->count++;
		b->total_ns += ns;
		b->max_ns = u64_max(b->max_ns, ns);
	}
	pthread_mutex_unlock(&c->lock);
}

static double microseconds(const struct row *r, double quantile)
{
	return (double)histogram_quantile(&r->ns, quantile) / 1e3;
}

static double gigabits(double bytes, uint64_t ns)
{
	return ns ? bytes * 8 / (double)ns : 0;
}

static void tell_row(const struct row *r, FILE *out)
{
	fprintf(out,
		"%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64
		"\t%.3f\t%.3f\t%.3f\t%.3f\t%.6g\t%.6g\t%s\n",
		names[r->op], r->class ? UINT64_C(1) << (r->class - 1) : 0, r->ns.count,
		r->bytes, microseconds(r, 0), microseconds(r, 0.5), microseconds(r, 0.99),
		microseconds(r, 1), gigabits((double)r->bytes, r->ns.sum),
		gigabits(r->bus_bytes, r->ns.sum), r->caller);
}

static void tell(const struct comms *c, FILE *out)
{
	fputs("op\tsize\tcount\tbytes\tmin_us\tp50_us\tp99_us\tmax_us\talgbw_gbps\tbusbw_gbps"
	      "\tcaller\n",
	      out);
	for (unsigned i = 0; i < c->nrows; i++)
		tell_row(c->rows[i], out);
	if (c->left_out)
		fprintf(out, "others\t0\t%" PRIu64 "\n", c->left_out);
	fputs("\nrank\tcount\tbehind_us\tbehind_max_us\n", out);
	for (uint32_t i = 0; i < c->nranks; i++)
		if (c->ranks[i].count)
			fprintf(out, "%u\t%" PRIu64 "\t%.3f\t%.3f\n", i, c->ranks[i].count,
				(double)c->ranks[i].total_ns / (double)c->ranks[i].count / 1e3,
				(double)c->ranks[i].max_ns / 1e3);
}

char *comms_text(struct comms *c)
{
	char *text = NULL;
	size_t size;
	FILE *out = c ? open_memstream(&text, &size) : NULL;

	if (!out)
		return c ? NULL : strdup("off\n");
	pthread_mutex_lock(&c->lock);
	tell(c, out);
	pthread_mutex_unlock(&c->lock);
	return text_end(out, &text);
}
