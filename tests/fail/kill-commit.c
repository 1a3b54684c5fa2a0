/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/engine.h"
#include "engine/checkpoint/overlay/overlay.h"
#include "tests/find-param.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Commits an edit of a checkpoint in a process that is killed at one of its system calls, or at
 * each in turn.
 *
 *	kill-commit write CHECKPOINT PARAM KEY FILE	FILE becomes the state; nobody is killed
 *	kill-commit kill CHECKPOINT PARAM KEY FILE N	the process is killed at its N-th stop
 *	kill-commit all CHECKPOINT PARAM KEY FILE FOLDER OLD NEW
 *
 *	kill-commit beside CHECKPOINT PARAM KEY FILE OVERLAY OLD
 *	kill-commit settle CHECKPOINT PARAM KEY FILE OVERLAY FOLDER OLD NEW
 *
 * A stop is the beginning or the end of a system call of any thread, between the write and its
 * answer.  all: at each stop, until it survives; after each kill the checkpoint is opened
 * again, to read and to write by turns, and then the files of FOLDER are those of OLD, or those
 * of NEW, and there are no others.
 *
 * beside: the edit goes to an overlay; at each stop, and afterwards the state is OLD, or FILE.
 * settle: that overlay is committed, and killed: files are as above; with it the state is FILE
 * in either case; committed again they are NEW.
 */

enum { SECONDS = 250, REOPEN_MS = 5000 };

struct edit {
	const char *checkpoint, *param, *key;
	const char *overlay; /* NULL: none */
	int (*run)(const struct edit *x, bool traced);
	void *bytes;
	size_t size;
};

