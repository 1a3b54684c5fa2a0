/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CUDA_STUB_NCCL_HALL_H
#define TESTS_CUDA_STUB_NCCL_HALL_H

/* Where ranks of the stub meet: a mapped file, with a ring of bytes from each to each. */

#include "tests/cuda/stub-nccl.h"

#ifdef HAVE_NCCL

enum { HALL_RING = 1 << 16, HALL_NAME = 120 };

struct hall;

/* Makes one; its name.  Whether it could. */
bool hall_new(char name[HALL_NAME]);
struct hall *hall_enter(const char *name, int rank); /* NULL: there is none */
void hall_leave(struct hall *h);
bool hall_is_full(struct hall *h, int nranks);
/* As many bytes as there is room for, or as are there. */
uint64_t hall_write(struct hall *h, int from, int to, const uint8_t *bytes, uint64_t size);
uint64_t hall_read(struct hall *h, int from, int to, uint8_t *bytes, uint64_t size);

#endif
#endif
