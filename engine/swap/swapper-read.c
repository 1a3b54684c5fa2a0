/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/swap/swapper-internal.h"

#include <errno.h>
#include <string.h>

/* ---- pins ---- */

static void link_pin(struct swapper *sw, struct swapper_pin *pin)
{
	TAILQ_INSERT_TAIL(&sw->pins, pin, in_pins);
	sw->figures.pins++;
}

static void unlink_pin(struct swapper *sw, struct swapper_pin *pin)
{
	TAILQ_REMOVE(&sw->pins, pin, in_pins);
	sw->figures.pins--;
}

static bool has_lost(const struct swapper_pin *pin)
{
	for (uint64_t i = 0; i < pin->n; i++)
		if (pin->state->slices[pin->first + i].lost)
			return true;
	return false;
}

/* Under the lock. */
static int pin_versions(struct swapper *sw, struct swapper_pin *pin)
{
	if (has_lost(pin))
		return -ESTALE;
	for (uint64_t i = 0; i < pin->n; i++) {
		pin->versions[i] = pin->state->slices[pin->first + i].current;
		swapper_version_ref(pin->versions[i]);
	}
	pin->state->refs++;
	link_pin(sw, pin);
	return 0;
}

static struct swapper_pin *pin_new(struct swapper_state *s, uint64_t offset, uint64_t size)
{
	uint64_t first = offset / s->slice_bytes;
	uint64_t n = u64_div_ceil(offset + size, s->slice_bytes) - first;
	struct swapper_pin *pin = calloc(1, sizeof(*pin) + n * sizeof(pin->versions[0]));

	if (!pin)
		return NULL;
	pin->state = s;
	pin->offset = offset;
	pin->size = size;
	pin->first = first;
	pin->n = n;
	return pin;
}

int swapper_pin(struct swapper *sw, struct swapper_state *s, uint64_t offset, uint64_t size,
		struct swapper_pin **out)
{
	struct swapper_pin *pin;
	uint64_t end;
	int rc;

	if (!size || !u64_add(offset, size, &end) || end > s->bytes)
		return -EINVAL;
	pin = pin_new(s, offset, size);
	if (!pin)
		return -ENOMEM;
	pthread_mutex_lock(&sw->lock);
	rc = pin_versions(sw, pin);
	pthread_mutex_unlock(&sw->lock);
	if (rc)
		free(pin);
	else
		*out = pin;
	return rc;
}

bool swapper_pins_same(const struct swapper_pin *a, const struct swapper_pin *b)
{
	return a->state == b->state && a->offset == b->offset && a->size == b->size &&
	       !memcmp(a->versions, b->versions, a->n * sizeof(struct swapper_version *));
}

void swapper_unpin(struct swapper *sw, struct swapper_pin *pin)
{
	pthread_mutex_lock(&sw->lock);
	unlink_pin(sw, pin);
	for (uint64_t i = 0; i < pin->n; i++)
		swapper_version_unref(sw, pin->versions[i]);
	swapper_state_unref(pin->state);
	pthread_cond_broadcast(&sw->changed);
	pthread_mutex_unlock(&sw->lock);
	free(pin);
}

static int pin_newest(struct swapper *sw, struct swapper_state *s, uint64_t offset,
		      uint64_t size, struct swapper_pin **out)
{
	struct swapper_pin *pin = pin_new(s, offset, size);

	if (!pin)
		return -ENOMEM;
	pthread_mutex_lock(&sw->lock);
	pin->versions[0] = swapper_newest(&s->slices[pin->first]);
	swapper_version_ref(pin->versions[0]);
	s->refs++;
	link_pin(sw, pin);
	pthread_mutex_unlock(&sw->lock);
	*out = pin;
	return 0;
}

static bool pin_has(const struct swapper_pin *pin, const struct swapper_state *s,
		    uint64_t offset, uint64_t size)
{
	uint64_t end;

	return s == pin->state && offset >= pin->offset && u64_add(offset, size, &end) &&
	       end <= pin->offset + pin->size;
}

static int pin_part(struct swapper *sw, const struct swapper_pin *whole, uint64_t offset,
		    uint64_t size, struct swapper_pin **out)
{
	struct swapper_pin *pin = pin_new(whole->state, offset, size);

	if (!pin)
		return -ENOMEM;
	pthread_mutex_lock(&sw->lock);
	for (uint64_t i = 0; i < pin->n; i++) {
		pin->versions[i] = whole->versions[pin->first - whole->first + i];
		swapper_version_ref(pin->versions[i]);
	}
	pin->state->refs++;
	link_pin(sw, pin);
	pthread_mutex_unlock(&sw->lock);
	*out = pin;
	return 0;
}

/* ---- reading: one slice after the other ---- */

static const struct swapper_pin *pin_of(const struct swapper_read *r)
{
	return r->pin ? r->pin : r->own;
}

