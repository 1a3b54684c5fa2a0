/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/stat-text.h"

#include "engine/base/element.h"
#include "engine/base/text.h"
#include "fs/hyper.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

bool stat_text_needs_bins(enum stat_id id)
{
	return id == STAT_HIST;
}

/* ---- the place of an element ---- */

struct element_place { /* in a rank's partition, or in a file of a checkpoint */
	uint64_t element;
	uint32_t ndim;
	const uint64_t *shape;
	bool found;
	struct engine_fragment fragment; /* the first that has the element */
	uint64_t offset;                 /* elements from the fragment's beginning */
};

/* Returns true if the element lies in the box; *offset is its number there. */
static bool is_in_box(const struct element_place *p, const uint64_t *box, uint64_t *offset)
{
	uint64_t rest = p->element, stride = 1;
	bool inside = true;

	*offset = 0;
	for (uint32_t d = p->ndim; d-- > 0; rest /= p->shape[d]) {
		uint64_t at = rest % p->shape[d];

		inside &= at >= box[d] && at - box[d] < box[p->ndim + d];
		*offset += (at - box[d]) * stride;
		stride *= box[p->ndim + d];
	}
	return inside;
}

static void look(void *arg, const struct engine_fragment *f)
{
	struct element_place *p = arg;
	uint64_t offset = p->element - f->param_offset;

	if (p->found)
		return;
	p->found = f->box ? is_in_box(p, f->box, &offset)
			  : p->element >= f->param_offset && offset < f->numel;
	p->fragment = *f;
	p->offset = offset;
}

/* Prints the indices of an element of a state with `count` elements, as elem/ takes them:
 * "12,7".  A state with other elements than the parameter's, such as a step, is a number, or a
 * row of numbers.
 */
static void put_indices(FILE *out, const struct engine_param *p, uint64_t count,
			uint64_t element)
{
	const uint64_t *shape = count == p->numel ? p->shape : &count;
	uint32_t ndim = count == p->numel ? p->ndim : count != 1;
	uint64_t stride = count;

	if (!ndim)
		fputs("()", out);
	for (uint32_t d = 0; d < ndim; d++) {
		stride /= shape[d];
		fprintf(out, "%s%" PRIu64, d ? "," : "", element / stride);
		element %= stride;
	}
}

static void find_place(struct tree *t, struct node n, uint64_t element,
		       struct element_place *place)
{
	struct engine_param p;

	*place = (struct element_place){ .element = element };
	if (element == STATS_NONE || !engine_param(t->engine, n.item, &p))
		return;
	place->ndim = p.ndim;
	place->shape = p.shape;
	engine_fragments(t->engine, n.item, tree_key(t, n), look, place);
}

static void put_place(FILE *out, const struct element_place *p, const char *rank)
{
	const struct engine_fragment *f = &p->fragment;

	if (f->file)
		fprintf(out, "\t%s%u\t%s\t%" PRIu64, rank, f->rank, f->file,
			f->base + p->offset * f->element);
	else
		fprintf(out, "\t%s%u\t%u.%u\t%" PRIu64, rank, f->rank, f->group, f->sub,
			f->partition_offset + p->offset);
}

void stat_text_put_place(FILE *out, struct tree *t, struct node n, uint64_t element)
{
	struct element_place place;

	find_place(t, n, element, &place);
	if (place.found)
		put_place(out, &place, "");
	else
		fputs("\t-\t-\t-", out);
}

/* Prints an element's indices, number and rank, and, as in `fragments`, its partition with its
 * number there, or its file of a checkpoint with its byte there.
 */
static void put_element(FILE *out, struct tree *t, struct node n, uint64_t count,
			uint64_t element)
{
	struct element_place place;
	struct engine_param p;

	if (element == STATS_NONE || !engine_param(t->engine, n.item, &p)) {
		fputs("none\n", out);
		return;
	}
	find_place(t, n, element, &place);
	put_indices(out, &p, count, element);
	fprintf(out, "\t%" PRIu64, element);
	if (place.found)
		put_place(out, &place, "rank ");
	fputc('\n', out);
}

/* ---- the files ---- */

static double number_of(const struct stats *s, enum stat_id id)
{
	switch (id) {
	case STAT_NORM:
		return stats_norm(s);
	case STAT_MEAN:
		return stats_mean(s);
	case STAT_STD:
		return stats_deviation(s);
	case STAT_MIN:
		return s->min;
	case STAT_MAX:
		return s->max;
	default:
		return stats_absmax(s);
	}
}

static uint64_t count_of(const struct stats *s, enum stat_id id)
{
	return id == STAT_NAN ? s->nan : id == STAT_INF ? s->inf : s->zero;
}

static void put_bins(FILE *out, const struct stats *s)
{
	fprintf(out, "0\t%" PRIu64 "\n", s->zero);
	for (int i = 0; i < STATS_BINS; i++)
		if (s->bins[i])
			fprintf(out, "2^%d\t%" PRIu64 "\n", STATS_EXPONENT_MIN + i, s->bins[i]);
}

/* Prints a number as JSON has it; NaN and infinities are null. */
static void put_json_number(FILE *out, const char *name, double value)
{
	char text[ELEMENT_TEXT_MAX];

	element_format(FRAG_F64, &value, text);
	fprintf(out, ", \"%s\": %s", name, isfinite(value) ? text : "null");
}

static void put_json_element(FILE *out, const char *name, uint64_t element)
{
	if (element == STATS_NONE)
		fprintf(out, ", \"%s\": null", name);
	else
		fprintf(out, ", \"%s\": %" PRIu64, name, element);
}

static void put_all(FILE *out, const struct stats *s)
{
	fprintf(out,
		"{\"count\": %" PRIu64 ", \"nan\": %" PRIu64 ", \"inf\": %" PRIu64
		", \"zero\": %" PRIu64,
		s->count, s->nan, s->inf, s->zero);
	put_json_number(out, "norm", stats_norm(s));
	put_json_number(out, "mean", stats_mean(s));
	put_json_number(out, "std", stats_deviation(s));
	put_json_number(out, "min", s->min);
	put_json_number(out, "max", s->max);
	put_json_number(out, "absmax", stats_absmax(s));
	put_json_element(out, "first_nan", s->first_nan);
	put_json_element(out, "first_inf", s->first_inf);
	fputs("}\n", out);
}

char *stat_text_build(struct tree *t, struct node n, const struct stats *s)
{
	char *text = NULL, number[HYPER_TEXT_MAX];
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	switch (n.stat) {
	case STAT_NAN:
	case STAT_INF:
	case STAT_ZERO:
		fprintf(out, "%" PRIu64 "\n", count_of(s, n.stat));
		break;
	case STAT_FIRST_NAN:
		put_element(out, t, n, s->count, s->first_nan);
		break;
	case STAT_FIRST_INF:
		put_element(out, t, n, s->count, s->first_inf);
		break;
	case STAT_HIST:
		put_bins(out, s);
		break;
	case STAT_ALL:
		put_all(out, s);
		break;
	default:
		hyper_format(number_of(s, n.stat), number);
		fputs(number, out);
		break;
	}
	return text_end(out, &text);
}

char *stat_text_hash(uint64_t hash)
{
	char *text;

	return asprintf(&text, "%016" PRIx64 "\n", hash) < 0 ? NULL : text;
}
