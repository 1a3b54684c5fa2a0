/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/memory/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE = 2 << 20 };

/* Copies the word in brackets of "always [madvise] never". */
static void chosen_word(const char *path, char *word, size_t size)
{
	FILE *file = fopen(path, "re");
	char line[128] = "", *open, *close_at;

	snprintf(word, size, "unknown");
	if (!file)
		return;
	if (fgets(line, sizeof(line), file) && (open = strchr(line, '[')) &&
	    (close_at = strchr(open, ']'))) {
		*close_at = '\0';
		snprintf(word, size, "%s", open + 1);
	}
	fclose(file);
}

void memory_huge_pages(char *anonymous, char *shared, size_t size)
{
	chosen_word("/sys/kernel/mm/transparent_hugepage/enabled", anonymous, size);
	chosen_word("/sys/kernel/mm/transparent_hugepage/shmem_enabled", shared, size);
}

static bool shared_memory_has_huge_pages(void)
{
	char anonymous[32], shared[32];

	memory_huge_pages(anonymous, shared, sizeof(shared));
	return !strcmp(shared, "advise") || !strcmp(shared, "always") ||
	       !strcmp(shared, "force") || !strcmp(shared, "within_size");
}

static uint64_t rounded(uint64_t bytes)
{
	return u64_div_ceil(u64_max(bytes, 1), HUGE) * HUGE;
}

/* Reserves address space, aligned to HUGE; no memory is behind it yet. */
static void *reserve(uint64_t bytes)
{
	char *wide = mmap(NULL, bytes + HUGE, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uintptr_t skip;

	if (wide == MAP_FAILED)
		return NULL;
	skip = (HUGE - (uintptr_t)wide % HUGE) % HUGE;
	if (skip)
		munmap(wide, skip);
	munmap(wide + skip + bytes, HUGE - skip);
	return wide + skip;
}

/* Returns the memfd; -1: there is none.  The seal F_SEAL_FUTURE_WRITE forbids writable mappings
 * made after it, and so comes after ours.
 */
static int map_sealed_memfd(void *at, uint64_t bytes)
{
	int fd = memfd_create("fragfs", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)bytes) ||
	    mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
		    MAP_FAILED ||
	    fcntl(fd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)) {
		close(fd);
		return -1;
	}
	return fd;
}

int memory_alloc(uint64_t bytes, void **memory, int *fd)
{
	uint64_t size = rounded(bytes);
	void *at = size >= bytes ? reserve(size) : NULL;

	if (!at)
		return -ENOMEM;
	*fd = bytes >= HUGE && shared_memory_has_huge_pages() ? map_sealed_memfd(at, size) : -1;
	if (*fd < 0 && mmap(at, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
		munmap(at, size);
		return -ENOMEM;
	}
	if (bytes >= HUGE)
		madvise(at, size, MADV_HUGEPAGE);
	*memory = at;
	return 0;
}

void memory_free(void *memory, uint64_t bytes)
{
	if (memory)
		munmap(memory, rounded(bytes));
}

void *memory_for_copies(size_t bytes)
{
	enum { PAGE = 4096 };

	return aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
}

/* The kernel walks the remote ranges for us and says EFAULT where a load would have crashed. */
static int copy_own(const struct iovec *local, const struct iovec *remote, unsigned nremote,
		    size_t size, bool write)
{
	ssize_t n = write ? process_vm_writev(getpid(), local, 1, remote, nremote, 0)
			  : process_vm_readv(getpid(), local, 1, remote, nremote, 0);

	if (n < 0)
		return -errno;
	return (size_t)n == size ? 0 : -EFAULT;
}

int memory_read_own(void *to, const struct iovec *from, unsigned nfrom, size_t size)
{
	return copy_own(&(struct iovec){ to, size }, from, nfrom, size, false);
}

int memory_write_own(const struct iovec *to, unsigned nto, const void *from, size_t size)
{
	struct iovec local = { (void *)(uintptr_t)from, size };

	return copy_own(&local, to, nto, size, true);
}

/* Reads a byte of each page of [at, at + size). */
static int probe_range(uintptr_t at, size_t size)
{
	enum { PAGE = 4096, ONCE = 256 };
	struct iovec bytes[ONCE];
	uint8_t read[ONCE];
	uintptr_t end = at + size;
	unsigned n = 0;
	int rc = 0;

	for (; at < end && !rc; at = (at / PAGE + 1) * PAGE) {
		bytes[n++] = (struct iovec){ (void *)at, 1 };
		if (n == ONCE || end - at <= PAGE - at % PAGE) {
			rc = memory_read_own(read, bytes, n, n);
			n = 0;
		}
	}
	return rc;
}

int memory_probe_own(const struct iovec *at, unsigned n)
{
	int rc = 0;

	for (unsigned i = 0; i < n && !rc; i++)
		rc = probe_range((uintptr_t)at[i].iov_base, at[i].iov_len);
	return rc;
}
