/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CUDA_MAPPINGS_H
#define TESTS_CUDA_MAPPINGS_H

/* A trainer over a device's port that knows who has mapped what is shared: of this process and of all that are forked from it. */

#include "tests/cuda/device-suite.h"

/* Once. */
const struct trainer *mappings_counted(const struct trainer *of);
/* How often something was unshared that a live process had mapped; ever, by any. */
unsigned mappings_broken(void);
/* What this process shares. */
unsigned mappings_shared(void);
/* What this process has mapped as memory of that device. */
unsigned mappings_of(int number);

#endif
