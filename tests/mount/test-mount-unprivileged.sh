#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A user without privileges mounts through fusermount3, if the machine allows users to.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
if [ "$(id -u)" = 0 ]; then
	command -v setpriv >/dev/null || skip "no setpriv to become nobody with"
	chmod 755 "$T" "$TMPDIR"
	chown 65534 "$M"
	as="setpriv --reuid=65534 --regid=65534 --clear-groups"
	program=$T/fragfs-fake
	cp "$(command -v fragfs-fake)" "$program"
	if ! $as test -w /dev/fuse; then
		refused "/dev/fuse: Permission denied" $as "$program" fake "$M"
		skip "/dev/fuse may not be opened by users"
	fi
else
	as=
	program=fragfs-fake
fi
within 60 $as "$program" fake "$M" || fail "status $?"
[ "$($as cat "$M/step")" = 41 ] || fail "its owner cannot read it"
[ "$($as stat -c %u "$M/step")" = "$($as id -u)" ] || fail "owner"
if [ "$(id -u)" = 0 ] && [ -z "$(ls "$M" 2>/dev/null)" ]; then
	echo "as it should be: root is kept out"
fi
within 60 $as fusermount3 -u "$M" || fail "its owner cannot unmount"
wait_until_gone || fail "the server stays"
