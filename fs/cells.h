/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_CELLS_H
#define FS_CELLS_H

/* A file that is made of cells: each is an element of a slice of a state, in a form.
 *
 *	STATE.npy	STATE[0:16,:].npy	STATE[:,3].bf16	elem/STATE/12,7
 *
 *	file	|-- head --|-- cell --|-- cell --| ... |-- tail --|
 *
 * Arithmetic only.  Any thread.
 */

#include "engine/base/slice.h"
#include "engine/engine.h"
#include "fs/npy.h"

enum cells_form {
	CELLS_RAW,
	CELLS_NPY,
	CELLS_BF16,
	CELLS_F16,
	CELLS_F32,
	CELLS_TXT,     /* as wide as the longest text of the dtype, and a space or newline */
	CELLS_ELEMENT, /* a line with one element; its length is known when it is read */
};

struct cells {
	enum cells_form form;
	enum frag_dtype dtype; /* of the state */
	size_t element;        /* bytes of an element of the state */
	size_t cell;           /* bytes of a cell in the file; CELLS_ELEMENT: 0 */
	uint64_t head;         /* bytes of the header of .npy, or of a file in export/ */
	uint64_t tail;         /* bytes of the trailer of a file in export/universal/ */
	uint64_t bytes;        /* of the file; CELLS_ELEMENT: 0 */
	uint64_t of_state;     /* bytes of the state */
	struct slice slice;
};

/* Sets *c to the file that is named as its state is, with `name` behind: "" is the state
 * itself.
 * -ENOENT: there is no such file, or the state has no such element.
 */
int cells_init(struct cells *c, const char *name, const struct engine_state *state,
	       const struct engine_param *param);
/* Sets *c to the element with the given indices: "12,7", or "()" of an array without axes.
 * -ENOENT: the state has no such element, or its elements have no text.
 */
int cells_init_element(struct cells *c, const char *indices, const struct engine_state *state,
		       const struct engine_param *param);
/* Sets *c to a file of that many bytes, which are shown as they are. */
void cells_init_raw(struct cells *c, uint64_t bytes);

/* Writes c->head bytes. */
void cells_header(const struct cells *c, unsigned char out[NPY_HEADER_MAX]);

/* Returns true if what is behind the header is a range of the state's bytes, which begins at
 * *start.
 */
bool cells_is_range(const struct cells *c, uint64_t *start);
/* Returns true if the file's bytes are those of elements, or it is an element's text. */
bool cells_is_writable(const struct cells *c);

/* Writes cells of n elements, of which the first has number `first` in the slice. */
void cells_fill(const struct cells *c, uint64_t first, uint64_t n, const void *elements,
		char *out);

#endif
