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
at_end() {
	drop_mount "$T/auto"
	drop_mount "$T/zmq"
}

# Its reader is $reader.
begin_reading() {
	M=$T/$way
	"$top_builddir/fragfs" "$address" "$M" -o "timeout=3,transport=$way"
	wait_until 60 in_step || fail "$way: the phase is $(cat "$M/phase")"
	for file in ranks/0/params/p2/fp32 ranks/1/params/p2/fp32 ranks/0/partitions/0.0/exp_avg; do
		within 60 cat "$M/$file" >got || fail "$way: $file is not read within a step"
		[ -s got ] || fail "$way: $file is empty"
	done
	env --default-signal=INT cat "$M/params/p2/fp32" >/dev/null 2>why.$way &
	reader=$!
	started $reader
	wait_until 60 grep -q '^read p2 fp32 ' "$M/.frag/inflight" || fail "$way: inflight: $(cat "$M/.frag/inflight")"
}

end_reading() { # PID
	! is_gone "$1" || fail "$way: a slow step is held for silence: $(cat why.$way)"
	kill -INT "$1"
	wait_until 60 is_gone "$1" || fail "$way: an interrupted reader waits on"
	wait "$1" && fail "$way: interrupted, and no error"
	M=$T/$way
	unmount
}

start_job
way=auto
begin_reading
auto=$reader
way=zmq
begin_reading
sleep 4 # more than the timeout: that it is not over then is what is tested
end_reading $reader
way=auto
end_reading $auto
kill $ranks
