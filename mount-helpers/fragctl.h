/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_FRAGCTL_H
#define MOUNT_HELPERS_FRAGCTL_H

/* The parts of fragctl.  On an error `why` (whysize bytes) has one line; a result NULL is an
 * error.
 */

#include "engine/engine.h"

#include <jansson.h>
#include <stdio.h>

struct call;

/* ---- the text files of a mount (mount-file.c) ---- */

/* Reads all of a file; the caller frees *text.  -EFBIG: it has 64 MiB or more. */
int mount_file_read(const char *mountpoint, const char *name, char **text);
/* Reads the file's first line, cut to size. */
int mount_file_value(const char *mountpoint, const char *name, char *value, size_t size);

/* ---- mounts of fragfs, in a table like /proc/self/mounts (mounts.c) ---- */

struct mount_entry {
	char *mountpoint;
	char *source;
};

/* Fills *entries, which mounts_free frees.  Returns how many; -ENOMEM. */
int mounts_read(FILE *table, struct mount_entry **entries);
/* Reads this process's table. */
int mounts_read_own(struct mount_entry **entries);
void mounts_free(struct mount_entry *entries, int n);
/* Writes the mount that is named or, with NULL, the only one.  -ENOENT: there is none, or there
 * are several; a line was printed.
 */
int mounts_find(const char *named, char *out, size_t size);

/* ---- fragctl status of one job, through a mount or from the job itself (status.c) ---- */

struct status {
	char *mountpoint; /* NULL: read from the job */
	char *source;
	char job[128];
	char phase[16];
	uint64_t step;
	uint64_t generation;
	uint64_t nparams;
	struct engine_rank *ranks;
	uint32_t nranks;
	uint64_t nwaiting; /* reads of the mount that wait for a rank which is behind */
	char *waiting;     /* the first of them, as .frag/inflight has it; NULL: none */
	uint64_t nediting; /* edits of the mount, which wait for ranks and their boundary */
	char *editing;     /* the first of them; NULL: none */
};

/* Both fill *s; after an error *s needs no status_fini. */
int status_of_mount(struct status *s, const char *mountpoint, const char *source, char *why,
		    size_t whysize);
int status_of_job(struct status *s, const char *address, char *why, size_t whysize);
void status_fini(struct status *s);

/* status-show.c */
/* Returns the exit status. */
int status_print(const struct status *s, const struct call *call);
json_t *status_json(const struct status *s);

/* ---- fragctl status of a mounted checkpoint (checkpoint-status.c) ---- */

/* Returns true if a checkpoint is mounted there. */
bool checkpoint_status_is(const char *mountpoint);
int checkpoint_status_print(const char *mountpoint, FILE *to, char *why, size_t whysize);
json_t *checkpoint_status_json(const char *mountpoint, char *why, size_t whysize);

/* ---- the settings of this machine that decide how fast a mount is (machine.c) ---- */

struct machine {
	char huge_pages[16]; /* transparent_hugepage/enabled: "always", "madvise", "never" */
	char shared_huge_pages[16]; /* .../shmem_enabled; "-": the kernel has no such file */
	char yama[16];              /* ptrace_scope, "-": none */
	bool fuse;                  /* this user may open /dev/fuse */
};

void machine_read(struct machine *m);
/* Reads a setting of the kernel, as machine_chosen; "-": there is none. */
void machine_setting(const char *path, char *word, size_t size);
/* Copies the word in brackets of "always [madvise] never", or all of text when there is none.
 */
void machine_chosen(const char *text, char *word, size_t size);

#endif
