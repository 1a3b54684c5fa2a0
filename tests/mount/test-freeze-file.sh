#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# .frag/freeze: which lines may be written to it, and that a freeze with `held` ends when the file is closed.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
mount_fake rw
F=$M/.frag/freeze

is() {
	[ "$(cat "$M/phase")" = "$1" ]
}

line() {
	printf %b "$1" >"$T/line"
	cp "$T/line" "$F"
}

[ "$(stat -c %A "$F")" = -rw-r--r-- ] || fail "mode"
for bad in '\n' 'now\n' '-1\n' '1 2\n' '60 held now\n' '60 hold\n' '86401\n' '99999999999\n' \
	'60                                    held\n'; do
	printf %b "$bad" >"$T/bad"
	refused "Invalid argument" cp "$T/bad" "$F"
	is stable || fail "frozen by '$bad'"
done
for good in 60 '60\n' 86400; do
	line "$good"
	is frozen || fail "not frozen by '$good'"
	refused "busy" cp "$T/line" "$F"
	line '0\n'
	is stable || fail "not thawed after '$good'"
done
line '0\n' || fail "nothing to thaw is no error"

exec 3>"$F"
echo 60 held >&3
is frozen || fail "not held"
exec 3>&-
wait_until 60 is stable || fail "held after close"

exec 3>"$F"
echo 60 held >&3
line '0\n'
refused "timed out" sh -c 'echo 0 | cat >&3'
echo 60 held >&3
is frozen || fail "not held a second time"
echo 0 >&3
is stable || fail "not thawed through the file that holds it"
line 60
exec 3>&-
is frozen || fail "a close has thawed what it did not hold"
line '0\n'

# An edit that reads the elements it changes is not committed if the job is thawed meanwhile.  If the thaw comes too
# late, the test tries again.
slow=$M/params/faulty/slow
for try in $(seq 60); do
	cp "$slow" "$T/before"
	within 60 fragctl set -j "$M" 'faulty/slow[::100]' '+= 1' 2>"$T/out" &
	setter=$!
	until is frozen || is_over $setter; do
		: # a pause would be longer than the edit
	done
	echo 0 >"$F"
	status=0
	wait $setter || status=$?
	[ $status = 0 ] || grep -q 'is changed, but the freeze was over before that' "$T/out" || break
done
[ $status = 1 ] && grep -q '^fragctl: faulty/slow\[::100\]: the freeze was over too early: nothing is changed$' "$T/out" ||
	fail "set of a job that is thawed: $status: $(cat "$T/out")"
same "$slow" "$T/before"
wait_until 60 is stable || fail "frozen after set"

# fragctl takes the only mount; of several it names all.
mkdir "$T/mnt2"
within 60 fragfs-fake fake "$T/mnt2" || fail "a second mount"
status=0
within 60 fragctl freeze 2>"$T/out" || status=$?
umount "$T/mnt2" 2>/dev/null || fusermount3 -u "$T/mnt2"
[ $status = 1 ] && grep -q '^fragctl: name one of these mounts: /' "$T/out" && grep -q "$M, .*\|$M\$" "$T/out" &&
	grep -q "$T/mnt2" "$T/out" || fail "two mounts: $(cat "$T/out")"
is stable || fail "frozen, and was not named"
unmount
