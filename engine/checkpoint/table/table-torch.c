/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/table/table-torch.h"

#include <errno.h>

int table_add_torch_entry(struct table *t, uint32_t file, const struct torchfile *f,
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
