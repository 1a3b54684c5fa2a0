#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A reader or writer that waits for the engine ends on a signal, and the mount goes on.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
mount_fake rw

# waiting N: that many requests wait in the engine.
waiting() {
	[ "$(within 60 cat "$M/.frag/inflight")" = "$1" ]
}

ended() {
	! grep -q '^State:.[^Z]' "/proc/$1/status" 2>/dev/null
}

# More readers than the mount has threads; each way in which the engine may complete a cancelled read.
for key in never never_async; do
	for signal in INT KILL TERM; do
		pids=
		for i in 1 2 3 4 5 6 7 8; do
			# A background process of a script ignores SIGINT; env gives it back.
			env --default-signal=INT cat "$M/params/faulty/$key" >/dev/null 2>&1 &
			pids="$pids $!"
			started $!
		done
		wait_until 60 waiting 8 || fail "the readers do not wait"
		[ "$(within 60 cat "$M/step")" = 41 ] || fail "readers that wait block others"
		for pid in $pids; do
			kill -$signal "$pid"
		done
		for pid in $pids; do
			wait_until 60 ended "$pid" || fail "SIG$signal does not end a reader of $key"
			wait "$pid" && fail "a reader of $key got something"
		done
		waiting 0 || fail "a request of $key is left"
	done
done

# Gradients that are not valid now.
G=$M/params/layers.0.bias/grad
echo 0 >"$M/groups/0/grads_valid"
refused "No data available" dd if="$G" iflag=nonblock of=/dev/null status=none
cat "$G" >"$T/grad" &
reader=$!
started $reader
wait_until 60 waiting 1 || fail "a reader of grad does not wait"
echo 1 >"$M/groups/0/grads_valid"
wait_until 60 ended $reader || fail "a reader of grad misses its window"
wait $reader || fail "a reader of grad failed"
fake-bytes layers.0.bias "" grad | cmp - "$T/grad" || fail "grad"

# A commit that waits is interrupted: nothing changes.
head -c 16384 /dev/urandom >"$T/new"
for key in never never_async; do
	env --default-signal=INT dd if="$T/new" of="$M/params/faulty/$key" bs=16384 conv=notrunc,fsync \
		status=none 2>/dev/null &
	writer=$!
	started $writer
	wait_until 60 waiting 1 || fail "a writer does not wait"
	kill -INT $writer
	wait_until 60 ended $writer || fail "SIGINT does not end a writer"
	wait $writer && fail "a writer succeeded"
done
[ "$(cat "$M/groups/0/commits")" = 0 ] || fail "an interrupted commit was made"

# fragctl set waits for the bytes of a file in the mount.
echo 0 >"$M/groups/0/grads_valid"
fragctl set -j "$M" layers.0.bias/fp32 "=$G" &
writer=$!
started $writer
wait_until 60 waiting 1 || fail "fragctl set does not wait"
echo 1 >"$M/groups/0/grads_valid"
wait_until 60 ended $writer || fail "fragctl set misses the window"
wait $writer || fail "fragctl set: $?"
cmp "$M/params/layers.0.bias/fp32" "$T/grad" || fail "fragctl set"

# The mount is unmounted while readers wait in it: they end, and the server ends.
cat "$M/params/faulty/never" >/dev/null 2>&1 &
reader=$!
started $reader
wait_until 60 waiting 1 || fail "a reader does not wait"
server=$(servers)
kill -TERM "$server"
wait_until 60 ended $reader || fail "a reader outlives the mount"
wait_until_gone || fail "SIGTERM does not end the server"
mounted "$M" && fail "SIGTERM leaves the mount"
exit 0
