/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CUDA_DEVICE_STUB_H
#define TESTS_CUDA_DEVICE_STUB_H

/* What the files of test-device-stub share. */

#include "tests/cuda/device-suite.h"
#include "tests/cuda/stub.h"

#ifdef HAVE_CUDA

enum { CHUNK = DEVICE_CHUNK_MIN, CALLS = 4096 };

/* By the last take_calls. */
extern struct stub_call calls[CALLS];
extern unsigned ncalls;

void take_calls(void);
bool is(const struct stub_call *c, const char *name);
/* The first of that name in [from, ncalls). */
const struct stub_call *call_of(const char *name, unsigned from);
/* In the port's thread. */
void wait_for_calls(const char *name, unsigned n);

void reset_and_open(void);
int copy(void *to, const void *from, uint64_t size);

/* device-stub-keep.c: with the port open, and without. */
TCase *keep_cases(void);
TCase *keep_lives(void);

/* device-stub-convert.c */
TCase *convert_cases(void);

#endif
#endif
