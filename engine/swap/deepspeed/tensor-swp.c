/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/swap/deepspeed/tensor-swp.h"

#include "engine/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 20 };

static const char suffix[] = ".tensor.swp";

/* ---- names ---- */

/* Reads a decimal number without leading zeros, as DeepSpeed writes it. */
static bool take_number(const char **at, uint64_t *number)
{
	const char *c = *at;
	uint64_t n = 0;

	for (; *c >= '0' && *c <= '9'; c++)
		if (!u64_mul(n, 10, &n) || !u64_add(n, (uint64_t)(*c - '0'), &n))
			return false;
	if (c == *at || (**at == '0' && c - *at > 1))
		return false;
	*at = c;
	*number = n;
	return true;
}

/* Returns false for a key that could not be one of ours, or that would be taken for the master.
 */
static bool key_ok(const char *key)
{
	return *key && *key != '.' && strcmp(key, "fp32") != 0 && strcmp(key, "grad") != 0;
}

bool tensor_swp_parse(const char *file, struct tensor_swp *swp)
{
	struct tensor_swp got = { .key = "" };
	const char *end = strstr(file, suffix), *dash, *at = file;

	if (!end || end[sizeof(suffix) - 1])
		return false;
	dash = memrchr(file, '-', (size_t)(end - file));
	if (dash) {
		size_t length = (size_t)(dash - file);

		if (length > FRAG_KEY_MAX)
			return false;
		memcpy(got.key, file, length);
		at = dash + 1;
		if (!key_ok(got.key))
			return false;
	}
	if (!take_number(&at, &got.first) || *at++ != '_' || !take_number(&at, &got.last) ||
	    at != end)
		return false;
	*swp = got;
	return true;
}

void tensor_swp_name(const struct tensor_swp *swp, char file[TENSOR_SWP_FILE_MAX])
{
	snprintf(file, TENSOR_SWP_FILE_MAX, "%s%s%" PRIu64 "_%" PRIu64 "%s", swp->key,
		 swp->key[0] ? "-" : "", swp->first, swp->last, suffix);
}

/* ---- reading ---- */

/* The file does not tell for how many threads DeepSpeed has padded it: all numbers are tried.
 */
static bool size_ok(uint64_t size, uint64_t bytes)
{
	for (uint64_t threads = 1; threads <= TENSOR_SWP_THREADS_MAX; threads++) {
		uint64_t unit = threads * TENSOR_SWP_ALIGN;

		if (size % unit == 0 && u64_div_ceil(bytes, unit) == size / unit)
			return true;
	}
	return false;
}

static int refuse(const char *file, const char *what, int error, char *why, size_t whysize)
{
	snprintf(why, whysize, "%s: %s", file, what ? what : strerror(error));
	return -error;
}

static int check(int fd, const char *file, uint64_t bytes, char *why, size_t whysize)
{
	char what[160];
	struct stat st;

	if (fstat(fd, &st))
		return refuse(file, NULL, errno, why, whysize);
	if (!S_ISREG(st.st_mode))
		return refuse(file, "not a plain file", EINVAL, why, whysize);
	if (size_ok((uint64_t)st.st_size, bytes))
		return 0;
	snprintf(what, sizeof(what),
		 "has %lld bytes, not %" PRIu64 " rounded up to a multiple of 1024",
		 (long long)st.st_size, bytes);
	return refuse(file, what, EINVAL, why, whysize);
}

int tensor_swp_open(int folder, const char *file, uint64_t bytes, char *why, size_t whysize)
{
	int fd = openat(folder, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), rc;

	if (fd < 0)
		return refuse(file, errno == ELOOP ? "a symbolic link" : NULL, errno, why,
			      whysize);
	rc = check(fd, file, bytes, why, whysize);
	if (rc)
		close(fd);
	return rc ? rc : fd;
}

/* Moves bytes from give to the file, or from the file to take. */
static int move_data(int fd, uint64_t bytes, bool write, tensor_swp_bytes move, void *arg)
{
	CLEANUP(free) uint8_t *chunk = malloc(CHUNK);
	int rc = chunk ? 0 : -ENOMEM;

	for (uint64_t at = 0; at < bytes && !rc; at += CHUNK) {
		size_t size = u64_min(CHUNK, bytes - at);

		rc = write ? move(arg, at, chunk, size) : fd_read_all(fd, chunk, size, at);
		if (!rc)
			rc = write ? fd_write_all(fd, chunk, size, at)
				   : move(arg, at, chunk, size);
	}
	return rc;
}

int tensor_swp_read(int fd, uint64_t bytes, tensor_swp_bytes take, void *arg)
{
	return move_data(fd, bytes, false, take, arg);
}

/* ---- writing ---- */

static int finish(int fd, int folder, const char *temporary, const char *file, uint64_t size)
{
	/* in this order: after a power cut the name has the old file, or all of the new one */
	if (ftruncate(fd, (off_t)size) || fdatasync(fd) ||
	    renameat(folder, temporary, folder, file))
		return -errno;
	return fsync(folder) ? -errno : 0;
}

int tensor_swp_write(int folder, const char *file, uint64_t bytes, unsigned threads,
		     tensor_swp_bytes give, void *arg, char *why, size_t whysize)
{
	uint64_t unit = (uint64_t)threads * TENSOR_SWP_ALIGN;
	char temporary[TENSOR_SWP_FILE_MAX + 8];
	int fd, rc;

	snprintf(temporary, sizeof(temporary), "%s.new", file);
	unlinkat(folder, temporary, 0);
	fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		    0600);
	if (fd < 0)
		return refuse(file, NULL, errno, why, whysize);
	rc = move_data(fd, bytes, true, give, arg);
	if (!rc)
		rc = finish(fd, folder, temporary, file, u64_div_ceil(bytes, unit) * unit);
	close(fd);
	if (!rc)
		return 0;
	unlinkat(folder, temporary, 0);
	return refuse(file, NULL, -rc, why, whysize);
}
