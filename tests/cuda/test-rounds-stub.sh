#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Three processes whose state is on devices fetch and gather it from device to device, over the stubs of the CUDA runtime and of NCCL.
# shellcheck disable=SC2086 # a list of process ids
. "$top_srcdir/tests/lib.sh"
use_stubs
export WORLD_SIZE=3 FRAG_JOB_ID=rounds-$$
ranks=
for rank in 0 1 2; do
	RANK=$rank within 60 "$top_builddir/tests/cuda/rounds-job" >"$T/$rank.out" 2>"$T/$rank.err" &
	ranks="$ranks $!"
done
for pid in $ranks; do
	wait $pid || fail "a rank exited with $?: $(cat "$T"/*.out "$T"/*.err)"
done
for rank in 0 1 2; do
	for line in '^fetched$' '^gathered$' '^connected, ranks 0 1 2$' '^rounds asked for 1, failed 0' ', failed 0, sent'; do
		grep -q "$line" "$T/$rank.out" || fail "rank $rank: no $line: $(cat "$T/$rank.out" "$T/$rank.err")"
	done
done
