/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/slice.h"

#include <errno.h>

enum item_kind { ITEM_INDEX, ITEM_RANGE, ITEM_ELLIPSIS };

struct slice_item {
	enum item_kind kind;
	bool has_start, has_stop;
	int64_t start, stop, step; /* start: of an ITEM_INDEX, the index */
};

static const char *skip_spaces(const char *c)
{
	while (*c == ' ')
		c++;
	return c;
}

/* Reads an integer, if there is one.  An integer that is too large becomes +-INT64_MAX, which
 * is beyond the end of any array too.
 */
static bool take_integer(const char **at, int64_t *value)
{
	const char *c = skip_spaces(*at);
	bool is_negative = *c == '-';
	int64_t n = 0;

	c += *c == '-' || *c == '+';
	if (*c < '0' || *c > '9')
		return false;
	for (; *c >= '0' && *c <= '9'; c++) {
		if (__builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, *c - '0', &n))
			n = INT64_MAX;
	}
	*value = is_negative ? -n : n;
	*at = c;
	return true;
}

static bool take_word(const char **at, const char *word)
{
	const char *c = skip_spaces(*at);

	if (strncmp(c, word, strlen(word)) != 0)
		return false;
	*at = c + strlen(word);
	return true;
}

static bool take_item(const char **at, struct slice_item *item)
{
	*item = (struct slice_item){ .kind = ITEM_ELLIPSIS, .step = 1 };
	if (take_word(at, "..."))
		return true;
	item->has_start = take_integer(at, &item->start);
	item->kind = take_word(at, ":") ? ITEM_RANGE : ITEM_INDEX;
	if (item->kind == ITEM_INDEX)
		return item->has_start;
	item->has_stop = take_integer(at, &item->stop);
	if (take_word(at, ":") && take_integer(at, &item->step))
		return item->step;
	return true;
}

/* Parses the brackets and the items in them, at most FRAG_DIMS_MAX and an ellipsis.  Returns
 * how many items they are.
 */
static int take_items(const char **at, struct slice_item items[FRAG_DIMS_MAX + 1])
{
	int n = 0;

	if (*(*at)++ != '[')
		return -EINVAL;
	if (take_word(at, "()"))
		return take_word(at, "]") ? 0 : -EINVAL;
	do {
		if (n && take_word(at, "]"))
			return n; /* behind a last comma */
		if (n > FRAG_DIMS_MAX)
			return -ERANGE;
		if (!take_item(at, &items[n++]))
			return -EINVAL;
	} while (take_word(at, ","));
	return take_word(at, "]") ? n : -EINVAL;
}

/* Returns an end of a range as Python does: negative ones count from the end, and all are moved
 * into the axis, [0, size], or for negative steps [-1, size - 1].
 */
static int64_t clamp(int64_t end, int64_t size, bool is_backward)
{
	int64_t low = is_backward ? -1 : 0, high = is_backward ? size - 1 : size;

	if (end < 0)
		end += size;
	return end < low ? low : end > high ? high : end;
}

/* Appends an axis of the array, of which `item` takes a part. */
static int add_axis(struct slice *s, const struct slice_item *item, uint64_t size,
		    uint64_t stride)
{
	struct slice_dim *dim = &s->dims[s->ndims++];
	bool is_backward = item->step < 0;
	int64_t n = (int64_t)size, start, stop;
	uint64_t count = 0;

	if (n < 0)
		return -ERANGE;
	*dim = (struct slice_dim){ .size = size, .count = 1, .step = 1 };
	if (item->kind == ITEM_INDEX) {
		start = item->start < 0 ? item->start + n : item->start;
		if (start < 0 || start >= n)
			return -ERANGE;
		s->first += (uint64_t)start * stride;
		dim->start = (uint64_t)start;
		return 0;
	}
	start = item->has_start ? clamp(item->start, n, is_backward) : is_backward ? n - 1 : 0;
	stop = item->has_stop ? clamp(item->stop, n, is_backward) : is_backward ? -1 : n;
	if (is_backward && stop < start)
		count = (uint64_t)(start - stop - 1) / (uint64_t)-item->step + 1;
	else if (!is_backward && start < stop)
		count = (uint64_t)(stop - start - 1) / (uint64_t)item->step + 1;
	if (count)
		s->first += (uint64_t)start * stride;
	dim->start = count ? (uint64_t)start : 0;
	dim->count = count;
	if (count > 1)
		dim->step = item->step;
	s->shape[s->ndim++] = count;
	s->numel *= count;
	if (count > 1) /* with one element the step is unused, and its product may overflow */
		s->axes[s->naxes++] =
			(struct slice_axis){ count, (int64_t)((uint64_t)item->step * stride) };
	return 0;
}

static void join_axes(struct slice *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->naxes; i++) {
		struct slice_axis a = s->axes[i];

		if (n && s->axes[n - 1].stride == a.stride * (int64_t)a.count)
			a.count *= s->axes[--n].count;
		s->axes[n++] = a;
	}
	s->naxes = n;
}

/* Applies the n items to the axes, in order; an ellipsis takes the axes that have no item
 * whole.
 */
