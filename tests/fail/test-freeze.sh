#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A frozen job: four ranks that write the number of the step into every element of every state stand at one
# boundary, so that files copied one after the other have one number; edits made meanwhile are seen at once; and
# whoever dies, the job goes on.
. "$top_srcdir/tests/mount/lib.sh"
. "$top_srcdir/tests/fail/frozen.sh"
need_fuse
tools=$top_builddir/tests/fail
mkdir "$T/mnt2"
cd "$T"

stands() {
	is frozen || fail "$1: the phase is $(cat "$M/phase")"
	before=$(cat "$M/step")
	sleep 0.3
	[ "$(cat "$M/step")" = "$before" ] || fail "$1: a frozen job has made a step"
}

# start_job NAME PAUSE_US
start_job() {
	FRAG_JOB_ID=freeze-$$-$1 WORLD_SIZE=4
	export FRAG_JOB_ID WORLD_SIZE
	: >job.log
	ranks=
	for r in 0 1 2 3; do
		RANK=$r "$tools/tear-job" 2 "$2" >>job.log 2>&1 &
		ranks="$ranks $!"
		started $!
	done
	wait_until 60 grep -q '^127' job.log || { cat job.log; fail "no job"; }
	address=$(grep -m 1 '^127' job.log)
	within 60 "$top_builddir/fragfs" "$address" "$M" -o rw,timeout=20
}

end_job() {
	fusermount3 -u "$M"
	kill $ranks 2>/dev/null || :
	wait $ranks 2>/dev/null || :
}

values() {
	for file in "$1"/*/"$2"; do
		od -An -tf4 -w4 "$file" | grep -v '\*'
	done | sort -u
}

# ---- while a command runs ----

start_job whole 4000
within 60 fragctl freeze "$M" -- sh -c "cat '$M/phase' >during; cp -r '$M/params' copy" || fail "freeze: $?"
[ "$(cat during)" = frozen ] || fail "phase during a freeze: $(cat during)"
for key in fp32 exp_avg grad; do
	[ "$(values copy $key | wc -l)" = 1 ] || fail "$key: steps" $(values copy $key)
done
[ "$(values copy fp32)" = "$(values copy exp_avg)" ] || fail "two states of two steps"
goes_on "a command has ended"

got=0
fragctl freeze "$M" -- sh -c 'exit 7' || got=$?
[ $got = 7 ] || fail "exit status of the command: $got"
got=0
fragctl freeze "$M" -- sh -c 'kill -TERM $$' || got=$?
[ $got = 143 ] || fail "a command that a signal ended: $got"
goes_on "commands"

# ---- until it is thawed, by anybody ----

fragctl freeze "$M"
stands "freeze"
refused "frozen already" fragctl freeze "$M"
within 60 "$top_builddir/fragfs" "$address" "$T/mnt2" -o rw
refused "frozen already" fragctl freeze "$T/mnt2" -- true
log_has_both() { # a rank that does not answer soon tells it nothing
	within 60 cat "$mount/.frag/log" >log
	[ "$(grep -c '"event":"freeze".*"why":"the job is frozen already"' log)" = 2 ]
}
for mount in "$M" "$T/mnt2"; do
	wait_until 60 log_has_both || fail "refused, and the log says: $(cat log)"
done
stands "a second freeze"
[ "$(cat "$T/mnt2/.frag/freeze")" = frozen ] || fail "another mount says $(cat "$T/mnt2/.frag/freeze")"
grep -q '^frozen, for [0-9]* s at most$' "$M/.frag/freeze" || fail "it says $(cat "$M/.frag/freeze")"
fragctl thaw "$T/mnt2"
goes_on "thawed by another mount"
log_has_thaw() {
	within 60 cat "$M/.frag/log" >log && grep '"event":"freeze".*"boundary"' log | tail -n 1 |
		sed 's/.*"boundary":\([0-9]*\),"id":\(".*"\).*/"boundary":\1,"id":\2/' >id && [ -s id ] &&
		grep '"event":"thaw".*"by":{"uid":' log | grep -qF "$(cat id)"
}
wait_until 60 log_has_thaw || fail "the log has no thaw of its freeze: $(cat log)"
[ "$(cat "$T/mnt2/.frag/freeze")" = thawed ] || fail "not thawed: $(cat "$T/mnt2/.frag/freeze")"
fusermount3 -u "$T/mnt2"
within 60 "$top_builddir/fragfs" "$address" "$T/mnt2"
refused "not mounted with -o rw" fragctl freeze "$T/mnt2"
refused "not mounted with -o rw" fragctl thaw "$T/mnt2"
fusermount3 -u "$T/mnt2"

