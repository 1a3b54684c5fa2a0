#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# States swapped to a file system whose requests go wrong now and then: what is read is right or EIO, and each error is
# named.
. "$top_srcdir/tests/lib.sh"

[ -c /dev/fuse ] || skip "no /dev/fuse"
mkdir folder mnt
at_end() {
	umount -l "$T/mnt" 2>/dev/null || fusermount3 -u -z "$T/mnt" 2>/dev/null || :
}

# with OP N FAULT: trains there; "EIO ERRORS DAMAGED" of it in $eio, $errors, $damaged
with() {
	"$top_builddir/tests/fail/faulty-fs" "$T/folder" "$1" "$2" "$3" "$T/mnt" -f 2>fs.log &
	server=$!
	started $server
	wait_until 60 mountpoint -q "$T/mnt" || skip "needs to mount: $(cat fs.log)"
	within 60 "$top_builddir/tests/fail/swap-job" faulty "$T/mnt" >out 2>swap.log || fail "$*"
	read -r eio errors damaged <out
	echo "$*: $eio reads were EIO, $errors errors, $damaged damaged"
	at_end
	wait $server || :
}

with read 0 none
[ "$eio $errors $damaged" = '0 0 0' ] || fail "without a fault"
with write 7 EIO
[ "$eio" = 0 ] && [ "$errors" -gt 0 ] || fail "what could not be written is lost"
grep -q "swap: fp32, bytes .*: not written, kept in memory: Input/output error" swap.log ||
	fail "no line about a write"
with read 7 EIO
[ "$eio" -gt 0 ] && [ "$errors $damaged" = "$eio 0" ] || fail "a failed read was served"
grep -q "swap: .*, bytes .*: not read: Input/output error" swap.log || fail "no line about a read"
with read 7 FLIP
[ "$eio" -gt 0 ] && [ "$errors $damaged" = "0 $eio" ] || fail "another bit was served"
grep -q "swap: .*, bytes .*: damaged" swap.log || fail "no line about damage"
with write 7 LOST
[ "$eio" -gt 0 ] || fail "a lost write was served"
with write 7 ELSEWHERE
[ "$eio" -gt 0 ] || fail "bytes of another place were served"
with read 7 SHORT
[ "$eio" = 0 ] && [ "$errors" = 0 ] || fail "a short read is an error"
with write 7 SHORT
[ "$eio" = 0 ] || fail "what was written short is lost"
with write 7 DELAY
[ "$eio" = 0 ] && [ "$errors" = 0 ] || fail "a late write is an error"
