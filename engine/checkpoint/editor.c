/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/editor.h"

#include "engine/base/fd.h"
#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/checkpoint/edit/edit.h"
#include "engine/checkpoint/edit/file-lock.h"
#include "engine/checkpoint/edit/journal.h"
#include "engine/checkpoint/overlay/overlay-log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { LOCK_MS = 10000, SHUT_SECONDS = 60 }; /* for the folder's lock; for reads to end */

struct editor {
	struct checkpoint *checkpoint;
	int dir;                 /* the folder of the journal; -1: there is a log */
	struct overlay_log *log; /* NULL: edits are made in place */
	uint64_t before;         /* edits that the log had when it was opened */
	bool coherent;
	pthread_t thread;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t queued;
	bool stop;
	STAILQ_HEAD(, engine_write) queue;
	struct engine_write *current;
	_Atomic bool cancelled; /* the current write is cancelled */
};

/* ---- one edit ---- */

static int check_files(const struct editor *ed, const struct patches *p)
{
	struct table *t = ed->checkpoint->table;
	int rc = 0;

	for (uint32_t i = 0; i < patches_count(p) && !rc; i++) {
		struct table_file *f = &t->files[patches_get(p, i)->file];

		if (!i || patches_get(p, i)->file != patches_get(p, i - 1)->file)
			rc = ed->log ? file_lock_check(f) : file_lock_check_name(f, ed->dir);
	}
	return rc;
}

/* Returns a time later than all changes: the least that an edit is given.  Its mtime may be
 * that of the edit before, within one tick of the file system's clock, or earlier than that of
 * a file from the future; and fs/ keeps statistics under the time of the last change.
 */
static uint64_t next_ns(struct checkpoint *c)
{
	return c->base.ops->changed_ns((struct engine *)&c->base, NULL) + 1;
}

static void renew_files(const struct editor *ed, const struct patches *p)
{
	struct checkpoint *c = ed->checkpoint;
	uint64_t next = next_ns(c);

	pthread_mutex_lock(&c->lock);
	for (uint32_t i = 0; i < patches_count(p); i++) {
		struct table_file *f = &c->table->files[patches_get(p, i)->file];

		file_lock_renew(f);
		f->changed_ns = u64_max(f->changed_ns, next);
	}
	pthread_mutex_unlock(&c->lock);
}

struct touching {
	const struct patches *patches;
	size_t size; /* of an element */
};

static int see_touched(void *arg, const struct table_run *run)
{
	const struct touching *x = arg;

	return patches_touch(x->patches, run->file, run->base, run->count * x->size);
}

static bool is_touched(const struct patches *p, const struct checkpoint_file *f)
{
	const struct table *t = p->table;
	bool touched = false;

	for (uint32_t i = 0; i < f->nparts && !touched; i++) {
		const struct checkpoint_part *x = &f->parts[i];
		const struct table_state *s = x->state;
		struct touching touching = { p, s ? frag_dtype_size(s->stored) : 0 };

		if (s && x->of_rank)
			touched = table_walk_rank(t, s, x->rank, see_touched, &touching);
		else if (s)
			touched =
				table_walk(t, s, 0, table_numel(t, s), see_touched, &touching);
	}
	return touched;
}

/* Makes a committed edit visible to counters and open files; the gate is shut.  An open file
 * shows the checkpoint as it was when it was opened, so that reads of one that the edit changed
 * fail with -ESTALE from now on, but for the writer's own.
 */
static void show(struct checkpoint *c, const struct patches *p,
		 const struct engine_write *write)
{
	struct checkpoint_file *f;

	atomic_fetch_add(&c->edits, 1);
	atomic_fetch_add(&c->edit_bytes, p->bytes);
	pthread_mutex_lock(&c->lock);
	LIST_FOREACH (f, &c->files, entry)
		if (f != opened_file(write->file) && is_touched(p, f))
			f->stale = true;
	pthread_mutex_unlock(&c->lock);
}

/* ---- in the files ---- */

static void roll_back(struct editor *ed)
{
	struct checkpoint *c = ed->checkpoint;
	char why[512];
	int rc = journal_undo(ed->dir, c->table, why, sizeof(why));

	if (!rc)
		return;
	c->broken = true;
	log_error("%s: %s: nothing is read any more; the next mount undoes it", c->path, why);
}

