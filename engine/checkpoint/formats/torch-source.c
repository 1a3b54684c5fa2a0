/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/torch-source.h"
#include "engine/checkpoint/parse/torch-unsupported.h"
#include "engine/checkpoint/table/table-files.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

int torch_source_refuse(struct torch_source *s, const char *fmt, ...)
{
	char why[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	return table_refuse(s->table, -EINVAL, "%.100s: %s", s->name, why);
}

static int parse(struct torch_source *s, const struct blob *b)
{
	struct parse_error error = { "" };
	int rc = torchfile_open(&s->torch, b, &error);

	if (rc)
		return table_refuse(s->table, rc, "%.100s: %s", s->name, error.why);
	s->root = pickle_root(s->torch.pickle);
	return 0;
}

int torch_source_open(struct torch_source *s, struct table *t, const struct folder *f,
		      const char *name, uint32_t rank)
{
	struct blob blob;
	int file = table_files_open(t, f, name, name, &blob);

	*s = (struct torch_source){ .table = t, .name = name, .rank = rank };
	if (file < 0)
		return file;
	s->file = (uint32_t)file;
	return parse(s, &blob);
}

int torch_source_open_part(struct torch_source *s, struct table *t, uint32_t file,
			   const struct blob *part, uint32_t rank)
{
	*s = (struct torch_source){
		.table = t, .name = t->files[file].name, .file = file, .rank = rank
	};
	return parse(s, part);
}

void torch_source_close(struct torch_source *s)
{
	torchfile_close(&s->torch);
}

/* ---- tensors ---- */

bool torch_source_tensor(const struct torch_source *s, uint32_t node,
			 struct torchfile_tensor *out)
{
	struct parse_error error;

	return !torchfile_tensor(&s->torch, node, out, &error);
}

void torch_source_skip(const struct torch_source *s, const char *name, uint32_t node,
		       const char *other)
{
	struct parse_error error = { "" };
	char why[TORCH_UNSUPPORTED_MAX];
	struct torchfile_tensor x;

	if (torch_unsupported(s->torch.pickle, node, why))
		table_skip(s->table, name, "%s", why);
	else if (torchfile_tensor(&s->torch, node, &x, &error) == -EOPNOTSUPP)
		table_skip(s->table, name, "%s", error.why);
	else
		table_skip(s->table, name, "%s", other);
}

/* Returns how many elements are adjacent in the file: those of the dimensions from *outer on.
 */
static uint64_t run_of(const struct tensor *x, uint32_t *outer)
{
	uint64_t run = 1;
	uint32_t d = x->ndim;

	while (d && (x->shape[d - 1] == 1 || x->stride[d - 1] == run))
		run *= x->shape[--d];
	*outer = d;
	return run;
}

uint64_t torch_source_runs(const struct torchfile_tensor *x)
{
	uint32_t outer;

	return x->tensor.contiguous ? 1 : x->tensor.numel / run_of(&x->tensor, &outer);
}

bool torch_source_fits(const struct torchfile_tensor *x)
{
	return torch_source_runs(x) <= TORCH_SOURCE_RUNS_MAX;
}

static int add_runs(struct torch_source *s, const struct torchfile_tensor *x, uint64_t first)
{
	uint32_t outer;
	uint64_t run = run_of(&x->tensor, &outer), size = frag_dtype_size(x->tensor.dtype);
	int rc = 0;

	for (uint64_t i = 0; i < x->tensor.numel && !rc; i += run) {
		/* at: where the run begins, in elements from the first */
		uint64_t at = 0, rest = i / run;

		for (uint32_t d = outer; d-- > 0; rest /= x->tensor.shape[d])
			at += rest % x->tensor.shape[d] * x->tensor.stride[d];
		rc = table_add_interval(s->table, s->file, s->rank, x->at + at * size,
					first + i, run);
	}
	return rc;
}

int torch_source_use(const struct torch_source *s, const struct torchfile_tensor *x)
{
	return table_files_add_torch_entry(s->table, s->file, &s->torch, x);
}

int torch_source_add_pieces(struct torch_source *s, const struct torchfile_tensor *x,
			    uint64_t first)
{
	int rc = torch_source_use(s, x);

	assert(torch_source_fits(x));
	if (rc)
		return rc;
	if (!x->tensor.contiguous)
		return add_runs(s, x, first);
	return table_add_interval(s->table, s->file, s->rank, x->at, first, x->tensor.numel);
}

/* Adds the i-th run as a box, which has one element in each outer dimension and all in the
 * others.
 */
static int add_run_box(struct torch_source *s, const struct torchfile_tensor *x,
		       const uint64_t *offsets, uint32_t outer, uint64_t i)
{
	uint64_t at[FRAG_DIMS_MAX] = { 0 }, sizes[FRAG_DIMS_MAX] = { 0 }, place = 0;

	for (uint32_t d = x->tensor.ndim; d-- > 0;) {
		uint64_t digit = d < outer ? i % x->tensor.shape[d] : 0;

		at[d] = offsets[d] + digit;
		sizes[d] = d < outer ? 1 : x->tensor.shape[d];
		place += digit * x->tensor.stride[d];
		i = d < outer ? i / x->tensor.shape[d] : i;
	}
	return table_add_box(s->table, s->file, s->rank,
			     x->at + place * frag_dtype_size(x->tensor.dtype), at, sizes);
}

int torch_source_add_box(struct torch_source *s, const struct torchfile_tensor *x,
			 const uint64_t *offsets)
{
	uint32_t outer = 0;
	int rc = torch_source_use(s, x);

	assert(torch_source_fits(x));
	if (!x->tensor.contiguous)
		run_of(&x->tensor, &outer);
	for (uint64_t i = 0; i < torch_source_runs(x) && !rc; i++)
		rc = add_run_box(s, x, offsets, outer, i);
	return rc;
}

int torch_source_add_state(struct torch_source *s, const char *key,
			   const struct torchfile_tensor *x)
{
	int rc = table_add_state(s->table, key ? key : table_own_key(x->tensor.dtype),
				 x->tensor.dtype);

	return rc < 0 ? rc : torch_source_add_pieces(s, x, 0);
}

/* ---- texts ---- */

bool torch_source_text(const struct pickle *p, uint32_t node, char *out, size_t size)
{
	size_t length, n = 0;
	const char *text = pickle_text(p, node, &length);

	if (!text || pickle_kind(p, node) != PICKLE_TEXT)
		return false;
	for (size_t i = 0; i < length; i++) {
		if (n + (text[i] ? 1 : 2) >= size)
			return false;
		if (!text[i])
			out[n++] = '\xc0';
		out[n++] = text[i] ? text[i] : '\x80';
	}
	out[n] = '\0';
	return true;
}