static void die(const char *what)
{
	fprintf(stderr, "kill-commit: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *read_file(const char *path, size_t *size)
{
	CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *bytes;

	if (fd < 0 || fstat(fd, &st))
		die(path);
	*size = (size_t)st.st_size;
	bytes = malloc(*size + 1);
	if (!bytes || read(fd, bytes, *size) != (ssize_t)*size)
		die(path);
	return bytes;
}

/* ---- the commit ---- */

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool ended;
	int result;
	const void *wanted; /* by who reads */
};

static void written(struct engine_write *write, int result)
{
	struct waiter *w = write->owner;

	pthread_mutex_lock(&w->lock);
	w->result = result;
	w->ended = true;
	pthread_cond_signal(&w->done);
	pthread_mutex_unlock(&w->lock);
}

static void wait_for(struct waiter *w)
{
	pthread_mutex_lock(&w->lock);
	while (!w->ended)
		pthread_cond_wait(&w->done, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

static int write_all(struct engine *e, struct engine_file *file, const struct edit *x)
{
	struct waiter w = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0,
			    NULL };
	struct engine_extent extent = { 0, x->size, x->bytes };
	struct engine_write write = {
		.file = file, .extents = &extent, .nextents = 1, .done = written, .owner = &w
	};

	engine_write(e, &write);
	wait_for(&w);
	return w.result;
}

static struct engine *open_checkpoint(const struct edit *x, bool writable, bool *busy)
{
	struct engine_options options = { .source = x->checkpoint,
					  .writable = writable,
					  .overlay = writable ? x->overlay : NULL };
	struct engine *e;
	char why[500];
	int rc = engine_open(&e, &options, why, sizeof(why));

	*busy = rc == -EBUSY;
	if (!rc)
		return e;
	if (!*busy)
		fprintf(stderr, "kill-commit: %s\n", why);
	return NULL;
}

static struct engine_file *open_state(struct engine *e, const struct edit *x)
{
	struct engine_address a = { .kind = ENGINE_PARAM };
	struct engine_file *file;
	uint64_t bytes;

	snprintf(a.key, sizeof(a.key), "%s", x->key);
	if (find_param(e, x->param, "", &a.param) || engine_file_open(e, &a, &file, &bytes) ||
	    bytes != x->size)
		return NULL;
	return file;
}

/* The signals are for who traces it. */
static int commit(const struct edit *x, bool traced)
{
	bool busy;
	struct engine *e = open_checkpoint(x, true, &busy);
	struct engine_file *file = e ? open_state(e, x) : NULL;
	int rc;

	if (!file)
		return 1;
	if (traced)
		raise(SIGUSR1);
	rc = write_all(e, file, x);
	if (traced)
		raise(SIGUSR2);
	engine_file_close(file);
	engine_close(e);
	return rc ? 1 : 0;
}

static int settle(const struct edit *x, bool traced)
{
	struct overlay o;
	char why[500];
	int rc;

	if (traced)
		raise(SIGUSR1);
	rc = overlay_commit(&o, x->overlay, NULL, why, sizeof(why));
	if (traced)
		raise(SIGUSR2);
	if (!rc)
		overlay_fini(&o);
	else if (rc != -EBUSY && rc != -ENODATA)
		fprintf(stderr, "kill-commit: %s\n", why);
	return rc;
}

/* ---- killing it ---- */

static const long traces = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;

static pid_t start(const struct edit *x)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (pid)
		return pid;
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(77);
	raise(SIGSTOP);
	_exit(x->run(x, true) != 0);
}

enum phase { BEFORE, DURING, AFTER };

/* What a stop is, and the signal that goes on to the process. */
static int see_stop(int status, enum phase *phase, unsigned *stops)
{
	int signal = WSTOPSIG(status);

	if (signal == (SIGTRAP | 0x80)) {
		*stops += *phase == DURING;
		return 0;
	}
	if (signal == SIGUSR1 || signal == SIGUSR2)
		*phase = signal == SIGUSR1 ? DURING : AFTER;
	return signal == SIGTRAP || signal == SIGSTOP || signal == SIGUSR1 || signal == SIGUSR2
		       ? 0
		       : signal;
}

/* Its status: of exit, 128 after the kill. */
static int run_until(pid_t pid, unsigned n)
{
	enum phase phase = BEFORE;
	unsigned stops = 0;
	int status, signal;
	pid_t thread;

	while ((thread = waitpid(-1, &status, __WALL)) > 0) {
		if (thread == pid && !WIFSTOPPED(status))
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
		if (!WIFSTOPPED(status))
			continue;
		signal = see_stop(status, &phase, &stops);
		if (stops >= n && phase == DURING)
			kill(pid, SIGKILL);
		else
			ptrace(PTRACE_SYSCALL, thread, NULL, signal);
	}
	die("waitpid");
	return 1;
}

/* 0: it was whole before its n-th stop; 128: killed; 77: nobody may be traced. */
static int kill_at(const struct edit *x, unsigned n)
{
	pid_t pid = start(x);
	int status;

	if (waitpid(pid, &status, 0) != pid)
		die("waitpid");
	if (!WIFSTOPPED(status))
		return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	if (ptrace(PTRACE_SETOPTIONS, pid, NULL, traces) ||
	    ptrace(PTRACE_SYSCALL, pid, NULL, NULL))
		die("ptrace");
	return run_until(pid, n);
}

/* ---- looking at what is left ---- */

struct folders {
	const char *here, *old, *new;
};

static bool is_same(const char *a, const char *b, const char *name)
{
	char path[2][512];
	size_t sizes[2];
	void *bytes[2];
	bool same;

	snprintf(path[0], sizeof(path[0]), "%s/%s", a, name);
	snprintf(path[1], sizeof(path[1]), "%s/%s", b, name);
	for (int i = 0; i < 2; i++)
		bytes[i] = read_file(path[i], &sizes[i]);
	same = sizes[0] == sizes[1] && !memcmp(bytes[0], bytes[1], sizes[0]);
	free(bytes[0]);
	free(bytes[1]);
	return same;
}

static unsigned count_files(const char *folder)
{
	DIR *dir = opendir(folder);
	unsigned n = 0;

	if (!dir)
		die(folder);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static bool is_whole(const char *here, const char *other)
{
	DIR *dir = opendir(other);
	const struct dirent *entry;
	bool same = true;

	if (!dir)
		die(other);
	while (same && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			same = is_same(here, other, entry->d_name);
	closedir(dir);
	return same;
}

/* What the killed process had open is closed when it has gone altogether.  NULL: it cannot be.
 */
static struct engine *wait_to_open(const struct edit *x, bool writable)
{
	uint64_t until = monotonic_ms() + REOPEN_MS;
	struct engine *e;
	bool busy;

	do {
		e = open_checkpoint(x, writable, &busy);
		if (!e && busy)
			poll(NULL, 0, 10);
	} while (!e && busy && monotonic_ms() < until);
	return e;
}

static bool reopen(const struct edit *x, bool writable)
{
	struct engine *e = wait_to_open(x, writable);

	engine_close(e);
	return e;
}

/* A journal that was never whole may stay: the next edit removes it. */
static bool check_left(const struct folders *f, unsigned *old, unsigned *new)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/.fragfs-journal.new", f->here);
	unlink(path);
	if (count_files(f->here) != count_files(f->old))
		return false;
	if (is_whole(f->here, f->old))
		++*old;
	else if (is_whole(f->here, f->new))
		++*new;
	else
		return false;
	return true;
}

static int copy_time(int to, DIR *from, const struct dirent *entry)
{
	struct stat st;
	int rc = fstatat(dirfd(from), entry->d_name, &st, 0);

	return rc ? rc : futimens(to, (struct timespec[2]){ st.st_atim, st.st_mtim });
}

static void restore(const struct folders *f)
{
	DIR *dir = opendir(f->old);
	const struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char path[512];
		size_t size;
		void *bytes;
		int fd;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", f->old, entry->d_name);
		bytes = read_file(path, &size);
		snprintf(path, sizeof(path), "%s/%s", f->here, entry->d_name);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, bytes, size) != (ssize_t)size ||
		    copy_time(fd, dir, entry))
			die(path);
		close(fd);
		free(bytes);
	}
	closedir(dir);
}

