/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/base.h"
#include "mount-helpers/mount-file.h"
#include "mount-helpers/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 64 << 20 }; /* the texts of 65536 ranks fit */

int mount_file_read(const char *mountpoint, const char *name, char **text)
{
	char path[PATH_MAX];
	size_t size = 0, room = 4096;
	char *buffer = malloc(room + 1), *grown;
	int fd CLEANUP(close) = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%s", mountpoint, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || !buffer)
		goto fail;
	while ((n = read(fd, buffer + size, room - size)) > 0) {
		size += (size_t)n;
		if (size < room)
			continue;
		room *= 2;
		errno = EFBIG;
		grown = room <= TEXT_MAX ? realloc(buffer, room + 1) : NULL;
		if (!grown)
			goto fail;
		buffer = grown;
	}
	if (n < 0)
		goto fail;
	buffer[size] = '\0';
	*text = buffer;
	return 0;
fail:
	n = -errno;
	free(buffer);
	return (int)n;
}

int mount_file_value(const char *mountpoint, const char *name, char *value, size_t size)
{
	char *text;
	int e = mount_file_read(mountpoint, name, &text);

	if (e)
		return e;
	text[strcspn(text, "\n")] = '\0';
	snprintf(value, size, "%s", text);
	free(text);
	return 0;
}

void mount_file_setting(const char *mountpoint, const char *name, const char *key, char *value,
			size_t size)
{
	CLEANUP(free) char *text = NULL;
	size_t length = strlen(key);
	char *line, *rest;

	*value = '\0';
	if (mount_file_read(mountpoint, name, &text))
		return;
	line = strtok_r(text, "\n", &rest);
	while (line && (strncmp(line, key, length) || line[length] != ' '))
		line = strtok_r(NULL, "\n", &rest);
	if (line)
		snprintf(value, size, "%s", line + length + 1);
}

int mount_file_order(int fd, const char *line)
{
	size_t length = strlen(line);
	struct progress progress;
	ssize_t n;
	int rc;

	progress_begin(&progress, "waiting for the ranks");
	n = write(fd, line, length);
	rc = n < 0 ? -errno : (size_t)n == length ? 0 : -EIO;
	progress_end(&progress);
	return rc;
}
