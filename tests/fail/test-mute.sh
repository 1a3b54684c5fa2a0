#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Peers that take a connection and say nothing, or stop to take anything: a line each, no hang, no harm.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
tools=$top_builddir/tests/fail

"$tools/mute-peer" >port &
started $!
wait_until 60 test -s port || fail "no mute peer"
mute=127.0.0.1:$(cat port)

# ---- a mute one where a job should be ----

(umask 077 && od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >job.key && echo >>job.key)
for how in plain key=$T/job.key; do
	if within 60 "$top_builddir/fragfs" "$mute" "$M" -o "timeout=1,$how" >out 2>&1; then
		fail "$how: mounted"
	fi
	[ "$(wc -l <out)" = 1 ] && grep -q "$mute: no answer.*(-o key=FILE, -o plain; fragctl: FRAG_KEY_FILE, FRAG_PLAIN=1)" out ||
		fail "$how: $(cat out)"
done

# ---- a mount that does not take what it asked for: the ranks train on ----

start_job() {
	FRAG_JOB_ID=mute-$$ WORLD_SIZE=2
	export FRAG_JOB_ID WORLD_SIZE
	: >job.log
	ranks=
	for r in 0 1; do
		RANK=$r "$tools/tear-job" 1 2000 >>job.log 2>&1 &
		ranks="$ranks $!"
		started $!
	done
	wait_until 60 grep -q '^127' job.log || fail "no job"
	address=$(grep -m 1 '^127' job.log)
}

# The job's step, by a mount of its own.
steps_go_on() {
	before=$(cat "$T/mnt2/step")
	wait_until 60 steps_on || fail "$1: the job stands at step $before"
}

steps_on() {
	[ "$(cat "$T/mnt2/step")" -gt $((before + 20)) ]
}

start_job
mkdir mnt2
within 60 "$top_builddir/fragfs" "$address" "$T/mnt2"
within 60 "$top_builddir/fragfs" "$address" "$M" -o "transport=zmq,timeout=2"
readers=
for n in 1 2 3 4 5 6 7 8; do
	cat "$M/params/p2/fp32" "$M/params/p4/exp_avg" >/dev/null 2>&1 &
	readers="$readers $!"
	started $!
done
no_readers() {
	for pid in $readers; do
		! kill -0 $pid 2>/dev/null || return 1
	done
}
server=$(servers)
stop_process "$server"
steps_go_on "a stopped mount"
sleep 3 # the mount is silent for longer than anybody's patience
kill -CONT "$server"
wait_until 60 no_readers || fail "readers of a mount that was stopped wait on"
wait_until 60 cat "$M/params/p2/fp32" >got || fail "a mount that was stopped reads no more"
unmount

# ---- a rank that takes no more of a commit ----

within 60 "$top_builddir/fragfs" "$address" "$M" -o "rw,transport=zmq,timeout=2"
head -c $((1100 * 1003 * 4)) /dev/zero >zeros
wait_until 60 cp "$M/params/p2/fp32" got || fail "not read"
rank1=${ranks##* }
stop_process "$rank1"
if within 60 cp zeros "$M/params/p2/fp32" 2>why; then
	fail "written to a job of which one rank stands"
fi
[ -s why ] || fail "hangs: a commit to a rank that stands"
kill -CONT "$rank1"
steps_go_on "after a rank was stopped"
wait_until 60 cat "$M/params/p2/fp32" >got || fail "not read after a rank was stopped"
[ "$(od -An -tf4 -w4 -v got | sort -u | wc -l)" = 1 ] || fail "half of an edit: $(od -An -tf4 -w4 -v got | sort -u)"
unmount
drop_mount "$T/mnt2"
kill $ranks
