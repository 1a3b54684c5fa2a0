/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/commands.h"
#include "mount-helpers/progress.h"
#include "mount-helpers/state-file.h"
#include "mount-helpers/target.h"

#include "engine/base/base.h"
#include "engine/base/thread.h"
#include "engine/base/vec.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	CHUNK = 1 << 17, /* elements that are compared at once */
	THREADS_MAX = 16,
};

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

const struct listing_column diff_columns[] = {
	[COLUMN_NAME] = { "name", LISTING_TEXT },
	[COLUMN_STATE] = { "state", LISTING_TEXT },
	[COLUMN_NUMEL] = { "numel", LISTING_NUMBER },
	[COLUMN_CHANGED] = { "changed", LISTING_NUMBER },
	[COLUMN_RELATIVE] = { "relative", LISTING_REAL },
	[COLUMN_NORM_A] = { "norm_a", LISTING_REAL },
	[COLUMN_NORM_B] = { "norm_b", LISTING_REAL },
	[COLUMN_NORM] = { "norm_diff", LISTING_REAL, true },
	[COLUMN_MAX] = { "max_diff", LISTING_REAL },
	[COLUMN_AT] = { "at", LISTING_NUMBER, true },
	[COLUMN_NOTE] = { "note", LISTING_TEXT },
	{ NULL },
};

/* A state of side A, one of side B, and how they differ.  Norms are of the elements that are
 * finite on both sides.
 */
struct difference {
	const struct param *a, *b; /* NULL: the side lacks the parameter */
	/* "": nothing of the parameter can be compared, and note says why */
	char state_a[NAME_MAX + 1], state_b[NAME_MAX + 1];
	uint32_t number; /* in the order of the mounts */
	/* odd: elements that changed and are not finite on a side */
	uint64_t numel, changed, odd;
	double squares_a, squares_b, squares, max;
	uint64_t at; /* the number of the element with the greatest difference */
	bool compared;
	char note[128];
};

static const char *name_of(const struct difference *d)
{
	return (d->a ? d->a : d->b)->name;
}

static double relative(const struct difference *d)
{
	double change = d->squares > 0 ? sqrt(d->squares) / sqrt(d->squares_a) : 0;

	/* squares may be beyond float64: their quotient is then no number */
	return d->odd || !d->compared || isnan(change) ? INFINITY : change;
}