/* Writes the patches; the journal is on disk.  On error the old bytes are written back. */
static int apply(struct editor *ed, const struct patches *p, const struct engine_write *write)
{
	struct checkpoint *c = ed->checkpoint;
	int rc = rwgate_shut(&c->gate, SHUT_SECONDS);

	if (rc) {
		journal_end(ed->dir);
		return rc;
	}
	rc = patches_apply(p);
	if (!rc)
		rc = journal_end(ed->dir);
	if (rc)
		roll_back(ed);
	/* an undo changes the files' times, too */
	renew_files(ed, p);
	if (!rc)
		show(c, p, write);
	rwgate_open(&c->gate);
	return rc;
}

/* Undoes the edit of a process that died before it ended. */
static int undo_others(const struct editor *ed)
{
	char why[512];
	int rc = 0;

	if (journal_is_there(ed->dir))
		rc = journal_undo(ed->dir, NULL, why, sizeof(why));
	if (rc)
		log_error("%s: %s", ed->checkpoint->path, why);
	return rc;
}

static int apply_locked(struct editor *ed, struct patches *p, const struct engine_write *write)
{
	int rc = fd_lock(ed->dir, LOCK_MS);

	if (rc) /* a cancel during the wait explains more than the lock's holder */
		return atomic_load(&ed->cancelled) ? -ECANCELED : rc;
	rc = undo_others(ed);
	if (!rc)
		rc = journal_begin(ed->dir, p, &ed->cancelled);
	if (!rc)
		rc = apply(ed, p, write);
	fd_unlock(ed->dir);
	return rc;
}

/* ---- in an overlay ---- */

/* Takes the time of the log's last change for that of the overlay's last edit. */
static void note_time(struct checkpoint *c, const struct overlay_log *log)
{
	struct stat st;

	if (log->fd >= 0 && !fstat(log->fd, &st))
		atomic_store(&c->overlay_ns, u64_max(next_ns(c), timespec_ns(&st.st_mtim)));
}

static int write_overlay(struct editor *ed, struct patches *p, const struct engine_write *write)
{
	struct checkpoint *c = ed->checkpoint;
	int rc = overlay_log_begin(ed->log, p, &ed->cancelled);

	if (rc)
		return rc;
	rc = rwgate_shut(&c->gate, SHUT_SECONDS);
	if (rc) {
		overlay_log_drop(ed->log);
		return rc;
	}
	rc = overlay_log_end(ed->log);
	if (!rc) {
		note_time(c, ed->log);
		show(c, p, write);
	}
	if (rc && overlay_log_drop(ed->log)) {
		c->broken = true;
		log_error("%s: whether it has the last edit is not known: nothing is read any "
			  "more",
			  ed->log->path);
	}
	rwgate_open(&c->gate);
	return rc;
}

static int commit(struct editor *ed, const struct engine_write *write)
{
	struct checkpoint *c = ed->checkpoint;
	struct patches p;
	int rc;

	if (c->broken)
		return -EIO;
	patches_init(&p, c->table, c->overlay);
	rc = edit_translate(&p, opened_file(write->file)->parts->state, write->extents,
			    write->nextents, ed->coherent);
	if (!rc)
		rc = patches_finish(&p);
	if (!rc)
		rc = check_files(ed, &p);
	if (!rc && patches_count(&p))
		rc = ed->log ? write_overlay(ed, &p, write) : apply_locked(ed, &p, write);
	patches_fini(&p);
	return rc;
}

/* ---- the queue ---- */

static struct engine_write *next_write(struct editor *ed)
{
	struct engine_write *w;

	pthread_mutex_lock(&ed->lock);
	while (STAILQ_EMPTY(&ed->queue) && !ed->stop)
		pthread_cond_wait(&ed->queued, &ed->lock);
	w = ed->stop ? NULL : STAILQ_FIRST(&ed->queue);
	if (w) {
		STAILQ_REMOVE_HEAD(&ed->queue, entry);
		ed->current = w;
		atomic_store(&ed->cancelled, false);
	}
	pthread_mutex_unlock(&ed->lock);
	return w;
}

