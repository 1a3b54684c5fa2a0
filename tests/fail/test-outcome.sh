#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A mount is killed while its edit waits for a boundary: .frag/log of the next one says what became of it, and the bytes
# are what it says.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"

at_end() {
	drop_mount "$T/m1"
	drop_mount "$M"
}

# The edit has been asked for, and the ranks stand.
begin_edit() {
	start_job 1 2 even
	ask expect w fp32 "$T/old"
	mkdir -p "$T/m1"
	"$top_builddir/fragfs" "$address" "$T/m1" -f -o rw &
	server=$!
	started $server
	wait_until 20 mounted "$T/m1" || fail "no mount"
	head -c "$(stat -c %s old)" /dev/zero >new
	dd if=new of="$T/m1/params/w/fp32" bs=1M conv=notrunc status=none 2>/dev/null &
	started $!
	wait_until 20 grep -q 'waiting for its boundary' "$T/m1/.frag/inflight" || fail "$(cat "$T/m1/.frag/inflight")"
}

kill_mount() {
	kill -9 $server
	wait $server 2>/dev/null || :
	drop_mount "$T/m1"
	mount_job
}

# The edit is of the mount that was killed.
logged() {
	grep '^fragfs: job: ' "$M/.frag/log" >said || return 1
	grep -q "\"pid\":$server,.*\"param\":\"w\".*\"outcome\":\"$1\"" said
}

begin_edit
kill_mount
! grep '"outcome"' "$M/.frag/log" || fail "told before it was decided"
cmp "$M/params/w/fp32" old || fail "not whole-old before it was decided"
ask pass 0 4
ask pass 1 4
wait_until 10 logged committed || fail "$(cat "$M/.frag/log")"
cmp "$M/params/w/fp32" new || fail "committed, and not whole-new"
unmount
ask change w fp32 0 "$T/new"
ask check
end_job

begin_edit
ask kill 1
kill_mount
wait_until 10 logged aborted || fail "$(cat "$M/.frag/log")"
ask expect w bf16 "$T/want"
cmp "$M/ranks/0/params/w/bf16" want || fail "aborted, and not whole-old"
unmount
exec 3>&- 4<&-
wait $job || fail "the job ended with $?"
