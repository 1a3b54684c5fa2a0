/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/overlay/overlay.h"

#include "engine/base/fd.h"
#include "engine/checkpoint/edit/file-lock.h"
#include "engine/checkpoint/edit/journal.h"
#include "engine/checkpoint/edit/open-files.h"
#include "engine/checkpoint/overlay/overlay-log.h"
#include "engine/checkpoint/table/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { LOCK_MS = 10000 };

static int refuse(const char *path, int rc, char *why, size_t whysize)
{
	const char *what = rc == -ENODATA     ? "there are no edits in it"
			   : rc == -ENOTEMPTY ? "it is no overlay, and not empty"
					      : strerror(-rc);

	snprintf(why, whysize, "%s: %s", path, what);
	return rc;
}

/* ---- looking ---- */

void overlay_fini(struct overlay *o)
{
	for (uint32_t i = 0; i < o->nfiles; i++)
		free(o->files[i].name);
	free(o->files);
	free(o->checkpoint);
	free(o->path);
}

static int add_range(struct overlay *o, const struct overlay_log *r,
		     const struct overlay_map_range *range, bool is_new)
{
	struct overlay_file *f = &o->files[o->nfiles - !is_new];

	if (is_new && !(f->name = strdup(r->files[range->file].name)))
		return -ENOMEM;
	o->nfiles += is_new;
	f->bytes += range->size;
	o->bytes += range->size;
	return 0;
}

static int add_ranges(struct overlay *o, const struct overlay_log *r)
{
	int rc = 0;

	o->files = calloc(r->nfiles + 1, sizeof(*o->files));
	if (!o->files)
		return -ENOMEM;
	for (uint32_t i = 0; i < overlay_map_count(&r->map) && !rc; i++) {
		const struct overlay_map_range *range = overlay_map_get(&r->map, i);

		rc = add_range(o, r, range,
			       !i || overlay_map_get(&r->map, i - 1)->file != range->file);
	}
	return rc;
}

static int describe(struct overlay *o, const struct overlay_log *r)
{
	int rc = 0;

	*o = (struct overlay){ .mounted = r->busy, .edits = r->edits, .path = strdup(r->path) };
	if (r->edits)
		o->checkpoint = strdup(r->over);
	if (!o->path || (r->edits && !o->checkpoint))
		rc = -ENOMEM;
	if (!rc)
		rc = add_ranges(o, r);
	if (rc)
		overlay_fini(o);
	return rc;
}

int overlay_look(struct overlay *o, const char *path, char *why, size_t whysize)
{
	struct overlay_log *r;
	int rc = overlay_log_open(&r, path, OVERLAY_LOG_LOOK, why, whysize);

	if (rc)
		return rc;
	rc = r->fd < 0 ? overlay_log_check_alone(r) : 0;
	if (!rc)
		rc = describe(o, r);
	overlay_log_close(r);
	return rc ? refuse(path, rc, why, whysize) : 0;
}

/* ---- committing ---- */

static int add_file(struct table *t, const char *name, int dir, char *why, size_t whysize)
{
	struct stat st;
	int fd = folder_open_path(dir, name, O_RDONLY, &st);

	if (fd < 0)
		return folder_failed(name, fd, why, whysize);
	fd = table_add_file(t, name, fd, &st);
	return fd < 0 ? fd : 0;
}

static int add_files(struct table *t, const struct overlay_log *r, int dir, char *why,
		     size_t whysize)
{
	int rc = dir < 0 ? -EACCES : 0;

	for (uint32_t i = 0; i < r->nfiles && !rc; i++)
		rc = add_file(t, r->files[i].name, dir, why, whysize);
	return rc;
}

/* The maker of the log chose the files and the bytes: the log's owner must be the caller, or
 * own each file.
 */
static int check_owner(const struct overlay_log *r, const struct table *t, char *why,
		       size_t whysize)
{
	struct stat log, st;

	if (fstat(r->fd, &log))
		return -errno;
	for (uint32_t i = 0; i < t->nfiles && log.st_uid != geteuid(); i++) {
		if (fstat(t->files[i].fd, &st))
			return -errno;
		if (st.st_uid == log.st_uid)
			continue;
		snprintf(why, whysize, "%s is neither yours nor that of %s's owner", r->path,
			 t->files[i].name);
		return -EPERM;
	}
	return 0;
}

