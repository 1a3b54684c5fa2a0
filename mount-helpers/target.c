/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/target.h"

#include "engine/base/base.h"
#include "engine/catalog/health.h"
#include "engine/launch/jobfile.h"
#include "mount-helpers/mount-file.h"
#include "mount-helpers/mounts.h"
#include "mount-helpers/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PRIVATE_MAX = 2, SILENT_MS = 1000 };

/* The mounts that fragctl made.  guardian is set last, because the handler of signals, which
 * may run meanwhile, ends those that have one.
 */
static struct private_mount {
	char folder[TARGET_PATH_MAX];
	const char *name;        /* the user's name for the source */
	volatile pid_t guardian; /* 0: none */
} privates[PRIVATE_MAX];

static void end_privates(void)
{
	for (int i = 0; i < PRIVATE_MAX; i++) {
		pid_t guardian = privates[i].guardian;

		if (guardian <= 0)
			continue;
		privates[i].guardian = 0;
		kill(guardian, SIGTERM);
		while (waitpid(guardian, NULL, 0) < 0 && errno == EINTR)
			;
	}
}

static void end_by_signal(int number)
{
	end_privates();
	signal(number, SIG_DFL);
	raise(number);
}

static void catch_signals(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
	struct sigaction action = { .sa_handler = end_by_signal };

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		sigaction(numbers[i], &action, NULL);
	atexit(end_privates);
}

/* Writes the path of fragfs: $FRAGFS, else the fragfs beside this program, else of PATH. */
static void find_fragfs(char *program, size_t size)
{
	const char *named = getenv("FRAGFS");
	char self[PATH_MAX] = "";
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash = length > 0 ? strrchr(self, '/') : NULL;

	if (slash)
		slash[1] = '\0';
	snprintf(program, size, "%sfragfs", self);
	if (named && *named)
		snprintf(program, size, "%s", named);
	else if (!slash || access(program, X_OK))
		snprintf(program, size, "fragfs");
}

/* Ends the calling process, a child, with its parent, even when the parent is killed. */
static void end_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		raise(SIGTERM);
}

static pid_t start_fragfs(const char *source, const char *folder, bool writable,
			  const sigset_t *mask)
{
	char program[PATH_MAX + 8];
	pid_t self = getpid(), child;

	find_fragfs(program, sizeof(program));
	child = fork();
	if (child)
		return child;
	sigprocmask(SIG_SETMASK, mask, NULL);
	end_with(self);
	execlp(program, "fragfs", "-f", "-o", writable ? "rw" : "ro", "--", source, folder,
	       NULL);
	dprintf(STDERR_FILENO, "%s: %s\n", program, strerror(errno));
	_exit(FRAGCTL_FAILURE);
}

/* Waits until fragfs has ended.  All signals are blocked here: SIGTERM is only passed on to
 * fragfs, which unmounts.  It is sent again each second, because a SIGTERM that comes while
 * fragfs installs its handlers is lost.
 */
static void wait_for(pid_t fragfs)
{
	const struct timespec second = { .tv_sec = 1 };
	bool ends = false;
	sigset_t awaited;
	int number;

	sigemptyset(&awaited);
	sigaddset(&awaited, SIGTERM);
	sigaddset(&awaited, SIGCHLD);
	while (waitpid(fragfs, NULL, WNOHANG) == 0) {
		number = ends ? sigtimedwait(&awaited, NULL, &second)
			      : sigwaitinfo(&awaited, NULL);
		ends |= number == SIGTERM;
		if (ends)
			kill(fragfs, SIGTERM);
	}
}

/* Starts the guardian, a process that makes the folder, runs fragfs in the foreground, and
 * removes the folder, which fragctl, as it may be killed at any moment, cannot.  The guardian
 * and fragfs are in a process group of their own, so that Ctrl-C reaches fragctl alone, and end
 * when fragctl does.
 */
