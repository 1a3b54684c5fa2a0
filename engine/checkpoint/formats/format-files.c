/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/checkpoint/formats/format-files.h"

int format_refuse(struct table *t, const char *name, int rc, const struct parse_error *error)
{
	return table_refuse(t, rc, "%.100s: %s", name, error->why);
}

int format_open(const struct folder *f, struct table *t, const char *name, const char *shown,
		struct blob *blob)
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
	return rc ? format_refuse(t, shown, rc, &error) : file;
}

const char *format_own_key(enum frag_dtype dtype)
{
	return dtype == FRAG_F32 ? "fp32" : dtype_lp_key(dtype);
}