/* Sorts by relative change, the greatest first, then in the order of the mounts. */
static int by_change(const void *a, const void *b)
{
	const struct difference *x = a, *y = b;
	double rx = relative(x), ry = relative(y);

	if (rx != ry)
		return rx > ry ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

/* ---- what there is to compare ---- */

struct side {
	char mountpoint[TARGET_PATH_MAX];
	struct params params;
};

static struct difference *add(struct vec *list, const struct param *a, const struct param *b)
{
	struct difference *d = vec_add(list, sizeof(*d));

	if (d)
		*d = (struct difference){ .a = a, .b = b, .number = list->count };
	return d;
}

/* Adds a row for a parameter of which nothing can be compared. */
static int add_note(struct vec *list, const struct param *a, const struct param *b,
		    const char *note)
{
	struct difference *d = add(list, a, b);

	if (!d)
		return -ENOMEM;
	snprintf(d->note, sizeof(d->note), "%s", note);
	return 0;
}

static int add_pair(struct vec *list, const struct param *pa, const char *state_a,
		    const struct param *pb, const char *state_b)
{
	struct difference *d = add(list, pa, pb);

	if (!d)
		return -ENOMEM;
	snprintf(d->state_a, sizeof(d->state_a), "%s", state_a);
	snprintf(d->state_b, sizeof(d->state_b), "%s", state_b);
	return 0;
}

static bool has_state(char **states, const char *state)
{
	while (*states && strcmp(*states, state) != 0)
		states++;
	return *states;
}

/* Adds the main states or, with `every`, each state that is in both lists. */
static int add_states(struct vec *list, const struct param *pa, char **states_a,
		      const struct param *pb, char **states_b, bool every)
{
	const char *main_a = state_file_main(states_a), *main_b = state_file_main(states_b);
	uint32_t before = list->count;
	int rc = 0;

	if (!main_a && !main_b)
		return add_note(list, pa, pb, "no state in A and B");
	if (!main_a || !main_b)
		return add_note(list, pa, pb, main_a ? "no state in B" : "no state in A");
	if (!every)
		return add_pair(list, pa, main_a, pb, main_b);
	for (char **state = states_a; !rc && *state; state++)
		if (has_state(states_b, *state))
			rc = add_pair(list, pa, *state, pb, *state);
	return rc || list->count > before ? rc : add_note(list, pa, pb, "no state in common");
}

/* Lists a parameter's states, as params_states.  NULL: a line was printed, and *e is the errno.
 */
static char **list_states(const struct side *side, const struct param *param, int *e)
{
	char **states = params_states(side->mountpoint, param);

	if (!states) {
		*e = errno;
		target_fail(side->mountpoint, param->name, *e);
	}
	return states;
}

/* Adds a parameter that both sides have; *failed is the exit status where states of it cannot
 * be listed.
 */
static int add_param(struct vec *list, const struct side *a, const struct param *pa,
		     const struct side *b, const struct param *pb, bool every, int *failed)
{
	int e = 0, rc;
	char **states_a = list_states(a, pa, &e), **states_b = list_states(b, pb, &e);

	if (states_a && states_b) {
		rc = add_states(list, pa, states_a, pb, states_b, every);
	} else {
		rc = add_note(list, pa, pb, strerror(e));
		*failed = FRAGCTL_FAILURE;
	}
	params_free_names(states_a);
	params_free_names(states_b);
	return rc;
}

static int add_all(struct vec *list, const struct side *a, const struct side *b, bool every,
		   int *failed)
{
	const struct param *param, *other;
	int rc = 0;

	for (size_t i = 0; !rc && i < a->params.n; i++) {
		param = &a->params.list[i];
		other = params_find(&b->params, param->name, strlen(param->name));
		rc = other ? add_param(list, a, param, b, other, every, failed)
			   : add_note(list, param, NULL, "only in A");
	}
	for (size_t i = 0; !rc && i < b->params.n; i++) {
		param = &b->params.list[i];
		if (!params_find(&a->params, param->name, strlen(param->name)))
			rc = add_note(list, NULL, param, "only in B");
	}
	return rc ? call_fail("%s", strerror(-rc)) : 0;
}

/* ---- comparing ---- */

struct buffers {
	char *a, *b;
	double *values_a, *values_b; /* two for an element of a complex dtype */
};

static bool buffers_init(struct buffers *buffers)
{
	*buffers = (struct buffers){ malloc(CHUNK * 16), malloc(CHUNK * 16),
				     calloc(CHUNK, 2 * sizeof(double)),
				     calloc(CHUNK, 2 * sizeof(double)) };
	return buffers->a && buffers->b && buffers->values_a && buffers->values_b;
}

static void buffers_fini(struct buffers *buffers)
{
	free(buffers->a);
	free(buffers->b);
	free(buffers->values_a);
	free(buffers->values_b);
}

/* A memcmp of constant size is compiled to a comparison of numbers, without a call. */
static inline bool has_same_bits(const char *a, const char *b, size_t size)
{
	switch (size) {
	case 2:
		return !memcmp(a, b, 2);
	case 4:
		return !memcmp(a, b, 4);
	default:
		return !memcmp(a, b, size);
	}
}

/* An element, as a complex number. */
struct element {
	double re, im;
};

static inline struct element element_of(const double *values, unsigned components, uint64_t i)
{
	return (struct element){ values[i * components],
				 components == 2 ? values[i * components + 1] : 0 };
}

static inline bool is_finite(struct element e)
{
	return isfinite(e.re) && isfinite(e.im);
}

/* hypot(3) is a call, which real numbers do not need. */
static inline double modulus(struct element e)
{
	return e.im == 0 ? fabs(e.re) : hypot(e.re, e.im);
}

static inline bool is_one_value(double a, double b)
{
	return a == b || (isnan(a) && isnan(b));
}

static inline void add_element(struct difference *d, struct element a, struct element b,
			       bool same, uint64_t number)
{
	double distance;

	d->changed += !same;
	if (!is_finite(a) || !is_finite(b)) {
		d->odd += !same;
		return;
	}
	distance = modulus((struct element){ a.re - b.re, a.im - b.im });
	d->squares_a += a.re * a.re + a.im * a.im;
	d->squares_b += b.re * b.re + b.im * b.im;
	d->squares += distance * distance;
	if (distance > d->max) {
		d->max = distance;
		d->at = number;
	}
}

/* Compares n elements.  Elements of one dtype are equal if their bits are: 0 and -0 differ, and
 * NaNs of the same bits do not.
 */
static int compare_chunk(struct difference *d, const struct state_file *a,
			 const struct state_file *b, uint64_t first, uint64_t n,
			 const struct buffers *buffers)
{
	unsigned components_a = state_file_components(a);
	unsigned components_b = state_file_components(b);
	int e = state_file_read(a, first, buffers->a, n);

	if (!e)
		e = state_file_read(b, first, buffers->b, n);
	if (e)
		return e;
	if (!state_file_values(a, buffers->a, n, buffers->values_a) ||
	    !state_file_values(b, buffers->b, n, buffers->values_b))
		return -EOPNOTSUPP;
	for (uint64_t i = 0; i < n; i++) {
		struct element x = element_of(buffers->values_a, components_a, i);
		struct element y = element_of(buffers->values_b, components_b, i);
		bool same = a->dtype == b->dtype
				    ? has_same_bits(buffers->a + i * a->element,
						    buffers->b + i * a->element, a->element)
				    : is_one_value(x.re, y.re) && is_one_value(x.im, y.im);

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
			 const struct state_file *b, const struct buffers *buffers)
{
	int e = 0;

	for (uint64_t first = 0, n; !e && first < a->numel; first += n) {
		n = a->numel - first < CHUNK ? a->numel - first : CHUNK;
		e = compare_chunk(d, a, b, first, n, buffers);
	}
	return e;
}

/* Compares two states.  By O_DIRECT, because each byte is read once, and pages of the kernel
 * would be of no use.
 */
static int compare(struct difference *d, const struct side *a, const struct side *b,
		   const struct buffers *buffers)
{
	struct state_file fa, fb;
	int e = 0;

	if (state_file_open(&fa, a->mountpoint, d->a, d->state_a, O_RDONLY | O_DIRECT))
		return FRAGCTL_FAILURE;
	if (state_file_open(&fb, b->mountpoint, d->b, d->state_b, O_RDONLY | O_DIRECT)) {
		state_file_close(&fa);
		return FRAGCTL_FAILURE;
	}
	d->numel = fa.numel;
	if (!is_one_shape(&fa, &fb))
		snprintf(d->note, sizeof(d->note), "shapes differ");
	else
		e = compare_files(d, &fa, &fb, buffers);
	d->compared = !*d->note && !e;
	if (d->odd)
		snprintf(d->note, sizeof(d->note), "%llu not finite",
			 (unsigned long long)d->odd);
	state_file_close(&fa);
	state_file_close(&fb);
	return e ? call_fail("%s/%s: %s", name_of(d), d->state_a, strerror(-e)) : 0;
}

/* ---- by several threads ---- */

struct comparison {
	struct difference *list;
	uint32_t n;
	const struct side *a, *b;
	struct progress progress;
	_Atomic uint32_t next;
	_Atomic int rc;
};

static void *compare_some(void *arg)
{
	struct comparison *c = arg;
	struct buffers buffers;

	if (!buffers_init(&buffers))
		atomic_store(&c->rc, call_fail("%s", strerror(ENOMEM)));
	else
		for (uint32_t i; (i = atomic_fetch_add(&c->next, 1)) < c->n;) {
			struct difference *d = &c->list[i];

			progress_step(&c->progress, i, c->n);
			if (*d->state_a && compare(d, c->a, c->b, &buffers))
				atomic_store(&c->rc, FRAGCTL_FAILURE);
		}
	buffers_fini(&buffers);
	return NULL;
}

static int compare_all(struct vec *list, const struct side *a, const struct side *b)
{
	struct comparison c = { .list = list->items, .n = list->count, .a = a, .b = b };
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t threads[THREADS_MAX - 1];
	unsigned n = 0;

	progress_begin(&c.progress, "states");
	while (n < ARRAY_SIZE(threads) && n + 1 < cores && n + 1 < c.n &&
	       !thread_start(&threads[n], compare_some, &c))
		n++;
	compare_some(&c);
	while (n)
		pthread_join(threads[--n], NULL);
	progress_end(&c.progress);
	return atomic_load(&c.rc);
}

/* ---- the table ---- */

static void add_row(struct listing *t, const struct difference *d)
{
	char states[2 * NAME_MAX + 2]; /* "fp32", or "fp32:bf16" */

	listing_row(t);
	listing_text(t, COLUMN_NAME, name_of(d));
	if (*d->state_a) {
		snprintf(states, sizeof(states),
			 strcmp(d->state_a, d->state_b) ? "%s:%s" : "%s", d->state_a,
			 d->state_b);
		listing_text(t, COLUMN_STATE, states);
	}
	listing_text(t, COLUMN_NOTE, d->note);
	if (!d->compared)
		return;
	listing_number(t, COLUMN_NUMEL, d->numel);
	listing_number(t, COLUMN_CHANGED, d->changed);
	listing_real(t, COLUMN_RELATIVE, relative(d));
	listing_real(t, COLUMN_NORM_A, sqrt(d->squares_a));
	listing_real(t, COLUMN_NORM_B, sqrt(d->squares_b));
	listing_real(t, COLUMN_NORM, sqrt(d->squares));
	listing_real(t, COLUMN_MAX, d->max);
	if (d->max > 0)
		listing_number(t, COLUMN_AT, d->at);
}

static int report(const struct call *call, struct listing *t, struct vec *list, int failed)
{
	struct difference *all = list->items;
	bool differ = false;
	int rc;

	if (list->count)
		qsort(all, list->count, sizeof(*all), by_change);
	for (uint32_t i = 0; i < list->count; i++) {
		differ |= !all[i].compared || all[i].changed;
		if (!call->count || i < call->count)
			add_row(t, &all[i]);
	}
	rc = listing_print(t, "params");
	return rc ? rc : failed ? failed : differ ? FRAGCTL_FOUND : 0;
}

int diff_run(const struct call *call)
{
	struct side a = { 0 }, b = { 0 };
	struct vec list = { 0 };
	struct listing t;
	int rc = listing_init(&t, call, diff_columns), failed = 0;

	if (rc)
		return rc;
	rc = target_open(call->words[0], false, a.mountpoint);
	if (!rc)
		rc = target_open(call->words[1], false, b.mountpoint);
	if (!rc)
		rc = params_read_two(&a.params, a.mountpoint, &b.params, b.mountpoint,
				     call->words + 2);
	if (!rc)
		rc = add_all(&list, &a, &b, call_has(call, 'e'), &failed);
	if (!rc) {
		failed |= compare_all(&list, &a, &b);
		rc = report(call, &t, &list, failed);
	}
	free(list.items);
	params_free(&a.params);
	params_free(&b.params);
	listing_fini(&t);
	return rc;
}
