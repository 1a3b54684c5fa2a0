/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DEVICE_DEVICE_KERNELS_H
#define ENGINE_DEVICE_DEVICE_KERNELS_H

/* What device-kernels.cu and who launches it agree on: each kernel takes (to, from, count), any
 * number of blocks; those of sums leave one struct device_sums of each block in to, where count
 * is not 0.
 */

enum {
	DEVICE_KERNEL_THREADS = 256,
	DEVICE_KERNEL_BLOCKS = 1024,
	DEVICE_KERNEL_SUMS = 256 /* blocks */
};

#endif
