#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# poll(2), select(2) and epoll(7) on generation: ready at once, and after its first read once it has changed.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
mount_fake rw
poll_file=$top_builddir/tests/mount/poll-file
head -c 4000 /dev/zero >"$T/new"

has() {
	[ -e "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]
}

edit() {
	within 60 dd if="$T/new" of="$M/params/layers.0.bias/fp32" conv=notrunc bs=4000 status=none || fail "an edit"
}

# Nothing changes: no poller finds it ready again.
for how in poll pri select epoll; do
	within 60 "$poll_file" $how "$M/generation" 100 1 >"$T/$how" && fail "$how: changed without a change"
	[ $? = 3 ] || fail "$how: an error"
done

# Two edits; more pollers than the mount has threads.
pids=
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
	for how in poll pri select epoll; do
		within 60 "$poll_file" $how "$M/generation" 30000 2 >"$T/$how.$i" &
		pids="$pids $!"
	done
done
for n in 1 2; do
	for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
		for how in poll pri select epoll; do
			wait_until 60 has "$T/$how.$i" $n || fail "$how $i does not see change $n"
		done
	done
	edit
done
for pid in $pids; do
	wait "$pid" || fail "a poller ended with $?"
done
[ "$(cat "$T/poll.7")" = "$(printf '0\n1\n2')" ] || fail "a poller read $(cat "$T/poll.7")"

# A state does not change by itself: always ready.
within 60 "$poll_file" poll "$M/params/layers.0.bias/fp32" 100 0 >"$T/state" || fail "a state is not ready"

# A signal ends one waiting poller; others go on.  The mount's end ends them all.
"$poll_file" poll "$M/generation" 60000 1 >"$T/a" 2>&1 &
a=$!
"$poll_file" poll "$M/generation" 60000 1 >"$T/b" 2>&1 &
b=$!
started $a
started $b
wait_until 60 has "$T/a" 1 && wait_until 60 has "$T/b" 1 || fail "they do not wait"
kill $a
wait $a && fail "a killed poller succeeds"
kill -TERM "$(servers)"
wait $b && fail "a poller outlives the mount"
[ $? = 4 ] || fail "the mount's end: $(cat "$T/b")"
wait_until_gone || fail "SIGTERM does not end the server"
mounted "$M" && fail "SIGTERM leaves the mount"
exit 0
