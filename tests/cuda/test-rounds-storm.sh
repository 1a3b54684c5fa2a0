#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Three processes train on devices, fetch and gather, over the stubs, while one of them is killed and comes back, or is
# stopped for longer than it may be silent, and while NCCL fails, says nothing, or does not open: no call takes for ever, what
# comes is right, those that live are connected anew, and gathers go by their devices again.
# TEST_ROUNDS (1) times all; TEST_SEED.
# shellcheck disable=SC2086 # lists of ranks
. "$top_srcdir/tests/lib.sh"
use_stubs
export WORLD_SIZE=3 FRAG_JOB_ID=storm-$$
seed=${TEST_SEED:-$(date +%N | sed 's/^0*//')}
echo "TEST_SEED=$seed"
mark=0

# A number below $1.
chance() {
	seed=$(((seed * 1103515245 + 12345) % 2147483648))
	echo $((seed / 65536 % $1))
}
others() {
	for r in 0 1 2; do
		[ $r = "$1" ] || printf ' %s' $r
	done
}
everybody='0 1 2'

start_rank() {
	RANK=$1 "$top_builddir/tests/cuda/storm-job" "$T" >>"$1.out" 2>>"$1.log" &
	eval "pid$1=$!"
	started $!
}
pid() {
	eval "echo \$pid$1"
}
what_all_say() {
	for r in $everybody; do
		tail -n 3 "$r.out"
	done
}
# Of each of these ranks the line that begins so has come since line $since_R.
note_lines() {
	for r in $everybody; do
		eval "since$r=$(($(wc -l <"$r.out") + 1))"
	done
}
have_said() {
	line=$1
	shift
	for r in "$@"; do
		eval "since=\$since$r"
		tail -n +"$since" "$r.out" | grep -q "^$line\$" || return 1
	done
}
is_alive() {
	for r in "$@"; do
		kill -0 "$(pid $r)" 2>/dev/null || fail "$how: rank $r has ended: $(tail -n 3 "$r.log")"
	done
}
until_said() {
	is_alive $2
	have_said "$1" $2
}
expect_said() {
	wait_until 60 until_said "$1" "$2" || fail "$how: not all of $2 say '$1': $(what_all_say)"
}
expect_all_well() {
	mark=$((mark + 1))
	echo $mark >mark.new
	mv mark.new mark
	expect_said "gathered $mark" "$everybody"
}
# Some steps, as chance will have it.
some_steps() {
	sleep 0.$(chance 3)$(chance 10)
}

kill_one() {
	how="rank $1 is killed"
	some_steps
	note_lines
	kill -9 "$(pid $1)"
	expect_said "connected, ranks$(others $1)" "$(others $1)"
	start_rank $1
	expect_all_well
}
stop_one() {
	how="rank $1 is stopped"
	some_steps
	note_lines
	stop_process "$(pid $1)"
	expect_said "connected, ranks$(others $1)" "$(others $1)"
	kill -CONT "$(pid $1)"
	expect_all_well
}
tell() {
	echo $2 >"do.$1.new"
	mv "do.$1.new" "do.$1"
	wait_until 60 test ! -e "do.$1" || fail "$how: rank $1 does not go on: $(what_all_say)"
}
# fault WORD RANK: and none after all have been disconnected.
fault() {
	how="NCCL of rank $2: $1"
	some_steps
	note_lines
	tell $2 $1
	[ $1 != hang ] || tell "$(chance 3)" error
	expect_said '\(not connected\|parting\|asking who takes part\|connecting\).*' "$everybody"
	[ $1 != hang ] || some_steps
	for r in $everybody; do
		tell $r well
	done
	expect_all_well
}

for r in $everybody; do
	start_rank $r
done
note_lines
how=begin
expect_all_well
round=0
while [ $round -lt "${TEST_ROUNDS:-1}" ]; do
	round=$((round + 1))
	for victim in $everybody; do
		kill_one $victim
	done
	stop_one "$(chance 3)"
	fault error "$(chance 3)"
	fault silence "$(chance 3)"
	fault hang "$(chance 3)"
done
: >stop
for r in $everybody; do
	how="rank $r ends"
	wait "$(pid $r)" || fail "$how: $?"
	grep -q '^fetched$' $r.out || fail "rank $r has fetched nothing"
	grep -q '^scattered$' $r.out || fail "rank $r has seen nothing that was scattered"
done
