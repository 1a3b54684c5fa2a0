/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/stats-table.h"

#include "engine/base/element.h"
#include "engine/base/one-line.h"
#include "engine/base/thread.h"
#include "fs/stat-text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	BATCH_STATES = 512,
	BATCH_BYTES = 64 << 20, /* a batch is complete with this many bytes, and MIN_STATES */
	MIN_STATES = 8,
	BATCHES = 3, /* batches under way: while one is printed the ranks work on the others */
	PASSES_MAX = 64,
};

struct table_line {
	/* of the state; of a parameter whose states cannot be listed: result says why */
	struct node node;
	struct engine_state state;
	struct stats values;
	int result;
};

struct batch {
	struct stats_table *of;
	struct table_line *lines; /* [BATCH_STATES] */
	struct engine_sum *sums;
	uint32_t n;
	struct engine_sums asked;
	bool is_asked; /* under the table's lock */
};

struct stats_table {
	struct fs *fs;
	/* of all below that is not the thread's; held while engine_sums_cancel is called */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned refs; /* one of the open file, one of the thread */
	pid_t reader;  /* the thread that read first, as `thread` of struct engine_read */
	bool started;  /* under the lock of stats_tables */
	bool canceled, over;
	/* why lines are missing, which a read past the text returns; 0: none are */
	int error;
	bool has_lost; /* a line has an error in place of values; the thread's */
	char *text;
	size_t length;
	LIST_HEAD(, waiting_read) waiting;
	struct batch batches[BATCHES]; /* the thread's */
	uint32_t item;                 /* the next parameter; the thread's, as slot */
	int slot;                      /* its next state */
};

struct waiting_read {
	LIST_ENTRY(waiting_read) entry;
	struct request *request;
};

struct stats_tables {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned threads; /* under lock, as all below */
	char *text;       /* the whole table as it was made last; NULL: none was */
	size_t length;
	uint64_t changed_ns; /* time of the last change of what the text shows */
};

struct stats_tables *stats_tables_new(void)
{
	struct stats_tables *all = calloc(1, sizeof(*all));

	if (!all)
		return NULL;
	pthread_mutex_init(&all->lock, NULL);
	pthread_cond_init(&all->changed, NULL);
	return all;
}

void stats_tables_free(struct stats_tables *all)
{
	if (!all)
		return;
	pthread_mutex_lock(&all->lock);
	while (all->threads)
		pthread_cond_wait(&all->changed, &all->lock);
	pthread_mutex_unlock(&all->lock);
	free(all->text);
	pthread_cond_destroy(&all->changed);
	pthread_mutex_destroy(&all->lock);
	free(all);
}

/* ---- which states there are ---- */

/* Returns the time of the last change of anything in the table; 0: the text must not be kept,
 * because gradients are valid, which change without a generation.
 */
static uint64_t content_of(struct fs *fs)
{
	struct engine_address first = { .kind = ENGINE_PARAM };
	struct engine_rank rank;

	if (!engine_is_live(fs->engine))
		return engine_changed_ns(fs->engine, NULL);
	for (uint32_t i = 0; i < fs->tree.nranks; i++)
		if (engine_rank(fs->engine, i, &rank) && rank.grads_valid)
			return 0;
	return engine_changed_ns(fs->engine, &first);
}

/* Fills a line from the next state of a parameter's directory, or from the error on which the
 * directory ended.  False: it has no more states.
 */
static bool next_of_param(struct stats_table *t, struct tree_dir *dir, struct table_line *line)
{
	struct tree_entry entry;
	uint64_t next = (uint64_t)t->slot;

	while (tree_dir_get(dir, next, &entry, &next)) {
		t->slot = (int)next;
		if (entry.node.kind != NODE_STATE || !entry.has_state)
			continue;
		line->node = entry.node;
		line->state = entry.state;
		line->result = -EOPNOTSUPP;
		stats_init(&line->values, false);
		return true;
	}
	if (!dir->error)
		return false;
	line->node = dir->node;
	line->state = (struct engine_state){ .key = "-" };
	line->result = dir->error;
	t->item++;
	t->slot = 0;
	return true;
}

