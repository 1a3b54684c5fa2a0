/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_DCP_FILES_H
#define ENGINE_CHECKPOINT_FORMATS_DCP_FILES_H

/* The files that a .metadata names, opened when they are first needed, and the archives in
 * them.  Functions return results as in table.h.
 */

#include "engine/base/vec.h"
#include "engine/checkpoint/formats/dcp-names.h"
#include "engine/checkpoint/formats/torch-source.h"

struct dcp_files {
	const struct folder *folder;
	struct table *table;
	struct vec files; /* opened ones, by name */
};

void dcp_files_close(struct dcp_files *f);

/* Notes in the table why x is not shown. */
void dcp_files_skip(struct dcp_files *f, const struct dcp_name *x, const char *why);

/* Opens the archive of x at a place; torch_source_close() closes it.
 * 1: the archive is compressed or otherwise transformed; the table has a note.
 */
int dcp_files_open(struct dcp_files *f, const struct dcp_name *x, const struct dcp_place *place,
		   struct torch_source *out);

#endif
