#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank that is stopped while reads need it: they end as those of a silent rank do, and nothing else becomes
# unreadable by that.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse

export FRAG_JOB_ID=silent-$$ WORLD_SIZE=3
for rank in 0 1 2; do
	mkfifo cmd.$rank
	RANK=$rank "$top_builddir/tests/fail/driven-job" <cmd.$rank >>job.log 2>&1 &
	eval "rank$rank=$!"
	started $!
done
exec 4>cmd.0 5>cmd.1 6>cmd.2
wait_until 60 grep -q '^127' job.log || fail "no job: $(cat job.log)"
address=$(grep -m 1 '^127' job.log)

state_is() { # RANK WORDS
	grep -q "^$2" "$M/ranks/$1/state"
}
# refused_read TEXT FILE: not read, for that reason.
refused_read() {
	status=0
	within 60 cat "$2" >got 2>why || status=$?
	[ $status = 1 ] && grep -q "$1" why || fail "$2: not '$1' but $status $(cat why)"
}
as_it_stands() {
	for file in now ranks/2/params; do
		within 60 cat "$M/$file/w/fp32" >got || fail "$1: $file: $?"
		[ -s got ] || fail "$1: $file: empty"
	done
}

# ---- a read of params/ is under way when its rank is declared silent ----

for timeout in 2 5; do
	"$top_builddir/fragfs" "$address" "$M" -o timeout=$timeout
	as_it_stands "timeout=$timeout, all live"
	stop_process "$rank2"
	sleep 1.5 # a PING, sent every second, is under way before what the read asks
	refused_read 'timed out' "$M/params/w/fp32"
	wait_until 60 state_is 2 'lost.*no answer' || fail "timeout=$timeout: $(cat "$M/ranks/2/state")"
	as_it_stands "timeout=$timeout, rank 2 is silent"
	refused_read 'timed out' "$M/params/w/fp32"
	kill -CONT "$rank2"
	wait_until 60 state_is 2 alive || fail "$(cat "$M/ranks/2/state")"
	within 60 cat "$M/params/w/fp32" >got || fail "timeout=$timeout: not read, rank 2 goes on"
	unmount
done
exec 4>&- 5>&- 6>&-
