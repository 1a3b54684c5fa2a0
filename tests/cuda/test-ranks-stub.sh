#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test-ranks-gpu over the stubs of the CUDA runtime and of NCCL: processes that move bytes between them, without a GPU.
. "$top_srcdir/tests/lib.sh"
use_stubs
within 120 "$top_builddir/tests/cuda/test-ranks-gpu" || fail "exit status $?"