static pid_t start(const char *source, const char *folder, bool writable, int log,
		   const sigset_t *mask)
{
	pid_t self = getpid(), guardian = fork(), fragfs;

	if (guardian)
		return guardian;
	setpgid(0, 0);
	end_with(self);
	dup2(log, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	if (mkdir(folder, 0700)) {
		dprintf(STDERR_FILENO, "%s: %s\n", folder, strerror(errno));
		_exit(FRAGCTL_FAILURE);
	}
	fragfs = start_fragfs(source, folder, writable, mask);
	if (fragfs > 0)
		wait_for(fragfs);
	rmdir(folder);
	_exit(FRAGCTL_FAILURE);
}

static bool is_mounted(const char *folder)
{
	char control[PATH_MAX];

	snprintf(control, sizeof(control), "%s/.frag", folder);
	return !access(control, F_OK);
}

/* Prints the last line that fragfs wrote, as an error. */
static int fail_as(int log, const char *source)
{
	char text[4096], *line;
	ssize_t size = lseek(log, 0, SEEK_END), from = size < 4095 ? 0 : size - 4095;

	size = pread(log, text, sizeof(text) - 1, from);
	text[size < 0 ? 0 : size] = '\0';
	while (size > 0 && text[size - 1] == '\n')
		text[--size] = '\0';
	line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	if (*line)
		return call_fail("%s", line);
	find_fragfs(text, sizeof(text));
	return call_fail("%s: %s has ended without a word", source, text);
}

static int mount_private(const char *source, const char *name, bool writable,
			 char mountpoint[TARGET_PATH_MAX])
{
	const struct timespec pause = { .tv_nsec = 5000000 };
	const char *parent = getenv("TMPDIR");
	struct private_mount *p = privates;
	struct progress progress;
	CLEANUP(close) int log = memfd_create("fragfs", MFD_CLOEXEC);
	sigset_t all, before;
	uint64_t number;
	pid_t guardian;
	int e;

	while (p->guardian)
		p++;
	if (p == privates)
		catch_signals();
	p->name = name;
	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return call_fail("getrandom: %s", strerror(errno));
	/* mounts_read knows private mounts by this name */
	snprintf(p->folder, sizeof(p->folder), "%s/fragctl.%016" PRIx64,
		 parent && *parent ? parent : "/tmp", number);
	/* A signal between fork and this store would leave the mount behind. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	guardian = start(source, p->folder, writable, log, &before);
	e = errno;
	p->guardian = guardian > 0 ? guardian : 0;
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (guardian < 0)
		return call_fail("fork: %s", strerror(e));
	progress_begin(&progress, "mounting");
	while (p->guardian && !is_mounted(p->folder)) {
		if (waitpid(guardian, NULL, WNOHANG) == guardian)
			p->guardian = 0;
		else
			nanosleep(&pause, NULL);
	}
	progress_end(&progress);
	if (!p->guardian)
		return fail_as(log, source);
	snprintf(mountpoint, TARGET_PATH_MAX, "%s", p->folder);
	return 0;
}

/* Finds the mount that the current folder is in: the inner one of nested mounts. */
static int find_here(char mountpoint[TARGET_PATH_MAX])
{
	struct mount_entry *entries = NULL;
	char here[PATH_MAX];
	size_t length, best = 0;
	int n = getcwd(here, sizeof(here)) ? mounts_read_own(true, &entries) : 0;

	for (int i = 0; i < n; i++) {
		length = strlen(entries[i].mountpoint);
		if (length < best || length >= TARGET_PATH_MAX ||
		    strncmp(here, entries[i].mountpoint, length) ||
		    (here[length] && here[length] != '/'))
			continue;
		best = length;
		memcpy(mountpoint, entries[i].mountpoint, length + 1);
	}
	if (entries)
		mounts_free(entries, n);
	return best ? 0 : -ENOENT;
}

static const struct private_mount *find_private(const char *mountpoint)
{
	for (int i = 0; i < PRIVATE_MAX; i++)
		if (privates[i].guardian && !strcmp(privates[i].folder, mountpoint))
			return &privates[i];
	return NULL;
}

bool target_is_private(const char *mountpoint)
{
	return find_private(mountpoint) != NULL;
}

const char *target_name(const char *mountpoint)
{
	const struct private_mount *p = find_private(mountpoint);

	return p ? p->name : mountpoint;
}

int target_open_word(const struct call *call, bool writable, char mountpoint[TARGET_PATH_MAX])
{
	if (call->job && *call->words)
		return call_usage("-j %s, or %s: not both", call->job, *call->words);
	if (call->job || !*call->words)
		return target_open(call->job, writable, mountpoint);
	return mounts_find(*call->words, mountpoint, TARGET_PATH_MAX) ? FRAGCTL_FAILURE : 0;
}

enum target_kind target_resolve(const char *where, char source[PATH_MAX])
{
	struct jobfile job;

	snprintf(source, PATH_MAX, "%s", where);
	if (is_mounted(where))
		return TARGET_MOUNT;
	if (!access(where, F_OK)) {
		/* fragfs takes a source with a slash for a path. */
		if (!strchr(where, '/'))
			snprintf(source, PATH_MAX, "./%s", where);
		return TARGET_CHECKPOINT;
	}
	if (strchr(where, '/'))
		return TARGET_NONE;
	if (strchr(where, ':'))
		return TARGET_JOB;
	if (jobfile_find(where, &job))
		return TARGET_NONE;
	snprintf(source, PATH_MAX, "%s", job.address);
	return TARGET_JOB;
}

int target_fail_none(const char *where)
{
	if (!*where)
		return call_fail("an empty word names no mount, job or checkpoint");
	if (access(where, F_OK) && errno != ENOENT)
		return call_fail("%s: %s", where, strerror(errno));
	return call_fail("%s: no mount, no job of this host and no checkpoint has that name",
			 where);
}

int target_open(const char *where, bool writable, char mountpoint[TARGET_PATH_MAX])
{
	char source[PATH_MAX];

	if (!where)
		return find_here(mountpoint) && mounts_find(NULL, mountpoint, TARGET_PATH_MAX)
			       ? FRAGCTL_FAILURE
			       : 0;
	if (strlen(where) >= TARGET_PATH_MAX)
		return call_fail("%s", strerror(ENAMETOOLONG));
	switch (target_resolve(where, source)) {
	case TARGET_NONE:
		return target_fail_none(where);
	case TARGET_MOUNT:
		snprintf(mountpoint, TARGET_PATH_MAX, "%s", where);
		return 0;
	default:
		return mount_private(source, where, writable, mountpoint);
	}
}

static bool has_rank(const char *mountpoint, int64_t rank)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/ranks/%" PRId64, mountpoint, rank);
	return !access(path, F_OK);
}

bool target_is_checkpoint(const char *mountpoint)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/.frag/source", mountpoint);
	return !access(path, F_OK);
}

