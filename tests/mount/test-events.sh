#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# /events of a made-up job, where every commit is an event: a read waits for one; a signal, or the mount's end, ends the
# read; O_NONBLOCK does not wait.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
mount_fake rw
head -c 4000 /dev/zero >"$T/new"

edit() {
	within 60 dd if="$T/new" of="$M/params/layers.0.bias/fp32" conv=notrunc bs=4000 status=none || fail "an edit"
}

has() {
	[ -e "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]
}

# open_by PID: the process has /events open.
open_by() {
	ls -l "/proc/$1/fd" 2>/dev/null | grep -q "$M/events"
}

ended() {
	! grep -q '^State:.[^Z]' "/proc/$1/status" 2>/dev/null
}

[ "$(within 60 stat -c '%F %s' "$M/events")" = 'regular empty file 0' ] || fail "stat: $(stat -c '%F %s' "$M/events")"
edit
refused "temporarily unavailable" dd if="$M/events" iflag=nonblock of=/dev/null status=none
refused "Read-only\|Permission" sh -c ": >'$M/events'"

# More readers than the mount has threads; events from before the open are not shown.
pids=
for i in 1 2 3 4 5 6 7 8; do
	env --default-signal=INT cat "$M/events" >"$T/$i" 2>/dev/null &
	pids="$pids $!"
	started $!
done
for pid in $pids; do
	wait_until 60 open_by "$pid" || fail "a reader has not opened"
done
[ "$(within 60 cat "$M/step")" = 41 ] || fail "readers that wait block others"
for n in 1 2 3; do
	edit
	for i in 1 2 3 4 5 6 7 8; do
		wait_until 60 has "$T/$i" $n || fail "reader $i does not see event $n"
	done
done
printf '{"event":"edit","generation":%d}\n' 2 3 4 >"$T/want"
for i in 1 2 3 4 5 6 7 8; do
	same "$T/$i" "$T/want"
done

# poll(2) finds the file ready while there are lines.
"$top_builddir/tests/mount/poll-file" lines "$M/events" 20000 2 >"$T/polled" &
poller=$!
started $poller
wait_until 60 open_by $poller || fail "the poller has not opened"
edit
wait_until 60 has "$T/polled" 1 || fail "the poller does not see an event"
edit
wait $poller || fail "the poller ended with $?"
printf '{"event":"edit","generation":%d}\n' 5 6 | cmp - "$T/polled" || fail "the poller read $(cat "$T/polled")"

for signal in INT KILL TERM; do
	pid=${pids# }
	pid=${pid%% *}
	pids=${pids# "$pid"}
	kill -$signal "$pid"
	wait_until 60 ended "$pid" || fail "SIG$signal does not end a reader"
done

# The file ends when the server does.
kill -TERM "$(servers)"
for pid in $pids; do
	wait_until 60 ended "$pid" || fail "a reader outlives the mount"
	wait "$pid" || fail "a reader ended with $?"
done
wait_until_gone || fail "SIGTERM does not end the server"
mounted "$M" && fail "SIGTERM leaves the mount"
exit 0
