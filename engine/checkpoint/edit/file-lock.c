/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/edit/file-lock.h"

#include "engine/base/log.h"
#include "engine/checkpoint/table/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum { TOLD_BEHIND_MS = 300 }; /* a wait that takes longer is logged */

/* Finds the holder in /proc/locks.  A lock of another host, or of a process in another PID
 * namespace, has no line there, or none with a process.
 */
struct file_lock_holder file_lock_holder(int fd)
{
	struct file_lock_holder holder = { 0, "another process" };
	FILE *locks = fopen("/proc/locks", "re");
	char line[256]; /* "1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF" */
	unsigned major, minor;
	unsigned long inode;
	struct stat st;
	int pid;

	while (locks && !fstat(fd, &st) && fgets(line, sizeof(line), locks)) {
		if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%lu", &pid, &major, &minor,
			   &inode) != 4 ||
		    pid <= 0 || major != major(st.st_dev) || minor != minor(st.st_dev) ||
		    inode != st.st_ino)
			continue;
		holder.pid = pid;
		snprintf(holder.name, sizeof(holder.name), "process %d", pid);
		break;
	}
	if (locks)
		fclose(locks);
	return holder;
}

int file_lock_wait(int fd, int how, uint64_t until_ms, const char *name)
{
	/* flock has no timeout: it is tried every 10 ms */
	const struct timespec pause = { .tv_nsec = 10000000 };
	uint64_t since = monotonic_ms(), now;
	bool told = false;

	while (flock(fd, how | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		now = monotonic_ms();
		if (now >= until_ms || file_lock_holder(fd).pid == getpid())
			return -EBUSY;
		if (!told && now - since >= TOLD_BEHIND_MS) {
			log_warn("waiting for %s, which has %s locked",
				 file_lock_holder(fd).name, name);
			told = true;
		}
		nanosleep(&pause, NULL);
	}
	return 0;
}

/* ---- files that were mounted ---- */

static bool is_same(const struct table_file *f, const struct stat *st)
{
	return st->st_dev == f->dev && st->st_ino == f->ino && (uint64_t)st->st_size == f->size;
}

static int tell_stale(struct table_file *f)
{
	if (!atomic_exchange(&f->told, true))
		log_warn("%s was replaced or changed since it was mounted: %s", f->name,
			 strerror(ESTALE));
	return -ESTALE;
}

int file_lock_check(struct table_file *f)
{
	struct stat st;

	if (fstat(f->fd, &st))
		return -errno;
	if (!st.st_nlink || (uint64_t)st.st_size != f->size ||
	    st.st_mtim.tv_sec != f->mtime.tv_sec || st.st_mtim.tv_nsec != f->mtime.tv_nsec)
		return tell_stale(f);
	return 0;
}

int file_lock_check_name(struct table_file *f, int dir)
{
	struct stat st;
	CLEANUP(close) int fd = folder_open_path(dir, f->name, O_RDONLY, &st);

	if (fd < 0 || !is_same(f, &st) || st.st_nlink != 1)
		return tell_stale(f);
	return file_lock_check(f);
}

int file_lock_renew(struct table_file *f)
{
	struct stat st;

	if (fstat(f->fd, &st))
		return -errno;
	if (!is_same(f, &st))
		return -ESTALE;
	f->mtime = st.st_mtim;
	f->changed_ns = timespec_ns(&st.st_mtim);
	return 0;
}

/* ---- locks of all files ---- */

static int refuse(const struct table_file *f, int rc, char *why, size_t whysize,
		  const char *what)
{
	snprintf(why, whysize, "%s %s", f->name, what);
	return rc;
}

static int refuse_holder(const struct table_file *f, char *why, size_t whysize, const char *how,
			 const char *so)
{
	snprintf(why, whysize, "%s is mounted%s by %s, %s", f->name, how,
		 file_lock_holder(f->fd).name, so);
	return -EBUSY;
}

/* Checks, under its lock, that the file is still the one that was opened. */
static int renew(struct table_file *f, char *why, size_t whysize)
{
	int rc = file_lock_renew(f);

	return rc ? refuse(f, rc, why, whysize,
			   rc == -ESTALE ? "was replaced meanwhile" : strerror(-rc))
		  : 0;
}

int file_lock_to_read(struct table *t, char *why, size_t whysize)
{
	uint64_t until = monotonic_ms() + FILE_LOCK_MS;
	bool told = false;
	int rc = 0;

	for (uint32_t i = 0; i < t->nfiles && !rc; i++) {
		struct table_file *f = &t->files[i];

		rc = file_lock_wait(f->fd, LOCK_SH, until, f->name);
		if (rc == -EBUSY)
			return refuse_holder(f, why, whysize, " with -o rw",
					     "which may change it");
		if (rc && !told)
			log_info("%s cannot be locked: %s", f->name, strerror(-rc));
		told = told || rc;
		rc = renew(f, why, whysize);
	}
	return rc;
}

static int reopen(struct table_file *f, int dir, char *why, size_t whysize)
{
	struct stat st;
	int fd = folder_open_path(dir, f->name, O_RDWR, &st);

	if (fd < 0)
		return folder_failed(f->name, fd, why, whysize);
	close(f->fd);
	f->fd = fd;
	if (st.st_nlink != 1)
		return refuse(
			f, -EMLINK, why, whysize,
			"has hard links: an edit would change them too (cp makes a file of "
			"its own)");
	return 0;
}

static int lock(struct table_file *f, uint64_t until_ms, char *why, size_t whysize)
{
	int rc = file_lock_wait(f->fd, LOCK_EX, until_ms, f->name);

	if (rc == -EBUSY)
		return refuse_holder(f, why, whysize, "", "so that it cannot be edited");
	if (rc)
		snprintf(why, whysize, "%s cannot be locked, so that it cannot be edited: %s",
			 f->name, strerror(-rc));
	return rc;
}

int file_lock_to_write(struct table *t, int dir, char *why, size_t whysize)
{
	uint64_t until = monotonic_ms() + FILE_LOCK_MS;
	int rc = 0;

	for (uint32_t i = 0; i < t->nfiles && !rc; i++) {
		struct table_file *f = &t->files[i];

		rc = reopen(f, dir, why, whysize);
		if (!rc)
			rc = lock(f, until, why, whysize);
		if (!rc)
			rc = renew(f, why, whysize);
	}
	return rc;
}

void file_lock_drop(struct table *t)
{
	for (uint32_t i = 0; i < t->nfiles; i++)
		flock(t->files[i].fd, LOCK_UN);
}
