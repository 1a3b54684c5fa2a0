/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/fd.h"

#include <errno.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { ONCE = 1 << 30 }; /* bytes; the kernel moves less than 2 GiB in a call */

int fd_read_all(int fd, void *bytes, size_t size, uint64_t offset)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = pread(fd, (char *)bytes + done, u64_min(size - done, ONCE),
				  (off_t)(offset + done));

		if (n <= 0 && (!n || errno != EINTR))
			return n ? -errno : -EIO;
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

int fd_write_all(int fd, const void *bytes, size_t size, uint64_t offset)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = pwrite(fd, (const char *)bytes + done, u64_min(size - done, ONCE),
				   (off_t)(offset + done));

		if (n <= 0 && (!n || errno != EINTR))
			return n ? -errno : -EIO;
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

int fd_put_all(int fd, const void *bytes, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = write(fd, (const char *)bytes + done, size - done);

		if (n < 0 && errno != EINTR)
			return -errno;
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

int fd_lock(int fd, unsigned ms)
{
	/* 10 ms */
	const struct timespec pause = { .tv_nsec = 10000000 };
	uint64_t until = monotonic_ms() + ms;

	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (monotonic_ms() >= until)
			return -EBUSY;
		nanosleep(&pause, NULL);
	}
	return 0;
}

void fd_unlock(int fd)
{
	flock(fd, LOCK_UN);
}
