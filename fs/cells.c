/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/cells.h"

#include "engine/base/dtype.h"
#include "engine/base/element.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *suffix;
	enum frag_dtype dtype; /* 0: the state's */
} forms[] = {
	[CELLS_RAW] = { "", 0 },
	[CELLS_NPY] = { ".npy", 0 },
	[CELLS_BF16] = { ".bf16", FRAG_BF16 },
	[CELLS_F16] = { ".f16", FRAG_F16 },
	[CELLS_F32] = { ".f32", FRAG_F32 },
	[CELLS_TXT] = { ".txt", 0 },
};

static bool find_form(const char *suffix, enum cells_form *form)
{
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		if (!strcmp(forms[i].suffix, suffix)) {
			*form = (enum cells_form)i;
			return true;
		}
	}
	return false;
}

/* Gives the shape of a state as an array.  A state with other elements than the parameter's,
 * such as a step, is a number, or a row of numbers.
 */
static uint32_t array_of(const struct engine_state *state, const struct engine_param *param,
			 uint64_t shape[FRAG_DIMS_MAX])
{
	size_t element = frag_dtype_size(state->dtype);
	uint64_t bytes;

	if (!u64_mul(param->numel, element, &bytes) || bytes != state->bytes) {
		shape[0] = state->bytes / element;
		return state->bytes == element ? 0 : 1;
	}
	memcpy(shape, param->shape, param->ndim * sizeof(*shape));
	return param->ndim;
}

static void set_sizes(struct cells *c)
{
	unsigned char header[NPY_HEADER_MAX];
	int head = 0;

	if (c->form == CELLS_NPY)
		head = npy_header(c->dtype, c->slice.shape, c->slice.ndim, header);
	c->head = head < 0 ? 0 : (uint64_t)head;
	c->bytes = c->head + c->slice.numel * c->cell;
}

static size_t cell_of(enum cells_form form, enum frag_dtype dtype)
{
	if (form == CELLS_TXT)
		return element_width(dtype) ? element_width(dtype) + 1 : 0;
	if (!forms[form].dtype)
		return frag_dtype_size(dtype);
	return dtype_round(forms[form].dtype, NULL, dtype, NULL, 0)
		       ? 0
		       : frag_dtype_size(forms[form].dtype);
}

int cells_init(struct cells *c, const char *name, const struct engine_state *state,
	       const struct engine_param *param)
{
	uint64_t shape[FRAG_DIMS_MAX];
	uint32_t ndim;
	int rc = 0;

	*c = (struct cells){ .dtype = state->dtype,
			     .element = frag_dtype_size(state->dtype),
			     .of_state = state->bytes };
	if (!c->element)
		return -ENOENT;
	ndim = array_of(state, param, shape);
	if (*name == '[')
		rc = slice_parse(&c->slice, name, &name, shape, ndim);
	else
		slice_all(&c->slice, shape, ndim);
	if (rc || !find_form(name, &c->form))
		return -ENOENT;
	c->cell = cell_of(c->form, c->dtype);
	set_sizes(c);
	return c->cell ? 0 : -ENOENT;
}

int cells_init_element(struct cells *c, const char *indices, const struct engine_state *state,
		       const struct engine_param *param)
{
	char name[FRAG_DIMS_MAX * 22 + 3];
	int rc;

	if (strlen(indices) > sizeof(name) - 3 || strpbrk(indices, ":. []"))
		return -ENOENT;
	sprintf(name, "[%s]", indices);
	rc = cells_init(c, name, state, param);
	if (rc || c->slice.ndim || !element_width(c->dtype))
		return -ENOENT;
	c->form = CELLS_ELEMENT;
	c->cell = 0;
	c->bytes = 0;
	return 0;
}

void cells_init_raw(struct cells *c, uint64_t bytes)
{
	*c = (struct cells){ .dtype = FRAG_U8, .element = 1, .cell = 1, .of_state = bytes };
	slice_all(&c->slice, &bytes, 1);
	set_sizes(c);
}

void cells_header(const struct cells *c, unsigned char out[NPY_HEADER_MAX])
{
	if (c->head)
		npy_header(c->dtype, c->slice.shape, c->slice.ndim, out);
}

bool cells_is_range(const struct cells *c, uint64_t *start)
{
	*start = c->slice.first * c->element;
	return (c->form == CELLS_RAW || c->form == CELLS_NPY) && slice_is_range(&c->slice);
}

bool cells_is_writable(const struct cells *c)
{
	return c->form == CELLS_ELEMENT || c->form == CELLS_RAW || c->form == CELLS_NPY;
}

static void fill_text(const struct cells *c, uint64_t first, uint64_t n, const char *elements,
		      char *out)
{
	uint64_t row = c->slice.ndim ? c->slice.shape[c->slice.ndim - 1] : 1;

	for (uint64_t i = 0; i < n; i++, out += c->cell) {
		char text[ELEMENT_TEXT_MAX];
		size_t length = element_format(c->dtype, elements + i * c->element, text);

		memset(out, ' ', c->cell);
		memcpy(out + c->cell - 1 - length, text, length);
		if ((first + i) % row == row - 1)
			out[c->cell - 1] = '\n';
	}
}

void cells_fill(const struct cells *c, uint64_t first, uint64_t n, const void *elements,
		char *out)
{
	if (c->form == CELLS_TXT)
		fill_text(c, first, n, elements, out);
	else if (forms[c->form].dtype)
		dtype_round(forms[c->form].dtype, out, c->dtype, elements, n);
	else
		memcpy(out, elements, n * c->element);
}