/* Fills the next line's node and state, or result if there is no state to ask for.  False:
 * there are no more lines.
 */
static bool next_line(struct stats_table *t, struct table_line *line)
{
	struct tree *tree = &t->fs->tree;

	for (; t->item < tree->ntensors; t->item++, t->slot = 0) {
		struct tree_dir dir;
		bool found;

		tree_dir_init(&dir, tree, (struct node){ NODE_PARAM, .item = t->item });
		found = next_of_param(t, &dir, line);
		tree_dir_fini(&dir);
		if (found)
			return true;
	}
	return false;
}

static bool has_state(const struct table_line *line)
{
	return line->node.kind == NODE_STATE;
}

static bool is_complex(const struct table_line *line)
{
	return has_state(line) && !stats_has(line->state.dtype);
}

static bool is_canceled(struct stats_table *t)
{
	LOCKED(&t->lock);
	return t->canceled;
}

/* ---- by the owners ---- */

static void summed(struct engine_sums *sums)
{
	struct batch *b = sums->owner;

	LOCKED(&b->of->lock);
	b->is_asked = false;
	pthread_cond_broadcast(&b->of->changed);
}

static void ask(struct batch *b, uint32_t n)
{
	b->asked =
		(struct engine_sums){ .states = b->sums, .n = n, .done = summed, .owner = b };
	b->is_asked = true;
	if (n && !engine_sums(b->of->fs->engine, &b->asked))
		return;
	b->is_asked = false;
	for (uint32_t i = 0; i < n; i++)
		b->sums[i].result = -EOPNOTSUPP;
}

/* Waits for the sums of a batch.  The lock is held over the cancellation, so that summed(),
 * which takes it, cannot end b->asked meanwhile.
 */
static void wait_for_sums(struct batch *b)
{
	struct stats_table *t = b->of;
	bool told = false;

	LOCKED(&t->lock);
	while (b->is_asked) {
		if (t->canceled && !told)
			engine_sums_cancel(t->fs->engine, &b->asked);
		told = t->canceled;
		pthread_cond_wait(&t->changed, &t->lock);
	}
}

static void sum_of(struct batch *b, uint32_t at, uint32_t line)
{
	stats_init(&b->lines[line].values, false);
	b->sums[at] = (struct engine_sum){
		.address = tree_address(&b->of->fs->tree, b->lines[line].node),
		.values = &b->lines[line].values,
	};
}

static void ask_for_present(struct batch *b)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->n; i++)
		if (has_state(&b->lines[i]))
			sum_of(b, n++, i);
	ask(b, n);
}

static void wait_for_present(struct batch *b)
{
	uint32_t n = 0;

	wait_for_sums(b);
	for (uint32_t i = 0; i < b->n; i++)
		if (has_state(&b->lines[i]))
			b->lines[i].result = b->sums[n++].result;
}

static bool is_grad(const struct table_line *line)
{
	return !strcmp(line->state.key, "grad");
}

struct opened { /* the end of a read, for the thread that waits for it */
	struct stats_table *of;
	bool over;
	int result;
};

static void opened(struct engine_read *read, const void *data, int64_t result)
{
	struct opened *o = read->owner;

	LOCKED(&o->of->lock);
	o->result = result < 0 ? (int)result : 0;
	o->over = true;
	pthread_cond_broadcast(&o->of->changed);
}

/* Reads a byte, which opens the file's view.  With nowait the read does not wait for gradients.
 * No signal cancels it: the engine bounds its waits.
 */
static int open_view(struct stats_table *t, struct engine_file *file, bool nowait)
{
	struct opened o = { .of = t };
	struct engine_read read = { .file = file,
				    .size = 1,
				    .nowait = nowait,
				    .thread = t->reader,
				    .done = opened,
				    .owner = &o };

	engine_read(t->fs->engine, &read);
	LOCKED(&t->lock);
	while (!o.over)
		pthread_cond_wait(&t->changed, &t->lock);
	return o.result;
}

/* Asks the owners again, by one view, for the lines of a batch that changed while they were
 * summed.
 */
