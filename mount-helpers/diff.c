/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/commands.h"
#include "mount-helpers/progress.h"
#include "mount-helpers/state-file.h"
#include "mount-helpers/target.h"

#include "engine/base/base.h"
#include "engine/base/vec.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 1 << 17 }; /* elements that are compared at once */

enum {
	COLUMN_NAME,
	COLUMN_STATE,
	COLUMN_NUMEL,
	COLUMN_CHANGED,
	COLUMN_RELATIVE,
	COLUMN_NORM_A,
	COLUMN_NORM_B,
	COLUMN_NORM,
	COLUMN_MAX,
	COLUMN_AT,
	COLUMN_NOTE,
};

const struct table_column diff_columns[] = {
	[COLUMN_NAME] = { "name", TABLE_TEXT },
	[COLUMN_STATE] = { "state", TABLE_TEXT },
	[COLUMN_NUMEL] = { "numel", TABLE_NUMBER },
	[COLUMN_CHANGED] = { "changed", TABLE_NUMBER },
	[COLUMN_RELATIVE] = { "relative", TABLE_REAL },
	[COLUMN_NORM_A] = { "norm_a", TABLE_REAL },
	[COLUMN_NORM_B] = { "norm_b", TABLE_REAL },
	[COLUMN_NORM] = { "norm_diff", TABLE_REAL, true },
	[COLUMN_MAX] = { "max_diff", TABLE_REAL },
	[COLUMN_AT] = { "at", TABLE_NUMBER, true },
	[COLUMN_NOTE] = { "note", TABLE_TEXT },
	{ NULL },
};

/* The difference of two states.  Norms are of the elements that are finite in both. */
struct difference {
	const char *name;
	char state[2 * FRAG_KEY_MAX + 4]; /* "fp32", or "fp32:bf16" */
	uint64_t numel, changed, odd;     /* odd: changed, and not finite in one of them */
	double squares_a, squares_b, squares, max;
	uint64_t at; /* the number of the element with the greatest difference */
	bool compared;
	char note[128];
};

static double relative(const struct difference *d)
{
	if (d->odd || !d->compared)
		return INFINITY;
	return d->squares > 0 ? sqrt(d->squares) / sqrt(d->squares_a) : 0;
}

/* Sorts by relative change, the greatest first, and then as the mount has them. */
static int by_change(const void *a, const void *b)
{
	const struct difference *x = *(struct difference *const *)a;
	const struct difference *y = *(struct difference *const *)b;
	double rx = relative(x), ry = relative(y);

	if (rx != ry)
		return rx > ry ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* ---- comparing ---- */

struct buffers {
	void *a, *b;
	double *values_a, *values_b;
};

static bool buffers_init(struct buffers *buffers)
{
	*buffers = (struct buffers){ malloc(CHUNK * 16), malloc(CHUNK * 16),
				     calloc(CHUNK, sizeof(double)),
				     calloc(CHUNK, sizeof(double)) };
	return buffers->a && buffers->b && buffers->values_a && buffers->values_b;
}

static void buffers_fini(struct buffers *buffers)
{
	free(buffers->a);
	free(buffers->b);
	free(buffers->values_a);
	free(buffers->values_b);
}

static void add_element(struct difference *d, double a, double b, bool same, uint64_t number)
{
	double distance = fabs(a - b);

	d->changed += !same;
	if (!isfinite(a) || !isfinite(b)) {
		d->odd += !same;
		return;
	}
	d->squares_a += a * a;
	d->squares_b += b * b;
	d->squares += distance * distance;
	if (distance > d->max) {
		d->max = distance;
		d->at = number;
	}
}

/* Elements of one dtype are the same if their bits are: 0 and -0 are not, equal NaNs are. */
static int compare_chunk(struct difference *d, const struct state_file *a,
			 const struct state_file *b, uint64_t first, uint64_t n,
			 const struct buffers *buffers)
{
	int e = state_file_read(a, first, buffers->a, n);

	if (!e)
		e = state_file_read(b, first, buffers->b, n);
	if (e)
		return e;
	if (!state_file_values(a, buffers->a, n, buffers->values_a) ||
	    !state_file_values(b, buffers->b, n, buffers->values_b))
		return -EOPNOTSUPP;
	for (uint64_t i = 0; i < n; i++) {
		double x = buffers->values_a[i], y = buffers->values_b[i];
		bool same = a->dtype == b->dtype
				    ? !memcmp((char *)buffers->a + i * a->element,
					      (char *)buffers->b + i * b->element, a->element)
				    : x == y || (isnan(x) && isnan(y));

		add_element(d, x, y, same, first + i);
	}
	return 0;
}

static bool is_one_shape(const struct state_file *a, const struct state_file *b)
{
	return a->ndim == b->ndim && a->numel == b->numel &&
	       !memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape));
}

