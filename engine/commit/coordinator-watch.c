/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/catalog/condition.h"
#include "engine/commit/coordinator-watch.h"

#include <errno.h>
#include <math.h>
#include <string.h>

struct coordinator_watch *coordinator_watch_new(const struct engine *e,
						const struct wire_condition *condition)
{
	struct coordinator_watch *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->condition = *condition;
	w->checked = calloc(e->world, sizeof(*w->checked));
	w->nfound = e->catalog->nparams;
	w->found = calloc(w->nfound + 1, sizeof(*w->found));
	if (w->checked && w->found)
		return w;
	coordinator_watch_free(w);
	return NULL;
}

void coordinator_watch_free(struct coordinator_watch *w)
{
	if (!w)
		return;
	free(w->checked);
	free(w->found);
	free(w);
}

void coordinator_watch_begin(struct coordinator_watch *w, uint32_t world)
{
	memset(w->checked, 0, world * sizeof(*w->checked));
	if (w->any)
		memset(w->found, 0, w->nfound * sizeof(*w->found));
	w->any = false;
	w->first_ms = 0;
	w->status = 0;
}

static void add_found(struct coordinator_watch *w, uint32_t rank, const struct wire_found *more)
{
	struct coordinator_found *f = &w->found[more->param];
	double value;

	memcpy(&value, &more->value, sizeof(value));
	if (!(value > 0)) /* ranks send positive values alone; a NaN ends here, too */
		return;
	if (f->value == 0 || more->element < f->element) {
		f->element = more->element;
		f->rank = rank;
	}
	switch (w->condition.quantity) {
	case WIRE_NORM: /* hypot: the square of a norm may not fit a float64 */
		f->value = hypot(f->value, value);
		break;
	case WIRE_ABSMAX:
		f->value = fmax(f->value, value);
		break;
	default:
		f->value += value;
	}
	w->any = true;
}

void coordinator_watch_add(const struct engine *e, struct coordinator_watch *w, uint32_t rank,
			   const struct wire_checked *checked, const struct wire_found *found)
{
	struct wire_found one;

	if (w->checked[rank])
		return;
	w->checked[rank] = true;
	if (!w->first_ms)
		w->first_ms = monotonic_ms();
	w->step = u64_max(w->step, checked->step);
	if (checked->status && !w->status) {
		w->status = wire_status(checked->status);
		w->said = rank;
	}
	for (uint32_t i = 0; i < checked->count; i++) {
		memcpy(&one, &found[i], sizeof(one));
		if (one.param < w->nfound && one.element < e->catalog->params[one.param].numel)
			add_found(w, rank, &one);
	}
}

bool coordinator_watch_holds(const struct coordinator_watch *w)
{
	for (uint32_t i = 0; i < w->nfound && w->any; i++)
		if (w->found[i].value > condition_above(&w->condition))
			return true;
	return false;
}

void coordinator_watch_tell(struct engine *e, const struct coordinator_watch *w,
			    uint64_t boundary, const uint64_t transaction[2])
{
	char text[CONDITION_TEXT_MAX];
	struct event_break told = { .id = { transaction[0], transaction[1] },
				    .condition = text,
				    .key = w->condition.key,
				    .has_element = w->condition.quantity != WIRE_NORM,
				    .step = w->step,
				    .boundary = boundary };

	condition_print(&w->condition, text);
	for (uint32_t i = w->nfound; i-- > 0;) {
		if (!(w->found[i].value > condition_above(&w->condition)))
			continue;
		told.nparams++;
		told.param = i;
		told.value = w->found[i].value;
		told.element = w->found[i].element;
		told.rank = w->found[i].rank;
	}
	log_info("%s at boundary %llu, first in %s", text, (unsigned long long)boundary,
		 catalog_name(e->catalog, told.param));
	event_log_break(e, &told);
}

void coordinator_watch_tell_over(struct engine *e, const struct coordinator_watch *w,
				 const uint64_t transaction[2], const char *why)
{
	char text[CONDITION_TEXT_MAX];

	condition_print(&w->condition, text);
	event_log_break(e, &(struct event_break){
				   .id = { transaction[0], transaction[1] },
				   .condition = text,
				   .why = why,
			   });
}
