/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/checkpoint.h"

#include "engine/base/log.h"
#include "engine/base/metrics.h"
#include "engine/base/one-line.h"
#include "engine/base/text.h"
#include "engine/base/thread.h"
#include "engine/checkpoint/edit/open-files.h"
#include "engine/checkpoint/overlay/overlay-log.h"
#include "engine/checkpoint/editor.h"
#include "engine/checkpoint/fetch.h"
#include "engine/checkpoint/formats/format.h"
#include "engine/checkpoint/table/folder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
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

/* Opens the overlay of the table's files, which are locked. */
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

static void close_checkpoint(struct engine *e);

/* Makes the engine, and its editor if it is writable.  Takes the table and the log; *dir
 * becomes -1 if the editor takes it.
 */
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
	c = opened_checkpoint(*e);
	rc = editor_new(&c->editor, c, log ? -1 : *dir, log, !o->incoherent);
	if (!log)
		*dir = -1;
	if (rc)
		close_checkpoint(*e);
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
	CLEANUP(free) char *text = rc ? strdup(why) : NULL;

	if (text)
		one_line(text, why, whysize);
	return rc;
}

enum { DRAIN_SECONDS = 5 };

/* ---- a table's engine ---- */

static void checkpoint_free(struct checkpoint *c)
{
	fetch_free_all(c);
	rwgate_fini(&c->gate);
	table_free(c->table);
	free(c->path);
	pthread_cond_destroy(&c->idle);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static int open_disk(struct checkpoint *c, const struct disk_ops *disk)
{
	int rc;

	c->disk_ops = disk ? disk : &disk_uring;
	rc = c->disk_ops->open(&c->disk, NULL);
	if (!rc || disk)
		return rc;
	log_info("no io_uring here: %s", strerror(-rc));
	c->disk_ops = &disk_threads;
	return c->disk_ops->open(&c->disk, NULL);
}

static const struct engine_ops checkpoint_ops;

int checkpoint_new(struct engine **e, const char *path, const char *format, struct table *table,
		   const struct disk_ops *disk)
{
	struct checkpoint *c = calloc(1, sizeof(*c));
	int rc;

	if (!c) {
		table_free(table);
		return -ENOMEM;
	}
	assert(table->finished);
	c->base.ops = &checkpoint_ops;
	c->table = table;
	c->format = format;
	rwgate_init(&c->gate);
	pthread_mutex_init(&c->lock, NULL);
	thread_cond_init(&c->idle);
	c->path = realpath(path, NULL); /* the caller may chdir */
	if (!c->path)
		c->path = strdup(path);
	rc = c->path ? open_disk(c, disk) : -ENOMEM;
	if (rc) {
		checkpoint_free(c);
		return rc;
	}
	*e = (struct engine *)&c->base;
	return 0;
}

/* Cancels writes that wait and ends the one under way.  Reads that the disk does not end within
 * 5 seconds keep their memory: it then leaks.
 */
static void close_checkpoint(struct engine *e)
{
	struct checkpoint *c = opened_checkpoint(e);

	if (c->editor)
		editor_stop(c->editor);
	/* the disk may still write to the memory of reads */
	if (fetch_drain(c, DRAIN_SECONDS)) {
		log_error("%s: reads are still under way: left as it is", c->path);
		return;
	}
	c->disk_ops->close(c->disk);
	editor_free(c->editor);
	checkpoint_free(c);
}

/* ---- what there is ---- */

static uint32_t nparams(struct engine *e)
{
	return opened_checkpoint(e)->table->nparams;
}

static uint32_t nbuffers(struct engine *e)
{
	const struct table *t = opened_checkpoint(e)->table;

	return t->ntensors - t->nparams;
}

static uint32_t ngroups(struct engine *e)
{
	return opened_checkpoint(e)->table->ngroups;
}

static uint32_t nranks(struct engine *e)
{
	return opened_checkpoint(e)->table->nranks;
}

static uint32_t nparts(struct engine *e)
{
	return opened_checkpoint(e)->table->nparts;
}

static bool get_part(struct engine *e, uint32_t part, struct engine_part *out)
{
	const struct table *t = opened_checkpoint(e)->table;
	const struct table_part *p = part < t->nparts ? &t->parts[part] : NULL;

	if (!p)
		return false;
	*out = (struct engine_part){ table_string(t, p->name),
				     p->params,
				     p->nparams,
				     p->buffers,
				     p->nbuffers,
				     p->groups,
				     p->ngroups,
				     p->ranks,
				     p->nranks };
	return true;
}

static bool get_param(struct engine *e, uint32_t param, struct engine_param *out)
{
	const struct table *t = opened_checkpoint(e)->table;
	const struct table_tensor *x;

	if (param >= t->ntensors)
		return false;
	x = &t->tensors[t->shown[param]];
	*out = (struct engine_param){
		.name = table_string(t, x->name),
		.coordinate = table_string(t, x->coordinate),
		.dtype = x->dtype,
		.ndim = x->ndim,
		.shape = table_shape(t, x),
		.numel = x->numel,
		.group = x->group == TABLE_NONE ? -1 : (int)x->group,
		.position = x->position,
		.frozen = x->frozen,
		.same_as = x->alias == TABLE_NONE ? param : t->tensors[x->alias].shown,
	};
	return true;
}

static bool get_group(struct engine *e, uint32_t group, struct engine_group *out)
{
	const struct table *t = opened_checkpoint(e)->table;
	const struct table_group *g;

	if (group >= t->ngroups)
		return false;
	g = &t->groups[group];
	*out = (struct engine_group){
		.kind = g->kind,
		.shards = g->shards,
		.replicas = g->replicas,
		.sub_groups = g->sub_groups,
		.nparams = g->nparams,
		.params = g->params,
		.nranks = g->nranks,
		.ranks = g->ranks,
	};
	return true;
}

static uint64_t epoch(struct engine *e)
{
	return 1;
}

/* ---- states ---- */

static void put_state(const struct table *t, const struct table_state *s, uint64_t count,
		      struct engine_state *out)
{
	*out = (struct engine_state){ .dtype = s->shown,
				      .bytes = count * frag_dtype_size(s->shown) };
	strcpy(out->key, t->keys[s->key]);
}

static int list_states(struct engine *e, uint32_t param, struct engine_state *out, int max)
{
	const struct table *t = opened_checkpoint(e)->table;
	const struct table_state *s;
	uint32_t n;

	if (param >= t->ntensors)
		return -ENOENT;
	s = table_states(t, t->shown[param], &n);
	for (uint32_t i = 0; i < n && i < (uint32_t)max; i++) {
		put_state(t, &s[i], table_numel(t, &s[i]), &out[i]);
		if (editor_lets(opened_checkpoint(e), &s[i]))
			out[i].flags = ENGINE_STATE_WRITABLE;
		if (s[i].shown != s[i].stored)
			out[i].flags |= ENGINE_STATE_WIDENED;
	}
	return (int)n;
}

/* Lists the states that the rank's files store; a widened fp32 is not stored. */
static int list_rank_states(struct engine *e, uint32_t rank, uint32_t param,
			    struct engine_state *out, int max)
{
	const struct table *t = opened_checkpoint(e)->table;
	const struct table_state *s;
	uint32_t n;
	int found = 0;

	if (param >= t->ntensors || rank >= t->nranks)
		return -ENOENT;
	s = table_states(t, t->shown[param], &n);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t count =
			s[i].shown == s[i].stored ? table_rank_count(t, &s[i], rank) : 0;

		if (count && found < max)
			put_state(t, &s[i], count, &out[found]);
		found += count > 0;
	}
	return found;
}

