/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/launch/jobfile.h"

#include "engine/base/machine.h"
#include "engine/launch/job-folder.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
	FILE_MAX = 8192,
	SWEEP_AFTER_S = 86400,
};

/* ---- the text ---- */

struct job_record {
	struct jobfile j;
	char machine[MACHINE_ID]; /* the machine on which pid is a process */
};

static bool is_one_line(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			return false;
	return true;
}

int jobfile_publish(const struct jobfile *j, const char *path)
{
	char usual[JOB_PATH], text[2048], machine[MACHINE_ID];
	int n, rc;

	if (!*j->job || !is_one_line(j->job) || !is_one_line(j->address) ||
	    !is_one_line(j->key_file))
		return -EINVAL;
	rc = path ? 0 : job_folder_path(j->job, ".job", usual);
	if (rc)
		return rc;
	machine_id(machine);
	n = snprintf(text, sizeof(text),
		     "job=%s\naddress=%s\nkey_file=%s\nworld=%u\npid=%d\nstart_time=%"
		     "llu\nmachine=%s\n",
		     j->job, j->address, j->key_file, j->world, (int)j->pid,
		     (unsigned long long)j->start_time, machine);
	assert(n > 0 && n < (int)sizeof(text));
	CLEANUP(close) int lock = path ? -1 : job_folder_lock();
	(void)lock; /* until return; without it (-1) the file is written all the same */
	return job_folder_write(path ? path : usual, text, (size_t)n);
}

static bool take_text(const char *value, char *out, size_t size)
{
	return is_one_line(value) && snprintf(out, size, "%s", value) < (int)size;
}

static bool take_number(const char *value, uint64_t max, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(value, &end, 10);
	return isdigit((unsigned char)*value) && !*end && !errno && *out <= max;
}

enum {
	HAS_JOB = 1,
	HAS_ADDRESS = 2,
	HAS_WORLD = 4,
	HAS_PID = 8,
	HAS_START = 16,
	HAS_ALL = 31,
};

/* Returns the HAS_... of a required field; 0: the field is optional, or of a later version; -1:
 * the line is bad.
 */
static int take_line(const char *key, const char *value, struct job_record *r)
{
	uint64_t n;

	if (!strcmp(key, "job"))
		return take_text(value, r->j.job, sizeof(r->j.job)) && *value ? HAS_JOB : -1;
	if (!strcmp(key, "address"))
		return take_text(value, r->j.address, sizeof(r->j.address)) ? HAS_ADDRESS : -1;
	if (!strcmp(key, "key_file"))
		return take_text(value, r->j.key_file, sizeof(r->j.key_file)) ? 0 : -1;
	if (!strcmp(key, "machine"))
		return take_text(value, r->machine, sizeof(r->machine)) ? 0 : -1;
	if (!strcmp(key, "start_time"))
		return take_number(value, UINT64_MAX, &r->j.start_time) ? HAS_START : -1;
	if (!strcmp(key, "world") && take_number(value, UINT32_MAX, &n)) {
		r->j.world = (uint32_t)n;
		return HAS_WORLD;
	}
	if (!strcmp(key, "pid") && take_number(value, INT32_MAX, &n)) {
		r->j.pid = (pid_t)n;
		return HAS_PID;
	}
	return !strcmp(key, "world") || !strcmp(key, "pid") ? -1 : 0;
}

static int parse(char *text, struct job_record *r)
{
	char *rest = text, *line;
	int has = 0;

	*r = (struct job_record){ .machine = "" };
	while ((line = strsep(&rest, "\n"))) {
		char *value = strchr(line, '=');
		int field;

		if (!*line)
			continue;
		if (!value)
			return -EINVAL;
		*value++ = '\0';
		field = take_line(line, value, r);
		if (field < 0)
			return -EINVAL;
		has |= field;
	}
	return has == HAS_ALL ? 0 : -EINVAL;
}

static int read_record(const char *path, struct job_record *r)
{
	char text[FILE_MAX], here[MACHINE_ID];
	ssize_t n = job_folder_read(path, 022, text, sizeof(text));
	int rc;

	if (n < 0)
		return (int)n;
	rc = memchr(text, '\0', (size_t)n) ? -EINVAL : parse(text, r);
	if (!rc) {
		machine_id(here);
		r->j.is_of_here = !strcmp(here, r->machine);
	}
	return rc;
}

int jobfile_read(const char *path, struct jobfile *out)
{
	struct job_record r;
	int rc = read_record(path, &r);

	if (!rc)
		*out = r.j;
	return rc;
}

