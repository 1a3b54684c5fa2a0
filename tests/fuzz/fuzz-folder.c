/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* The folder of a checkpoint, as a tar archive (checksums do not count): opened as a mount
 * opens it, and all that it then has is read.
 */

#include "engine/checkpoint/checkpoint.h"
#include "tests/fuzz/fuzz.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define CONTROL "\t\n\r\033\177"

enum {
	BLOCK = 512,
	NAME_SIZE = 100,
	SIZE_AT = 124,
	SIZE_DIGITS = 12,
	FILES_MAX = 128,
	STATES_MAX = 64,
	WHOLE_MAX = 1 << 16,
};

/* ---- the folder ---- */

static char folder[] = "/tmp/fuzz-folder.XXXXXX";

static void remove_folder(void)
{
	rmdir(folder);
}

static int make_folder(void)
{
	static int dir = -1;

	if (dir >= 0)
		return dir;
	if (!mkdtemp(folder) || atexit(remove_folder))
		err(1, "%s", folder);
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		err(1, "%s", folder);
	return dir;
}

struct files {
	int dir;
	char names[FILES_MAX][NAME_SIZE + 1];
	int count;
};

static void keep_name(struct files *f, const char *name)
{
	strcpy(f->names[f->count++], name);
}

static void make_folders(struct files *f, char *name)
{
	for (char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (f->count < FILES_MAX && !mkdirat(f->dir, name, 0700))
			keep_name(f, name);
		*slash = '/';
	}
}

static void write_file(struct files *f, char *name, const uint8_t *data, size_t size)
{
	int fd;

	if (*name == '/' || strstr(name, ".."))
		return;
	make_folders(f, name);
	if (f->count == FILES_MAX)
		return;
	fd = openat(f->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (write(fd, data, size) != (ssize_t)size)
		err(1, "%s/%s", folder, name);
	close(fd);
	keep_name(f, name);
}

static void unpack(struct files *f, const uint8_t *data, size_t size)
{
	for (size_t at = 0; at + BLOCK <= size && data[at];) {
		char name[NAME_SIZE + 1] = "", digits[SIZE_DIGITS + 1] = "";
		size_t bytes, left = size - at - BLOCK;

		memcpy(name, data + at, NAME_SIZE);
		memcpy(digits, data + at + SIZE_AT, SIZE_DIGITS);
		bytes = u64_min(strtoull(digits, NULL, 8), left);
		write_file(f, name, data + at + BLOCK, bytes);
		at += BLOCK + u64_min(u64_div_ceil(bytes, BLOCK) * BLOCK, left);
	}
}

static void remove_files(struct files *f)
{
	while (f->count) {
		const char *name = f->names[--f->count];

		if (unlinkat(f->dir, name, 0) && unlinkat(f->dir, name, AT_REMOVEDIR))
			err(1, "%s/%s", folder, name);
	}
}

/* ---- reading ---- */

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool ended;
};

static void came(struct engine_read *read, const void *data, int64_t result)
{
	struct waiter *w = read->owner;
	static _Thread_local volatile uint8_t sum;

	assert(result <= (int64_t)read->size);
	for (int64_t i = 0; i < result; i++)
		sum ^= ((const uint8_t *)data)[i];
	pthread_mutex_lock(&w->lock);
	w->ended = true;
	pthread_cond_signal(&w->done);
	pthread_mutex_unlock(&w->lock);
}

static void read_some(struct engine *e, struct engine_file *file, uint64_t offset, size_t size)
{
	struct waiter w = { .lock = PTHREAD_MUTEX_INITIALIZER,
			    .done = PTHREAD_COND_INITIALIZER };
	struct engine_read read = {
		.file = file, .offset = offset, .size = size, .done = came, .owner = &w
	};

	engine_read(e, &read);
	pthread_mutex_lock(&w.lock);
	while (!w.ended)
		pthread_cond_wait(&w.done, &w.lock);
	pthread_mutex_unlock(&w.lock);
}

static void read_state(struct engine *e, const struct engine_address *a, uint64_t bytes)
{
	struct engine_file *file;
	uint64_t size;

	if (engine_file_open(e, a, &file, &size))
		return;
	assert(size == bytes);
	read_some(e, file, 0, u64_min(size, WHOLE_MAX));
	if (size > WHOLE_MAX)
		read_some(e, file, size - WHOLE_MAX / 2 - 1, WHOLE_MAX / 2);
	engine_file_close(file);
}

static void see(void *arg, const struct engine_fragment *f)
{
	uint64_t end;

	assert(f->file && !f->file[strcspn(f->file, CONTROL)]);
	assert(u64_add(f->param_offset, f->numel, &end));
	assert(f->box || end <= *(uint64_t *)arg);
}

static void read_states(struct engine *e, struct engine_address a, int n,
			const struct engine_state *states)
{
	for (int i = 0; i < n && i < STATES_MAX; i++) {
		memcpy(a.key, states[i].key, sizeof(a.key));
		read_state(e, &a, states[i].bytes);
	}
}

static void read_param(struct engine *e, uint32_t param)
{
	struct engine_state states[STATES_MAX];
	struct engine_param x;
	int n = engine_states(e, param, states, STATES_MAX);

	assert(engine_param(e, param, &x) && n >= 0);
	for (int i = 0; i < n && i < STATES_MAX; i++)
		engine_fragments(e, param, states[i].key, see, &x.numel);
	read_states(e, (struct engine_address){ .kind = ENGINE_PARAM, .param = param }, n,
		    states);
	for (uint32_t r = 0; r < engine_nranks(e); r++) {
		n = engine_rank_states(e, r, param, states, STATES_MAX);
		read_states(e,
			    (struct engine_address){
				    .kind = ENGINE_RANK_PARAM, .param = param, .rank = r },
			    n, states);
	}
}

static void read_all(struct engine *e)
{
	struct engine_state states[STATES_MAX];
	struct engine_job job;

	for (uint32_t i = 0; i < engine_nparams(e) + engine_nbuffers(e); i++)
		read_param(e, i);
	for (uint32_t g = 0; g < engine_ngroups(e); g++) {
		int n = engine_hypers(e, g, states, STATES_MAX);

		read_states(e, (struct engine_address){ .kind = ENGINE_HYPER, .group = g }, n,
			    states);
	}
	engine_job(e, &job);
	free(engine_text(e, "source"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct engine_options options = { .source = folder };
	struct files files = { .dir = make_folder() };
	char why[512] = "";
	struct engine *e;

	unpack(&files, data, size);
	if (!checkpoint_open(&e, &options, why, sizeof(why))) {
		read_all(e);
		engine_close(e);
	} else {
		assert(*why && !why[strcspn(why, CONTROL)]);
	}
	remove_files(&files);
	return 0;
}
