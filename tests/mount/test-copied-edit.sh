#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The bytes of an edit, more than a message has, are copied out of the mount's memory by the ranks that hold them.
. "$top_srcdir/tests/mount/train.sh"
need_fuse
cd "$T"
start copied --forever --hidden 1024 --pause-ms 20
mount_it rw
F=$M/params/layers.1.weight/exp_avg

metric() {
	sed -n "s/^fragfs_commit_$1_bytes_total //p" "$M/.frag/metrics"
}

exec 5>"$M/.frag/freeze"
echo "120 held" >&5
[ "$(stat -c %s "$F")" = 4194304 ] || fail "not 4 MiB"
head -c 4194304 /dev/urandom >new
head -c 3000000 /dev/urandom >part
cp new "$F"
cmp "$F" new || fail "other bytes"
[ "$(metric memory) $(metric message)" = "4194304 0" ] || fail "copied: $(metric memory), sent: $(metric message)"

# From the middle of one rank's partition into the other's.
for file in "$F" new; do
	dd if=part of="$file" bs=1000000 seek=400004 oflag=seek_bytes conv=notrunc status=none
done
cmp "$F" new || fail "other bytes in the middle"
[ "$(metric memory) $(metric message)" = "7194304 0" ] || fail "copied: $(metric memory), sent: $(metric message)"
exec 5>&-
unmount
