/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMAT_FILES_H
#define ENGINE_CHECKPOINT_FORMAT_FILES_H

/* What formats do with files: each opened file is one of the table's, each state that lies there whole is
 * one interval, or a few.  Functions return -errno and have set t->why, unless errno says all.
 */

#include "engine/checkpoint/folder.h"
#include "engine/checkpoint/table.h"
#include "engine/checkpoint/torchfile.h"

/* Its number in the table.  blob borrows the table's descriptor. */
int format_open(const struct folder *f, struct table *t, const char *name, struct blob *blob);
/* The same of a file of torch.save; torchfile_close what it gives. */
int format_open_torch(const struct folder *f, struct table *t, const char *name,
		      struct torchfile *out);
/* "NAME: what was wrong with it"; returns rc. */
int format_refuse(struct table *t, const char *name, int rc, const struct parse_error *error);

/* Under which a tensor without master is shown: "fp32", "bf16", "int64" ... */
const char *format_own_key(enum frag_dtype dtype);

enum { FORMAT_RUNS_MAX = 1 << 16 };

/* How many intervals a tensor needs where it is not contiguous; 1 where it is. */
uint64_t format_runs(const struct tensor *x);
/* A state of the newest tensor that is all of x, at most FORMAT_RUNS_MAX intervals. */
int format_add_state(struct table *t, const char *key, uint32_t file, uint32_t rank,
		     const struct torchfile_tensor *x);

#endif
