#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# now/ shows the job as it stands, even if it hangs: rank 0 stands inside step 4, rank 1 before the gradients of step 8
# are valid, so that no generation of all ranks can be had.  now/ shows at once what the ranks hold.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
export FRAG_JOB_ID=now-$$ WORLD_SIZE=2 FRAG_SWAP_DIR FRAG_PINNED_MEM
mkdir "$T/nvme"

# start_job: starts it; rank 0's process is $rank0, rank 1's $rank1.
start_job() {
	rm -f job.0.log job.1.log
	RANK=0 "$top_builddir/tests/fail/tear-job" 1 1000 0 IN 4 >job.0.log 2>&1 &
	rank0=$!
	RANK=1 "$top_builddir/tests/fail/tear-job" 1 1000 0 GRADS 8 >job.1.log 2>&1 &
	rank1=$!
	started $rank0
	started $rank1
	for rank in 0 1; do
		wait_until 60 grep -q '^stands' job.$rank.log || fail "rank $rank does not stand"
	done
	address=$(grep '^127' job.0.log)
}

# check_file PARAM STATE: the file has rank 0's bytes, then rank 1's.
check_file() {
	for rank in 0 1; do
		part=$M/ranks/$rank/params/$1/$2
		[ ! -e "$part" ] || within 60 cat "$part" || fail "$way: rank $rank's $1/$2"
	done >want
	within 60 cat "$M/now/$1/$2" >got || fail "$way: now/$1/$2: $?"
	same want got
	[ "$(stat -c %a "$M/now/$1/$2")" = 444 ] || fail "$way: now/$1/$2 is writable"
	tail -c "$(stat -c %s want)" "$M/now/$1/$2.npy" | cmp - want || fail "$way: now/$1/$2.npy"
}

# values STATE VALUES: p2, of which both ranks have a part, has these values, rank 0's first.
values() {
	within 60 cat "$M/now/p2/$1" >got || fail "$way: now/p2/$1: $?"
	[ "$(od -A n -v -t f4 -w4 got | uniq | tr -d ' ' | tr '\n' ' ')" = "$2 " ] || fail "$way: $1 is not of steps $2"
}

# The columns of one rank: its generation, boundary and phase.
moment() { # RANK
	awk -v rank="$1" '$1 == rank && $2 == "fp32" { print $8, $9, $10; exit }' "$M/now/p2/fragments"
}

for way in auto zmq nvme; do
	if [ $way = nvme ]; then
		FRAG_SWAP_DIR=$T/nvme FRAG_PINNED_MEM=1M
	else
		unset FRAG_SWAP_DIR FRAG_PINNED_MEM
	fi
	start_job
	"$top_builddir/fragfs" "$address" "$M" -o "rw,timeout=3,transport=$([ $way = zmq ] && echo zmq || echo auto)"
	for folder in "" /p2; do
		[ "$(ls "$M/params$folder")" = "$(ls "$M/now$folder")" ] || fail "$way: $(ls "$M/now$folder")"
	done
	for param in p0 p1 p2 p3 p4; do
		check_file $param fp32
		check_file $param exp_avg
	done
	values fp32 "4 7"
	values exp_avg "4 7"
	values grad "4 8" # of rank 1 they are not valid
	within 60 tar -C "$M" -cf - now | tar -tf - >listed || fail "$way: tar: $?"
	[ "$(find "$M/now" | wc -l)" = "$(wc -l <listed)" ] || fail "$way: tar: $(cat listed)"
	du -s "$M/now" >/dev/null || fail "$way: du"
	refused "Permission denied" cp got "$M/now/p0/fp32"
	head -n 1 "$M/now/p2/fragments" | grep -q 'numel	generation	boundary	phase$' || fail "$way: $(head -n 1 "$M/now/p2/fragments")"
	head -n 1 "$M/params/p2/fragments" | grep -q 'numel$' || fail "$way: $(head -n 1 "$M/params/p2/fragments")"
	moment 0 | grep -q '^[1-9][0-9]* [1-9][0-9]* step$' || fail "$way: rank 0: $(cat "$M/now/p2/fragments")"
	moment 1 | grep -q '^[1-9][0-9]* [1-9][0-9]* stable$' || fail "$way: rank 1: $(cat "$M/now/p2/fragments")"
	[ "$(moment 0 | cut -d ' ' -f 1)" -lt "$(moment 1 | cut -d ' ' -f 1)" ] || fail "$way: $(cat "$M/now/p2/fragments")"
	if command -v python3 >/dev/null; then
		generations="0:$(moment 0 | cut -d ' ' -f 1),1:$(moment 1 | cut -d ' ' -f 1)"
		[ "$(python3 -c 'import os, sys
print(os.getxattr(sys.argv[1], "user.frag.generations").decode())' "$M/now/p2/fp32")" = "$generations" ] ||
			fail "$way: user.frag.generations is not $generations"
	fi
	[ "$(cat "$M/groups/0/loss_scale")" = 65536 ] || fail "$way: loss scale $(cat "$M/groups/0/loss_scale")"
	printf 'rank	shard	replica\n0	0	0\n1	1	0\n' | cmp - "$M/groups/0/ranks" || fail "$way: $(cat "$M/groups/0/ranks")"
	[ "$(cat "$M"/params/p?/group_index | tr '\n' ' ')" = "0 1 2 3 4 " ] || fail "$way: places in the group"
	[ -z "$(cat "$M/.frag/inflight")" ] || fail "$way: something waits: $(cat "$M/.frag/inflight")"
	# Ranks have preserved nothing for these reads.
	! grep '^fragfs_rank_kept_bytes_total' "$M/.frag/metrics" | grep -v ' 0$' || fail "$way: preserved"

	# A rank that is stopped, by a debugger for example, is silent, but its memory can be read.
	for rank in $([ $way != auto ] || echo 0 1); do
		process=$(eval echo "\$rank$rank")
		for param in p0 p1 p2 p3 p4; do
			cat "$M/now/$param/fp32"
		done >want
		stop_process "$process"
		wait_until 60 grep -q '^lost' "$M/ranks/$rank/state" || fail "$(cat "$M/ranks/$rank/state")"
		for param in p0 p1 p2 p3 p4; do
			within 60 cat "$M/now/$param/fp32" || fail "now/$param/fp32, rank $rank is silent: $?"
			part=$M/ranks/$rank/params/$param/fp32
			[ ! -e "$part" ] || within 60 cat "$part" >part || fail "ranks/$rank/params/$param/fp32: $?"
		done >got
		same want got
		kill -CONT "$process"
		wait_until 60 grep -q '^alive' "$M/ranks/$rank/state" || fail "$(cat "$M/ranks/$rank/state")"
	done

	# A lost rank only costs its own pieces.
	kill -9 $rank1
	wait $rank1 2>/dev/null || :
	wait_until 60 grep -q '^lost' "$M/ranks/1/state" || fail "$way: $(cat "$M/ranks/1/state")"
	within 60 dd if="$M/now/p2/fp32" bs=4096 count=1 status=none >got || fail "$way: rank 0's, rank 1 is dead"
	head -c 4096 "$M/ranks/0/params/p2/fp32" | cmp - got || fail "$way: rank 0's bytes"
	refused "Input/output error" tail -c 4 "$M/now/p2/fp32"
	[ "$(moment 1 | cut -d ' ' -f 3)" = lost ] || fail "$way: $(cat "$M/now/p2/fragments")"
	unmount
	kill $rank0
	wait $rank0 || fail "$way: rank 0 ended with $?"
done
