/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/jobfile.h"

#include "engine/machine.h"
#include "engine/fd.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

enum {
	FILE_MAX = 8192,
	PATH_SIZE = 1200,
	LOCK_TRIES = 100,
	LOCK_RETRY_US = 10000,
	SWEEP_AFTER_S = 86400,
};

/* ---- the place ---- */

static bool is_mine(const struct stat *st)
{
	return st->st_uid == geteuid();
}

/* Whatever the umask is. */
static int make_folder(const char *path)
{
	if (mkdir(path, 0700))
		return errno == EEXIST ? 0 : -errno;
	return chmod(path, 0700) ? -errno : 0;
}

/* A folder of ours alone, made where it is missing. */
static int own_folder(const char *path)
{
	struct stat st;
	int rc = make_folder(path);

	if (rc)
		return rc;
	if (lstat(path, &st))
		return -errno;
	return S_ISDIR(st.st_mode) && is_mine(&st) && !(st.st_mode & 022) ? 0 : -EACCES;
}

static bool is_my_folder(const char *path)
{
	struct stat st;

	return path && *path == '/' && !stat(path, &st) && S_ISDIR(st.st_mode) && is_mine(&st);
}

static int find_home(char home[PATH_SIZE])
{
	const char *text = getenv("HOME");
	struct passwd entry, *found = NULL;
	char room[4096];

	if (!is_my_folder(text)) { /* sudo leaves the other user's */
		if (getpwuid_r(geteuid(), &entry, room, sizeof(room), &found) || !found)
			return -ENOENT;
		text = found->pw_dir;
	}
	if (!is_my_folder(text))
		return -ENOENT;
	return snprintf(home, PATH_SIZE, "%s", text) < 1024 ? 0 : -ENAMETOOLONG;
}

static int find_folder(char folder[PATH_SIZE])
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char home[PATH_SIZE];
	int rc;

	if (is_my_folder(runtime) && strlen(runtime) < 1024) {
		snprintf(folder, PATH_SIZE, "%s/fragfs", runtime);
		return own_folder(folder);
	}
	rc = find_home(home);
	if (rc)
		return rc;
	snprintf(folder, PATH_SIZE, "%.1024s/.cache", home);
	rc = make_folder(folder);
	if (rc)
		return rc;
	snprintf(folder, PATH_SIZE, "%.1024s/.cache/fragfs", home);
	return own_folder(folder);
}

static int find_path(const char *job, const char *suffix, char path[PATH_SIZE + 160])
{
	char folder[PATH_SIZE];
	int rc;

	if (!*job || *job == '.' || strchr(job, '/') || strlen(job) > 127)
		return -EINVAL;
	rc = find_folder(folder);
	if (!rc)
		snprintf(path, PATH_SIZE + 160, "%s/%s%s", folder, job, suffix);
	return rc;
}

