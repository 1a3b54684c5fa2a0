/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/mount.h"

#include <errno.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_MS = 5000, TRY_MS = 5 };

/* Runs in a child of the caller, and asks in a child of its own, which cannot be killed while
 * its statvfs is with the server: this process gives that one up, and the caller can always
 * wait for this one.
 */
static bool ask(const char *path)
{
	pid_t pid = fork();
	struct statvfs st;
	int status;

	if (!pid)
		/* ENOTCONN: the server has ended; ECONNABORTED: its connection was cut during
		 * this request
		 */
		_exit(statvfs(path, &st) && (errno == ENOTCONN || errno == ECONNABORTED));
	for (int tries = 0; pid > 0 && tries < ANSWER_MS / TRY_MS; tries++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) && WEXITSTATUS(status);
		usleep(TRY_MS * 1000);
	}
	if (pid > 0)
		kill(pid, SIGKILL);
	return false;
}

bool mount_is_dead(const char *path)
{
	pid_t pid = fork();
	int status = 0;

	if (!pid)
		_exit(ask(path));
	while (pid > 0 && waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return false;
	}
	return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status);
}
