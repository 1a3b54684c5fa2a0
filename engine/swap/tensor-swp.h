/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_TENSOR_SWP_H
#define ENGINE_SWAP_TENSOR_SWP_H

/* The files in which DeepSpeed's optimizer swapper keeps a rank's states, one of each sub-group
 * and state: raw elements from byte 0 on, and padding, as it reads and writes multiples of 1024
 * bytes for each of its threads.
 *
 *	0_11.tensor.swp			the master of the sub-group of parameters 0 to 11
 *	exp_avg-0_11.tensor.swp		a state of it
 *	0_11_gradient_0_524288.tensor.swp	part of its gradients: none of ours
 *
 * Whoever can write the folder is not believed: a link, a file of another kind or size is
 * refused.  Any thread.
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
	uint64_t first, last;       /* DeepSpeed's numbers of its parameters */
};

/* False: file is no name of a state. */
bool tensor_swp_parse(const char *file, struct tensor_swp *swp);
void tensor_swp_name(const struct tensor_swp *swp, char file[TENSOR_SWP_FILE_MAX]);

/* A descriptor to read bytes of data from.  On error why has a line for people.  -ENOENT,
 * -ELOOP, -EACCES ...; -EINVAL: it is no plain file, or not of the size that so many bytes
 * have, with any number of threads.
 */
int tensor_swp_open(int folder, const char *file, uint64_t bytes, char *why, size_t whysize);

/* Gives or takes size bytes at offset; 0 or an errno that ends it. */
typedef int (*tensor_swp_bytes)(void *arg, uint64_t offset, void *data, size_t size);

/* All bytes of data, in order, to take, which may not keep data.  -EIO: it has become shorter;
 * take's errors.
 */
int tensor_swp_read(int fd, uint64_t bytes, tensor_swp_bytes take, void *arg);

/* Writes it, padded with zeros for so many threads; the name has it when all is on disk, else
 * what was there.
 */
int tensor_swp_write(int folder, const char *file, uint64_t bytes, unsigned threads,
		     tensor_swp_bytes give, void *arg, char *why, size_t whysize);

#endif