static int kill_at_all(const struct edit *x, const struct folders *f)
{
	unsigned old = 0, new = 0, n = 1;
	int rc;

	for (; (rc = kill_at(x, n)) == 128; n++) {
		if (!reopen(x, n % 2))
			return 1;
		if (!check_left(f, &old, &new)) {
			fprintf(stderr, "killed at %u: neither old nor new\n", n);
			return 1;
		}
		restore(f);
	}
	if (rc)
		return rc;
	printf("%u kills: %u times old, %u times new\n", n - 1, old, new);
	return is_whole(f->here, f->new) && old && new ? 0 : 1;
}

/* ---- an overlay ---- */

#define LOG_PATH "%s/fragfs-overlay"

struct log { /* as it was */
	char path[512];
	void *bytes;
	size_t size;
};

static void save_log(struct log *l, const struct edit *x)
{
	snprintf(l->path, sizeof(l->path), LOG_PATH, x->overlay);
	l->bytes = read_file(l->path, &l->size);
}

static void restore_log(const struct log *l)
{
	int fd = open(l->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, l->bytes, l->size) != (ssize_t)l->size)
		die(l->path);
	close(fd);
}

static void was_read(struct engine_read *read, const void *data, int64_t result)
{
	struct waiter *w = read->owner;

	pthread_mutex_lock(&w->lock);
	w->result = result == (int64_t)read->size && !memcmp(data, w->wanted, read->size);
	w->ended = true;
	pthread_cond_signal(&w->done);
	pthread_mutex_unlock(&w->lock);
}

static bool reads_as(struct engine *e, const struct edit *x, const void *wanted)
{
	struct waiter w = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0,
			    wanted };
	struct engine_file *file = open_state(e, x);
	struct engine_read read = {
		.file = file, .size = x->size, .done = was_read, .owner = &w
	};

	if (!file)
		return false;
	engine_read(e, &read);
	wait_for(&w);
	engine_file_close(file);
	return w.result;
}

