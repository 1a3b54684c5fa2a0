/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/checkpoint.h"
#include "engine/base/log.h"
#include "engine/checkpoint/editor.h"
#include "engine/checkpoint/fetch.h"

#include <inttypes.h>
#include <string.h>

/* What a checkpoint says about itself. */

static void put_config(struct checkpoint *c, FILE *out)
{
	fprintf(out, "checkpoint %s\nwritable %s\ndisk %s\n", c->path, c->editor ? "yes" : "no",
		c->disk_ops->name);
	if (c->editor)
		editor_describe(c, out);
}

static void put_counter(FILE *out, const char *name, const char *help, _Atomic uint64_t *value)
{
	fprintf(out, "# HELP fragfs_%s %s\n# TYPE fragfs_%s counter\nfragfs_%s %" PRIu64 "\n",
		name, help, name, name, atomic_load_explicit(value, memory_order_relaxed));
}

static void put_metrics(struct checkpoint *c, FILE *out)
{
	put_counter(out, "reads_total", "read requests served", &c->reads);
	put_counter(out, "read_bytes_total", "bytes given to readers", &c->read_bytes);
	put_counter(out, "read_errors_total", "read requests that failed", &c->read_errors);
	put_counter(out, "reads_cached_total", "read requests that waited for no disk",
		    &c->from_cache);
	put_counter(out, "reads_disk_total", "read requests that waited for the disk",
		    &c->from_disk);
	put_counter(out, "edits_total", "edits committed to the files", &c->edits);
	put_counter(out, "edit_bytes_total", "bytes of the files that edits replaced",
		    &c->edit_bytes);
	put_counter(out, "edit_errors_total", "edits that were not committed", &c->edit_errors);
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
	enum { ROOM = 128 << 10 };
	CLEANUP(free) char *text = malloc(ROOM);

	if (!text)
		return;
	log_tail(text, ROOM);
	fputs(text, out);
}

static const struct {
	const char *name;
	void (*put)(struct checkpoint *c, FILE *out);
} texts[] = {
	{ "config", put_config },       { "metrics", put_metrics }, { "source", put_source },
	{ "inflight", fetch_describe }, { "log", put_log },
};

char *checkpoint_text(struct engine *e, const char *what)
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
		texts[i].put(checkpoint_of(e), out);
		fclose(out);
		return text;
	}
	return NULL;
}

/* ---- fragments ---- */

struct telling {
	const struct table *table;
	void (*see)(void *arg, const struct engine_fragment *f);
	void *arg;
};

static int tell_run(void *arg, const struct table_run *run)
{
	const struct telling *l = arg;

	l->see(l->arg, &(struct engine_fragment){ .rank = run->rank,
						  .tier = "file",
						  .file = l->table->files[run->file].name,
						  .base = run->base,
						  .param_offset = run->first,
						  .numel = run->count,
						  .box = run->box });
	return 0;
}

void checkpoint_fragments(struct engine *e, uint32_t param, const char *key,
			  void (*see)(void *arg, const struct engine_fragment *f), void *arg)
{
	const struct table *t = checkpoint_of(e)->table;
	struct telling l = { t, see, arg };
	const struct table_state *s =
		param < t->ntensors ? table_find_state(t, t->shown[param], key) : NULL;

	if (s)
		table_walk(t, s, 0, table_numel(t, s), tell_run, &l);
}
