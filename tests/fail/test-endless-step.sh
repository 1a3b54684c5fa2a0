#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A step that never ends is not silence: what a rank holds is read, a file of the whole job waits, in sight, past
# the timeout, and can be interrupted.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse

start_job() {
	FRAG_JOB_ID=endless-$$ WORLD_SIZE=2
	export FRAG_JOB_ID WORLD_SIZE
	ranks=
	for r in 0 1; do
		RANK=$r "$top_builddir/tests/fail/tear-job" 1 1000 600000000 >>job.log 2>&1 &
		ranks="$ranks $!"
		started $!
	done
	wait_until 20 grep -q '^127' job.log || fail "no job"
	address=$(grep -m 1 '^127' job.log)
}

is_gone() {
	! kill -0 "$1" 2>/dev/null
}

in_step() {
	[ "$(cat "$M/phase")" = step ]
}

start_job
for way in auto zmq; do
	"$top_builddir/fragfs" "$address" "$M" -o "timeout=1,transport=$way"
	wait_until 10 in_step || fail "$way: the phase is $(cat "$M/phase")"
	for file in ranks/0/params/p2/fp32 ranks/1/params/p2/fp32 ranks/0/partitions/0.0/exp_avg; do
		within 5 cat "$M/$file" >got || fail "$way: $file is not read within a step"
		[ -s got ] || fail "$way: $file is empty"
	done
	env --default-signal=INT cat "$M/params/p2/fp32" >/dev/null 2>why &
	reader=$!
	started $reader
	wait_until 5 grep -q '^read p2 fp32 ' "$M/.frag/inflight" || fail "$way: inflight: $(cat "$M/.frag/inflight")"
	sleep 2.5 # more than the timeout: that it is not over then is what is tested
	! is_gone $reader || fail "$way: a slow step is held for silence: $(cat why)"
	kill -INT $reader
	wait_until 2 is_gone $reader || fail "$way: an interrupted reader waits on"
	wait $reader && fail "$way: interrupted, and no error"
	unmount
done
kill $ranks
