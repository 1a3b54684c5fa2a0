/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/checkpoint/formats/dcp-files.h"
#include "engine/checkpoint/formats/dcp-groups.h"
#include "engine/checkpoint/formats/dcp-names.h"
#include "engine/checkpoint/table/table-files.h"
#include "engine/checkpoint/formats/format.h"
#include "engine/checkpoint/formats/torch-hypers.h"
#include "engine/checkpoint/parse/torch-unsupported.h"

#include <errno.h>
#include <string.h>

/* torch.distributed.checkpoint: .metadata and the files that it names. */

#define METADATA ".metadata"

enum { ALL_RUNS_MAX = 1 << 20 };

struct filling {
	const struct folder *folder;
	struct table *table;
	struct dcp metadata;
	struct dcp_names names;
	struct dcp_files files;
	uint64_t runs; /* of chunks that are not contiguous, so far */
	double step;   /* the highest; below 0: none */
};

static bool knows(const struct folder *f)
{
	return !f->only && folder_has(f, METADATA);
}

static int refuse(struct filling *l, int rc, const struct parse_error *error)
{
	return table_refuse_file(l->table, METADATA, rc, error);
}

static void see_untaken(void *arg, const struct dcp_item *item, const char *why)
{
	struct filling *l = arg;

	table_note(l->table, "skipped %s", why); /* which begins with its name */
}

/* ---- chunks ---- */

/* Checks a chunk against its item.  1: it is not taken; the table has a note. */
static int check_chunk(struct filling *l, const struct dcp_name *x, const struct dcp_item *item,
		       const struct dcp_chunk *chunk, const struct torch_source *s,
		       struct torchfile_tensor *out)
{
	char why[TORCH_UNSUPPORTED_MAX];
	struct parse_error error;
	int rc = torchfile_tensor(&s->torch, s->root, out, &error);

	if (rc && torch_unsupported(s->torch.pickle, s->root, why)) {
		dcp_files_skip(&l->files, x, why);
		return 1;
	}
	if (rc)
		return table_refuse_file(l->table, s->name, rc, &error);
	if (out->tensor.dtype != item->dtype || out->tensor.ndim != item->ndim ||
	    memcmp(out->tensor.shape, chunk->sizes, item->ndim * sizeof(*chunk->sizes)))
		return table_refuse(l->table, -EINVAL, "%s: a chunk of %.*s is not as %s says",
				    s->name, (int)u64_min(x->size, 100), x->name, METADATA);
	l->runs += out->tensor.contiguous ? 0 : torch_source_runs(out);
	if (torch_source_fits(out) && l->runs <= ALL_RUNS_MAX)
		return 0;
	dcp_files_skip(&l->files, x, "its elements are scattered over the file");
	return 1;
}

static int add_chunk(struct filling *l, const struct dcp_name *x, const struct dcp_item *item,
		     const struct dcp_chunk *chunk)
{
	struct torchfile_tensor tensor;
	struct torch_source s;
	int rc = dcp_files_open(&l->files, x, &chunk->place, &s);

	if (rc)
		return rc;
	rc = check_chunk(l, x, item, chunk, &s, &tensor);
	if (!rc)
		rc = torch_source_add_box(&s, &tensor, chunk->offsets);
	torch_source_close(&s);
	return rc;
}

static int add_chunks(struct filling *l, const struct dcp_name *x, const struct dcp_item *item)
{
	struct parse_error error = { "" };
	struct dcp_chunk chunk;
	int rc = 0;

	for (uint32_t i = 0; i < item->nchunks && !rc; i++) {
		rc = dcp_chunk(&l->metadata, item, i, &chunk, &error);
		if (rc)
			return refuse(l, rc, &error);
		if (!chunk.is_empty)
			rc = add_chunk(l, x, item, &chunk);
	}
	return rc;
}

/* ---- parameters ---- */

/* Adds the element of a scalar, which need not have the parameter's dimensions. */
static int add_element(struct filling *l, const struct dcp_name *x, const struct dcp_item *item,
		       const struct dcp_chunk *chunk)
{
	struct torchfile_tensor tensor;
	struct torch_source s;
	double step;
	int rc = dcp_files_open(&l->files, x, &chunk->place, &s);

	if (rc)
		return rc;
	rc = check_chunk(l, x, item, chunk, &s, &tensor);
	if (!rc)
		rc = torch_source_add_pieces(&s, &tensor, 0);
	if (!rc && x->key_size == 4 && !memcmp(x->key, "step", 4) &&
	    torch_hypers_number(&s, s.root, &step))
		dcp_groups_step(&l->step, step);
	torch_source_close(&s);
	return rc;
}

static int add_scalar(struct filling *l, const struct dcp_name *x, const struct dcp_item *item,
		      const char *key)
{
	struct parse_error error = { "" };
	struct dcp_chunk chunk = { .is_empty = true };
	int rc = table_add_scalar(l->table, key, item->dtype);

	if (rc < 0)
		return rc;
	rc = item->nchunks == 1 ? dcp_chunk(&l->metadata, item, 0, &chunk, &error) : 0;
	if (rc)
		return refuse(l, rc, &error);
	if (!chunk.is_empty)
		return add_element(l, x, item, &chunk);
	dcp_files_skip(&l->files, x, "it is not in one piece");
	return 1;
}