static int apply(struct slice *s, const struct slice_item *items, int n, const uint64_t *shape,
		 uint32_t ndim)
{
	static const struct slice_item all = { .kind = ITEM_RANGE, .step = 1 };
	uint64_t stride[FRAG_DIMS_MAX], numel = 1;
	uint32_t axis = 0, named = 0;
	int rc = 0;

	for (int i = 0; i < n; i++)
		named += items[i].kind != ITEM_ELLIPSIS;
	if (named > ndim)
		return -ERANGE;
	for (uint32_t i = ndim; i-- > 0; numel *= shape[i])
		stride[i] = numel;
	*s = (struct slice){ .numel = 1 };
	for (int i = 0; i < n && !rc; i++) {
		if (items[i].kind == ITEM_ELLIPSIS) {
			for (; named < ndim && !rc; named++, axis++)
				rc = add_axis(s, &all, shape[axis], stride[axis]);
		} else {
			rc = add_axis(s, &items[i], shape[axis], stride[axis]);
			axis++;
		}
	}
	for (; axis < ndim && !rc; axis++)
		rc = add_axis(s, &all, shape[axis], stride[axis]);
	if (s->numel)
		join_axes(s);
	else
		s->first = 0;
	return rc;
}

void slice_all(struct slice *s, const uint64_t *shape, uint32_t ndim)
{
	apply(s, NULL, 0, shape, ndim);
}

int slice_parse(struct slice *s, const char *text, const char **end, const uint64_t *shape,
		uint32_t ndim)
{
	struct slice_item items[FRAG_DIMS_MAX + 1];
	unsigned ellipses = 0;
	int n = take_items(&text, items);

	for (int i = 0; i < n; i++)
		ellipses += items[i].kind == ITEM_ELLIPSIS;
	if (n < 0 || ellipses > 1)
		return n < 0 ? n : -EINVAL;
	*end = text;
	return apply(s, items, n, shape, ndim);
}

struct slice_run slice_run(const struct slice *s, uint64_t k)
{
	const struct slice_axis *inner = s->naxes ? &s->axes[s->naxes - 1] : NULL;
	struct slice_run run = { .first = s->first, .count = 1, .step = 1 };

	assert(k < s->numel);
	if (!inner)
		return run;
	run.count = inner->count - k % inner->count;
	if (run.count > 1)
		run.step = inner->stride;
	for (uint32_t i = s->naxes; i-- > 0; k /= s->axes[i].count)
		run.first += (uint64_t)((int64_t)(k % s->axes[i].count) * s->axes[i].stride);
	return run;
}

bool slice_is_range(const struct slice *s)
{
	return !s->numel || !s->naxes || (s->naxes == 1 && s->axes[0].stride == 1);
}

/* Cuts the indices of a dimension to those in [from, from + size), counted from `from` on, and
 * makes them rise.
 */
static struct slice_dim cut_dim(struct slice_dim d, uint64_t from, uint64_t size)
{
	uint64_t step = d.step < 0 ? -(uint64_t)d.step : (uint64_t)d.step, skip;

	if (d.step < 0)
		d.start -= (d.count - 1) * step;
	skip = d.start < from ? u64_div_ceil(from - d.start, step) : 0;
	d.count = skip < d.count ? d.count - skip : 0;
	d.start += d.count ? skip * step - from : 0;
	d.count = d.count && d.start < size ? u64_min(d.count, (size - 1 - d.start) / step + 1)
					    : 0;
	d.step = d.count > 1 ? (int64_t)step : 1;
	d.size = size;
	return d;
}

void slice_in_box(const struct slice *s, const uint64_t *from, const uint64_t *size,
		  struct slice *out)
{
	uint64_t stride = 1;

	*out = (struct slice){ .numel = 1, .ndims = s->ndims, .ndim = s->ndims };
	for (uint32_t i = s->ndims; i-- > 0; stride *= out->dims[i].size) {
		struct slice_dim d = from ? cut_dim(s->dims[i], from[i], size[i])
					  : cut_dim(s->dims[i], 0, s->dims[i].size);

		out->dims[i] = d;
		out->shape[i] = d.count;
		out->numel *= d.count;
		out->first += d.start * stride;
		/* dimensions come from the last to the first; the loop below reverses the axes
		 */
		if (d.count > 1)
			out->axes[out->naxes++] =
				(struct slice_axis){ d.count,
						     (int64_t)((uint64_t)d.step * stride) };
	}
	for (uint32_t i = 0; i < out->naxes / 2; i++) {
		struct slice_axis axis = out->axes[i];

		out->axes[i] = out->axes[out->naxes - 1 - i];
		out->axes[out->naxes - 1 - i] = axis;
	}
	if (out->numel)
		join_axes(out);
	else
		out->first = 0;
}

bool slice_rises(const struct slice *s)
{
	uint64_t span = 0, numel = 1, axis, end;

	if (s->naxes > FRAG_DIMS_MAX)
		return false;
	for (uint32_t i = s->naxes; i-- > 0;) {
		const struct slice_axis *a = &s->axes[i];

		if (a->count < 2 || a->stride <= 0 || (uint64_t)a->stride <= span ||
		    !u64_mul(a->count - 1, (uint64_t)a->stride, &axis) ||
		    !u64_add(span, axis, &span) || !u64_mul(numel, a->count, &numel))
			return false;
	}
	return numel == s->numel && u64_add(s->first, span, &end) && end < INT64_MAX;
}

uint64_t slice_count_before(const struct slice *s, uint64_t at)
{
	return LOWER_BOUND(s->numel, k, slice_run(s, k).first < at);
}
