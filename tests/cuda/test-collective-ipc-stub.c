/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/collective-suite.h"

#include <stdio.h>

/* The suite over collective-ipc.c on the recorded stub of the CUDA runtime. */

#ifdef HAVE_CUDA
#include "tests/cuda/stub.h"

static int run(void)
{
	static const struct many ipc = { &collective_ipc, &trainer_cuda, 3, 1000 };
	TCase *const more[] = { collective_suite_processes(), NULL };
	const char *why;

	stub_reset();
	why = trainer_cuda_load("libcudart-stub.so");
	if (why) {
		printf("the stub: %s\n", why);
		return 1;
	}
	collective_test_options.staging = 1;
	return collective_suite_run(&ipc, more);
}
#endif

int main(void)
{
#ifdef HAVE_CUDA
	return run();
#else
	printf("skip: built without CUDA: no headers to compile its stub with\n");
	return 77;
#endif
}