static int list_partition_states(struct engine *e, uint32_t rank, uint32_t group, uint32_t sub,
				 struct engine_state *out, int max)
{
	const struct table *t = opened_checkpoint(e)->table;
	const struct table_partition *p;
	uint32_t n;

	if (rank >= t->nranks || group >= t->ngroups)
		return -ENOENT;
	p = table_partitions(t, rank, group, sub, &n);
	for (uint32_t i = 0; i < n && i < (uint32_t)max; i++)
		put_state(t, &p[i].state, table_numel(t, &p[i].state), &out[i]);
	return (int)n;
}

static int list_hypers(struct engine *e, uint32_t group, struct engine_state *out, int max)
{
	const struct table *t = opened_checkpoint(e)->table;
	const struct table_group *g;

	if (group >= t->ngroups)
		return -ENOENT;
	g = &t->groups[group];
	for (uint32_t i = 0; i < g->nhypers && i < (uint32_t)max; i++) {
		out[i] = (struct engine_state){ .dtype = FRAG_F64, .bytes = sizeof(double) };
		strcpy(out[i].key, g->hypers[i].name);
	}
	return (int)g->nhypers;
}

static bool get_rank(struct engine *e, uint32_t rank, struct engine_rank *out)
{
	if (rank >= nranks(e))
		return false;
	*out = (struct engine_rank){ .state = ENGINE_RANK_UNKNOWN,
				     .way = "file",
				     .phase = "-" };
	return true;
}