static bool check_beside(const struct edit *x, const void *before, unsigned *old, unsigned *new)
{
	struct engine *e = wait_to_open(x, true);
	bool is_old = e && reads_as(e, x, before), is_new = e && reads_as(e, x, x->bytes);

	engine_close(e);
	*old += is_old;
	*new += is_new;
	return is_old != is_new;
}

static int tell(int rc, unsigned kills, unsigned old, unsigned new)
{
	if (rc)
		return rc;
	printf("%u kills: %u times old, %u times new\n", kills, old, new);
	return old && new ? 0 : 1;
}

static int kill_beside(const struct edit *x, const void *before)
{
	unsigned old = 0, new = 0, n = 1;
	char path[512];
	int rc;

	snprintf(path, sizeof(path), LOG_PATH, x->overlay);
	for (; (rc = kill_at(x, n)) == 128; n++) {
		if (!check_beside(x, before, &old, &new)) {
			fprintf(stderr, "killed at %u: neither old nor new\n", n);
			return 1;
		}
		unlink(path);
	}
	return tell(rc, n - 1, old, new);
}

/* As it was, through the checkpoint, or with the overlay, by turns. */
static bool check_settled(const struct edit *x, const struct folders *f, unsigned n,
			  unsigned *old, unsigned *new)
{
	struct engine *e;
	bool good;

	if (n % 3 == 0)
		return reopen(x, false) && check_left(f, old, new);
	if (n % 3 == 1)
		return true;
	e = wait_to_open(x, true);
	good = e && reads_as(e, x, x->bytes);
	engine_close(e);
	return good;
}

static bool settle_again(const struct edit *x, const struct folders *f)
{
	uint64_t until = monotonic_ms() + REOPEN_MS;
	unsigned old = 0, new = 0;
	int rc;

	while ((rc = settle(x, false)) == -EBUSY && monotonic_ms() < until)
		poll(NULL, 0, 10);
	return (!rc || rc == -ENODATA) && check_left(f, &old, &new) && new;
}

static int kill_settling(const struct edit *x, const struct folders *f)
{
	unsigned old = 0, new = 0, n = 1;
	struct log log;
	int rc;

	save_log(&log, x);
	for (; (rc = kill_at(x, n)) == 128; n++) {
		if (!check_settled(x, f, n, &old, &new) || !settle_again(x, f)) {
			fprintf(stderr, "killed at %u: an edit is lost, or half of it\n", n);
			return 1;
		}
		restore(f);
		restore_log(&log);
	}
	free(log.bytes);
	rc = tell(rc, n - 1, old, new);
	return rc || is_whole(f->here, f->new) ? rc : 1;
}

static int run_beside(char **argv, struct edit *x)
{
	size_t size;
	void *before = read_file(argv[7], &size);
	int rc;

	if (size != x->size)
		return 2;
	x->overlay = argv[6];
	rc = kill_beside(x, before);
	free(before);
	return rc;
}

static int run_settle(char **argv, struct edit *x)
{
	x->overlay = argv[6];
	if (commit(x, false))
		return 1;
	x->run = settle;
	return kill_settling(x, &(struct folders){ argv[7], argv[8], argv[9] });
}

static int run(int argc, char **argv, struct edit *x)
{
	if (!strcmp(argv[1], "write"))
		return commit(x, false);
	if (!strcmp(argv[1], "beside") && argc == 8)
		return run_beside(argv, x);
	if (!strcmp(argv[1], "settle") && argc == 10)
		return run_settle(argv, x);
	if (!strcmp(argv[1], "kill") && argc == 7)
		return kill_at(x, (unsigned)atoi(argv[6]));
	if (!strcmp(argv[1], "all") && argc == 9)
		return kill_at_all(x, &(struct folders){ argv[6], argv[7], argv[8] });
	return 2;
}

int main(int argc, char **argv)
{
	struct edit x;
	int status;

	if (argc < 6)
		return 2;
	alarm(SECONDS);
	x = (struct edit){
		.checkpoint = argv[2], .param = argv[3], .key = argv[4], .run = commit
	};
	x.bytes = read_file(argv[5], &x.size);
	status = run(argc, argv, &x);
	free(x.bytes);
	return status;
}
