/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/rank/arena-memory.h"

#include <errno.h>
#include <inttypes.h>

struct arena_memory {
	pthread_mutex_t lock; /* of the following; the trainer's thread reads without it */
	struct arena arena;
	struct arena_copy copy; /* being made */
	uint64_t moved;
	struct registry *registry;
	uint8_t *base;
	void *bounce; /* REGISTRY_ARENA_CHUNK bytes; NULL: the arena is in the host's memory */
	arena_moved told;
	void *arg;
};

static uint64_t number_of(struct arena_lp lp)
{
	return (uint64_t)lp.param * 2 + lp.is_shard;
}

static struct arena_lp lp_of(uint64_t number)
{
	return (struct arena_lp){ (uint32_t)(number / 2), number % 2 };
}

/* ---- opening ---- */

/* Publishes the figures on the control page. */
static void show(const struct arena_memory *m)
{
	struct control_page *c = m->registry->control;
	const struct arena *a = &m->arena;

	control_page_put(&c->arena_used, a->used);
	control_page_put(&c->arena_used_max, arena_max_allocated(a));
	control_page_put(&c->arena_largest, arena_largest_contiguous(a));
	control_page_put(&c->arena_moved, m->moved);
	control_page_put(&c->arena_bytes, a->size);
}

/* Adds the row of the arena. */
static int add_row(struct arena_memory *m, struct registry *r, uint64_t size, void **base)
{
	int row, rc;
	enum frag_dtype dtype;

	if (!*base)
		return registry_alloc(r, STATE_ARENA, 0, 0, "", FRAG_U8, size, base);
	rc = registry_keep(r, STATE_ARENA, 0, 0, "", FRAG_U8, size, *base);
	if (rc)
		return rc;
	row = registry_find(r, STATE_ARENA, 0, 0, "", &dtype);
	if (registry_tier(r, (uint32_t)row) != STATE_DEVICE)
		return 0;
	m->bounce = malloc(REGISTRY_ARENA_CHUNK);
	if (m->bounce)
		return 0;
	registry_drop(r, STATE_ARENA, 0, 0, "");
	return -ENOMEM;
}

int arena_memory_open(struct arena_memory **out, struct registry *r, uint64_t bytes, void *base,
		      arena_moved told, void *arg)
{
	uint64_t size = u64_div_ceil(bytes, ARENA_MEMORY_ALIGN) * ARENA_MEMORY_ALIGN;
	struct arena_memory *m = calloc(1, sizeof(*m));
	int rc = m ? 0 : -ENOMEM;

	if (!rc && base && (size != bytes || (uintptr_t)base % ARENA_MEMORY_ALIGN))
		rc = -EINVAL;

	if (!rc)
		rc = arena_init(&m->arena, &(struct arena_options){
						   .size = size, .align = ARENA_MEMORY_ALIGN });
	if (!rc)
		rc = add_row(m, r, size, &base);
	if (rc) {
		if (m)
			arena_fini(&m->arena);
		free(m);
		return rc;
	}
	pthread_mutex_init(&m->lock, NULL);
	m->registry = r;
	m->base = base;
	m->told = told;
	m->arg = arg;
	show(m);
	*out = m;
	return 0;
}

void arena_memory_close(struct arena_memory *m)
{
	if (!m)
		return;
	control_page_put(&m->registry->control->arena_bytes, 0);
	registry_drop(m->registry, STATE_ARENA, 0, 0, "");
	arena_fini(&m->arena);
	pthread_mutex_destroy(&m->lock);
	free(m->bounce);
	free(m);
}

/* ---- blocks ---- */

int arena_memory_alloc(struct arena_memory *m, uint64_t bytes, uint64_t *block)
{
	int rc;

	assert(thread_may_be_trainer());
	LOCKED(&m->lock);
	rc = arena_alloc(&m->arena, bytes, block);
	if (rc == -EAGAIN && arena_plan_yield(&m->arena, bytes)) /* a compaction can wait */
		rc = arena_alloc(&m->arena, bytes, block);
	show(m);
	return rc;
}