static int add_item(struct filling *l, uint32_t i, const char *key)
{
	const struct dcp_name *x = &l->names.items[i];
	struct parse_error error = { "" };
	struct dcp_item item;
	int rc = dcp_item(&l->metadata, i, &item, &error);

	if (rc)
		return refuse(l, rc, &error);
	if (x->key && x->is_scalar) {
		rc = add_scalar(l, x, &item, key);
	} else {
		rc = table_add_state(l->table, key, item.dtype);
		if (rc >= 0)
			rc = add_chunks(l, x, &item);
	}
	if (rc == 1) /* it is not taken */
		table_drop_state(l->table);
	return rc < 0 ? rc : 0;
}

static bool has_master(struct filling *l, const struct dcp_name *param)
{
	for (uint32_t i = 0; i < param->nstates; i++) {
		const struct dcp_name *x = &l->names.items[l->names.states[param->states + i]];

		if (x->key_size == 4 && !memcmp(x->key, "fp32", 4))
			return true;
	}
	return false;
}

static int add_states(struct filling *l, const struct dcp_name *param)
{
	int rc = 0;

	for (uint32_t i = 0; i < param->nstates && !rc; i++) {
		uint32_t state = l->names.states[param->states + i];
		const struct dcp_name *x = &l->names.items[state];
		char key[FRAG_KEY_MAX + 1];

		*(char *)mempcpy(key, x->key, x->key_size) = '\0';
		rc = add_item(l, state, key);
	}
	return rc;
}

static int add_param(struct filling *l, uint32_t i)
{
	struct dcp_name *x = &l->names.items[i];
	char name[DCP_NAME_MAX + 1];
	struct parse_error error = { "" };
	struct dcp_item item;
	int rc = dcp_item(&l->metadata, i, &item, &error);

	if (rc)
		return refuse(l, rc, &error);
	*(char *)mempcpy(name, x->name + x->cut, x->size - x->cut) = '\0';
	if (x->size - x->cut > FRAG_NAME_MAX) {
		table_skip(l->table, name, "its name is too long");
		return 0;
	}
	rc = table_add_tensor(l->table, &(struct table_spec){ .name = name,
							      .dtype = item.dtype,
							      .ndim = item.ndim,
							      .shape = item.shape });
	x->tensor = (uint32_t)rc;
	x->is_added = rc >= 0;
	if (rc >= 0)
		rc = add_item(l, i,
			      has_master(l, x) ? dtype_lp_key(item.dtype)
					       : table_own_key(item.dtype));
	if (!rc)
		rc = add_states(l, x);
	if (!rc && !table_has_states(l->table)) {
		table_drop_tensor(l->table);
		x->is_added = false;
	}
	return rc;
}

/* ---- the checkpoint ---- */

static int add_all(struct filling *l)
{
	int rc = 0;

	for (uint32_t i = 0; i < l->names.count && !rc; i++)
		if (l->names.items[i].is_tensor && !l->names.items[i].key)
			rc = add_param(l, i);
	if (!rc)
		rc = dcp_groups_add(&l->names, &l->files, l->table, &l->step);
	if (!rc && l->step >= 0)
		table_set_step(l->table, (uint64_t)l->step);
	return rc;
}

static int fill_by_names(struct filling *l)
{
	struct parse_error error = { "" };
	int rc = dcp_names_make(&l->names, &l->metadata, see_untaken, l, &error);

	if (rc)
		return refuse(l, rc, &error);
	if (l->names.prefix_size && !l->names.mixed)
		table_note(l->table, "prefix %.*s", (int)u64_min(l->names.prefix_size, 200),
			   l->names.prefix);
	rc = add_all(l);
	dcp_names_free(&l->names);
	return rc;
}

static int open_metadata(struct filling *l)
{
	struct parse_error error = { "" };
	struct blob blob;
	struct stat st;
	CLEANUP(close) int fd = folder_open_file(l->folder, METADATA, &st);
	int rc;

	if (fd < 0)
		return folder_failed(METADATA, fd, l->table->why, sizeof(l->table->why));
	rc = blob_of_file(fd, &blob, &error);
	if (!rc)
		rc = dcp_open(&l->metadata, &blob, &error);
	return rc ? refuse(l, rc, &error) : 0;
}

static int fill(const struct folder *f, struct table *t)
{
	struct filling l = { .folder = f, .table = t, .step = -1 };
	int rc = open_metadata(&l);

	if (rc)
		return rc;
	l.files = (struct dcp_files){ .folder = f, .table = t };
	rc = fill_by_names(&l);
	dcp_files_close(&l.files);
	dcp_close(&l.metadata);
	return rc;
}

const struct format format_dcp = {
	.name = "dcp",
	.looks = METADATA " and *.distcp",
	.knows = knows,
	.fill = fill,
};
