#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A file system that does not answer any more: the swap directory is closed soon all the same.  What has not begun there is
# canceled; what has, the kernel does not take back, and a line says that it is left.
. "$top_srcdir/tests/lib.sh"

[ -c /dev/fuse ] || skip "no /dev/fuse"
mkdir folder mnt
server=
at_end() {
	[ -z "$server" ] || kill -9 $server 2>/dev/null || :
	umount -l "$T/mnt" 2>/dev/null || fusermount3 -u -z "$T/mnt" 2>/dev/null || :
}

"$top_builddir/tests/fail/faulty-fs" "$T/folder" read 1 SILENT "$T/mnt" -f 2>fs.log &
server=$!
started $server
wait_until 60 mountpoint -q "$T/mnt" || skip "needs to mount: $(cat fs.log)"
"$top_builddir/tests/fail/swap-job" silent "$T/mnt" >out 2>swap.log &
job=$!
started $job
wait_until 60 test -s out || fail "not closed after a minute"
read -r took <out
echo "closed in $took ms"
at_end # the kernel ends what is left there
wait $job || fail "it ended with $?"
grep -q 'the disk does not answer: what it has is left to it' swap.log || fail "no line says what is left"
! grep -q 'not read' swap.log || fail "what was canceled is an error"
[ "$took" -lt 30000 ] || fail "it waited for $took ms"