int arena_memory_can_go(const struct arena_memory *m, uint64_t block)
{
	uint64_t size;
	int rc = arena_size(&m->arena, block, &size);

	if (rc)
		return rc;
	return m->arena.blocks[(uint32_t)block].pins ? -EBUSY : 0;
}

int arena_memory_release(struct arena_memory *m, uint64_t block)
{
	int rc;

	assert(thread_may_be_trainer());
	LOCKED(&m->lock);
	rc = arena_release(&m->arena, block);
	show(m);
	return rc;
}

int arena_memory_pin(struct arena_memory *m, uint64_t block)
{
	LOCKED(&m->lock);
	return arena_pin(&m->arena, block);
}

int arena_memory_unpin(struct arena_memory *m, uint64_t block)
{
	LOCKED(&m->lock);
	return arena_unpin(&m->arena, block);
}

int arena_memory_at(const struct arena_memory *m, uint64_t block, uint64_t offset,
		    void **memory, uint64_t *bytes)
{
	uint64_t start, run, size;
	int rc = arena_find(&m->arena, block, 0, &start, &run);

	if (!rc)
		rc = arena_size(&m->arena, block, &size);
	if (!rc && run != size)
		rc = -EAGAIN;
	if (!rc && offset > size)
		rc = -EINVAL;
	if (rc)
		return rc;
	*memory = m->base + start + offset;
	*bytes = size - offset;
	return 0;
}

/* ---- parameters ---- */

static int assign(struct arena_memory *m, struct arena_lp lp, uint64_t bytes, uint64_t block,
		  uint64_t offset)
{
	LOCKED(&m->lock);
	return arena_assign(&m->arena, number_of(lp), block, offset, bytes);
}

static int unassign(struct arena_memory *m, struct arena_lp lp)
{
	LOCKED(&m->lock);
	return arena_unassign(&m->arena, number_of(lp));
}

int arena_memory_assign(struct arena_memory *m, struct arena_lp lp, enum frag_dtype dtype,
			uint64_t numel, uint64_t block, uint64_t offset)
{
	uint64_t element = frag_dtype_size(dtype), bytes, run;
	void *memory;
	int rc = arena_memory_at(m, block, 0, &memory, &run);

	assert(thread_may_be_trainer());
	if (rc)
		return rc;
	if (offset % element || !u64_mul(numel, element, &bytes))
		return -EINVAL;
	rc = assign(m, lp, bytes, block, offset);
	if (rc)
		return rc;
	rc = registry_assign(m->registry, arena_memory_kind(lp), lp.param, dtype, numel,
			     (uint8_t *)memory + offset);
	if (rc)
		unassign(m, lp);
	return rc;
}

int arena_memory_unassign(struct arena_memory *m, struct arena_lp lp)
{
	int rc = unassign(m, lp);

	assert(thread_may_be_trainer());
	if (!rc)
		registry_drop(m->registry, arena_memory_kind(lp), lp.param, 0, "");
	return rc;
}

int arena_memory_find(const struct arena_memory *m, struct arena_lp lp, uint64_t *block,
		      uint64_t *offset)
{
	uint64_t size;

	return arena_param(&m->arena, number_of(lp), block, offset, &size);
}

bool arena_memory_next(const struct arena_memory *m, uint64_t block, uint32_t *cursor,
		       struct arena_lp *lp)
{
	uint64_t number;

	if (!arena_param_of(&m->arena, block, cursor, &number))
		return false;
	*lp = lp_of(number);
	return true;
}

bool arena_memory_any(const struct arena_memory *m, uint32_t *cursor, struct arena_lp *lp)
{
	struct arena_part part;

	for (uint32_t next = *cursor; arena_next_part(&m->arena, &next, &part);
	     *cursor = next) {
		uint32_t first = 0;

		if (part.block && arena_memory_next(m, part.block, &first, lp))
			return true;
	}
	return false;
}

/* ---- compaction ---- */

