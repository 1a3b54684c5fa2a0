/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/table/table-files.h"

int table_files_refuse(struct table *t, const char *name, int rc,
		       const struct parse_error *error)
{
	return table_refuse(t, rc, "%.100s: %s", name, error->why);
}

int table_files_open(struct table *t, const struct folder *f, const char *name,
		     const char *shown, struct blob *blob)
{
	struct parse_error error = { "" };
	struct stat st;
	int fd = folder_open_file(f, name, &st), file, rc;

	if (fd < 0)
		return folder_failed(shown, fd, t->why, sizeof(t->why));
	file = table_add_file(t, shown, fd, &st);
	if (file < 0)
		return file;
	rc = blob_of_file(fd, blob, &error);
	return rc ? table_files_refuse(t, shown, rc, &error) : file;
}

int table_files_add_torch_entry(struct table *t, uint32_t file, const struct torchfile *f,
				const struct torchfile_tensor *x)
{
	struct parse_error error = { "" };
	struct zip_crc_places places;
	uint64_t start = f->blob.start;
	int rc;

	if (!x->entry)
		return 0;
	rc = zip_crc_places(&f->zip, x->entry, &places, &error);
	if (rc)
		return table_refuse(t, rc, "%s: %s", t->files[file].name, error.why);
	return table_add_entry(
		t, &(struct table_entry){ .file = file,
					  .at = start + x->entry->data,
					  .size = x->entry->size,
					  .crc_in_directory = start + places.central,
					  .crc_in_descriptor = start + places.local });
}
