#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank that is stopped is silent, not dead: ETIMEDOUT, until it goes on or its end is known (EIO).
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
train_job stopped

# mount_at TIMEOUT: and then the rank is stopped, of which nothing is known yet.  By message: tables in reach of memory are
# fetched early.
mount_at() {
	kill -CONT $rank1
	within 60 fragfs "$address" mnt -o transport=zmq,timeout="$1" || fail "fragfs: $?"
	wait_until 60 grep -q ^alive mnt/ranks/1/state || fail "rank 1: $(cat mnt/ranks/1/state)"
	stop_process $rank1
}
unmount() {
	kill -CONT $rank1
	within 60 fusermount3 -u mnt 2>/dev/null || within 60 umount mnt || fail "cannot unmount"
}
reads() {
	for param in $held; do
		within 60 cat "mnt/ranks/1/params/$param" || :
	done >got 2>why
}
says() {
	reads
	[ -s why ] || fail "read all the same, not: $1"
	! grep -v "$1" why || fail "not: $1"
}

within 60 fragfs "$address" mnt || fail "fragfs: $?"
held=$(cd mnt/ranks/1/params && ls -d */fp32)
unmount

mount_at 5
says 'timed out'
grep -q '^lost since .* UTC: no answer$' mnt/ranks/1/state || fail "$(cat mnt/ranks/1/state)"
says 'timed out'
! ls mnt/ranks/1/params >got 2>why || fail "listed: $(cat got)"
grep -q 'timed out' why || fail "$(cat why)"
kill -CONT $rank1
wait_until 60 grep -q '^alive since' mnt/ranks/1/state || fail "$(cat mnt/ranks/1/state)"
reads_all() { # it may be slow, and silent once more
	reads
	[ ! -s why ]
}
wait_until 60 reads_all || fail "$(cat why)"
unmount

mount_at 200
waiting=
for param in $(ls mnt/params); do
	for key in fp32 exp_avg; do
		cat "mnt/ranks/1/params/$param/$key" >/dev/null 2>&1 &
		waiting="$waiting $!"
	done
done
are_under_way() {
	for pid in $waiting; do
		grep -q '^cat$' "/proc/$pid/comm" && grep -q ' [DS] ' "/proc/$pid/stat" || return 1
	done
}
wait_until 60 are_under_way || fail "nobody waits"
for file in mnt/step mnt/ranks/0/params/*/fp32 mnt/ranks/0/params/*/exp_avg; do
	within 60 cat "$file" >/dev/null || fail "$file: $?, while others wait for rank 1"
done
# shellcheck disable=SC2086
kill -0 $waiting || fail "they did not wait"
step=$(cat mnt/step)
kill -9 $rank1
wait $rank1 || : # its end is known to the shell, which would else tell of it in the file that says() reads
for pid in $waiting; do
	wait "$pid" && fail "read from the dead"
done
wait_until 60 grep -q '^lost since .* UTC: \(its process is gone\|nobody listens at its address any more\)$' mnt/ranks/1/state ||
	fail "$(cat mnt/ranks/1/state)"
says 'Input/output error'

# A dead job's numbers are the last that were seen.
kill -9 $rank0 2>/dev/null || : # it may have ended, alone
is_lost() {
	[ "$(cat mnt/phase)" = lost ]
}
wait_until 60 is_lost || fail "phase: $(cat mnt/phase)"
last=$(awk 'NR > 1 && $3 > last { last = $3 } END { print last }' mnt/.frag/health)
[ "$(cat mnt/step)" = "$last" ] || fail "step: $(cat mnt/step), and its ranks were at $last"
[ "$step" -gt 0 ] && [ "$(cat mnt/step)" -ge "$step" ] || fail "step: $step, then $(cat mnt/step)"