/* Tells the registry where lp lies: one segment, or two while its block is half moved. */
static void point(struct arena_memory *m, struct arena_lp lp)
{
	uint64_t block, offset, size, at, run;
	struct iovec parts[2];
	uint32_t n = 0;

	arena_param(&m->arena, number_of(lp), &block, &offset, &size);
	for (uint64_t done = 0; done < size; done += run) {
		arena_find(&m->arena, block, offset + done, &at, &run);
		run = u64_min(run, size - done);
		parts[n++] = (struct iovec){ m->base + at, run };
	}
	registry_point(m->registry, arena_memory_kind(lp), lp.param, parts, n);
}

static uint64_t moving_block(const struct arena *a)
{
	return a->plan.moves[a->plan.done].block;
}

static void repoint(void *arg)
{
	struct arena_memory *m = arg;
	uint64_t block = moving_block(&m->arena);
	struct arena_lp lp;
	uint32_t cursor = 0;

	arena_copied(&m->arena);
	while (arena_memory_next(m, block, &cursor, &lp))
		point(m, lp);
}

static void tell_moved(struct arena_memory *m, uint64_t block)
{
	struct arena_lp lp;
	uint32_t cursor = 0;

	while (m->told && arena_memory_next(m, block, &cursor, &lp)) {
		uint64_t of, offset, run;
		void *memory;

		if (!arena_memory_find(m, lp, &of, &offset) &&
		    !arena_memory_at(m, block, offset, &memory, &run))
			m->told(m->arg, lp, memory);
	}
}

/* Unassigns the parameters of a block whose content is lost. */
static void lose(struct arena_memory *m, uint64_t block)
{
	struct arena_lp lp;
	uint32_t n = 0;

	for (uint32_t first = 0; arena_memory_next(m, block, &first, &lp); first = 0) {
		arena_memory_unassign(m, lp);
		n++;
	}
	log_error("arena: the device failed while it moved a block; parameters that have lost "
		  "their values on this rank: %" PRIu32,
		  n);
}

/* Makes one copy of the plan, without the lock, as the device may take long: this thread alone
 * changes the arena.  After an error the same copy is the plan's next one.  Readers wait until
 * lost parameters are unassigned.
 */
static int move_on_device(struct arena_memory *m, const struct arena_copy *c)
{
	int rc;

	pthread_mutex_unlock(&m->lock);
	rc = registry_move_begin(m->registry);
	if (!rc)
		rc = registry_move_copy(m->registry, m->base + c->to, m->base + c->from,
					c->size, m->bounce);
	if (rc == -ENODATA)
		lose(m, moving_block(&m->arena));
	pthread_mutex_lock(&m->lock);
	registry_move_end(m->registry, rc ? NULL : repoint, m);
	return rc;
}

/* Makes the next copy of the plan.  Results of arena_next_copy, and errors of
 * registry_move_begin and registry_move_copy.
 */
static int move_some(struct arena_memory *m, uint64_t most)
{
	struct arena_copy *c = &m->copy;
	uint64_t block = 0;
	bool whole;
	int rc;

	pthread_mutex_lock(&m->lock);
	rc = arena_next_copy(&m->arena, most, c);
	if (rc == 1) {
		block = moving_block(&m->arena);
		if (m->bounce)
			rc = move_on_device(m, c);
		else
			registry_move(m->registry, m->base + c->to, m->base + c->from, c->size,
				      repoint, m);
		rc = rc < 0 ? rc : 1;
		m->moved += rc < 0 ? 0 : c->size;
	}
	show(m);
	whole = !m->arena.plan.moving;
	pthread_mutex_unlock(&m->lock);
	if (rc == 1 && whole)
		tell_moved(m, block);
	return rc;
}

/* -EALREADY: there is nothing to do. */
static int plan(struct arena_memory *m, uint64_t want)
{
	struct arena *a = &m->arena;
	int rc = 0;

	LOCKED(&m->lock);
	if (!a->plan.active)
		rc = want ? arena_plan(a, want) : arena_plan_pack(a);
	return !rc && !a->plan.active ? -EALREADY : rc;
}

