/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/base/thread.h"
#include "engine/checkpoint/edit/file-lock.h"
#include "engine/checkpoint/edit/overlay-map.h"
#include "engine/checkpoint/fetch.h"
#include "engine/checkpoint/table/box.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/uio.h>

enum {
	WINDOW = 32,   /* parts of one request that are under way at once */
	FEW = 8,       /* parts, or sections, that need no memory of their own */
	MANY = 2048,   /* parts, for which a spare fetch keeps memory */
	POOL_MAX = 16, /* fetches of at most MANY parts that are kept for later reads */
	MARGIN = 64,   /* bytes of elements that a request covers in part */
	ROOM = ENGINE_READ_MAX + MARGIN,
};

/* The part of a request that is of one state.  It is copied from the checkpoint_file,
 * which may be closed after a cancel.
 */
struct fetch_section {
	const struct table_state *state;
	bool of_rank;
	uint32_t rank;
	uint64_t first, count; /* elements of what the state's file shows */
	uint64_t size;         /* bytes of a stored element */
	uint8_t *answer;       /* the elements as shown, in fetch.answer */
	/* the elements as stored: answer, or in fetch.raw where the dtypes differ */
	uint8_t *stored;
};

struct fetch_part { /* adjacent bytes of a file, or of the overlay's log */
	struct disk_io disk;
	struct fetch_part *next; /* the next of a list to submit */
	struct fetch *fetch;
	uint32_t section;
	uint32_t file;
	int fd;
	uint32_t done;
	uint32_t size; /* bytes */
	uint64_t base; /* in fd */
	uint8_t *to;
	/* the run's box, with its first part; NULL: an interval, or a later part */
	const uint64_t *box;
	uint64_t first, count; /* elements of the whole run */
};

struct fetch {
	LIST_ENTRY(fetch) entry; /* of underway or spare */
	bool listed;             /* in underway */
	struct checkpoint *checkpoint;
	struct rwgate_pass pass;
	bool inside;              /* inside the gate: rwgate_leave() is due */
	struct engine_read *read; /* NULL: cancelled */
	uint64_t skip, bytes;     /* the request's bytes in answer */
	struct fetch_part few[FEW];
	struct fetch_part *parts; /* few, or an array of `room` parts */
	uint32_t nparts, room;
	struct fetch_section few_sections[FEW];
	struct fetch_section *sections; /* few_sections, or more */
	uint32_t nsections;
	struct fetch_section *planned; /* the section that is planned */
	uint64_t position;             /* elements of the rank before the planned run */
	uint8_t *answer;               /* [ROOM], elements as shown */
	uint8_t *raw; /* [ROOM], elements as stored, where dtypes differ; NULL: never needed */
	/* [ROOM], elements of boxes, one box after the other; NULL: never needed */
	uint8_t *boxes;
	uint64_t rawed;       /* bytes used of raw */
	uint64_t boxed;       /* bytes used of boxes */
	pthread_mutex_t lock; /* of all below */
	uint32_t next_part;
	uint32_t underway;
	int status;
	bool answered;
};

/* ---- lending ---- */