/* Who adds or sweeps excludes the others until it is closed.  -1: somebody has it for long. */
static int lock_folder(void)
{
	char folder[PATH_SIZE];
	int fd = find_folder(folder) ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (int i = 0; fd >= 0 && i < LOCK_TRIES; i++) {
		if (!flock(fd, LOCK_EX | LOCK_NB))
			return fd;
		usleep(LOCK_RETRY_US);
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

/* ---- reading and writing files that nobody else may have touched ---- */

/* At most size - 1 bytes; the NUL behind them.  forbidden: mode bits.  Returns how many. */
static ssize_t read_mine(const char *path, mode_t forbidden, char *text, size_t size)
{
	CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	size_t n = 0;

	if (fd < 0 || fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (!is_mine(&st) || st.st_mode & forbidden)
		return -EACCES;
	while (n < size) {
		ssize_t got = read(fd, text + n, size - n);

		if (got < 0 && errno != EINTR)
			return -errno;
		if (!got)
			break;
		n += got > 0 ? (size_t)got : 0;
	}
	if (n == size)
		return -EINVAL;
	text[n] = '\0';
	return (ssize_t)n;
}

static int write_by_rename(const char *path, const char *text, size_t size)
{
	char draft[PATH_SIZE + 200];
	int fd, rc;

	if (snprintf(draft, sizeof(draft), "%s.XXXXXX", path) >= (int)sizeof(draft))
		return -ENAMETOOLONG;
	fd = mkostemp(draft, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = fchmod(fd, 0600) ? -errno : fd_write_all(fd, text, size, 0);
	if (close(fd) && !rc)
		rc = -errno;
	if (!rc && rename(draft, path))
		rc = -errno;
	if (rc)
		unlink(draft);
	return rc;
}

/* ---- the text ---- */

struct record {
	struct jobfile j;
	char machine[MACHINE_ID]; /* where pid is a process */
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
	char place[PATH_SIZE + 160], text[2048], machine[MACHINE_ID];
	int n, rc;

	if (!*j->job || !is_one_line(j->job) || !is_one_line(j->address) ||
	    !is_one_line(j->key_file))
		return -EINVAL;
	rc = path ? 0 : find_path(j->job, ".job", place);
	if (rc)
		return rc;
	machine_id(machine);
	n = snprintf(text, sizeof(text),
		     "job=%s\naddress=%s\nkey_file=%s\nworld=%u\npid=%d\nstart_time=%"
		     "llu\nmachine=%s\n",
		     j->job, j->address, j->key_file, j->world, (int)j->pid,
		     (unsigned long long)j->start_time, machine);
	assert(n > 0 && n < (int)sizeof(text));
	CLEANUP(close) int lock = path ? -1 : lock_folder();
	(void)lock;
	return write_by_rename(path ? path : place, text, (size_t)n);
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

/* Which field the line was, 0: one of a later version; -1: bad. */
static int take_line(const char *key, const char *value, struct record *r)
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

static int parse(char *text, struct record *r)
{
	char *rest = text, *line;
	int has = 0;

	*r = (struct record){ .machine = "" };
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

static int read_record(const char *path, struct record *r)
{
	char text[FILE_MAX];
	ssize_t n = read_mine(path, 022, text, sizeof(text));

	if (n < 0)
		return (int)n;
	return memchr(text, '\0', (size_t)n) ? -EINVAL : parse(text, r);
}

int jobfile_read(const char *path, struct jobfile *out)
{
	struct record r;
	int rc = read_record(path, &r);

	if (!rc)
		*out = r.j;
	return rc;
}

/* ---- those that live ---- */

static bool is_of_here(const struct record *r)
{
	char machine[MACHINE_ID];

	machine_id(machine);
	return !strcmp(machine, r->machine);
}

static bool is_alive(const struct record *r)
{
	uint64_t start_time;

	return is_of_here(r) && !machine_start_time(r->j.pid, &start_time) &&
	       start_time == r->j.start_time;
}

static int read_live(const char *path, struct record *r)
{
	int rc = read_record(path, r);

	return rc ? rc : is_alive(r) ? 0 : -ENOENT;
}

int jobfile_find(const char *job, struct jobfile *out)
{
	char path[PATH_SIZE + 160];
	struct record r;
	int rc = find_path(job, ".job", path);

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
	char path[PATH_SIZE + 160];
	struct record r;
	int rc = find_path(job, ".job", path);

	if (!rc)
		rc = read_record(path, &r);
	if (!rc && (is_alive(&r) || strcmp(r.j.job, job) != 0))
		rc = -ENOENT;
	if (!rc)
		*out = r.j;
	return rc;
}

static bool has_suffix(const char *name, const char *suffix)
{
	size_t n = strlen(name), m = strlen(suffix);

	return n > m && !strcmp(name + n - m, suffix);
}

int jobfile_list(void (*see)(void *arg, const struct jobfile *j), void *arg)
{
	char folder[PATH_SIZE], path[PATH_SIZE + 300];
	struct dirent *entry;
	struct record r;
	int n = find_folder(folder);
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

struct search {
	uint16_t port;
	bool found;
	struct jobfile j;
};

static void match_port(void *arg, const struct jobfile *j)
{
	const char *colon = strrchr(j->address, ':');
	struct search *s = arg;
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
	struct search s = { .port = port };
	int rc = jobfile_list(match_port, &s);

	if (rc < 0)
		return rc;
	if (!s.found)
		return -ENOENT;
	*out = s.j;
	return 0;
}

/* Another live process's files stay. */
void jobfile_remove(const char *job)
{
	char path[PATH_SIZE + 160];
	struct record r;

	if (find_path(job, ".job", path) || (!read_live(path, &r) && r.j.pid != getpid()))
		return;
	unlink(path);
	if (!find_path(job, ".key", path))
		unlink(path);
}

/* Its rank 0 may be started again, and take it over. */
static bool is_recent(const char *path)
{
	struct stat st;

	return !stat(path, &st) && time(NULL) < st.st_mtime + SWEEP_AFTER_S;
}

/* With the folder locked: what is published in it stays what was read. */
static void sweep_one(const char *folder, const char *name)
{
	char path[PATH_SIZE + 300];
	struct record r;
	size_t n;

	n = (size_t)snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (!has_suffix(name, ".job") || read_record(path, &r) || !is_of_here(&r) ||
	    is_alive(&r) || is_recent(path))
		return;
	unlink(path);
	memcpy(path + n - strlen(".job"), ".key", strlen(".key"));
	unlink(path);
}

void jobfile_sweep(void)
{
	CLEANUP(close) int lock = lock_folder();
	char folder[PATH_SIZE];
	DIR *dir = lock < 0 || find_folder(folder) ? NULL : opendir(folder);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		sweep_one(folder, entry->d_name);
	if (dir)
		closedir(dir);
}

/* ---- keys ---- */

static int write_key(const char *path, const uint8_t key[JOBFILE_KEY_BYTES])
{
	char text[2 * JOBFILE_KEY_BYTES + 2];
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600), rc;

	if (fd < 0)
		return -errno;
	for (int i = 0; i < JOBFILE_KEY_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", key[i]);
	text[2 * JOBFILE_KEY_BYTES] = '\n';
	rc = fchmod(fd, 0600) ? -errno : fd_write_all(fd, text, 2 * JOBFILE_KEY_BYTES + 1, 0);
	if (close(fd) && !rc)
		rc = -errno;
	if (rc)
		unlink(path);
	explicit_bzero(text, sizeof(text));
	return rc;
}

/* Before the new key is there, which would be swept with it. */
static void drop_dead_job(const char *job)
{
	char path[PATH_SIZE + 160];
	struct record r;

	if (!find_path(job, ".job", path) && !read_record(path, &r) && is_of_here(&r) &&
	    !is_alive(&r))
		unlink(path);
}

static int replace_key_of_dead(const char *job, const char *path,
			       const uint8_t key[JOBFILE_KEY_BYTES])
{
	struct jobfile j;

	if (!jobfile_find(job, &j))
		return -EEXIST;
	if (unlink(path) && errno != ENOENT)
		return -errno;
	return write_key(path, key);
}

int keyfile_create(const char *job, const char *path, char *path_out, size_t size,
		   uint8_t key[JOBFILE_KEY_BYTES])
{
	char place[PATH_SIZE + 160];
	int rc = path ? 0 : find_path(job, ".key", place);

	if (rc)
		return rc;
	if (strlen(path ? path : place) >= size)
		return -ENAMETOOLONG;
	if (getrandom(key, JOBFILE_KEY_BYTES, 0) != JOBFILE_KEY_BYTES)
		return -errno;
	CLEANUP(close) int lock = path ? -1 : lock_folder();
	(void)lock;
	if (!path)
		drop_dead_job(job);
	rc = write_key(path ? path : place, key);
	if (rc == -EEXIST && !path)
		rc = replace_key_of_dead(job, place, key);
	if (!rc)
		snprintf(path_out, size, "%s", path ? path : place);
	return rc;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool decode_hex(const char *text, uint8_t key[JOBFILE_KEY_BYTES])
{
	for (int i = 0; i < JOBFILE_KEY_BYTES; i++) {
		int high = hex_digit(text[2 * i]),
		    low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);

		if (low < 0)
			return false;
		key[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

static bool decode_key(const char *text, size_t size, uint8_t key[JOBFILE_KEY_BYTES])
{
	uint8_t decoded[JOBFILE_KEY_BYTES];
	size_t digits = 2 * JOBFILE_KEY_BYTES;

	if (size == JOBFILE_KEY_BYTES)
		memcpy(decoded, text, size);
	else if (!(size == digits || (size == digits + 1 && text[digits] == '\n')) ||
		 !decode_hex(text, decoded))
		return false;
	memcpy(key, decoded, sizeof(decoded));
	explicit_bzero(decoded, sizeof(decoded));
	return true;
}

int keyfile_load(const char *path, uint8_t key[JOBFILE_KEY_BYTES], bool *readers, char *why,
		 size_t whysize)
{
	static const char mark[] = "readers ";
	char text[256];
	ssize_t n = read_mine(path, 077, text, sizeof(text));
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
	else if (rc == -EINVAL)
		snprintf(why, whysize, "key file %s: not 32 bytes, nor 64 hexadecimal digits",
			 path);
	else if (rc)
		snprintf(why, whysize, "key file %s: %s", path, strerror(-rc));
	return rc == -EPERM ? -EACCES : rc;
}
