/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/collective-suite.h"

#include <stdio.h>

/* The suite with NCCL on the GPUs of this machine, one rank on each: with one GPU a rank that
 * sends to itself.
 */

#ifdef HAVE_NCCL
#include "engine/collective/nccl.h"

static const char *missing_nccl(void)
{
	static char why[200];
	struct nccl nccl;

	return nccl_load(&nccl, NULL, why, sizeof(why)) ? why : NULL;
}

static int run(void)
{
	struct many gpus = { &collective_nccl, &trainer_cuda, 1, 10000 };
	const char *missing = trainer_cuda_load(NULL);

	if (missing) {
		printf("skip: no GPU: %s\n", missing);
		return 77;
	}
	missing = missing_nccl();
	if (missing) {
		printf("skip: %s\n", missing);
		return 77;
	}
	gpus.nranks = (unsigned)u64_min(trainer_cuda_devices, RANKS_MAX);
	return collective_suite_run(&gpus, NULL);
}
#endif

int main(void)
{
#ifdef HAVE_NCCL
	return run();
#else
	printf("skip: built without NCCL\n");
	return 77;
#endif
}
