/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/launch/job-folder.h"

#include "engine/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum {
	LOCK_TRIES = 100, /* a second in all: a stopped process with the lock stops no other */
	LOCK_RETRY_US = 10000,
};

static bool is_mine(const struct stat *st)
{
	return st->st_uid == geteuid();
}

/* Makes the folder if it is missing.  chmod: the umask cuts mkdir's mode. */
static int make_folder(const char *path)
{
	if (mkdir(path, 0700))
		return errno == EEXIST ? 0 : -errno;
	return chmod(path, 0700) ? -errno : 0;
}

static int own_folder(const char *path)
{
	struct stat st;
	int rc = make_folder(path);

	if (rc)
		return rc;
	if (lstat(path, &st))
		return -errno;
	return S_ISDIR(st.st_mode) && is_mine(&st) && !(st.st_mode & 022) ? 0 : -EACCES;
}

static bool is_my_folder(const char *path)
{
	struct stat st;

	return path && *path == '/' && !stat(path, &st) && S_ISDIR(st.st_mode) && is_mine(&st);
}

static int find_home(char home[JOB_FOLDER])
{
	const char *text = getenv("HOME");
	struct passwd entry, *found = NULL;
	char room[4096];

	if (!is_my_folder(text)) { /* sudo leaves HOME as it was, another user's */
		if (getpwuid_r(geteuid(), &entry, room, sizeof(room), &found) || !found)
			return -ENOENT;
		text = found->pw_dir;
	}
	if (!is_my_folder(text))
		return -ENOENT;
	return snprintf(home, JOB_FOLDER, "%s", text) < 1024 ? 0 : -ENAMETOOLONG;
}

int job_folder(char folder[JOB_FOLDER])
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char home[JOB_FOLDER];
	int rc;

	if (is_my_folder(runtime) && strlen(runtime) < 1024) {
		snprintf(folder, JOB_FOLDER, "%s/fragfs", runtime);
		return own_folder(folder);
	}
	rc = find_home(home);
	if (rc)
		return rc;
	snprintf(folder, JOB_FOLDER, "%.1024s/.cache", home);
	rc = make_folder(folder);
	if (rc)
		return rc;
	snprintf(folder, JOB_FOLDER, "%.1024s/.cache/fragfs", home);
	return own_folder(folder);
}

int job_folder_path(const char *job, const char *suffix, char path[JOB_PATH])
{
	char folder[JOB_FOLDER];
	int rc;

	if (!*job || *job == '.' || strchr(job, '/') || strlen(job) > 127)
		return -EINVAL;
	rc = job_folder(folder);
	if (!rc)
		snprintf(path, JOB_PATH, "%s/%s%s", folder, job, suffix);
	return rc;
}

int job_folder_lock(void)
{
	char folder[JOB_FOLDER];
	int fd = job_folder(folder) ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (int i = 0; fd >= 0 && i < LOCK_TRIES; i++) {
		if (!flock(fd, LOCK_EX | LOCK_NB))
			return fd;
		usleep(LOCK_RETRY_US);
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

/* ---- files that only this user may have written ---- */

ssize_t job_folder_read(const char *path, mode_t forbidden, char *text, size_t size)
{
	/* O_NONBLOCK, O_NOCTTY: a FIFO or a terminal there neither blocks open nor is taken */
	CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	size_t n = 0;

	if (fd < 0 || fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	if (!is_mine(&st) || st.st_mode & forbidden)
		return -EACCES;
	while (n < size) {
		ssize_t got = read(fd, text + n, size - n);

		if (got < 0 && errno != EINTR)
			return -errno;
		if (!got)
			break;
		n += got > 0 ? (size_t)got : 0;
	}
	if (n == size)
		return -EINVAL;
	text[n] = '\0';
	return (ssize_t)n;
}

int job_folder_write(const char *path, const char *text, size_t size)
{
	char draft[JOB_FOLDER + 200];
	int fd, rc;

	if (snprintf(draft, sizeof(draft), "%s.XXXXXX", path) >= (int)sizeof(draft))
		return -ENAMETOOLONG;
	fd = mkostemp(draft, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* fchmod: the umask may have cut the mode */
	rc = fchmod(fd, 0600) ? -errno : fd_write_all(fd, text, size, 0);
	if (close(fd) && !rc)
		rc = -errno;
	if (!rc && rename(draft, path))
		rc = -errno;
	if (rc)
		unlink(draft);
	return rc;
}
