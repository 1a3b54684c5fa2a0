#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How long the phases of a job and of its mount take: ranks/R/timers, histograms in .frag/metrics, also while a rank stands
# still; and the USDT probes.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
cd "$T"

train_job timers
rank1=$!
within 60 fragfs "$(fragctl jobs -H -o address)" "$M" -o rw || fail "fragfs: $?"
cp "$M/params/head.scale/fp32" saved
for i in 1 2 3; do
	dd if="$M/params/layers.0.weight/fp32" bs=4 count=1 skip=$i status=none >part || fail "no read"
	cat saved >"$M/params/head.scale/fp32" || fail "no edit"
done

# The ranks' phases.
for rank in 0 1; do
	awk -F '\t' '
		NR == 1 && $0 != "phase\tof\tcount\tsum\tmin\tmedian\tp99\tmax" { exit 1 }
		$1 == "stall" && $2 == "ever" { found = $3 >= 3 && $5 <= $6 && $6 <= $7 && $7 <= $8 && $8 <= $4 }
		END { exit !found }' "$M/ranks/$rank/timers" || fail "rank $rank: $(cat "$M/ranks/$rank/timers")"
done

# value METRIC: the value of that line of .frag/metrics; each metric's lines stand together.
value() {
	sed -n "s/^$1 //p" metrics
}
look() {
	within 30 cat "$M/.frag/metrics" >metrics || fail "no metrics: $?"
	sed 's/^# TYPE \([^ ]*\) .*/\1/; /^#/d; s/_\(bucket\|sum\|count\)[{ ].*//; s/[{ ].*//' metrics | uniq | sort | uniq -d >torn
	[ ! -s torn ] || fail "apart: $(cat torn)"
}
look
[ "$(value 'fragfs_phase_seconds_count{phase="commit"}')" = 3 ] || fail "commits: $(grep _phase_ metrics)"
[ "$(value 'fragfs_phase_seconds_count{phase="view"}')" -ge 3 ] || fail "views: $(grep _phase_ metrics)"
for rank in 0 1; do
	count=$(value "fragfs_rank_phase_seconds_count{rank=\"$rank\",phase=\"stall\"}")
	[ "$count" -ge 3 ] || fail "rank $rank: $count stalls"
	[ "$(value "fragfs_rank_phase_seconds_bucket{rank=\"$rank\",phase=\"stall\",le=\"+Inf\"}")" = "$count" ] ||
		fail "rank $rank: buckets"
done

# A rank that stands still has none, and does not keep the others' back.
stop_process $rank1
look
kill -CONT $rank1
[ -n "$(value 'fragfs_rank_phase_seconds_count{rank="0",phase="stall"}')" ] || fail "rank 0: no stalls"
[ -z "$(value 'fragfs_rank_phase_seconds_count{rank="1",phase="stall"}')" ] || fail "rank 1 has answered"

# The probes are there, and the example's script reads them where it may.
if command -v readelf >/dev/null; then
	for probe in phase_begin phase_end; do
		readelf -n "$top_builddir/.libs/libfrag.so" | grep -q "Name: $probe\$" || fail "no probe $probe"
	done
fi
if bpftrace -e 'BEGIN { exit() }' >/dev/null 2>&1; then
	timeout -s INT 60 bpftrace "$top_srcdir/docs/examples/phases.bt" "$top_builddir/fragfs" >traced 2>trace.log &
	tracer=$!
	started $tracer
	wait_until 60 grep -q Attaching traced || fail "bpftrace: $(cat trace.log)"
	for i in 1 2 3 4 5; do # it does not say when it has attached
		sleep 0.5
		cat saved >"$M/params/head.scale/fp32"
	done
	kill -INT $tracer
	wait $tracer || :
	grep -q '^@microseconds\[commit\]' traced || fail "bpftrace: $(cat traced trace.log)"
else
	echo "no bpftrace that works: the script was not tried"
fi
unmount
