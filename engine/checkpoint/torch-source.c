/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/torch-source.h"
#include "engine/dtype.h"

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

static int parse(struct torch_source *s, int fd)
{
	struct parse_error error = { "" };
	struct blob blob;
	int rc = blob_of_file(fd, &blob, &error);

	if (!rc)
		rc = torchfile_open(&s->torch, &blob, &error);
	if (rc)
		return table_refuse(s->table, rc, "%.100s: %s", s->name, error.why);
	s->root = pickle_root(s->torch.pickle);
	return 0;
}

int torch_source_open(struct torch_source *s, struct table *t, const struct folder *f,
		      const char *name, uint32_t rank)
{
	struct stat st;
	int fd = folder_open_file(f, name, &st), file;

	*s = (struct torch_source){ .table = t, .name = name, .rank = rank };
	if (fd < 0)
		return folder_failed(name, fd, t->why, sizeof(t->why));
	file = table_add_file(t, name, fd, &st);
	if (file < 0)
		return file;
	s->file = (uint32_t)file;
	return parse(s, fd);
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

/* Elements that are neighbours in the file: those of the dimensions from *outer on. */
static uint64_t run_of(const struct tensor *x, uint32_t *outer)
{
	uint64_t run = 1;
	uint32_t d = x->ndim;

	while (d && (x->shape[d - 1] == 1 || x->stride[d - 1] == run))
		run *= x->shape[--d];
	*outer = d;
	return run;
}

bool torch_source_fits(const struct torchfile_tensor *x)
{
	uint32_t outer;

	return x->tensor.contiguous ||
	       x->tensor.numel / run_of(&x->tensor, &outer) <= TORCH_SOURCE_RUNS_MAX;
}

/* The place of the run that begins with that element, relative to the first, in elements. */
static uint64_t place_of(const struct tensor *x, uint32_t outer, uint64_t run, uint64_t element)
{
	uint64_t at = 0, rest = element / run;

	for (uint32_t d = outer; d-- > 0; rest /= x->shape[d])
		at += rest % x->shape[d] * x->stride[d];
	return at;
}

static int add_runs(struct torch_source *s, const struct torchfile_tensor *x, uint64_t first)
{
	uint32_t outer;
	uint64_t run = run_of(&x->tensor, &outer), size = frag_dtype_size(x->tensor.dtype);
	int rc = 0;

	for (uint64_t i = 0; i < x->tensor.numel && !rc; i += run)
		rc = table_add_interval(s->table, s->file, s->rank,
					x->at + place_of(&x->tensor, outer, run, i) * size,
					first + i, run);
	return rc;
}

int torch_source_add_pieces(struct torch_source *s, const struct torchfile_tensor *x,
			    uint64_t first)
{
	assert(torch_source_fits(x));
	if (!x->tensor.contiguous)
		return add_runs(s, x, first);
	return table_add_interval(s->table, s->file, s->rank, x->at, first, x->tensor.numel);
}

int torch_source_add_segment(struct torch_source *s, const struct torchfile_tensor *x)
{
	assert(x->tensor.contiguous);
	return table_add_segment(s->table, s->file, s->rank, x->at, x->tensor.numel);
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
