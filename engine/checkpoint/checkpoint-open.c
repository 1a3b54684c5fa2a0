/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/claim.h"
#include "engine/checkpoint/editor.h"
#include "engine/checkpoint/folder.h"
#include "engine/checkpoint/format.h"
#include "engine/checkpoint/journal.h"
#include "engine/log.h"
#include "engine/fd.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>

enum { LOCK_MS = 10000 };

/* Every file stays open. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		log_debug("RLIMIT_NOFILE stays: %s", strerror(errno));
}

/* The file that names a folder in it; NULL: none. */
static const char *find_tag(const struct folder *f, const char *format)
{
	static const char universal[] = "latest_universal";
	bool wanted = format && !strcmp(format, "universal");

	if (f->only || (!wanted && folder_has(f, "latest")))
		return f->only ? NULL : "latest";
	return folder_has(f, universal) ? universal : folder_has(f, "latest") ? "latest" : NULL;
}

/* The folder itself, or the one in it that `latest` names. */
static int open_folder(struct folder **out, const char *path, const char *format, char *why,
		       size_t whysize)
{
	char text[FOLDER_TEXT_MAX], line[256];
	struct folder *f;
	int rc = folder_open(&f, path, why, whysize);
	const char *tag = rc ? NULL : find_tag(f, format);

	if (!tag) {
		*out = f;
		return rc;
	}
	rc = folder_read_text(f, tag, text);
	if (!rc) {
		rc = folder_open_below(out, f, text, why, whysize);
	} else {
		folder_failed(tag, rc, line, sizeof(line));
		snprintf(why, whysize, "%s: %s", f->path, line);
	}
	folder_close(f);
	return rc;
}

static int fill(const struct folder *f, const struct format *format, struct table *t, char *why,
		size_t whysize)
{
	int rc;

	table_note(t, "format %s", format->name);
	rc = format->fill(f, t);
	if (!rc)
		rc = table_finish(t);
	if (rc)
		snprintf(why, whysize, "%s: %s", f->path, *t->why ? t->why : strerror(-rc));
	return rc;
}

/* ---- edits that were interrupted ---- */

/* The folder that the files are in: where an edit's journal is.  -1: it cannot be opened. */
static int open_dir(const struct folder *f)
{
	char path[PATH_MAX];

	if (!f->only)
		return fcntl(f->fd, F_DUPFD_CLOEXEC, 3);
	if (!realpath(f->path, path))
		return -1;
	return open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* A folder that may be looked into but not listed. */
static bool has_journal(const struct folder *f, int dir)
{
	char path[PATH_MAX + sizeof(JOURNAL_NAME)];

	if (dir >= 0)
		return journal_is_there(dir);
	if (!f->only || !realpath(f->path, path))
		return false;
	strcat(dirname(path), "/" JOURNAL_NAME);
	return !faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW);
}

bool checkpoint_is_unfinished(const char *path, const char *format)
{
	struct folder *f;
	char why[256];
	bool is = false;

	if (open_folder(&f, path, format, why, sizeof(why)))
		return false;
	CLEANUP(close) int dir = open_dir(f);
	is = has_journal(f, dir);
	folder_close(f);
	return is;
}

static int undo(const struct folder *f, int dir, char *why, size_t whysize)
{
	char line[400] = "an edit was interrupted, and its folder cannot be opened to undo it";
	int rc = dir < 0 ? -EACCES : fd_lock(dir, LOCK_MS);

	if (rc == -EBUSY)
		snprintf(line, sizeof(line), "somebody edits it");
	if (dir >= 0 && rc != -EBUSY) { /* without locks there are no edits by others */
		bool there = journal_is_there(dir);

		rc = there ? journal_undo(dir, NULL, line, sizeof(line)) : 0;
		if (there && !rc)
			log_warn("%s: an edit was interrupted: undone", f->path);
		fd_unlock(dir);
	}
	if (rc)
		snprintf(why, whysize, "%s: %s", f->path, line);
	return rc;
}

/* Of files in folders of their own, which may be mounted alone. */
static int check_below(const struct table *t, int dir, char *why, size_t whysize)
{
	for (uint32_t i = 0; i < t->nfiles && dir >= 0; i++) {
		const char *name = t->files[i].name, *slash = strrchr(name, '/');
		char path[PATH_MAX];

		if (!slash)
			continue;
		snprintf(path, sizeof(path), "%.*s/" JOURNAL_NAME, (int)(slash - name), name);
		if (faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW))
			continue;
		snprintf(why, whysize, "%s: an edit was interrupted: mount it alone to undo it",
			 name);
		return -EBUSY;
	}
	return 0;
}

