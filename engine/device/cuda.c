/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/device/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

static const char *const usual[] = { "libcudart.so.13", "libcudart.so.12" };

/* Opens the runtime: where the process has loaded one, PyTorch's for example, that one.  The
 * library stays in the process, as its threads do.
 */
static void *open_library(const char *name)
{
	enum { MODE = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE };
	void *library = NULL;

	if (name)
		return dlopen(name, MODE);
	for (size_t i = 0; i < ARRAY_SIZE(usual) && !library; i++)
		library = dlopen(usual[i], MODE);
	return library;
}

static const char *find_all(struct cuda *cuda, void *library)
{
#define FIND(name)                                                                             \
	if (!library_find(library, "cuda" #name, &cuda->name))                                 \
		return "cuda" #name;
#define FIND_LATER(name) library_find(library, "cuda" #name, &cuda->name);
	CUDA_CALLS(FIND)
	CUDA_LATER_CALLS(FIND_LATER)
#undef FIND
#undef FIND_LATER
	return NULL;
}

int cuda_load(struct cuda *cuda, const char *library)
{
	void *handle = open_library(library);
	const char *lacking;

	if (!handle) {
		log_warn("no CUDA runtime: %s", dlerror());
		return -ENODEV;
	}
	lacking = find_all(cuda, handle);
	/* RTLD_NODELETE: the library stays */
	dlclose(handle);
	if (!lacking)
		return 0;
	log_warn("the CUDA runtime is too old: it has no %s", lacking);
	return -ENODEV;
}

int cuda_errno(const struct cuda *cuda, cudaError_t error)
{
	if (error == cudaSuccess)
		return 0;
	cuda->GetLastError();
	switch (error) {
	case cudaErrorNotReady:
		return -EAGAIN;
	case cudaErrorMemoryAllocation:
		return -ENOMEM;
	case cudaErrorInvalidValue:
	case cudaErrorHostMemoryAlreadyRegistered:
		return -EINVAL;
	default:
		return -EIO;
	}
}

int cuda_result(const struct cuda *cuda, const char *call, cudaError_t error)
{
	int rc = cuda_errno(cuda, error);

	if (rc)
		log_warn("%s: %s", call, cuda->GetErrorString(error));
	return rc;
}

int cuda_make_stream(const struct cuda *cuda, cudaStream_t *stream)
{
	int least, greatest;
	int rc = CUDA_CALL(cuda, DeviceGetStreamPriorityRange, &least, &greatest);

	if (rc)
		return rc;
	return CUDA_CALL(cuda, StreamCreateWithPriority, stream, cudaStreamNonBlocking, least);
}
