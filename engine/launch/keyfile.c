/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/launch/keyfile.h"

#include "engine/base/fd.h"
#include "engine/launch/job-folder.h"
#include "engine/launch/jobfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

static int write_key(const char *path, const uint8_t key[KEYFILE_BYTES])
{
	char text[2 * KEYFILE_BYTES + 2];
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600), rc;

	if (fd < 0)
		return -errno;
	for (int i = 0; i < KEYFILE_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", key[i]);
	text[2 * KEYFILE_BYTES] = '\n';
	/* fchmod: the umask may have cut the mode */
	rc = fchmod(fd, 0600) ? -errno : fd_write_all(fd, text, 2 * KEYFILE_BYTES + 1, 0);
	if (close(fd) && !rc)
		rc = -errno;
	if (rc)
		unlink(path);
	explicit_bzero(text, sizeof(text));
	return rc;
}

static int replace_key_of_dead(const char *job, const char *path,
			       const uint8_t key[KEYFILE_BYTES])
{
	struct jobfile j;

	if (!jobfile_find(job, &j))
		return -EEXIST;
	if (unlink(path) && errno != ENOENT)
		return -errno;
	return write_key(path, key);
}

int keyfile_create(const char *job, const char *path, char *path_out, size_t size,
		   uint8_t key[KEYFILE_BYTES])
{
	char usual[JOB_PATH];
	int rc = path ? 0 : job_folder_path(job, ".key", usual);

	if (rc)
		return rc;
	if (strlen(path ? path : usual) >= size)
		return -ENAMETOOLONG;
	if (getrandom(key, KEYFILE_BYTES, 0) != KEYFILE_BYTES)
		return -errno;
	CLEANUP(close) int lock = path ? -1 : job_folder_lock();
	(void)lock; /* until return; without it (-1) the key is written all the same */
	if (!path)
		jobfile_drop_dead(job);
	rc = write_key(path ? path : usual, key);
	if (rc == -EEXIST && !path)
		rc = replace_key_of_dead(job, usual, key);
	if (!rc)
		snprintf(path_out, size, "%s", path ? path : usual);
	return rc;
}

static bool decode_hex(const char *text, uint8_t key[KEYFILE_BYTES])
{
	for (int i = 0; i < KEYFILE_BYTES; i++) {
		int high = hex_digit(text[2 * i]),
		    low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);

		if (low < 0)
			return false;
		key[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

static bool decode_key(const char *text, size_t size, uint8_t key[KEYFILE_BYTES])
{
	uint8_t decoded[KEYFILE_BYTES];
	size_t digits = 2 * KEYFILE_BYTES;

	if (size == KEYFILE_BYTES)
		memcpy(decoded, text, size);
	else if (!(size == digits || (size == digits + 1 && text[digits] == '\n')) ||
		 !decode_hex(text, decoded))
		return false;
	memcpy(key, decoded, sizeof(decoded));
	explicit_bzero(decoded, sizeof(decoded));
	return true;
}

int keyfile_load(const char *path, uint8_t key[KEYFILE_BYTES], bool *readers, char *why,
		 size_t whysize)
{
	static const char mark[] = "readers ";
	char text[256];
	ssize_t n = job_folder_read(path, 077, text, sizeof(text));
	bool marked = n > 0 && !strncmp(text, mark, strlen(mark));
	size_t skip = marked ? strlen(mark) : 0;
	int rc = n < 0 ? (int)n : 0;

	if (!rc && marked && !readers)
		rc = -EPERM;
	if (!rc && !decode_key(text + skip, (size_t)n - skip, key))
		rc = -EINVAL;
	if (!rc && readers)
		*readers = marked;
	explicit_bzero(text, sizeof(text));
	if (rc == -EPERM)
		snprintf(why, whysize, "key file %s: it is for readers only", path);
	else if (rc == -EACCES)
		snprintf(why, whysize,
			 "key file %s: others may read it, or it is another user's", path);
	else if (rc == -EISDIR)
		snprintf(why, whysize, "key file %s: it is a folder", path);
	else if (rc == -EINVAL)
		snprintf(why, whysize,
			 "key file %s: not a regular file of 32 bytes, or of 64 hexadecimal "
			 "digits",
			 path);
	else if (rc)
		snprintf(why, whysize, "key file %s: %s", path, strerror(-rc));
	return rc == -EPERM ? -EACCES : rc == -EISDIR ? -EINVAL : rc;
}
