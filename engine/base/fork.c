/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/fork.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* A listed descriptor; its number is the index.  Aligned so that an entry is in one page, which
 * fork copies as a whole.
 */
struct fork_fd {
	alignas(16) _Atomic uint64_t inode; /* 0: none */
	_Atomic uint64_t device;
};

static struct fork_fd entries[FORK_FD_MAX];
static _Atomic int end; /* behind the greatest number ever set */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void close_if_same(int fd, struct fork_fd *entry)
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

/* ---- addresses at which we listen ---- */

static _Atomic uint64_t addresses[FORK_ADDRESSES_MAX]; /* key_of; 0: none */

static uint64_t key_of(uint32_t host, uint16_t port)
{
	/* bit 63: no key is 0 */
	return (uint64_t)1 << 63 | (uint64_t)host << 16 | port;
}

/* Returns the key of the text, "tcp://..." or "ucx://..."; 0: the text is no such address. */
static uint64_t parse(const char *address)
{
	unsigned a, b, c, d, port;

	if (sscanf(address, "%*[a-z]://%3u.%3u.%3u.%3u:%5u", &a, &b, &c, &d, &port) != 5)
		return 0;
	return key_of(a << 24 | b << 16 | c << 8 | d, (uint16_t)port);
}

static bool is_at_ours(int fd)
{
	struct sockaddr_in name = { .sin_family = AF_UNSPEC };
	socklen_t size = sizeof(name);
	uint32_t host;
	uint16_t port;

	if (getsockname(fd, (struct sockaddr *)&name, &size) || name.sin_family != AF_INET)
		return false;
	host = ntohl(name.sin_addr.s_addr);
	port = ntohs(name.sin_port);
	for (unsigned i = 0; i < FORK_ADDRESSES_MAX; i++) {
		uint64_t at = atomic_load_explicit(&addresses[i], memory_order_acquire);

		/* a connection to a socket that listens at 0.0.0.0 has a host of its own */
		if (at && (at == key_of(host, port) || at == key_of(INADDR_ANY, port)))
			return true;
	}
	return false;
}

static bool any_address(void)
{
	for (unsigned i = 0; i < FORK_ADDRESSES_MAX; i++)
		if (atomic_load_explicit(&addresses[i], memory_order_acquire))
			return true;
	return false;
}

struct directory_entry { /* getdents64(2)'s */
	uint64_t inode;
	int64_t offset;
	uint16_t size;
	uint8_t type;
	char name[];
};

static void close_listed(const char *list, long size)
{
	const struct directory_entry *entry;

	for (long at = 0; at < size; at += entry->size) {
		entry = (const void *)(list + at);
		if (*entry->name >= '0' && *entry->name <= '9' && is_at_ours(atoi(entry->name)))
			close(atoi(entry->name));
	}
}

/* Reads the folder by system calls alone: the parent's other threads may have held any lock,
 * also malloc's.
 */
static void close_accepted(void)
{
	alignas(struct directory_entry) char list[4096];
	CLEANUP(close) int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	long n;

	while (folder >= 0 && (n = syscall(SYS_getdents64, folder, list, sizeof(list))) > 0)
		close_listed(list, n);
	for (unsigned i = 0; i < FORK_ADDRESSES_MAX; i++)
		atomic_store_explicit(&addresses[i], 0, memory_order_relaxed);
}

static void in_child(void)
{
	int saved = errno, n = atomic_load_explicit(&end, memory_order_relaxed);

	for (int fd = 0; fd < n; fd++)
		close_if_same(fd, &entries[fd]);
	if (any_address())
		close_accepted();
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

int fork_close_as(int fd, int copy)
{
	struct stat st;

	if (fd >= FORK_FD_MAX)
		return -ENFILE;
	if (fd < 0 || fstat(copy, &st))
		return -EBADF;
	pthread_once(&once, install);
	/* in this order: a fork meanwhile copies no inode, or one with its device */
	fork_forget(fd);
	atomic_store_explicit(&entries[fd].device, st.st_dev, memory_order_relaxed);
	atomic_store_explicit(&entries[fd].inode, st.st_ino, memory_order_release);
	reach(fd);
	return 0;
}

int fork_close(int fd)
{
	return fork_close_as(fd, fd);
}

void fork_forget(int fd)
{
	if (fd >= 0 && fd < FORK_FD_MAX)
		atomic_store_explicit(&entries[fd].inode, 0, memory_order_release);
}

static int replace(uint64_t from, uint64_t to)
{
	for (unsigned i = 0; i < FORK_ADDRESSES_MAX; i++) {
		uint64_t is = from;

		if (atomic_compare_exchange_strong(&addresses[i], &is, to))
			return 0;
	}
	return -ENFILE;
}

int fork_close_at(const char *address)
{
	uint64_t at = parse(address);

	pthread_once(&once, install);
	return at ? replace(0, at) : -EINVAL;
}

void fork_forget_at(const char *address)
{
	uint64_t at = parse(address);

	if (at)
		replace(at, 0);
}