static int64_t carry_out(struct arena_memory *m, uint64_t most)
{
	uint64_t left = u64_min(most, INT64_MAX) / ARENA_MEMORY_ALIGN * ARENA_MEMORY_ALIGN;
	uint64_t all = left;
	int rc = 1;

	while (left && (rc = move_some(m, u64_min(left, REGISTRY_ARENA_CHUNK))) == 1)
		left -= m->copy.size;
	if (rc == -ENODATA) /* lost content is reported, also if bytes were moved before */
		return -EIO;
	return rc < 0 && left == all ? rc : (int64_t)(all - left);
}

/* An older plan may have nothing left to move: then a new one is made. */
int64_t arena_memory_compact(struct arena_memory *m, uint64_t want, uint64_t most)
{
	bool older = m->arena.plan.active;
	int rc = plan(m, want);
	int64_t n = rc ? rc : carry_out(m, most);

	assert(thread_may_be_trainer());
	if (!n && older) {
		rc = plan(m, want);
		n = rc ? rc : carry_out(m, most);
	}
	return n == -EALREADY ? 0 : n;
}

/* ---- figures, and the map ---- */

/* Counts holes and the largest of them; memory that a compaction has reserved counts as free.
 */
static void count_runs(const struct arena *a, struct arena_figures *f)
{
	struct arena_part part;
	uint32_t cursor = 0;
	uint64_t run = 0;

	while (arena_next_part(a, &cursor, &part)) {
		f->holes += part.block ? 0 : !run;
		run = part.block ? 0 : run + part.size;
		f->largest = u64_max(f->largest, run);
	}
}

static struct arena_figures figures(const struct arena_memory *m)
{
	const struct arena *a = &m->arena;
	struct arena_figures f = { .size = a->size,
				   .used = a->used,
				   .used_max = arena_max_allocated(a),
				   .free = arena_total_free(a),
				   .blocks = a->nblocks,
				   .moved = m->moved };

	count_runs(a, &f);
	return f;
}

void arena_memory_figures(struct arena_memory *m, struct arena_figures *out)
{
	LOCKED(&m->lock);
	*out = figures(m);
}

struct params_namer {
	void (*name)(void *arg, FILE *out, uint32_t param);
	void *arg;
	FILE *out;
};

static void tell_figures(const struct arena_figures *f, FILE *out)
{
	fprintf(out,
		"bytes %" PRIu64 " used %" PRIu64 " used_max %" PRIu64 " free %" PRIu64
		" largest %" PRIu64 " blocks %" PRIu64 " holes %" PRIu64 " moved %" PRIu64 "\n",
		f->size, f->used, f->used_max, f->free, f->largest, f->blocks, f->holes,
		f->moved);
}

static const char *word_for(const struct arena_memory *m, const struct arena_part *part)
{
	const struct arena *a = &m->arena;

	if (a->plan.moving && moving_block(a) == part->block)
		return "moving";
	return part->pins ? "pinned" : "used";
}

static void tell_block(struct arena_memory *m, const struct arena_part *part,
		       const struct params_namer *t)
{
	struct arena_lp lp;
	uint32_t cursor = 0;

	fprintf(t->out, "%" PRIu64 "\t%" PRIu64 "\t%s", part->start, part->size,
		word_for(m, part));
	while (ftell(t->out) < ARENA_MEMORY_TEXT &&
	       arena_memory_next(m, part->block, &cursor, &lp)) {
		putc('\t', t->out);
		t->name(t->arg, t->out, lp.param);
		fputs(lp.is_shard ? "/shard" : "", t->out);
	}
	putc('\n', t->out);
}

void arena_memory_tell(struct arena_memory *m,
		       void (*name)(void *arg, FILE *out, uint32_t param), void *arg, FILE *out)
{
	struct params_namer t = { name, arg, out };
	struct arena_figures f;
	struct arena_part part;
	uint32_t cursor = 0;
	uint64_t told = 0;

	pthread_mutex_lock(&m->lock);
	f = figures(m);
	tell_figures(&f, out);
	while (ftell(out) < ARENA_MEMORY_TEXT && arena_next_part(&m->arena, &cursor, &part)) {
		if (part.block)
			tell_block(m, &part, &t);
		told += part.block != 0;
	}
	pthread_mutex_unlock(&m->lock);
	if (told < f.blocks)
		fprintf(out, "and %" PRIu64 " more\n", f.blocks - told);
}