static int compare_files(struct difference *d, const struct state_file *a,
			 const struct state_file *b)
{
	struct buffers buffers;
	int e = buffers_init(&buffers) ? 0 : -ENOMEM;

	for (uint64_t first = 0, n; !e && first < a->numel; first += n) {
		n = a->numel - first < CHUNK ? a->numel - first : CHUNK;
		e = compare_chunk(d, a, b, first, n, &buffers);
	}
	buffers_fini(&buffers);
	return e;
}

/* ---- two sides ---- */

struct side {
	char mountpoint[TARGET_PATH_MAX];
	struct params params;
};

/* By O_DIRECT: each byte is read once, and what the kernel would keep of it is of no use. */
static int compare(struct difference *d, const struct side *a, const struct param *pa,
		   const char *state_a, const struct side *b, const struct param *pb,
		   const char *state_b)
{
	struct state_file fa, fb;
	int e;

	snprintf(d->state, sizeof(d->state), strcmp(state_a, state_b) ? "%s:%s" : "%s", state_a,
		 state_b);
	if (state_file_open(&fa, a->mountpoint, pa, state_a, O_RDONLY | O_DIRECT))
		return FRAGCTL_FAILURE;
	if (state_file_open(&fb, b->mountpoint, pb, state_b, O_RDONLY | O_DIRECT)) {
		state_file_close(&fa);
		return FRAGCTL_FAILURE;
	}
	d->numel = fa.numel;
	e = 0;
	if (!is_one_shape(&fa, &fb))
		snprintf(d->note, sizeof(d->note), "shapes differ");
	else
		e = compare_files(d, &fa, &fb);
	d->compared = !*d->note && !e;
	if (d->odd)
		snprintf(d->note, sizeof(d->note), "%llu not finite",
			 (unsigned long long)d->odd);
	state_file_close(&fa);
	state_file_close(&fb);
	return e ? call_fail("%s/%s: %s", d->name, d->state, strerror(-e)) : 0;
}

static bool has_state(char **states, const char *state)
{
	while (*states && strcmp(*states, state) != 0)
		states++;
	return *states;
}

/* Compares a parameter that both sides have, by the state that stands for it on each; with
 * `every`, by each state that both have.
 */
static int compare_param(struct vec *list, const struct side *a, const struct param *pa,
			 const struct side *b, const struct param *pb, bool every)
{
	char **states_a = params_states(a->mountpoint, pa);
	char **states_b = params_states(b->mountpoint, pb), *one[2] = { NULL };
	const char *main_a = states_a ? state_file_main(states_a) : NULL;
	const char *main_b = states_b ? state_file_main(states_b) : NULL;
	struct difference **d;
	int rc = 0;

	one[0] = (char *)main_a;
	for (char **state = every && states_a ? states_a : one; main_a && main_b && *state;
	     state++) {
		if (every && !has_state(states_b, *state))
			continue;
		d = vec_add(list, sizeof(*d));
		if (!d)
			break;
		*d = calloc(1, sizeof(**d));
		if (!*d) {
			list->count--;
			break;
		}
		(*d)->name = pa->name;
		rc |= compare(*d, a, pa, *state, b, pb, every ? *state : main_b);
	}
	params_free_names(states_a);
	params_free_names(states_b);
	return rc;
}