static void *run(void *arg)
{
	struct editor *ed = arg;
	struct engine_write *w;

	while ((w = next_write(ed))) {
		int rc = commit(ed, w);

		pthread_mutex_lock(&ed->lock);
		ed->current = NULL;
		pthread_mutex_unlock(&ed->lock);
		if (rc)
			atomic_fetch_add(&ed->checkpoint->edit_errors, 1);
		w->done(w, rc);
	}
	return NULL;
}

bool editor_lets(const struct checkpoint *c, const struct table_state *s)
{
	return c->editor && edit_is_possible(c->table, s, c->editor->coherent);
}

void editor_write(struct engine *e, struct engine_write *write)
{
	struct checkpoint *c = opened_checkpoint(e);
	const struct checkpoint_file *file = opened_file(write->file);
	const struct checkpoint_part *part;
	struct editor *ed = c->editor;

	if (!ed) {
		write->done(write, -EROFS);
		return;
	}
	part = file->parts;
	if (write->operation) {
		write->done(write, -EOPNOTSUPP);
		return;
	}
	if (file->nparts > 1 || !part->state || part->state->tensor == TABLE_NONE ||
	    part->of_rank || !editor_lets(c, part->state)) {
		write->done(write, -EACCES);
		return;
	}
	pthread_mutex_lock(&ed->lock);
	STAILQ_INSERT_TAIL(&ed->queue, write, entry);
	pthread_cond_signal(&ed->queued);
	pthread_mutex_unlock(&ed->lock);
}

/* Removes a write from the queue.  Returns false if it is not there.  The lock is held. */
static bool dequeue(struct editor *ed, struct engine_write *write)
{
	struct engine_write *w;

	STAILQ_FOREACH (w, &ed->queue, entry) {
		if (w != write)
			continue;
		STAILQ_REMOVE(&ed->queue, write, engine_write, entry);
		return true;
	}
	return false;
}

void editor_cancel(struct engine *e, struct engine_write *write)
{
	struct editor *ed = opened_checkpoint(e)->editor;
	bool waited;

	if (!ed)
		return;
	pthread_mutex_lock(&ed->lock);
	waited = dequeue(ed, write);
	if (ed->current == write)
		atomic_store(&ed->cancelled, true);
	pthread_mutex_unlock(&ed->lock);
	if (waited)
		write->done(write, -ECANCELED);
}

/* ---- the editor ---- */

int editor_new(struct editor **out, struct checkpoint *c, int dir, struct overlay_log *log,
	       bool coherent)
{
	struct editor *ed = calloc(1, sizeof(*ed));
	int rc = -ENOMEM;

	if (ed) {
		*ed = (struct editor){
			.checkpoint = c, .dir = dir, .log = log, .coherent = coherent
		};
		ed->before = log ? log->edits : 0;
		STAILQ_INIT(&ed->queue);
		pthread_mutex_init(&ed->lock, NULL);
		pthread_cond_init(&ed->queued, NULL);
		c->overlay = log ? &log->map : NULL;
		if (ed->before)
			note_time(c, log);
		rc = thread_start(&ed->thread, run, ed);
	}
	if (!rc) {
		*out = ed;
		return 0;
	}
	c->overlay = NULL;
	base_close(&dir);
	overlay_log_close(log);
	free(ed);
	return rc;
}

void editor_stop(struct editor *ed)
{
	struct engine_write *w;

	pthread_mutex_lock(&ed->lock);
	ed->stop = true;
	pthread_cond_signal(&ed->queued);
	pthread_mutex_unlock(&ed->lock);
	pthread_join(ed->thread, NULL);
	while ((w = STAILQ_FIRST(&ed->queue))) {
		STAILQ_REMOVE_HEAD(&ed->queue, entry);
		w->done(w, -ECANCELED);
	}
}

void editor_free(struct editor *ed)
{
	if (!ed)
		return;
	pthread_cond_destroy(&ed->queued);
	pthread_mutex_destroy(&ed->lock);
	base_close(&ed->dir);
	overlay_log_close(ed->log);
	free(ed);
}

uint64_t editor_edits(const struct checkpoint *c)
{
	return c->editor->before + atomic_load(&c->edits);
}

void editor_describe(const struct checkpoint *c, FILE *out)
{
	fprintf(out, "coherent %s\n", c->editor->coherent ? "on" : "off");
	if (c->editor->log)
		fprintf(out, "overlay %s\n", c->editor->log->path);
}
