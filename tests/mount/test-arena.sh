#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A job moves its parameters about in an arena while they are read, from its memory and by messages: no reader ever sees
# bytes of another parameter.  ranks/R/arena, fragctl arena and the metrics; none of them without an arena.
# TEST_SECONDS (1) for each way, TEST_READERS (3).
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
tools=$top_builddir/tests/mount
seed=${TEST_SEED:-$$}
echo "TEST_SEED=$seed"

RANK=0 WORLD_SIZE=1 FRAG_JOB_ID=arena-$$ "$tools/arena-job" >job.log 2>job.err &
job=$!
started $job
wait_until 60 grep -q '^127' job.log || fail "no job: $(cat job.err)"
address=$(head -n 1 job.log)

read_all() { # read_all OPTION
	within 60 fragfs "$address" "$M" -o "$1" || fail "fragfs -o $1: $?"
	pids='' n=0 status=0
	while [ $n -lt "${TEST_READERS:-3}" ]; do
		"$tools/arena-read" "$M" "${TEST_SECONDS:-1}" $((seed + n)) >read.$n &
		pids="$pids $!" n=$((n + 1))
		started $!
	done
	for pid in $pids; do
		wait "$pid" || status=1
	done
	[ $status = 0 ] || fail "$1: not what was written"
	echo "$1: $(cat read.* | awk '{ n += $1 } END { print n }') files"
	[ "$(cat read.* | awk '{ n += $1 } END { print n }')" -ge 10 ] || fail "$1: hardly any was read"
}
read_all transport=zmq
unmount
read_all transport=auto

# ---- the map of the arena ----
cat "$M/ranks/0/arena" >map
head -n 1 map | grep -q '^bytes 33554432 used [1-9][0-9]* used_max [1-9][0-9]* free [1-9][0-9]* largest [1-9][0-9]* blocks [1-9][0-9]* holes [1-9][0-9]* moved [1-9][0-9]*$' ||
	fail "figures: $(head -n 1 map)"
awk -F '\t' 'NR == 1 { split($0, w, " "); want = w[4]; n = w[12]; next }
	$1 < end { print "overlaps: " $0; exit 1 }
	{ end = $1 + $2; sum += $2; seen[$4]++ }
	END { if (sum != want || NR - 1 != n) { print sum " of " want ", " NR - 1 " of " n; exit 1 }
	      for (i = 0; i < 24; i++) if (seen["p" i] != 1) { print "p" i ": " seen["p" i]; exit 1 } }' map ||
	fail "the map does not add up"

fragctl arena --ascii "$M" >drawn
head -n 1 drawn | grep -q '^rank 0: 32M, used [0-9.]*M in [0-9]* blocks, high water [0-9.]*M, free [0-9.]*M in [0-9]* holes, largest [0-9.KM]*, fragmented [0-9]* %, moved [0-9.KMG]*$' ||
	fail "$(cat drawn)"
sed -n '2,$p' drawn | grep -qv '^ *[0-9.]*[BKM] [-.=%#]*$' && fail "a map of: $(cat drawn)"
fragctl arena --json -R 0 "$M" | grep -q '"parameters": \[' || fail "json"
for name in arena_bytes arena_used_bytes arena_used_max_bytes arena_largest_bytes arena_moved_bytes_total; do
	digit='[1-9]' # of what can be had now, a compaction may have reserved all
	[ $name = arena_largest_bytes ] && digit='[0-9]'
	grep -q "^fragfs_rank_$name{rank=\"0\"} $digit" "$M/.frag/metrics" || fail "no metric $name"
done

# ---- a closed arena ----
gone() {
	[ ! -e "$M/ranks/0/arena" ] && ! ls "$M/ranks/0" | grep -q arena
}
kill -USR1 $job
wait_until 60 gone || fail "it is still there"
refused 'rank 0 has no arena' fragctl arena -R 0 "$M"
refused 'no rank of the job has an arena' fragctl arena "$M"
! grep -q arena "$M/.frag/metrics" || fail "a metric of it"
refused 'p0/bf16' cat "$M/params/p0/bf16"
kill $job
wait $job || fail "the job: $(cat job.err)"
unmount
