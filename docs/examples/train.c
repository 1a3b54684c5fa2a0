/* SPDX-License-Identifier: Apache-2.0 */

/* How a trainer with ZeRO's sharded state attaches to libfrag.
 *
 *	for r in 0 1 2 3; do RANK=$r WORLD_SIZE=4 docs/examples/train --stage 2 & done
 *
 * Each rank learns from its own part of the batch, and owns a partition of the fp32 masters, of
 * the gradients and of Adam's moments.  What a larger trainer does by NCCL, this one does by
 * frag_peer_read:
 *
 *	backward           all gradients, of this rank's samples, published
 *	reduce             own partition: the sum over the ranks
 *	adam               own partition: masters and moments, then the bf16 parameters
 *	pull_parameters    stages 1 and 2: the other ranks' bf16 parameters
 *	load_weights       widens them; stage 3, where ranks have only their shards, gathers
 *
 * With --swap the states are on NVMe and adam visits them slice by slice.  With --device they
 * are in a GPU's memory; the example has no kernels, so adam copies them to the host and back.
 * With both, they are on NVMe until fragctl place moves them to the GPU.
 * With --arena the bf16 shards of stage 3 are in an arena (arena.c).
 *
 * All sums are in the order of ranks, so that every stage computes the same bits.  This file
 * has the loop and its step; attach.c describes the rank to the library.
 */

#include "trainer.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static volatile sig_atomic_t asked_to_stop;

static void on_signal(int number)
{
	asked_to_stop = 1;
}

/* ---- one step ---- */

/* Computes the gradients of this rank's samples. */
static void backward(struct trainer *t)
{
	float *weight[MODEL_NPARAMS], *gradient[MODEL_NPARAMS];
	uint8_t symbols[MODEL_CONTEXT + 1];

	for (int p = 0; p < MODEL_NPARAMS; p++) {
		weight[p] = t->weight + t->param[p].flat;
		gradient[p] = t->gradient + t->param[p].flat;
	}
	memset(t->gradient, 0, t->total * sizeof(*t->gradient));
	t->word = (struct word){ .stop = asked_to_stop };
	for (uint64_t i = 0; i < t->options.batch; i++) {
		loader_sample(&t->data, t->step, i, symbols);
		t->word.loss += model_learn(&t->model, symbols, weight, gradient);
	}
}

/* Fills this rank's partition of the gradients with the mean over all ranks' samples. */
static void reduce(struct trainer *t)
{
	float share = 1.0f / ((float)t->options.batch * (float)t->world);

	for (int p = 0; p < MODEL_NPARAMS; p++) {
		const struct frag_fragment *own = &t->param[p].own;
		const struct group *g = &t->group[group_of(t, p)];
		uint64_t first = t->param[p].flat + own->param_offset;

		memset(t->sum, 0, own->numel * sizeof(*t->sum));
		for (int r = 0; r < t->world; r++) {
			const float *from = t->gradient + first;

			if (r != t->rank) {
				pull(t, r, "gradients", first * sizeof(*from), t->scratch,
				     own->numel * sizeof(*from));
				from = t->scratch;
			}
			for (uint64_t i = 0; i < own->numel; i++)
				t->sum[i] += from[i];
		}
		for (uint64_t i = 0; i < own->numel; i++)
			t->sum[i] *= share;
		put(t, g, GRAD, "grad", g->grad, own->partition_offset, t->sum, own->numel);
	}
}

/* Reads the words of all ranks; returns their mean loss and how many were asked to stop.  All
 * ranks read the same words, so that all stop after the same step.
 */
static struct word hear(struct trainer *t)
{
	struct word all = { .loss = 0 };

	for (int r = 0; r < t->world; r++) {
		struct word word = t->word;

		if (r != t->rank)
			pull(t, r, "word", 0, &word, sizeof(word));
		all.loss += word.loss / (double)t->options.batch / t->world;
		all.stop += word.stop;
	}
	return all;
}

