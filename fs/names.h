/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_NAMES_H
#define FS_NAMES_H

/* File names of parameters and keys.
 *
 *	layers.0.mlp.up.weight, no coordinate	layers.0.mlp.up.weight
 *	a/b, coordinate tp=1			a%2Fb@tp=1
 *	.. 					%2E%2E
 *	longer than 255 bytes			its beginning, '~', 16 hex digits of its hash
 *
 * Escapes are reversible; a shortened name is not, its whole form is an xattr.
 */

#include "engine/base/base.h"

enum { NAMES_FILE_MAX = 255 };

/* Writes the escaped form of `name`, NUL-terminated and cut to size, into out, and returns the
 * length of the uncut form.  Escapes '/', '%', '@', and the names "", "." and "..".
 */
size_t names_escape(const char *name, char *out, size_t size);

/* Does as names_escape, and escapes the first byte too: for a key that is the name of another
 * file of the directory.
 */
size_t names_escape_first(const char *name, char *out, size_t size);

/* Returns a hash of the text, whose low bits alone will do for a table. */
uint64_t names_hash(const char *text, uint64_t seed);

struct names {
	uint32_t count;
	uint32_t mask;   /* of slots, a power of two - 1 */
	uint32_t *slots; /* by hash: number + 1; 0: empty */
	/* [count]; a name that needs no escape is the source's own memory */
	const char **files;
	char *block; /* memory of the other file names */
};

/* Gives the name and the coordinate ("" : none) of number; both must live as long as names. */
typedef void (*names_source)(void *arg, uint32_t number, const char **name,
			     const char **coordinate);

/* -ENOMEM. */
int names_init(struct names *n, uint32_t count, names_source source, void *arg);
void names_fini(struct names *n);

/* Returns the number of a file name.
 * -ENOENT: there is no such file name.
 */
int64_t names_find(const struct names *n, const char *file);

/* Returns the file name of number, which is less than count. */
const char *names_get(const struct names *n, uint32_t number);

#endif
