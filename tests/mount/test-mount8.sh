#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mount(8), a line of fstab and umount(8) work through mount.fragfs.
# mount(8) looks for helpers in /sbin alone, so ours stands in for mount.fuse3 there, in a mount
# namespace of the test's own.
set -eu
if [ "${1:-}" != inside ]; then
	unshare -m true 2>/dev/null || { echo "needs a mount namespace of its own (root)"; exit 77; }
	dd if=/dev/fuse count=0 status=none 2>/dev/null || { echo "/dev/fuse may not be opened"; exit 77; }
	[ -x /sbin/mount.fuse3 ] || { echo "/sbin/mount.fuse3 is not here to stand in for"; exit 77; }
	exec unshare -m sh "$0" inside
fi

cd "$TMPDIR"
mkdir m bin
leave() {
	status=$?
	trap - EXIT
	! mountpoint -q m || umount -l m
	exit $status
}
trap leave EXIT
cp "$top_builddir/fragfs-fake" bin/fragfs
cp "$top_builddir/mount.fragfs" bin/
# A script, so that mount.fragfs finds the fragfs beside itself.
printf '#!/bin/sh\nexec "%s" "$@"\n' "$TMPDIR/bin/mount.fragfs" >bin/helper
chmod +x bin/helper
mount --bind bin/helper /sbin/mount.fuse3

options() { # options WANT: of the mount
	got=$(awk -v m="$TMPDIR/m" '$5 == m { print $6 }' /proc/self/mountinfo)
	case $got, in "$1",*) ;; *) echo "mounted with $got, not $1"; exit 1 ;; esac
}

gone() {
	if mountpoint -q m; then echo "still mounted"; exit 1; fi
}

mount -t fuse3 fake "$TMPDIR/m" -o rw,noauto,nofail,_netdev,x-frag.test
options ro
[ "$(cat m/.frag/version)" = fake ]
umount m
gone

mount -t fuse3 fake m -o edit,timeout=5
options rw
umount m

echo "fake $TMPDIR/m fuse3 _netdev,noauto,user,edit,x-systemd.automount 0 0" >fstab
mount -T fstab "$TMPDIR/m"
options rw,nosuid,nodev,noexec
umount "$TMPDIR/m"

got=0
mount -t fuse3 none m 2>err || got=$?
[ $got = 32 ] || { echo "mount of no job: exit $got, not 32"; exit 1; }
[ -s err ]
gone
