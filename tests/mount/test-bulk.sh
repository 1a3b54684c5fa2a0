#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The same bits by messages, those with bytes by TLS, also for a mount that only has the key for readers; and by plain
# TCP on a job without a key.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"

# by_tls WAY JOB OPTIONS: WAY is what fragctl says of each rank.
by_tls() {
	way=$1
	shift
	start_job "$1" 3 small
	mount_job "$2"
	read_all "$SMALL" fp32
	for rank in 0 1 2; do
		wait_until 60 grep -q "rank $rank answers by TLS" "$M/.frag/log" || fail "$what: rank $rank by ZeroMQ"
	done
	read_all "$SMALL" fp32 exp_avg
	fragctl status --json "$M" >status || fail "$what: fragctl status"
	[ "$(grep -c "\"way\": \"$way\"" status)" = 3 ] || fail "$what: not by $way: $(grep '"way"' status)"
	! grep 'ZeroMQ goes on' "$M/.frag/log" || fail "$what: TLS breaks"
	unmount
	end_job
}

fragctl key job.key
fragctl key --readers job.key >readers.key
chmod 600 readers.key
export FRAG_KEY_FILE="$T/job.key"
by_tls tls 3 "transport=zmq,key=$T/job.key"
by_tls tls 1 "rw,transport=zmq,key=$T/job.key"
by_tls tls 2 "transport=zmq,key=$T/readers.key"
unset FRAG_KEY_FILE
export FRAG_PLAIN=1
by_tls tcp fsdp2 plain,transport=zmq
