/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/table/folder.h"

#include "engine/base/log.h"
#include "engine/base/vec.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static bool is_plain(const char *name)
{
	for (const char *c = name; *c; c++)
		if (*c == '/' || iscntrl((unsigned char)*c))
			return false;
	return *name && strcmp(name, ".") && strcmp(name, "..") && strlen(name) <= NAME_MAX;
}

bool folder_ends_in(const char *name, const char *suffix)
{
	size_t length = strlen(name), end = strlen(suffix);

	return length > end && !strcmp(name + length - end, suffix);
}

/* ---- order ---- */

static size_t digits(const char *text)
{
	return strspn(text, "0123456789");
}

static int compare_numbers(const char **a, const char **b)
{
	size_t na, nb;
	int order;

	*a += strspn(*a, "0");
	*b += strspn(*b, "0");
	na = digits(*a);
	nb = digits(*b);
	if (na != nb)
		return na < nb ? -1 : 1;
	order = memcmp(*a, *b, na);
	*a += na;
	*b += nb;
	return order;
}

int folder_compare(const char *a, const char *b)
{
	const char *x = a, *y = b;

	while (*x && *y) {
		int order;

		if (isdigit((unsigned char)*x) && isdigit((unsigned char)*y)) {
			order = compare_numbers(&x, &y);
		} else {
			order = (unsigned char)*x - (unsigned char)*y;
			x++, y++;
		}
		if (order)
			return order;
	}
	return *x != *y ? (unsigned char)*x - (unsigned char)*y : strcmp(a, b);
}

static int compare_entries(const void *a, const void *b)
{
	return folder_compare(*(char *const *)a, *(char *const *)b);
}

/* ---- opening ---- */

static int add_name(struct folder *f, const char *name)
{
	if (f->count == FOLDER_ENTRIES_MAX)
		return -E2BIG;
	if (!vec_grow(&f->names, f->count, &f->room, sizeof(*f->names)))
		return -ENOMEM;
	f->names[f->count] = strdup(name);
	if (!f->names[f->count])
		return -ENOMEM;
	f->count++;
	return 0;
}

static int list(struct folder *f)
{
	int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	while (!rc && (entry = readdir(dir))) {
		if (is_plain(entry->d_name))
			rc = add_name(f, entry->d_name);
	}
	closedir(dir);
	if (f->count)
		qsort(f->names, f->count, sizeof(*f->names), compare_entries);
	return rc;
}

/* Refuses all but regular files.  O_NONBLOCK is for open(2) alone, which must not wait at a
 * FIFO: a read of a file of a mount of fragfs may wait for a rank.
 * -EINVAL: it is no regular file.
 */
static int take_regular(int fd, const struct stat *st)
{
	int flags;

	if (!S_ISREG(st->st_mode))
		return -EINVAL;
	flags = fcntl(fd, F_GETFL);
	return flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) ? -errno : 0;
}

/* Makes a folder of one file; the folder that the file is in is not read. */
static int open_one_file(struct folder *f, const char *path, int fd)
{
	const char *slash = strrchr(path, '/');

	f->only = strdup(slash ? slash + 1 : path);
	f->only_fd = fd;
	return f->only ? add_name(f, f->only) : -ENOMEM;
}

/* Takes fd. */
static int open_fd(struct folder **out, const char *path, int fd)
{
	struct folder *f = calloc(1, sizeof(*f));
	struct stat st;
	int rc;

	if (!f || fstat(fd, &st)) {
		rc = f ? -errno : -ENOMEM;
		close(fd);
		free(f);
		return rc;
	}
	f->fd = f->only_fd = -1;
	f->path = strdup(path);
	if (!f->path) {
		close(fd);
		rc = -ENOMEM;
	} else if (S_ISDIR(st.st_mode)) {
		f->fd = fd;
		rc = list(f);
	} else {
		rc = open_one_file(f, path, fd);
		if (!rc)
			rc = take_regular(fd, &st);
	}
	if (rc) {
		folder_close(f);
		return rc;
	}
	*out = f;
	return 0;
}

static int tell(const char *path, int error, char *why, size_t whysize)
{
	if (error == -E2BIG)
		snprintf(why, whysize, "%s has more than %d entries", path, FOLDER_ENTRIES_MAX);
	else if (error == -EINVAL)
		snprintf(why, whysize, "%s is neither a folder nor a regular file", path);
	else
		snprintf(why, whysize, "%s: %s", path, strerror(-error));
	return error;
}

