#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The swap directory has no room for the states of a job: it goes on with what is kept in memory, its losses are those
# of a job in memory, it says why, and a mount reads what there is or is told that it is gone.
. "$top_srcdir/tests/mount/lib.sh"
if [ "${1:-}" != inside ]; then
	need_fuse
	unshare -m true 2>/dev/null || skip "needs a mount namespace of its own (root)"
	export TMPDIR
	rmdir "$M"
	unshare -m sh "$top_srcdir/tests/fail/test-swap-job-full.sh" inside
	exit
fi
at_end() {
	drop_mount "$M" || :
	umount -l "$T/small" 2>/dev/null || :
}
mkdir small
mount -t tmpfs -o size=3M swap small 2>/dev/null || skip "needs to mount a tmpfs"
train=$top_builddir/docs/examples/train
export FRAG_PINNED_MEM=2M FRAG_JOB_ID=full-$$
shape='--hidden 401 --batch 1 --steps 60 --every 1'

losses() {
	sed -n 's/^train: losses //p' "$1"
}

# shellcheck disable=SC2086 # a list
"$train" $shape >memory.log 2>&1 || fail "in memory: $?"
# shellcheck disable=SC2086
"$train" $shape --pause-ms 50 --swap "$T/small" >swap.log 2>&1 &
job=$!
started $job
wait_until 60 grep -q '^train: address' swap.log || fail "no job"
within 60 "$top_builddir/fragfs" "$(sed -n 's/^train: address //p' swap.log)" "$M" || fail "fragfs: $?"
wait_until 60 grep -q 'kept in memory: No space left on device' swap.log || fail "no line says so"
ended() {
	! kill -0 $job 2>/dev/null
}

read=0 gone=0
while ! ended; do
	for file in "$M"/params/*/exp_avg; do
		if cat "$file" >/dev/null 2>why; then
			read=$((read + 1))
		elif grep -q 'Stale file' why; then
			gone=$((gone + 1))
		else
			wait_until 60 ended || fail "$file: $(cat why)"
			break 2
		fi
	done
	cat "$M/ranks/0/swap" >now 2>/dev/null || :
	! grep -q '^states' now || mv now swap.text # not that of its end
done
wait $job || fail "it ended with $?"
[ "$(losses swap.log)" = "$(losses memory.log)" ] || fail "other losses than in memory"
grep -q '^last_error No space left on device' swap.text || fail "ranks/0/swap: $(cat swap.text)"
echo "$read files read, $gone gone"
[ $read -gt 0 ] || fail "nothing could be read"
