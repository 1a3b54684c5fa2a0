#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank that is stopped while reads need it: they end as those of a silent rank do, and nothing else becomes
# unreadable by that.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse

# The mount that is opened while rank 0 is stopped reaches the job by rank 1, and finds the key by this.
(umask 077 && od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >job.key && echo >>job.key)
export FRAG_KEY_FILE=$T/job.key
drive_ranks silent

state_is() { # RANK WORDS
	grep -q "^$2" "$M/ranks/$1/state"
}
# refused_read TEXT FILE: not read, for that reason.
refused_read() {
	status=0
	within 60 cat "$2" >got 2>why || status=$?
	[ $status = 1 ] && grep -q "$1" why || fail "$2: not '$1' but $status $(cat why)"
}
as_it_stands() {
	for file in now ranks/2/params; do
		within 60 cat "$M/$file/w/fp32" >got || fail "$1: $file: $?"
		[ -s got ] || fail "$1: $file: empty"
	done
}

# ---- a read of params/ is under way when its rank is declared silent ----

for timeout in 2 5; do
	"$top_builddir/fragfs" "$address" "$M" -o timeout=$timeout
	as_it_stands "timeout=$timeout, all live"
	stop_process "$rank2"
	sleep 1.5 # a PING, sent every second, is under way before what the read asks
	refused_read 'timed out' "$M/params/w/fp32"
	wait_until 60 state_is 2 'lost.*no answer' || fail "timeout=$timeout: $(cat "$M/ranks/2/state")"
	as_it_stands "timeout=$timeout, rank 2 is silent"
	refused_read 'timed out' "$M/params/w/fp32"
	kill -CONT "$rank2"
	wait_until 60 state_is 2 alive || fail "$(cat "$M/ranks/2/state")"
	within 60 cat "$M/params/w/fp32" >got || fail "timeout=$timeout: not read, rank 2 goes on"
	unmount
done

# ---- it is stopped, and not yet lost: who waits for it, and who is not to ----

names_rank_2() { # FILE WORDS
	grep -q "$2" "$1"
}
is_over_by_a_step() { # PROCESS
	printf s >&4
	printf s >&5
	printf s >&6
	is_over "$1"
}
for way in auto zmq; do
	"$top_builddir/fragfs" "$address" "$M" -o rw,timeout=600,transport=$way
	as_it_stands "$way: all live"
	stop_process "$rank2"
	for file in params/w/fp32 $([ $way = auto ] || echo ranks/2/params/w/fp32); do
		status=0
		within 60 dd if="$M/$file" iflag=nonblock,fullblock bs=1M of=got 2>why || status=$?
		[ $status = 1 ] && grep -q 'temporarily unavailable' why || fail "$way: $file: O_NONBLOCK: $status $(cat why)"
	done
	cat "$M/params/w/fp32" >late 2>why &
	reader=$!
	started $reader
	wait_until 60 names_rank_2 "$M/.frag/inflight" '^read w fp32 .*, 1 ranks asked, .*, waits for rank 2, which has not answered for [0-9]* ms$' ||
		fail "$way: $(cat "$M/.frag/inflight")"
	wait_until 60 grep -q 'rank 2 has not answered for [0-9]* ms; it is lost after 600000$' "$M/.frag/log" || fail "$way: $(cat "$M/.frag/log")"
	within 60 fragctl status "$M" >status || fail "$way: status"
	grep -q '^ *2 .* alive .*  silent for [0-9]* s$' status || fail "$way: $(cat status)"
	grep -q '^1 read waits for ranks that are behind or silent: read w fp32 ' status || fail "$way: $(cat status)"
	head -c $((1400 * 1001 * 4)) /dev/zero >"$M/params/w/fp32" 2>why &
	writer=$!
	started $writer
	wait_until 60 names_rank_2 "$M/.frag/inflight" '^commit w fp32 .*: staging, .*, waits for rank 2, which has not answered for [0-9]* ms$' ||
		fail "$way: $(cat "$M/.frag/inflight")"
	within 60 fragctl status "$M" >status || fail "$way: status"
	grep -q '^1 edit waits for ranks or their boundary: commit w fp32 ' status || fail "$way: $(cat status)"
	within 60 cat "$M/.frag/log" >said || fail "$way: .frag/log: $?"
	for file in swap log timers; do
		refused 'Connection timed out' cat "$M/ranks/2/$file"
	done
	grep -q '^fragfs: warn: [0-9.]*: rank 2 has not answered: edits of which it alone knows are not here$' "$M/.frag/log" ||
		fail "$way: $(cat "$M/.frag/log")"
	kill -CONT "$rank2"
	wait_until 60 is_over $reader || fail "$way: it waits on: $(cat "$M/.frag/inflight")"
	wait $reader || fail "$way: $(cat why)"
	[ "$(stat -c %s late)" = "$(stat -c %s "$M/params/w/fp32")" ] || fail "$way: half of it"
	wait_until 60 is_over_by_a_step $writer || fail "$way: the edit waits on: $(cat "$M/.frag/inflight")"
	wait $writer || fail "$way: not written"
	[ "$(grep -c 'rank 2 has not answered for' "$M/.frag/log")" = 1 ] || fail "$way: $(cat "$M/.frag/log")"
	unmount
