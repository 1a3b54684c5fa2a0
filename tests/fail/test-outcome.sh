#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A mount is killed while its edit waits for a boundary, or is handed out, and the rank that coordinates as well: .frag/log
# of another mount has one line, which says whose edit it was and what became of it, and the bytes are what it says.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"

# begin_edit WORLD: its mount is $server.
begin_edit() {
	start_job 1 "$1" even
	ask expect w fp32 "$T/old"
	mkdir -p "$T/m1"
	mount_job
	"$top_builddir/fragfs" "$address" "$T/m1" -f -o rw &
	server=$!
	started $server
	wait_until 60 mounted "$T/m1" || fail "$what: no mount"
	head -c "$(stat -c %s old)" /dev/zero >new
}

# write_until PHASE: the edit is in it.
write_until() {
	dd if=new of="$T/m1/params/w/fp32" bs=1M conv=notrunc status=none 2>/dev/null &
	started $!
	wait_until 60 grep -q "$1" "$T/m1/.frag/inflight" || fail "$(cat "$T/m1/.frag/inflight")"
}

kill_mount() {
	kill -9 $server
	wait $server 2>/dev/null || :
	drop_mount "$T/m1"
}

# logged OUTCOME: by one line, of the mount that was killed.
logged() {
	grep '^fragfs: job: ' "$M/.frag/log" >said || return 1
	[ "$(grep -c '"event":"edit"' said)" = 1 ] || return 1
	grep -q "\"pid\":$server,.*\"param\":\"w\".*\"outcome\":\"$1\"" said
}

expect_line() {
	wait_until 60 logged "$1" || fail "$what: not $1: $(cat "$M/.frag/log")"
}

is_old() {
	ask expect w bf16 "$T/want"
	cmp "$M/ranks/$1/params/w/bf16" want || fail "$what: aborted, and not whole-old"
}

begin_edit 2
write_until 'waiting for its boundary'
kill_mount
! grep '"outcome"' "$M/.frag/log" || fail "told before it was decided"
cmp "$M/params/w/fp32" old || fail "not whole-old before it was decided"
ask pass 0 4
ask pass 1 4
expect_line committed
cmp "$M/params/w/fp32" new || fail "committed, and not whole-new"
unmount
ask change w fp32 0 "$T/new"
ask check
end_job

begin_edit 2
write_until 'waiting for its boundary'
ask kill 1
kill_mount
expect_line aborted
is_old 0
unmount
exec 3>&- 4<&-
wait $job || fail "the job ended with $?"

# A rank that stands still does not take its bytes; its loss takes 60 s, that of the writer does not.
begin_edit 2
pid=$(cat "$M/ranks/1/pid")
cat "$T/m1/params/w/fp32" >/dev/null
stop_process "$pid"
write_until 'staging, [1-9]'
kill_mount
expect_line aborted
kill -CONT "$pid"
wait_until 60 grep -q '"why":"its writer was lost' "$M/.frag/log" || fail "$(cat "$M/.frag/log")"
ask pass 0 2
ask pass 1 2
expect_line aborted
unmount
ask check
end_job

# Who coordinates dies before it has decided, and after one rank has heard the decision.
begin_edit 3
write_until 'waiting for its boundary'
ask kill 0
kill_mount
expect_line aborted
is_old 1
unmount
exec 3>&- 4<&-
wait $job || fail "the job ended with $?"

begin_edit 3
write_until 'waiting for its boundary'
ask pass 1 4
ask kill 0
kill_mount
ask pass 2 4
expect_line committed
ask change w fp32 0 "$T/new"
ask expect w bf16 "$T/want"
cmp "$M/ranks/1/params/w/bf16" want || fail "committed, and not whole-new"
cmp "$M/ranks/2/params/w/bf16" want || fail "committed, and not whole-new"
unmount
exec 3>&- 4<&-
wait $job || fail "the job ended with $?"
