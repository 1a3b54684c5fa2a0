#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A program of `make bench` may hang: tests/bench/table.sh says at which row, ends the program with what it has started
# and mounted, and goes on with the next.
. "$top_srcdir/tests/lib.sh"
need_dev_fuse

# A job that trains, its mount, one row, and a reader of a FIFO to which no program writes.
cat >hangs.sh <<'END'
. "$top_srcdir/tests/bench/lib.sh"
mkfifo "$work/lines" "$work/nothing"
RANK=0 WORLD_SIZE=1 FRAG_JOB_ID=bench-hangs-$$ "$builddir/docs/examples/train" --forever >"$work/lines" &
job=$!
exec 5<"$work/lines"
while read -r line <&5; do
	address=${line#train: address }
	[ "$address" = "$line" ] || break
done
mount_frag "$work/frag" "" 5<&-
row "that is measured" 1 s null null null lower
echo "$job" >"$T/pids"
nothing() { cat "$work/nothing"; }
interleave nothing
END
cat >goes-on.sh <<'END'
echo '{"name": "of the next script", "value": 1, "unit": "s"}'
END
export T
export FRAG_BENCH_SECONDS=15

if within 120 sh "$top_srcdir/tests/bench/table.sh" "$T/rows" "$T/hangs.sh" "$T/goes-on.sh" >table 2>said; then
	fail "it did not fail: $(cat said)"
fi
cat said
grep -q 'hangs.sh was ended after 15 s; its last row: that is measured' said || fail "not the script: $(cat said)"
grep -q 'measured nothing, round 1 of 7, after row "that is measured"' said || fail "not the row: $(cat said)"
grep -q '"of the next script"' rows || fail "the next one was not run: $(cat rows)"
wait_until 60 is_over "$(cat pids)" || fail "the job is there yet"
! grep -q "$T" /proc/self/mountinfo || fail "a mount is left: $(grep "$T" /proc/self/mountinfo)"
set -- "$T"/tmp.*
[ ! -e "$1" ] || fail "files are left: $*"
