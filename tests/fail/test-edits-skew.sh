#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test-edits.sh anew, with ranks that are several boundaries apart, stand in between, and go on.
TEST_SKEW=${TEST_SKEW:-6} TEST_ROUNDS=${TEST_ROUNDS:-4} exec sh "$top_srcdir/tests/fail/test-edits.sh"
