/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/convert.h"
#include "tests/ports/device-host.h"
#include "engine/device/device-queue.h"
#include "engine/device/device-sums.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

/* The specification of the port: does with ordinary memory what device.h says. */

enum { UNKNOWN = DEVICE_NONE - 1 }; /* memory that was neither given nor pinned */

struct device_event {
	atomic_bool passed;
	atomic_uint users; /* the caller, the stream */
};

struct range {
	LIST_ENTRY(range) next;
	uint8_t *start;
	uint64_t size;
	int number;  /* DEVICE_NONE: pinned */
	uint8_t *at; /* where the port reads and writes its bytes */
};

struct device {
	struct device_queue queue;
	struct device_options options;
	pthread_mutex_t lock; /* of ranges and kept */
	LIST_HEAD(, range) ranges;
	uint64_t kept[DEVICE_HOST_DEVICES];
	atomic_bool used[DEVICE_HOST_DEVICES];
};

/* ---- memory ---- */

/* Under lock.  The range in which all of this lies. */
static struct range *find_range(struct device *d, const void *memory, uint64_t size)
{
	uintptr_t at = (uintptr_t)memory;
	struct range *r;

	LIST_FOREACH (r, &d->ranges, next) {
		uintptr_t start = (uintptr_t)r->start;

		if (at >= start && at - start < r->size && size <= r->size - (at - start))
			break;
	}
	return r;
}

static int number_of(struct device *d, const void *memory, uint64_t size)
{
	struct range *r;
	int number;

	pthread_mutex_lock(&d->lock);
	r = find_range(d, memory, size);
	number = r ? r->number : UNKNOWN;
	pthread_mutex_unlock(&d->lock);
	return number;
}

void *device_host_reach(struct device *d, const void *memory)
{
	uint8_t *at = (uint8_t *)(uintptr_t)memory;
	struct range *r;

	pthread_mutex_lock(&d->lock);
	r = find_range(d, memory, 1);
	if (r)
		at = r->at + (at - r->start);
	pthread_mutex_unlock(&d->lock);
	return at;
}

static int add_range(struct device *d, void *start, uint64_t size, int number, void *at)
{
	struct range *r = malloc(sizeof(*r));

	if (!r)
		return -ENOMEM;
	*r = (struct range){ .start = start, .size = size, .number = number, .at = at };
	pthread_mutex_lock(&d->lock);
	LIST_INSERT_HEAD(&d->ranges, r, next);
	pthread_mutex_unlock(&d->lock);
	return 0;
}

void device_host_take(struct device *d, void *start)
{
	struct range *r;

	pthread_mutex_lock(&d->lock);
	LIST_FOREACH (r, &d->ranges, next)
		if (r->start == start)
			break;
	LIST_REMOVE(r, next);
	pthread_mutex_unlock(&d->lock);
	free(r);
}

static bool is_number(int number)
{
	return number >= 0 && number < DEVICE_HOST_DEVICES;
}

static bool in_use(struct device *d, int number)
{
	return is_number(number) && atomic_load(&d->used[number]);
}

int device_host_give(struct device *d, int number, void *memory, uint64_t size, void *at)
{
	return is_number(number) ? add_range(d, memory, size, number, at) : -EINVAL;
}

static int host_where(struct device *d, const void *memory, struct device_where *where)
{
	int number = number_of(d, memory, 1);

	*where = (struct device_where){ number == UNKNOWN ? DEVICE_NONE : number,
					number == DEVICE_NONE };
	return 0;
}

static int host_pin(struct device *d, void *memory, uint64_t size)
{
	return number_of(d, memory, 1) == UNKNOWN
		       ? add_range(d, memory, size, DEVICE_NONE, memory)
		       : -EINVAL;
}

/* Memory that must not be touched by its address. */
static int host_alloc(struct device *d, int number, uint64_t size, void **memory)
{
	void *own, *address;
	int rc;

	if (!size || !in_use(d, number))
		return -EINVAL;
	own = malloc(size);
	address = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	rc = own && address != MAP_FAILED ? 0 : -ENOMEM;
	if (!rc)
		rc = add_range(d, address, size, number, own);
	if (rc) {
		if (address != MAP_FAILED)
			munmap(address, size);
		free(own);
		return rc;
	}
	*memory = address;
	return 0;
}

static void host_free(struct device *d, int number, void *memory)
{
	void *own = device_host_reach(d, memory);
	struct range *r;
	uint64_t size;

	pthread_mutex_lock(&d->lock);
	r = find_range(d, memory, 1);
	assert(r && r->start == memory && r->number == number);
	size = r->size;
	pthread_mutex_unlock(&d->lock);
	device_host_take(d, memory);
	munmap(memory, size);
	free(own);
}

