/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/memory/pinned.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#endif
#ifdef HAVE_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

enum { SMALL = 4096, HUGE = 2 << 20, SLAB = 1 << 30, NODES = 1024 };

struct pinned {
	pthread_mutex_t lock;
	pthread_cond_t returned;
	struct pinned_figures figures; /* under lock */
	bool *is_lent;                 /* under lock: [count] */
	uint8_t *memory;
	uint64_t bytes;
	void *map;
	uint64_t mapped;
};

/* ---- memory ---- */

static int map(struct pinned *p, uint64_t extra, int flags)
{
	p->mapped = p->bytes + extra;
	p->map = mmap(NULL, p->mapped, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	if (p->map == MAP_FAILED)
		return -ENOMEM;
	p->memory = (uint8_t *)p->map + (HUGE - (uintptr_t)p->map % HUGE) % HUGE;
	return 0;
}

static int map_pages(struct pinned *p)
{
	if (!map(p, 0, MAP_HUGETLB)) {
		p->figures.pages = PINNED_HUGETLB;
		return 0;
	}
	if (map(p, HUGE, 0))
		return -ENOMEM;
	p->figures.pages =
		madvise(p->memory, p->bytes, MADV_HUGEPAGE) ? PINNED_SMALL : PINNED_HUGE;
	return 0;
}

static void bind_to_node(struct pinned *p, unsigned node)
{
	unsigned long nodes[NODES / (8 * sizeof(long))] = { 0 };
	int error = EINVAL;

	if (node < NODES) {
		nodes[node / (8 * sizeof(long))] = 1ul << node % (8 * sizeof(long));
		/* the kernel looks at one bit less than it is told */
		if (!syscall(SYS_mbind, p->memory, p->bytes, MPOL_PREFERRED, nodes, NODES + 1ul,
			     0))
			return;
		error = errno;
	}
	log_warn("pinned buffers are not on NUMA node %u: %s", node, strerror(error));
}

static void lock_pages(struct pinned *p)
{
	struct rlimit limit = { 0 };
	int error;

	p->figures.locked = !mlock(p->memory, p->bytes);
	if (p->figures.locked)
		return;
	error = errno;
	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur < p->bytes)
		log_warn(
			"pinned buffers of %llu KiB are not locked: %s, RLIMIT_MEMLOCK is %llu "
			"KiB (ulimit -l, LimitMEMLOCK=)",
			(unsigned long long)p->bytes >> 10, strerror(error),
			(unsigned long long)limit.rlim_cur >> 10);
	else
		log_warn("pinned buffers of %llu KiB are not locked: %s",
			 (unsigned long long)p->bytes >> 10, strerror(error));
}

/* Has the kernel make the pages now, before a request waits for them.  EINVAL: a kernel before
 * 5.14, which makes each page when it is first used.
 */
static int touch_pages(struct pinned *p)
{
	if (!madvise(p->memory, p->bytes, MADV_POPULATE_WRITE) || errno == EINVAL)
		return 0;
	return -ENOMEM;
}

static int make_memory(struct pinned *p, const struct pinned_options *options)
{
	int rc = map_pages(p);

	if (rc)
		return rc;
	madvise(p->memory, p->bytes, MADV_DONTFORK);
	if (options->on_node)
		bind_to_node(p, options->node);
	rc = touch_pages(p);
	if (rc) {
		munmap(p->map, p->mapped);
		return rc;
	}
	if (!options->locked_by_user && !options->unlocked)
		lock_pages(p);
	ASAN_POISON_MEMORY_REGION(p->memory, p->bytes);
	return 0;
}

/* ---- the pool ---- */

static void free_pool(struct pinned *p)
{
	if (!p)
		return;
	free(p->is_lent);
	free(p);
}

static struct pinned *new_pool(uint64_t size, unsigned count)
{
	struct pinned *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->figures.size = size;
	p->figures.count = count;
	p->is_lent = calloc(count, sizeof(*p->is_lent));
	if (!p->is_lent) {
		free_pool(p);
		return NULL;
	}
	return p;
}

int pinned_open(const struct pinned_options *options, struct pinned **out)
{
	uint64_t size;
	struct pinned *p;
	int rc;

	if (!options->size || options->size > SLAB || !options->count)
		return -EINVAL;
	size = u64_div_ceil(options->size, SMALL) * SMALL;
	p = new_pool(size, options->count);
	if (!p)
		return -ENOMEM;
	p->bytes = (size * options->count + HUGE) / HUGE * HUGE; /* below 2^63 */
	rc = make_memory(p, options);
	if (rc) {
		free_pool(p);
		return rc;
	}
	pthread_mutex_init(&p->lock, NULL);
	thread_cond_init(&p->returned);
	*out = p;
	return 0;
}

