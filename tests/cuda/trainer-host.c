/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ports/device-host.h"
#include "tests/cuda/device-suite.h"

#include <string.h>

static struct device *port; /* NULL: closed */

static int ndevices(void)
{
	return DEVICE_HOST_DEVICES;
}

static void begin(struct device *d)
{
	port = d;
}

static void end(void)
{
	port = NULL;
}

static void *alloc(int number, uint64_t size)
{
	void *memory = malloc(size);

	ck_assert_ptr_nonnull(memory);
	ck_assert_int_eq(device_host_give(port, number, memory, size, memory), 0);
	return memory;
}

static void free_memory(void *memory)
{
	if (port)
		device_host_take(port, memory);
	free(memory);
}

static void copy(void *to, const void *from, uint64_t size)
{
	memcpy(to, from, size);
}

static void *stream_new(int number)
{
	struct device_host_stream *s = device_host_stream_new();

	ck_assert_ptr_nonnull(s);
	return s;
}

static void stream_free(void *stream)
{
	device_host_stream_free(stream);
}

static void hold(void *stream)
{
	device_host_hold(stream);
}

static void go(void *stream)
{
	device_host_go(stream);
}

struct filling {
	void *memory;
	uint64_t size;
	uint8_t value;
};

static void do_fill(void *arg)
{
	struct filling *f = arg;

	memset(f->memory, f->value, f->size);
	free(f);
}

static void fill(void *stream, void *memory, uint8_t value, uint64_t size)
{
	struct filling *f = malloc(sizeof(*f));

	ck_assert_ptr_nonnull(f);
	*f = (struct filling){ memory, size, value };
	ck_assert_int_eq(device_host_enqueue(stream, do_fill, f), 0);
}

const struct trainer trainer_host = {
	.ops = &device_host,
	.ndevices = ndevices,
	.has_kernels = true,
	.begin = begin,
	.end = end,
	.alloc = alloc,
	.free = free_memory,
	.put = copy,
	.get = copy,
	.stream_new = stream_new,
	.stream_free = stream_free,
	.hold = hold,
	.go = go,
	.fill = fill,
};
