/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DEVICE_DEVICE_KERNELS_H
#define ENGINE_DEVICE_DEVICE_KERNELS_H

/* The contract between device-kernels.cu and its launcher.  Each kernel takes (to, from, count)
 * and runs with any number of blocks.  Kernels of sums leave one struct device_sums per block
 * in `to`, unless count is 0.
 */

enum {
	DEVICE_KERNEL_THREADS = 256,
	DEVICE_KERNEL_BLOCKS = 1024,
	DEVICE_KERNEL_SUMS = 256 /* blocks */
};

#endif