static int replace(struct overlay_log *r, struct table *t, int dir, const struct patches *p,
		   char *why, size_t whysize)
{
	int rc = patches_apply(p);

	for (uint32_t i = 0; i < t->nfiles && !rc; i++)
		rc = file_lock_renew(&t->files[i]);
	if (!rc)
		rc = overlay_log_note_written(r, t);
	if (!rc)
		rc = journal_end(dir);
	if (rc && !journal_undo(dir, t, why, whysize))
		refuse(r->path, rc, why, whysize);
	return rc;
}

static int write_locked(struct overlay_log *r, struct table *t, int dir, struct patches *p,
			char *why, size_t whysize)
{
	/* nobody cancels a commit of fragctl */
	static const _Atomic bool never;
	int rc = fd_lock(dir, LOCK_MS);

	if (rc)
		return rc;
	rc = journal_begin(dir, p, &never);
	if (!rc)
		rc = replace(r, t, dir, p, why, whysize);
	fd_unlock(dir);
	return rc;
}

static int write_files(struct overlay_log *r, struct table *t, int dir, char *why,
		       size_t whysize)
{
	uint8_t *log = mmap(NULL, r->end, PROT_READ, MAP_PRIVATE, r->fd, 0);
	struct patches p;
	int rc = log == MAP_FAILED ? -errno : 0;

	if (rc)
		return rc;
	patches_init(&p, t, NULL);
	for (uint32_t i = 0; i < overlay_map_count(&r->map) && !rc; i++) {
		const struct overlay_map_range *x = overlay_map_get(&r->map, i);

		rc = patches_add(&p, x->file, x->offset, x->size, log + x->at);
	}
	if (!rc)
		rc = patches_finish(&p);
	if (!rc && patches_count(&p))
		rc = write_locked(r, t, dir, &p, why, whysize);
	patches_fini(&p);
	munmap(log, r->end);
	return rc;
}

/* Fills the table with the log's files alone, without tensors, and writes the edits to them. */
static int commit_files(struct overlay_log *r, struct table *t, const struct folder *f,
			char *why, size_t whysize)
{
	CLEANUP(close) int dir = open_files_dir(f);
	int rc = add_files(t, r, dir, why, whysize);

	if (!rc)
		rc = check_owner(r, t, why, whysize);
	if (!rc)
		rc = open_files_lock(t, f, dir, true, why, whysize);
	if (!rc)
		rc = overlay_log_match(r, t, why, whysize);
	if (rc == OVERLAY_LOG_OTHER)
		return -ESTALE;
	if (rc == OVERLAY_LOG_SAME)
		rc = write_files(r, t, dir, why, whysize);
	return rc < 0 ? rc : overlay_log_remove(r);
}

static int commit_to(struct overlay_log *r, const char *checkpoint, char *why, size_t whysize)
{
	struct table *t = table_new();
	struct folder *f;
	int rc = -ENOMEM;

	if (t && checkpoint)
		rc = open_files_folder(&f, checkpoint, NULL, why, whysize);
	else if (t)
		rc = folder_open(&f, r->over, why, whysize);
	if (!rc) {
		folder_raise_limit();
		rc = commit_files(r, t, f, why, whysize);
		folder_close(f);
	}
	table_free(t);
	return rc;
}

int overlay_commit(struct overlay *o, const char *path, const char *checkpoint, char *why,
		   size_t whysize)
{
	struct overlay_log *r;
	int rc = overlay_log_open(&r, path, OVERLAY_LOG_CHANGE, why, whysize);

	if (rc)
		return rc;
	*why = '\0';
	rc = r->edits ? describe(o, r) : -ENODATA;
	if (!rc) {
		rc = commit_to(r, checkpoint, why, whysize);
		if (rc)
			overlay_fini(o);
	}
	overlay_log_close(r);
	return rc && !*why ? refuse(path, rc, why, whysize) : rc;
}

/* ---- discarding ---- */

int overlay_discard(const char *path, char *why, size_t whysize)
{
	struct overlay_log *r;
	int rc = overlay_log_open(&r, path, OVERLAY_LOG_REMOVE, why, whysize);

	if (rc)
		return rc;
	rc = overlay_log_remove(r);
	overlay_log_close(r);
	if (rc == -ENOENT)
		rc = -ENODATA;
	return rc ? refuse(path, rc, why, whysize) : 0;
}
