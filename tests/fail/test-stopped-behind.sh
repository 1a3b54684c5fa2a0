#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank that is stopped a step behind the others cannot show their generation: its part of a large file is ETIMEDOUT
# also to a file that is open already, and not EIO, which is for the dead.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse

FRAG_JOB_ID=behind-$$ WORLD_SIZE=2
export FRAG_JOB_ID WORLD_SIZE
for rank in 0 1; do
	RANK=$rank "$top_builddir/tests/fail/tear-job" 1 40000 >>job.log 2>&1 &
	started $!
done
rank1=$!
wait_until 60 grep -q '^127' job.log || fail "no job"
"$top_builddir/fragfs" "$(grep '^127' job.log)" "$M" -o timeout=3

# Where it was stopped at the others' step its memory serves.
tries=0
until [ -s why ]; do
	tries=$((tries + 1))
	[ $tries -le 400 ] || fail "read all the same"
	kill -CONT $rank1
	sleep 0.05
	stop_process $rank1
	sleep 0.1
	for file in "$M"/params/*/fp32; do
		exec 4<"$file"
		within 60 cat <&4 >/dev/null || exec 3<&4
	done 2>why
done
! grep -v 'timed out' why || fail "not: timed out"

# What that file shows it does not have, also when it goes on; once more silent, or dead, is another matter.
kill -CONT $rank1
wait_until 60 grep -q '^alive' "$M/ranks/1/state" || fail "$(cat "$M/ranks/1/state")"
! within 60 cat <&3 >/dev/null 2>why || fail "read, of a generation that has gone by"
grep -q 'timed out' why || fail "of one that goes on: $(cat why)"
stop_process $rank1
! within 60 cat <&3 >/dev/null 2>why || fail "read, once more silent"
grep -q 'timed out' why || fail "of one that was stopped again: $(cat why)"
kill -9 $rank1
wait_until 60 grep -q '^lost.*\(gone\|any more\)$' "$M/ranks/1/state" || fail "$(cat "$M/ranks/1/state")"
! within 60 cat <&3 >/dev/null 2>why || fail "read, of a dead one"
grep -q 'Input/output error' why || fail "of a dead one: $(cat why)"
exec 3<&- 4<&-
unmount
