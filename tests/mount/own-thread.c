/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/frag.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* own-thread MOUNTPOINT: a job of one rank that is trained by a thread other than the process's
 * first, prints the address to mount, and, when a line has come on standard input, uses its own
 * mount: from the training thread, and from the first thread while the other one trains on.
 */

enum { NUMEL = 64, BYTES = NUMEL * 4 };

static struct frag *frag;
static const char *mountpoint;
static volatile int goes_on = 1;

/* Prints how a file is written, or read: "params/w/grad read: Resource deadlock avoided". */
static void use(const char *name, const void *bytes, size_t size)
{
	char path[4096], buffer[BYTES];
	ssize_t n = 1;
	int fd, failed;

	snprintf(path, sizeof(path), "%s/%s", mountpoint, name);
	errno = 0;
	fd = open(path, bytes ? O_WRONLY : O_RDONLY);
	failed = fd < 0 || (bytes && write(fd, bytes, size) < 0);
	while (!failed && !bytes && n) {
		n = read(fd, buffer, sizeof(buffer));
		failed = n < 0;
	}
	if (fd >= 0)
		failed |= close(fd) < 0;
	printf("%s %s: %s\n", name, bytes ? "write" : "read", failed ? strerror(errno) : "ok");
	fflush(stdout);
}

static void *train(void *arg)
{
	static float zeros[NUMEL];
	char letter;

	frag_ready(frag);
	printf("%s\n", frag_address(frag));
	fflush(stdout);
	while (read(STDIN_FILENO, &letter, 1) == 1 && letter != '\n')
		;
	use("params/w/fp32", zeros, BYTES);
	use("groups/0/lr", "0.25\n", 5);
	use(".frag/freeze", "5\n", 2);
	use("params/w/grad", NULL, 0);
	use("params/w/stats/grad/norm", NULL, 0);
	use("params/w/fp32", NULL, 0);
	frag_grads_valid(frag, 1);
	use("params/w/grad", NULL, 0);
	frag_step_begin(frag);
	use("params/w/exp_avg", NULL, 0);
	use(".frag/stats", NULL, 0); /* with an error in each line */
	use("now/w/fp32", NULL, 0);
	frag_step_end(frag);
	puts("trains");
	fflush(stdout);
	*(volatile int *)arg = 1;
	while (goes_on) {
		frag_safe_point(frag);
		usleep(1000);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static const uint64_t shape[] = { NUMEL };
	static float zeros[NUMEL], ones[3][NUMEL];
	static const char *const keys[] = { "fp32", "grad", "exp_avg" };
	struct frag_tensor t = { sizeof(t), .name = "w", .dtype = FRAG_BF16, .ndim = 1,
				 .shape = shape };
	volatile int trains = 0;
	double lr = 0.5;
	pthread_t thread;
	int param, group;

	mountpoint = argv[argc - 1];
	if (frag_open(&frag, NULL))
		return 2;
	param = frag_param(frag, &t);
	group = frag_group(frag, &param, 1,
			   &(struct frag_zero){ sizeof(struct frag_zero), .stage = 1 });
	for (int i = 0; i < 3; i++)
		if (frag_state_keep(frag, group, 0, keys[i], FRAG_F32, ones[i]))
			return 2;
	if (frag_hyper(frag, group, "lr", &lr) ||
	    pthread_create(&thread, NULL, train, (void *)&trains))
		return 2;
	while (!trains)
		usleep(1000);
	use("params/w/fp32", zeros, BYTES);
	goes_on = 0;
	pthread_join(thread, NULL);
	frag_close(frag);
	return 0;
}
