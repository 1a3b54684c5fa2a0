/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/health.h"
#include "mount-helpers/mount-file.h"
#include "mount-helpers/status.h"
#include "mount-helpers/target.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

enum { STATUS_WAIT_MS = 2000 };

static int read_number(const char *mountpoint, const char *name, uint64_t *value)
{
	char text[32];
	int e = mount_file_value(mountpoint, name, text, sizeof(text));

	if (!e)
		*value = strtoull(text, NULL, 10);
	return e;
}

static int count_entries(const char *mountpoint, const char *name, uint64_t *n)
{
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/%s", mountpoint, name);
	dir = opendir(path);
	if (!dir)
		return -errno;
	for (*n = 0; (entry = readdir(dir));)
		*n += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
	closedir(dir);
	return 0;
}

static void count_waiting(uint64_t *n, char **first, const char *line)
{
	if (!(*n)++)
		*first = strdup(line);
}

/* Reads how many reads and edits wait for ranks; a mount without .frag/inflight has none. */
static void read_waiting(struct status *s, const char *mountpoint)
{
	char *text, *save;

	if (mount_file_read(mountpoint, ".frag/inflight", &text))
		return;
	for (char *line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		if (!strncmp(line, "read ", 5) && strstr(line, ", waits "))
			count_waiting(&s->nwaiting, &s->waiting, line);
		else if (!strncmp(line, "commit ", 7))
			count_waiting(&s->nediting, &s->editing, line);
	}
	free(text);
}

static bool all_known(const struct status *s)
{
	for (uint32_t rank = 0; rank < s->nranks; rank++) {
		const struct engine_rank *r = &s->ranks[rank];

		if (r->state != ENGINE_RANK_LOST && !strcmp(r->way, "-"))
			return false;
	}
	return true;
}

static int read_ranks_once(struct status *s, const char *mountpoint)
{
	char *text;
	int e = mount_file_read(mountpoint, ".frag/health", &text);

	if (e)
		return e;
	e = health_parse(text, &s->ranks, &s->nranks);
	free(text);
	return e;
}

/* Reads the ranks.  Reading .frag/health first makes the mount ask ranks that it has not talked
 * to yet.
 */
static int read_ranks(struct status *s, const char *mountpoint)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	uint64_t end = monotonic_ms() + STATUS_WAIT_MS;
	int e = read_ranks_once(s, mountpoint);

	while (!e && !all_known(s) && monotonic_ms() < end) {
		nanosleep(&pause, NULL);
		free(s->ranks);
		s->ranks = NULL;
		e = read_ranks_once(s, mountpoint);
	}
	return e;
}

int status_of_mount(struct status *s, const char *mountpoint, const char *source, char *why,
		    size_t whysize)
{
	static const char *const places[] = { ".frag/health", "phase", "step", "generation",
					      "params" };
	size_t at = 0;
	int e;

	*s = (struct status){ .mountpoint = strdup(mountpoint), .source = strdup(source) };
	e = s->mountpoint && s->source ? read_ranks(s, mountpoint) : -ENOMEM;
	if (!e && ++at)
		e = mount_file_value(mountpoint, "phase", s->phase, sizeof(s->phase));
	if (!e && ++at)
		e = read_number(mountpoint, "step", &s->step);
	if (!e && ++at)
		e = read_number(mountpoint, "generation", &s->generation);
	if (!e && ++at)
		e = count_entries(mountpoint, "params", &s->nparams);
	if (e == -ENOENT && !at)
		snprintf(why, whysize,
			 target_is_checkpoint(mountpoint)
				 ? "%s: a checkpoint is mounted there, not a job"
				 : "%s: no mount of fragfs is there",
			 target_name(mountpoint));
	else if (e)
		snprintf(why, whysize, "%s/%s: %s", target_name(mountpoint), places[at],
			 e == -EINVAL ? "not the file of a fragfs mount" : strerror(-e));
	if (e) {
		status_fini(s);
		return e;
	}
	mount_file_setting(mountpoint, ".frag/config", "job", s->job, sizeof(s->job));
	read_waiting(s, mountpoint);
	return 0;
}

static int copy_from_engine(struct status *s, struct engine *e, const char *address)
{
	struct engine_job job;

	engine_job(e, &job);
	*s = (struct status){ .source = strdup(address),
			      .step = job.step,
			      .generation = job.generation,
			      .nparams = engine_nparams(e),
			      .nranks = engine_nranks(e) };
	s->ranks = calloc(s->nranks ? s->nranks : 1, sizeof(*s->ranks));
	if (!s->source || !s->ranks)
		return -ENOMEM;
	snprintf(s->job, sizeof(s->job), "%s", job.id);
	snprintf(s->phase, sizeof(s->phase), "%s", job.phase);
	for (uint32_t rank = 0; rank < s->nranks; rank++)
		engine_rank(e, rank, &s->ranks[rank]);
	return 0;
}

int status_of_job(struct status *s, const char *address, char *why, size_t whysize)
{
	const char *plain = getenv("FRAG_PLAIN");
	struct engine_options options = { .source = address,
					  .plain = plain && !strcmp(plain, "1") };
	struct engine_state state;
	struct engine *engine;
	int e = engine_open(&engine, &options, why, whysize);

	if (e)
		return e;
	/* Makes the engine ask each rank; the entry of a silent or lost rank stays as it is. */
	for (uint32_t rank = 0; rank < engine_nranks(engine); rank++)
		engine_partition_states(engine, rank, 0, 0, &state, 0);
	e = copy_from_engine(s, engine, address);
	engine_close(engine);
	if (e) {
		snprintf(why, whysize, "%s", strerror(-e));
		status_fini(s);
	}
	return e;
}

void status_fini(struct status *s)
{
	free(s->mountpoint);
	free(s->source);
	free(s->ranks);
	free(s->waiting);
	free(s->editing);
}
