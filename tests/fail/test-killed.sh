#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank is killed: its pieces are EIO, which is long before it could be held to be silent, and so they are from then on;
# everything else is served as before.  Says after how many ms.
# By memory and by messages alone; also when a child of the rank lives on.  TEST_ROUNDS (1) of each.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"
rounds=${TEST_ROUNDS:-1}

now_ms() {
	echo $(($(date +%s%N) / 1000000))
}

is_eio() {
	! within 60 cat "$1" >/dev/null 2>why && grep -q 'Input/output error' why
}

lose_one() {
	how="$1${2:+, $2}"
	start_job 1 3 small
	mount_job "$1,timeout=200"
	victim=$(chance 3)
	ask expect odd.w bf16 "$T/want"
	cat "$M/params/odd.w/fp32" >before || fail "$how: nothing to be read"
	[ -z "$2" ] || ask fork "$victim"
	grep -q '^alive' "$M/ranks/$victim/state" || fail "$how: $(cat "$M/ranks/$victim/state")"
	ask kill "$victim"
	killed=$(now_ms)
	wait_until 60 is_eio "$M/params/embed.weight/fp32" || fail "$how: $(cat why)"
	echo "$how: $(($(now_ms) - killed)) ms"
	for i in 1 2 3 4 5 6 7 8 9 10; do
		is_eio "$M/params/embed.weight/exp_avg" || fail "$how: once EIO, then: $(cat why)"
	done
	grep -q '^lost' "$M/ranks/$victim/state" || fail "$how: $(cat "$M/ranks/$victim/state")"
	within 60 cat "$M/params/odd.w/bf16" >got || fail "$how: what all have is not served"
	same got want
	for rank in 0 1 2; do
		[ "$rank" = "$victim" ] || within 60 cat "$M/ranks/$rank/partitions/0.0/fp32" >/dev/null ||
			fail "$how: rank $rank's own is not served"
	done
	is_eio "$M/ranks/$victim/partitions/0.0/fp32" || fail "$how: $(cat why)"
	unmount
	exec 3>&- 4<&-
	wait $job || fail "$how: the job ended with $?"
}

round=0
while [ $round -lt "$rounds" ]; do
	for way in transport=auto transport=zmq; do
		lose_one $way ''
		lose_one $way 'a child lives'
	done
	round=$((round + 1))
done
