#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank, or the mount, is killed while states are ordered from tier to tier.  No order hangs; the lost rank is named, and
# what the others have is read; with the rank started again, or another mount, states move as before and are what they
# were.  By memory or by messages.  TEST_ROUNDS (1).
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"
rounds=${TEST_ROUNDS:-1}
case $(chance 2) in 0) way=transport=auto ;; *) way=transport=zmq ;; esac

place() {
	within 60 fragctl place -j "$M" "$@"
}

# Orders go on, to and fro, until there is the file `enough`.  Of one that hangs it tells.
give_orders() {
	rm -f enough
	while [ ! -e enough ]; do
		for tier in host swap; do
			rc=0
			place '*/exp_avg' $tier >>orders.out 2>&1 || rc=$?
			[ $rc != 124 ] || echo "an order to $tier" >>hung
		done
	done &
	orders=$!
	started $orders
}

end_orders() {
	touch enough
	wait $orders || :
	[ ! -e hung ] || fail "$how: not over after a minute: $(cat hung)"
}

is_in_state() {
	grep -q "^$2" "$M/ranks/$1/state"
}

some_moved() {
	awk -F '\t' 'NR > 1 && $4 > 0 { n++ } END { exit !n }' "$M/.frag/place"
}

# moves_and_is_right TIER
moves_and_is_right() {
	place '*/exp_avg' "$1" || fail "$how: no move to $1"
	[ "$(awk '$2 == "exp_avg" { print $3 }' "$M/params/w/fragments" | sort -u)" = "$1" ] ||
		fail "$how: not in $1: $(cat "$M/params/w/fragments")"
	for key in exp_avg fp32; do
		ask expect w $key "$T/want"
		within 60 cat "$M/params/w/$key" >got || fail "$how: $key is not read"
		same got want
	done
}

kill_rank() {
	how="$way, rank $1 is killed"
	give_orders
	wait_until 60 some_moved || fail "$how: nothing moves"
	ask kill "$1"
	wait_until 60 is_in_state "$1" lost || fail "$how: $(cat "$M/ranks/$1/state")"
	end_orders
	place '*/exp_avg' host >why 2>&1 || fail "$how: the others do not move: $(cat why)"
	grep -q "place params/.*: rank $1: Input/output error" "$M/.frag/log" || fail "$how: $(cat "$M/.frag/log")"
	grep -q "^$1	-	.*Input/output error" "$M/.frag/place" || fail "$how: $(cat "$M/.frag/place")"
	for rank in 0 1 2; do
		if [ "$rank" = "$1" ]; then
			! within 60 cat "$M/ranks/$rank/partitions/0.0/exp_avg" >/dev/null 2>why || fail "$how: it is read"
			grep -q 'Input/output error' why || fail "$how: $(cat why)"
		else
			within 60 cat "$M/ranks/$rank/partitions/0.0/exp_avg" >/dev/null || fail "$how: rank $rank's is not read"
		fi
	done
	ask restart "$1"
	wait_until 60 is_in_state "$1" alive || fail "$how: $(cat "$M/ranks/$1/state")"
	moves_and_is_right host
	moves_and_is_right swap
}

kill_mount() {
	how="$way, the mount is killed"
	give_orders
	wait_until 60 some_moved || fail "$how: nothing moves"
	kill -9 $(servers)
	end_orders
	drop_mount "$M"
	wait_until_gone || fail "$how: it goes on"
	address=$(fragctl jobs -H -o address) # rank 0, started again, may have another port
	mount_job "rw,$way,timeout=200"
	moves_and_is_right host
	moves_and_is_right swap
}

round=0
while [ $round -lt "$rounds" ]; do
	on_nvme start_job 1 3 some
	mount_job "rw,$way,timeout=200"
	kill_rank "$(chance 3)"
	kill_mount
	unmount
	exec 3>&- 4<&-
	wait $job || fail "the job ended with $?"
	round=$((round + 1))
done