static void get_job(struct engine *e, struct engine_job *out)
{
	struct checkpoint *c = opened_checkpoint(e);

	*out = (struct engine_job){ .has_step = c->table->has_step,
				    .step = c->table->step,
				    .bytes = table_bytes(c->table),
				    .phase = "-" };
	snprintf(out->id, sizeof(out->id), "%s", c->format);
	snprintf(out->address, sizeof(out->address), "%s", c->path);
}

/* ---- files ---- */

static int find_hyper(const struct table *t, const struct engine_address *a,
		      struct checkpoint_part *f)
{
	const struct table_group *g;

	if (a->group >= t->ngroups)
		return -ENOENT;
	g = &t->groups[a->group];
	for (uint32_t i = 0; i < g->nhypers; i++) {
		if (!strcmp(g->hypers[i].name, a->key)) {
			f->hyper = g->hypers[i].value;
			f->is_hyper = true;
			f->bytes = sizeof(f->hyper);
			return 0;
		}
	}
	return -ENOENT;
}

static int find_state(const struct table *t, const struct engine_address *a,
		      struct checkpoint_part *f)
{
	uint64_t count;

	if (a->param >= t->ntensors ||
	    !(f->state = table_find_state(t, t->shown[a->param], a->key)))
		return -ENOENT;
	f->of_rank = a->kind == ENGINE_RANK_PARAM;
	f->rank = a->rank;
	count = f->of_rank ? table_rank_count(t, f->state, a->rank) : table_numel(t, f->state);
	if (f->of_rank && (!count || f->state->shown != f->state->stored))
		return -ENOENT;
	f->bytes = count * frag_dtype_size(f->state->shown);
	return 0;
}

static int find_partition(const struct table *t, const struct engine_address *a,
			  struct checkpoint_part *f)
{
	uint32_t n;
	const struct table_partition *p = table_partitions(t, a->rank, a->group, a->sub, &n);

	for (; n && strcmp(t->keys[p->state.key], a->key); n--)
		p++;
	if (!n)
		return -ENOENT;
	f->state = &p->state;
	f->bytes = table_numel(t, f->state) * frag_dtype_size(f->state->shown);
	return 0;
}

/* Finds the whole model_states.pt, whose elements are bytes. */
static int find_whole(const struct table *t, struct checkpoint_part *f)
{
	if (!t->whole.stored)
		return -ENOENT;
	f->state = &t->whole;
	f->bytes = table_numel(t, f->state);
	return 0;
}

static int find_part(const struct table *t, const struct engine_address *a,
		     struct checkpoint_part *f)
{
	if (a->kind == ENGINE_MODEL_STATES)
		return find_whole(t, f);
	if (a->kind == ENGINE_HYPER)
		return find_hyper(t, a, f);
	if (a->kind == ENGINE_PARAM || a->kind == ENGINE_RANK_PARAM)
		return find_state(t, a, f);
	return a->kind == ENGINE_RANK_PARTITION ? find_partition(t, a, f) : -ENOENT;
}

