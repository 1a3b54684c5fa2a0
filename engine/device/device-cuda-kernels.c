/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/device/device-cuda.h"
#include "engine/device/device-kernels.h"
#include "engine/device/device-sums.h"

#include <errno.h>

#if defined(HAVE_NVCC) && CUDART_VERSION >= 12080

static const char *const names[CUDA_KERNELS] = { "frag_f32_to_bf16", "frag_bf16_to_f32",
						 "frag_f32_to_f16",  "frag_f16_to_f32",
						 "frag_sums_f32",    "frag_sums_bf16",
						 "frag_sums_f16" };

/* The kernels as nvcc made them, for several kinds of device. */
__asm__(".pushsection .rodata\n"
	".balign 16\n"
	"device_kernels:\n"
	".incbin \"engine/device/device-kernels.fatbin\"\n"
	".popsection\n");
extern const char device_kernels[] __attribute__((visibility("hidden")));

static int find_kernels(struct device *d)
{
	struct cuda *c = &d->cuda;
	cudaKernel_t found;
	int rc = 0;

	for (unsigned i = 0; i < CUDA_KERNELS && !rc; i++) {
		rc = cuda_result(c, names[i],
				 c->LibraryGetKernel(&found, d->kernels, names[i]));
		d->kernel[i] = found;
	}
	return rc;
}

static int load(struct device *d)
{
	struct cuda *c = &d->cuda;
	cudaLibrary_t library;
	int rc;

	if (d->kernels)
		return 0;
	if (!c->LibraryLoadData) {
		log_info("this CUDA runtime loads no kernels at run time: conversions are not "
			 "done on devices");
		return -ENOSYS;
	}
	rc = cuda_result(
		c, "kernels",
		c->LibraryLoadData(&library, device_kernels, NULL, NULL, 0, NULL, NULL, 0));
	if (rc)
		return rc;
	d->kernels = library;
	rc = find_kernels(d);
	if (rc)
		device_cuda_kernels_unload(d);
	return rc;
}

void device_cuda_kernels_unload(struct device *d)
{
	if (d->kernels)
		cuda_result(&d->cuda, "kernels", d->cuda.LibraryUnload(d->kernels));
	d->kernels = NULL;
}

#else

static int load(struct device *d)
{
	log_info("built without nvcc: conversions are not done on devices");
	return -ENOSYS;
}

void device_cuda_kernels_unload(struct device *d)
{
}

#endif

static unsigned blocks_for(const struct device_io *io)
{
	if (device_is_sums(io->what))
		return DEVICE_KERNEL_SUMS;
	return (unsigned)u64_max(1, u64_min(u64_div_ceil(io->size, DEVICE_KERNEL_THREADS),
					    DEVICE_KERNEL_BLOCKS));
}

int device_cuda_kernel_launch(struct device *d, struct cuda_device *dev,
			      const struct device_io *io, void *partial)
{
	const dim3 blocks = { blocks_for(io), 1, 1 }, threads = { DEVICE_KERNEL_THREADS, 1, 1 };
	const void *kernel = d->kernel[io->what - DEVICE_F32_TO_BF16];
	void *to = io->to;
	const void *from = io->from;
	uint64_t count = io->size;
	void *arguments[] = { &to, &from, &count };

	if (partial) {
		int rc = CUDA_CALL(&d->cuda, HostGetDevicePointer, &to, partial, 0);
		if (rc)
			return rc;
	}
	return CUDA_CALL(&d->cuda, LaunchKernel, kernel, blocks, threads, arguments, 0,
			 dev->stream);
}

/* Launches each kernel over no elements: CUDA loads a kernel at its first launch, which may
 * wait for the device, and a kernel that cannot run is found here.
 */
static int try_all(struct device *d, struct cuda_device *dev)
{
	void *partial;
	int rc = pinned_get(dev->staging, 0, &partial);

	if (rc)
		return rc;
	for (unsigned i = 0; i < CUDA_KERNELS && !rc; i++) {
		struct device_io io = { .what = DEVICE_F32_TO_BF16 + i };

		rc = device_cuda_kernel_launch(d, dev, &io,
					       device_is_sums(io.what) ? partial : NULL);
	}
	pinned_put(dev->staging, partial);
	return rc;
}

void device_cuda_kernels_prepare(struct device *d, struct cuda_device *dev)
{
	dev->has_kernels = !load(d) && !try_all(d, dev);
}

void device_cuda_kernel_sum(const struct device_io *io, const void *partial)
{
	const struct device_sums *of_block = partial;
	struct device_sums *sums = io->to;

	static_assert(DEVICE_KERNEL_SUMS * sizeof(*of_block) <= DEVICE_CHUNK_MIN,
		      "a staging buffer");
	device_sums_init(sums);
	for (unsigned i = 0; i < DEVICE_KERNEL_SUMS; i++)
		device_sums_join(sums, &of_block[i], 0);
}
