#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mount(8), a line of fstab and umount(8) work through mount.fragfs.
# mount(8) looks for helpers only in /sbin, so mount.fragfs takes the place of mount.fuse3 there, in a mount namespace
# of the test's own.
. "$top_srcdir/tests/lib.sh"
if [ "${1:-}" != inside ]; then
	unshare -m true 2>/dev/null || skip "needs a mount namespace of its own (root)"
	need_dev_fuse
	[ -x /sbin/mount.fuse3 ] || skip "/sbin/mount.fuse3 is not here to stand in for"
	exec unshare -m sh "$top_srcdir/tests/mount/test-mount8.sh" inside
fi

mkdir m bin
at_end() {
	! mounted "$T/m" || umount -l m
}
cp "$top_builddir/fragfs-fake" bin/fragfs
cp "$top_builddir/mount.fragfs" bin/
# A script, so that mount.fragfs finds the fragfs beside itself.
printf '#!/bin/sh\nexec "%s" "$@"\n' "$T/bin/mount.fragfs" >bin/helper
chmod +x bin/helper
mount --bind bin/helper /sbin/mount.fuse3

options() { # options WANT: of the mount
	got=$(awk -v m="$T/m" '$5 == m { print $6 }' /proc/self/mountinfo)
	case $got, in "$1",*) ;; *) fail "mounted with $got, not $1" ;; esac
}

gone() {
	! mounted "$T/m" || fail "still mounted"
}

mount -t fuse3 fake "$T/m" -o rw,noauto,nofail,_netdev,x-frag.test
options ro
[ "$(cat m/.frag/version)" = fake ]
umount m
gone

mount -t fuse3 fake m -o edit,timeout=5,coherent=off 2>err
options rw
[ "$(cat err)" = "fragfs: warn: -o coherent: no effect, fake is a job" ] || fail "coherent=off: $(cat err)"
umount m

echo "fake $T/m fuse3 _netdev,noauto,user,edit,x-systemd.automount 0 0" >fstab
mount -T fstab "$T/m"
options rw,nosuid,nodev,noexec
umount "$T/m"

got=0
mount -t fuse3 none m 2>err || got=$?
[ $got = 32 ] || fail "mount of no job: exit $got, not 32"
[ -s err ] || fail "it does not say why"
gone
