/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/shared.h"

#include "engine/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* A forked child has nothing of it. */
static int map(int fd, uint64_t size, void **memory)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return -errno;
	madvise(at, size, MADV_DONTFORK);
	*memory = at;
	return 0;
}

static int make(int fd, uint64_t size, void **memory, struct shared_handle *handle)
{
	struct stat st;
	int rc;

	if (ftruncate(fd, (off_t)size) || fcntl(fd, F_ADD_SEALS, SEALS) || fstat(fd, &st))
		return -errno;
	rc = map(fd, size, memory);
	*handle = (struct shared_handle){ getpid(), fd, size, st.st_ino };
	return rc;
}

int shared_make(uint64_t size, void **memory, struct shared_handle *handle)
{
	int fd = memfd_create("fragfs-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING), rc;

	if (fd < 0)
		return -errno;
	rc = make(fd, size, memory, handle);
	if (rc)
		close(fd);
	else
		fork_close(fd);
	return rc;
}

void shared_hide(const struct shared_handle *handle)
{
	fork_forget(handle->fd);
	close(handle->fd);
}

/* The number may be another file's by now, or the process another one. */
static bool is_it(int fd, const struct shared_handle *handle)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_ino == handle->inode &&
	       (uint64_t)st.st_size == handle->size;
}

static int open_of(int pid, int number, int flags)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, number);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* The number may be a device's, or a terminal's: it is looked at before it is opened. */
static int open_it(const struct shared_handle *handle)
{
	int there = open_of(handle->pid, handle->fd, O_PATH), fd;

	if (there < 0)
		return there;
	fd = is_it(there, handle) ? open_of(getpid(), there, O_RDWR) : -ESTALE;
	close(there);
	return fd;
}

int shared_open(const struct shared_handle *handle, void **memory)
{
	int fd = open_it(handle), rc;

	if (fd < 0)
		return fd;
	rc = fcntl(fd, F_GET_SEALS) == SEALS ? map(fd, handle->size, memory) : -ESTALE;
	close(fd);
	return rc;
}

void shared_close(void *memory, uint64_t size)
{
	munmap(memory, size);
}