static void fetch_free(struct fetch *f)
{
	if (!f)
		return;
	if (f->parts != f->few)
		free(f->parts);
	if (f->sections != f->few_sections)
		free(f->sections);
	free(f->answer);
	free(f->raw);
	free(f->boxes);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static int need(uint8_t **buffer)
{
	if (!*buffer)
		*buffer = aligned_alloc(64, (ROOM + 63) / 64 * 64);
	return *buffer ? 0 : -ENOMEM;
}

static struct fetch *fetch_new(struct checkpoint *c)
{
	struct fetch *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	pthread_mutex_init(&f->lock, NULL);
	f->checkpoint = c;
	f->parts = f->few;
	f->room = FEW;
	f->sections = f->few_sections;
	if (need(&f->answer)) {
		fetch_free(f);
		return NULL;
	}
	return f;
}

static struct fetch *lend(struct checkpoint *c)
{
	struct fetch *f;

	pthread_mutex_lock(&c->lock);
	f = LIST_FIRST(&c->spare);
	if (f) {
		LIST_REMOVE(f, entry);
		c->nspare--;
	}
	pthread_mutex_unlock(&c->lock);
	return f ? f : fetch_new(c);
}

static void give_back(struct fetch *f)
{
	struct checkpoint *c = f->checkpoint;

	if (f->inside)
		rwgate_leave(&c->gate);
	f->inside = false;
	if (f->sections != f->few_sections)
		free(f->sections);
	f->sections = f->few_sections;
	pthread_mutex_lock(&c->lock);
	if (f->listed)
		LIST_REMOVE(f, entry);
	f->listed = false;
	if (LIST_EMPTY(&c->underway))
		pthread_cond_broadcast(&c->idle);
	if (c->nspare < POOL_MAX && f->room <= MANY) {
		LIST_INSERT_HEAD(&c->spare, f, entry);
		c->nspare++;
		f = NULL;
	}
	pthread_mutex_unlock(&c->lock);
	fetch_free(f);
}

int fetch_drain(struct checkpoint *c, unsigned seconds)
{
	struct timespec until = thread_in_ms(1000ULL * seconds);
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	while (!LIST_EMPTY(&c->underway) && !rc)
		rc = pthread_cond_timedwait(&c->idle, &c->lock, &until);
	pthread_mutex_unlock(&c->lock);
	return -rc;
}

void fetch_free_all(struct checkpoint *c)
{
	struct fetch *f, *next;

	LIST_FOREACH_SAFE (f, &c->spare, entry, next)
		fetch_free(f);
}

/* ---- planning ---- */

static int more_parts(struct fetch *f)
{
	uint32_t room = f->room * 4;
	struct fetch_part *parts =
		reallocarray(f->parts == f->few ? NULL : f->parts, room, sizeof(*parts));

	if (!parts)
		return -ENOMEM;
	if (f->parts == f->few)
		memcpy(parts, f->few, sizeof(f->few));
	f->parts = parts;
	f->room = room;
	return 0;
}

/* Adds one part for each run of bytes that the overlay's map leaves whole. */
static int add_parts(struct fetch *f, struct fetch_part p, uint64_t size)
{
	const struct checkpoint *c = f->checkpoint;

	for (uint64_t at = p.base; size; p.box = NULL) {
		struct overlay_map_run run =
			overlay_map_find(c->overlay, c->table, p.file, at, size);

		if (f->nparts == f->room && more_parts(f))
			return -ENOMEM;
		p.fd = run.fd;
		p.base = run.at;
		p.size = (uint32_t)run.size;
		f->parts[f->nparts++] = p;
		p.to += run.size;
		at += run.size;
		size -= run.size;
	}
	return 0;
}

/* Adds the parts of a run whose first element is element `at` of the section. */
static int add_run(struct fetch *f, const struct table_run *run, uint64_t at)
{
	const struct fetch_section *s = f->planned;
	uint64_t size = run->count * s->size;
	struct fetch_part p = { .fetch = f,
				.section = (uint32_t)(s - f->sections),
				.file = run->file,
				.base = run->base,
				.to = s->stored + at * s->size,
				.box = run->box,
				.first = run->first,
				.count = run->count };

	if (p.box) {
		if (need(&f->boxes))
			return -ENOMEM;
		p.to = f->boxes + f->boxed;
		f->boxed += size;
	}
	return add_parts(f, p, size);
}

static int see_run(void *arg, const struct table_run *run)
{
	struct fetch *f = arg;

	return add_run(f, run, run->first - f->planned->first);
}

/* Plans a run of the rank's pieces, which its file shows one after the other, without holes. */
static int see_held(void *arg, const struct table_run *whole)
{
	struct fetch *f = arg;
	const struct fetch_section *s = f->planned;
	struct table_run run = *whole;
	uint64_t begin = f->position, skip = s->first > begin ? s->first - begin : 0;

	f->position += run.count;
	if (skip >= run.count)
		return 0;
	run.base += skip * s->size;
	run.count = u64_min(run.count - skip, s->first + s->count - (begin + skip));
	run.box = NULL;
	if (run.count && add_run(f, &run, begin + skip - s->first))
		return -ENOMEM;
	return f->position >= s->first + s->count; /* all planned */
}

static int plan_section(struct fetch *f, struct fetch_section *s)
{
	const struct table *t = f->checkpoint->table;
	int rc;

	s->size = frag_dtype_size(s->state->stored);
	s->stored = s->answer;
	if (s->state->shown != s->state->stored) {
		if (need(&f->raw))
			return -ENOMEM;
		s->stored = f->raw + f->rawed;
		f->rawed += s->count * s->size;
	}
	f->planned = s;
	f->position = 0;
	if (!s->of_rank)
		return table_walk(t, s->state, s->first, s->count, see_run, f);
	rc = table_walk_rank(t, s->state, s->rank, see_held, f);
	return rc < 0 ? rc : 0;
}

static int plan(struct fetch *f)
{
	int rc = 0;

	f->rawed = f->boxed = 0;
	for (uint32_t i = 0; i < f->nsections && !rc; i++)
		rc = plan_section(f, &f->sections[i]);
	return rc;
}

/* ---- the end ---- */

/* Checks that the files are those that were mounted: after the reading, so that a file that is
 * replaced meanwhile is found.
 */
static int check_files(const struct fetch *f)
{
	struct table *t = f->checkpoint->table;
	int rc = 0;

	for (uint32_t i = 0; i < f->nparts && !rc; i++)
		if (!i || f->parts[i].file != f->parts[i - 1].file)
			rc = file_lock_check(&t->files[f->parts[i].file]);
	return rc;
}

static void scatter_box(const struct fetch *f, const struct fetch_part *p)
{
	const struct table *t = f->checkpoint->table;
	const struct fetch_section *s = &f->sections[p->section];
	const struct table_tensor *x = &t->tensors[s->state->tensor];
	struct box b = { x->ndim, table_shape(t, x), p->box, p->box + x->ndim };
	uint64_t run;

	for (uint64_t i = 0; i < p->count; i += run) {
		uint64_t element = box_element(&b, p->first + i, &run);

		run = u64_min(run, p->count - i);
		memcpy(s->stored + (element - s->first) * s->size, p->to + i * s->size,
		       run * s->size);
	}
}

/* Converts the section.  Behind another state's elements it may lie at any address: then each
 * element is converted by way of an aligned copy.
 */
static int convert(const struct fetch_section *s)
{
	enum frag_dtype to = s->state->shown, from = s->state->stored;
	size_t shown = frag_dtype_size(to);
	uint64_t wide[2], narrow[2];
	int rc = 0;

	if ((uintptr_t)s->answer % shown == 0 && (uintptr_t)s->stored % s->size == 0)
		return dtype_convert(to, s->answer, from, s->stored, s->count);
	for (uint64_t i = 0; i < s->count && !rc; i++) {
		memcpy(narrow, s->stored + i * s->size, s->size);
		rc = dtype_convert(to, wide, from, narrow, 1);
		memcpy(s->answer + i * shown, wide, shown);
	}
	return rc;
}

static int arrange(struct fetch *f)
{
	int rc = 0;

	for (uint32_t i = 0; i < f->nparts; i++)
		if (f->parts[i].box)
			scatter_box(f, &f->parts[i]);
	for (uint32_t i = 0; i < f->nsections && !rc; i++)
		if (f->sections[i].stored != f->sections[i].answer)
			rc = convert(&f->sections[i]);
	return rc;
}

static void count_read(struct checkpoint *c, int64_t result)
{
	atomic_fetch_add_explicit(&c->reads, 1, memory_order_relaxed);
	if (result < 0)
		atomic_fetch_add_explicit(&c->read_errors, 1, memory_order_relaxed);
	else
		atomic_fetch_add_explicit(&c->read_bytes, (uint64_t)result,
					  memory_order_relaxed);
}

static void answer(struct fetch *f, int64_t result)
{
	struct engine_read *read = f->read;

	count_read(f->checkpoint, result);
	read->done(read, result < 0 ? NULL : f->answer + f->skip, result);
}

/* Returns the result of a fetch.  A file that was replaced explains all other errors, so its
 * errno comes first.
 */
static int64_t conclude(struct fetch *f, int status)
{
	int changed = check_files(f);

	if (changed)
		return changed;
	if (!status)
		status = arrange(f);
	return status ? status : (int64_t)f->bytes;
}

/* ---- by the disk ---- */

/* Takes the next parts, up to WINDOW under way.  The lock is held; the caller submits the list
 * without the lock, since the disk may answer at once.
 */
static struct fetch_part *next_parts(struct fetch *f)
{
	struct fetch_part *list = NULL;

	while (f->underway < WINDOW && f->next_part < f->nparts && !f->status && !f->answered) {
		struct fetch_part *p = &f->parts[f->next_part++];

		if (p->done == p->size)
			continue;
		p->next = list;
		list = p;
		f->underway++;
	}
	return list;
}

static void part_done(struct disk_io *disk, int result);

static void submit(struct fetch_part *p)
{
	struct checkpoint *c = p->fetch->checkpoint;

	p->disk = (struct disk_io){ .what = DISK_READ,
				    .slab = DISK_NO_SLAB,
				    .fd = p->fd,
				    .size = p->size - p->done,
				    .offset = p->base + p->done,
				    .memory = p->to + p->done,
				    .done = part_done };
	c->disk_ops->submit(c->disk, &p->disk);
}

static void submit_list(struct fetch_part *list)
{
	while (list) {
		struct fetch_part *p = list;

		list = p->next; /* p may end before submit returns */
		submit(p);
	}
}

/* Answers a fetch of which no part is under way, unless a cancel has answered it. */
static void finish(struct fetch *f)
{
	bool answered;
	int64_t result = conclude(f, f->status);

	pthread_mutex_lock(&f->lock);
	answered = f->answered;
	f->answered = true;
	pthread_mutex_unlock(&f->lock);
	if (!answered)
		answer(f, result);
	give_back(f);
}

static void part_done(struct disk_io *disk, int result)
{
	struct fetch_part *p = container_of(disk, struct fetch_part, disk);
	struct fetch *f = p->fetch;
	struct fetch_part *list;
	bool last;

	if (result > 0)
		p->done += (uint32_t)result;
	if (result == -EINTR || result == -EAGAIN || (result > 0 && p->done < p->size)) {
		submit(p); /* the rest of the part */
		return;
	}
	pthread_mutex_lock(&f->lock);
	if (result <= 0 && !f->status)
		f->status = result ? result : -EIO; /* 0: the file ends here */
	f->underway--;
	list = next_parts(f);
	last = !f->underway;
	pthread_mutex_unlock(&f->lock);
	submit_list(list);
	if (last)
		finish(f);
}

static void submit_first(struct fetch *f)
{
	struct fetch_part *first;

	pthread_mutex_lock(&f->lock);
	first = next_parts(f);
	pthread_mutex_unlock(&f->lock);
	atomic_fetch_add_explicit(&f->checkpoint->from_disk, 1, memory_order_relaxed);
	submit_list(first);
}

/* Lists the fetch as under way; from here on it may be cancelled. */
static void begin(struct fetch *f)
{
	struct checkpoint *c = f->checkpoint;

	f->read->private = f;
	f->next_part = f->underway = 0;
	f->status = 0;
	f->answered = false;
	pthread_mutex_lock(&c->lock);
	LIST_INSERT_HEAD(&c->underway, f, entry);
	f->listed = true;
	pthread_mutex_unlock(&c->lock);
}

void fetch_cancel(struct engine *e, struct engine_read *read)
{
	struct checkpoint *c = opened_checkpoint(e);
	struct fetch *f;
	bool answered = true;

	pthread_mutex_lock(&c->lock);
	LIST_FOREACH (f, &c->underway, entry)
		if (f->read == read)
			break;
	if (f) {
		pthread_mutex_lock(&f->lock);
		answered = f->answered;
		f->answered = true;
		pthread_mutex_unlock(&f->lock);
	}
	if (!answered)
		f->read = NULL;
	pthread_mutex_unlock(&c->lock);
	if (answered)
		return;
	count_read(c, -ECANCELED);
	read->done(read, NULL, -ECANCELED);
}

/* ---- at once ---- */

/* Copies the parts from the page cache.  Returns false if some bytes are not in it. */
static bool read_cached(struct fetch *f)
{
	for (uint32_t i = 0; i < f->nparts; i++) {
		struct fetch_part *p = &f->parts[i];
		struct iovec to = { p->to, p->size };
		ssize_t n = preadv2(p->fd, &to, 1, (off_t)p->base, RWF_NOWAIT);

		p->done = n > 0 ? (uint32_t)n : 0;
		if (p->done < p->size)
			return false;
	}
	return true;
}

/* Adds a section, bytes [from, to) of one state.  *end: behind the answers of the sections
 * before it.
 */
static void add_section(struct fetch *f, const struct checkpoint_part *p, uint64_t from,
			uint64_t to, uint8_t **end)
{
	size_t shown = frag_dtype_size(p->state->shown);
	uint64_t first = from / shown;

	f->sections[f->nsections++] =
		(struct fetch_section){ .state = p->state,
					.of_rank = p->of_rank,
					.rank = p->rank,
					.first = first,
					.count = u64_div_ceil(to, shown) - first,
					.answer = *end };
	if (f->nsections == 1)
		f->skip = from % shown;
	*end += to - first * shown;
}

static int take_request(struct fetch *f, struct engine_read *read)
{
	const struct checkpoint_file *file = opened_file(read->file);
	uint64_t begin = read->offset, end = begin + read->size;
	uint32_t i = opened_part_at(file, begin);
	uint32_t n = opened_part_at(file, end - 1) - i + 1;
	uint8_t *answer = f->answer;

	f->read = read;
	f->bytes = read->size;
	f->nparts = 0;
	f->nsections = 0;
	if (n > FEW) {
		f->sections = calloc(n, sizeof(*f->sections));
		if (!f->sections) {
			f->sections = f->few_sections;
			return -ENOMEM;
		}
	}
	for (; n; n--, i++) {
		const struct checkpoint_part *p = &file->parts[i];

		if (p->bytes)
			add_section(f, p, begin > p->at ? begin - p->at : 0,
				    u64_min(end - p->at, p->bytes), &answer);
	}
	return 0;
}

/* ---- beside edits ---- */

/* Checks that the open file is not stale.  It is open as long as the read is not answered.
 * 1: the read was cancelled while it waited at the gate.
 * -ESTALE: an edit has changed the file's state.
 * -EIO: the checkpoint is broken.
 */
static int check_moment(struct fetch *f)
{
	int rc = 1;

	pthread_mutex_lock(&f->lock);
	if (!f->answered && f->checkpoint->broken)
		rc = -EIO;
	else if (!f->answered)
		rc = opened_file(f->read->file)->stale ? -ESTALE : 0;
	pthread_mutex_unlock(&f->lock);
	return rc;
}

/* Reads, inside the gate.  A read that is cancelled from here on is read all the same; finish()
 * does not answer it a second time.
 */
static void go(struct rwgate_pass *pass)
{
	struct fetch *f = container_of(pass, struct fetch, pass);
	int rc = check_moment(f);

	f->inside = true;
	if (!rc)
		rc = plan(f);
	if (rc > 0) {
		give_back(f);
	} else if (rc) {
		f->status = rc;
		finish(f);
	} else if (read_cached(f)) {
		atomic_fetch_add_explicit(&f->checkpoint->from_cache, 1, memory_order_relaxed);
		finish(f);
	} else {
		submit_first(f);
	}
}

/* ---- reading ---- */

static void read_state(struct checkpoint *c, struct engine_read *read)
{
	struct fetch *f = lend(c);
	int rc = f ? 0 : -ENOMEM;

	if (!rc)
		rc = take_request(f, read);
	if (!rc && c->editor) {
		begin(f);
		/* f is listed already: a read that waits at the gate can be cancelled */
		f->pass.go = go;
		rwgate_enter(&c->gate, &f->pass);
		return;
	}
	if (!rc)
		rc = plan(f);
	if (rc) {
		count_read(c, rc);
		read->done(read, NULL, rc);
		if (f)
			give_back(f);
	} else if (read_cached(f)) {
		atomic_fetch_add_explicit(&c->from_cache, 1, memory_order_relaxed);
		answer(f, conclude(f, 0));
		give_back(f);
	} else {
		begin(f);
		submit_first(f);
	}
}

void fetch_start(struct engine *e, struct engine_read *read)
{
	const struct checkpoint_file *file = opened_file(read->file);

	read->private = NULL;
	if (read->size > ENGINE_READ_MAX)
		read->size = ENGINE_READ_MAX;
	if (read->offset >= file->bytes || !read->size) {
		read->done(read, "", 0);
		return;
	}
	read->size = u64_min(read->size, file->bytes - read->offset);
	if (file->parts->is_hyper)
		read->done(read, (const uint8_t *)&file->parts->hyper + read->offset,
			   (int64_t)read->size);
	else
		read_state(opened_checkpoint(e), read);
}

void fetch_describe(struct checkpoint *c, FILE *out)
{
	const struct fetch *f;

	pthread_mutex_lock(&c->lock);
	LIST_FOREACH (f, &c->underway, entry)
		fprintf(out, "read %" PRIu64 " bytes\n", f->bytes);
	pthread_mutex_unlock(&c->lock);
}
