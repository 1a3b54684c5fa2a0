#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# With FRAG_COMMS=1 a mount, and each rank, times its operations; without it nothing is counted.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse

mount_it() {
	within 60 fragfs "$(fragctl jobs -H -o job,address | sed -n 's/^comms	//p')" "$M" -o rw || fail "fragfs: $?"
}

export FRAG_COMMS=1
train_job comms
unset FRAG_COMMS
mount_it
[ "$(cat "$M/.frag/comms")" = off ] || fail "off: $(cat "$M/.frag/comms")"
! fragctl comms "$M" 2>err || fail "off: fragctl comms"
grep -q 'nothing is counted without FRAG_COMMS=1' err || fail "off: $(cat err)"
unmount

export FRAG_COMMS=1
mount_it
for i in 1 2 3; do
	cat "$M"/params/*/fp32 >/dev/null
done
name=$(fragctl ls -j "$M" -H -o name,shape | awk -F '\t' '$2 ~ /[0-9]/ { print $1; exit }')
size=$(wc -c <"$M/params/$name/fp32")
head -c "$size" /dev/zero >"$M/params/$name/fp32" || fail "no edit"
fragctl comms -H -o op,count,bytes,p50_us,p99_us,algbw_gbps,busbw_gbps,caller "$M" >ops
for op in stage commit; do
	awk -F '\t' -v op=$op '$1 == op && $2 > 0 && $4 > 0 && $5 >= $4 && $8 ~ /\.c:[0-9]+$/ { n++ } END { exit !n }' ops ||
		fail "no line of $op: $(cat ops)"
done
grep -Eq '^(onesided|read)	.*	state\.c:[0-9]+$' ops || fail "no reads of files: $(cat ops)"
grep -Eq '^stage	.*	write-buffer\.c:[0-9]+$' ops || fail "no edit of a file: $(cat ops)"
awk -F '\t' '$6 != $7 { exit 1 }' ops || fail "between two, busbw is algbw: $(cat ops)"
! grep -q '^off$' "$M/ranks/0/comms" || fail "a rank counts nothing"
# The mount has sent each rank the bytes of its part, so their times do not compare: no rank counts as behind.
sed '1,/^$/d' "$M/.frag/comms" >ranks
[ "$(cut -f 1 ranks | tr '\n' ' ')" = "rank " ] || fail "ranks: $(cat ranks)"
within 60 cat "$M/params/$name/fp32[::2].npy" >/dev/null || fail "no slice"
fragctl comms -H -o op,caller "$M" >sliced
grep -Eq '^(onesided|read)	gather\.c:[0-9]+$' sliced || fail "no read of a slice: $(cat sliced)"
# Rank 0 asks both ranks for the boundary, also for an edit of a part that it alone has.  A rank that stands still for a
# while answers that much later than the other.
mine=$(awk '$1 == 0 && $2 == "exp_avg" && $6 == 0 { print FILENAME; exit }' "$M"/params/*/fragments)
stop_process "$(cat "$M/ranks/1/pid")"
(printf '\0\0\0\0' | dd of="${mine%/*}/exp_avg" conv=notrunc 2>/dev/null) &
edit=$!
wait_until 60 grep -q "^commit .*boundary" "$M/.frag/inflight"
sleep 1
kill -CONT "$(cat "$M/ranks/1/pid")"
wait $edit || fail "no edit after the stop"
rank_1_is_behind() {
	sed '1,/^$/d' "$M/ranks/0/comms" | awk -F '\t' '$1 == 1 && $4 >= 200000 { found = 1 } END { exit !found }'
}
wait_until 60 rank_1_is_behind || fail "rank 1 is not behind: $(cat "$M/ranks/0/comms")"
fragctl comms -R 0 --json "$M" >json
grep -q '"behind_us": ' json || fail "json: $(cat json)"
# Rank 0 decides boundaries, so it knows which rank is late.
wait_until 60 grep -q '^apply' "$M/ranks/0/comms" || fail "rank 0: $(cat "$M/ranks/0/comms")"
fragctl comms -R 0 -H -o op,count "$M" | grep -q '^apply	' || fail "fragctl comms -R 0"
