/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_STATE_FILE_H
#define MOUNT_HELPERS_STATE_FILE_H

/* An open state of a mount: its bytes, of one generation, and their dtype and shape. */

#include "engine/frag.h"
#include "mount-helpers/params.h"

#include <sys/types.h>

struct state_file {
	int fd;
	enum frag_dtype dtype;
	size_t element; /* bytes */
	uint64_t numel;
	uint64_t shape[FRAG_DIMS_MAX];
	uint32_t ndim;
};

/* Opens a state with flags of open(2).  Returns the exit status; errors were printed. */
int state_file_open(struct state_file *s, const char *mountpoint, const struct param *param,
		    const char *state, int flags);
void state_file_close(struct state_file *s);

/* Reads n elements from number `first` on.  -errno; -EIO: the file has ended. */
int state_file_read(const struct state_file *s, uint64_t first, void *into, uint64_t n);

/* Returns how many float64 an element takes: 2 of a complex dtype, else 1. */
unsigned state_file_components(const struct state_file *s);
/* Converts elements to float64; of complex numbers the real part, then the imaginary one.
 * false: a dtype that has no values.
 */
bool state_file_values(const struct state_file *s, const void *elements, uint64_t n,
		       double *values);

/* Returns the parameter's main state: fp32, else the low-precision copy, else the first.  The
 * result is one of the list; NULL: the list is empty.
 */
const char *state_file_main(char **states);

#endif
