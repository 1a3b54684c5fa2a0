/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_VIEW_H
#define FS_VIEW_H

/* A file that is made of a state's elements: a slice of them, in a form.
 *
 *	STATE.npy	STATE[0:16,:].npy	STATE[:,3].bf16	elem/STATE/12,7
 *
 *	file	|-- head --|-- cell --|-- cell --| ...	a cell is an element of the slice
 *
 * Arithmetic only.  Any thread.
 */

#include "engine/base/slice.h"
#include "engine/engine.h"
#include "fs/npy.h"

enum view_form {
	VIEW_RAW,
	VIEW_NPY,
	VIEW_BF16,
	VIEW_F16,
	VIEW_F32,
	VIEW_TXT,     /* as wide as the longest text of the dtype, and a space or newline */
	VIEW_ELEMENT, /* a line with one element; its length is known when it is read */
};

struct view {
	enum view_form form;
	enum frag_dtype dtype; /* of the state */
	size_t element;        /* bytes of one of the state */
	size_t cell;           /* bytes of one in the file; VIEW_ELEMENT: 0 */
	uint64_t head;         /* bytes of the header of .npy, or of a file in export/ */
	uint64_t tail;         /* bytes of the trailer of a file in export/universal/ */
	uint64_t bytes;        /* of the file; VIEW_ELEMENT: 0 */
	uint64_t of_state;     /* bytes of the state */
	struct slice slice;
};

/* Sets *v to the view that a file name has behind that of its state: "" is the state itself.
 * -ENOENT: there is no such view, or the state has no such element.
 */
int view_init(struct view *v, const char *name, const struct engine_state *state,
	      const struct engine_param *param);
/* Sets *v to the element that has these indices: "12,7", or "()" of an array without axes.
 * -ENOENT.
 */
int view_init_element(struct view *v, const char *indices, const struct engine_state *state,
		      const struct engine_param *param);
/* Sets *v to a state, or whatever else has that many bytes, as it is. */
void view_init_raw(struct view *v, uint64_t bytes);

/* Writes v->head bytes. */
void view_header(const struct view *v, unsigned char out[NPY_HEADER_MAX]);

/* Returns true if what is behind the header is a range of the state's bytes, which begins at
 * *start.
 */
bool view_is_range(const struct view *v, uint64_t *start);
/* Returns true for such a range, and for an element. */
bool view_is_writable(const struct view *v);

/* Writes cells of n elements, of which the first has number `first` in the slice. */
void view_fill(const struct view *v, uint64_t first, uint64_t n, const void *elements,
	       char *out);

#endif
