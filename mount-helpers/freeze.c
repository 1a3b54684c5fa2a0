/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/base.h"
#include "engine/base/one-line.h"
#include "mount-helpers/call.h"
#include "mount-helpers/commands.h"
#include "mount-helpers/mount-file.h"
#include "mount-helpers/target.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum { SECONDS = 60, NOT_RUN = 126, NOT_FOUND = 127, BY_SIGNAL = 128 };

static const char *why_not(int error)
{
	switch (error) {
	case EBUSY:
		return "the job is frozen already";
	case ESTALE:
		return "the ranks pass boundaries faster than they can agree on one";
	case ETIMEDOUT:
		return "not all ranks came to one boundary in that time: nothing is frozen";
	case EIO:
		return "the job, or the rank that would have to agree, is lost";
	case EROFS:
		return "is not mounted with -o rw";
	default:
		return strerror(error);
	}
}

static int open_freeze(const char *mountpoint)
{
	char path[PATH_MAX + 16];
	int fd;

	snprintf(path, sizeof(path), "%s/.frag/freeze", mountpoint);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Prints why the job cannot be frozen or thawed. */
static int fail(const char *mountpoint, int error)
{
	if (error != ENOENT)
		return call_fail("%s: %s", target_name(mountpoint), why_not(error));
	return call_fail(target_is_checkpoint(mountpoint)
				 ? "%s: a checkpoint is mounted there: nothing trains"
				 : "%s: no mount of fragfs is there",
			 target_name(mountpoint));
}

static int say_once(const char *mountpoint, const char *line)
{
	CLEANUP(close) int fd = open_freeze(mountpoint);
	int rc = fd < 0 ? fd : mount_file_order(fd, line);

	return rc ? fail(mountpoint, -rc) : 0;
}

/* ---- a command ---- */

/* Runs a command; returns its exit status.  Ctrl-C and Ctrl-\ end the command, not this
 * process, as in system(3).  If this process is killed, the kernel closes the file, which thaws
 * the job.
 */
static int run_and_wait(char **command)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN }, interrupt, quit;
	int status = 0;
	pid_t pid;

	sigaction(SIGINT, &ignore, &interrupt);
	sigaction(SIGQUIT, &ignore, &quit);
	pid = fork();
	if (!pid) {
		sigaction(SIGINT, &interrupt, NULL);
		sigaction(SIGQUIT, &quit, NULL);
		execvp(*command, command);
		fprintf(stderr, "fragctl: %s: %s\n", *command, strerror(errno));
		_exit(errno == ENOENT ? NOT_FOUND : NOT_RUN);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid < 0) {
		fprintf(stderr, "fragctl: fork: %s\n", strerror(errno));
		return FRAGCTL_FAILURE;
	}
	return WIFSIGNALED(status) ? BY_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

static int freeze_for(const char *mountpoint, const char *line, char **command)
{
	CLEANUP(close) int fd = open_freeze(mountpoint);
	int rc = fd < 0 ? fd : mount_file_order(fd, line), status;

	if (rc)
		return fail(mountpoint, -rc);
	status = run_and_wait(command);
	rc = mount_file_order(fd, "0\n");
	if (!rc)
		return status;
	call_fail("%s: %s", target_name(mountpoint),
		  rc == -ETIMEDOUT ? "the freeze was over before the command was"
				   : strerror(-rc));
	return status ? status : FRAGCTL_FAILURE;
}

/* With --json, prints what was done. */
static int report(const struct call *call, const char *mountpoint, const char *name,
		  unsigned seconds)
{
	if (!call_has(call, 'J'))
		return 0;
	return call_print_object(call, name,
				 json_pack("{s:o s:i}", "mountpoint",
					   one_line_json(target_name(mountpoint)), "seconds",
					   (int)seconds));
}

/* Freezes the job for at most the seconds of -t.  With a program: runs it, thaws the job, and
 * returns the program's exit status, or 128 + its signal.  Without: returns when all ranks
 * stand.
 */
int freeze_run(const struct call *call)
{
	char mountpoint[TARGET_PATH_MAX], line[32];
	unsigned seconds = call->seconds ? call->seconds : SECONDS;
	int rc;

	if (call->program && call_has(call, 'J'))
		return call_usage("-J: a COMMAND has standard output for itself");
	rc = target_open_word(call, true, mountpoint);
	if (rc)
		return rc;
	/* a private mount keeps up the freeze, and ends with this process */
	if (!call->program && target_is_private(mountpoint) &&
	    !target_is_checkpoint(mountpoint))
		return call_usage("%s: is not mounted: name a command that it shall be frozen "
				  "for, fragctl freeze -j %s -- COMMAND",
				  call->job, call->job);
	setenv("FRAG_MOUNT", mountpoint, 1);
	snprintf(line, sizeof(line), "%u%s\n", seconds, call->program ? " held" : "");
	if (call->program)
		return freeze_for(mountpoint, line, call->program);
	rc = say_once(mountpoint, line);
	return rc ? rc : report(call, mountpoint, "freeze", seconds);
}

/* Ends any freeze of the job. */
int freeze_run_thaw(const struct call *call)
{
	char mountpoint[TARGET_PATH_MAX];
	int rc = target_open_word(call, true, mountpoint);

	if (!rc)
		rc = say_once(mountpoint, "0\n");
	return rc ? rc : report(call, mountpoint, "thaw", 0);
}
