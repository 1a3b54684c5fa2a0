#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Times of the phases of a job and of its mount: ranks/R/timers, histograms in .frag/metrics, also while a rank stands
# still; and the USDT probes.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
cd "$T"

# The trainers have a locale whose decimal point is a comma, if this machine can make one: the texts have points all the
# same.
if [ "$sanitizer" = no ] && localedef --no-archive -i de_DE -f UTF-8 "$T/de_DE.utf8" 2>/dev/null; then
	cat >comma.c <<'END'
#include <locale.h>
#include <stdlib.h>

static __attribute__((constructor)) void set(void)
{
	if (!setlocale(LC_ALL, "de_DE.UTF-8") || *localeconv()->decimal_point != ',')
		abort();
}
END
	$CC -shared -fPIC -o comma.so comma.c || fail "comma.c"
	export LOCPATH="$T" LD_PRELOAD="$T/comma.so"
else
	echo "no locale with a comma: trainers have points"
fi
train_job timers
unset LOCPATH LD_PRELOAD
rank1=$!
within 60 fragfs "$(fragctl jobs -H -o address)" "$M" -o rw || fail "fragfs: $?"
cp "$M/params/head.scale/fp32" saved
for i in 1 2 3; do
	dd if="$M/params/layers.0.weight/fp32" bs=4 count=1 skip=$i status=none >part || fail "no read"
	cat saved >"$M/params/head.scale/fp32" || fail "no edit"
done

# The ranks' phases.  An edit ends when its ranks have applied it; their trainers stall a moment longer.
stalled_thrice() {
	cat "$M/ranks/$1/timers" >timers.$1
	awk -F '\t' '
		NR == 1 && $0 != "phase\tof\tcount\tsum\tmin\tmedian\tp99\tmax" { exit 1 }
		$1 == "stall" && $2 == "ever" { found = $3 >= 3 && $5 <= $6 && $6 <= $7 && $7 <= $8 && $8 <= $4 }
		END { exit !found }' timers.$1
}
for rank in 0 1; do
	wait_until 60 stalled_thrice $rank || fail "rank $rank: $(cat timers.$rank)"
done

! grep , "$M"/ranks/?/timers || fail "numbers with a comma"

# value METRIC: prints the value of that line of .frag/metrics, in which the lines of a metric stand together.
value() {
	sed -n "s/^$1 //p" metrics
}
look() {
	within 60 cat "$M/.frag/metrics" >metrics || fail "no metrics: $?"
	sed 's/^# TYPE \([^ ]*\) .*/\1/; /^#/d; s/_\(bucket\|sum\|count\)[{ ].*//; s/[{ ].*//' metrics | uniq | sort | uniq -d >torn
	[ ! -s torn ] || fail "apart: $(cat torn)"
	! grep -v '^#' metrics | grep -Ev ' (-?[0-9.]+(e[-+]?[0-9]+)?|NaN|[-+]Inf)$' || fail "lines without a number"
}
stalls() {
	value "fragfs_rank_phase_seconds_count{rank=\"$1\",phase=\"stall\"}"
}
# tells_of RANK...: the metrics have lines of these ranks; a rank that does not answer within a second has none.
tells_of() {
	look
	for rank; do
		[ -n "$(stalls "$rank")" ] || return 1
	done
}
wait_until 60 tells_of 0 1 || fail "no stalls: $(grep _phase_ metrics)"
[ "$(value 'fragfs_phase_seconds_count{phase="commit"}')" = 3 ] || fail "commits: $(grep _phase_ metrics)"
[ "$(value 'fragfs_phase_seconds_count{phase="view"}')" -ge 3 ] || fail "views: $(grep _phase_ metrics)"
for rank in 0 1; do
	count=$(stalls $rank)
	[ "$count" -ge 3 ] || fail "rank $rank: $count stalls"
	[ "$(value "fragfs_rank_phase_seconds_bucket{rank=\"$rank\",phase=\"stall\",le=\"+Inf\"}")" = "$count" ] ||
		fail "rank $rank: buckets"
done

# A rank that stands still has no lines, and does not delay those of others.
stop_process $rank1
wait_until 60 tells_of 0 || fail "rank 0: no stalls"
kill -CONT $rank1
[ -z "$(stalls 1)" ] || fail "rank 1 has answered"

# The probes exist, and the example's script reads them if it may.
if command -v readelf >/dev/null; then
	for probe in phase_begin phase_end; do
		readelf -n "$top_builddir/.libs/libfrag.so" | grep -q "Name: $probe\$" || fail "no probe $probe"
	done
fi

# trace SECONDS: false if it saw no commit.  bpftrace does not say when it has attached.
trace() {
	timeout -s INT 120 bpftrace "$top_srcdir/docs/examples/phases.bt" "$top_builddir/fragfs" >traced 2>trace.log &
	tracer=$!
	started $tracer
	wait_until 60 grep -q Attaching traced || fail "bpftrace: $(cat trace.log)"
	for i in $(seq "$1"); do
		sleep 1
		cat saved >"$M/params/head.scale/fp32"
	done
	kill -INT $tracer
	wait $tracer || :
	grep -q '^@microseconds\[commit\]' traced
}
if bpftrace -e 'BEGIN { exit() }' >/dev/null 2>&1; then
	trace 2 || trace 10 || trace 30 || fail "bpftrace: $(cat traced trace.log)"
else
	echo "no bpftrace that works: the script was not tried"
fi
unmount
