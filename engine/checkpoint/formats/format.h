/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_FORMAT_H
#define ENGINE_CHECKPOINT_FORMATS_FORMAT_H

/* The formats of checkpoints.  A new format is a const struct in a file format-NAME.c of its
 * own, a line each here, in format.c and in formats.am, and its name for -o source= in
 * fs/options.c.
 */

#include "engine/checkpoint/table/folder.h"
#include "engine/checkpoint/table/table.h"

struct format {
	const char *name;  /* for -o source=NAME */
	const char *looks; /* how people recognize the format: "*.safetensors" */
	/* Returns true if the folder has this format, by names or the first bytes of a file. */
	bool (*knows)(const struct folder *f);
	/* Fills the table; the caller calls table_finish().  On error t->why has a line, or is
	 * "" where the errno says all.
	 */
	int (*fill)(const struct folder *f, struct table *t);
};

extern const struct format format_dcp;
extern const struct format format_safetensors;
extern const struct format format_torch;
extern const struct format format_universal;
extern const struct format format_zero;

/* The formats in the order in which format_find tries them, and NULL. */
extern const struct format *const formats[];

/* Finds the format of that name, or the first that knows the folder (name "auto" or NULL).
 * -EINVAL: there is none; `why` has a line.
 */
int format_find(const struct format **out, const struct folder *f, const char *name, char *why,
		size_t whysize);

#endif
