#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A job that ends in order differs from a killed one: in the phase, the ranks' state, events, and the log; mounts and
# ranks log no warning.  By memory and by messages, and on a mount that may only read.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
mkdir "$T/job"
export FRAG_JOB_ID=ends-$$ WORLD_SIZE=3

has_address() {
	address=$(sed -n 's/^train: address //p' "$T/job/0")
	[ -n "$address" ]
}

start() {
	rm -f "$T/job"/* # has_address() must not find that of the job before
	ranks=
	for rank in 0 1 2; do
		RANK=$rank "$top_builddir/docs/examples/train" --forever --every 50 --pause-ms 10 \
			>"$T/job/$rank" 2>"$T/job/$rank.err" &
		ranks="$ranks $!"
		started $!
	done
	wait_until 60 has_address || fail "no job: $(cat "$T"/job/*)"
	within 60 fragfs "$address" "$M" -o "$1,timeout=60" || fail "fragfs: $?"
	: >"$T/events" # trains() must not find the job before
	cat "$M/events" >"$T/events" &
	reader=$!
	started $reader
	wait_until 60 trains || fail "it does not train: $(cat "$T/events")"
}

trains() {
	grep -q '"event":"step"' "$T/events"
}

# end COMMAND...
end() {
	"$@" $ranks
	wait_until 60 is_over $reader || fail "$way, $*: the events have not ended: $(tail -n 3 "$T/events")"
	within 60 cat "$M/ranks"/*/state >"$T/states"
	within 60 cat "$M/phase" >"$T/phase"
	within 60 cat "$M/.frag/log" >"$T/said"
	fragctl status "$M" >"$T/status" || :
	fusermount3 -u "$M" 2>/dev/null || umount "$M"
	for pid in $ranks; do
		wait "$pid" || :
	done
}

# expect FILE COUNT PATTERN
expect() {
	[ "$(grep -c -e "$3" "$T/$1")" = "$2" ] || fail "$way: not $2 of $3: $(grep -v '"step"' "$T/$1")"
}

for way in rw,transport=auto rw,transport=zmq transport=auto; do
	start $way
	end kill
	expect phase 1 '^closed$'
	expect states 3 '^left since '
	expect status 3 ' left '
	expect events 3 '"event":"rank-left"'
	expect events 0 '"event":"rank-lost"'
	grep -q '"phase":"closed"' "$T/events" || fail "$way: the job's end: $(tail -n 3 "$T/events")"
	expect said 3 'rank [012] left the job'
	expect said 0 ' warn: '
	cat "$T/job"/*.err >"$T/errs"
	expect errs 0 'lost\|refused'

	start $way
	end kill_at_once
	expect phase 1 '^lost$'
	expect states 3 '^lost since '
	expect events 3 '"event":"rank-lost"'
	expect events 0 '"event":"rank-left"'
	expect said 3 '^fragfs: warn: [0-9]*\.[0-9]*: rank [012] is lost'
	expect said 0 'edits is not known' # nobody has made any
	! grep -vE '^fragfs: [a-z]*: ([0-9]{10}\.[0-9]{3}: |\{.*"time":[0-9.]*)' "$T/said" || fail "lines without a time"
done
