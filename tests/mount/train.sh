# SPDX-License-Identifier: Apache-2.0
# For tests that mount jobs of two ranks of docs/examples/train, more than one after the other:
# . "$top_srcdir/tests/mount/train.sh".  $shape has options of all jobs, $rank_libraries the LD_LIBRARY_PATH of ranks.
# shellcheck disable=SC2086 # lists of process ids, and options, are split where they are used
. "$top_srcdir/tests/mount/lib.sh"
train=$top_builddir/docs/examples/train
shape='' rank_libraries=${LD_LIBRARY_PATH:-}

# start NAME OPTION...: starts a job; $ranks are its processes.
start() {
	name=$1 ranks=
	shift
	for rank in 0 1; do
		RANK=$rank WORLD_SIZE=2 FRAG_JOB_ID=$name-$$ LD_LIBRARY_PATH=$rank_libraries \
			"$train" --stage 2 --every 1 --batch 4 $shape "$@" >"$name.$rank.log" 2>&1 &
		ranks="$ranks $!"
		started $!
	done
}

finish() {
	for pid in $ranks; do
		wait $pid || fail "$name: a rank exited with $?: $(tail -n 2 "$name".?.log)"
	done
}

# mount_it [OPTIONS]: mounts the job, which exists once rank 0 has printed its address.
mount_it() {
	wait_until 60 grep -q '^train: address' "$name.0.log" || fail "$name: no job: $(cat "$name".?.log)"
	address=$(sed -n 's/^train: address //p' "$name.0.log")
	within 60 "$top_builddir/fragfs" "$address" "$M" ${1:+-o "$1"} || fail "$name: fragfs: $?"
}

# losses NAME: prints a line for each step.
losses() {
	sed -n 's/^step *\([0-9]*\) *loss \([0-9.]*\) .*/\1 \2/p' "$1.0.log"
}
