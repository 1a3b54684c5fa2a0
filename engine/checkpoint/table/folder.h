/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_TABLE_FOLDER_H
#define ENGINE_CHECKPOINT_TABLE_FOLDER_H

/* A checkpoint's folder, or its one file, and the names in it.  Only regular files right in the
 * folder are opened, and no symbolic link is followed; the path that the user gave may lead
 * through links.
 */

#include "engine/base/base.h"

#include <sys/stat.h>

enum { FOLDER_ENTRIES_MAX = 1 << 17, FOLDER_TEXT_MAX = 4096 };

struct folder {
	int fd;
	char *path;   /* as the user gave it, for people */
	char *only;   /* the one file; NULL: a folder */
	int only_fd;  /* -1: a folder */
	char **names; /* [count], of all entries, in the order of folder_compare */
	uint32_t count, room;
};

/* Opens the folder or file at `path`.
 * -E2BIG: the folder has more than FOLDER_ENTRIES_MAX entries.
 * -EINVAL: the path leads to neither a file nor a folder.
 * Errors of open(2).
 */
int folder_open(struct folder **f, const char *path, char *why, size_t whysize);
void folder_close(struct folder *f);

/* Opens a folder in the folder.  Names must be plain: "model.safetensors", but not "a/b", "",
 * ".", "..", nor one with control characters, since names are printed in lines of text.
 * -EINVAL: the name is not plain.
 * Errors of openat(2).
 */
int folder_open_below(struct folder **below, const struct folder *f, const char *name,
		      char *why, size_t whysize);

/* "model.safetensors" ends in ".safetensors"; ".safetensors" alone does not. */
bool folder_ends_in(const char *name, const char *suffix);
bool folder_has(const struct folder *f, const char *name);

/* Opens a file for reading; returns its fd.
 * -EINVAL: the name is not plain, or the file not regular.
 * -ELOOP: a symbolic link.
 * Errors of openat(2).
 */
int folder_open_file(const struct folder *f, const char *name, struct stat *st);
/* Opens a file below the folder `dir` by a path of plain names, such as "zero/w/fp32.pt", none
 * of which may be a symbolic link.  access: O_RDONLY or O_RDWR.  Errors of folder_open_file().
 */
int folder_open_path(int dir, const char *path, int access, struct stat *st);
/* Prints what went wrong with a file to `why`; returns error. */
int folder_failed(const char *name, int error, char *why, size_t whysize);

/* Reads a small text file, such as `latest`, without white space at its end; NUL-terminated.
 * -EFBIG: the file has FOLDER_TEXT_MAX bytes or more.
 * -EINVAL: the text has a NUL.
 * Errors of folder_open_file().
 */
int folder_read_text(const struct folder *f, const char *name, char text[FOLDER_TEXT_MAX]);

/* Raises the limit of open files to the hard limit: a table keeps all its files open. */
void folder_raise_limit(void);

/* Compares as strcmp(), but numbers by their value: rank9 comes before rank10. */
int folder_compare(const char *a, const char *b);

#endif
