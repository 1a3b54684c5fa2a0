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

#include <stddef.h>
#include <stdint.h>

/* Makes *text of a pickle, to be freed by the caller, and returns 0: the head, the bytes of the
 * tensor unless they are NULL, and the tail.  *head and *tail are their sizes.
 * -ENOMEM.
 */
int torch_file_make(const char *pickle, size_t size, const void *bytes, uint64_t nbytes,
		    char **text, uint64_t *head, uint64_t *tail);

#endif