static void ask_by_view(struct batch *b, bool grads)
{
	struct engine_address addresses[BATCH_STATES];
	uint32_t numbers[BATCH_STATES], n = 0;
	struct engine *e = b->of->fs->engine;
	struct engine_file *file = NULL;
	uint64_t at = 0, bytes;
	int rc = 0;

	for (uint32_t i = 0; i < b->n; i++) {
		struct table_line *line = &b->lines[i];

		if (line->result != -EAGAIN || is_grad(line) != grads || !line->state.bytes)
			continue;
		sum_of(b, n, i);
		b->sums[n].at = at;
		at += line->state.bytes;
		addresses[n] = b->sums[n].address;
		numbers[n++] = i;
	}
	if (!n)
		return;
	rc = engine_file_open_many(e, addresses, n, &file, &bytes);
	if (!rc && bytes != at)
		rc = -EAGAIN;
	if (!rc)
		rc = open_view(b->of, file, grads);
	for (uint32_t i = 0; i < n && !rc; i++)
		b->sums[i].file = file;
	if (!rc) {
		ask(b, n);
		wait_for_sums(b);
	} else if (rc != -ECANCELED && rc != -EDEADLK) {
		rc = -EOPNOTSUPP; /* one state may be the cause: each is read by itself */
	}
	for (uint32_t i = 0; i < n; i++)
		b->lines[numbers[i]].result = rc ? rc : b->sums[i].result;
	if (file)
		engine_file_close(file);
}

/* ---- by reading ---- */

struct line_pass {
	struct stats_pass pass;
	struct stats_table *of;
	struct table_line *line; /* NULL: no pass is under way, once over */
	bool over;
};

static void passed(struct stats_pass *pass, int result)
{
	struct line_pass *r = pass->owner;

	LOCKED(&r->of->lock);
	r->line->result = result;
	r->over = true;
	pthread_cond_broadcast(&r->of->changed);
}

/* Returns a pass that is over, or was never begun; with `all`, only one that is over.  NULL: no
 * pass is under way.
 */
static struct line_pass *find_free(struct stats_table *t, struct line_pass *readings,
				   unsigned n, bool all)
{
	bool told = false;

	LOCKED(&t->lock);
	for (;;) {
		unsigned busy = 0;

		for (unsigned i = 0; i < n; i++) {
			if (!readings[i].line && !all)
				return &readings[i];
			if (readings[i].line && readings[i].over)
				return &readings[i];
			busy += readings[i].line != NULL;
			if (readings[i].line && t->canceled && !told)
				stats_pass_cancel(&readings[i].pass);
		}
		told = t->canceled;
		if (!busy)
			return NULL;
		pthread_cond_wait(&t->changed, &t->lock);
	}
}

static void end_reading(struct line_pass *r)
{
	if (r->line)
		engine_file_close(r->pass.file);
	r->line = NULL;
}

static int start_reading(struct stats_table *t, struct line_pass *r, struct table_line *line)
{
	int rc;

	*r = (struct line_pass){
		.pass = { .engine = t->fs->engine,
			  .address = tree_address(&t->fs->tree, line->node),
			  .dtype = line->state.dtype,
			  .nowait = is_grad(line),
			  .thread = t->reader,
			  .values = &line->values,
			  .done = passed,
			  .owner = r },
		.of = t,
		.line = line,
	};
	rc = engine_file_open(t->fs->engine, &r->pass.address, &r->pass.file, &r->pass.bytes);
	if (!rc) {
		rc = stats_pass_start(&r->pass);
		if (rc)
			engine_file_close(r->pass.file);
	}
	if (rc)
		r->line = NULL;
	return rc;
}

/* Reads the states of a batch whose owners cannot sum them, several at a time. */
static void read_rest(struct batch *b)
{
	struct stats_table *t = b->of;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned n = cores < 1 ? 1 : cores > PASSES_MAX ? PASSES_MAX : (unsigned)cores;
	struct line_pass readings[PASSES_MAX] = { 0 }, *r;

	for (uint32_t i = 0; i < b->n; i++) {
		struct table_line *line = &b->lines[i];
		int rc;

		if ((line->result != -EAGAIN && line->result != -EOPNOTSUPP) ||
		    !stats_has(line->state.dtype))
			continue;
		r = find_free(t, readings, n, false);
		end_reading(r);
		rc = is_canceled(t) ? -ECANCELED : start_reading(t, r, line);
		if (rc) /* a pass that has started sets line->result, perhaps already */
			line->result = rc;
	}
	while ((r = find_free(t, readings, n, true)))
		end_reading(r);
}