static int open_file(struct engine *e, const struct engine_address *addresses, uint32_t n,
		     struct engine_file **file, uint64_t *bytes)
{
	struct checkpoint *c = opened_checkpoint(e);
	struct checkpoint_file *f = calloc(1, sizeof(*f) + n * sizeof(f->parts[0]));
	int rc = f ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < n && !rc; i++) {
		struct checkpoint_part *p = &f->parts[f->nparts++];

		/* only parameters' states can share a file */
		if (n > 1 && addresses[i].kind != ENGINE_PARAM)
			rc = -EINVAL;
		else
			rc = find_part(c->table, &addresses[i], p);
		p->at = f->bytes;
		if (!rc && !u64_add(f->bytes, p->bytes, &f->bytes))
			rc = -EOVERFLOW;
	}
	if (rc) {
		free(f);
		return rc;
	}
	f->base.engine = e;
	pthread_mutex_lock(&c->lock);
	LIST_INSERT_HEAD(&c->files, f, entry);
	pthread_mutex_unlock(&c->lock);
	*file = (struct engine_file *)&f->base;
	*bytes = f->bytes;
	return 0;
}

static void close_file(struct engine_file *file)
{
	struct checkpoint_file *f = opened_file(file);
	struct checkpoint *c = opened_checkpoint(f->base.engine);

	pthread_mutex_lock(&c->lock);
	LIST_REMOVE(f, entry);
	pthread_mutex_unlock(&c->lock);
	free(f);
}

struct newest {
	const struct table *table;
	uint64_t ns;
};

static void see_file(struct newest *newest, uint32_t file)
{
	newest->ns = u64_max(newest->ns, newest->table->files[file].changed_ns);
}

static int see_run(void *arg, const struct table_run *run)
{
	see_file(arg, run->file);
	return 0;
}

static uint64_t newest_of_all(struct checkpoint *c)
{
	struct newest newest = { c->table, atomic_load(&c->overlay_ns) };

	pthread_mutex_lock(&c->lock);
	for (uint32_t i = 0; i < c->table->nfiles; i++)
		see_file(&newest, i);
	pthread_mutex_unlock(&c->lock);
	return newest.ns;
}

static uint64_t changed_ns(struct engine *e, const struct engine_address *a)
{
	struct checkpoint *c = opened_checkpoint(e);
	struct newest newest = { c->table, atomic_load(&c->overlay_ns) };
	struct checkpoint_part f = { .state = NULL };

	if (!a)
		return newest_of_all(c);
	if (find_part(c->table, a, &f) || f.is_hyper)
		return 0;
	pthread_mutex_lock(&c->lock);
	if (f.of_rank)
		table_walk_rank(c->table, f.state, f.rank, see_run, &newest);
	else
		table_walk(c->table, f.state, 0, table_numel(c->table, f.state), see_run,
			   &newest);
	pthread_mutex_unlock(&c->lock);
	return newest.ns;
}

/* ---- texts about the checkpoint ---- */

static void put_config(struct checkpoint *c, FILE *out)
{
	fprintf(out, "checkpoint %s\nwritable %s\ndisk %s\n", c->path, c->editor ? "yes" : "no",
		c->disk_ops->name);
	if (c->editor)
		editor_describe(c, out);
}

static void put_metrics(struct checkpoint *c, FILE *out)
{
	metrics_counter(out, "reads_total", "read requests served", &c->reads);
	metrics_counter(out, "read_bytes_total", "bytes given to readers", &c->read_bytes);
	metrics_counter(out, "read_errors_total", "read requests that failed", &c->read_errors);
	metrics_counter(out, "reads_cached_total", "read requests that waited for no disk",
			&c->from_cache);
	metrics_counter(out, "reads_disk_total", "read requests that waited for the disk",
			&c->from_disk);
	metrics_counter(out, "edits_total", "edits committed to the files", &c->edits);
	metrics_counter(out, "edit_bytes_total", "bytes of the files that edits replaced",
			&c->edit_bytes);
	metrics_counter(out, "edit_errors_total", "edits that were not committed",
			&c->edit_errors);
}