int folder_open(struct folder **f, const char *path, char *why, size_t whysize)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int rc = fd < 0 ? -errno : open_fd(f, path, fd);

	return rc ? tell(path, rc, why, whysize) : 0;
}

int folder_open_below(struct folder **below, const struct folder *f, const char *name,
		      char *why, size_t whysize)
{
	CLEANUP(free) char *path = NULL;
	int fd, rc;

	if (asprintf(&path, "%s/%s", f->path, name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	if (f->only || !is_plain(name)) {
		snprintf(why, whysize, "%s: '%s' is no name of a folder in it", f->path, name);
		return -EINVAL;
	}
	fd = openat(f->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	rc = fd < 0 ? -errno : open_fd(below, path, fd);
	return rc ? tell(path, rc, why, whysize) : 0;
}

void folder_close(struct folder *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->count; i++)
		free(f->names[i]);
	free(f->names);
	if (f->fd >= 0)
		close(f->fd);
	if (f->only_fd >= 0)
		close(f->only_fd);
	free(f->only);
	free(f->path);
	free(f);
}

/* ---- files ---- */

void folder_raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		log_debug("RLIMIT_NOFILE stays: %s", strerror(errno));
}

bool folder_has(const struct folder *f, const char *name)
{
	return f->count &&
	       bsearch(&name, f->names, f->count, sizeof(*f->names), compare_entries);
}

static int open_name(const struct folder *f, const char *name)
{
	int fd;

	if (!is_plain(name))
		return -EINVAL;
	if (f->only && strcmp(name, f->only) != 0)
		return -ENOENT;
	if (f->only)
		fd = fcntl(f->only_fd, F_DUPFD_CLOEXEC, 3);
	else
		fd = openat(f->fd, name,
			    O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return fd < 0 ? -errno : fd;
}

int folder_open_file(const struct folder *f, const char *name, struct stat *st)
{
	int fd = open_name(f, name), rc = 0;

	if (fd < 0)
		return fd;
	if (fstat(fd, st))
		rc = -errno;
	else
		rc = take_regular(fd, st);
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

/* Takes the name up to a slash or the end.  Returns false if it is not plain. */
static bool next_name(const char **path, char name[NAME_MAX + 1])
{
	size_t length = strcspn(*path, "/");

	if (length > NAME_MAX)
		return false;
	memcpy(name, *path, length);
	name[length] = '\0';
	*path += length + ((*path)[length] == '/');
	return is_plain(name);
}

int folder_open_path(int dir, const char *path, int access, struct stat *st)
{
	const int common = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	CLEANUP(close) int below = -1;
	char name[NAME_MAX + 1];
	int fd = dir, rc;

	do {
		if (!next_name(&path, name))
			return -EINVAL;
		fd = openat(fd, name, common | (*path ? O_PATH | O_DIRECTORY : access));
		if (fd < 0)
			return -errno;
		if (below >= 0)
			close(below);
		below = fd;
	} while (*path);
	if (fstat(fd, st))
		return -errno;
	rc = take_regular(fd, st);
	if (rc)
		return rc;
	below = -1;
	return fd;
}

int folder_failed(const char *name, int error, char *why, size_t whysize)
{
	if (error == -ELOOP)
		snprintf(why, whysize,
			 "%s is a symbolic link, which is not followed; cp -rlL FOLDER NEW "
			 "makes "
			 "one of hard links, also of a Hugging Face cache",
			 name);
	else if (error == -EINVAL)
		snprintf(why, whysize, "%s is no name of a regular file there", name);
	else
		snprintf(why, whysize, "%s: %s", name, strerror(-error));
	return error;
}

int folder_read_text(const struct folder *f, const char *name, char text[FOLDER_TEXT_MAX])
{
	struct stat st;
	CLEANUP(close) int fd = folder_open_file(f, name, &st);
	ssize_t n;

	if (fd < 0)
		return fd;
	n = pread(fd, text, FOLDER_TEXT_MAX, 0);
	if (n < 0)
		return -errno;
	if (n == FOLDER_TEXT_MAX)
		return -EFBIG;
	while (n && isspace((unsigned char)text[n - 1]))
		n--;
	text[n] = '\0';
	return strlen(text) == (size_t)n ? 0 : -EINVAL;
}
