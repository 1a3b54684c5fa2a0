/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/scarce.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <zmq.h>

/* Shared libraries of tests call the wrappers too, so the linker must see them. */
#pragma GCC visibility push(default)

static _Thread_local struct {
	bool on;
	unsigned calls, first, count, failed;
} scarce;

static _Atomic uint64_t ahead_ms;

void scarce_begin(unsigned n, unsigned count)
{
	scarce.calls = scarce.failed = 0;
	scarce.first = n;
	scarce.count = count;
	scarce.on = true;
}

unsigned scarce_end(void)
{
	scarce.on = false;
	return scarce.failed;
}

void scarce_skip_ms(uint64_t ms)
{
	ahead_ms += ms;
}

static bool refuse(int error)
{
	if (!scarce.on || ++scarce.calls < scarce.first ||
	    scarce.calls - scarce.first >= scarce.count)
		return false;
	scarce.failed++;
	errno = error;
	return true;
}

/* WRAP(result, name, result of a call that fails, errno, (parameters), (arguments)) */
#define WRAP(result, name, none, error, parameters, arguments)                                 \
	result __real_##name parameters;                                                       \
	result __wrap_##name parameters;                                                       \
	result __wrap_##name parameters                                                        \
	{                                                                                      \
		return refuse(error) ? none : __real_##name arguments;                         \
	}

WRAP(void *, malloc, NULL, ENOMEM, (size_t size), (size))
WRAP(void *, calloc, NULL, ENOMEM, (size_t n, size_t size), (n, size))
WRAP(void *, realloc, NULL, ENOMEM, (void *old, size_t size), (old, size))
WRAP(void *, reallocarray, NULL, ENOMEM, (void *old, size_t n, size_t size), (old, n, size))
WRAP(void *, aligned_alloc, NULL, ENOMEM, (size_t align, size_t size), (align, size))
WRAP(char *, strdup, NULL, ENOMEM, (const char *text), (text))
WRAP(char *, strndup, NULL, ENOMEM, (const char *text, size_t n), (text, n))
WRAP(FILE *, fmemopen, NULL, ENOMEM, (void *at, size_t size, const char *mode),
     (at, size, mode))
WRAP(DIR *, fdopendir, NULL, ENOMEM, (int fd), (fd))
WRAP(FILE *, open_memstream, NULL, ENOMEM, (char **data, size_t *size), (data, size))
int __real_fclose(FILE *stream);
int __wrap_fclose(FILE *stream);
/* Closes the stream, and reports that some of it could not be written. */
int __wrap_fclose(FILE *stream)
{
	bool refused = refuse(ENOMEM);

	return __real_fclose(stream) || refused ? EOF : 0;
}

WRAP(void *, mmap, MAP_FAILED, ENOMEM,
     (void *at, size_t size, int prot, int flags, int fd, off_t offset),
     (at, size, prot, flags, fd, offset))
WRAP(int, mlock, -1, ENOMEM, (const void *at, size_t size), (at, size))
WRAP(int, madvise, -1, ENOMEM, (void *at, size_t size, int advice), (at, size, advice))
WRAP(int, fstat, -1, ENOMEM, (int fd, struct stat *st), (fd, st))
WRAP(int, memfd_create, -1, EMFILE, (const char *name, unsigned flags), (name, flags))
WRAP(int, eventfd, -1, EMFILE, (unsigned count, int flags), (count, flags))
WRAP(int, epoll_create1, -1, EMFILE, (int flags), (flags))
WRAP(int, pthread_create, EAGAIN, EAGAIN,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg),
     (thread, attributes, run, arg))
WRAP(void *, zmq_ctx_new, NULL, EMFILE, (void), ())
WRAP(int, zmq_msg_init_size, -1, ENOMEM, (zmq_msg_t * message, size_t size), (message, size))
WRAP(int, zmq_msg_init_data, -1, ENOMEM,
     (zmq_msg_t * message, void *data, size_t size, zmq_free_fn *done, void *hint),
     (message, data, size, done, hint))

static _Thread_local struct {
	unsigned left;
	ssize_t value;
	int error;
} io;

void scarce_io(unsigned n, ssize_t result, int error)
{
	io.left = n;
	io.value = result;
	io.error = error;
}

bool scarce_io_came(void)
{
	return !io.left;
}

static bool is_bad(void)
{
	if (!io.left || --io.left)
		return false;
	errno = io.error;
	return true;
}

/* WRAP_IO(name, (parameters), (arguments)) */
#define WRAP_IO(name, parameters, arguments)                                                   \
	ssize_t __real_##name parameters;                                                      \
	ssize_t __wrap_##name parameters;                                                      \
	ssize_t __wrap_##name parameters                                                       \
	{                                                                                      \
		return is_bad() ? io.value : __real_##name arguments;                          \
	}

WRAP_IO(pread, (int fd, void *to, size_t size, off_t at), (fd, to, size, at))
WRAP_IO(pwrite, (int fd, const void *from, size_t size, off_t at), (fd, from, size, at))

int __wrap_asprintf(char **text, const char *format, ...);
int __wrap_asprintf(char **text, const char *format, ...)
{
	va_list ap;
	int n;

	if (refuse(ENOMEM))
		return -1;
	va_start(ap, format);
	n = vasprintf(text, format, ap);
	va_end(ap);
	return n;
}

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	int rc = __real_clock_gettime(clock, t);

	t->tv_nsec += (long)(ahead_ms % 1000) * 1000000;
	t->tv_sec += (time_t)(ahead_ms / 1000) + t->tv_nsec / 1000000000;
	t->tv_nsec %= 1000000000;
	return rc;
}

#pragma GCC visibility pop

unsigned scarce_open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}
