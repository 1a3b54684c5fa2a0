#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# /events of the example trainer: its steps in order; an edit with its writer, through another mount too; a lost rank;
# and the end of the job, which ends the file, also for poll(2).  By memory and by messages.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
mkdir "$T/mnt2" "$T/job"
export FRAG_JOB_ID=events-$$ WORLD_SIZE=2

unmount_all() {
	for m in "$M" "$T/mnt2"; do
		fusermount3 -u -z "$m" 2>/dev/null || umount -l "$m" 2>/dev/null || :
	done
}
at_end() {
	unmount_all
	wait_until_gone 2>/dev/null || :
}

address() {
	fragctl jobs 2>/dev/null | grep -o '127\.0\.0\.1:[0-9]*' | head -n 1 >"$T/address"
	[ -s "$T/address" ]
}

start_trainer() {
	ranks=
	for rank in 0 1; do
		RANK=$rank "$top_builddir/docs/examples/train" --stage 2 --forever --every 50 --pause-ms 10 \
			>"$T/job/$rank" 2>&1 &
		ranks="$ranks $!"
		started $!
	done
	wait_until 60 address || fail "no job: $(cat "$T"/job/*)"
}

# mount_job MOUNT OPTIONS
mount_job() {
	within 60 fragfs "$(cat "$T/address")" "$1" -o "$2" || fail "fragfs: $?"
}

# told FILE PATTERN: a line matches.
told() {
	grep -q -e "$2" "$1"
}

open_by() {
	ls -l "/proc/$1/fd" 2>/dev/null | grep -q "$M/events"
}

ended() {
	! grep -q '^State:.[^Z]' "/proc/$1/status" 2>/dev/null
}

steps() {
	[ "$(grep -c '"event":"step"' "$1")" -ge "$2" ]
}

# twice FILE PATTERN: two lines match.
twice() {
	[ "$(grep -c -e "$2" "$1")" = 2 ]
}

# four_edits: the log has all edits; those of the other mount only once the ranks have answered.
four_edits() {
	[ "$(grep -c '"event":"edit"' "$M/.frag/log")" = 4 ]
}

steps_rise() {
	sed -n 's/.*"event":"step".*"step":\([0-9]*\),.*/\1/p' "$1" | sort -n -u -c || fail "steps go back in $1"
}

for transport in auto zmq; do
	start_trainer
	mount_job "$M" rw,timeout=60,transport=$transport
	mount_job "$T/mnt2" rw,timeout=60
	events=$T/events.$transport
	cat "$M/events" >"$events" &
	reader=$!
	started $reader
	wait_until 60 open_by $reader || fail "$transport: the reader has not opened"
	"$top_builddir/tests/mount/poll-file" hup "$M/events" 60000 1 >"$T/polled" &
	poller=$!
	started $poller
	wait_until 60 steps "$events" 5 || fail "$transport: no steps: $(cat "$events")"
	steps_rise "$events"
	for m in "$M" "$T/mnt2"; do
		echo 0.001 >"$m/groups/0/lr" || fail "$transport: an edit"
		head -c 4 "$m/params/head.scale/fp32" >"$T/value" || fail "$transport: a read"
		within 60 cp "$T/value" "$m/params/head.scale/fp32" || fail "$transport: an edit"
	done
	for pattern in '"group":0,"state":"lr","bytes":8,"boundary":[0-9]*,"outcome":"committed"' \
		'"param":"head.scale","state":"fp32","bytes":4,"boundary":[0-9]*,"outcome":"committed"'; do
		wait_until 60 twice "$events" "$pattern" ||
			fail "$transport: not two edits: $pattern: $(grep edit "$events")"
	done
	[ "$(sed -n 's/.*"by":{"uid":'"$(id -u)"',"pid":\([0-9]*\),"host":"[^"]*"}.*/\1/p' "$events" | sort -u |
		wc -l)" = 2 ] || fail "$transport: not two writers: $(grep edit "$events")"
	wait_until 60 four_edits && ! grep ': committed' "$M/.frag/log" ||
		fail "$transport: not one line for each edit: $(cat "$M/.frag/log")"
	kill -9 ${ranks##* }
	wait_until 60 told "$events" '"event":"rank-lost".*"rank":1,"why":"..*"' ||
		fail "$transport: no lost rank: $(tail -n 3 "$events")"
	kill -9 $ranks 2>/dev/null || :
	wait_until 60 told "$events" '"event":"rank-lost".*"rank":0,"why":"..*"' || fail "$transport: no lost rank 0"
	wait_until 60 ended $reader || fail "$transport: the job has ended, its events have not"
	wait $reader || fail "$transport: the reader ended with $?"
	grep -q '"group":0,"state":"lr",.*"outcome":"committed"' "$M/.frag/log" ||
		fail "$transport: the mount has forgotten its edits: $(cat "$M/.frag/log")"
	tail -n 1 "$events" | grep -q '"phase":"lost"' || fail "$transport: the job's end: $(tail -n 3 "$events")"
	wait $poller || fail "$transport: poll: $?: $(tail -n 3 "$T/polled")"
	tail -n 1 "$T/polled" >"$T/polled.last"
	tail -n 1 "$events" | cmp - "$T/polled.last" || fail "$transport: poll: $(cat "$T/polled.last")"
	[ -z "$(within 60 cat "$M/events")" ] || fail "$transport: events of a job that has ended"
	unmount_all
	for pid in $ranks; do
		wait "$pid" || :
	done
	rm -f "$T/address"
done
