/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_PUT_LE_H
#define FS_PUT_LE_H

/* Little-endian numbers of zip files and pickles, to a stream, which keeps its error. */

#include <stdint.h>
#include <stdio.h>

/* Writes the lowest `bytes` bytes of value. */
static inline void put_le(FILE *out, uint64_t value, unsigned bytes)
{
	for (; bytes--; value >>= 8)
		putc((int)(value & 0xff), out);
}

#endif
