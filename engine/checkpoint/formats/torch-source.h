/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_TORCH_SOURCE_H
#define ENGINE_CHECKPOINT_FORMATS_TORCH_SOURCE_H

/* A torch.save file in a checkpoint's folder, and how its tensors become states of the table.
 * The pickle lives until torch_source_close(); the table owns the descriptor.
 */

#include "engine/checkpoint/parse/torchfile.h"
#include "engine/checkpoint/table/folder.h"
#include "engine/checkpoint/table/table.h"

enum { TORCH_SOURCE_RUNS_MAX = 4096 }; /* pieces of one tensor that is not contiguous */

struct torch_source {
	struct table *table;
	const char *name; /* borrowed from the caller */
	uint32_t file;    /* in the table */
	uint32_t rank;    /* of the pieces that its tensors become */
	struct torchfile torch;
	uint32_t root;
};

/* Opens a file and adds it to the table.  Results are those of table.h; t->why names the file.
 */
int torch_source_open(struct torch_source *s, struct table *t, const struct folder *f,
		      const char *name, uint32_t rank);
/* Opens an archive that is a part of one of the table's files. */
int torch_source_open_part(struct torch_source *s, struct table *t, uint32_t file,
			   const struct blob *part, uint32_t rank);
void torch_source_close(struct torch_source *s);

/* Sets the table's `why` to "FILE: ..." and returns -EINVAL. */
int torch_source_refuse(struct torch_source *s, const char *fmt, ...) PRINTF(2, 3);

/* Reads the tensor at a node.  Returns false if there is none, or it has too many dimensions.
 */
bool torch_source_tensor(const struct torch_source *s, uint32_t node,
			 struct torchfile_tensor *out);
/* Notes in the table why the tensor at the node is not shown: its kind, if tensors of its kind
 * are not shown; else the reason is `other`.
 */
void torch_source_skip(const struct torch_source *s, const char *name, uint32_t node,
		       const char *other);
/* Returns true if x can become pieces: it is contiguous, or has at most TORCH_SOURCE_RUNS_MAX
 * runs.
 */
bool torch_source_fits(const struct torchfile_tensor *x);
/* Returns the number of pieces that x becomes. */
uint64_t torch_source_runs(const struct torchfile_tensor *x);
/* Adds x, which fits, as the newest state's elements from `first` on. */
int torch_source_add_pieces(struct torch_source *s, const struct torchfile_tensor *x,
			    uint64_t first);
/* Adds x, which fits, as the box at `offsets` of the newest state; both have as many
 * dimensions.
 */
int torch_source_add_box(struct torch_source *s, const struct torchfile_tensor *x,
			 const uint64_t *offsets);
/* Adds a state of the newest tensor that is all of x, which fits.  key NULL: table_own_key().
 */
int torch_source_add_state(struct torch_source *s, const char *key,
			   const struct torchfile_tensor *x);
/* Adds the zip entry of x, so that edits keep its CRC right, for a caller that adds the pieces
 * of x itself.
 */
int torch_source_use(const struct torch_source *s, const struct torchfile_tensor *x);

/* Copies a pickle's text as a name or key.  A NUL in it becomes C0 80, which no UTF-8 text
 * contains.  Returns false if the node is no text, or longer than size - 1.
 */
bool torch_source_text(const struct pickle *p, uint32_t node, char *out, size_t size);

#endif