/* A link may have led to the one file: in its own folder it has another name. */
static int use_real_name(struct table *t, const struct folder *f)
{
	char path[PATH_MAX];

	if (!realpath(f->path, path))
		return -errno;
	for (uint32_t i = 0; i < t->nfiles; i++) {
		char *name = strdup(basename(path));

		if (!name)
			return -ENOMEM;
		free(t->files[i].name);
		t->files[i].name = name;
	}
	return 0;
}

static int claim(struct table *t, const struct folder *f, int dir, bool writable, char *why,
		 size_t whysize)
{
	char line[400] = "";
	int rc = check_below(t, dir, line, sizeof(line));

	if (!rc && writable && f->only)
		rc = use_real_name(t, f);
	if (!rc && writable && dir < 0)
		rc = -EACCES;
	else if (!rc)
		rc = writable ? claim_to_write(t, dir, line, sizeof(line))
			      : claim_to_read(t, line, sizeof(line));
	if (rc)
		snprintf(why, whysize, "%s: %s", f->path, *line ? line : strerror(-rc));
	return rc;
}

/* From when the files are claimed nobody else begins an edit. */
static int take(struct table *t, const struct folder *f, int dir, bool writable, char *why,
		size_t whysize)
{
	enum { TRIES = 3 };
	int rc = 0;

	for (int i = 0; i < TRIES && !rc; i++) {
		if (has_journal(f, dir))
			rc = undo(f, dir, why, whysize);
		if (!rc)
			rc = claim(t, f, dir, writable, why, whysize);
		if (rc || !has_journal(f, dir))
			return rc;
		claim_drop(t);
	}
	snprintf(why, whysize, "%s: somebody edits it", f->path);
	return -EBUSY;
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
	rc = t ? fill(f, *format, t, why, whysize) : -ENOMEM;
	if (rc)
		table_free(t);
	else
		*out = t;
	return rc;
}

/* Takes dir and the table. */
static int open_claimed(struct engine **e, const struct engine_options *o,
			const struct folder *f, int dir, const char *format, struct table *t)
{
	int rc = checkpoint_new(e, f->path, format, t, NULL);

	if (rc || !o->writable) {
		if (dir >= 0)
			close(dir);
		return rc;
	}
	rc = editor_new(&checkpoint_of(*e)->editor, checkpoint_of(*e), dir, !o->incoherent);
	if (rc)
		engine_close(*e);
	return rc;
}

/* Takes the table. */
static int open_table(struct engine **e, const struct engine_options *o, const struct folder *f,
		      const char *format, struct table *t, char *why, size_t whysize)
{
	int dir = open_dir(f), rc = take(t, f, dir, o->writable, why, whysize);

	if (!rc)
		return open_claimed(e, o, f, dir, format, t);
	table_free(t);
	if (dir >= 0)
		close(dir);
	return rc;
}

static int open_path(struct engine **e, const struct engine_options *o, char *why,
		     size_t whysize)
{
	const struct format *format;
	struct folder *f;
	struct table *t;
	int rc;

	raise_file_limit();
	rc = open_folder(&f, o->source, o->format, why, whysize);
	if (rc)
		return rc;
	rc = read_table(&t, &format, f, o->format, why, whysize);
	if (!rc)
		rc = open_table(e, o, f, format->name, t, why, whysize);
	folder_close(f);
	return rc;
}

/* A path, and what `latest` says, may have anything in it. */
static void make_one_line(char *why)
{
	for (; *why; why++)
		if (iscntrl((unsigned char)*why))
			*why = '?';
}

int checkpoint_open(struct engine **e, const struct engine_options *o, char *why,
		    size_t whysize)
{
	int rc = open_path(e, o, why, whysize);

	if (rc)
		make_one_line(why);
	return rc;
}

int checkpoint_open_table(struct engine **e, const struct engine_options *o, struct table *t,
			  char *why, size_t whysize)
{
	struct folder *f;
	int rc = folder_open(&f, o->source, why, whysize);

	if (rc) {
		table_free(t);
		return rc;
	}
	rc = open_table(e, o, f, o->format, t, why, whysize);
	folder_close(f);
	return rc;
}
