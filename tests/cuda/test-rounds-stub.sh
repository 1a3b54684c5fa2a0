#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Three processes whose state is on devices fetch, gather and scatter it from device to device, over the stubs of the CUDA runtime and of NCCL.
# By the host, where that is wanted, where one hardware queue makes it the only way, and where there is no NCCL.
# shellcheck disable=SC2086 # a list of process ids
. "$top_srcdir/tests/lib.sh"
use_stubs
export WORLD_SIZE=3 FRAG_JOB_ID=rounds-$$

# run_job [NAME=VALUE]
run_job() {
	ranks=
	for rank in 0 1 2; do
		RANK=$rank within 140 env ${1-} "$top_builddir/tests/cuda/rounds-job" >"$T/$rank.out" 2>"$T/$rank.err" &
		ranks="$ranks $!"
	done
	for pid in $ranks; do
		wait $pid || fail "${1-}: a rank exited with $?: $(cat "$T"/*.out "$T"/*.err)"
	done
}
# expect LINE...: all ranks have it.
expect() {
	for rank in 0 1 2; do
		for line in "$@"; do
			grep -q "$line" "$T/$rank.out" || fail "rank $rank: no $line: $(cat "$T/$rank.out" "$T/$rank.err")"
		done
	done
}

run_job
expect '^fetched$' '^gathered$' '^scattered$' '^connected, ranks 0 1 2$' '^library nccl ' '^rounds asked for 1, failed 0' ', failed 0, sent'
! grep "not connected" "$T"/*.err || fail "a job that ends in order warns"
run_job FRAG_GATHER=host
expect '^fetched$' '^gathered$' '^scattered$' '^none: '
export FRAG_LOG=info
run_job CUDA_DEVICE_MAX_CONNECTIONS=1
expect '^fetched$' '^gathered$' '^scattered$' '^none: '
for rank in 0 1 2; do
	[ "$(grep -c 'CUDA_DEVICE_MAX_CONNECTIONS=1: ' "$T/$rank.err")" = 1 ] || fail "rank $rank says: $(cat "$T/$rank.err")"
done
unset FRAG_LOG
rm "$T/stubs/libnccl.so.2"
: >"$T/stubs/libnccl.so.2"
run_job TEST_NOT_CONNECTED=1
expect '^fetched$' '^gathered$' '^scattered$' '^library nccl 0, '
! grep '^connected,' "$T"/*.out || fail "connected without NCCL"
