#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The same bits by messages alone, with CURVE and on a job without a key.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"

ways() {
	start_job "$1" "$2" "$3"
	mount_job "$4"
	shift 4
	read_all "$@"
	unmount
	end_job
}

for layout in 0 2 3 fsdp2; do
	ways $layout 3 small transport=zmq "$SMALL" fp32 bf16
done
ways 1 8 small transport=zmq "odd.w=odd.w a/b=a%2Fb" grad exp_avg
ways 3 4 some transport=zmq "w=w v=v" fp32 bf16
export FRAG_PLAIN=1
ways 1 2 small plain "$SMALL" fp32
ways 3 4 small plain,transport=zmq "$SMALL" fp32 grad
ways fsdp2 2 some plain,transport=zmq "v=v one=one" fp32 exp_avg bf16