static uint64_t slice_of(const struct swapper_read *r)
{
	return (r->offset + r->gone) / pin_of(r)->state->slice_bytes;
}

static struct swapper_version *version_of(const struct swapper_read *r)
{
	return pin_of(r)->versions[slice_of(r) - pin_of(r)->first];
}

static uint64_t offset_of(const struct swapper_read *r)
{
	return (r->offset + r->gone) % pin_of(r)->state->slice_bytes;
}

static uint8_t *memory_of(const struct swapper_read *r)
{
	return (uint8_t *)r->memory + r->gone;
}

static void end_swapper_read(struct swapper_read *r, int rc)
{
	struct swapper *sw = r->swapper;

	if (r->own)
		swapper_unpin(sw, r->own);
	r->done(r, rc);
}

static void finish_part(struct swapper_read *r)
{
	const struct swapper_version *v = version_of(r);

	if (v)
		swapper_version_patch(v, offset_of(r), r->part, memory_of(r));
	r->gone += r->part;
}

static void go_on(struct swapper_read *r);

static void on_read(struct swap_io *io, int rc)
{
	struct swapper_read *r = container_of(io, struct swapper_read, io);
	struct swapper *sw = r->swapper;

	pthread_mutex_lock(&sw->lock);
	r->submitted = false;
	if (rc)
		swapper_read_failed(r->block, io, rc, &r->failure);
	swapper_block_read_end(r->block, false);
	pthread_mutex_unlock(&sw->lock);
	if (rc) {
		end_swapper_read(r, rc);
		return;
	}
	finish_part(r);
	go_on(r);
}

/* FROM_NOTHING: zeros, or a patch has all bytes; FROM_NOWHERE: the version was evicted */
enum from { FROM_NOTHING, FROM_MEMORY, FROM_DISK, FROM_NOWHERE, CANCELED };

/* Under the lock. */
static void prepare(struct swapper_read *r)
{
	r->io = (struct swap_io){ .extent = r->block->extent,
				  .what = DISK_READ,
				  .slab = DISK_NO_SLAB,
				  .offset = offset_of(r),
				  .bytes = r->part,
				  .memory = memory_of(r),
				  .done = on_read };
	r->submitted = true;
}

/* Under the lock. */
static enum from choose(struct swapper_read *r)
{
	const struct swapper_version *v = version_of(r);

	if (r->canceled)
		return CANCELED;
	if (v && v->evicted)
		return FROM_NOWHERE;
	r->block = v ? v->block : NULL;
	if (!r->block || swapper_version_covers(v, offset_of(r), r->part))
		return FROM_NOTHING;
	if (swapper_block_read_begin(r->block))
		return FROM_MEMORY;
	prepare(r);
	return FROM_DISK;
}

static void from_memory(struct swapper_read *r)
{
	memcpy(memory_of(r), r->block->memory + offset_of(r), r->part);
	pthread_mutex_lock(&r->swapper->lock);
	swapper_block_read_end(r->block, true);
	pthread_mutex_unlock(&r->swapper->lock);
	finish_part(r);
}

/* Reads the rest of one slice.  Returns 1 if on_read will go on with the read. */
static int read_part(struct swapper_read *r)
{
	enum from from;

	r->part = u64_min(r->size - r->gone,
			  swapper_slice_bytes(pin_of(r)->state, slice_of(r)) - offset_of(r));
	pthread_mutex_lock(&r->swapper->lock);
	from = choose(r);
	pthread_mutex_unlock(&r->swapper->lock);
	if (from == CANCELED || from == FROM_NOWHERE)
		return from == CANCELED ? -ECANCELED : -ESTALE;
	if (from == FROM_MEMORY)
		from_memory(r);
	if (from == FROM_DISK)
		swap_file_submit(r->swapper->file, &r->io);
	if (from != FROM_NOTHING)
		return from == FROM_DISK;
	memset(memory_of(r), 0, r->part);
	finish_part(r);
	return 0;
}

static void go_on(struct swapper_read *r)
{
	int rc = 0;

	while (!rc && r->gone < r->size)
		rc = read_part(r);
	if (rc != 1)
		end_swapper_read(r, rc);
}

static void begin_swapper_read(struct swapper *sw, struct swapper_read *r)
{
	r->gone = 0;
	r->failure = (struct swapper_failure){ 0 };
	r->submitted = r->canceled = false;
	pthread_mutex_lock(&sw->lock);
	sw->figures.reads++;
	sw->figures.read_bytes += r->size;
	pthread_mutex_unlock(&sw->lock);
	go_on(r);
}

