/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

/* A fuzz target is one function; libFuzzer or replay.c calls it. */

#include <stddef.h>
#include <stdint.h>

/* Takes any bytes; returns 0.  Finds a fault by crashing. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
