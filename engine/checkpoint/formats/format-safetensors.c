/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/table/table-files.h"
#include "engine/checkpoint/formats/format.h"
#include "engine/checkpoint/formats/safetensors-index.h"
#include "engine/checkpoint/parse/safetensors.h"

#include <errno.h>
#include <string.h>

/* Reads one safetensors file, or those of a folder: all, or those in a Hugging Face index. */

#define SUFFIX ".safetensors"
#define INDEX_SUFFIX ".safetensors.index.json"

enum { FACTS_MAX = 32, FACT_MAX = 200 };

/* Returns the name of the folder's index; NULL: it has none. */
static const char *find_index(const struct folder *f)
{
	if (f->only)
		return NULL;
	if (folder_has(f, "model" INDEX_SUFFIX))
		return "model" INDEX_SUFFIX;
	for (size_t i = 0; i < f->count; i++)
		if (folder_ends_in(f->names[i], INDEX_SUFFIX))
			return f->names[i];
	return NULL;
}

static bool knows(const struct folder *f)
{
	for (size_t i = 0; i < f->count; i++)
		if (folder_ends_in(f->names[i], SUFFIX) ||
		    folder_ends_in(f->names[i], INDEX_SUFFIX))
			return true;
	return false;
}

/* ---- one file ---- */

struct safetensors_loader {
	const struct folder *folder;
	struct table *table;
	const struct safetensors_index *index; /* NULL: all tensors of a file are taken */
	uint32_t indexed;                      /* the file's number in the index */
	uint32_t placed;                       /* tensors of the index that were found */
};

static void note_facts(struct safetensors_loader *l, const struct safetensors *s)
{
	for (uint32_t i = 0; i < s->nfacts && i < FACTS_MAX; i++) {
		const struct safetensors_fact *fact = &s->facts[i];
		CLEANUP(free)
		char *key = text_copy(fact->key, u64_min(fact->key_size, FACT_MAX));
		CLEANUP(free)
		char *value = text_copy(fact->value, u64_min(fact->value_size, FACT_MAX));

		if (key && value)
			table_note(l->table, "metadata %s %s", key, value);
	}
}

/* Returns the reason why a tensor is not shown; NULL: it is. */
static const char *unsupported(const struct safetensor *x)
{
	if (!x->dtype)
		return "elements that are not whole bytes";
	if (x->ndim > FRAG_DIMS_MAX)
		return "too many dimensions";
	if (x->name_size > FRAG_NAME_MAX)
		return "its name is too long";
	return memchr(x->name, '\0', x->name_size) ? "its name has a NUL byte" : NULL;
}

static int add_tensor(struct safetensors_loader *l, const struct safetensor *x, uint32_t file)
{
	const char *why = unsupported(x);
	CLEANUP(free) char *name = text_copy(x->name, u64_min(x->name_size, FRAG_NAME_MAX));
	struct table_spec spec = {
		.name = name, .dtype = x->dtype, .ndim = x->ndim, .shape = x->shape
	};
	int rc;

	if (!name)
		return -ENOMEM;
	if (l->index && safetensors_index_find(l->index, x->name, x->name_size) != l->indexed)
		why = "the index does not name it in this file";
	else
		l->placed++;
	if (why) {
		table_skip(l->table, name, "%s", why);
		return 0;
	}
	rc = table_add_tensor(l->table, &spec);
	if (rc >= 0)
		rc = table_add_state(l->table, table_own_key(x->dtype), x->dtype);
	return rc < 0 ? rc : table_add_interval(l->table, file, 0, x->at, 0, x->numel);
}

static int add_tensors(struct safetensors_loader *l, const char *name, const struct blob *blob,
		       uint32_t file)
{
	struct parse_error error = { "" };
	struct safetensors s;
	int rc = safetensors_open(&s, blob, &error);

	if (rc)
		return table_files_refuse(l->table, name, rc, &error);
	note_facts(l, &s);
	for (uint32_t i = 0; i < s.ntensors && !rc; i++)
		rc = add_tensor(l, &s.tensors[i], file);
	safetensors_close(&s);
	return rc;
}

static int add_file(struct safetensors_loader *l, const char *name)
{
	struct blob blob;
	int file = table_files_open(l->table, l->folder, name, name, &blob);

	return file < 0 ? file : add_tensors(l, name, &blob, (uint32_t)file);
}

/* ---- folders ---- */

static int add_indexed(struct safetensors_loader *l, const char *name)
{
	const struct safetensors_index *x = l->index;
	int rc = 0;

	for (l->indexed = 0; l->indexed < x->nfiles && !rc; l->indexed++)
		rc = add_file(l, x->files[l->indexed]);
	if (!rc && l->placed < x->nplaces)
		rc = table_refuse(l->table, -EINVAL,
				  "%s names %u tensors that are not in their files", name,
				  x->nplaces - l->placed);
	return rc;
}

static int fill_by_index(struct safetensors_loader *l, const char *name)
{
	struct parse_error error = { "" };
	struct safetensors_index index;
	struct blob blob;
	struct stat st;
	CLEANUP(close) int fd = folder_open_file(l->folder, name, &st);
	int rc;

	if (fd < 0)
		return folder_failed(name, fd, l->table->why, sizeof(l->table->why));
	rc = blob_of_file(fd, &blob, &error);
	if (!rc)
		rc = safetensors_index_open(&index, &blob, &error);
	if (rc)
		return table_files_refuse(l->table, name, rc, &error);
	table_note(l->table, "index %s", name);
	l->index = &index;
	rc = add_indexed(l, name);
	safetensors_index_close(&index);
	return rc;
}

static int fill(const struct folder *f, struct table *t)
{
	struct safetensors_loader l = { .folder = f, .table = t };
	const char *index = find_index(f);
	int rc = 0;

	if (index)
		return fill_by_index(&l, index);
	if (f->only)
		return add_file(&l, f->only);
	for (size_t i = 0; i < f->count && !rc; i++)
		if (folder_ends_in(f->names[i], SUFFIX))
			rc = add_file(&l, f->names[i]);
	if (!rc && !t->nfiles)
		rc = table_refuse(t, -EINVAL, "there is no *" SUFFIX);
	return rc;
}

const struct format format_safetensors = {
	.name = "safetensors",
	.looks = "*" SUFFIX,
	.knows = knows,
	.fill = fill,
};