/* ---- lines ---- */

static void put_number(FILE *out, double value)
{
	char text[ELEMENT_TEXT_MAX];

	element_format(FRAG_F64, &value, text);
	fprintf(out, "\t%s", text);
}

static void put_index(FILE *out, uint64_t element)
{
	if (element == STATS_NONE)
		fputs("\t-", out);
	else
		fprintf(out, "\t%" PRIu64, element);
}

static const char *why_not(const struct table_line *line)
{
	return is_complex(line) ? "complex numbers have no statistics"
				: strerror(-line->result);
}

static void put_line(FILE *out, struct tree *tree, const struct table_line *line)
{
	struct node param = has_state(line) ? tree_parent(tree, line->node) : line->node;
	const struct stats *s = &line->values;
	char path[TREE_PATH_MAX];
	int skip = tree_path(tree, tree_parent(tree, param), path, sizeof(path)) + 1;

	tree_path(tree, param, path, sizeof(path));
	/* the parameter's name alone is enough where there is one params/ */
	one_line_put(out, strncmp(path, "params/", 7) ? path : path + skip);
	putc('\t', out);
	one_line_put(out, line->state.key);
	if (line->result) {
		fprintf(out, "\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t%s\n",
			why_not(line));
		return;
	}
	fprintf(out, "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64, s->nan, s->inf,
		s->zero, s->count);
	put_number(out, stats_norm(s));
	put_number(out, stats_mean(s));
	put_number(out, stats_deviation(s));
	put_number(out, s->min);
	put_number(out, s->max);
	put_number(out, stats_absmax(s));
	put_index(out, s->first_nan);
	put_index(out, s->first_inf);
	stat_text_put_place(out, tree, line->node, s->nan ? s->first_nan : s->first_inf);
	fputs("\t-\n", out);
}

static void reply_locked(struct stats_table *t, fuse_req_t req, size_t size, uint64_t offset)
{
	if (t->error && offset >= t->length) {
		fuse_reply_err(req, -t->error);
		return;
	}
	offset = u64_min(offset, t->length);
	fuse_reply_buf(req, t->text + offset, u64_min(size, t->length - offset));
}

/* Takes a read out of the list whose lines have come; NULL: there is no such read. */
static struct waiting_read *take_waiting(struct stats_table *t)
{
	struct waiting_read *w;

	LOCKED(&t->lock);
	LIST_FOREACH (w, &t->waiting, entry)
		if (t->over || t->canceled || w->request->offset < t->length)
			break;
	if (w) {
		LIST_REMOVE(w, entry);
		w->request->waiting = NULL;
	}
	return w;
}

static void answer_waiting(struct stats_table *t)
{
	struct waiting_read *w;

	while ((w = take_waiting(t))) {
		struct request *r = w->request;

		request_done(r);
		pthread_mutex_lock(&t->lock);
		reply_locked(t, r->req, r->size, r->offset);
		pthread_mutex_unlock(&t->lock);
		free(w);
		request_put(r);
	}
}

/* Ends the table early. */
static void fail(struct stats_table *t, int error)
{
	LOCKED(&t->lock);
	t->error = error;
	t->canceled = true;
}

/* Appends text.  Without memory the table ends early. */
static void append(struct stats_table *t, const char *text, size_t length)
{
	char *all;

	pthread_mutex_lock(&t->lock);
	all = realloc(t->text, t->length + length);
	if (all) {
		memcpy(all + t->length, text, length);
		t->text = all;
		t->length += length;
	}
	pthread_mutex_unlock(&t->lock);
	if (!all)
		fail(t, -ENOMEM);
	answer_waiting(t);
}

/* Returns true if the line lacks values that the next table may have.  Invalid gradients and
 * complex numbers are no failure: they stay so until something in the table changes.
 */
