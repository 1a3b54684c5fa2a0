/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/fork.h"

#include <errno.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <sys/stat.h>

/* By descriptor number.  Aligned so that an entry is in one page: fork copies it whole. */
struct entry {
	alignas(16) _Atomic uint64_t inode; /* 0: none */
	_Atomic uint64_t device;
};

static struct entry entries[FORK_FD_MAX];
static _Atomic int end; /* behind the greatest number ever set */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void close_if_same(int fd, struct entry *entry)
{
	uint64_t inode = atomic_load_explicit(&entry->inode, memory_order_acquire);
	struct stat st;

	if (!inode)
		return;
	atomic_store_explicit(&entry->inode, 0, memory_order_relaxed);
	if (fstat(fd, &st) || st.st_ino != inode ||
	    st.st_dev != atomic_load_explicit(&entry->device, memory_order_relaxed))
		return;
	close(fd);
}

static void in_child(void)
{
	int saved = errno, n = atomic_load_explicit(&end, memory_order_relaxed);

	for (int fd = 0; fd < n; fd++)
		close_if_same(fd, &entries[fd]);
	errno = saved;
}

static void install(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

static void reach(int fd)
{
	int n = atomic_load_explicit(&end, memory_order_relaxed);

	while (n <= fd && !atomic_compare_exchange_weak_explicit(
				  &end, &n, fd + 1, memory_order_relaxed, memory_order_relaxed))
		;
}

int fork_close(int fd)
{
	struct stat st;

	if (fd >= FORK_FD_MAX)
		return -ENFILE;
	if (fd < 0 || fstat(fd, &st))
		return -EBADF;
	pthread_once(&once, install);
	fork_forget(fd);
	atomic_store_explicit(&entries[fd].device, st.st_dev, memory_order_relaxed);
	atomic_store_explicit(&entries[fd].inode, st.st_ino, memory_order_release);
	reach(fd);
	return 0;
}

void fork_forget(int fd)
{
	if (fd >= 0 && fd < FORK_FD_MAX)
		atomic_store_explicit(&entries[fd].inode, 0, memory_order_release);
}
