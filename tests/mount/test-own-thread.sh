#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A training thread that reads from its own mount what only itself could bring about gets an error and does not hang;
# another thread of its process waits, and gets the bytes.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
export FRAG_JOB_ID="own-$$" WORLD_SIZE=1 RANK=0

for way in auto zmq; do
	rm -f cmd out
	mkfifo cmd
	"$top_builddir/tests/mount/own-thread" "$M" <cmd >out 2>err &
	job=$!
	started $job
	exec 4>cmd
	wait_until 60 grep -q '^127' out || fail "$way: no job: $(cat err)"
	"$top_builddir/fragfs" "$(head -n 1 out)" "$M" -o rw,transport=$way,timeout=600
	cat "$M/ranks/0/state" >/dev/null # the mount has seen the rank's page
	echo >&4
	wait_until 60 is_over $job || fail "$way: it hangs: $(cat out "$M/.frag/inflight")"
	sed 1d out >said
	cat >expected <<-'END'
		params/w/fp32 write: Resource deadlock avoided
		groups/0/lr write: Resource deadlock avoided
		.frag/freeze write: Resource deadlock avoided
		params/w/grad read: Resource deadlock avoided
		params/w/stats/grad/norm read: Resource deadlock avoided
		params/w/fp32 read: ok
		params/w/grad read: ok
		params/w/exp_avg read: Resource deadlock avoided
		.frag/stats read: ok
		now/w/fp32 read: ok
		trains
		params/w/fp32 write: ok
	END
	cmp expected said || fail "$way: $(cat said)"
	grep -q 'w/grad cannot be read by the thread that trains rank 0 now: .*read it while they are valid, or from another thread' "$M/.frag/log" ||
		fail "$way: $(cat "$M/.frag/log")"
	[ "$(grep -c 'its writer is the thread that trains a rank, .*write from another thread or process' "$M/.frag/log")" = 2 ] ||
		fail "$way: $(cat "$M/.frag/log")"
	exec 4>&-
	unmount
done
