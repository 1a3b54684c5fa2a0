/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_FORMAT_H
#define ENGINE_CHECKPOINT_FORMATS_FORMAT_H

/* The kinds of checkpoints that there are.  A new one is a const struct in a file of its own,
 * and a line in format.c.
 */

#include "engine/checkpoint/table/folder.h"
#include "engine/checkpoint/table/table.h"

struct format {
	const char *name;  /* for -o source=NAME */
	const char *looks; /* by what it is known, for people: "*.safetensors" */
	/* By names, or a few bytes at the beginning of a file. */
	bool (*knows)(const struct folder *f);
	/* Fills the table, which is finished later.  -errno: t->why has a line, or is "" where
	 * errno says all.
	 */
	int (*fill)(const struct folder *f, struct table *t);
};

extern const struct format format_dcp;
extern const struct format format_safetensors;
extern const struct format format_torch;
extern const struct format format_universal;
extern const struct format format_zero;

/* In the order in which they are tried; NULL at the end. */
extern const struct format *const formats[];

/* By name, or the first that knows it (name "auto" or NULL).  -EINVAL: none, with a line. */
int format_find(const struct format **out, const struct folder *f, const char *name, char *why,
		size_t whysize);

#endif
