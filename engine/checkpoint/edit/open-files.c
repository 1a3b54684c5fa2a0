/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/edit/open-files.h"

#include "engine/base/fd.h"
#include "engine/base/log.h"
#include "engine/checkpoint/edit/file-lock.h"
#include "engine/checkpoint/edit/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { LOCK_MS = 10000 }; /* for the folder's lock */

/* Returns the name of the file in the folder that names a subfolder; NULL: none. */
static const char *find_tag(const struct folder *f, const char *format)
{
	static const char universal[] = "latest_universal";
	bool wanted = format && !strcmp(format, "universal");

	if (f->only || (!wanted && folder_has(f, "latest")))
		return f->only ? NULL : "latest";
	return folder_has(f, universal) ? universal : folder_has(f, "latest") ? "latest" : NULL;
}

int open_files_folder(struct folder **out, const char *path, const char *format, char *why,
		      size_t whysize)
{
	char text[FOLDER_TEXT_MAX], line[256];
	struct folder *f = NULL;
	int rc = folder_open(&f, path, why, whysize);
	const char *tag = rc ? NULL : find_tag(f, format);

	if (!tag) {
		*out = f;
		return rc;
	}
	*out = NULL;
	rc = folder_read_text(f, tag, text);
	if (!rc && !*text) {
		snprintf(why, whysize, "%s: %s is empty", f->path, tag);
		rc = -EINVAL;
	} else if (!rc) {
		rc = folder_open_below(out, f, text, why, whysize);
	} else {
		folder_failed(tag, rc, line, sizeof(line));
		snprintf(why, whysize, "%s: %s", f->path, line);
	}
	folder_close(f);
	return rc;
}

/* Returns the path of the folder that has the files, in `path`; NULL: there is none. */
static const char *find_path(const struct folder *f, char path[PATH_MAX])
{
	if (!realpath(f->path, path))
		return NULL;
	return f->only ? dirname(path) : path;
}

char *open_files_path(const struct folder *f)
{
	char path[PATH_MAX];
	const char *found = find_path(f, path);

	return found ? strdup(found) : NULL;
}

int open_files_dir(const struct folder *f)
{
	char path[PATH_MAX];
	const char *found;

	if (!f->only)
		/* no number below 3: those are for the standard streams */
		return fcntl(f->fd, F_DUPFD_CLOEXEC, 3);
	found = find_path(f, path);
	return found ? open(found, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

/* A folder that is searchable but not readable cannot be opened: it is asked by path. */
bool open_files_is_unfinished(const struct folder *f, int dir)
{
	char folder[PATH_MAX], path[PATH_MAX + sizeof(JOURNAL_NAME)];
	const char *found = dir < 0 && f->only ? find_path(f, folder) : NULL;

	if (!found)
		return dir >= 0 && journal_is_there(dir);
	snprintf(path, sizeof(path), "%s/" JOURNAL_NAME, found);
	return !faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW);
}

static int undo(const struct folder *f, int dir, char *why, size_t whysize)
{
	char line[400] = "an edit was interrupted, and its folder cannot be opened to undo it";
	int rc = dir < 0 ? -EACCES : fd_lock(dir, LOCK_MS);

	if (rc == -EBUSY)
		snprintf(line, sizeof(line), "%s edits it", file_lock_holder(dir).name);
	if (dir >= 0 && rc != -EBUSY) { /* a file system without locks has no edits by others */
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

/* Refuses a checkpoint of which a subfolder, mounted alone before, has the journal of an edit.
 * -EBUSY.
 */
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

int open_files_real_name(struct table *t, const struct folder *f)
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

static int lock_files(struct table *t, const struct folder *f, int dir, bool writable,
		      char *why, size_t whysize)
{
	char line[400] = "";
	int rc = check_below(t, dir, line, sizeof(line));

	if (!rc && writable && f->only)
		rc = open_files_real_name(t, f);
	if (!rc && writable && dir < 0)
		rc = -EACCES;
	else if (!rc)
		rc = writable ? file_lock_to_write(t, dir, line, sizeof(line))
			      : file_lock_to_read(t, line, sizeof(line));
	if (rc)
		snprintf(why, whysize, "%s: %s", f->path, *line ? line : strerror(-rc));
	return rc;
}

/* Once the files are locked nobody else begins an edit.  An edit that another mount began
 * between undo() and lock_files(), and did not end, is found by looking again.
 */
int open_files_lock(struct table *t, const struct folder *f, int dir, bool writable, char *why,
		    size_t whysize)
{
	enum { TRIES = 3 };
	int rc = 0;

	for (int i = 0; i < TRIES && !rc; i++) {
		if (open_files_is_unfinished(f, dir))
			rc = undo(f, dir, why, whysize);
		if (!rc)
			rc = lock_files(t, f, dir, writable, why, whysize);
		if (rc || !open_files_is_unfinished(f, dir))
			return rc;
		file_lock_drop(t);
	}
	snprintf(why, whysize, "%s: somebody edits it", f->path);
	return -EBUSY;
}
