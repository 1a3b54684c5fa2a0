/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/format.h"

#include <errno.h>
#include <string.h>

const struct format *const formats[] = {
	&format_dcp, &format_safetensors, &format_universal, &format_zero, &format_torch, NULL,
};

/* "safetensors (*.safetensors), ..." */
static void list(FILE *out, bool looks)
{
	for (size_t i = 0; formats[i]; i++) {
		fprintf(out, "%s%s", i ? ", " : "", formats[i]->name);
		if (looks)
			fprintf(out, " (%s)", formats[i]->looks);
	}
}

static int refuse(const struct folder *f, const char *name, char *why, size_t whysize)
{
	FILE *out = fmemopen(why, whysize, "w");

	if (!out)
		return -ENOMEM;
	if (name) {
		fprintf(out, "source=%s is none of auto, ", name);
		list(out, false);
	} else {
		fprintf(out, "%s is no checkpoint that is known: looked for ", f->path);
		list(out, true);
	}
	fclose(out);
	return -EINVAL;
}

int format_find(const struct format **out, const struct folder *f, const char *name, char *why,
		size_t whysize)
{
	if (name && !strcmp(name, "auto"))
		name = NULL;
	for (size_t i = 0; formats[i]; i++) {
		if (name ? !strcmp(formats[i]->name, name) : formats[i]->knows(f)) {
			*out = formats[i];
			return 0;
		}
	}
	return refuse(f, name, why, whysize);
}
