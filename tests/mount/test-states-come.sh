#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# New states appear at once; dropped states cannot be opened, and vanish from listings.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
mount_fake rw
P=$M/params/layers.0.weight

gone() {
	[ ! -e "$P/extra" ]
}

gone || fail "extra is there already"
[ "$(ls "$P" | grep -c extra)" = 0 ] || fail "extra is listed already"
echo 1 >"$M/groups/0/extra_state"
[ -e "$P/extra" ] || fail "extra did not come"
[ "$(ls "$P" | grep -c extra)" = 2 ] || fail "extra and extra.npy are not listed"
[ "$(stat -c %s "$P/extra")" = 2097152 ] || fail "its size"
echo 0 >"$M/groups/0/extra_state"
refused "No such file" cat "$P/extra"
wait_until 60 gone || fail "extra stays in sight"
unmount