int target_check_rank(const char *mountpoint, int64_t rank, char *why, size_t whysize)
{
	int64_t n = 0;

	if (access(mountpoint, F_OK)) {
		snprintf(why, whysize, "%s: %s", target_name(mountpoint), strerror(errno));
		return -ENOENT;
	}
	if (target_is_checkpoint(mountpoint) || !has_rank(mountpoint, 0)) {
		snprintf(why, whysize, "%s: %s", target_name(mountpoint),
			 target_is_checkpoint(mountpoint)
				 ? "a checkpoint is mounted there, not a job"
				 : "no mount of a job is there");
		return -ENOENT;
	}
	if (rank < 0 || has_rank(mountpoint, rank))
		return 0;
	while (has_rank(mountpoint, n))
		n++;
	snprintf(why, whysize, "%s: there is no rank %" PRId64 ", they are 0 to %" PRId64,
		 target_name(mountpoint), rank, n - 1);
	return -ENOENT;
}

/* Writes which rank is lost or, if none is, which is silent; "": none is, or no job is mounted
 * there.
 */
static void tell_rank(const char *mountpoint, char *text, size_t size)
{
	CLEANUP(free) struct engine_rank *ranks = NULL;
	CLEANUP(free) char *health = NULL;
	uint32_t n = 0;

	*text = '\0';
	if (mount_file_read(mountpoint, ".frag/health", &health) ||
	    health_parse(health, &ranks, &n))
		return;
	for (uint32_t i = 0; i < n && !*text; i++)
		if (ranks[i].state == ENGINE_RANK_LOST)
			snprintf(text, size, ": rank %" PRIu32 " is lost: %s", i, ranks[i].why);
	for (uint32_t i = 0; i < n && !*text; i++)
		if (ranks[i].silent_ms >= SILENT_MS)
			snprintf(text, size, ": rank %" PRIu32 " has not answered for %llu ms",
				 i, (unsigned long long)ranks[i].silent_ms);
}

int target_fail(const char *mountpoint, const char *state, int error)
{
	char rank[256] = "";

	if (error == EIO || error == ETIMEDOUT)
		tell_rank(mountpoint, rank, sizeof(rank));
	return call_fail("%s: %s%s", state, strerror(error), rank);
}
