/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/gpu.h"

#ifdef HAVE_NCCL
#include "engine/base/log.h"
#include "engine/device/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { PAGE = 4096, WAIT_MS = 120000 };

_Noreturn void gpu_give_up(const char *what, const char *why)
{
	printf("%s: %s\n", what, why);
	exit(1);
}

static void must(const char *what, cudaError_t error)
{
	if (error != cudaSuccess)
		gpu_give_up(what, "an error of the CUDA runtime");
}

static void find_all(struct gpu *gpu)
{
	void *library = dlopen("libcudart.so.13", RTLD_NOW);

	if (!library)
		library = dlopen("libcudart.so.12", RTLD_NOW);
#define FIND(name)                                                                             \
	*(void **)&gpu->name = dlsym(library, "cuda" #name);                                   \
	if (!gpu->name)                                                                        \
		gpu_give_up("cuda" #name, "there is none");
	GPU_CALLS(FIND)
#undef FIND
}

static const char *open_device(struct gpu *gpu)
{
	static char text[1024];

	if (!device_cuda.open(&gpu->device, &(struct device_options){ 0 }))
		return NULL;
	log_tail(text, sizeof(text));
	text[strcspn(text, "\n")] = '\0';
	return text;
}

const char *gpu_open(struct gpu *gpu)
{
	static char why[200];
	const char *missing = open_device(gpu);

	if (missing)
		return missing;
	if (nccl_load(&gpu->nccl, NULL, why, sizeof(why))) {
		device_cuda.close(gpu->device);
		return why;
	}
	if (device_cuda.use(gpu->device, 0))
		gpu_give_up("device 0", "it cannot be used");
	find_all(gpu);
	return NULL;
}

void gpu_close(struct gpu *gpu)
{
	device_cuda.close(gpu->device);
}

void *gpu_alloc(struct gpu *gpu, uint64_t size)
{
	void *memory;

	must("cudaMalloc", gpu->Malloc(&memory, size));
	return memory;
}

void gpu_free(struct gpu *gpu, void *memory)
{
	must("cudaFree", gpu->Free(memory));
}

void gpu_copy(struct gpu *gpu, void *to, const void *from, uint64_t size)
{
	must("cudaMemcpy", gpu->Memcpy(to, from, size, cudaMemcpyDefault));
}

void *gpu_pinned(struct gpu *gpu, uint64_t size)
{
	uint64_t whole = u64_div_ceil(size, PAGE) * PAGE;
	void *memory = aligned_alloc(PAGE, whole);

	if (!memory)
		gpu_give_up("memory", strerror(ENOMEM));
	memset(memory, 0, whole);
	if (device_cuda.pin(gpu->device, memory, whole))
		gpu_give_up("cudaHostRegister", "no");
	return memory;
}

void gpu_unpin(struct gpu *gpu, void *memory)
{
	device_cuda.unpin(gpu->device, memory);
	free(memory);
}

/* ---- operations ---- */

static void on_done(struct collective_io *io, int result)
{
	container_of(io, struct gpu_part, io)->result = result;
}

int gpu_launch(struct collective *c, struct gpu_part *p)
{
	p->result = -EINPROGRESS;
	p->io.done = on_done;
	return collective_nccl.launch(c, &p->io);
}

static void pause_shortly(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
}

int gpu_wait(struct gpu_part *p)
{
	for (uint64_t end = monotonic_ms() + WAIT_MS; p->result == -EINPROGRESS;) {
		if (monotonic_ms() >= end)
			gpu_give_up("an operation", "it has not ended");
		pause_shortly();
	}
	return p->result;
}

int gpu_ready(struct collective *c)
{
	uint64_t end = monotonic_ms() + WAIT_MS;
	int rc;

	while ((rc = collective_nccl.state(c)) == -EINPROGRESS && monotonic_ms() < end)
		pause_shortly();
	return rc;
}

#endif