/* ---- live jobs ---- */

static bool is_alive(const struct job_record *r)
{
	uint64_t start_time;

	return r->j.is_of_here && !machine_start_time(r->j.pid, &start_time) &&
	       start_time == r->j.start_time;
}

static int read_live(const char *path, struct job_record *r)
{
	int rc = read_record(path, r);

	return rc ? rc : is_alive(r) ? 0 : -ENOENT;
}

int jobfile_find(const char *job, struct jobfile *out)
{
	char path[JOB_PATH];
	struct job_record r;
	int rc = job_folder_path(job, ".job", path);

	if (!rc)
		rc = read_live(path, &r);
	if (!rc && strcmp(r.j.job, job))
		rc = -ENOENT;
	if (!rc)
		*out = r.j;
	return rc;
}

int jobfile_left(const char *job, struct jobfile *out)
{
	char path[JOB_PATH];
	struct job_record r;
	int rc = job_folder_path(job, ".job", path);

	if (!rc)
		rc = read_record(path, &r);
	if (!rc && (is_alive(&r) || strcmp(r.j.job, job) != 0))
		rc = -ENOENT;
	if (!rc)
		*out = r.j;
	return rc;
}

void jobfile_drop_dead(const char *job)
{
	char path[JOB_PATH];
	struct job_record r;

	if (!job_folder_path(job, ".job", path) && !read_record(path, &r) && r.j.is_of_here &&
	    !is_alive(&r))
		unlink(path);
}

static bool has_suffix(const char *name, const char *suffix)
{
	size_t n = strlen(name), m = strlen(suffix);

	return n > m && !strcmp(name + n - m, suffix);
}

int jobfile_list(void (*see)(void *arg, const struct jobfile *j), void *arg)
{
	char folder[JOB_FOLDER], path[JOB_PATH + 160];
	struct dirent *entry;
	struct job_record r;
	int n = job_folder(folder);
	DIR *dir;

	if (n)
		return n;
	dir = opendir(folder);
	if (!dir)
		return -errno;
	while ((entry = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		if (!has_suffix(entry->d_name, ".job") || read_live(path, &r))
			continue;
		see(arg, &r.j);
		n++;
	}
	closedir(dir);
	return n;
}

struct port_search {
	uint16_t port;
	bool found;
	struct jobfile j;
};

static void match_port(void *arg, const struct jobfile *j)
{
	const char *colon = strrchr(j->address, ':');
	struct port_search *s = arg;
	uint64_t port;

	if (!colon || !take_number(colon + 1, 65535, &port) || port != s->port)
		return;
	if (s->found && s->j.start_time > j->start_time)
		return; /* a job that is ending has lost its port to this one */
	s->found = true;
	s->j = *j;
}

int jobfile_find_port(uint16_t port, struct jobfile *out)
{
	struct port_search s = { .port = port };
	int rc = jobfile_list(match_port, &s);

	if (rc < 0)
		return rc;
	if (!s.found)
		return -ENOENT;
	*out = s.j;
	return 0;
}

void jobfile_remove(const char *job)
{
	char path[JOB_PATH];
	struct job_record r;

	if (job_folder_path(job, ".job", path))
		return;
	if (!read_record(path, &r) &&
	    (!r.j.is_of_here || (is_alive(&r) && r.j.pid != getpid())))
		return;
	unlink(path);
	if (!job_folder_path(job, ".key", path))
		unlink(path);
}

/* Returns true if rank 0 may still be started again, and take over the file and the key. */
static bool is_recent(const char *path)
{
	struct stat st;

	return !stat(path, &st) && time(NULL) < st.st_mtime + SWEEP_AFTER_S;
}

/* The folder is locked, so that no file is replaced between being read and unlinked. */
static void sweep_one(const char *folder, const char *name)
{
	char path[JOB_PATH + 160];
	struct job_record r;
	size_t n;

	n = (size_t)snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (!has_suffix(name, ".job") || read_record(path, &r) || !r.j.is_of_here ||
	    is_alive(&r) || is_recent(path))
		return;
	unlink(path);
	memcpy(path + n - strlen(".job"), ".key", strlen(".key"));
	unlink(path);
}

void jobfile_sweep(void)
{
	CLEANUP(close) int lock = job_folder_lock();
	char folder[JOB_FOLDER];
	DIR *dir = lock < 0 || job_folder(folder) ? NULL : opendir(folder);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		sweep_one(folder, entry->d_name);
	if (dir)
		closedir(dir);
}
