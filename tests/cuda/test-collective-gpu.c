/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/collective-suite.h"

#include <stdio.h>

/* The suite on the GPUs of this machine: with NCCL, one rank on each, with one GPU a rank that sends to itself; and by their
 * copy engines, several on each, also as processes.
 */

#ifdef HAVE_NCCL
#include "engine/collective-nccl-load.h"

static const char *missing_nccl(void)
{
	static char why[200];
	struct nccl nccl;

	return nccl_load(&nccl, NULL, why, sizeof(why)) ? why : NULL;
}

static int run(void)
{
	struct many gpus = { &collective_nccl, &trainer_cuda, 1, 10000 };
	static const struct many copying = { &collective_ipc, &trainer_cuda, 3, 10000 };
	TCase *more[] = { NULL, NULL };
	const char *missing = trainer_cuda_load(NULL);
	int failed = 0;

	if (missing) {
		printf("skip: no GPU: %s\n", missing);
		return 77;
	}
	missing = missing_nccl();
	gpus.nranks = (unsigned)u64_min(trainer_cuda_devices, RANKS_MAX);
	if (missing)
		printf("%s\n", missing);
	else
		failed = collective_suite_run(&gpus, NULL);
	collective_test_options.staging = 1;
	more[0] = collective_suite_processes();
	return collective_suite_run(&copying, more) | failed;
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