static bool is_lost(const struct table_line *line)
{
	return line->result && !is_complex(line) &&
	       !(is_grad(line) && (line->result == -ENODATA || line->result == -EAGAIN));
}

static void print(struct batch *b)
{
	char *text = NULL;
	size_t length;
	FILE *out = open_memstream(&text, &length);
	bool is_whole;

	for (uint32_t i = 0; i < b->n && out; i++) {
		put_line(out, &b->of->fs->tree, &b->lines[i]);
		b->of->has_lost |= is_lost(&b->lines[i]);
	}
	is_whole = out && !ferror(out);
	if (out && fclose(out))
		is_whole = false;
	if (is_whole)
		append(b->of, text, length);
	else
		fail(b->of, -ENOMEM);
	free(text);
}

/* ---- the thread ---- */

/* Begins the next batch.  False: there are no more states. */
static bool begin_batch(struct batch *b)
{
	struct stats_table *t = b->of;
	uint64_t bytes = 0;

	for (b->n = 0; b->n < BATCH_STATES && (bytes < BATCH_BYTES || b->n < MIN_STATES) &&
		       next_line(t, &b->lines[b->n]);)
		bytes += b->lines[b->n++].state.bytes;
	if (b->n)
		ask_for_present(b);
	return b->n;
}

static void end_batch(struct batch *b)
{
	wait_for_present(b);
	for (int grads = 0; grads < 2 && !is_canceled(b->of); grads++)
		ask_by_view(b, grads);
	if (!is_canceled(b->of))
		read_rest(b);
	if (!is_canceled(b->of))
		print(b);
}

static int alloc_batches(struct stats_table *t)
{
	for (struct batch *b = t->batches; b < t->batches + BATCHES; b++) {
		b->of = t;
		b->lines = calloc(BATCH_STATES, sizeof(*b->lines));
		b->sums = calloc(BATCH_STATES, sizeof(*b->sums));
		if (!b->lines || !b->sums)
			return -ENOMEM;
	}
	return 0;
}

static void make_lines(struct stats_table *t)
{
	static const char head[] =
		"name\tstate\tnan\tinf\tzero\tcount\tnorm\tmean\tstd\tmin\tmax\tabsmax"
		"\tfirst_nan\tfirst_inf\trank\tplace\toffset\terror\n";
	unsigned begun = 0, ended = 0;
	bool more = !alloc_batches(t);

	if (!more)
		fail(t, -ENOMEM);
	append(t, head, strlen(head));
	while (more || begun > ended) {
		more = more && !is_canceled(t);
		while (more && begun < ended + BATCHES) {
			more = begin_batch(&t->batches[begun % BATCHES]);
			begun += more;
		}
		if (begun > ended)
			end_batch(&t->batches[ended++ % BATCHES]);
	}
}

static void keep(struct stats_table *t, uint64_t changed_ns)
{
	struct stats_tables *all = t->fs->tables;
	char *text;

	if (!changed_ns || content_of(t->fs) != changed_ns || t->has_lost || is_canceled(t))
		return;
	text = malloc(t->length);
	if (!text)
		return;
	memcpy(text, t->text, t->length);
	pthread_mutex_lock(&all->lock);
	free(all->text);
	all->text = text;
	all->length = t->length;
	all->changed_ns = changed_ns;
	pthread_mutex_unlock(&all->lock);
}

static bool take_kept(struct stats_table *t, uint64_t changed_ns)
{
	struct stats_tables *all = t->fs->tables;
	bool kept;

	pthread_mutex_lock(&all->lock);
	kept = changed_ns && all->text && all->changed_ns == changed_ns;
	if (kept)
		append(t, all->text, all->length);
	pthread_mutex_unlock(&all->lock);
	return kept;
}

