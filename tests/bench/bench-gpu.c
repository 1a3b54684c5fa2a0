/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/bench/rows.h"
#include "tests/cuda/gpu.h"

#include <stdio.h>

/* Speeds of copies and collectives by the ports of devices and of NCCL, each beside the same by
 * plain calls of CUDA and NCCL.  Each way runs once in each round; a ratio is the median of the
 * rounds' ratios.
 * TEST_MIB: MiB of a copy: 1024.
 */

#ifndef HAVE_NCCL

int main(void)
{
	printf("skip: built without NCCL\n");
	return 77;
}

#else

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

enum { ROUNDS = 7, SENDS = 16, DEFAULT_MIB = 1024 };
#define MIB ((uint64_t)1 << 20)

static struct gpu gpu;
static uint64_t size; /* bytes of a copy; of a send: a sixteenth */
static uint8_t *on_device, *pinned, *pageable;
static cudaStream_t stream;
static struct collective *ours;
static ncclComm_t plain;

static void must(const char *what, int rc)
{
	if (rc)
		gpu_give_up(what, strerror(-rc));
}

static void must_cuda(const char *what, cudaError_t error)
{
	if (error != cudaSuccess)
		gpu_give_up(what, "an error of the CUDA runtime");
}

static void must_nccl(const char *what, ncclResult_t r)
{
	if (r != ncclSuccess && r != ncclInProgress)
		gpu_give_up(what, gpu.nccl.GetErrorString(r));
}

/* ---- rounds ---- */

struct pair {
	const char *name, *reference;
	void (*value)(void), (*measured)(void);
	uint64_t bytes; /* bytes that each of the two moves */
	double goal;    /* 0: none */
};

static double seconds(void (*way)(void))
{
	uint64_t began = monotonic_ns();

	way();
	return (double)(monotonic_ns() - began) / 1e9;
}

static void measure(const struct pair *p)
{
	const struct row r = {
		.name = p->name, .unit = "GB/s", .reference = p->reference, .goal = p->goal
	};
	double value[ROUNDS], reference[ROUNDS];

	p->value();
	p->measured();
	for (int i = 0; i < ROUNDS; i++) {
		double a = i % 2 ? seconds(p->value) : 0, b = seconds(p->measured);

		a = i % 2 ? a : seconds(p->value);
		value[i] = (double)p->bytes / a / 1e9;
		reference[i] = (double)p->bytes / b / 1e9;
	}
	rows_compare(&r, value, reference, ROUNDS);
}

/* ---- the port of devices ---- */

struct request {
	struct device_io io;
	atomic_int result;
};

static void on_done(struct device_io *io, int result)
{
	atomic_store(&container_of(io, struct request, io)->result, result);
}

static void run(struct device_io io)
{
	struct request r = { .io = io, .result = -EINPROGRESS };

	r.io.done = on_done;
	device_cuda.submit(gpu.device, &r.io);
	while (atomic_load(&r.result) == -EINPROGRESS)
		nanosleep(&(struct timespec){ .tv_nsec = 10000 }, NULL);
	must("a request", atomic_load(&r.result));
}

static void copy_to_pinned(void)
{
	run((struct device_io){ .to = pinned, .from = on_device, .size = size });
}

static void copy_to_pageable(void)
{
	run((struct device_io){ .to = pageable, .from = on_device, .size = size });
}

static void plain_to_pinned(void)
{
	gpu_copy(&gpu, pinned, on_device, size);
}

static void convert(enum device_what what)
{
	run((struct device_io){
		.what = what, .to = on_device + size, .from = on_device, .size = size / 8 });
}

static void f32_to_bf16(void)
{
	convert(DEVICE_F32_TO_BF16);
}

static void bf16_to_f32(void)
{
	convert(DEVICE_BF16_TO_F32);
}

static void f32_to_f16(void)
{
	convert(DEVICE_F32_TO_F16);
}

static void f16_to_f32(void)
{
	convert(DEVICE_F16_TO_F32);
}

/* Copies as many bytes as the conversion of size / 8 elements reads and writes: six for each.
 */
static void plain_on_device(void)
{
	must_cuda("cudaMemcpyAsync", gpu.MemcpyAsync(on_device + size, on_device, size / 8 * 3,
						     cudaMemcpyDeviceToDevice, stream));
	must_cuda("cudaStreamSynchronize", gpu.StreamSynchronize(stream));
}

/* ---- NCCL ---- */

static struct collective_move to_itself[2];

static void set_moves(void *to, uint64_t bytes)
{
	to_itself[0] = (struct collective_move){ true, 0, bytes, on_device };
	to_itself[1] = (struct collective_move){ false, 0, bytes, to };
}

static void send(void)
{
	static struct gpu_part parts[SENDS];

	set_moves(on_device + size, size / SENDS);
	for (int i = 0; i < SENDS; i++) {
		parts[i].io = (struct collective_io){ .nmoves = 2, .moves = to_itself };
		must("launch", gpu_launch(ours, &parts[i]));
	}
	for (int i = 0; i < SENDS; i++)
		must("send", gpu_wait(&parts[i]));
}

