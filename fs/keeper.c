/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/keeper.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct reply {
	int rc;
	char why[512];
};

static volatile pid_t server; /* for pass_on(), the handler of signals */

static void pass_on(int signal)
{
	kill(server, signal);
}

/* ---- a reply, and a descriptor with it ---- */

union control { /* room for a descriptor, aligned */
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
};

static void send_reply(int to, struct reply *reply)
{
	union control control = { .room = "" };
	struct iovec bytes = { reply, sizeof(*reply) };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1 };
	struct cmsghdr *head;

	if (reply->rc >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		head = CMSG_FIRSTHDR(&message);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(head), &reply->rc, sizeof(int));
	}
	while (sendmsg(to, &message, MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

static int receive_reply(int from, struct reply *reply)
{
	union control control;
	struct iovec bytes = { reply, sizeof(*reply) };
	struct msghdr message = { .msg_iov = &bytes,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *head;
	ssize_t n;

	do
		n = recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
	while (n < 0 && errno == EINTR);
	if (n != sizeof(*reply))
		return -EIO;
	head = CMSG_FIRSTHDR(&message);
	if (reply->rc < 0)
		return 0;
	/* this process had no room for a descriptor */
	if (!head || head->cmsg_type != SCM_RIGHTS)
		return -EMFILE;
	memcpy(&reply->rc, CMSG_DATA(head), sizeof(int));
	return 0;
}

/* ---- the keeper ---- */

/* Mounts when the server asks, until the server has gone; returns true if it has mounted. */
static bool serve(const struct keeper *k, int fd)
{
	struct reply reply;
	bool mounted = false;
	char ask;
	ssize_t n;

	while ((n = read(fd, &ask, 1)) != 0) {
		if (n < 0 && errno != EINTR)
			break;
		if (n < 0)
			continue;
		memset(&reply, 0, sizeof(reply));
		reply.rc = k->mount(k->arg, reply.why, sizeof(reply.why));
		mounted = reply.rc >= 0;
		send_reply(fd, &reply);
	}
	return mounted;
}

_Noreturn static void keep(const struct keeper *k, int fd)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
	struct sigaction action = { .sa_handler = pass_on, .sa_flags = SA_RESTART };
	bool mounted;
	int status;

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		sigaction(signals[i], &action, NULL);
	mounted = serve(k, fd);
	while (waitpid(server, &status, 0) < 0 && errno == EINTR)
		;
	k->end(k->arg, mounted);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

int keeper_split(const struct keeper *k, int *fd)
{
	pid_t keeper = getpid();
	int fds[2], rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
		return -errno;
	server = fork();
	if (server > 0) {
		close(fds[1]);
		keep(k, fds[0]);
	}
	rc = server < 0 ? -errno : 0;
	if (!rc) {
		/* The server ends with its keeper: a signal to either of a mount's two
		 * processes means the mount.
		 */
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		/* The keeper may have ended before prctl(2), which then sends no signal. */
		if (getppid() != keeper)
			_exit(1);
	}
	close(fds[0]);
	if (rc)
		close(fds[1]);
	else
		setpgid(0, 0); /* a terminal's signals come once, from the keeper */
	*fd = fds[1];
	return rc;
}

int keeper_mount(int fd, char *why, size_t whysize)
{
	struct reply reply = { .rc = -EIO };
	int rc = write(fd, "m", 1) == 1 ? receive_reply(fd, &reply) : -errno;

	if (rc)
		snprintf(why, whysize,
			 rc == -EMFILE ? "no descriptor is left for /dev/fuse"
				       : "the process that mounts has gone");
	else if (reply.rc < 0)
		snprintf(why, whysize, "%.*s", (int)sizeof(reply.why), reply.why);
	return rc ? rc : reply.rc;
}
