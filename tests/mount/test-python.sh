#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python package fragfs: its binding agrees with frag.h, and it reads and edits a running job.
. "$top_srcdir/tests/mount/lib.sh"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || skip "no python3 of 3.9 or newer"
need_fuse
export FRAG_JOB_ID=python-$$ WORLD_SIZE=2
for rank in 0 1; do
	RANK=$rank "$top_builddir/docs/examples/train" --stage 2 --forever --every 5 --pause-ms 5 >"job.$rank.log" 2>&1 &
	started $!
done
wait_until 60 grep -q '^step' job.0.log || fail "no job"
FRAG_SOURCE=$(sed -n 's/^train: address //p' job.0.log)
FRAGFS=$top_builddir/fragfs
PYTHONPATH=$top_srcdir/python
export FRAG_SOURCE FRAGFS PYTHONPATH
# A program without a sanitizer cannot load a libfrag that was built with one.
FRAG_LIBRARY=$top_builddir/.libs/libfrag.so
grep -q __asan_init "$FRAG_LIBRARY" && FRAG_LIBRARY=/nonexistent
export FRAG_LIBRARY
limit=120
[ -z "${TEST_ALL:-}" ] || limit=600
for test in test_binding test_device test_reader test_stats; do
	within $limit python3 "$PYTHONPATH/tests/$test.py" >$test.log 2>&1 || fail $test
done
