/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/mount.h"

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "fs/keeper.h"
#include "fs/mountpoint.h"
#include "fs/ops.h"
#include "fs/sandbox.h"
#include "fs/state.h"
#include "fs/stats-table.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { WHY_MAX = 1024, DRAIN_SECONDS = 5 };

struct mount {
	const struct options *options;
	char *path;
	int ready_fd; /* the parent waits at its other end; -1: foreground */
	/* socket to the keeper, which mounts for this process; -1: there is no keeper */
	int keeper_fd;
	bool made_overlay;
	struct fs fs;
	struct fuse_session *session;
	char hidden_job[160]; /* of engine_hidden_job, called before the sandbox is entered */
	char why[WHY_MAX];
	char fuse_said[WHY_MAX / 2]; /* the last line of libfuse's log */
};

static struct mount *mounting; /* for libfuse's log and signals, which have no argument */

static void say(const char *why)
{
	fprintf(stderr, "fragfs: %s\n", why);
}

/* ---- signals ---- */

static const int ending_signals[] = { SIGTERM, SIGINT, SIGHUP };

/* Signals that are ignored, as by nohup(1), stay ignored. */
static void catch_signals(void (*handler)(int number), int flags)
{
	const struct sigaction catch = { .sa_handler = handler, .sa_flags = flags };
	struct sigaction before;

	for (size_t i = 0; i < ARRAY_SIZE(ending_signals); i++)
		if (!sigaction(ending_signals[i], NULL, &before) &&
		    before.sa_handler == SIG_DFL)
			sigaction(ending_signals[i], &catch, NULL);
}

/* ---- the parent and the daemon ---- */

static fd_set inherited; /* descriptors that fragfs was started with, but for 0 to 2 */

/* Opens what is closed of the descriptors 0 to 2: one of the mount's own would get the number,
 * and leave_descriptors() would close it.
 */
static void open_closed(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd < 3);
	if (fd >= 3)
		close(fd);
}

static void note_inherited(void)
{
	for (int fd = 3; fd < FD_SETSIZE; fd++) {
		int flags = fcntl(fd, F_GETFD);

		if (flags >= 0 && !(flags & FD_CLOEXEC))
			FD_SET(fd, &inherited);
	}
}

/* Lets go of what the user's shell has open, such as a lock or a pipe whose reader waits for
 * its end.  A key may be read from an inherited descriptor, and libfuse takes one for a mount
 * point, so they stay open until the mount is there.
 */
static void leave_descriptors(const struct mount *m)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	log_to_syslog(); /* first: no line goes to /dev/null */
	for (int i = 0; fd >= 0 && i < 3; i++)
		dup2(fd, i);
	if (fd > 2)
		close(fd);
	for (int i = 3; i < FD_SETSIZE; i++)
		if (FD_ISSET(i, &inherited) && i != fuse_session_fd(m->session))
			close(i);
}

/* Called by a handler thread when the kernel's first request has come. */
static void ready(void *arg)
{
	struct mount *m = arg;
	char ok = 0;

	if (m->ready_fd < 0)
		return;
	leave_descriptors(m);
	/* The parent has ended early: its user no longer wants the mount. */
	if (write(m->ready_fd, &ok, 1) != 1) {
		log_warn("the process that started the mount has gone");
		kill(getpid(), SIGTERM);
	}
	close(m->ready_fd);
	m->ready_fd = -1;
}

static volatile pid_t started; /* the daemon; for end_daemon(), the handler of signals */

/* Ends the daemon with its parent: a user who ends the parent wants no mount. */
static void end_daemon(int number)
{
	kill(started, SIGTERM);
	raise(number); /* the handler has been reset */
}

static int wait_until_ready(int fd, pid_t pid)
{
	char ok;
	ssize_t n;
	int status = 0;

	do
		n = read(fd, &ok, 1);
	while (n < 0 && errno == EINTR);
	if (n == 1)
		return 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status))
		return WEXITSTATUS(status);
	say("the mount ended before it was ready");
	return 1;
}

/* Goes to the background; called before threads are started.  Returns in the daemon alone, or
 * -errno.
 */
