/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/dcp-files.h"
#include "engine/checkpoint/table/table-files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

struct dcp_file {
	uint32_t number; /* in the table */
	uint32_t rank;
	struct blob blob;
};

void dcp_files_close(struct dcp_files *f)
{
	free(f->files.items);
	f->files = (struct vec){ 0 };
}

static struct dcp_file *file_at(const struct dcp_files *f, uint32_t i)
{
	return (struct dcp_file *)f->files.items + i;
}

static int compare_name(const struct dcp_files *f, uint64_t i, const char *name)
{
	return strcmp(f->table->files[file_at(f, (uint32_t)i)->number].name, name);
}

static int add(struct dcp_files *f, const char *name, uint32_t i)
{
	struct blob blob;
	int number = table_open_file(f->table, f->folder, name, name, &blob), end = 0;
	unsigned rank, part;

	if (number < 0)
		return number;
	/* "__3_0.distcp" is rank 3's; a file with another name is rank 0's. */
	if (sscanf(name, "__%5u_%9u.distcp%n", &rank, &part, &end) != 2 || !end || name[end] ||
	    rank >= TABLE_RANKS_MAX)
		rank = 0;
	if (!vec_add(&f->files, sizeof(struct dcp_file)))
		return -ENOMEM;
	memmove(file_at(f, i + 1), file_at(f, i),
		(f->files.count - 1 - i) * sizeof(struct dcp_file));
	*file_at(f, i) = (struct dcp_file){ (uint32_t)number, rank, blob };
	return 0;
}

void dcp_files_skip(struct dcp_files *f, const struct dcp_name *x, const char *why)
{
	char name[DCP_NAME_MAX + 1];

	*(char *)mempcpy(name, x->name, x->size) = '\0';
	table_skip(f->table, name, "%s", why);
}

int dcp_files_open(struct dcp_files *f, const struct dcp_name *x, const struct dcp_place *place,
		   struct torch_source *out)
{
	char name[NAME_MAX + 1];
	struct parse_error error = { "" };
	const struct dcp_file *file;
	struct blob part;
	uint32_t i;
	int rc = 0;

	if (place->transformed) {
		dcp_files_skip(f, x, "it is compressed, or otherwise transformed");
		return 1;
	}
	if (place->file_size > NAME_MAX || memchr(place->file, '\0', place->file_size))
		return table_refuse(f->table, -EINVAL, "%.*s... is no name of a file there",
				    (int)u64_min(place->file_size, 100), place->file);
	*(char *)mempcpy(name, place->file, place->file_size) = '\0';
	i = (uint32_t)LOWER_BOUND(f->files.count, k, compare_name(f, k, name) < 0);
	if (i == f->files.count || compare_name(f, i, name))
		rc = add(f, name, i);
	if (rc)
		return rc;
	file = file_at(f, i);
	rc = blob_part(&file->blob, place->at, place->length, &part, &error);
	if (rc)
		return table_refuse_file(f->table, name, rc, &error);
	return torch_source_open_part(out, f->table, file->number, &part, file->rank);
}
