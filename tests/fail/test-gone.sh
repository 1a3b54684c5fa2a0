#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The mount is killed: the job does not notice, and a new mount on the same place works.  The job is killed: the
# mount answers with errors, long before anybody could be held to be silent, and can be unmounted, and its process ends.  A
# commit that waits for a boundary is told in .frag/inflight and can be interrupted.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"

is_gone() {
	! kill -0 "$1" 2>/dev/null
}

fails_with() {
	text=$1
	shift
	if within 60 "$@" >/dev/null 2>why; then
		return 1
	fi
	grep -q "$text" why
}

# The server's process id: in the background it is nobody's child here.
server() {
	servers | head -n 1
}

for way in transport=auto transport=zmq; do
	how="$way"
	start_job 1 2 some
	mount_job "$way,timeout=120"
	cat "$M/params/w/fp32" >/dev/null || fail "$how: nothing to be read"
	pid=$(server)
	kill -9 "$pid"
	wait_until 60 is_gone "$pid" || fail "$how: the mount lives on"
	fails_with 'not connected' cat "$M/step" || fail "$how: $(cat why)"
	mount_job "rw,$way,timeout=120"
	ask expect w fp32 "$T/want"
	within 60 cat "$M/params/w/fp32" >got || fail "$how: a new mount is not read"
	same got want
	ask check
	ask kill 0
	ask kill 1
	wait_until 60 fails_with 'Input/output error' cat "$M/params/v/fp32" || fail "$how: job gone: $(cat why)"
	for file in params/w/fp32 ranks/0/partitions/0.0/fp32; do
		fails_with 'Input/output error' cat "$M/$file" || fail "$how: job gone, $file: $(cat why)"
	done
	within 60 ls -l "$M/params/w" "$M/groups/0" >names || fail "$how: job gone: ls: $?"
	grep -q ' fp32$' names && grep -q ' bf16.npy$' names || fail "$how: job gone: ls: $(cat names)"
	within 60 ls "$M/params" "$M/ranks" >/dev/null 2>&1 || [ $? != 124 ] || fail "$how: job gone, ls hangs"
	within 60 cat "$M/phase" >phase && grep -qx lost phase || fail "$how: phase of no job: $(cat phase)"
	pid=$(server)
	unmount
	wait_until 60 is_gone "$pid" || fail "$how: unmounted, but fragfs lives on"
	exec 3>&- 4<&-
	wait $job || fail "$how: the job ended with $?"
done

# "even" passes no boundary of its own accord.
start_job 0 2 even
mount_job rw
head -c $((701 * 4)) /dev/zero >zeros
cp "$M/params/v/fp32" before
env --default-signal=INT cp zeros "$M/params/v/fp32" 2>why &
writer=$!
started $writer
wait_until 60 grep -q 'commit v fp32 .*waiting for its boundary [0-9]*; rank [01] stands at boundary [0-9]* for [0-9]* ms' "$M/.frag/inflight" ||
	fail "inflight: $(cat "$M/.frag/inflight")"
kill -INT $writer
wait_until 60 is_gone $writer || fail "SIGINT does not end a writer that waits"
wait $writer && fail "interrupted, and no error"
cmp before "$M/params/v/fp32" || fail "interrupted, but something has changed"
unmount
end_job