static struct word train_step(struct trainer *t)
{
	struct word all;

	load_weights(t);
	backward(t);
	barrier(t); /* the gradients of all ranks are complete */
	frag_grads_gone(t->frag);
	reduce(t);
	frag_grads_valid(t->frag, 1.0);
	all = hear(t);
	frag_step_begin(t->frag);
	for (int g = 0; g < NGROUPS; g++)
		adam(t, g);
	barrier(t); /* all ranks have read gradients and have their new parameters */
	pull_parameters(t);
	t->step++;
	frag_step_end(t->frag);
	if (shards_move(t))
		barrier(t); /* all ranks' shards are those of this step */
	return all;
}

/* ---- the run ---- */

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void rest(uint64_t ms)
{
	struct timespec t = { .tv_sec = (time_t)(ms / 1000),
			      .tv_nsec = (long)(ms % 1000) * 1000000 };

	if (ms > 0 && !asked_to_stop)
		nanosleep(&t, NULL);
}

static void report(const struct trainer *t, double loss, double ms)
{
	if (t->rank == 0 && !t->options.quiet)
		printf("step %6llu  loss %.6f  %6.1f ms/step\n", (unsigned long long)t->step,
		       loss, ms);
}

static void digest(struct trainer *t, double loss)
{
	uint64_t bits;

	memcpy(&bits, &loss, sizeof(bits));
	t->losses = (t->losses ^ bits) * 0x100000001b3;
}

static void run(struct trainer *t)
{
	const struct options *o = &t->options;
	double losses = 0, busy_ms = 0;
	uint64_t n = 0; /* steps since the last line */
	bool stop = false;

	while (!stop && (o->forever || t->step < o->steps)) {
		double start_ms = now_ms();
		struct word all = train_step(t);

		busy_ms += now_ms() - start_ms;
		losses += all.loss;
		digest(t, all.loss);
		stop = all.stop > 0;
		n++;
		if (t->step % o->every == 0) {
			report(t, losses / (double)n, busy_ms / (double)n);
			losses = busy_ms = 0;
			n = 0;
		}
		rest(o->pause_ms);
	}
}

static void greet(const struct trainer *t)
{
	const char *address = frag_address(t->frag);

	if (t->rank != 0)
		return;
	printf("train: ranks %d stage %d parameters %d elements %llu\n", t->world,
	       (int)t->options.stage, MODEL_NPARAMS, (unsigned long long)t->total);
	if (address)
		printf("train: address %s\n", address);
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
}

int main(int argc, char **argv)
{
	static struct trainer t;
	int rc;

	options_read(&t.options, argc, argv);
	rc = loader_open(&t.data, t.options.text);
	if (rc < 0)
		die("%s: %s", t.options.text,
		    rc == -EINVAL ? "no sample: 9 tokens at the least, of 2 kinds or more"
				  : strerror(-rc));
	setvbuf(stdout, NULL, _IOLBF, 0);
	model_init(&t.model, t.data.vocab, (uint32_t)t.options.hidden);
	for (int g = 0; g < NGROUPS; g++)
		t.group[g] =
			(struct group){ .lr = 0.003, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8 };
	t.group[0].weight_decay = 0.01;
	t.step = t.options.first_step;
	attach(&t);
	t.data.seed = t.options.seed + 1;
	t.data.batch = t.options.batch;
	t.data.rank = (uint32_t)t.rank;
	t.data.world = (uint32_t)t.world;
	barrier(&t);
	catch_signals(); /* before the first step a signal may end the program at once */
	pull_parameters(&t);
	greet(&t);
	run(&t);
	if (t.rank == 0)
		printf("train: losses %016llx\n", (unsigned long long)t.losses);
	if (t.rank == 0 && t.options.arena)
		arena_report(&t);
	barrier(&t); /* no rank leaves while another still reads from it */
	frag_close(t.frag);
	return 0;
}
