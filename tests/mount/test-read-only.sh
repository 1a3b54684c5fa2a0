#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Without -o rw nothing can be written.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
for options in "" ro rw,ro; do
	mount_fake "$options"
	head -c 4000 /dev/zero >"$T/new"
	refused "Read-only file system" cp "$T/new" "$M/params/layers.0.bias/fp32"
	refused "Read-only file system" dd if="$T/new" of="$M/params/layers.0.bias/fp32" conv=notrunc
	refused "Read-only file system" truncate -s 0 "$M/params/layers.0.bias/fp32"
	refused "Read-only file system" touch "$M/new"
	refused "Read-only file system" mkdir "$M/new"
	refused "Read-only file system" rm -f "$M/step"
	refused "Read-only file system" cp "$T/new" "$M/groups/0/lr"
	refused "Read-only file system" cp "$T/new" "$M/.frag/freeze"
	fake-bytes layers.0.bias "" fp32 | cmp - "$M/params/layers.0.bias/fp32" || fail "bytes"
	[ -z "$(find "$M" -perm /222 -not -type l)" ] || fail "something is writable"
	unmount
done