void swapper_read(struct swapper *sw, struct swapper_read *r)
{
	int rc = 0;

	r->swapper = sw;
	r->own = NULL;
	if (!r->pin)
		rc = r->size ? swapper_pin(sw, r->state, r->offset, r->size, &r->own) : -EINVAL;
	else if (!pin_has(r->pin, r->state, r->offset, r->size))
		rc = -EINVAL;
	if (rc)
		r->done(r, rc);
	else
		begin_swapper_read(sw, r);
}

void swapper_read_cancel(struct swapper_read *r)
{
	struct swapper *sw = r->swapper;

	pthread_mutex_lock(&sw->lock);
	r->canceled = true;
	if (r->submitted)
		swap_file_cancel(sw->file, &r->io);
	pthread_mutex_unlock(&sw->lock);
}

static void read_own_pin(struct swapper *sw, struct swapper_read *r, struct swapper_pin *own)
{
	r->swapper = sw;
	r->pin = NULL;
	r->own = own;
	begin_swapper_read(sw, r);
}

/* ---- reads that are waited for ---- */

/* Reads piece by piece to memory of the read's own: a disk that was silent for too long may
 * still write there after the caller has gone on.
 */

enum { PIECE = 8 << 20 };

struct read_wait {
	struct swapper_read read;
	pthread_mutex_t lock;
	pthread_cond_t over;
	unsigned refs; /* one of the waiter, one of the read */
	bool has_ended;
	int rc;
	/* at: as far into a block of memory as the offset is into a block of the file, so that
	 * the disk needs no bounce buffer
	 */
	uint8_t *bytes, *at;
};

static struct read_wait *waited_new(uint64_t offset, uint64_t size)
{
	struct read_wait *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->bytes = aligned_alloc(SWAP_BLOCK, swapper_whole_blocks(size + offset % SWAP_BLOCK));
	if (!w->bytes) {
		free(w);
		return NULL;
	}
	w->at = w->bytes + offset % SWAP_BLOCK;
	w->refs = 2;
	pthread_mutex_init(&w->lock, NULL);
	thread_cond_init(&w->over);
	return w;
}

static void waited_put(struct read_wait *w)
{
	bool last;

	pthread_mutex_lock(&w->lock);
	last = !--w->refs;
	pthread_mutex_unlock(&w->lock);
	if (!last)
		return;
	pthread_cond_destroy(&w->over);
	pthread_mutex_destroy(&w->lock);
	free(w->bytes);
	free(w);
}

static void wake(struct swapper_read *r, int rc)
{
	struct read_wait *w = container_of(r, struct read_wait, read);

	pthread_mutex_lock(&w->lock);
	w->rc = rc;
	w->has_ended = true;
	pthread_cond_signal(&w->over);
	pthread_mutex_unlock(&w->lock);
	waited_put(w);
}

static int wait_for(struct read_wait *w, uint64_t wait_ms)
{
	struct timespec end = thread_in_ms(wait_ms);
	bool has_ended;
	int rc = 0;

	pthread_mutex_lock(&w->lock);
	while (!w->has_ended && !rc)
		rc = -pthread_cond_timedwait(&w->over, &w->lock, &end);
	has_ended = w->has_ended;
	pthread_mutex_unlock(&w->lock);
	if (!has_ended) {
		swapper_read_cancel(&w->read);
		return rc;
	}
	swapper_log_failure(w->read.swapper, &w->read.failure);
	return w->rc;
}

static int read_piece(struct swapper *sw, const struct swapper_pin *whole, uint64_t offset,
		      uint64_t size, void *memory)
{
	struct read_wait *w = waited_new(offset, size);
	struct swapper_pin *part;
	int rc = w ? pin_part(sw, whole, offset, size, &part) : -ENOMEM;

	if (!w)
		return rc;
	if (rc) {
		w->refs = 1;
		waited_put(w);
		return rc;
	}
	w->read = (struct swapper_read){ .state = whole->state,
					 .offset = offset,
					 .size = size,
					 .memory = w->at,
					 .done = wake };
	read_own_pin(sw, &w->read, part);
	rc = wait_for(w, sw->wait_ms);
	if (!rc)
		memcpy(memory, w->at, size);
	waited_put(w);
	return rc;
}

static int read_pieces(struct swapper *sw, const struct swapper_pin *pin, uint64_t offset,
		       uint64_t size, void *memory)
{
	int rc = 0;

	for (uint64_t gone = 0; gone < size && !rc; gone += PIECE)
		rc = read_piece(sw, pin, offset + gone, u64_min(size - gone, PIECE),
				(uint8_t *)memory + gone);
	return rc;
}

int swapper_read_unlent(struct swapper *sw, struct swapper_state *s, uint64_t offset,
			uint64_t size, void *memory)
{
	struct swapper_pin *pin;
	int rc = pin_newest(sw, s, offset, size, &pin);

	if (rc)
		return rc;
	rc = read_pieces(sw, pin, offset, size, memory);
	swapper_unpin(sw, pin);
	return rc;
}
