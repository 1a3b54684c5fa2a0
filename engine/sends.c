/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/sends.h"

#include <errno.h>
#include <string.h>

struct send {
	uint64_t used;
	uint8_t bytes[]; /* copies: zeroed, not what was there before */
};

struct send *sends_new(struct engine *e, uint64_t bytes, unsigned n, bool keep)
{
	return calloc(1, sizeof(struct send) + bytes + 1);
}

void sends_free(struct engine *e, struct send *s)
{
	free(s);
}

static uint8_t *next_copy(struct send *s, uint64_t size)
{
	uint8_t *at = s->bytes + s->used;

	s->used += size;
	return at;
}

int sends_from(struct engine *e, struct send *s, uint64_t epoch, uint32_t row, uint64_t offset,
	       uint64_t size, void **from)
{
	*from = next_copy(s, size);
	return registry_copy(&e->registry, epoch, row, offset, *from, size);
}

int sends_from_view(struct engine *e, struct send *s, const uint64_t view[2], uint64_t offset,
		    uint64_t size, void **from)
{
	*from = next_copy(s, size);
	return views_read(&e->views, &e->registry, view, offset, *from, size);
}

struct device_event *sends_after(const struct send *s)
{
	return NULL;
}