static void gather_to_pinned(void)
{
	struct gpu_part p = { .io = { .nmoves = 2, .moves = to_itself } };

	set_moves(pinned, size);
	must("launch", gpu_launch(ours, &p));
	must("gather", gpu_wait(&p));
}

static void settle(void)
{
	ncclResult_t r;

	do
		must_nccl("ncclCommGetAsyncError", gpu.nccl.CommGetAsyncError(plain, &r));
	while (r == ncclInProgress);
	must_nccl("NCCL", r);
}

static void plain_send(void)
{
	for (int i = 0; i < SENDS; i++) {
		must_nccl("ncclGroupStart", gpu.nccl.GroupStart());
		must_nccl("ncclSend",
			  gpu.nccl.Send(on_device, size / SENDS, ncclUint8, 0, plain, stream));
		must_nccl("ncclRecv", gpu.nccl.Recv(on_device + size, size / SENDS, ncclUint8,
						    0, plain, stream));
		must_nccl("ncclGroupEnd", gpu.nccl.GroupEnd());
		settle();
	}
	must_cuda("cudaStreamSynchronize", gpu.StreamSynchronize(stream));
}

/* Opens NCCL with as few blocks of threads as the port of NCCL does. */
static void open_plain(void)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId id;

	config.blocking = 0;
	config.minCTAs = 1;
	config.maxCTAs = 2;
	must_nccl("ncclGetUniqueId", gpu.nccl.GetUniqueId(&id));
	must_nccl("ncclCommInitRankConfig",
		  gpu.nccl.CommInitRankConfig(&plain, 1, id, 0, &config));
	settle();
}

static void open_ours(void)
{
	const struct collective_options options = { .device = gpu.device };

	must("open", collective_nccl.open(&ours, &options, 0, 1, NULL));
	must("NCCL", gpu_ready(ours));
}

/* ---- all ---- */

static const char *open_all(void)
{
	const char *given = getenv("TEST_MIB"), *missing = gpu_open(&gpu);

	if (missing)
		return missing;
	size = (given ? strtoull(given, NULL, 10) : DEFAULT_MIB) * MIB;
	on_device = gpu_alloc(&gpu, 2 * size);
	pinned = gpu_pinned(&gpu, size);
	pageable = calloc(1, size);
	if (!pageable)
		gpu_give_up("memory", strerror(ENOMEM));
	gpu_copy(&gpu, on_device, pageable, size);
	must_cuda("cudaStreamCreateWithFlags",
		  gpu.StreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	open_ours();
	open_plain();
	return NULL;
}

static void close_all(void)
{
	collective_nccl.close(ours);
	gpu.nccl.CommAbort(plain);
	gpu.StreamDestroy(stream);
	gpu_free(&gpu, on_device);
	gpu_unpin(&gpu, pinned);
	free(pageable);
	gpu_close(&gpu);
}

static void measure_copies(void)
{
	measure(&(struct pair){ "gather from a GPU to pinned memory, copy engine",
				"cudaMemcpy, pinned", copy_to_pinned, plain_to_pinned, size,
				0.9 });
	measure(&(struct pair){ "gather from a GPU to any memory, copy engine",
				"cudaMemcpy, pinned", copy_to_pageable, plain_to_pinned, size,
				0 });
	measure(&(struct pair){ "gather from a GPU to pinned memory, NCCL, one rank",
				"cudaMemcpy, pinned", gather_to_pinned, plain_to_pinned, size,
				0 });
}

/* The kernels exist if nvcc was there, and the runtime can load them. */
static void measure_conversions(void)
{
#if defined(HAVE_NVCC) && CUDART_VERSION >= 12080
	static const struct {
		const char *name;
		void (*way)(void);
	} ways[] = {
		{ "float32 to bfloat16 on a GPU", f32_to_bf16 },
		{ "bfloat16 to float32 on a GPU", bf16_to_f32 },
		{ "float32 to float16 on a GPU", f32_to_f16 },
		{ "float16 to float32 on a GPU", f16_to_f32 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
		measure(&(struct pair){ ways[i].name, "copy on the GPU", ways[i].way,
					plain_on_device, size / 8 * 6, 0.85 });
#else
	fprintf(stderr, "bench-gpu: conversions: skipped: built without kernels\n");
#endif
}

int main(void)
{
	const char *missing = open_all();

	if (missing) {
		fprintf(stderr, "bench-gpu: skipped: no GPU: %s\n", missing);
		printf("skip: no GPU: %s\n", missing);
		return 77;
	}
	measure_copies();
	measure_conversions();
	measure(&(struct pair){ "NCCL send and receive, one rank", "ncclSend, ncclRecv", send,
				plain_send, size, 0.95 });
	close_all();
	return 0;
}

#endif