static int to_background(struct mount *m)
{
	const int flags = SA_RESETHAND | SA_NODEFER;
	sigset_t ending, before;
	int fds[2];

	note_inherited();
	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	/* Signals wait until `started` is set, which end_daemon() reads. */
	sigemptyset(&ending);
	for (size_t i = 0; i < ARRAY_SIZE(ending_signals); i++)
		sigaddset(&ending, ending_signals[i]);
	sigprocmask(SIG_BLOCK, &ending, &before);
	started = fork();
	if (started > 0)
		catch_signals(end_daemon, flags);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (started < 0)
		return -errno;
	if (started) {
		close(fds[1]);
		exit(wait_until_ready(fds[0], started));
	}
	close(fds[0]);
	m->ready_fd = fds[1];
	setsid();
	log_open_syslog(); /* now: the sandbox will not let this process connect to syslog */
	return 0;
}

/* Asks the kernel to spare the mount when page caches and bounce buffers of a big job leave no
 * memory.
 */
static void survive_memory_shortage(void)
{
	CLEANUP(close) int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "-900", 4) < 0)
		log_debug("oom_score_adj stays: %s", strerror(errno));
}

/* ---- libfuse ---- */

static void fuse_said(enum fuse_log_level level, const char *fmt, va_list ap)
{
	if (mounting->options->debug) {
		vfprintf(stderr, fmt, ap);
		return;
	}
	if (level > FUSE_LOG_WARNING)
		return;
	vsnprintf(mounting->fuse_said, sizeof(mounting->fuse_said), fmt, ap);
	mounting->fuse_said[strcspn(mounting->fuse_said, "\n")] = '\0';
	if (mounting->ready_fd < 0)
		log_warn("%s", mounting->fuse_said);
}

static int add_arguments(struct mount *m, struct fuse_args *args)
{
	const struct options *o = m->options;
	CLEANUP(free) char *fsname = NULL, *path = realpath(o->source, NULL);
	char *list = NULL;
	int rc;

	if (asprintf(&fsname, "fsname=%s",
		     o->fsname ? o->fsname
		     : path    ? path
			       : o->source) < 0 ||
	    fuse_opt_add_opt_escaped(&list, fsname) ||
	    fuse_opt_add_opt(&list, "subtype=fragfs") ||
	    (!o->writable && fuse_opt_add_opt(&list, "ro")) ||
	    (*o->passed && fuse_opt_add_opt(&list, o->passed)))
		return -ENOMEM;
	rc = fuse_opt_add_arg(args, "fragfs") || fuse_opt_add_arg(args, "-o") ||
	     fuse_opt_add_arg(args, list) || (o->debug && fuse_opt_add_arg(args, "-d"));
	free(list);
	return rc ? -ENOMEM : 0;
}

/* Mounts in this process.  fusermount3 writes to stderr by itself: its text becomes a part of
 * the one line that fragfs prints.
 */
static int mount_here(struct mount *m)
{
	const char *passed = m->options->passed;
	int said = memfd_create("said", MFD_CLOEXEC), before = dup(STDERR_FILENO), rc;
	char text[WHY_MAX / 2] = "";

	if (said >= 0 && before >= 0)
		dup2(said, STDERR_FILENO);
	rc = fuse_session_mount(m->session, m->path);
	if (before >= 0)
		dup2(before, STDERR_FILENO);
	if (said >= 0 && pread(said, text, sizeof(text) - 1, 0) > 0)
		text[strcspn(text, "\n")] = '\0';
	if (rc)
		snprintf(m->why, sizeof(m->why), "cannot mount on %s%s%s: %s", m->path,
			 *passed ? " with -o " : "", passed,
			 *text           ? text
			 : *m->fuse_said ? m->fuse_said
					 : "libfuse does not say why");
	close(said);
	close(before);
	return rc ? -EIO : 0;
}

static int open_session(struct mount *m)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	int rc = add_arguments(m, &args);

	if (!rc) {
		m->session = fuse_session_new(&args, &ops, sizeof(ops), &m->fs);
		if (!m->session)
			rc = -EINVAL;
	}
	if (rc)
		snprintf(m->why, sizeof(m->why), "libfuse: %s",
			 *m->fuse_said ? m->fuse_said : strerror(-rc));
	fuse_opt_free_args(&args);
	return rc;
}

/* libfuse's loop looks whether the session has ended, then waits for a signal.  A signal that
 * comes between the two ends the session and wakes nobody, so it is sent again each second.
 */
