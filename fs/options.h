/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_OPTIONS_H
#define FS_OPTIONS_H

/* The command line: fragfs SOURCE MOUNTPOINT [-f] [-d] [-o OPTIONS].  In OPTIONS a comma or a
 * backslash that belongs to a value is written with a backslash before it.
 */

#include "engine/base/base.h"

#include <stdio.h>

enum { OPTIONS_TIMEOUT_MS = 10000, OPTIONS_MAX = 64 };
#define OPTIONS_STAGE_MEM ((uint64_t)1 << 30)

struct options {
	const char *source; /* borrowed from argv */
	const char *mountpoint;
	bool help, version, foreground, debug;
	bool writable;
	bool local;     /* states of one rank are writable too */
	bool read_only; /* "ro" was given */
	bool plain, readahead_off, coherent;
	bool plain_words; /* "--" was given: the words behind it are no options */
	/* Owned: each option as it was given last, by its row of the table; NULL: not given */
	char *given[OPTIONS_MAX];
	unsigned timeout_ms;
	unsigned max_read;  /* bytes; 0: not given */
	uint64_t stage_mem; /* bytes */
	char *key;          /* owned, as all below; NULL: not given */
	char *transport;
	char *gather;
	char *format;  /* of a checkpoint */
	char *overlay; /* of a checkpoint: a folder */
	char *fsname;
	char *passed; /* options for libfuse: "allow_other,noatime"; "": none */
};

/* -EINVAL: why has one line. */
int options_parse(struct options *o, int argc, char **argv, char *why, size_t whysize);
void options_fini(struct options *o);

/* Writes the names of options that were given but mean nothing for a job (live), or for a
 * checkpoint: "gather,timeout"; "": none.
 */
void options_without_effect(const struct options *o, bool live, char *names, size_t size);

/* Returns a line, which the caller frees: "rw" or "ro", and the options that were given, as
 * /proc/mounts has them: comma, blanks and backslash of a value in octal.  NULL: no memory.
 */
char *options_text(const struct options *o);

/* Prints what --help prints, from the table of options. */
void options_help(FILE *out, const char *program);

#endif
