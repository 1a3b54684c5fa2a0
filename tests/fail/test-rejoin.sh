#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank that was killed is started again: the other ranks and the mount take it back.  Files that were open are
# ESTALE where its pieces are, those opened anew are right, and edits reach all.  By memory or by messages; rank 0,
# which the others have to find, and another; with what they have on NVMe too.  TEST_ROUNDS (1).
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"
rounds=${TEST_ROUNDS:-1}
case $(chance 2) in 0) ways=transport=auto ;; *) ways=transport=zmq ;; esac

is_in_state() {
	grep -q "^$2" "$M/ranks/$1/state"
}

# As large as v.
head -c $((7 * 100003 * 4)) /dev/zero >zeros

take_back() {
	how="$what, $1, rank $2"
	part=w # of which it has some
	[ "$2" != 2 ] || part=v
	exec 5<"$M/params/$part/fp32"
	dd bs=4096 count=1 <&5 >/dev/null 2>&1 || fail "$how: nothing to be read"
	ask kill "$2"
	wait_until 60 is_in_state "$2" lost || fail "$how: $(cat "$M/ranks/$2/state")"
	ask restart "$2"
	wait_until 60 is_in_state "$2" alive || fail "$how: $(cat "$M/ranks/$2/state")"
	if within 60 cat <&5 >/dev/null 2>why; then
		fail "$how: a file that was open is read to its end"
	fi
	grep -q 'Stale file handle' why || fail "$how: $(cat why)"
	exec 5<&-
	ask expect $part fp32 "$T/want"
	within 60 cat "$M/params/$part/fp32" >got || fail "$how: not opened anew"
	same got want
	within 60 cp zeros "$M/params/v/fp32" || fail "$how: not edited"
	ask change v fp32 0 "$T/zeros"
	ask check
}

lose() {
	ask kill "$1"
	wait_until 60 is_in_state "$1" lost || fail "$how: $(cat "$M/ranks/$1/state")"
}
come_back() {
	ask restart "$1"
	wait_until 60 is_in_state "$1" alive || fail "$how: $(cat "$M/ranks/$1/state")"
}
is_over() {
	! kill -0 "$1" 2>/dev/null
}
# begin_edit PARAM KEY: it waits for its boundary.
begin_edit() {
	head -c "$(stat -c %s "$M/params/$1/$2")" /dev/zero >nulls
	cp nulls "$M/params/$1/$2" 2>why &
	writer=$!
	started $writer
	edit="$1 $2"
	wait_until 60 grep -q "^commit $1 $2 .*waiting for its boundary" "$M/.frag/inflight" ||
		fail "$how: $(cat "$M/.frag/inflight" why)"
}
end_edit() {
	wait_until 60 is_over "$writer" || fail "$how: an edit goes on: $(cat "$M/.frag/inflight" "$M/.frag/health")"
	wait "$writer" || fail "$how: an edit: $(cat why)"
	# shellcheck disable=SC2086
	ask change $edit 0 "$T/nulls"
	ask check
}
pass_all() {
	for rank in 0 1 2; do
		ask pass $rank "$1"
	done
}
# of_all COLUMN: what each rank has there, each value once.
of_all() {
	cat "$M/.frag/health" >/dev/null
	awk -v c="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == c) n = i } NR > 1 { print $n }' "$M/.frag/health" | sort -u
}
is_one() {
	[ "$(of_all "$1" | wc -l)" = 1 ]
}

# It counts what the others have counted when they have met, wherever they were when it came: edits go in at one
# boundary.
meet_elsewhere() {
	how="$what, $1, rank $2 elsewhere"
	pass_all 3
	lose "$2"
	come_back "$2"
	for rank in 0 1 2; do
		[ $rank = "$2" ] || ask pass $rank 7
	done
	ask meet
	for count in step boundary generation; do
		wait_until 60 is_one $count || fail "$how: $count: $(cat "$M/.frag/health")"
	done
	begin_edit v fp32
	pass_all 1
	end_edit
}

# An edit that it does not hold, and for which the others wait already: all count the same generations.
edited_meanwhile() {
	how="$what, $1, edited while rank 1 is away"
	begin_edit v exp_avg
	lose 1
	come_back 1
	pass_all 2
	end_edit
	wait_until 60 is_one generation || fail "$how: $(cat "$M/.frag/health")"
	ask expect w exp_avg "$T/want"
	within 60 cat "$M/params/w/exp_avg" >got || fail "$how: not read"
	same got want
}

# The others stand: it is taken back, they go on when they are thawed, and all is as ever.
frozen_meanwhile() {
	how="$what, $1, frozen while rank $2 is away"
	within 60 fragctl freeze "$M" || fail "$how: freeze: $?"
	lose "$2"
	come_back "$2"
	grep -q '^frozen, ' "$M/.frag/freeze" || fail "$how: $(cat "$M/.frag/freeze")"
	ask expect v exp_avg "$T/want"
	within 60 cat "$M/params/v/exp_avg" >got || fail "$how: not read"
	same got want
	within 60 fragctl thaw "$M" || fail "$how: thaw: $?"
	within 60 cp zeros "$M/params/v/fp32" || fail "$how: not edited"
	ask change v fp32 0 "$T/zeros"
	ask check
}

all_ways() {
	start_job 1 3 some
	mount_job "rw,$1"
	take_back $1 $((1 + $(chance 2)))
	take_back $1 0
	take_back $1 $((1 + $(chance 2)))
	frozen_meanwhile $1 $((1 + $(chance 2)))
	frozen_meanwhile $1 0
	unmount
	end_job
	start_job 1 3 even
	mount_job "rw,$1"
	meet_elsewhere $1 $((1 + $(chance 2)))
	edited_meanwhile $1
	meet_elsewhere $1 0
	unmount
	end_job
}

round=0
while [ $round -lt "$rounds" ]; do
	for way in $ways; do
		all_ways $way
	done
	on_nvme all_ways transport=auto
	round=$((round + 1))
done
