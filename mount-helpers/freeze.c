/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/base.h"
#include "mount-helpers/fragctl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum { FAILURE = 1, NOT_RUN = 126, NOT_FOUND = 127, BY_SIGNAL = 128 };

static int complain(const char *mountpoint, const char *what)
{
	fprintf(stderr, "fragctl: %s: %s\n", mountpoint, what);
	return FAILURE;
}

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
	case ENOENT:
		return "no mount of fragfs is there";
	default:
		return strerror(error);
	}
}

static int open_freeze(const char *mountpoint)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/.frag/freeze", mountpoint);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int say(int fd, const char *line)
{
	return write(fd, line, strlen(line)) < 0 ? -errno : 0;
}

static int say_once(const char *mountpoint, const char *line)
{
	CLEANUP(close) int fd = open_freeze(mountpoint);
	int rc = fd < 0 ? fd : say(fd, line);

	return rc ? complain(mountpoint, why_not(-rc)) : 0;
}

/* ---- a command ---- */

/* Runs a command; returns its exit status.  Ctrl-C and Ctrl-\ are for the command alone, as in
 * system(3).  If this process is killed, the kernel closes the file, which thaws the job.
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
		return FAILURE;
	}
	return WIFSIGNALED(status) ? BY_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

static int freeze_for(const char *mountpoint, const char *line, char **command)
{
	CLEANUP(close) int fd = open_freeze(mountpoint);
	int rc = fd < 0 ? fd : say(fd, line), status;

	if (rc)
		return complain(mountpoint, why_not(-rc));
	status = run_and_wait(command);
	rc = say(fd, "0\n");
	if (!rc)
		return status;
	complain(mountpoint, rc == -ETIMEDOUT ? "the freeze was over before the command was"
					      : strerror(-rc));
	return status ? status : FAILURE;
}

int freeze(const char *mountpoint, unsigned seconds, char **command)
{
	char line[32];

	snprintf(line, sizeof(line), "%u%s\n", seconds, command ? " held" : "");
	return command ? freeze_for(mountpoint, line, command) : say_once(mountpoint, line);
}

int thaw(const char *mountpoint)
{
	return say_once(mountpoint, "0\n");
}
