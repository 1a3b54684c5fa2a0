/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/edit/open-files.h"
#include "engine/checkpoint/edit/overlay-log.h"
#include "engine/checkpoint/editor.h"
#include "engine/checkpoint/formats/format.h"
#include "engine/checkpoint/table/folder.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

bool checkpoint_is_unfinished(const char *path, const char *format)
{
	struct folder *f;
	char why[256];
	bool is = false;

	if (open_files_folder(&f, path, format, why, sizeof(why)))
		return false;
	CLEANUP(close) int dir = open_files_dir(f);
	is = open_files_is_unfinished(f, dir);
	folder_close(f);
	return is;
}

/* ---- opening ---- */

static int read_table(struct table **out, const struct format **format, const struct folder *f,
		      const char *source, char *why, size_t whysize)
{
	struct table *t;
	int rc = format_find(format, f, source, why, whysize);

	if (rc)
		return rc;
	t = table_new();
	if (!t)
		return -ENOMEM;
	table_note(t, "format %s", (*format)->name);
	rc = (*format)->fill(f, t);
	if (!rc)
		rc = table_finish(t);
	if (!rc) {
		*out = t;
		return 0;
	}
	snprintf(why, whysize, "%s: %s", f->path, *t->why ? t->why : strerror(-rc));
	table_free(t);
	return rc;
}

static int bind_overlay(struct overlay_log *r, const struct folder *f, int dir,
			const struct table *t, char *why, size_t whysize)
{
	CLEANUP(free) char *over = open_files_path(f);

	if (!over)
		return -errno;
	if (!f->only && overlay_log_is_in(r, dir)) {
		snprintf(why, whysize,
			 "%s is in the checkpoint's folder: an overlay is beside it", r->path);
		return -EINVAL;
	}
	return overlay_log_bind(r, t, over, why, whysize);
}

/* Opens the overlay of files that are locked. */
static int open_overlay(struct overlay_log **r, const char *path, const struct folder *f,
			int dir, const struct table *t, char *why, size_t whysize)
{
	int rc = overlay_log_open(r, path, OVERLAY_LOG_CHANGE, why, whysize);

	if (rc)
		return rc;
	rc = bind_overlay(*r, f, dir, t, why, whysize);
	if (rc)
		overlay_log_close(*r);
	return rc;
}

/* Takes the table and the log; *dir, if an editor takes it, becomes -1. */
static int open_locked(struct engine **e, const struct engine_options *o,
		       const struct folder *f, int *dir, const char *format, struct table *t,
		       struct overlay_log *log)
{
	int rc = checkpoint_new(e, f->path, format, t, NULL);
	struct checkpoint *c;

	if (rc || !o->writable) {
		overlay_log_close(log);
		return rc;
	}
	c = checkpoint_of(*e);
	rc = editor_new(&c->editor, c, log ? -1 : *dir, log, !o->incoherent);
	if (!log)
		*dir = -1;
	if (rc)
		checkpoint_close(*e);
	return rc;
}

int checkpoint_open_table(struct engine **e, const struct engine_options *o,
			  const struct folder *f, const char *format, struct table *t,
			  char *why, size_t whysize)
{
	bool in_place = o->writable && !o->overlay;
	CLEANUP(close) int dir = open_files_dir(f);
	struct overlay_log *log = NULL;
	int rc = o->overlay && f->only ? open_files_real_name(t, f) : 0;

	if (!rc)
		rc = open_files_lock(t, f, dir, in_place, why, whysize);
	if (!rc && o->overlay)
		rc = open_overlay(&log, o->overlay, f, dir, t, why, whysize);
	if (!rc)
		return open_locked(e, o, f, &dir, format, t, log);
	table_free(t);
	return rc;
}

static int open_path(struct engine **e, const struct engine_options *o, char *why,
		     size_t whysize)
{
	const struct format *format;
	struct folder *f;
	struct table *t = NULL;
	int rc;

	folder_raise_limit();
	rc = open_files_folder(&f, o->source, o->format, why, whysize);
	if (rc)
		return rc;
	rc = read_table(&t, &format, f, o->format, why, whysize);
	if (!rc)
		rc = checkpoint_open_table(e, o, f, format->name, t, why, whysize);
	folder_close(f);
	return rc;
}

int checkpoint_open(struct engine **e, const struct engine_options *o, char *why,
		    size_t whysize)
{
	int rc = open_path(e, o, why, whysize);

	/* A path, and what `latest` says, may have line breaks in it. */
	for (char *at = why; rc && *at; at++)
		if (iscntrl((unsigned char)*at))
			*at = '?';
	return rc;
}
