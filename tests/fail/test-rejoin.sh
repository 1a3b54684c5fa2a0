#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank that was killed is started again: the other ranks and the mount take it back.  Files that were open are
# ESTALE where its pieces are, those opened anew are right, and edits reach all.  By memory and by messages; rank 0,
# which the others have to find, and another.  FRAG_ROUNDS (1).
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"
rounds=${FRAG_ROUNDS:-1}

is_in_state() {
	grep -q "^$2" "$M/ranks/$1/state"
}

# As large as v.
head -c $((7 * 100003 * 4)) /dev/zero >zeros

take_back() {
	how="$what, $1, rank $2"
	part=w # of which it has some
	[ "$2" != 2 ] || part=v
	exec 5<"$M/params/$part/fp32"
	dd bs=4096 count=1 <&5 >/dev/null 2>&1 || fail "$how: nothing to be read"
	ask kill "$2"
	wait_until 5 is_in_state "$2" lost || fail "$how: $(cat "$M/ranks/$2/state")"
	ask restart "$2"
	wait_until 10 is_in_state "$2" alive || fail "$how: $(cat "$M/ranks/$2/state")"
	if within 10 cat <&5 >/dev/null 2>why; then
		fail "$how: a file that was open is read to its end"
	fi
	grep -q 'Stale file handle' why || fail "$how: $(cat why)"
	exec 5<&-
	ask expect $part fp32 "$T/want"
	within 10 cat "$M/params/$part/fp32" >got || fail "$how: not opened anew"
	same got want
	within 20 cp zeros "$M/params/v/fp32" || fail "$how: not edited"
	ask change v fp32 0 "$T/zeros"
	ask check
}

round=0
while [ $round -lt "$rounds" ]; do
	for way in transport=auto transport=zmq; do
		start_job 1 3 some
		mount_job "rw,$way"
		take_back $way $((1 + $(chance 2)))
		take_back $way 0
		take_back $way $((1 + $(chance 2)))
		unmount
		end_job
	done
	round=$((round + 1))
done
