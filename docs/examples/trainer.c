/* SPDX-License-Identifier: Apache-2.0 */

#include "trainer.h"

#include "device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE_MS = 120000 };

void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "train: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	exit(1);
}

void *zeroed(uint64_t n, size_t size)
{
	void *memory = calloc(n ? n : 1, size);

	if (!memory)
		die("out of memory");
	return memory;
}

int need(const struct trainer *t, const char *what, int result)
{
	if (result < 0 && t->frag)
		die("rank %d: %s: %s", t->rank, what, strerror(-result));
	return result;
}

void barrier(struct trainer *t)
{
	if (t->world > 1)
		need(t, "barrier", frag_barrier(t->frag, PATIENCE_MS));
}

void pull(struct trainer *t, int rank, const char *name, uint64_t offset, void *out,
	  uint64_t bytes)
{
	if (bytes > 0)
		need(t, name, frag_peer_read(t->frag, rank, name, offset, out, bytes));
}

int group_of(const struct trainer *t, int p)
{
	return t->model.param[p].decay ? 0 : 1;
}

void put(struct trainer *t, const struct group *g, int state, const char *key, float *memory,
	 uint64_t first, const float *values, uint64_t n)
{
	if (memory)
		memcpy(memory + first, values, n * sizeof(*values));
	if (g->on_device[state])
		device_put(g->on_device[state] + first, memory + first, n * sizeof(*values));
	if (!memory)
		need(t, key, frag_state_put(t->frag, g->id, 0, key, first, values, n, 0));
}
