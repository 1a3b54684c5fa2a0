/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRAINER_H
#define TRAINER_H

/* The state of one rank that trains.  train.c has its loop; attach.c joins the other ranks and
 * describes parameters and states to the library; weights.c and arena.c have the bf16
 * parameters, adam.c the optimizer, loader.c the data.
 */

#include "loader.h"
#include "model.h"
#include "options.h"

#include <frag.h>

enum { NGROUPS = 2 };
enum { MASTER, GRAD, EXP_AVG, EXP_AVG_SQ, NSTATES };

struct param {
	uint64_t flat;            /* the first element, counted through all groups */
	uint64_t shard;           /* stage 3: this rank's first element in lp */
	uint64_t piece;           /* stage 3: the elements that each rank has */
	int id;                   /* from frag_param() */
	struct frag_fragment own; /* the part in this rank's partition */
};

/* A param group of the optimizer, and this rank's partition of it. */
struct group {
	int id; /* from frag_group() */
	double lr, beta1, beta2, eps, weight_decay;
	uint64_t flat;  /* the first element, counted through all groups */
	uint64_t total; /* elements of the group */
	uint64_t numel; /* elements of the partition, padding included */
	float *master, *grad, *exp_avg, *exp_avg_sq; /* NULL: on NVMe */
	float *on_device[NSTATES]; /* not NULL: the four above are the host's copies of these */
};

/* The numbers that a rank publishes beside its gradients. */
struct word {
	double loss; /* sum over the rank's samples */
	double stop; /* 1: the rank was asked to stop */
};

struct trainer {
	struct options options;
	struct frag *frag; /* NULL: alone */
	int rank, world;
	struct loader data;
	struct model model;
	struct param param[MODEL_NPARAMS];
	struct group group[NGROUPS];
	uint64_t total; /* elements of the model */
	float *weight, *gradient, *scratch, *sum;
	/* bf16.  Stages 0 to 2: all parameters.  Stage 3: this rank's shards, or those on the
	 * way to NVMe or to the arena.
	 */
	uint16_t *lp;
	uint64_t lp_numel;
	uint64_t held; /* block of the arena with the parameter that was gathered last */
	bool holds;
	struct word word;
	uint64_t step;   /* steps done, those before --first-step included */
	uint64_t losses; /* a digest of the bits of all losses */
};

/* ---- trainer.c ---- */

void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void *zeroed(uint64_t n, size_t size);
/* Returns the result of a call of libfrag; ends the program where it is an error, unless this
 * rank trains alone.
 */
int need(const struct trainer *t, const char *what, int result);
/* Waits until all ranks have called it. */
void barrier(struct trainer *t);
/* Reads bytes of memory that another rank has published under a name. */
void pull(struct trainer *t, int rank, const char *name, uint64_t offset, void *out,
	  uint64_t bytes);
/* Returns the number of the parameter's group. */
int group_of(const struct trainer *t, int p);
/* Stores n elements of a state of the partition, from `first` on, where the state is: in
 * `memory`, on a device, or on NVMe.
 */
void put(struct trainer *t, const struct group *g, int state, const char *key, float *memory,
	 uint64_t first, const float *values, uint64_t n);

/* ---- attach.c ---- */

void attach(struct trainer *t);

/* ---- weights.c ---- */

/* Returns true if this rank's bf16 shards are on NVMe or in an arena, where other ranks read
 * them by frag_get_range() and frag_leaf_get().
 */
bool shards_move(const struct trainer *t);

/* Rounds n masters to bf16 into this rank's part of parameter p, from its element `at` on. */
void narrow(struct trainer *t, int p, uint64_t at, const float *master, uint64_t n);
/* Fills the weights that a step computes with from the bf16 parameters, anew for each step: an
 * edit through the mount may have changed these in place.
 */
void load_weights(struct trainer *t);
/* Stages 1 and 2: reads the bf16 parameters of the other ranks. */
void pull_parameters(struct trainer *t);

/* ---- arena.c: with --arena ---- */

/* Opens an arena, on the device where there is one, and lays this rank's shards into it. */
void arena_open(struct trainer *t);
/* Copies n elements into this rank's shard of parameter p, from its element `at` on. */
void arena_put(struct trainer *t, int p, uint64_t at, const uint16_t *values, uint64_t n);
/* Copies n elements of the shard, from its beginning. */
void arena_get(struct trainer *t, int p, uint16_t *values, uint64_t n);
/* Puts a gathered parameter into a block of the arena until the next one is there, as a trainer
 * does that computes from it.
 */
void arena_hold(struct trainer *t, const uint16_t *values, uint64_t n);
/* Frees the block of the last one. */
void arena_let_go(struct trainer *t);
/* Prints how large the arena is, and how much was moved in it. */
void arena_report(const struct trainer *t);

/* ---- adam.c ---- */

/* Updates this rank's partition of a group. */
void adam(struct trainer *t, int number);

#endif
