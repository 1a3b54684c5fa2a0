#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Statistics of all states of every checkpoint of tests/data, of a job with all bits, and of a job while it trains,
# equal those that numpy makes in float64.
# TEST_CASES: only checkpoints with this text in their path.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
python3 -c 'import numpy' 2>/dev/null || skip "python3 has no numpy"
. "$top_srcdir/tests/mount/bits.sh"
[ "$sanitizer" = no ] || : "${TEST_CASES:=-w3}" # a part: it is slow

compare() {
	within 300 python3 "$top_srcdir/tests/mount/stats-truth.py" "$M" >compared 2>why || fail "$1: $(tail -n 3 why)"
}

for archive in "$top_srcdir"/tests/data/checkpoints/*/*"${TEST_CASES:-}"*.tar.gz; do
	gzip -dc "$archive" | tar -xf -
	case=$(basename "$archive" .tar.gz)
	within 60 fragfs "$case" "$M" || fail "$archive cannot be mounted"
	compare "$archive"
	unmount
	rm -r "$case"
done
for file in mixed float8 many; do
	within 60 fragfs "$top_srcdir/tests/data/checkpoint/$file.pt" "$M" || fail "$file.pt cannot be mounted"
	compare "$file.pt"
	unmount
done

start_job 0 2 small
mount_job ro
compare "all bits"
unmount
end_job

for rank in 0 1; do
	RANK=$rank WORLD_SIZE=2 FRAG_JOB_ID=numpy "$top_builddir/docs/examples/train" --stage 2 --forever --pause-ms 5 \
		>rank$rank.log 2>&1 &
	started $!
done
address() {
	address=$(sed -n 's/^train: address //p' rank0.log)
	[ -n "$address" ]
}
wait_until 60 address || fail "no job"
within 60 fragfs "$address" "$M" -o rw || fail "fragfs: $?"
later() {
	[ "$(cat "$M/step")" -gt "$before" ]
}
for _ in 1 2 3; do
	before=$(cat "$M/step")
	wait_until 60 later || fail "it does not train"
	within 60 fragctl freeze "$M" || fail "freeze: $?"
	compare "a job that trains"
	within 60 fragctl thaw "$M" || fail "thaw: $?"
done