static void put_source(struct checkpoint *c, FILE *out)
{
	const struct table *t = c->table;

	fwrite(t->source, 1, t->source_size, out);
	fprintf(out, "params %u\nbuffers %u\nranks %u\nfiles %u\nbytes %" PRIu64 "\n",
		t->nparams, t->ntensors - t->nparams, t->nranks, t->nfiles, table_bytes(t));
	if (c->editor)
		fprintf(out, "edits %" PRIu64 "\n", editor_edits(c));
}

static void put_log(struct checkpoint *c, FILE *out)
{
	CLEANUP(free) char *text = log_text();

	if (text)
		fputs(text, out);
}

static const struct {
	const char *name;
	void (*put)(struct checkpoint *c, FILE *out);
} texts[] = {
	{ "config", put_config },       { "metrics", put_metrics }, { "source", put_source },
	{ "inflight", fetch_describe }, { "log", put_log },
};

static char *get_text(struct engine *e, const char *what)
{
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		char *text = NULL;
		size_t size;
		FILE *out;

		if (strcmp(texts[i].name, what) != 0)
			continue;
		out = open_memstream(&text, &size);
		if (!out)
			return NULL;
		texts[i].put(opened_checkpoint(e), out);
		return text_end(out, &text);
	}
	return NULL;
}

/* ---- fragments ---- */

struct fragments_walk {
	const struct table *table;
	size_t element;
	void (*see)(void *arg, const struct engine_fragment *f);
	void *arg;
};

static int tell_run(void *arg, const struct table_run *run)
{
	const struct fragments_walk *l = arg;

	l->see(l->arg, &(struct engine_fragment){ .rank = run->rank,
						  .tier = "file",
						  .file = l->table->files[run->file].name,
						  .base = run->base,
						  .element = l->element,
						  .param_offset = run->first,
						  .numel = run->count,
						  .box = run->box });
	return 0;
}

static void see_fragments(struct engine *e, uint32_t param, const char *key,
			  void (*see)(void *arg, const struct engine_fragment *f), void *arg)
{
	const struct table *t = opened_checkpoint(e)->table;
	const struct table_state *s =
		param < t->ntensors ? table_find_state(t, t->shown[param], key) : NULL;
	struct fragments_walk l = { t, 0, see, arg };

	if (!s)
		return;
	l.element = frag_dtype_size(s->stored);
	table_walk(t, s, 0, table_numel(t, s), tell_run, &l);
}

/* ---- its calls ---- */

static void refuse_freeze(struct engine *e, struct engine_freeze *freeze)
{
	freeze->done(freeze, -EROFS);
}

static void cancel_freeze(struct engine *e, struct engine_freeze *freeze)
{
}

static const struct engine_ops checkpoint_ops = {
	.live = false,
	.close = close_checkpoint,
	.nparams = nparams,
	.nbuffers = nbuffers,
	.nparts = nparts,
	.part = get_part,
	.ngroups = ngroups,
	.nranks = nranks,
	.param = get_param,
	.group = get_group,
	.epoch = epoch,
	.states = list_states,
	.rank_states = list_rank_states,
	.partition_states = list_partition_states,
	.hypers = list_hypers,
	.rank = get_rank,
	.job = get_job,
	.text = get_text,
	.changed_ns = changed_ns,
	.fragments = see_fragments,
	.file_open = open_file,
	.file_close = close_file,
	.read = fetch_start,
	.read_cancel = fetch_cancel,
	.write = editor_write,
	.write_cancel = editor_cancel,
	.freeze = refuse_freeze,
	.freeze_cancel = cancel_freeze,
};
