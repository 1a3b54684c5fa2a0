/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct format *const formats[] = {
	&format_dcp, &format_safetensors, &format_universal, &format_zero, &format_torch, NULL,
};

/* Prints "safetensors (*.safetensors), ...". */
static void list(FILE *out, bool looks)
{
	for (size_t i = 0; formats[i]; i++) {
		fprintf(out, "%s%s", i ? ", " : "", formats[i]->name);
		if (looks)
			fprintf(out, " (%s)", formats[i]->looks);
	}
}

static const struct format *find_known(const struct folder *f)
{
	for (size_t i = 0; formats[i]; i++)
		if (formats[i]->knows(f))
			return formats[i];
	return NULL;
}

/* ---- folders that are no checkpoint ---- */

static bool is_below(const struct folder *f, const char *name)
{
	struct folder *below;
	char why[64];
	bool is;

	if (folder_open_below(&below, f, name, why, sizeof(why)))
		return false;
	is = find_known(below);
	folder_close(below);
	return is;
}

/* Prints the checkpoints in a folder, the highest number first: "global_step30, global_step20
 * and 2 more".  Returns how many there are.
 */
static uint32_t list_below(const struct folder *f, const char *prefix, FILE *out)
{
	enum { TRIED_MAX = 1000, NAMED_MAX = 5 };
	uint32_t n = 0, tried = 0;

	for (size_t i = f->count; i-- > 0 && tried < TRIED_MAX; tried++) {
		if (!is_below(f, f->names[i]))
			continue;
		if (n++ < NAMED_MAX)
			fprintf(out, "%s%s%s", n > 1 ? ", " : "", prefix, f->names[i]);
	}
	if (n > NAMED_MAX)
		fprintf(out, " and %u more", n - NAMED_MAX);
	return n;
}

/* Prints the checkpoints in snapshots/, where a Hugging Face cache has them. */
static uint32_t list_snapshots(const struct folder *f, FILE *out)
{
	static const char snapshots[] = "snapshots";
	struct folder *below;
	uint32_t n;
	char why[64];

	if (!folder_has(f, snapshots) ||
	    folder_open_below(&below, f, snapshots, why, sizeof(why)))
		return 0;
	n = list_below(below, "snapshots/", out);
	folder_close(below);
	return n;
}

/* Names the checkpoints in a folder that is no checkpoint itself; NULL: it has none. */
static char *find_below(const struct folder *f)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = f->only ? NULL : open_memstream(&text, &size);
	bool any;

	if (!out)
		return NULL;
	any = list_below(f, "", out) || list_snapshots(f, out);
	if (!fclose(out) && any)
		return text;
	free(text);
	return NULL;
}

static int refuse(const struct folder *f, const char *name, char *why, size_t whysize)
{
	CLEANUP(free) char *below = name ? NULL : find_below(f);
	FILE *out = fmemopen(why, whysize, "w");

	if (!out)
		return -ENOMEM;
	if (name) {
		fprintf(out, "source=%s is none of auto, ", name);
		list(out, false);
	} else if (below) {
		fprintf(out,
			"%s is no checkpoint, and has no latest that names one of these in "
			"it: %s",
			f->path, below);
	} else {
		fprintf(out, "%s is no checkpoint that is known: looked for ", f->path);
		list(out, true);
	}
	fclose(out);
	return -EINVAL;
}

/* ---- finding ---- */

int format_find(const struct format **out, const struct folder *f, const char *name, char *why,
		size_t whysize)
{
	if (name && !strcmp(name, "auto"))
		name = NULL;
	*out = name ? NULL : find_known(f);
	for (size_t i = 0; name && formats[i]; i++)
		if (!strcmp(formats[i]->name, name))
			*out = formats[i];
	return *out ? 0 : refuse(f, name, why, whysize);
}
