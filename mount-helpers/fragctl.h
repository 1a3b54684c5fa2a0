/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_FRAGCTL_H
#define MOUNT_HELPERS_FRAGCTL_H

/* The parts of fragctl.  On an error `why` (whysize bytes) has one line; a result NULL is an
 * error.
 */

#include "engine/engine.h"

#include <jansson.h>
#include <stdio.h>

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
void mounts_free(struct mount_entry *entries, int n);

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
void status_print(const struct status *s, FILE *to);
json_t *status_json(const struct status *s);
/* Writes bytes as 1.5G, 12M or 900B, and returns text. */
const char *status_size(uint64_t bytes, char text[16]);

/* ---- fragctl status of a mounted checkpoint (checkpoint-status.c) ---- */

/* Returns true if a checkpoint is mounted there. */
bool checkpoint_status_is(const char *mountpoint);
int checkpoint_status_print(const char *mountpoint, FILE *to, char *why, size_t whysize);
json_t *checkpoint_status_json(const char *mountpoint, char *why, size_t whysize);

/* ---- fragctl arena: ranks/R/arena of a mount (arenas.c) ---- */

/* Prints the figures of each arena and a map of it, as wide as the terminal.  rank < 0: of all
 * ranks that have an arena.  ascii: the map is of ASCII characters only.
 * -ENOENT: no such rank, or it has no arena.
 */
int arenas_print(const char *mountpoint, int64_t rank, bool ascii, FILE *to, char *why,
		 size_t whysize);
json_t *arenas_json(const char *mountpoint, int64_t rank, char *why, size_t whysize);

/* ---- fragctl overlay, commit and discard (overlays.c) ---- */

int overlays_print(const char *path, FILE *to, char *why, size_t whysize);
json_t *overlays_json(const char *path, char *why, size_t whysize);
/* Writes the overlay's edits into the checkpoint, and prints what it wrote.  checkpoint NULL:
 * the path that the overlay names.
 */
int overlays_commit(const char *path, const char *checkpoint, FILE *to, char *why,
		    size_t whysize);
/* Deletes the overlay's edits. */
int overlays_discard(const char *path, char *why, size_t whysize);

/* ---- fragctl freeze and thaw, by .frag/freeze of a mount (freeze.c) ---- */

/* Freezes the job for at most so many seconds.  command NULL: returns when all ranks stand.
 * Else runs command, thaws the job, and returns the command's exit status, or 128 + its signal.
 * Errors go to stderr; the result is the exit status.
 */
int freeze(const char *mountpoint, unsigned seconds, char **command);
/* Ends any freeze of the job, as freeze() does. */
int thaw(const char *mountpoint);

/* ---- fragctl key (keys.c) ---- */

/* Makes a new key file for a job; prints the readers' key of an existing one. */
int keys_make(const char *path, char *why, size_t whysize);
int keys_print_readers(const char *path, char *why, size_t whysize);

/* ---- the settings of this machine that decide how fast a mount is (machine.c) ---- */

struct machine {
	char huge_pages[16]; /* transparent_hugepage/enabled: "always", "madvise", "never" */
	char shared_huge_pages[16]; /* .../shmem_enabled; "-": the kernel has no such file */
	char yama[16];              /* ptrace_scope, "-": none */
	bool fuse;                  /* this user may open /dev/fuse */
};

void machine_read(struct machine *m);
/* Copies the word in brackets of "always [madvise] never", or all of text when there is none.
 */
void machine_chosen(const char *text, char *word, size_t size);

#endif