# ---- edits meanwhile: at once, each a generation ----

fragctl freeze "$M"
generation=$(cat "$M/generation")
for p in 0 1 2 4; do
	head -c "$(stat -c %s "$M/params/p$p/fp32")" /dev/zero >zeros
	within 30 cp zeros "$M/params/p$p/fp32" || fail "an edit of a frozen job: $?"
	cmp zeros "$M/params/p$p/fp32" || fail "an edit is not seen"
done
[ "$(cat "$M/generation")" -gt "$generation" ] && [ $(($(cat "$M/generation") % 1000000)) = 4 ] ||
	fail "four edits after generation $generation: $(cat "$M/generation")"
stands "edits"
fragctl thaw "$M"
goes_on "edited"

# ---- again and again, while somebody writes ----

write_on() {
	until [ -e enough ]; do
		within 60 cp zeros "$M/params/p4/fp32" || : >failed
	done
}

write_on &
writer=$!
started $writer
n=0
while [ $n -lt 40 ]; do
	within 60 fragctl freeze "$M" -- true || fail "freeze $n of a job that is edited: $?"
	n=$((n + 1))
done
: >enough
wait $writer
[ ! -e failed ] || fail "a write failed while the job was frozen and thawed"
goes_on "frozen often"

# ---- the bound ----

# in which the ranks have to come to one boundary, too
wait_until 60 fragctl freeze -t 1 "$M" || fail "freeze -t 1"
goes_on "the bound has run out"
is_over_before_the_command() {
	! within 60 fragctl freeze -t 1 "$M" -- sh -c "until [ \"\$(cat '$M/phase')\" != frozen ]; do sleep 0.05; done" 2>out &&
		grep -q "over before the command was" out
}
wait_until 60 is_over_before_the_command || fail "a command for longer than the freeze: $(cat out)"

# ---- who asked is killed ----

fragctl freeze "$M" -- sleep 30 &
holder=$!
started $holder
wait_until 60 is frozen || fail "not frozen"
kill -9 $holder
wait $holder 2>/dev/null || :
goes_on "fragctl was killed"

fragctl freeze "$M" -- sleep 30 &
started $!
wait_until 60 is frozen || fail "not frozen"
within 60 "$top_builddir/fragfs" "$address" "$T/mnt2"
kill -9 $(servers)
fusermount3 -u -z "$M"
M=$T/mnt2
goes_on "the mount was killed"

# ---- a job that comes to no boundary ----

end_job
M=$T/mnt
start_job idle 120000000
refused "not all ranks came to one boundary" fragctl freeze -t 1 "$M"
late='"event":"freeze".*"why":"not all ranks came to boundary [0-9]* in time: rank [0-9]* was at boundary [0-9]*[^"]*"'
wait_until 60 grep -q "$late" "$M/.frag/log" || fail "the log: $(cat "$M/.frag/log")"
if command -v script >/dev/null; then
	TERM=xterm within 60 script -qefc "fragctl freeze -t 5 $M" typescript </dev/null >/dev/null && fail "frozen: $(cat typescript)"
	grep -q 'waiting for the ranks: [0-9]* s' typescript || fail "no progress: $(cat -v typescript)"
fi
fragctl freeze "$M" &
waiting=$!
started $waiting
wait_until 60 grep -q '^freeze of 60 s: waiting for its boundary$' "$M/.frag/inflight" || fail "not in flight"
kill -TERM $waiting
within 60 tail --pid=$waiting -f /dev/null || fail "fragctl waits on"
wait_until 60 [ ! -s "$M/.frag/inflight" ] || fail "in flight: $(cat "$M/.frag/inflight")"
trains || fail "frozen"

# ---- ranks die ----

end_job
for victim in 2 0; do
	start_job victim-$victim 4000
	fragctl freeze "$M"
	kill -9 "$(rank $victim)"
	sleep 0.2
	stands "rank $victim was killed"
	within 60 fragctl thaw "$M" || fail "thaw: $?"
	wait_until 60 trains || fail "rank $victim was killed: the others stay frozen"
	fusermount3 -u "$M"
	# the others see at their next barrier that a rank is gone, and end
	for r in $ranks; do
		wait_until 60 gone "$r" || fail "a rank hangs"
	done
done
