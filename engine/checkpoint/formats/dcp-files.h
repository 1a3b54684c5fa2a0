/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_DCP_FILES_H
#define ENGINE_CHECKPOINT_FORMATS_DCP_FILES_H

/* The files that a .metadata names, opened as they are needed, and what is in parts of them.
 * Results as table.h has them.
 */

#include "engine/base/vec.h"
#include "engine/checkpoint/formats/dcp-names.h"
#include "engine/checkpoint/formats/torch-source.h"

struct dcp_files {
	const struct folder *folder;
	struct table *table;
	struct vec files; /* of the table, by name */
};

void dcp_files_close(struct dcp_files *f);

/* Says in the table that it is not shown. */
void dcp_files_skip(struct dcp_files *f, const struct dcp_name *x, const char *why);

/* The archive of x at a place; torch_source_close what it gives.  1: it is not as it was, which
 * is said.
 */
int dcp_files_open(struct dcp_files *f, const struct dcp_name *x, const struct dcp_place *place,
		   struct torch_source *out);

#endif
