/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/convert.h"
#include "engine/device/device-kernels.h"
#include "engine/device/device-sums.h"
#include "tests/cuda/stub.h"

#include <string.h>

/* The kernels of engine/device/device-kernels.cu, of the same elements. */

static void to_bf16(struct stub_work *w)
{
	for (uint64_t i = 0; i < w->size; i++)
		((uint16_t *)w->to)[i] =
			convert_one_f32_to_bf16(((const uint32_t *)w->from)[i]);
}

static void from_bf16(struct stub_work *w)
{
	for (uint64_t i = 0; i < w->size; i++)
		((uint32_t *)w->to)[i] =
			convert_one_bf16_to_f32(((const uint16_t *)w->from)[i]);
}

static void to_f16(struct stub_work *w)
{
	for (uint64_t i = 0; i < w->size; i++)
		((uint16_t *)w->to)[i] = convert_one_f32_to_f16(((const uint32_t *)w->from)[i]);
}

static void from_f16(struct stub_work *w)
{
	for (uint64_t i = 0; i < w->size; i++)
		((uint32_t *)w->to)[i] = convert_one_f16_to_f32(((const uint16_t *)w->from)[i]);
}

/* Each block has its own sums. */
static void sums(struct stub_work *w, uint32_t (*element)(const void *from, uint64_t i))
{
	struct device_sums *to = w->to;

	for (unsigned block = 0; block < w->blocks && w->size; block++) {
		struct device_adding a;

		device_sums_begin(&a);
		for (uint64_t i = block; i < w->size; i += w->blocks)
			device_sums_add(&a, element(w->from, i), i);
		device_sums_end(&a, &to[block]);
	}
}

static uint32_t f32_of(const void *from, uint64_t i)
{
	return ((const uint32_t *)from)[i];
}

static uint32_t bf16_of(const void *from, uint64_t i)
{
	return convert_one_bf16_to_f32(((const uint16_t *)from)[i]);
}

static uint32_t f16_of(const void *from, uint64_t i)
{
	return convert_one_f16_to_f32(((const uint16_t *)from)[i]);
}

static void sums_f32(struct stub_work *w)
{
	sums(w, f32_of);
}

static void sums_bf16(struct stub_work *w)
{
	sums(w, bf16_of);
}

static void sums_f16(struct stub_work *w)
{
	sums(w, f16_of);
}

static const struct kernel {
	const char *name;
	void (*run)(struct stub_work *w);
} kernels[] = {
	{ "frag_f32_to_bf16", to_bf16 }, { "frag_bf16_to_f32", from_bf16 },
	{ "frag_f32_to_f16", to_f16 },   { "frag_f16_to_f32", from_f16 },
	{ "frag_sums_f32", sums_f32 },   { "frag_sums_bf16", sums_bf16 },
	{ "frag_sums_f16", sums_f16 },
};

STUB_API cudaError_t cudaLaunchKernel(const void *function, dim3 blocks, dim3 threads,
				      void **arguments, size_t shared, cudaStream_t stream)
{
	const struct kernel *k = function;
	uint64_t count = *(uint64_t *)arguments[2];
	cudaError_t error = stub_enter("LaunchKernel", stream, count, false);

	if (error != cudaSuccess)
		return error;
	return stub_enqueue(stream, (struct stub_work){ .run = k->run,
							.to = *(void **)arguments[0],
							.from = *(const void **)arguments[1],
							.size = count,
							.blocks = blocks.x });
}

static void call(struct stub_work *w)
{
	w->function(w->to);
}

STUB_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *arg)
{
	return stub_enqueue(stream,
			    (struct stub_work){ .run = call, .function = function, .to = arg });
}

#if CUDART_VERSION >= 12080

STUB_API cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
					 enum cudaJitOption *jit, void **jit_values,
					 unsigned njit, enum cudaLibraryOption *options,
					 void **values, unsigned noptions)
{
	static const uint32_t fatbin = 0xba55ed50;
	cudaError_t error = stub_enter("LibraryLoadData", NULL, 0, false);

	if (error == cudaSuccess && memcmp(code, &fatbin, sizeof(fatbin)))
		error = cudaErrorInvalidKernelImage;
	if (error != cudaSuccess)
		return error;
	stub_count_left(1);
	*library = (cudaLibrary_t)(void *)kernels;
	return cudaSuccess;
}

STUB_API cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
	stub_count_left(-1);
	return stub_enter("LibraryUnload", NULL, 0, false);
}

STUB_API cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library,
					  const char *name)
{
	cudaError_t error = stub_enter("LibraryGetKernel", NULL, 0, false);

	if (error != cudaSuccess)
		return error;
	for (size_t i = 0; i < ARRAY_SIZE(kernels); i++)
		if (!strcmp(kernels[i].name, name)) {
			*kernel = (cudaKernel_t)(void *)&kernels[i];
			return cudaSuccess;
		}
	return cudaErrorSymbolNotFound;
}

#endif