void pinned_close(struct pinned *p)
{
	if (!p)
		return;
	assert(!p->figures.lent);
	ASAN_UNPOISON_MEMORY_REGION(p->memory, p->bytes);
	munmap(p->map, p->mapped);
	pthread_cond_destroy(&p->returned);
	pthread_mutex_destroy(&p->lock);
	free_pool(p);
}

/* ---- lending ---- */

/* Under lock. */
static int wait_for_one(struct pinned *p, uint64_t wait_ms)
{
	struct pinned_figures *f = &p->figures;
	struct timespec until;
	int rc = 0;

	if (f->lent < f->count)
		return 0;
	if (!wait_ms)
		return -EAGAIN;
	until = thread_in_ms(wait_ms);
	while (f->lent == f->count && !rc)
		rc = -pthread_cond_timedwait(&p->returned, &p->lock, &until);
	if (f->lent == f->count)
		return rc;
	f->waits++;
	return 0;
}

/* Under lock. */
static void *lend(struct pinned *p, unsigned i)
{
	struct pinned_figures *f = &p->figures;

	f->lent++;
	f->gets++;
	if (f->lent > f->lent_max)
		f->lent_max = f->lent;
	p->is_lent[i] = true;
	return p->memory + i * f->size;
}

/* Under lock: single buffers are the first that are free, and runs the last, so that runs stay
 * whole in whatever order buffers are returned.  Some buffer is free.
 */
static unsigned find_one(const struct pinned *p)
{
	const bool *first = memchr(p->is_lent, false, p->figures.count);

	return (unsigned)(first - p->is_lent);
}

/* Returns the first of n free buffers; p->figures.count: there is no such run.  Under lock. */
static unsigned find_run(const struct pinned *p, unsigned n)
{
	unsigned free = 0;

	for (unsigned i = p->figures.count; i-- > 0;) {
		free = p->is_lent[i] ? 0 : free + 1;
		if (free == n)
			return i;
	}
	return p->figures.count;
}

int pinned_get(struct pinned *p, uint64_t wait_ms, void **buffer)
{
	void *lent = NULL;
	int rc;

	pthread_mutex_lock(&p->lock);
	rc = wait_for_one(p, wait_ms);
	if (rc)
		p->figures.refusals++;
	else
		lent = lend(p, find_one(p));
	pthread_mutex_unlock(&p->lock);
	if (rc)
		return rc;
	ASAN_UNPOISON_MEMORY_REGION(lent, p->figures.size);
	*buffer = lent;
	return 0;
}

int pinned_get_run(struct pinned *p, unsigned n, void **buffers)
{
	unsigned first;
	int rc = 0;

	pthread_mutex_lock(&p->lock);
	first = find_run(p, n);
	if (first == p->figures.count) {
		p->figures.refusals++;
		rc = -EAGAIN;
	}
	for (unsigned i = 0; i < n && !rc; i++)
		buffers[i] = lend(p, first + i);
	pthread_mutex_unlock(&p->lock);
	if (!rc)
		ASAN_UNPOISON_MEMORY_REGION(buffers[0], n * p->figures.size);
	return rc;
}

void pinned_put(struct pinned *p, void *buffer)
{
	struct pinned_figures *f = &p->figures;
	uint64_t offset = (uint64_t)((uint8_t *)buffer - p->memory);

	assert(offset < f->size * f->count && offset % f->size == 0);
	ASAN_POISON_MEMORY_REGION(buffer, f->size);
	pthread_mutex_lock(&p->lock);
	assert(p->is_lent[offset / f->size]);
	p->is_lent[offset / f->size] = false;
	f->lent--;
	pthread_cond_signal(&p->returned);
	pthread_mutex_unlock(&p->lock);
}

void pinned_figures(struct pinned *p, struct pinned_figures *figures)
{
	pthread_mutex_lock(&p->lock);
	*figures = p->figures;
	pthread_mutex_unlock(&p->lock);
}

/* ---- registration ---- */

static uint64_t slab_bytes(const struct pinned *p)
{
	return SLAB / p->figures.size * p->figures.size;
}

unsigned pinned_slabs(const struct pinned *p, struct iovec *slabs)
{
	uint64_t all = p->figures.size * p->figures.count, slab = slab_bytes(p);
	unsigned n = 0;

	for (uint64_t at = 0; at < all; at += slab, n++)
		if (slabs)
			slabs[n] = (struct iovec){ p->memory + at, u64_min(slab, all - at) };
	return n;
}

unsigned pinned_slab_of(const struct pinned *p, const void *buffer)
{
	return (unsigned)((uint64_t)((const uint8_t *)buffer - p->memory) / slab_bytes(p));
}
