/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_CHECKPOINT_EDIT_EDITED_H
#define TESTS_UNIT_CHECKPOINT_EDIT_EDITED_H

/* A small checkpoint to edit, in a folder of its own, and what its files should hold.
 *
 *	rank0.pt, rank1.pt	zip: fp32 of `w` and `b` as one vector, then padding; so exp_avg
 *	model.pt		zip: bf16 of `w`, `b`, `frozen`; copies of `frozen`, `b` (fp16)
 *	boxes			fp32 of `grid`, in four boxes
 */

#include "engine/checkpoint/table/table.h"
#include "engine/engine.h"
#include "tests/unit/checkpoint/parse/archive.h"

enum { EDITED_FILES = 4, EDITED_FILE_MAX = 1 << 15 };

enum edited_state {
	EDITED_W,
	EDITED_B,
	EDITED_W_AVG,
	EDITED_FROZEN,
	EDITED_GRID,
	EDITED_STATES
};

struct edited {
	char dir[64];
	uint8_t files[EDITED_FILES][EDITED_FILE_MAX]; /* as they should be */
	size_t sizes[EDITED_FILES];
	struct archive archives[3];
};

extern const char *const edited_names[EDITED_FILES];

/* size: bytes of the state; item: of an element. */
struct edited_truth {
	const char *param, *key;
	uint64_t size;
	size_t item;
};
extern const struct edited_truth edited_truths[EDITED_STATES];

/* Makes dir and its files. */
void edited_make(struct edited *x);
void edited_remove(struct edited *x);
/* Gives a file a time of tomorrow, as another host's clock may. */
void edited_make_newer(const struct edited *x, const char *name);

/* A table of them, finished; files are opened for reading. */
struct table *edited_table(const struct edited *x);
/* The number of a tensor; TABLE_NONE: none has the name. */
uint32_t edited_find(const struct table *t, const char *name);
/* They, behind the door; -errno: as checkpoint_open's, with a line. */
int edited_open(const struct edited *x, struct engine **e, bool writable, bool coherent,
		char *why, size_t whysize);

/* The same, with edits in an overlay. */
int edited_open_beside(const struct edited *x, struct engine **e, const char *overlay,
		       char *why, size_t whysize);

/* What a write should make of the files. */
void edited_expect(struct edited *x, enum edited_state state, uint64_t offset, const void *data,
		   size_t size, bool coherent);
/* The value of a state that should be read. */
void edited_value(const struct edited *x, enum edited_state state, uint8_t *out);
/* Whether all files are, byte by byte. */
bool edited_is_as_expected(const struct edited *x);

/* Writes and waits; engine_write's result. */
int edited_write(struct engine *e, enum edited_state state, const struct engine_extent *extents,
		 size_t n);
/* The time of a state's last change. */
uint64_t edited_changed_ns(struct engine *e, enum edited_state state);
struct engine_file *edited_open_state(struct engine *e, enum edited_state state);
int64_t edited_read(struct engine *e, struct engine_file *file, uint64_t offset, size_t size,
		    void *out);

#endif
