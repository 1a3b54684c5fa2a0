/* SPDX-License-Identifier: Apache-2.0 */

/* Adam on this rank's partition, whose states are in memory, on NVMe or on a device. */

#include "trainer.h"

#include "device.h"

#include <math.h>

/* A run of elements of a partition, in memory. */
struct slice {
	uint64_t first, numel;
	float *master, *grad, *exp_avg, *exp_avg_sq;
};

static void adam_slice(const struct trainer *t, const struct group *g, const struct slice *s)
{
	double steps = (double)(t->step + 1);
	double correct1 = 1 - pow(g->beta1, steps), correct2 = 1 - pow(g->beta2, steps);

	for (uint64_t i = 0; i < s->numel; i++) {
		double grad = s->grad[i], m, v;

		m = g->beta1 * s->exp_avg[i] + (1 - g->beta1) * grad;
		v = g->beta2 * s->exp_avg_sq[i] + (1 - g->beta2) * grad * grad;
		s->exp_avg[i] = (float)m;
		s->exp_avg_sq[i] = (float)v;
		s->master[i] -= (float)(g->lr * (m / correct1 / (sqrt(v / correct2) + g->eps) +
						 g->weight_decay * s->master[i]));
	}
}

/* Rounds the slice's masters into the bf16 parameters that have elements in it. */
static void narrow_slice(struct trainer *t, int number, const struct slice *s)
{
	for (int p = 0; p < MODEL_NPARAMS; p++) {
		uint64_t start = t->param[p].own.partition_offset;
		uint64_t end = start + t->param[p].own.numel, from, to;

		from = start > s->first ? start : s->first;
		to = end < s->first + s->numel ? end : s->first + s->numel;
		if (group_of(t, p) == number && from < to)
			narrow(t, p, from - start, s->master + (from - s->first), to - from);
	}
}

/* Gives back the slice before, and takes the next one of a partition on NVMe; false: there are
 * no more.
 */
static bool next_slice(const struct trainer *t, struct frag_sweep *sweep, struct slice *s)
{
	void *memory[4];

	if (!need(t, "sweep", frag_sweep_next(sweep, &s->first, &s->numel, memory)))
		return false;
	s->master = memory[0];
	s->exp_avg = memory[1];
	s->exp_avg_sq = memory[2];
	s->grad = memory[3];
	return true;
}

static void adam_on_disk(struct trainer *t, int number)
{
	static const struct frag_swept states[] = {
		{ "fp32", 0 }, { "exp_avg", 0 }, { "exp_avg_sq", 0 }, { "grad", FRAG_READ_ONLY }
	};
	const struct group *g = &t->group[number];
	struct frag_sweep *sweep;
	struct slice s;

	need(t, "sweep", frag_sweep_begin(t->frag, g->id, 0, states, 4, &sweep));
	if (number + 1 < NGROUPS)
		need(t, "sweep", frag_sweep_then(sweep, t->group[number + 1].id, 0));
	while (next_slice(t, sweep, &s)) {
		adam_slice(t, g, &s);
		narrow_slice(t, number, &s);
	}
	frag_sweep_end(sweep);
}

/* Updates a partition on a device: fetches its states, which edits may have changed, and puts
 * the new ones back before frag_step_end().
 */
static void adam_on_device(struct trainer *t, int number, const struct slice *all)
{
	const struct group *g = &t->group[number];
	float *const host[NSTATES] = { g->master, g->grad, g->exp_avg, g->exp_avg_sq };

	for (int i = 0; i < NSTATES; i++)
		device_get(host[i], g->on_device[i], g->numel * sizeof(*host[i]));
	adam_slice(t, g, all);
	narrow_slice(t, number, all);
	for (int i = 0; i < NSTATES; i++)
		if (i != GRAD)
			device_put(g->on_device[i], host[i], g->numel * sizeof(*host[i]));
}

void adam(struct trainer *t, int number)
{
	const struct group *g = &t->group[number];
	struct slice all = { 0, g->numel, g->master, g->grad, g->exp_avg, g->exp_avg_sq };

	if (t->options.swap) {
		adam_on_disk(t, number);
		return;
	}
	if (t->options.device) {
		adam_on_device(t, number, &all);
		return;
	}
	adam_slice(t, g, &all);
	narrow_slice(t, number, &all);
}
