/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/blob.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

int blob_of_file(int fd, struct blob *out, struct parse_error *error)
{
	struct stat st;

	if (fstat(fd, &st))
		return parse_error_set(error, -errno, "fstat: %s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return parse_error_set(error, -EOPNOTSUPP, "not a regular file");
	*out = (struct blob){ fd, 0, (uint64_t)st.st_size };
	return 0;
}

static bool has(const struct blob *b, uint64_t at, uint64_t size)
{
	return at <= b->size && size <= b->size - at;
}

static int past_end(const struct blob *b, uint64_t at, uint64_t size, struct parse_error *error)
{
	if (!b->start && !b->size)
		return parse_error_set(error, -EBADMSG, "it is empty");
	return parse_error_set(error, -EBADMSG,
			       "%" PRIu64 " bytes wanted at byte %" PRIu64 ", where %" PRIu64
			       " are",
			       size, b->start + at, at < b->size ? b->size - at : 0);
}

int blob_part(const struct blob *b, uint64_t at, uint64_t size, struct blob *out,
	      struct parse_error *error)
{
	if (!has(b, at, size))
		return past_end(b, at, size, error);
	*out = (struct blob){ b->fd, b->start + at, size };
	return 0;
}

int blob_read(const struct blob *b, uint64_t at, void *out, size_t size,
	      struct parse_error *error)
{
	uint64_t from = b->start + at;

	if (!has(b, at, size))
		return past_end(b, at, size, error);
	for (ssize_t n; size; out = (char *)out + n, from += (uint64_t)n, size -= (size_t)n) {
		n = pread(b->fd, out, size, (off_t)from);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n < 0)
			return parse_error_set(error, -errno, "byte %" PRIu64 ": %s", from,
					       strerror(errno));
		else if (!n)
			return parse_error_set(error, -EIO,
					       "the file ends at byte %" PRIu64
					       ", it has been cut meanwhile",
					       from);
	}
	return 0;
}
