#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# chroot-check.sh [-u] [TARGET...]: does quickstart work on a bare Debian 12?  By hand, as root.
# Makes one by debootstrap (kept in $CHROOT_CACHE when that is set), clones this tree into it and
# runs ./quickstart TARGET there (build, demo, check); -u: build as root, then the rest as a user.
set -eu
user=
[ "${1:-}" != -u ] || { user=tester; shift; }
[ $# -gt 0 ] || set -- build demo check
top=$(cd "$(dirname "$0")/.." && pwd)
mirror=${MIRROR:-http://deb.debian.org/debian}
[ "$(id -u)" = 0 ] || { echo "chroot-check: needs root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "chroot-check: needs debootstrap" >&2; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/frag-chroot.XXXXXX")
root=$work/root

leave() {
	status=$?
	trap - EXIT
	for dir in dev/fuse dev/shm dev proc .; do
		! mountpoint -q "$root/$dir" || umount -l "$root/$dir"
	done
	if grep -q " $root" /proc/self/mountinfo; then
		echo "chroot-check: something is still mounted below $root" >&2
		exit 1
	fi
	rm -rf --one-file-system "$work"
	exit $status
}
trap leave EXIT
trap 'exit 130' INT TERM

mkdir "$root"
mount --bind "$root" "$root" # ip-netns(8) wants the root to be a mountpoint
if [ -n "${CHROOT_CACHE:-}" ] && [ -f "$CHROOT_CACHE" ]; then
	tar -C "$root" -xf "$CHROOT_CACHE"
else
	debootstrap --variant=minbase bookworm "$root" "$mirror"
	rm -f "$root"/var/cache/apt/archives/*.deb
	[ -z "${CHROOT_CACHE:-}" ] || tar -C "$root" -cf "$CHROOT_CACHE" .
fi
# As this machine reaches its mirrors.
cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
! [ -d /etc/apt/apt.conf.d ] || cp -r /etc/apt/apt.conf.d "$root/etc/apt/"
git clone -q "$top" "$root/root/fragfs"

mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=0755 dev "$root/dev"
for node in null zero full random urandom tty fuse; do
	[ ! -e /dev/$node ] || cp -a /dev/$node "$root/dev/$node"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/shm"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"

inside() {
	env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
		chroot "$root" "$@"
}

place=/root/fragfs
if [ -n "$user" ]; then
	inside useradd -m "$user"
	mv "$root/root/fragfs" "$root/home/$user/fragfs"
	place=/home/$user/fragfs
	inside sh -c "cd $place && ./quickstart build" </dev/null
	inside chown -R "$user:" "$place"
	inside apt-get install -q -y --no-install-recommends check iproute2 >/dev/null
fi
for target; do
	echo "== quickstart $target"
	begin=$(date +%s)
	if [ -n "$user" ]; then
		inside su "$user" -c "cd $place && ./quickstart $target" </dev/null
	else
		inside sh -c "cd $place && ./quickstart $target" </dev/null
	fi
	echo "== quickstart $target: $(($(date +%s) - begin)) seconds"
done