static void add_missing(struct vec *list, const char *name, const char *where)
{
	struct difference **d = vec_add(list, sizeof(*d));

	if (!d)
		return;
	*d = calloc(1, sizeof(**d));
	if (!*d) {
		list->count--;
		return;
	}
	(*d)->name = name;
	snprintf((*d)->note, sizeof((*d)->note), "only in %s", where);
}

static int compare_sides(struct vec *list, const struct side *a, const struct side *b,
			 bool every)
{
	struct progress progress;
	const struct param *other;
	const char *name;
	int rc = 0;

	progress_begin(&progress, "parameters");
	for (size_t i = 0; i < a->params.n; i++) {
		name = a->params.list[i].name;
		progress_step(&progress, i, a->params.n);
		other = params_find(&b->params, name, strlen(name));
		if (other)
			rc |= compare_param(list, a, &a->params.list[i], b, other, every);
		else
			add_missing(list, name, "A");
	}
	progress_end(&progress);
	for (size_t i = 0; i < b->params.n; i++) {
		name = b->params.list[i].name;
		if (!params_find(&a->params, name, strlen(name)))
			add_missing(list, name, "B");
	}
	return rc;
}

/* ---- the table ---- */

static void add_row(struct table *t, const struct difference *d)
{
	table_row(t);
	table_text(t, COLUMN_NAME, d->name);
	if (*d->state)
		table_text(t, COLUMN_STATE, d->state);
	table_text(t, COLUMN_NOTE, d->note);
	if (!d->compared)
		return;
	table_number(t, COLUMN_NUMEL, d->numel);
	table_number(t, COLUMN_CHANGED, d->changed);
	table_real(t, COLUMN_RELATIVE, relative(d));
	table_real(t, COLUMN_NORM_A, sqrt(d->squares_a));
	table_real(t, COLUMN_NORM_B, sqrt(d->squares_b));
	table_real(t, COLUMN_NORM, sqrt(d->squares));
	table_real(t, COLUMN_MAX, d->max);
	if (d->max > 0)
		table_number(t, COLUMN_AT, d->at);
}

static int report(const struct call *call, struct table *t, struct vec *list, int failed)
{
	struct difference **all = list->items;
	bool differ = false;
	int rc;

	if (list->count)
		qsort(all, list->count, sizeof(struct difference *), by_change);
	for (uint32_t i = 0; i < list->count; i++) {
		differ |= !all[i]->compared || all[i]->changed;
		if (!call->count || i < call->count)
			add_row(t, all[i]);
	}
	rc = table_print(t, "params");
	return rc ? rc : failed ? failed : differ ? FRAGCTL_FOUND : 0;
}

int diff_run(const struct call *call)
{
	struct side a = { 0 }, b = { 0 };
	struct vec list = { 0 };
	struct table t;
	int rc = table_init(&t, call, diff_columns);

	if (rc)
		return rc;
	rc = target_open(call->words[0], false, a.mountpoint);
	if (!rc)
		rc = target_open(call->words[1], false, b.mountpoint);
	if (!rc)
		rc = params_read(&a.params, a.mountpoint, call->words + 2);
	if (!rc)
		rc = params_read(&b.params, b.mountpoint, call->words + 2);
	if (!rc)
		rc = report(call, &t, &list, compare_sides(&list, &a, &b, call_has(call, 'e')));
	for (uint32_t i = 0; i < list.count; i++)
		free(((struct difference **)list.items)[i]);
	free(list.items);
	params_free(&a.params);
	params_free(&b.params);
	table_fini(&t);
	return rc;
}
