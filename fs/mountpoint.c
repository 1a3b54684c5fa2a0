/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/mountpoint.h"

#include "engine/base/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <mntent.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int fail(int error, char *why, size_t size, const char *fmt, ...) PRINTF(4, 5);
static int fail(int error, char *why, size_t size, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, size, fmt, ap);
	va_end(ap);
	return -error;
}

/* Makes the path absolute, the caller's to free.  If a dead mount is on it, realpath(3)
 * resolves only the folder above.  NULL: see errno.
 */
static char *absolute(const char *given)
{
	char *copy = strdup(given), *copy2 = strdup(given), *whole = realpath(given, NULL);
	char *dir = NULL;

	if (!whole && errno == ENOTCONN && copy && copy2)
		dir = realpath(dirname(copy), NULL);
	if (dir && asprintf(&whole, "%s/%s", strcmp(dir, "/") ? dir : "", basename(copy2)) < 0)
		whole = NULL;
	free(dir);
	free(copy);
	free(copy2);
	return whole;
}

/* Gives the type of the file system that was mounted last on the path; false: none is mounted.
 */
static bool mounted_type(const char *path, char *type, size_t size)
{
	FILE *table = setmntent("/proc/self/mounts", "re");
	char line[4 * PATH_MAX];
	struct mntent m;
	bool found = false;

	while (table && getmntent_r(table, &m, line, sizeof(line))) {
		if (strcmp(m.mnt_dir, path) != 0)
			continue;
		snprintf(type, size, "%s", m.mnt_type);
		found = true;
	}
	if (table)
		endmntent(table);
	return found;
}

static int run_fusermount(const char *path)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		execlp("fusermount3", "fusermount3", "-u", "-q", "-z", "--", path,
		       (char *)NULL);
		_exit(127);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return pid > 0 && WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EBUSY;
}

static int clean_stale(const char *path, char *why, size_t size)
{
	if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) && run_fusermount(path))
		return fail(EBUSY, why, size,
			    "%s: a dead mount is in the way: fusermount3 -u %s", path, path);
	return 0;
}

/* Unmounts a dead mount.  -EBUSY: a live one is there. */
static int check_free(const char *path, char *why, size_t size)
{
	char type[128];

	if (!mounted_type(path, type, sizeof(type)))
		return 0;
	if (!strncmp(type, "fuse", 4) && mount_is_dead(path))
		return clean_stale(path, why, size);
	if (!strcmp(type, "fuse.fragfs"))
		return fail(EBUSY, why, size, "%s: already mounted by fragfs", path);
	return fail(EBUSY, why, size, "%s: busy, a %s file system is mounted there", path,
		    type);
}

static int check_directory(const char *path, char *why, size_t size)
{
	struct stat st;

	if (stat(path, &st))
		return fail(errno, why, size, "mountpoint %s: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return fail(ENOTDIR, why, size, "mountpoint %s: not a directory", path);
	return 0;
}

int mountpoint_prepare(const char *given, char **path, char *why, size_t whysize)
{
	char *whole = absolute(given);
	int rc;

	if (!whole)
		return fail(errno, why, whysize, "mountpoint %s: %s", given, strerror(errno));
	rc = check_free(whole, why, whysize);
	if (!rc)
		rc = check_directory(whole, why, whysize);
	if (rc)
		free(whole);
	else
		*path = whole;
	return rc;
}

int mountpoint_check_device(char *why, size_t whysize)
{
	CLEANUP(close) int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return 0;
	if (errno == ENOENT)
		return fail(
			ENOENT, why, whysize,
			"/dev/fuse is missing: load the module (modprobe fuse), or give it to "
			"the container (--device /dev/fuse)");
	return fail(errno, why, whysize, "/dev/fuse: %s", strerror(errno));
}
