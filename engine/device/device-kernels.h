/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DEVICE_DEVICE_KERNELS_H
#define ENGINE_DEVICE_DEVICE_KERNELS_H

/* The contract between device-kernels.cu and its launcher.  Each kernel takes (to, from, count)
 * and runs with any number of blocks.
 */

enum { DEVICE_KERNEL_THREADS = 256, DEVICE_KERNEL_BLOCKS = 1024 };

#endif