done

# ---- it was stopped before the mount: what waits for its table of states ----

stop_process "$rank2"
for way in auto zmq; do
	"$top_builddir/fragfs" "$address" "$M" -o timeout=600,transport=$way
	# The first question waits for the silent rank, those behind it hardly.
	within 12 sh -c 'for i in $(seq 8); do cat "$1/.frag/readers" || exit 1; done' sh "$M" >readers ||
		fail "$way: readers: $? after $(wc -l <readers) lines"
	for file in params now; do
		status=0
		within 60 dd if="$M/$file/w/fp32" iflag=nonblock,fullblock bs=1M of=got 2>why || status=$?
		[ $status = 1 ] && grep -q 'temporarily unavailable' why || fail "$way: $file without a table: $status $(cat why)"
		cat "$M/$file/w/fp32" >late 2>why &
		reader=$!
		started $reader
		wait_until 60 names_rank_2 "$M/.frag/inflight" '^read w fp32 .*, waits for rank 2, which has not answered for [0-9]* ms$' ||
			fail "$way: $file: $(cat "$M/.frag/inflight")"
		within 60 fragctl status "$M" >status || fail "$way: status"
		grep -q '^1 read waits for ranks that are behind or silent: read w fp32 ' status || fail "$way: $file: $(cat status)"
		kill -CONT "$rank2"
		wait_until 60 is_over $reader || fail "$way: $file: it waits on: $(cat "$M/.frag/inflight")"
		wait $reader || fail "$way: $file: $(cat why)"
		unmount
		stop_process "$rank2"
		"$top_builddir/fragfs" "$address" "$M" -o timeout=600,transport=$way
	done
	unmount
done
kill -CONT "$rank2"

# ---- the first rank of the group was: the next one's table of states will do to find and list names ----

"$top_builddir/fragfs" "$address" "$M"
other=$(cat "$M/ranks/1/address")
other=${other#tcp://}
unmount
stop_process "$rank0"
for way in auto zmq; do
	"$top_builddir/fragfs" "$other" "$M" -o timeout=600,transport=$way
	status=0
	within 60 dd if="$M/params/w/fp32" iflag=nonblock,fullblock bs=1M of=got 2>why || status=$?
	[ $status = 1 ] && grep -q 'temporarily unavailable' why || fail "$way: rank 0 has no table: $status $(cat why)"
	within 60 grep -q 'rank 0 has not answered for [0-9]* ms; it is lost after 600000$' "$M/.frag/log" || fail "$way: $(cat "$M/.frag/log")"
	within 60 ls -l "$M/params/w" "$M/groups/0" >got || fail "$way: rank 0 has no table: $?"
	grep -q fp32 got && grep -q ' lr$' got || fail "$way: $(cat got)"
	unmount
done
kill -CONT "$rank0"

# ---- rank 1 stands inside a step, and rank 2 is stopped: the silent one is told of, not the slow one ----

# A read waits for a step twice as long as the last ones took.
for n in 1 2 3; do
	printf s >&4
	printf s >&5
	printf s >&6
done
printf b >&5
in_step() {
	grep -q '^1 .* step ' "$M/.frag/health"
}
for timeout in 3 4; do
	"$top_builddir/fragfs" "$address" "$M" -o timeout=$timeout
	as_it_stands "rank 1 in a step"
	wait_until 60 in_step || fail "$(cat "$M/.frag/health")"
	refused_read 'Timer expired' "$M/params/w/fp32"
	stop_process "$rank2"
	refused_read 'timed out' "$M/params/w/fp32"
	wait_until 60 state_is 2 'lost.*no answer' || fail "$(cat "$M/ranks/2/state")"
	refused_read 'timed out' "$M/params/w/fp32"
	as_it_stands "rank 1 in a step, rank 2 silent"
	kill -CONT "$rank2"
	wait_until 60 state_is 2 alive || fail "$(cat "$M/ranks/2/state")"
	refused_read 'Timer expired' "$M/params/w/fp32"
	unmount
done

# ---- rank 0 was stopped before the mount: .frag/stats, whose thread waits for the names of states ----

printf e >&5
printf s >&4
printf s >&6
stop_process "$rank0"
# Those of rank 1 will do, before rank 0 is lost.
"$top_builddir/fragfs" "$other" "$M" -o timeout=10,transport=zmq
within 60 cat "$M/.frag/stats" >got || fail ".frag/stats: $?"
[ "$(tail -n +2 got | cut -f 1,2,18)" = 'w	fp32	Connection timed out' ] || fail "rank 0 is silent: .frag/stats: $(cat got)"
unmount
"$top_builddir/fragfs" "$other" "$M" -o timeout=3,transport=zmq
stop_process "$rank1"
stop_process "$rank2"
within 60 cat "$M/.frag/stats" >got || fail ".frag/stats: $?"
[ "$(tail -n +2 got | cut -f 1,2,18)" = 'w	-	Connection timed out' ] || fail "no rank answers: .frag/stats: $(cat got)"
unmount
kill -CONT "$rank1" "$rank2"
exec 4>&- 5>&- 6>&-
