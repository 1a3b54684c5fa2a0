/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/device-suite.h"
#include "tests/cuda/stub.h"

#include <stdio.h>

/* The suite over device-cuda.c on the recorded stub, and what it calls. */

#ifndef HAVE_CUDA

int main(void)
{
	printf("skip: built without CUDA: no headers to compile its stub with\n");
	return 77;
}

#else

int main(void)
{
	const char *missing;

	stub_reset();
	missing = trainer_cuda_load("libcudart-stub.so");
	if (missing)
		printf("the stub: %s\n", missing);
	return missing ? 1 : device_suite_run(&trainer_cuda, NULL);
}

#endif
