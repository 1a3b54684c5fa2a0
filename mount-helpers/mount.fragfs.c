/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* mount.fragfs: mount(8) calls it for `mount -t fragfs SOURCE DIR -o ...`; it calls fragfs. */

#include "engine/base/base.h"
#include "mount-helpers/mount-options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* The exit statuses of mount(8). */
enum { MOUNT_USAGE = 1, MOUNT_SYSTEM = 2, MOUNT_FAILURE = 32 };

struct mount_request {
	const char *source;
	const char *mountpoint;
	char *options;
	bool fake;
	bool verbose;
};

static int usage(FILE *to, int status)
{
	fputs("usage: mount.fragfs SOURCE MOUNTPOINT [-fnsvhV] [-o OPTIONS]\n"
	      "Called by mount -t fragfs; OPTIONS are those of fragfs(1), and edit for -o "
	      "rw.\n",
	      to);
	return status;
}

/* Appends options, after a comma; false: no memory. */
static bool join(char **options, const char *more)
{
	char *joined;

	if (asprintf(&joined, "%s%s%s", *options ? *options : "", *options ? "," : "", more) <
	    0)
		return false;
	free(*options);
	*options = joined;
	return true;
}

/* Reads the command line.  Returns -1, or the status with which to exit. */
static int read_arguments(int argc, char **argv, struct mount_request *r)
{
	int c;

	while ((c = getopt(argc, argv, "fnsvhVo:t:")) != -1) {
		if (c == 'f')
			r->fake = true;
		else if (c == 'v')
			r->verbose = true;
		else if (c == 'o' && !join(&r->options, optarg))
			return MOUNT_SYSTEM;
		else if (c == 'h')
			return usage(stdout, 0);
		else if (c == 'V')
			return printf("mount.fragfs %s\n", PACKAGE_VERSION), 0;
		else if (c == '?')
			return usage(stderr, MOUNT_USAGE);
	}
	if (argc - optind != 2)
		return usage(stderr, MOUNT_USAGE);
	r->source = argv[optind];
	r->mountpoint = argv[optind + 1];
	return -1;
}

/* Finds the fragfs beside this program, as in a build folder; else the installed one. */
static void find_fragfs(char *path, size_t size)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	self[n > 0 ? n : 0] = '\0';
	slash = strrchr(self, '/');
	if (slash) {
		snprintf(path, size, "%.*s/fragfs", (int)(slash - self), self);
		if (!access(path, X_OK))
			return;
	}
	snprintf(path, size, "%s", BINDIR "/fragfs");
	if (access(path, X_OK))
		snprintf(path, size, "fragfs"); /* found in PATH */
}

static int wait_for(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0) {
		if (errno != EINTR)
			return MOUNT_SYSTEM;
	}
	if (!WIFEXITED(status))
		return MOUNT_FAILURE;
	switch (WEXITSTATUS(status)) {
	case 0:
		return 0;
	case 2:
		return MOUNT_USAGE;
	case 127:
		return MOUNT_SYSTEM;
	default:
		return MOUNT_FAILURE;
	}
}

static int run_fragfs(const struct mount_request *r, char *options)
{
	char path[PATH_MAX];
	pid_t child;

	find_fragfs(path, sizeof(path));
	if (r->verbose)
		printf("%s -o %s -- %s %s\n", path, options, r->source, r->mountpoint);
	if (r->fake)
		return 0;
	fflush(stdout);
	child = fork();
	if (child < 0) {
		fprintf(stderr, "mount.fragfs: fork: %s\n", strerror(errno));
		return MOUNT_SYSTEM;
	}
	if (!child) {
		/* mount(8) leaves no PATH, by which fragfs finds fusermount3. */
		setenv("PATH", BINDIR ":/usr/local/bin:/usr/bin:/bin", 0);
		execlp(path, "fragfs", "-o", options, "--", r->source, r->mountpoint, NULL);
		fprintf(stderr, "mount.fragfs: %s: %s\n", path, strerror(errno));
		_exit(127);
	}
	return wait_for(child);
}

int main(int argc, char **argv)
{
	struct mount_request r = { 0 };
	char *options;
	int status = read_arguments(argc, argv, &r);

	if (status < 0) {
		options = mount_options_for_fragfs(r.options);
		status = options ? run_fragfs(&r, options) : MOUNT_SYSTEM;
		free(options);
	}
	free(r.options);
	return status;
}
