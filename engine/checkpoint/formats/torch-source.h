/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_TORCH_SOURCE_H
#define ENGINE_CHECKPOINT_FORMATS_TORCH_SOURCE_H

/* A file of torch.save in a checkpoint's folder, and its tensors in the table.  Its pickle
 * lives until torch_source_close; the descriptor is the table's.
 */

#include "engine/checkpoint/parse/torchfile.h"
#include "engine/checkpoint/table/folder.h"
#include "engine/checkpoint/table/table.h"

enum { TORCH_SOURCE_RUNS_MAX = 4096 }; /* pieces of one tensor that is not contiguous */

struct torch_source {
	struct table *table;
	const char *name; /* the caller's */
	uint32_t file;    /* in the table */
	uint32_t rank;    /* whose pieces its tensors are */
	struct torchfile torch;
	uint32_t root;
};

/* Results as table.h has them, with a line that names the file. */
int torch_source_open(struct torch_source *s, struct table *t, const struct folder *f,
		      const char *name, uint32_t rank);
/* The same of an archive that is a part of one of the table's files. */
int torch_source_open_part(struct torch_source *s, struct table *t, uint32_t file,
			   const struct blob *part, uint32_t rank);
void torch_source_close(struct torch_source *s);

/* Sets the table's line to "FILE: ..." and returns -EINVAL. */
int torch_source_refuse(struct torch_source *s, const char *fmt, ...) PRINTF(2, 3);

/* false: no tensor, or one of too many dimensions. */
bool torch_source_tensor(const struct torch_source *s, uint32_t node,
			 struct torchfile_tensor *out);
/* Says in the table why a tensor that is there, at the node, is not shown; of what is none,
 * `other`.
 */
void torch_source_skip(const struct torch_source *s, const char *name, uint32_t node,
		       const char *other);
/* Whether it can be pieces: contiguous, or cut into few runs. */
bool torch_source_fits(const struct torchfile_tensor *x);
/* How many pieces it is. */
uint64_t torch_source_runs(const struct torchfile_tensor *x);
/* The newest state's elements from `first` on are those of a tensor that fits. */
int torch_source_add_pieces(struct torch_source *s, const struct torchfile_tensor *x,
			    uint64_t first);
/* The newest state's box at offsets is a tensor that fits, of as many dimensions as the state
 * has.
 */
int torch_source_add_box(struct torch_source *s, const struct torchfile_tensor *x,
			 const uint64_t *offsets);
/* A state of the newest tensor that is all of one that fits; key NULL: table_own_key. */
int torch_source_add_state(struct torch_source *s, const char *key,
			   const struct torchfile_tensor *x);
/* Its bytes become pieces of the table in another way: edits keep the CRC over them right. */
int torch_source_use(const struct torch_source *s, const struct torchfile_tensor *x);

/* The text of a pickle as a name or a key, in which a byte of value 0 is C0 80, as no UTF-8
 * text has it. false: no text, or longer than size - 1.
 */
bool torch_source_text(const struct pickle *p, uint32_t node, char *out, size_t size);

#endif
