/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* cudaMemcpyDefault and cudaStreamNonBlocking: the example is built without CUDA's headers, and
 * loads the runtime.
 */
enum { MEMCPY_DEFAULT = 4, NON_BLOCKING = 1 };

static struct {
	int (*set_device)(int);
	const char *(*error_string)(int);
	int (*stream_create)(void **, unsigned);
	int (*stream_synchronize)(void *);
	int (*alloc)(void **, size_t);
	int (*copy)(void *, const void *, size_t, int, void *);
	int (*fill)(void *, int, size_t, void *);
} cuda;

static void *stream;

static void check(const char *what, int error)
{
	if (!error)
		return;
	fprintf(stderr, "train: %s: %s (CUDA error %d)\n", what,
		cuda.error_string ? cuda.error_string(error) : "?", error);
	exit(1);
}

static void *load(void)
{
	void *library = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		library = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL);
	if (library)
		return library;
	fprintf(stderr, "train: no CUDA runtime: %s\n", dlerror());
	exit(1);
}

static void find(void *library, const char *name, void *function)
{
	*(void **)function = dlsym(library, name);
	if (*(void **)function)
		return;
	fprintf(stderr, "train: the CUDA runtime has no %s\n", name);
	exit(1);
}

void *device_open(int number)
{
	void *library = load();

	find(library, "cudaGetErrorString", &cuda.error_string);
	find(library, "cudaSetDevice", &cuda.set_device);
	find(library, "cudaStreamCreateWithFlags", &cuda.stream_create);
	find(library, "cudaStreamSynchronize", &cuda.stream_synchronize);
	find(library, "cudaMalloc", &cuda.alloc);
	find(library, "cudaMemcpyAsync", &cuda.copy);
	find(library, "cudaMemsetAsync", &cuda.fill);
	check("cudaSetDevice", cuda.set_device(number));
	check("cudaStreamCreateWithFlags", cuda.stream_create(&stream, NON_BLOCKING));
	return stream;
}

void *device_alloc(size_t bytes)
{
	void *memory;

	check("cudaMalloc", cuda.alloc(&memory, bytes ? bytes : 1));
	check("cudaMemsetAsync", cuda.fill(memory, 0, bytes, stream));
	return memory;
}

void device_put(void *device, const void *host, size_t bytes)
{
	if (bytes)
		check("cudaMemcpyAsync",
		      cuda.copy(device, host, bytes, MEMCPY_DEFAULT, stream));
}

void device_get(void *host, const void *device, size_t bytes)
{
	if (bytes)
		check("cudaMemcpyAsync",
		      cuda.copy(host, device, bytes, MEMCPY_DEFAULT, stream));
	check("cudaStreamSynchronize", cuda.stream_synchronize(stream));
}
