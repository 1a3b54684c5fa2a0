#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A watched job: four ranks, of which rank 1 has a NaN among its gradients in every 50th step, stand before that very step;
# an event says where it is; and whoever dies, or stands still, the job goes on.
. "$top_srcdir/tests/mount/lib.sh"
. "$top_srcdir/tests/fail/frozen.sh"
need_fuse
tools=$top_builddir/tests/fail
mkdir "$T/mnt2"
cd "$T"
nan_every=50 # steps
# start_ranks NAME [SETTING...]
start_ranks() {
	FRAG_JOB_ID=break-$$-$1 WORLD_SIZE=4
	shift
	export FRAG_JOB_ID WORLD_SIZE
	: >job.log
	ranks=
	mode="0 NAN $nan_every"
	[ $# = 0 ] || mode=
	for r in 0 1 2 3; do
		env RANK=$r "$@" "$tools/tear-job" 2 4000 $mode >>job.log 2>&1 &
		ranks="$ranks $!"
		started $!
	done
	wait_until 60 grep -q '^127' job.log || { cat job.log; fail "no job"; }
	address=$(grep -m 1 '^127' job.log)
}

start_job() {
	start_ranks "$@"
	within 60 fragfs "$address" "$M" -o rw,timeout=20
}

is_watched() {
	[ "$(cat "$M/.frag/control")" = "break $1" ]
}

# Freezes the job neither before nor behind a step with the NaN, for a watch to begin: one that begins within that step
# holds at its end.
stand_apart() {
	for _ in $(seq 100); do
		fragctl freeze "$M" || fail "freeze: $?"
		before=$(cat "$M/step")
		[ $(((before + 1) % 50)) -le 1 ] || return 0
		fragctl thaw "$M" || fail "thaw: $?"
		goes_on "stood after step $before"
	done
	fail "it stands after step $before each time"
}

# As break -w of the NaN, which begins while the job stands; writes to line.
break_once() {
	stand_apart
	fragctl break -j "$M" -w 'nan(grad) > 0' >line &
	breaker=$!
	started $breaker
	wait_until 60 is_watched 'nan(grad) > 0 for 3600' || fail "not watched: $(cat "$M/.frag/control")"
	fragctl thaw "$M"
	within 60 tail --pid=$breaker -f /dev/null || fail "break -w: no end"
	wait $breaker || fail "break -w: $?"
}

# held_before_50 LINE: all stand, before a step that is a multiple of 50, with the NaN in place, and the line says so.
held_before_50() {
	wait_until 60 is frozen || fail "not frozen"
	step=$(cat "$M/step")
	[ $((step % 50)) = 49 ] || fail "frozen after step $step"
	sleep 0.2
	[ "$(cat "$M/step")" = "$step" ] || fail "a frozen job has made a step"
	for r in 0 1 2 3; do
		[ "$(cat "$M/ranks/$r/state")" ] && [ "$(cat "$M/step")" = "$step" ] || fail "rank $r"
	done
	within 60 cat "$M/params/p2/stats/grad/nan" >nans || fail "no statistics of a frozen job"
	[ "$(cat nans)" = 1 ] || fail "$(cat nans) NaNs in the gradient"
	place=$(within 60 cat "$M/params/p2/stats/grad/first_nan")
	index=$(echo "$place" | sed 's/[^0-9,].*//')
	echo "$1" | grep -qF "param p2 state grad value 1.0 index [$index] rank 1 step $step boundary $((2 * step + 1)) " ||
		fail "at '$place', step $step: $1"
}

# ---- a NaN ----

start_job nan
[ "$(cat "$M/.frag/control")" = "break off" ] || fail "it says $(cat "$M/.frag/control")"
fragctl watch -j "$M" -n 1 break >seen &
watcher=$!
started $watcher
break_once
held_before_50 "$(cat line)"
grep -q 'condition nan(grad) > 0 ' line || fail "$(cat line)"
within 60 tail --pid=$watcher -f /dev/null || fail "fragctl watch has not seen it"
cmp seen line || fail "watch: $(cat seen)"
[ "$(cat "$M/.frag/control")" = "break off" ] || fail "held, it says $(cat "$M/.frag/control")"
grep -q '^frozen, for [0-9]* s at most$' "$M/.frag/freeze" || fail "it says $(cat "$M/.frag/freeze")"
fragctl thaw "$M"
goes_on "thawed"

# ---- as a line of a shell, and what is watched ----

echo 'break nan(grad, p[23]) > 7.5 for 60' >"$M/.frag/control" # there is one NaN: it does not hold
[ "$(cat "$M/.frag/control")" = "break nan(grad, p[23]) > 7.5 for 60" ] || fail "it says $(cat "$M/.frag/control")"
[ "$(fragctl break -j "$M")" = "break nan(grad, p[23]) > 7.5 for 60" ] || fail "fragctl says $(fragctl break -j "$M")"
within 60 fragfs "$address" "$T/mnt2" -o rw
refused "another mount watches" fragctl break -j "$T/mnt2" 'inf(grad) > 0'
echo 'break off' >"$M/.frag/control"
stand_apart
echo 'break nan(grad, p[23]) > 0.5 for 60' >"$M/.frag/control"
fragctl thaw "$M"
wait_until 60 later || fail "not thawed"
wait_until 60 is frozen || fail "not frozen"
[ $(($(cat "$M/step") % 50)) = 49 ] || fail "frozen after step $(cat "$M/step")"
fragctl thaw "$T/mnt2"
goes_on "thawed by another mount"

# ---- what is not so does not freeze: other parameters, other numbers ----

fragctl break -j "$M" 'nan(grad, p[014]) > 0'
before=$(($(cat "$M/step") + 60))
wait_until 60 later || fail "no step after $before"
fragctl break -j "$M" 'nan(grad) > 1'
before=$(($(cat "$M/step") + 60))
wait_until 60 later || fail "no step after $before"
trains || fail "frozen without a reason"
within 60 fragctl break -j "$M" off || fail "off: $?"
[ "$(cat "$M/.frag/control")" = "break off" ] || fail "not off: $(cat "$M/.frag/control")"

# ---- a second watch takes the place of the first, if it is good; a signal ends what waits for it ----

fragctl break -j "$M" 'nan(grad, p0) > 0'
refused "no parameter of that name" fragctl break -j "$M" 'nan(grad, q*) > 0'
is_watched 'nan(grad, p0) > 0 for 3600' || fail "a refused line has ended it: $(cat "$M/.frag/control")"
for signal in INT:130 TERM:143 HUP:129 KILL:137; do
	fragctl break -j "$M" -t 60 'nan(grad) > 1'
	# a shell starts what is in the background with SIGINT ignored
	env --default-signal=INT fragctl break -j "$M" -w -t 61 'nan(grad) > 1' 2>err &
	waiter=$!
	started $waiter
	wait_until 60 is_watched 'nan(grad) > 1 for 61' || fail "not watched: $(cat err)"
	kill -${signal%:*} $waiter || fail "fragctl has ended while it watches: $(cat err)"
	got=0
	wait $waiter || got=$?
	[ $got = ${signal#*:} ] || fail "$signal: $got: $(cat err)"
	wait_until 60 is_watched off || fail "$signal: it says $(cat "$M/.frag/control")"
done

# two open files share a watch; it ends with the last of them, or with "off"
exec 3>"$M/.frag/control" 4>"$M/.frag/control"
echo 'break nan(grad) > 1 held' >&3
echo 'break nan(grad) > 1 held ' >&3 # holds it once
echo 'break nan(grad) > 1 for 3600 held' >&4
exec 3>&-
for _ in 1 2 3 4 5; do
	is_watched 'nan(grad) > 1 for 3600' || fail "one of two has ended it: $(cat "$M/.frag/control")"
	sleep 0.1
done
exec 4>&-
wait_until 60 is_watched off || fail "the last has not ended it: $(cat "$M/.frag/control")"
exec 3>"$M/.frag/control"
echo 'break nan(grad) > 1 held' >&3
echo 'break nan(grad) > 1' >"$M/.frag/control" # which nobody holds
exec 3>&-
sleep 0.3
is_watched 'nan(grad) > 1 for 3600' || fail "a file that did not begin it alone has ended it: $(cat "$M/.frag/control")"
echo 'break off held' >bad
refused "Invalid argument" cp bad "$M/.frag/control"
fragctl break -j "$M" off
wait_until 60 is_watched off || fail "not off: $(cat "$M/.frag/control")"
fragctl break -j "$M" 'nan(grad, p0) > 0'
break_once # in place of another watch
held_before_50 "$(cat line)"
fragctl thaw "$M"
goes_on "the second watch"

# ---- a norm, which no rank alone has: p4's gradient of step s has that of 700700 numbers s ----

fragctl freeze "$M"
step=$(cat "$M/step")
bound=$(awk -v s="$step" 'BEGIN { printf "%.0f", sqrt(700700) * (s + 100.5) }')
fragctl break -j "$M" "norm(grad, p4) > $bound"
fragctl thaw "$M"
before=$step
wait_until 60 later || fail "not thawed"
wait_until 60 is frozen || fail "no norm above $bound"
[ "$(cat "$M/step")" = $((step + 100)) ] || fail "the norm of step $((step + 101)) at step $(cat "$M/step")"
fragctl thaw "$M"
goes_on "norm"

# ---- wrong ----

for bad in 'break nan' 'break nan(grad) > x' 'break norm(grad > 1' 'brake nan(grad) > 0' 'breaknan(grad) > 0' '' break 'break  '; do
	echo "$bad" >bad
	refused "Invalid argument" cp bad "$M/.frag/control"
done
grep -q 'expected "break QUANTITY(STATE' "$M/.frag/log" || fail "the log does not say what is expected"
fragctl break -j "$M" 'nan(grad, p0) > 0'
for bad in '' ' ' 'nan(grad) < 0'; do
	got=0
	within 60 fragctl break -j "$M" "$bad" 2>out || got=$?
	[ $got = 2 ] || fail "break '$bad': $got: $(cat out)"
done
for option in -w '-t 5'; do
	got=0
	# shellcheck disable=SC2086 # words
	within 60 fragctl break -j "$M" $option >out 2>&1 || got=$?
	[ $got = 2 ] && grep -q 'a CONDITION is needed' out || fail "break $option: $got: $(cat out)"
done
is_watched 'nan(grad, p0) > 0 for 3600' || fail "a wrong line has ended it: $(cat "$M/.frag/control")"
refused "a state.s name has 63 bytes at most, a pattern 127" fragctl break -j "$M" "nan(grad, $(printf '%0128d' 0)) > 0"
grep -q 'a state.s name has 63 bytes at most, a pattern 127' "$M/.frag/log" || fail "the log does not say how long a pattern may be"
echo 'break off ' >"$M/.frag/control"
is_watched off || fail "not off: $(cat "$M/.frag/control")"
refused "nan(grad) < 0: expected QUANTITY" fragctl break -j "$M" 'nan(grad) < 0'
[ "$(grep -c '^fragctl: ' out)" = 1 ] || fail "more than a line: $(cat out)"
refused "no parameter of that name" fragctl break -j "$M" 'nan(grad, x*) > 0'
refused "no parameter of that name" fragctl break -j "$M" 'nan(gard) > 0'
fusermount3 -u "$T/mnt2"
within 60 fragfs "$address" "$T/mnt2"
refused "not mounted with -o rw" fragctl break -j "$T/mnt2" 'nan(grad) > 0'
fusermount3 -u "$T/mnt2"

# ---- straight to the job: it is frozen while fragctl runs ----

rm line
stand_apart
readers=$(wc -l <"$M/.frag/readers")
fragctl break -j "$address" 'nan(grad) > 0' >line &
holder=$!
started $holder
has_come() {
	[ "$(wc -l <"$M/.frag/readers")" -gt "$readers" ]
}
wait_until 60 has_come || fail "fragctl has not come to the job: $(cat "$M/.frag/readers")"
sleep 1 # it watches a moment later
fragctl thaw "$M"
wait_until 60 [ -s line ] || fail "nothing printed"
held_before_50 "$(cat line)"
kill -INT $holder || fail "fragctl has ended while the job stands"
goes_on "fragctl has ended"

# ---- the mount is killed while it watches ----

fragctl break -j "$M" 'nan(grad, p0) > 0'
within 60 fragfs "$address" "$T/mnt2"
for server in $(servers); do
	tr '\0' '\n' <"/proc/$server/cmdline" | grep -qx "$T/mnt" && kill -9 "$server" || :
done
fusermount3 -u -z "$M"
M=$T/mnt2
goes_on "the mount was killed"
watch_is_over() {
	within 60 cat "$M/.frag/log" >log && grep -q '"event":"break-over".*"why":"the watching mount was silent"' log
}
wait_until 60 watch_is_over || fail "the watch of a mount that was killed: $(cat log)"
goes_on "the watch is over"

# ---- the whole job is killed and started again: the mount goes on watching ----

fusermount3 -u "$M"
kill $ranks 2>/dev/null || :
wait $ranks 2>/dev/null || :
M=$T/mnt
take_port
nan_every=1000000 # it never stands: it is killed before
start_job again
fragctl break -j "$M" 'nan(grad) > 0 for 60'
fragctl break -j "$M" -w -t 60 'nan(grad) > 0' >line &
waiter=$!
started $waiter
kill_at_once $ranks
wait $ranks 2>/dev/null || :
is_lost() {
	grep -q '^lost' "$M/ranks/0/state" && grep -q '^lost' "$M/ranks/3/state"
}
wait_until 60 is_lost || fail "not lost: $(cat "$M"/ranks/*/state)"
# the file of events ends with the job, which the waiter outlives
wait_until 60 is lost || fail "the phase is $(cat "$M/phase")"
sleep 1.5
is_watched 'nan(grad) > 0 for 60' || fail "the killed job is not watched: $(cat "$M/.frag/control")"
nan_every=50
start_ranks again
wait_until 60 is frozen || fail "not frozen after the job was started again: $(cat "$M/.frag/control" "$M/.frag/log")"
within 60 tail --pid=$waiter -f /dev/null || fail "fragctl break -w has not seen it"
held_before_50 "$(cat line)"
fragctl thaw "$M"
goes_on "started again"

# ---- the job that is started again has not the state that is watched: the watch ends, and says why ----

fragctl break -j "$M" 'nan(grad, p0) > 0 for 60'
kill_at_once $ranks
wait $ranks 2>/dev/null || :
wait_until 60 is_lost || fail "not lost: $(cat "$M"/ranks/*/state)"
start_ranks again TEAR_GRAD=exp_avg_sq
wait_until 60 is_watched off || fail "a job without gradients is watched: $(cat "$M/.frag/control" "$M/.frag/log")"
grep -q 'nan(grad, p0) > 0 is not watched any more: no parameter of that name has such a state' "$M/.frag/log" ||
	fail "why: $(cat "$M/.frag/log")"
before=$(cat "$M/step")
wait_until 60 later || fail "the job without gradients does not train"
unset FRAG_PORT

# ---- states on NVMe: the trainer reads them ----

fusermount3 -u "$M"
kill $ranks 2>/dev/null || :
wait $ranks 2>/dev/null || :
M=$T/mnt
mkdir swap
start_job swap FRAG_SWAP_DIR="$T/swap"
before=0
wait_until 60 later || fail "no step"
fragctl freeze --json -t 50 "$M" >out
grep -q '"seconds": 50' out && is frozen || fail "freeze --json: $(cat out)"
before=$(cat "$M/step")
bound=$((before + 50))
fragctl break -j "$M" "absmax(exp_avg, p2) > $bound"
fragctl thaw "$M"
wait_until 60 later || fail "not thawed"
wait_until 60 is frozen || fail "no exp_avg above $bound on NVMe"
[ "$(cat "$M/step")" = $((bound + 1)) ] || fail "exp_avg above $bound after step $(cat "$M/step")"
fragctl thaw --json "$M" >out
grep -qF "\"mountpoint\": \"$M\"" out || fail "thaw --json: $(cat out)"
goes_on "states on NVMe"

# ---- a rank is killed while the others wait for it at a boundary ----

fusermount3 -u "$M"
kill $ranks 2>/dev/null || :
wait $ranks 2>/dev/null || :
M=$T/mnt
for victim in 2 0; do
	start_job victim-$victim
	fragctl break -j "$M" 'nan(grad, p0) > 0'
	goes_on "watched"
	stop_process "$(rank $victim)"
	sleep 0.3
	kill -9 "$(rank $victim)"
	# the others see at their next barrier that a rank is gone, and end
	for r in $ranks; do
		wait_until 60 gone "$r" || fail "a rank hangs"
	done
	fusermount3 -u "$M"
	wait_until_gone
done
