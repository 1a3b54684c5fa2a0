/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_TABLE_FOLDER_H
#define ENGINE_CHECKPOINT_TABLE_FOLDER_H

/* A folder of a checkpoint, or one file, seen by the plain names in it.  Only regular files
 * right in it are opened, and no symbolic link is followed; the path that the user gave may
 * lead through some.
 */

#include "engine/base/base.h"

#include <sys/stat.h>

enum { FOLDER_ENTRIES_MAX = 1 << 17, FOLDER_TEXT_MAX = 4096 };

struct folder {
	int fd;
	char *path;   /* as the user gave it, for people */
	char *only;   /* the one file; NULL: a folder */
	int only_fd;  /* -1: a folder */
	char **names; /* [count], of all that is in it; in the order of folder_compare */
	size_t count;
};

/* -ENOENT, -ENOTDIR, -EACCES, -E2BIG: too many entries, -EINVAL: neither file nor folder. */
int folder_open(struct folder **f, const char *path, char *why, size_t whysize);
void folder_close(struct folder *f);

/* A folder in it.  -EINVAL: no plain name; as openat. */
int folder_open_below(struct folder **below, const struct folder *f, const char *name,
		      char *why, size_t whysize);

/* "model.safetensors", not "a/b", "", ".", "..", nor with control characters: names are in
 * lines of text.
 */
bool folder_is_plain(const char *name);
/* "model.safetensors" in ".safetensors"; not that alone. */
bool folder_ends_in(const char *name, const char *suffix);
bool folder_has(const struct folder *f, const char *name);

/* An fd for reading.  -EINVAL: no plain name, no regular file; -ELOOP: a link; -ENOENT and so
 * on.
 */
int folder_open_file(const struct folder *f, const char *name, struct stat *st);
/* The same below an open folder, by a path like "zero/w/fp32.pt": plain names, none of them a
 * link. access: O_RDONLY or O_RDWR.
 */
int folder_open_path(int dir, const char *path, int access, struct stat *st);
/* What went wrong with a file, as a line, and error again. */
int folder_failed(const char *name, int error, char *why, size_t whysize);

/* All of a small text, such as `latest`, NUL-terminated, white space at its end cut off.
 * -EFBIG.
 */
int folder_read_text(const struct folder *f, const char *name, char text[FOLDER_TEXT_MAX]);

/* Files stay open: as many as this process may have. */
void folder_raise_limit(void);

/* As strcmp, but numbers by their value: rank 9 before 10. */
int folder_compare(const char *a, const char *b);

#endif
