/* SPDX-License-Identifier: Apache-2.0 */

/* Conversions and sums where the memory is.  Elements are those of convert.h and device-sums.h,
 * which also compile for the host.
 */

#include "engine/device/device-kernels.h"
#include "engine/device/device-sums.h"

/* Sixteen bytes at a time where both ends are aligned to that; else one element. */
template <typename To, typename From, To (*one)(From)> static __device__ void
convert(To *to, const From *from, uint64_t count)
{
	const unsigned many = 8;
	struct alignas(16) packed_to { To e[16 / sizeof(To)]; };
	struct alignas(16) packed_from { From e[16 / sizeof(From)]; };
	uint64_t thread = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
	uint64_t threads = gridDim.x * (uint64_t)blockDim.x;
	uint64_t packed = ((uintptr_t)to | (uintptr_t)from) % 16 ? 0 : count / many;

	for (uint64_t i = thread; i < packed; i += threads) {
		packed_from in[many * sizeof(From) / 16];
		packed_to out[many * sizeof(To) / 16];

		for (unsigned k = 0; k < many * sizeof(From) / 16; k++)
			in[k] = ((const packed_from *)(from + i * many))[k];
		for (unsigned k = 0; k < many; k++)
			((To *)out)[k] = one(((const From *)in)[k]);
		for (unsigned k = 0; k < many * sizeof(To) / 16; k++)
			((packed_to *)(to + i * many))[k] = out[k];
	}
	for (uint64_t i = packed * many + thread; i < count; i += threads)
		to[i] = one(from[i]);
}

static __device__ uint32_t bf16_to_f32(uint16_t b)
{
	return convert_one_bf16_to_f32(b);
}

static __device__ uint32_t f16_to_f32(uint16_t h)
{
	return convert_one_f16_to_f32(h);
}

static __device__ uint16_t f32_to_bf16(uint32_t f)
{
	return convert_one_f32_to_bf16(f);
}

static __device__ uint16_t f32_to_f16(uint32_t f)
{
	return convert_one_f32_to_f16(f);
}

static __device__ uint32_t f32_to_f32(uint32_t f)
{
	return f;
}

/* Each block of threads writes one partial sum, so that the order of additions is always the
 * same.
 */
template <typename From, uint32_t (*one)(From)> static __device__ void
sum(struct device_sums *partial, const From *from, uint64_t count)
{
	__shared__ struct device_sums shared[DEVICE_KERNEL_THREADS];
	uint64_t threads = gridDim.x * (uint64_t)blockDim.x;
	struct device_adding own;

	device_sums_begin(&own);
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
	     i += threads)
		device_sums_add(&own, one(from[i]), i);
	device_sums_end(&own, &shared[threadIdx.x]);
	for (unsigned half = blockDim.x / 2; half; half /= 2) {
		__syncthreads();
		if (threadIdx.x < half)
			device_sums_join(&shared[threadIdx.x], &shared[threadIdx.x + half], 0);
	}
	if (count && !threadIdx.x)
		partial[blockIdx.x] = shared[0];
}

extern "C" {

__global__ void frag_f32_to_bf16(uint16_t *to, const uint32_t *from, uint64_t count)
{
	convert<uint16_t, uint32_t, f32_to_bf16>(to, from, count);
}

__global__ void frag_bf16_to_f32(uint32_t *to, const uint16_t *from, uint64_t count)
{
	convert<uint32_t, uint16_t, bf16_to_f32>(to, from, count);
}

__global__ void frag_f32_to_f16(uint16_t *to, const uint32_t *from, uint64_t count)
{
	convert<uint16_t, uint32_t, f32_to_f16>(to, from, count);
}

__global__ void frag_f16_to_f32(uint32_t *to, const uint16_t *from, uint64_t count)
{
	convert<uint32_t, uint16_t, f16_to_f32>(to, from, count);
}

__global__ void frag_sums_f32(struct device_sums *partial, const uint32_t *from, uint64_t count)
{
	sum<uint32_t, f32_to_f32>(partial, from, count);
}

__global__ void frag_sums_bf16(struct device_sums *partial, const uint16_t *from,
			       uint64_t count)
{
	sum<uint16_t, bf16_to_f32>(partial, from, count);
}

__global__ void frag_sums_f16(struct device_sums *partial, const uint16_t *from, uint64_t count)
{
	sum<uint16_t, f16_to_f32>(partial, from, count);
}
}
