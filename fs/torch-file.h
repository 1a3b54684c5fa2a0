/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_TORCH_FILE_H
#define FS_TORCH_FILE_H

/* Writes files as torch.save does: a pickle in a zip archive of stored entries, which has the
 * bytes of at most one tensor too.
 *
 *	head | data.pkl | byteorder | version | header of data/0 |	a multiple of 64 bytes
 *	     | the tensor's bytes, unless they are NULL          |
 *	tail | central directory | zip64 end | its locator | end |
 *
 * torch reads such a file, mapped or not, and does not check the CRC of data/0: it is 0 where
 * the text lacks the tensor's bytes.  A program that checks it, such as unzip(1), complains.
 */

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
/* Puts the tensor whose bytes the archive has, in C order; torch_storage(dtype) is not NULL. */
void torch_pickle_tensor(FILE *out, enum frag_dtype dtype, const uint64_t *shape,
			 uint32_t ndim);

/* Returns the class of torch that stores a dtype; NULL: torch has none that all versions read.
 */
const char *torch_storage(enum frag_dtype dtype);

/* Makes *text of a pickle, to be freed by the caller, and returns 0: the head, the bytes of the
 * tensor unless they are NULL, and the tail.  *head and *tail are their sizes.
 * -ENOMEM.
 */
int torch_file_make(const char *pickle, size_t size, const void *bytes, uint64_t nbytes,
		    char **text, uint64_t *head, uint64_t *tail);

#endif
