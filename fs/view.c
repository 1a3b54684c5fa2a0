/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/view.h"

#include "engine/base/dtype.h"
#include "engine/base/element.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *suffix;
	enum frag_dtype dtype; /* 0: the state's */
} forms[] = {
	[VIEW_RAW] = { "", 0 },
	[VIEW_NPY] = { ".npy", 0 },
	[VIEW_BF16] = { ".bf16", FRAG_BF16 },
	[VIEW_F16] = { ".f16", FRAG_F16 },
	[VIEW_F32] = { ".f32", FRAG_F32 },
	[VIEW_TXT] = { ".txt", 0 },
};

static bool find_form(const char *suffix, enum view_form *form)
{
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		if (!strcmp(forms[i].suffix, suffix)) {
			*form = (enum view_form)i;
			return true;
		}
	}
	return false;
}

/* Gives the array that a state is.  One that has not the parameter's elements, such as a step,
 * is a number, or a row of them.
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

static void set_sizes(struct view *v)
{
	unsigned char header[NPY_HEADER_MAX];
	int head = 0;

	if (v->form == VIEW_NPY)
		head = npy_header(v->dtype, v->slice.shape, v->slice.ndim, header);
	v->head = head < 0 ? 0 : (uint64_t)head;
	v->bytes = v->head + v->slice.numel * v->cell;
}

static size_t cell_of(enum view_form form, enum frag_dtype dtype)
{
	if (form == VIEW_TXT)
		return element_width(dtype) ? element_width(dtype) + 1 : 0;
	if (!forms[form].dtype)
		return frag_dtype_size(dtype);
	return dtype_round(forms[form].dtype, NULL, dtype, NULL, 0)
		       ? 0
		       : frag_dtype_size(forms[form].dtype);
}

int view_init(struct view *v, const char *name, const struct engine_state *state,
	      const struct engine_param *param)
{
	uint64_t shape[FRAG_DIMS_MAX];
	uint32_t ndim;
	int rc = 0;

	*v = (struct view){ .dtype = state->dtype,
			    .element = frag_dtype_size(state->dtype),
			    .of_state = state->bytes };
	if (!v->element)
		return -ENOENT;
	ndim = array_of(state, param, shape);
	if (*name == '[')
		rc = slice_parse(&v->slice, name, &name, shape, ndim);
	else
		slice_all(&v->slice, shape, ndim);
	if (rc || !find_form(name, &v->form))
		return -ENOENT;
	v->cell = cell_of(v->form, v->dtype);
	set_sizes(v);
	return v->cell ? 0 : -ENOENT;
}

int view_init_element(struct view *v, const char *indices, const struct engine_state *state,
		      const struct engine_param *param)
{
	char name[FRAG_DIMS_MAX * 22 + 3];
	int rc;

	if (strlen(indices) > sizeof(name) - 3 || strpbrk(indices, ":. []"))
		return -ENOENT;
	sprintf(name, "[%s]", indices);
	rc = view_init(v, name, state, param);
	if (rc || v->slice.ndim || !element_width(v->dtype))
		return -ENOENT;
	v->form = VIEW_ELEMENT;
	v->cell = 0;
	v->bytes = 0;
	return 0;
}

void view_init_raw(struct view *v, uint64_t bytes)
{
	*v = (struct view){ .dtype = FRAG_U8, .element = 1, .cell = 1, .of_state = bytes };
	slice_all(&v->slice, &bytes, 1);
	set_sizes(v);
}

void view_header(const struct view *v, unsigned char out[NPY_HEADER_MAX])
{
	if (v->head)
		npy_header(v->dtype, v->slice.shape, v->slice.ndim, out);
}

bool view_is_range(const struct view *v, uint64_t *start)
{
	*start = v->slice.first * v->element;
	return (v->form == VIEW_RAW || v->form == VIEW_NPY) && slice_is_range(&v->slice);
}

bool view_is_writable(const struct view *v)
{
	uint64_t start;

	return v->form == VIEW_ELEMENT || view_is_range(v, &start);
}

static void fill_text(const struct view *v, uint64_t first, uint64_t n, const char *elements,
		      char *out)
{
	uint64_t row = v->slice.ndim ? v->slice.shape[v->slice.ndim - 1] : 1;

	for (uint64_t i = 0; i < n; i++, out += v->cell) {
		char text[ELEMENT_TEXT_MAX];
		size_t length = element_format(v->dtype, elements + i * v->element, text);

		memset(out, ' ', v->cell);
		memcpy(out + v->cell - 1 - length, text, length);
		if ((first + i) % row == row - 1)
			out[v->cell - 1] = '\n';
	}
}

void view_fill(const struct view *v, uint64_t first, uint64_t n, const void *elements,
	       char *out)
{
	if (v->form == VIEW_TXT)
		fill_text(v, first, n, elements, out);
	else if (forms[v->form].dtype)
		dtype_round(forms[v->form].dtype, out, v->dtype, elements, n);
	else
		memcpy(out, elements, n * v->element);
}
