/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/swap/swapper-internal.h"

#include <errno.h>
#include <string.h>

/* Reads that are waited for: piece by piece, to memory of our own, since a disk that was given
 * up may still write there.
 */

enum { PIECE = 8 << 20 };

struct waited {
	struct swapper_read read;
	pthread_mutex_t lock;
	pthread_cond_t over;
	unsigned refs; /* who waits, and the read */
	bool has_ended;
	int rc;
	uint8_t *bytes, *at; /* as far into a block as in the state */
};

static struct waited *waited_new(uint64_t offset, uint64_t size)
{
	struct waited *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->bytes = aligned_alloc(SWAP_BLOCK, swapper_whole(size + offset % SWAP_BLOCK));
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

static void waited_put(struct waited *w)
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
	struct waited *w = container_of(r, struct waited, read);

	pthread_mutex_lock(&w->lock);
	w->rc = rc;
	w->has_ended = true;
	pthread_cond_signal(&w->over);
	pthread_mutex_unlock(&w->lock);
	waited_put(w);
}

static int wait_for(struct waited *w, uint64_t wait_ms)
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
	swapper_say(w->read.place, &w->read.failure);
	return w->rc;
}

static int read_piece(struct swapper *p, const struct swapper_pin *whole, uint64_t offset,
		      uint64_t size, void *memory)
{
	struct waited *w = waited_new(offset, size);
	struct swapper_pin *part;
	int rc = w ? swapper_pin_part(p, whole, offset, size, &part) : -ENOMEM;

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
	swapper_read_part(p, &w->read, part);
	rc = wait_for(w, p->wait_ms);
	if (!rc)
		memcpy(memory, w->at, size);
	waited_put(w);
	return rc;
}

static int read_pieces(struct swapper *p, const struct swapper_pin *h, uint64_t offset,
		       uint64_t size, void *memory)
{
	int rc = 0;

	for (uint64_t gone = 0; gone < size && !rc; gone += PIECE)
		rc = read_piece(p, h, offset + gone, u64_min(size - gone, PIECE),
				(uint8_t *)memory + gone);
	return rc;
}

int swapper_read_now(struct swapper *p, struct swapper_state *s, struct swapper_pin *hold,
		     uint64_t offset, uint64_t size, void *memory)
{
	struct swapper_pin *h;
	int rc;

	if (hold)
		return swapper_pin_has(hold, s, offset, size)
			       ? read_pieces(p, hold, offset, size, memory)
			       : -EINVAL;
	rc = swapper_pin(p, s, offset, size, &h);
	if (rc)
		return rc;
	rc = read_pieces(p, h, offset, size, memory);
	swapper_release(p, h);
	return rc;
}

int swapper_read_newest(struct swapper *p, struct swapper_state *s, uint64_t offset,
			uint64_t size, void *memory)
{
	struct swapper_pin *h;
	int rc = swapper_pin_newest(p, s, offset, size, &h);

	if (rc)
		return rc;
	rc = read_pieces(p, h, offset, size, memory);
	swapper_release(p, h);
	return rc;
}

/* ---- as the trainer has it ---- */

/* In one slice. */
static int look(struct swapper *p, struct swapper_state *s, uint64_t offset, uint64_t size,
		void *memory)
{
	struct swapper_lent *l = s->slices[offset / s->slice_bytes].lent;
	void *lent;
	int rc;

	if (!l || !(l->use & SWAPPER_READ)) /* else it may be any, another state's */
		return swapper_read_newest(p, s, offset, size, memory);
	rc = swapper_wait(p, l, &lent);
	if (!rc)
		memcpy(memory, (uint8_t *)lent + offset % s->slice_bytes, size);
	return rc;
}

int swapper_look(struct swapper *p, struct swapper_state *s, uint64_t offset, uint64_t size,
		 void *memory)
{
	uint64_t end;
	int rc = 0;

	if (!u64_add(offset, size, &end) || end > s->bytes)
		return -EINVAL;
	for (uint64_t n; offset < end && !rc; offset += n) {
		n = u64_min(end - offset, s->slice_bytes - offset % s->slice_bytes);
		rc = look(p, s, offset, n, memory);
		memory = (uint8_t *)memory + n;
	}
	return rc;
}