/* ---- requests ---- */

static void convert(const struct device_io *io)
{
	switch (io->what) {
	case DEVICE_F32_TO_BF16:
		convert_f32_to_bf16(io->to, io->from, io->size);
		break;
	case DEVICE_BF16_TO_F32:
		convert_bf16_to_f32(io->to, io->from, io->size);
		break;
	case DEVICE_F32_TO_F16:
		convert_f32_to_f16(io->to, io->from, io->size);
		break;
	default:
		convert_f16_to_f32(io->to, io->from, io->size);
	}
}

static uint32_t element(const struct device_io *io, uint64_t i)
{
	const uint32_t *f32 = io->from;
	const uint16_t *half = io->from;

	if (io->what == DEVICE_SUMS_F32)
		return f32[i];
	return io->what == DEVICE_SUMS_BF16 ? convert_one_bf16_to_f32(half[i])
					    : convert_one_f16_to_f32(half[i]);
}

static void sum(const struct device_io *io)
{
	struct device_adding a;

	device_sums_begin(&a);
	for (uint64_t i = 0; i < io->size; i++)
		device_sums_add(&a, element(io, i), i);
	device_sums_end(&a, io->to);
}

static bool on_device(struct device *d, const struct device_io *io, const void *memory,
		      uint64_t size)
{
	return number_of(d, memory, size) == io->number;
}

/* -EFAULT: no side is on the device, or one is on it only in part. */
static int check_copy(struct device *d, const struct device_io *io)
{
	bool from = on_device(d, io, io->from, io->size);
	bool to = on_device(d, io, io->to, io->size);

	if (!from && !to)
		return -EFAULT;
	if (!from && number_of(d, io->from, 1) >= 0)
		return -EFAULT;
	return !to && number_of(d, io->to, 1) >= 0 ? -EFAULT : 0;
}

static int check(struct device *d, const struct device_io *io)
{
	uint64_t from, to;

	if (!in_use(d, io->number))
		return -EINVAL;
	if (!io->size && io->what == DEVICE_COPY)
		return 0;
	if (io->what == DEVICE_COPY)
		return check_copy(d, io);
	device_queue_sizes(io, &from, &to);
	if (from && !on_device(d, io, io->from, from))
		return -EFAULT;
	return to && !on_device(d, io, io->to, to) ? -EFAULT : 0;
}

static void work(struct device *d, const struct device_io *io)
{
	struct device_io reached = *io;

	reached.to = device_host_reach(d, io->to);
	reached.from = device_host_reach(d, io->from);
	if (io->what == DEVICE_COPY)
		memcpy(reached.to, reached.from, io->size);
	else if (io->what < DEVICE_SUMS_F32)
		convert(&reached);
	else
		sum(&reached);
}

static void host_begin(struct device *d, struct device_io *io)
{
	int rc = 0;

	if (io->what != DEVICE_RELEASE) {
		rc = check(d, io);
		if (!rc && (io->size || io->what != DEVICE_COPY))
			work(d, io);
	}
	io->done(io, rc);
}

static bool host_turn(struct device *d)
{
	return false;
}

/* ---- events ---- */

static void event_put(struct device_event *e)
{
	if (atomic_fetch_sub(&e->users, 1) == 1)
		free(e);
}

static void event_pass(void *arg)
{
	struct device_event *e = arg;

	atomic_store(&e->passed, true);
	event_put(e);
}

bool device_host_passed(struct device_event *event)
{
	return atomic_load(&event->passed);
}

static int host_passed(struct device *d, struct device_event *event)
{
	return device_host_passed(event) ? 0 : -EAGAIN;
}

static int host_mark(struct device *d, int number, void *stream, struct device_event **event)
{
	struct device_event *e;

	if (!in_use(d, number))
		return -EINVAL;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	atomic_store(&e->users, 2);
	if (device_host_enqueue(stream, event_pass, e)) {
		free(e);
		return -ENOMEM;
	}
	*event = e;
	return 0;
}

static void host_unmark(struct device *d, struct device_event *event)
{
	event_put(event);
}

/* ---- what is preserved ---- */

struct keeping {
	struct device_kept kept;
	struct device_io release;
	struct device *device;
	const void *from;
	void *own;         /* its memory, where it is the port's */
	atomic_uint users; /* the caller, the stream */
};

static void keeping_put(struct keeping *k)
{
	if (atomic_fetch_sub(&k->users, 1) != 1)
		return;
	free(k->own);
	free(k);
}

