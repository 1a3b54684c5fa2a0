/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/format-files.h"
#include "engine/dtype.h"

/* ---- files ---- */

int format_refuse(struct table *t, const char *name, int rc, const struct parse_error *error)
{
	return table_refuse(t, rc, "%.100s: %s", name, error->why);
}

int format_open(const struct folder *f, struct table *t, const char *name, struct blob *blob)
{
	struct parse_error error = { "" };
	struct stat st;
	int fd = folder_open_file(f, name, &st), file, rc;

	if (fd < 0)
		return folder_failed(name, fd, t->why, sizeof(t->why));
	file = table_add_file(t, name, fd, &st);
	if (file < 0)
		return file;
	rc = blob_of_file(fd, blob, &error);
	return rc ? format_refuse(t, name, rc, &error) : file;
}

int format_open_torch(const struct folder *f, struct table *t, const char *name,
		      struct torchfile *out)
{
	struct parse_error error = { "" };
	struct blob blob;
	int file = format_open(f, t, name, &blob), rc;

	if (file < 0)
		return file;
	rc = torchfile_open(out, &blob, &error);
	return rc ? format_refuse(t, name, rc, &error) : file;
}

/* ---- tensors ---- */

const char *format_own_key(enum frag_dtype dtype)
{
	return dtype == FRAG_F32 ? "fp32" : dtype_lp_key(dtype);
}

/* Elements that are neighbours in the file, in all but the first *outer dimensions. */
static uint64_t neighbours(const struct tensor *x, uint32_t *outer)
{
	uint64_t run = 1;
	uint32_t d = x->ndim;

	for (; d && (x->shape[d - 1] == 1 || x->stride[d - 1] == run); d--)
		run *= x->shape[d - 1];
	*outer = d;
	return run;
}

uint64_t format_runs(const struct tensor *x)
{
	uint32_t outer;

	return x->numel ? x->numel / neighbours(x, &outer) : 1;
}

/* Where the i-th run begins, in elements. */
static uint64_t place(const struct tensor *x, uint32_t outer, uint64_t i)
{
	uint64_t at = 0;

	for (uint32_t d = outer; d--; i /= x->shape[d])
		at += i % x->shape[d] * x->stride[d];
	return at;
}

int format_add_state(struct table *t, const char *key, uint32_t file, uint32_t rank,
		     const struct torchfile_tensor *x)
{
	int rc = table_add_state(t, key, x->tensor.dtype);
	uint64_t run, size = frag_dtype_size(x->tensor.dtype);
	uint32_t outer;

	if (rc < 0 || !x->tensor.numel)
		return rc;
	run = neighbours(&x->tensor, &outer);
	assert(x->tensor.numel / run <= FORMAT_RUNS_MAX);
	rc = 0;
	for (uint64_t i = 0; i < x->tensor.numel / run && !rc; i++)
		rc = table_add_interval(t, file, rank,
					x->at + place(&x->tensor, outer, i) * size, i * run,
					run);
	return rc;
}
