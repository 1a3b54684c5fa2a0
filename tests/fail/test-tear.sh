#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The trainer writes the step's number into every element of every state; readers loop over all files of a
# mount, whole and by random ranges: each open file shows one number, at stages 1 and 3, four ranks, with the
# states on NVMe, and with ranks that are up to six steps apart, stand for longer than the mount's timeout, and go on.
# TEST_SECONDS (1) at least for each stage, TEST_READERS (8); TEST_LIVED (4): each reads on until it has read so many
# files whose step had gone by.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
seconds=${TEST_SECONDS:-1}
readers=${TEST_READERS:-8}
tools=$top_builddir/tests/fail
seed=${TEST_SEED:-$$}
echo "TEST_SEED=$seed"

start_job() {
	FRAG_JOB_ID=tear-$$-$1 WORLD_SIZE=4
	export FRAG_JOB_ID WORLD_SIZE
	: >job.log
	ranks=
	for r in 0 1 2 3; do
		# shellcheck disable=SC2086
		RANK=$r "$tools/tear-job" "${1#s???}" 6000 $skew >>job.log 2>&1 &
		ranks="$ranks $!"
		started $!
	done
	wait_until 60 grep -q '^127' job.log || fail "no job"
	address=$(grep -m 1 '^127' job.log)
}

read_all() {
	pids='' n=0 status=0
	while [ $n -lt "$readers" ]; do
		"$tools/tear-read" "$M" "$seconds" "${TEST_LIVED:-4}" $((seed + n)) ${skew:+late} >read.$n &
		pids="$pids $!" n=$((n + 1))
		started $!
	done
	for pid in $pids; do
		wait "$pid" || status=1
	done
	cat read.*
	[ $status = 0 ]
}

# With room on the disk for as many steps as there are readers: else the oldest end with ESTALE.
mkdir "$T/swap"
for stage in 1 3 skew1 skew3 swap1; do
	skew='' timeout=60
	case $stage in
	skew*) skew='0 SKEW 6' timeout=2 ;;
	swap1) export FRAG_SWAP_DIR="$T/swap" FRAG_PINNED_MEM=256K FRAG_SWAP_MAX=1G ;;
	esac
	start_job $stage
	"$top_builddir/fragfs" "$address" "$M" -o timeout=$timeout
	[ -z "$skew" ] || seconds=$((seconds + 6)) # in which ranks stand twice
	read_all || fail "stage $stage: torn, errors, or too few that lived"
	[ -z "$skew" ] || seconds=$((seconds - 6))
	unmount
	kill $ranks
	wait $ranks || :
done
