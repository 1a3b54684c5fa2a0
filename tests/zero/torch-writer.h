/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ZERO_TORCH_WRITER_H
#define ZERO_TORCH_WRITER_H

/* Files as torch.save of torch 2 writes them: a pickle of protocol 2, and a zip around it and
 * the storages, with zip64 from 4 GiB on.  Storages are filled in place by the caller, or stay
 * holes.  Whatever fails ends the program.
 */

#include "engine/base/base.h"

/* ---- the pickle ---- */

struct pickle_out {
	uint8_t *bytes;
	size_t n, room;
	uint32_t memo;
	struct {
		char name[80];
		uint32_t memo;
	} globals[32];
	unsigned nglobals;
};

void out_op(struct pickle_out *p, const char *ops);
void out_int(struct pickle_out *p, uint64_t value);
void out_float(struct pickle_out *p, double value);
void out_text(struct pickle_out *p, const char *text);
/* "module\nname\n" */
void out_global(struct pickle_out *p, const char *name);
/* An empty OrderedDict. */
void out_ordered(struct pickle_out *p);
void out_size(struct pickle_out *p, const uint64_t *shape, unsigned ndim);

/* A contiguous tensor from element `offset` of a storage; type: "Float", "BFloat16". */
struct tensor_out {
	const char *type;
	unsigned storage;
	uint64_t storage_numel, offset;
	const uint64_t *shape;
	unsigned ndim;
};

void out_tensor(struct pickle_out *p, const struct tensor_out *t);

/* Both of a pair's. */
static inline void out_text_int(struct pickle_out *p, const char *key, uint64_t value)
{
	out_text(p, key);
	out_int(p, value);
}

/* ---- the zip ---- */

struct zip_out;

/* Begins FOLDER/NAME.pt with the pickle, which it frees. */
struct zip_out *zip_out_open(const char *folder, const char *name, struct pickle_out *p);
/* The next storage, of bytes bytes: where in the file it begins. */
uint64_t zip_out_storage(struct zip_out *z, uint64_t bytes);
void zip_out_write(struct zip_out *z, uint64_t at, const void *data, size_t size);
void zip_out_close(struct zip_out *z);

void writer_fail(const char *what) __attribute__((noreturn));

#endif
