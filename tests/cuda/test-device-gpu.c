/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/device-suite.h"

#include <stdio.h>

/* The suite on the GPUs of this machine. */

int main(void)
{
#ifdef HAVE_CUDA
	const char *missing = trainer_cuda_load(NULL);

	if (!missing)
		return device_suite_run(&trainer_cuda, NULL);
	printf("skip: no GPU: %s\n", missing);
#else
	printf("skip: built without CUDA\n");
#endif
	return 77;
}