static void end_session(int number)
{
	fuse_session_exit(mounting->session);
	alarm(1);
}

static void release_signals(void)
{
	alarm(0);
	for (size_t i = 0; i < ARRAY_SIZE(ending_signals); i++)
		signal(ending_signals[i], SIG_IGN); /* fragfs is ending */
}

static int serve(struct mount *m)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int rc;

	if (!config)
		return -ENOMEM;
	fuse_loop_cfg_set_clone_fd(config, 1);
	fuse_loop_cfg_set_max_threads(config, cpus > 2 ? (unsigned)cpus : 2);
	rc = deferred_init(&m->fs.deferred, m->fs.engine, m->options->timeout_ms);
	if (!rc) {
		hypers_init(&m->fs.hypers, &m->fs.deferred);
		rc = fuse_session_loop_mt(m->session, config);
		hypers_stop(&m->fs.hypers);
		deferred_fini(&m->fs.deferred);
		hypers_fini(&m->fs.hypers);
	}
	fuse_loop_cfg_destroy(config);
	return rc < 0 ? rc : 0; /* above 0: the signal that ended the loop */
}

/* ---- one mount ---- */

static struct engine_options engine_options(const struct options *o)
{
	return (struct engine_options){ .source = o->source,
					.format = o->format,
					.key_file = o->key,
					.transport = o->transport,
					.gather = o->gather,
					.timeout_ms = o->timeout_ms,
					.plain = o->plain,
					.writable = o->writable,
					.local = o->local,
					.overlay = o->overlay,
					.incoherent = !o->coherent,
					.readahead_off = o->readahead_off };
}

static int serve_session(struct mount *m)
{
	int rc = 0;

	catch_signals(end_session, 0);
	signal(SIGALRM, end_session);
	signal(SIGPIPE, SIG_IGN);
	if (m->keeper_fd < 0) {
		rc = mount_here(m);
	} else {
		int fd = keeper_mount(m->keeper_fd, m->why, sizeof(m->why));
		char path[32]; /* libfuse takes a descriptor for a mount point */

		snprintf(path, sizeof(path), "/dev/fd/%d", fd);
		rc = fd < 0 ? fd : fuse_session_mount(m->session, path) ? -EIO : 0;
	}
	if (!rc) {
		if (m->ready_fd >= 0 && chdir("/"))
			log_warn("chdir /: %s", strerror(errno));
		rc = serve(m);
		polls_stop(&m->fs.polls);
		/* Handlers have ended; replies that the engine still owes must find the
		 * session.
		 */
		if (requests_drain(&m->fs.requests, DRAIN_SECONDS)) {
			fuse_session_unmount(m->session);
			log_error("requests are still under way: exiting without closing");
			_exit(1);
		}
		fuse_session_unmount(m->session);
	}
	release_signals();
	return rc;
}

static int serve_tree(struct mount *m)
{
	CLEANUP(free) char *text = options_text(m->options);
	struct fs *fs = &m->fs;
	int rc;

	if (!text)
		return -ENOMEM;
	fs->writable = m->options->writable;
	fs->max_read = m->options->max_read;
	fs->ready = ready;
	fs->ready_arg = m;
	rc = tree_init(&fs->tree, fs->engine, fs->writable);
	if (rc)
		return rc;
	fs->tree.options = text;
	pthread_mutex_init(&fs->lock, NULL);
	staging_pool_init(&fs->pool, m->options->stage_mem);
	polls_init(&fs->polls, fs->engine);
	stat_cache_init(&fs->stats);
	fs->tables = stats_tables_new();
	rc = fs->tables ? requests_init(&fs->requests, fs->engine, state_release) : -ENOMEM;
	if (!rc) {
		rc = open_session(m);
		if (!rc) {
			rc = serve_session(m);
			fuse_session_destroy(m->session);
		}
		requests_fini(&fs->requests);
	}
	state_close_all(fs);
	stats_tables_free(fs->tables);
	stat_cache_fini(&fs->stats);
	polls_fini(&fs->polls);
	staging_pool_fini(&fs->pool);
	tree_fini(&fs->tree);
	return rc;
}

/* Options that mean nothing for the source are no error: one mount point of fstab may serve a
 * job and a checkpoint in turn.
 */