static void put(struct stats_table *t)
{
	unsigned left;

	pthread_mutex_lock(&t->lock);
	left = --t->refs;
	pthread_mutex_unlock(&t->lock);
	if (left)
		return;
	for (unsigned i = 0; i < BATCHES; i++) {
		free(t->batches[i].lines);
		free(t->batches[i].sums);
	}
	free(t->text);
	pthread_cond_destroy(&t->changed);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static void *make(void *arg)
{
	struct stats_table *t = arg;
	struct stats_tables *all = t->fs->tables;
	uint64_t changed_ns = content_of(t->fs);

	if (!take_kept(t, changed_ns)) {
		make_lines(t);
		keep(t, changed_ns);
	}
	pthread_mutex_lock(&t->lock);
	t->over = true;
	pthread_mutex_unlock(&t->lock);
	answer_waiting(t);
	put(t);
	pthread_mutex_lock(&all->lock);
	all->threads--;
	pthread_cond_broadcast(&all->changed);
	pthread_mutex_unlock(&all->lock);
	return NULL;
}

/* ---- the file ---- */

int stats_table_open(struct handle *h)
{
	struct stats_table *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->fs = h->fs;
	t->refs = 1;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->changed, NULL);
	h->table = t;
	return 0;
}

void stats_table_close(struct stats_table *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->canceled = true;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	put(t);
}

static int start(struct stats_table *t, pid_t reader)
{
	struct stats_tables *all = t->fs->tables;
	pthread_t thread;
	int rc;

	LOCKED(&all->lock);
	if (t->started)
		return 0;
	t->refs++; /* without t->lock: no other thread has the table yet */
	t->reader = reader;
	rc = thread_start(&thread, make, t);
	if (rc) {
		t->refs--;
		return rc;
	}
	pthread_detach(thread);
	t->started = true;
	all->threads++;
	return 0;
}

/* Lists a read, unless the lines at its offset have come. */
static bool wait_for_lines(struct stats_table *t, struct waiting_read *w)
{
	struct request *r = w->request;

	LOCKED(&t->lock);
	if (t->over || r->offset < t->length)
		return false;
	LIST_INSERT_HEAD(&t->waiting, w, entry);
	r->waiting = w;
	return true;
}

/* Replies if the lines at the offset have come.  The reference keeps the table: a reply lets
 * the reader go on, and close the file before this function has returned.
 */
static bool reply_at_once(struct stats_table *t, fuse_req_t req, size_t size, uint64_t offset)
{
	bool there;

	pthread_mutex_lock(&t->lock);
	there = t->over || offset < t->length;
	t->refs++;
	if (there)
		reply_locked(t, req, size, offset);
	pthread_mutex_unlock(&t->lock);
	put(t);
	return there;
}

/* Ends a read that waits, with EINTR. */
static void cancel(struct request *r)
{
	struct stats_table *t = r->handle->table;
	struct waiting_read *w;

	pthread_mutex_lock(&t->lock);
	w = r->waiting;
	if (w)
		LIST_REMOVE(w, entry);
	r->waiting = NULL;
	pthread_mutex_unlock(&t->lock);
	if (!w)
		return; /* answer_waiting() has taken the read out, and replies */
	free(w);
	request_done(r);
	fuse_reply_err(r->req, EINTR);
	request_put(r);
}

int stats_table_read(struct handle *h, fuse_req_t req, size_t size, uint64_t offset, int flags)
{
	struct waiting_read *w;
	struct request *r;
	int rc = start(h->table, fuse_req_ctx(req)->pid);

	if (rc)
		return rc;
	if (reply_at_once(h->table, req, size, offset))
		return 0;
	if (flags & O_NONBLOCK)
		return -EAGAIN;
	w = calloc(1, sizeof(*w));
	r = w ? request_get(&h->fs->requests, req, h) : NULL;
	if (!r) {
		free(w);
		return -ENOMEM;
	}
	handle_ref(h);
	r->kind = REQUEST_OTHER;
	r->cancel = cancel;
	r->size = size;
	r->offset = offset;
	w->request = r;
	if (!request_arm(r)) {
		free(w);
		request_drop(r);
		return -EINTR;
	}
	if (!wait_for_lines(h->table, w)) {
		free(w);
		request_done(r);
		pthread_mutex_lock(&h->table->lock);
		reply_locked(h->table, req, size, offset);
		pthread_mutex_unlock(&h->table->lock);
		request_put(r);
	}
	request_submitted(r);
	return 0;
}
