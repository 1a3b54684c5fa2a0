/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/fragctl.h"
#include "engine/overlay.h"

#include <ctype.h>
#include <inttypes.h>

/* Replaces control characters: anybody may have chosen the names in a log. */
static char *make_one_line(char *text)
{
	for (char *c = text; c && *c; c++)
		if (iscntrl((unsigned char)*c))
			*c = '?';
	return text;
}

static int look(struct overlay *o, const char *path, char *why, size_t whysize)
{
	int rc = overlay_look(o, path, why, whysize);

	if (rc) {
		make_one_line(why);
		return rc;
	}
	make_one_line(o->checkpoint);
	for (uint32_t i = 0; i < o->nfiles; i++)
		make_one_line(o->files[i].name);
	return 0;
}

int overlays_print(const char *path, FILE *to, char *why, size_t whysize)
{
	struct overlay o;
	int rc = look(&o, path, why, whysize);

	if (rc)
		return rc;
	fprintf(to, "%s: an overlay\n", path);
	if (o.checkpoint)
		fprintf(to, "  %-10s %s\n", "checkpoint", o.checkpoint);
	fprintf(to,
		"  %-10s %s\n  %-10s %" PRIu64 "\n  %-10s %" PRIu32 "\n  %-10s %" PRIu64 "\n",
		"mounted", o.mounted ? "yes" : "no", "edits", o.edits, "files", o.nfiles,
		"bytes", o.bytes);
	for (uint32_t i = 0; i < o.nfiles; i++)
		fprintf(to, "  %20" PRIu64 " %s\n", o.files[i].bytes, o.files[i].name);
	overlay_fini(&o);
	return 0;
}

/* Makes a string, "?" for bytes that are not UTF-8, which JSON cannot have. */
static json_t *text_json(const char *text)
{
	json_t *string = text ? json_string(text) : json_null();

	return string ? string : json_string("?");
}

json_t *overlays_json(const char *path, char *why, size_t whysize)
{
	json_t *files = json_array(), *object;
	struct overlay o;

	if (look(&o, path, why, whysize)) {
		json_decref(files);
		return NULL;
	}
	for (uint32_t i = 0; i < o.nfiles; i++)
		json_array_append_new(files,
				      json_pack("{s:o s:I}", "name", text_json(o.files[i].name),
						"bytes", (json_int_t)o.files[i].bytes));
	object = json_pack("{s:o s:o s:b s:I s:I s:o}", "path", text_json(o.path), "checkpoint",
			   text_json(o.checkpoint), "mounted", o.mounted, "edits",
			   (json_int_t)o.edits, "bytes", (json_int_t)o.bytes, "files", files);
	overlay_fini(&o);
	if (!object)
		snprintf(why, whysize, "no memory");
	return object;
}

int overlays_commit(const char *path, const char *checkpoint, FILE *to, char *why,
		    size_t whysize)
{
	struct overlay o;
	int rc = overlay_commit(&o, path, checkpoint, why, whysize);

	if (rc) {
		make_one_line(why);
		return rc;
	}
	fprintf(to,
		"%s: edits %" PRIu64 ", bytes %" PRIu64 ", files %" PRIu32 ": written to %s\n",
		path, o.edits, o.bytes, o.nfiles,
		checkpoint ? checkpoint : make_one_line(o.checkpoint));
	overlay_fini(&o);
	return 0;
}

int overlays_discard(const char *path, char *why, size_t whysize)
{
	return overlay_discard(path, why, whysize);
}