static int reserve(struct device *d, int number, uint64_t size)
{
	int rc = 0;

	pthread_mutex_lock(&d->lock);
	if (size > d->options.keep - d->kept[number])
		rc = -ENOSPC;
	else
		d->kept[number] += size;
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static void give_back(struct device *d, int number, uint64_t size)
{
	pthread_mutex_lock(&d->lock);
	d->kept[number] -= size;
	pthread_mutex_unlock(&d->lock);
}

static int make_own(struct device *d, int number, struct keeping *k)
{
	int rc = reserve(d, number, k->kept.size);

	if (rc)
		return rc;
	k->own = malloc(k->kept.size);
	rc = k->own ? add_range(d, k->own, k->kept.size, number, k->own) : -ENOMEM;
	if (rc) {
		give_back(d, number, k->kept.size);
		return rc;
	}
	k->kept.number = number;
	k->kept.memory = k->own;
	return 0;
}

static void drop_own(struct device *d, struct keeping *k)
{
	if (!k->own)
		return;
	device_host_take(d, k->own);
	give_back(d, k->kept.number, k->kept.size);
}

static void keep(void *arg)
{
	struct keeping *k = arg;

	memcpy(k->kept.memory, k->from, k->kept.size); /* the device may have been closed */
	event_pass(k->kept.written);
	keeping_put(k);
}

static int enqueue_keep(void *stream, struct keeping *k)
{
	struct device_event *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	atomic_store(&e->users, 2);
	atomic_store(&k->users, 2);
	k->kept.written = e;
	if (device_host_enqueue(stream, keep, k)) {
		free(e);
		return -ENOMEM;
	}
	return 0;
}

static int make_keeping(int number, void *stream, struct keeping *k)
{
	int rc = k->kept.memory ? 0 : make_own(k->device, number, k);

	if (rc)
		return rc;
	rc = enqueue_keep(stream, k);
	if (rc)
		drop_own(k->device, k);
	return rc;
}

static int host_preserve(struct device *d, int number, void *stream, const void *from,
			 uint64_t size, void *to, struct device_kept **kept)
{
	struct keeping *k;
	int rc;

	if (!in_use(d, number) || !size || (to && number_of(d, to, size) != DEVICE_NONE))
		return -EINVAL;
	k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	k->kept = (struct device_kept){ .number = DEVICE_NONE, .memory = to, .size = size };
	k->device = d;
	k->from = device_host_reach(d, from);
	rc = make_keeping(number, stream, k);
	if (rc) {
		free(k->own);
		free(k);
		return rc;
	}
	*kept = &k->kept;
	return 0;
}

static void released(struct device_io *io, int result)
{
	struct keeping *k = container_of(io, struct keeping, release);

	drop_own(k->device, k);
	event_put(k->kept.written);
	keeping_put(k);
}

static void host_release(struct device *d, struct device_kept *kept)
{
	struct keeping *k = container_of(kept, struct keeping, kept);

	k->release = (struct device_io){ .what = DEVICE_RELEASE,
					 .after = kept->written,
					 .wait_ms = UINT64_MAX,
					 .done = released };
	device_queue_submit(&d->queue, &k->release);
}

/* ---- the port ---- */

static const struct device_queue_ops queue_ops = {
	.passed = host_passed,
	.begin = host_begin,
	.turn = host_turn,
};

static int host_open(struct device **out, const struct device_options *options)
{
	struct device *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return -ENOMEM;
	d->options = *options;
	pthread_mutex_init(&d->lock, NULL);
	rc = device_options_check(&d->options);
	if (!rc)
		rc = device_queue_start(&d->queue, &queue_ops, d, d->options.wait_ms);
	if (rc) {
		pthread_mutex_destroy(&d->lock);
		free(d);
		return rc;
	}
	*out = d;
	return 0;
}

static void host_close(struct device *d)
{
	struct range *r, *next;

	device_queue_stop(&d->queue);
	LIST_FOREACH_SAFE (r, &d->ranges, next, next)
		free(r);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static int host_use(struct device *d, int number)
{
	if (!is_number(number))
		return -EINVAL;
	atomic_store(&d->used[number], true);
	return 0;
}

static void host_submit(struct device *d, struct device_io *io)
{
	device_queue_submit(&d->queue, io);
}

static void host_figures(struct device *d, struct device_figures *f)
{
	*f = (struct device_figures){ 0 };
	pthread_mutex_lock(&d->lock);
	for (int i = 0; i < DEVICE_HOST_DEVICES; i++)
		f->kept += d->kept[i];
	pthread_mutex_unlock(&d->lock);
}

const struct device_ops device_host = {
	.name = "host",
	.open = host_open,
	.close = host_close,
	.use = host_use,
	.where = host_where,
	.pin = host_pin,
	.unpin = device_host_take,
	.alloc = host_alloc,
	.free = host_free,
	.mark = host_mark,
	.unmark = host_unmark,
	.preserve = host_preserve,
	.release = host_release,
	.submit = host_submit,
	.figures = host_figures,
};
