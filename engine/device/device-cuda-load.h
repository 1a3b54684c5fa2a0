/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DEVICE_DEVICE_CUDA_LOAD_H
#define ENGINE_DEVICE_DEVICE_CUDA_LOAD_H

/* The CUDA runtime, loaded when it is asked for: one program for machines with and without. */

#include "engine/base/base.h"

#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>

#define CUDA_CALLS(X)                                                                          \
	X(DeviceGetAttribute)                                                                  \
	X(DeviceGetStreamPriorityRange)                                                        \
	X(DriverGetVersion)                                                                    \
	X(EventCreateWithFlags)                                                                \
	X(EventDestroy)                                                                        \
	X(EventQuery)                                                                          \
	X(EventRecord)                                                                         \
	X(Free)                                                                                \
	X(FreeAsync)                                                                           \
	X(GetDevice)                                                                           \
	X(GetDeviceCount)                                                                      \
	X(GetErrorString)                                                                      \
	X(GetLastError)                                                                        \
	X(HostGetDevicePointer)                                                                \
	X(HostRegister)                                                                        \
	X(HostUnregister)                                                                      \
	X(LaunchKernel)                                                                        \
	X(Malloc)                                                                              \
	X(MallocFromPoolAsync)                                                                 \
	X(MemPoolCreate)                                                                       \
	X(MemPoolDestroy)                                                                      \
	X(MemPoolSetAttribute)                                                                 \
	X(MemcpyAsync)                                                                         \
	X(PointerGetAttributes)                                                                \
	X(SetDevice)                                                                           \
	X(StreamCreateWithFlags)                                                               \
	X(StreamCreateWithPriority)                                                            \
	X(StreamDestroy)                                                                       \
	X(StreamIsCapturing)                                                                   \
	X(StreamWaitEvent)                                                                     \
	X(ThreadExchangeStreamCaptureMode)

/* Later runtimes have these; NULL: this one has not. */
#if CUDART_VERSION >= 12080
#define CUDA_LATER_CALLS(X)                                                                    \
	X(LibraryGetKernel)                                                                    \
	X(LibraryLoadData)                                                                     \
	X(LibraryUnload)
#else
#define CUDA_LATER_CALLS(X)
#endif

struct cuda {
	void *library;
#define CUDA_FIELD(name) __typeof__(&cuda##name) name;
	CUDA_CALLS(CUDA_FIELD)
	CUDA_LATER_CALLS(CUDA_FIELD)
#undef CUDA_FIELD
};

/* library: NULL: by its usual names.  -ENODEV: there is none, or it lacks something; a line
 * says what.
 */
int cuda_load(struct cuda *cuda, const char *library);
void cuda_unload(struct cuda *cuda);

/* 0, or -errno and a line: "WHAT: the runtime's own text".  Nothing is left for the trainer to
 * find in cudaGetLastError.
 */
int cuda_result(const struct cuda *cuda, const char *what, cudaError_t error);
/* The same without a line. */
int cuda_errno(const struct cuda *cuda, cudaError_t error);

#endif
#endif
