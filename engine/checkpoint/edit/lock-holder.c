/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/edit/lock-holder.h"

#include "engine/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum { TOLD_BEHIND_MS = 300 };

/* A line of /proc/locks: "1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF".  A lock of another
 * host, or of a process in another PID namespace, has no line, or none with a process.
 */
static bool holds(const char *line, const struct stat *st, int *pid)
{
	unsigned major, minor;
	unsigned long inode;

	return sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%lu", pid, &major, &minor, &inode) ==
		       4 &&
	       *pid > 0 && major == major(st->st_dev) && minor == minor(st->st_dev) &&
	       inode == st->st_ino;
}

struct lock_holder lock_holder(int fd)
{
	struct lock_holder holder = { 0, "another process" };
	FILE *locks = fopen("/proc/locks", "re");
	char line[256];
	struct stat st;
	int pid;

	while (locks && !fstat(fd, &st) && fgets(line, sizeof(line), locks)) {
		if (!holds(line, &st, &pid))
			continue;
		holder.pid = pid;
		snprintf(holder.name, sizeof(holder.name), "process %d", pid);
		break;
	}
	if (locks)
		fclose(locks);
	return holder;
}

int lock_wait(int fd, int how, uint64_t until_ms, const char *name)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	uint64_t since = monotonic_ms(), now;
	bool told = false;

	while (flock(fd, how | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		now = monotonic_ms();
		if (now >= until_ms || lock_holder(fd).pid == getpid())
			return -EBUSY;
		if (!told && now - since >= TOLD_BEHIND_MS) {
			log_warn("waiting for %s, which has %s locked", lock_holder(fd).name,
				 name);
			told = true;
		}
		nanosleep(&pause, NULL);
	}
	return 0;
}
