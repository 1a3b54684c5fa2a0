/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_TABLE_TABLE_FILES_H
#define ENGINE_CHECKPOINT_TABLE_TABLE_FILES_H

/* Files of a checkpoint's folder become files of its table.  Functions return -errno, and set
 * t->why unless errno says all.
 */

#include "engine/checkpoint/parse/torchfile.h"
#include "engine/checkpoint/table/folder.h"
#include "engine/checkpoint/table/table.h"

/* Opens a file of the folder and adds it to the table under the name `shown`; returns its
 * number there.  *blob borrows the table's descriptor.
 */
int table_files_open(struct table *t, const struct folder *f, const char *name,
		     const char *shown, struct blob *blob);
/* Sets t->why to "NAME: " and the error's text; returns rc. */
int table_files_refuse(struct table *t, const char *name, int rc,
		       const struct parse_error *error);

/* Adds the zip entry that holds the tensor x of f, if one does, so that edits keep the entry's
 * CRC right.  `file` is f's number in the table.  Called for each tensor whose elements become
 * pieces, perhaps several times for one storage.
 */
int table_files_add_torch_entry(struct table *t, uint32_t file, const struct torchfile *f,
				const struct torchfile_tensor *x);

#endif
