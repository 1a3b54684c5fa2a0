#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test-rounds-storm.sh with ranks of one host that go by their devices' copy engines.
TEST_WAY=ipc
. "$top_srcdir/tests/cuda/test-rounds-storm.sh"
