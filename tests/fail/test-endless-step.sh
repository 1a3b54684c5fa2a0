#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A step that never ends is not silence: what a rank holds is read, a file of the whole job waits, in sight, can be
# interrupted, and ends by itself, with an error that is not a silent rank's.
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
	wait_until 60 grep -q '^127' job.log || fail "no job"
	address=$(grep -m 1 '^127' job.log)
}

is_gone() {
	! kill -0 "$1" 2>/dev/null
}

in_step() {
	[ "$(cat "$M/phase")" = step ]
}

for way in auto zmq; do
	mkdir -p "$T/$way"
done
# Its reader is $reader.
begin_reading() { # TIMEOUT
	M=$T/$way
	"$top_builddir/fragfs" "$address" "$M" -o "timeout=$1,transport=$way"
	wait_until 60 in_step || fail "$way: the phase is $(cat "$M/phase")"
	for file in ranks/0/params/p2/fp32 ranks/1/params/p2/fp32 ranks/0/partitions/0.0/exp_avg; do
		within 60 cat "$M/$file" >got || fail "$way: $file is not read within a step"
		[ -s got ] || fail "$way: $file is empty"
	done
	env --default-signal=INT cat "$M/params/p2/fp32" >/dev/null 2>why.$way &
	reader=$!
	started $reader
	wait_until 60 in_sight || fail "$way: inflight: $(cat "$M/.frag/inflight")"
}
in_sight() { # a job that has stood for the timeout is not waited for any longer
	grep -q '^read p2 fp32 ' "$M/.frag/inflight" || is_gone $reader
}

is_interrupted() {
	! is_gone $reader || fail "$way: it did not wait: $(cat why.$way)"
	kill -INT $reader
	wait_until 60 is_gone $reader || fail "$way: an interrupted reader waits on"
	wait $reader && fail "$way: interrupted, and no error"
	unmount
}
ends() {
	wait_until 60 is_gone $reader || fail "$way: $(cat "$M/.frag/inflight")"
	wait $reader && fail "$way: it was read"
	grep -q 'Timer expired' why.$way || fail "$way: $(cat why.$way)"
	grep -q '^alive' "$M/ranks/0/state" && grep -q '^alive' "$M/ranks/1/state" || fail "$way: a slow step is held for silence"
	unmount
}

start_job
for way in auto zmq; do
	begin_reading 600
	is_interrupted
	begin_reading 3
	ends
done
kill $ranks
