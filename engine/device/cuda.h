/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DEVICE_CUDA_H
#define ENGINE_DEVICE_CUDA_H

/* The CUDA runtime, loaded at run time: one program serves machines with and without it. */

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

/* Calls that only later runtimes have; NULL in older ones. */
#if CUDART_VERSION >= 12080
#define CUDA_LATER_CALLS(X)                                                                    \
	X(LibraryGetKernel)                                                                    \
	X(LibraryLoadData)                                                                     \
	X(LibraryUnload)
#else
#define CUDA_LATER_CALLS(X)
#endif

struct cuda {
#define CUDA_FIELD(name) __typeof__(&cuda##name) name;
	CUDA_CALLS(CUDA_FIELD)
	CUDA_LATER_CALLS(CUDA_FIELD)
#undef CUDA_FIELD
};

/* Loads the library; NULL: by its usual names.
 * -ENODEV: there is none, or it lacks a call; a warning is logged.
 */
int cuda_load(struct cuda *cuda, const char *library);

/* Translates a result of the runtime to 0 or -errno, and clears the error that the runtime
 * keeps for cudaGetLastError, which is the trainer's to read.
 */
int cuda_errno(const struct cuda *cuda, cudaError_t error);
/* Translates a result as cuda_errno does, and logs an error as "CALL: the runtime's own
 * text".
 */
int cuda_result(const struct cuda *cuda, const char *call, cudaError_t error);
/* Makes a stream of the least priority, so that the trainer's kernels go first.  Errors of
 * cuda_result.
 */
int cuda_make_stream(const struct cuda *cuda, cudaStream_t *stream);
#define CUDA_CALL(cuda, name, ...) cuda_result(cuda, "cuda" #name, (cuda)->name(__VA_ARGS__))

#endif
#endif
