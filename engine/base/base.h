/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_BASE_H
#define ENGINE_BASE_BASE_H

/* Used by every module: checked arithmetic, cleanup, texts, the clock, the environment. */

#include <assert.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define CLEANUP(f) __attribute__((cleanup(base_##f)))
#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline void base_free(void *p)
{
	free(*(void **)p);
}

static inline void base_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline bool u64_add(uint64_t a, uint64_t b, uint64_t *sum)
{
	return !__builtin_add_overflow(a, b, sum);
}

static inline bool u64_mul(uint64_t a, uint64_t b, uint64_t *product)
{
	return !__builtin_mul_overflow(a, b, product);
}

static inline uint64_t u64_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t u64_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Bisection: the first i of [0, n) for which the expression `before`, which may use i, is
 * false; n: none.  `before` must be true up to some i and false from there on.
 */
#define LOWER_BOUND(n, i, before)                                                              \
	({                                                                                     \
		uint64_t low_ = 0, high_ = (n);                                                \
		while (low_ < high_) {                                                         \
			uint64_t i = low_ + (high_ - low_) / 2;                                \
			if (before)                                                            \
				low_ = i + 1;                                                  \
			else                                                                   \
				high_ = i;                                                     \
		}                                                                              \
		low_;                                                                          \
	})

/* For qsort(3) and bsearch(3) of uint32_t. */
static inline int u32_compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* For qsort(3) and bsearch(3) of uint64_t. */
static inline int u64_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* divisor > 0; never overflows. */
static inline uint64_t u64_div_ceil(uint64_t n, uint64_t divisor)
{
	return n / divisor + (n % divisor != 0);
}

/* Copies size bytes and ends them with a NUL; the caller frees the text.  NULL: no memory. */
static inline char *text_copy(const void *bytes, size_t size)
{
	/* the cast is for C++: nvcc compiles this header */
	char *text = (char *)malloc(size + 1);

	if (!text)
		return NULL;
	memcpy(text, bytes, size);
	text[size] = '\0';
	return text;
}

/* Returns the value of a hexadecimal digit; -1: c is none. */
static inline int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* Finds a function of a library that was loaded by dlopen(3), and sets *function, a pointer to
 * a function.  False: the library has none of that name.
 */
static inline bool library_find(void *library, const char *name, void *function)
{
	void *found = dlsym(library, name);

	*(void **)function = found;
	return found;
}

/* A variable of the environment; NULL: not set, or empty. */
static inline const char *env_text(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static inline uint64_t monotonic_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static inline uint64_t timespec_ns(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;
}

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return timespec_ns(&t);
}

static inline uint64_t monotonic_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

#endif