static void warn_of_options(const struct mount *m)
{
	bool live = engine_is_live(m->fs.engine);
	char names[128];

	options_without_effect(m->options, live, names, sizeof(names));
	if (*names)
		log_warn("-o %s: no effect, %s is a %s", names, m->options->source,
			 live ? "job" : "checkpoint");
}

static int serve_job(struct mount *m)
{
	const struct engine_options options = engine_options(m->options);
	int rc = engine_open(&m->fs.engine, &options, m->why, sizeof(m->why));

	size_t used;

	if (rc && !*m->why)
		snprintf(m->why, sizeof(m->why), "%s: %s", m->options->source, strerror(-rc));
	used = strlen(m->why);
	if (rc && *m->hidden_job)
		snprintf(m->why + used, sizeof(m->why) - used,
			 "; a job of that name runs, at %s, and what is here hides it",
			 m->hidden_job);
	if (rc)
		return rc;
	warn_of_options(m);
	rc = serve_tree(m);
	engine_close(m->fs.engine);
	return rc;
}

/* ---- a checkpoint: anybody may have made it, so a process of few rights serves it ---- */

static int keep_mount(void *arg, char *why, size_t whysize)
{
	struct mount *m = arg;
	int rc = open_session(m);

	if (!rc)
		rc = mount_here(m);
	if (rc) {
		snprintf(why, whysize, "%s", m->why);
		return rc;
	}
	if (m->ready_fd >= 0) {
		leave_descriptors(m);
		if (chdir("/"))
			log_debug("chdir /: %s", strerror(errno));
	}
	return fuse_session_fd(m->session);
}

static void keep_end(void *arg, bool mounted)
{
	struct mount *m = arg;

	if (mounted)
		fuse_session_unmount(m->session);
	else if (m->made_overlay)
		rmdir(m->options->overlay);
}

/* Limits this process to the checkpoint and its overlay.  Edits in place need to write the
 * folder, also that of a single file: it has their journal.
 */
static int enter_sandbox(const struct options *o)
{
	const struct engine_options options = engine_options(o);
	bool writable = (o->writable && !o->overlay) || engine_is_unfinished(&options);
	CLEANUP(free) char *path = realpath(o->source, NULL);
	struct sandbox_folder folders[] = { { path, writable }, { o->overlay, true } };
	struct stat st;

	if (!path)
		return -errno;
	if (writable && !stat(path, &st) && !S_ISDIR(st.st_mode))
		folders[0].path = dirname(path);
	return sandbox_enter(folders, ARRAY_SIZE(folders));
}

static int make_overlay(struct mount *m)
{
	const char *path = m->options->overlay;
	int rc;

	m->made_overlay = path && !mkdir(path, 0700);
	rc = path && !m->made_overlay && errno != EEXIST ? -errno : 0;
	if (path && !rc && access(path, F_OK)) /* the path is a link that leads nowhere */
		rc = -errno;
	if (rc)
		snprintf(m->why, sizeof(m->why), "%s: %s", path, strerror(-rc));
	return rc;
}

static int to_sandbox(struct mount *m)
{
	const struct keeper keeper = { keep_mount, keep_end, m };
	int rc;

	if (access(m->options->source, F_OK)) /* engine_open() says that it is not there */
		return 0;
	rc = make_overlay(m);
	if (!rc)
		rc = keeper_split(&keeper, &m->keeper_fd);
	return rc ? rc : enter_sandbox(m->options);
}

int mount_run(const struct options *o)
{
	const struct engine_options options = engine_options(o);
	struct mount m = { .options = o, .ready_fd = -1, .keeper_fd = -1 };
	int rc;

	mounting = &m;
	open_closed();
	fuse_set_log_func(fuse_said);
	rc = mountpoint_check_device(m.why, sizeof(m.why));
	if (!rc)
		rc = mountpoint_prepare(o->mountpoint, &m.path, m.why, sizeof(m.why));
	if (!rc && !o->foreground)
		rc = to_background(&m);
	if (!rc)
		survive_memory_shortage();
	engine_hidden_job(&options, m.hidden_job, sizeof(m.hidden_job));
	if (!rc && engine_is_checkpoint(&options))
		rc = to_sandbox(&m);
	if (!rc)
		rc = serve_job(&m);
	if (rc)
		say(*m.why ? m.why : strerror(-rc));
	free(m.path);
	return rc ? 1 : 0;
}
