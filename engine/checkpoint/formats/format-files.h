/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_FORMAT_FILES_H
#define ENGINE_CHECKPOINT_FORMATS_FORMAT_FILES_H

/* What formats do alike.  Functions return -errno and have set t->why, unless errno says all.
 */

#include "engine/checkpoint/parse/blob.h"
#include "engine/checkpoint/table/folder.h"
#include "engine/checkpoint/table/table.h"

/* A file of the folder becomes one of the table, under the name shown: its number.  blob
 * borrows the table's descriptor.
 */
int format_open(const struct folder *f, struct table *t, const char *name, const char *shown,
		struct blob *blob);
/* "NAME: what was wrong with it"; returns rc. */
int format_refuse(struct table *t, const char *name, int rc, const struct parse_error *error);

/* Under which a tensor without master is shown: "fp32", "bf16", "int64" ... */
const char *format_own_key(enum frag_dtype dtype);

#endif
