#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every state of every layout, read through a mount, has the bytes that its owners have in memory: whole, in ranges, as
# .npy, and in each rank's own view; one element to hundreds of MB, -0.0 and signalling NaNs included.  On NVMe too.
# shellcheck disable=SC2086 # $worlds is a list
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"
worlds='1 2 3 8' large=large
[ "${sanitizer:-no}" = no ] || worlds='1 3' large=some

for layout in 0 1 2 3 fsdp2 cuts; do
	for world in $worlds; do
		start_job $layout $world small
		mount_job
		if [ $world = 3 ] || [ $layout = cuts ]; then
			read_all "$SMALL" fp32 grad exp_avg bf16
		else
			read_all "one=one odd.w=odd.w embed.weight=embed.weight" fp32 exp_avg
			read_all "scalar=scalar a/b=a%2Fb" grad bf16
		fi
		unmount
		end_job
	done
done

read_large() { # read_large LAYOUT SET
	start_job "$1" 4 "$2"
	mount_job
	ask expect w fp32 "$T/want"
	cmp "$M/params/w/fp32" want || fail "$what: w"
	ask ranges "$M/params/w/fp32" w fp32 60 "$(chance 1000000)"
	range "$M/params/w/fp32" want 1000003 3000001
	unmount
	end_job
}

read_small() { # read_small LAYOUT
	start_job "$1" 3 small
	mount_job
	read_all "$SMALL" fp32 grad exp_avg bf16
	unmount
	end_job
}

for layout in 1 3; do
	read_large $layout $large
	on_nvme read_large $layout some
	on_nvme read_small $layout
done
