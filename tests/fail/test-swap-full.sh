#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A file system that runs full while states are swapped to it: they stay in memory, nothing is lost, and when there is
# room again they go there.
. "$top_srcdir/tests/lib.sh"

if [ "${1:-}" != inside ]; then
	command -v mkfs.ext4 >/dev/null || skip "no mkfs.ext4"
	unshare -m true 2>/dev/null || skip "needs a mount namespace of its own (root)"
	export TMPDIR
	unshare -m sh "$top_srcdir/tests/fail/test-swap-full.sh" inside
	exit
fi
truncate -s 24M image
mkfs.ext4 -q image
mkdir full
mount -o loop image full 2>/dev/null || skip "needs to mount an image"
at_end() {
	umount -l "$T/full"
}
within 60 "$top_builddir/tests/fail/swap-job" full "$T/full" 2>swap.log || fail "swap-job"
grep -q "swap: exp_avg, bytes .*: not written, kept in memory: No space left on device" swap.log ||
	fail "no line says so"
[ "$(grep -c . swap.log)" -le 4 ] || fail "too many lines"
