/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_TORCH_PICKLE_H
#define FS_TORCH_PICKLE_H

/* Writes pickles as torch.save does.  fs/torch-file.h makes a file of one. */

#include "engine/frag.h"

#include <stdint.h>
#include <stdio.h>

/* Values of a pickle (protocol 2), without a memo.  A dict or list is begun, gets its keys and
 * values, or its values, and is ended.
 */
void torch_pickle_begin(FILE *out);
void torch_pickle_end(FILE *out);
void torch_pickle_dict(FILE *out);
void torch_pickle_dict_end(FILE *out);
void torch_pickle_list(FILE *out);
void torch_pickle_list_end(FILE *out);
/* Puts a text that is not UTF-8 as one_line_json does: Python refuses other bytes. */
void torch_pickle_text(FILE *out, const char *text);
/* Puts an int if the value is a whole number, else a float. */
void torch_pickle_number(FILE *out, double value);
void torch_pickle_pair(FILE *out, double first, double second);
void torch_pickle_size(FILE *out, const uint64_t *shape, uint32_t ndim);
/* Puts the tensor whose bytes the archive has, in C order; torch_pickle_storage(dtype) is not
 * NULL.
 */
void torch_pickle_tensor(FILE *out, enum frag_dtype dtype, const uint64_t *shape,
			 uint32_t ndim);

/* Returns the class of torch that stores a dtype; NULL: torch has none that all versions read.
 */
const char *torch_pickle_storage(enum frag_dtype dtype);

#endif
