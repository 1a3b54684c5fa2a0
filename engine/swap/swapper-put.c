/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/swap/swapper-internal.h"

#include <errno.h>
#include <string.h>

/* Values come parameter by parameter, the last first, so that a slice is filled by many: it
 * stays in until others need the buffer.  A slice that was cleared begins as zeros: what no
 * value comes for is no other step's.
 */

static void use_first(struct swapper_state *s, unsigned i)
{
	struct swapper_lent *l = s->open[i];

	memmove(s->open + 1, s->open, i * sizeof(struct swapper_lent *));
	s->open[0] = l;
}

static int close_one(struct swapper *p, struct swapper_state *s, unsigned i)
{
	int rc = s->open[i] ? swapper_swap_out(p, s->open[i]) : 0;

	if (!rc)
		s->open[i] = NULL;
	return rc;
}

/* In open[0]. */
static int open_slice(struct swapper *p, struct swapper_state *s, uint64_t slice)
{
	void *memory;
	int rc;

	for (unsigned i = 0; i < SWAPPER_OPEN; i++)
		if (s->open[i] && s->open[i]->index == slice) {
			use_first(s, i);
			return 0;
		}
	rc = close_one(p, s, SWAPPER_OPEN - 1);
	if (rc)
		return rc;
	use_first(s, SWAPPER_OPEN - 1);
	rc = swapper_swap_in_slice(p, s, slice, SWAPPER_READ | SWAPPER_WRITE,
				   swapper_patience(p), &s->open[0]);
	if (rc == -ENOBUFS && !(rc = swapper_settle(p, NULL)))
		rc = swapper_swap_in_slice(p, s, slice, SWAPPER_READ | SWAPPER_WRITE,
					   swapper_patience(p), &s->open[0]);
	if (rc)
		return rc;
	rc = swapper_wait(p, s->open[0], &memory);
	if (rc) {
		swapper_return(p, s->open[0]);
		s->open[0] = NULL;
	}
	return rc;
}

static void add(float *to, const float *from, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] += from[i];
}

static int put(struct swapper *p, struct swapper_state *s, uint64_t first,
	       const uint8_t *values, uint64_t numel, bool accumulate)
{
	uint64_t each = swapper_slice_numel(s);

	for (uint64_t gone = 0, n; gone < numel; gone += n) {
		uint64_t at = (first + gone) % each;
		const uint8_t *from = values + gone * s->element;
		int rc = open_slice(p, s, (first + gone) / each);
		uint8_t *to;

		if (rc)
			return rc;
		n = u64_min(numel - gone, each - at);
		to = s->open[0]->buffer + at * s->element;
		if (accumulate)
			add((float *)to, (const float *)from, n);
		else
			memcpy(to, from, n * s->element);
	}
	return 0;
}

static int check(const struct swapper_state *s, uint64_t first, uint64_t numel)
{
	uint64_t end;

	return u64_add(first, numel, &end) && end <= s->bytes / s->element ? 0 : -EINVAL;
}

static int put_all(struct swapper *p, struct swapper_state *s, uint64_t first,
		   const void *values, uint64_t numel, bool accumulate)
{
	int rc = check(s, first, numel);

	if (rc)
		return rc;
	pthread_mutex_lock(&p->lock);
	p->figures.puts++;
	pthread_mutex_unlock(&p->lock);
	swapper_debug(p, s, accumulate ? "add" : "put", first * s->element, numel * s->element);
	return put(p, s, first, values, numel, accumulate);
}

int swapper_put(struct swapper *p, struct swapper_state *s, uint64_t first, const void *values,
		uint64_t numel)
{
	return put_all(p, s, first, values, numel, false);
}

int swapper_accumulate(struct swapper *p, struct swapper_state *s, uint64_t first,
		       const float *values, uint64_t numel)
{
	return s->element == sizeof(float) ? put_all(p, s, first, values, numel, true)
					   : -EINVAL;
}

static int settle(struct swapper *p, struct swapper_state *s)
{
	int rc = 0;

	for (unsigned i = 0; i < SWAPPER_OPEN; i++) {
		int one = close_one(p, s, i);

		rc = rc ? rc : one;
	}
	return rc;
}

int swapper_settle(struct swapper *p, struct swapper_state *s)
{
	int rc = 0;

	if (s)
		return settle(p, s);
	for (s = p->states; s; s = s->next) {
		int one = settle(p, s);

		rc = rc ? rc : one;
	}
	return rc;
}

void swapper_forget_put(struct swapper *p, struct swapper_state *s)
{
	for (unsigned i = 0; i < SWAPPER_OPEN; i++)
		if (s->open[i]) {
			swapper_return(p, s->open[i]);
			s->open[i] = NULL;
		}
}
