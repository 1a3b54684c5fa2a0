/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRAINER_H
#define TRAINER_H

/* One rank of the trainer: train.c is its loop, attach.c how it meets the others and shows what
 * it has, weights.c its bf16 parameters, adam.c its optimizer.
 */

#include "model.h"
#include "options.h"

#include <frag.h>

enum { NGROUPS = 2 };
enum { MASTER, GRAD, EXP_AVG, EXP_AVG_SQ, NSTATES };

struct param {
	uint64_t flat;  /* its first element among those of all groups, one after the other */
	uint64_t shard; /* stage 3: of this rank's pieces */
	uint64_t piece; /* stage 3: elements of one rank's */
	int id;         /* frag_param's */
	struct frag_fragment own;
};

/* A param group of the optimizer, and this rank's partition of it. */
struct group {
	int id; /* frag_group's */
	double lr, beta1, beta2, eps, weight_decay;
	uint64_t flat; /* its first element, as above; its number of elements */
	uint64_t total;
	uint64_t numel;                              /* of the partition, padding included */
	float *master, *grad, *exp_avg, *exp_avg_sq; /* NULL: on NVMe */
	float *on_device[NSTATES]; /* then the others are what was fetched from there */
};

/* What a rank tells the others after its gradients. */
struct word {
	double loss; /* sum over its samples */
	double stop;
};

struct trainer {
	struct options options;
	struct frag *frag; /* NULL: alone */
	int rank, world;
	struct text text;
	struct model model;
	struct param param[MODEL_NPARAMS];
	struct group group[NGROUPS];
	uint64_t total; /* elements of the model */
	float *weight, *gradient, *scratch, *sum;
	/* bf16.  Stages 0 to 2: all parameters.  Stage 3: this rank's shards, or those on the
	 * way to NVMe.
	 */
	uint16_t *lp;
	uint64_t lp_numel;
	struct word word;
	uint64_t step;   /* steps done */
	uint64_t losses; /* a digest of the bits of all losses */
};

/* ---- trainer.c ---- */

void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void *zeroed(uint64_t n, size_t size);
/* For calls that this rank cannot train without; alone it can. */
int need(const struct trainer *t, const char *what, int result);
/* All ranks come here. */
void barrier(struct trainer *t);
/* Of another rank's memory, as it has published it. */
void pull(struct trainer *t, int rank, const char *name, uint64_t offset, void *out,
	  uint64_t bytes);
/* The number of the parameter's group. */
int group_of(const struct trainer *t, int p);
/* Elements of the partition's state, wherever that is; memory: its own. */
void put(struct trainer *t, const struct group *g, int state, const char *key, float *memory,
	 uint64_t first, const float *values, uint64_t n);

/* ---- attach.c ---- */

void attach(struct trainer *t);

/* ---- weights.c ---- */

/* Own part of p's bf16, from its element at on, from n masters. */
void narrow(struct trainer *t, int p, uint64_t at, const float *master, uint64_t n);
/* The weights that this step computes with.  They are read anew each time: an edit through the
 * mount has changed the bf16 parameters in place.
 */
void load_weights(struct trainer *t);
/* Stages 1 and 2: the other ranks' bf16 parameters. */
void pull_parameters(struct trainer *t);

/* ---- adam.c ---- */

/* Of this rank's partition of a group. */
void adam(struct trainer *t, int number);

#endif
