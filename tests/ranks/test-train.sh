#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Four processes of docs/examples/train: the loss falls, and all stages compute the same losses; a signal to one rank
# stops all; one rank trains alone, also when the engine cannot be opened.
# shellcheck disable=SC2086 # lists of process ids are split where they are used
. "$top_srcdir/tests/lib.sh"
train=$top_builddir/docs/examples/train

start() { # start WORLD NAME OPTION...
	world=$1 name=$2 rank=0 ranks=
	shift 2
	while [ $rank -lt "$world" ]; do
		RANK=$rank WORLD_SIZE=$world FRAG_RDZV=file:$T/$name.rendezvous \
			"$train" --hidden 53 "$@" >"$name.$rank.log" 2>&1 &
		ranks="$ranks $!"
		started $!
		rank=$((rank + 1))
	done
}

finish() {
	for pid in $ranks; do
		wait "$pid" || fail "$name: a rank exited with $?"
	done
	ranks=
}

losses() {
	awk '$1 == "step" { print $2, $4 }' "$1"
}

for stage in 0 1 2 3; do
	start 4 stage$stage --stage $stage --steps 60
	finish
	losses stage$stage.0.log >stage$stage
	[ "$(wc -l <stage$stage)" = 6 ] || fail "stage $stage: not six lines of losses"
	awk 'NR == 1 { first = $2 } END { exit !($2 < first * 0.85) }' stage$stage ||
		fail "stage $stage: the loss did not fall"
	cmp stage0 stage$stage || fail "stage $stage: other losses than stage 0"
done
start 3 three --stage 3 --steps 20
finish

# Steps go on where another job stopped, with other data than the first ones.
start 2 resumed --stage 1 --first-step 50 --steps 60
finish
start 2 begun --stage 1 --steps 10
finish
[ "$(losses resumed.0.log | cut -d' ' -f1)" = 60 ] || fail "resumed: steps $(losses resumed.0.log)"
[ "$(losses resumed.0.log | cut -d' ' -f2)" != "$(losses begun.0.log | cut -d' ' -f2)" ] || fail "resumed: old data"
# The first line's loss is the mean of the steps that were made.
start 2 few --stage 1 --first-step 57 --steps 60
finish
start 2 each --stage 1 --first-step 57 --steps 60 --every 1
finish
{ losses few.0.log && losses each.0.log; } | awk 'NR == 1 { told = $2; next } { mean += $2 / 3 }
	END { exit !(NR == 4 && told - mean < 1e-5 && mean - told < 1e-5) }' || fail "the loss of 3 steps: $(cat few.0.log each.0.log)"
got=0
"$train" --first-step 5 --steps 3 2>why || got=$?
[ $got = 2 ] && grep -q '^train: --first-step 5 is beyond --steps 3$' why || fail "--first-step 5: $got: $(cat why)"
: >empty
"$train" --text empty 2>why && fail "an empty file was trained"
grep -q '^train: empty: no sample' why || fail "an empty file: $(cat why)"

# Parameters on NVMe too: pieces of less than a buffer, of several buffers, and small ones that stay in memory.
mkdir "$T/swap"
start 3 wide --stage 3 --steps 12 --hidden 120
finish
export FRAG_PINNED_MEM=64K FRAG_SWAP_DEBUG=1
start 3 swapped --stage 3 --steps 12 --hidden 120 --swap "$T/swap" --swap-params
finish
unset FRAG_PINNED_MEM FRAG_SWAP_DEBUG
grep '^train: losses' wide.0.log >wide.losses || fail "wide: no losses"
grep '^train: losses' swapped.0.log | cmp - wide.losses || fail "parameters on NVMe: other losses"
grep -q 'lp_swap_in: parameters from number' swapped.1.log || fail "no parameter came from NVMe"
"$train" --swap-params --stage 3 2>/dev/null && fail "--swap-params without --swap"

# In an arena, whose shards move as gathered parameters come and go.
start 3 arena --stage 3 --steps 12 --hidden 120 --arena
finish
grep '^train: losses' arena.0.log | cmp - wide.losses || fail "parameters in an arena: other losses"
grep -q '^train: arena of .* [1-9][0-9]* moved$' arena.0.log || fail "arena: nothing was moved: $(tail -n 1 arena.0.log)"
"$train" --arena --stage 2 2>/dev/null && fail "--arena with stage 2"

start 4 forever --stage 2 --forever
wait_until 60 grep -q '^step ' forever.0.log || fail "forever: no steps"
kill "${ranks##* }"
finish

"$train" --steps 20 >alone.log 2>&1 || fail "alone: exit $?"
[ "$(losses alone.log | wc -l)" = 2 ] || fail "alone: not two lines of losses"
FRAG_RANK=1 WORLD_SIZE=1 "$train" --steps 20 >refused.log 2>&1 ||
	fail "without an engine: exit $?"
grep -q 'nobody will see' refused.log || fail "without an engine: it did not say so"
[ "$(losses refused.log)" = "$(losses alone.log)" ] ||
	fail "without an engine: other losses than with one"

# Two jobs of one name: the first keeps the name, and the files that it has published.
for name in first second; do
	RANK=0 WORLD_SIZE=1 FRAG_PLAIN=1 FRAG_JOB_ID=twice "$train" --forever --every 1 \
		--pause-ms 20 >$name.log 2>&1 &
	started $!
	wait_until 60 grep -q '^step ' $name.log || fail "$name: no steps"
	fragctl jobs >$name.jobs
done
grep -q 'job twice runs already, with process [0-9]* at ' second.log || fail "it did not say so"
grep -q '^twice ' first.jobs || fail "no job twice: $(cat first.jobs)"
cmp first.jobs second.jobs || fail "the second job took the first's name"

# A file of another machine, where home is shared and that job may run: it is replaced, with a line.
far=$XDG_RUNTIME_DIR/fragfs/far.job
printf '%s\n' job=far address=10.0.0.1:21017 world=1 pid=1 start_time=1 machine=other >"$far"
chmod 600 "$far"
RANK=0 WORLD_SIZE=1 FRAG_JOB_ID=far "$train" --steps 3 >far.log 2>&1 || fail "far: exit $?"
grep -q 'job far has a file of another machine, of process 1 at 10.0.0.1:21017, which is replaced: ' far.log || fail "far: $(cat far.log)"
[ ! -e "$far" ] || fail "far: its file is still there: $(cat "$far")"
