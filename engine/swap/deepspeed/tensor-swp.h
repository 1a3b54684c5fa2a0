/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_DEEPSPEED_TENSOR_SWP_H
#define ENGINE_SWAP_DEEPSPEED_TENSOR_SWP_H

/* The files of DeepSpeed's optimizer swapper, one for each sub-group and state of a rank.  A
 * file is raw elements and padding, because DeepSpeed reads and writes multiples of 1024 bytes
 * with each of its threads.
 *
 *	0_11.tensor.swp			the master of the sub-group of parameters 0 to 11
 *	exp_avg-0_11.tensor.swp		a state of it
 *	0_11_gradient_0_524288.tensor.swp	part of its gradients: not read here
 *
 * The folder is not trusted: a link, and a file of another kind or size, is refused.  Any
 * thread.
 */

#include "engine/base/base.h"
#include "engine/frag.h"

enum {
	TENSOR_SWP_ALIGN = 1024, /* bytes, for each thread */
	TENSOR_SWP_THREADS_MAX = 256,
	TENSOR_SWP_FILE_MAX = FRAG_KEY_MAX + 64,
};

struct tensor_swp {
	char key[FRAG_KEY_MAX + 1]; /* "": the master */
	uint64_t first, last;       /* parameters of the sub-group, by DeepSpeed's numbers */
};

/* False: file is not the name of a state's file. */
bool tensor_swp_parse(const char *file, struct tensor_swp *swp);
void tensor_swp_name(const struct tensor_swp *swp, char file[TENSOR_SWP_FILE_MAX]);

/* Opens a file for tensor_swp_read; returns a descriptor.  On error why has a line for people.
 * -EINVAL: not a plain file, or not of the size that `bytes` bytes of data have with any number
 * of threads.
 * -ELOOP: a symbolic link.
 * Errors of open.
 */
int tensor_swp_open(int folder, const char *file, uint64_t bytes, char *why, size_t whysize);

/* Gives or takes size bytes at offset.  Returns 0, or a -errno that ends the read or write. */
typedef int (*tensor_swp_bytes)(void *arg, uint64_t offset, void *data, size_t size);

/* Calls take with all bytes in order; take must not keep the pointer.
 * -EIO: the file has become shorter.
 * -ENOMEM.
 * Errors of take.
 */
int tensor_swp_read(int fd, uint64_t bytes, tensor_swp_bytes take, void *arg);

/* Writes a file, padded with zeros for that many threads of DeepSpeed.  The file replaces one
 * of that name when all is on the disk, or not at all.
 */
int tensor_swp_write(int folder, const char *file, uint64_t bytes, unsigned threads,
		     tensor_swp_bytes give, void *arg, char *why, size_t whysize);

#endif
