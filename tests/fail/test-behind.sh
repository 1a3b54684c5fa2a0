#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks at rest at different steps, or inside a step: a read of what lies on all of them waits for the last, in sight, ends
# by itself, and shows one generation when that comes on; what needs none of those is read at once.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse

drive_ranks behind

mkdir auto zmq patient
fragfs "$address" auto -o timeout=4
fragfs "$address" zmq -o timeout=4,transport=zmq
fragfs "$address" patient -o timeout=600

steps() { # N: as many letters
	printf "%$1s" '' | tr ' ' s
}
stands_at() { # RANK BOUNDARY
	awk -v rank="$1" -v at="$2" 'NR > 1 && $1 == rank && $5 == at { found = 1 } END { exit !found }' patient/.frag/health
}
shows() { # FILE NUMBER
	[ "$(od -A n -v -t f4 -w4 "$1" | sort -u | tr -d ' ')" = "$2" ]
}

steps 20 >&4
steps 23 >&5
steps 26 >&6
for at in '0 40' '1 46' '2 52'; do
	# shellcheck disable=SC2086
	wait_until 60 stands_at $at || fail "not at $at: $(cat patient/.frag/health)"
done

size=$(stat -c %s auto/params/w/fp32)
last=$((size / 4 - 1))
for way in auto zmq; do
	status=0
	# bytes of ranks 0 and 1, of which each has some 1.87 MB
	within 60 dd if=$way/params/w/fp32 bs=1M skip=1 count=1 of=got 2>why || status=$?
	[ $status = 1 ] && grep -q 'Timer expired' why || fail "$way: $status $(cat why)"
	grep -q 'w/fp32 cannot be read: waits .* for rank 0, at boundary 40 .*, which must come to boundary 52, and for 1 more rank; now/ shows it as it stands$' \
		$way/.frag/log || fail "$way: $(cat $way/.frag/log)"
	status=0
	within 60 dd if=$way/params/w/fp32 iflag=nonblock bs=4 count=1 of=got 2>why || status=$?
	[ $status = 1 ] && grep -q 'temporarily unavailable' why || fail "$way: O_NONBLOCK: $status $(cat why)"
	within 60 dd if=$way/params/w/fp32 bs=4 skip=$last of=got 2>why || fail "$way: bytes of the rank ahead: $(cat why)"
	shows got 26 || fail "$way: $(od -t f4 got)"
	for rank in 0 1 2; do
		within 60 cat $way/ranks/$rank/partitions/0.0/fp32 >got || fail "$way: what rank $rank holds"
		shows got $((20 + 3 * rank)) || fail "$way: rank $rank"
	done
done

cat patient/params/w/fp32 >late 2>why &
reader=$!
started $reader
wait_until 60 grep -q '^read w fp32 .*, waits .* for rank 0, at boundary 40 (step 20, phase stable)' patient/.frag/inflight ||
	fail "$(cat patient/.frag/inflight)"
wait_until 60 grep -q 'w/fp32 waits ' patient/.frag/log || fail "$(cat patient/.frag/log)"
within 60 fragctl status patient >status || fail "status"
grep -q '^no rank gets on: rank 0 at boundary 40 for [0-9]* s, rank 2 at boundary 52 for ' status || fail "$(cat status)"
grep -q '^1 read waits for ranks that are behind or silent: read w fp32 ' status || fail "$(cat status)"

# They come on, and those ahead go on: it shows what it waited for.
steps 2 >&6
steps 4 >&4
wait_until 60 stands_at 0 48 || fail "$(cat patient/.frag/health)"
! is_over $reader || fail "it did not wait for all: $(cat why)"
steps 6 >&4
steps 6 >&5
wait_until 60 is_over $reader || fail "$(cat patient/.frag/inflight)"
wait $reader || fail "$(cat why)"
shows late 26 || fail "of several steps: $(od -A n -v -t f4 -w4 late | sort | uniq -c)"

# All at step 30; rank 1 begins another and does not end it.
steps 2 >&6
steps 1 >&5
printf b >&5
wait_until 60 stands_at 1 61 || fail "$(cat patient/.frag/health)"
for way in auto zmq; do
	status=0
	within 60 dd if=$way/params/w/fp32 bs=4 count=1 of=got 2>why || status=$?
	[ $status = 1 ] && grep -q 'Timer expired' why || fail "$way: inside a step: $status $(cat why)"
	grep -q 'for rank 1, at boundary 61 (step 30, phase step) for .*, which must end what it is changing; now/ shows it as it stands$' \
		$way/.frag/log || fail "$way: $(cat $way/.frag/log)"
done
printf e >&5
printf s >&4
printf s >&6
for at in '0 62' '1 62' '2 62'; do
	# shellcheck disable=SC2086
	wait_until 60 stands_at $at || fail "not at $at: $(cat patient/.frag/health)"
done
for way in auto zmq; do
	within 60 cat $way/params/w/fp32 >got || fail "$way: after that step"
	shows got 31 || fail "$way: $(od -A n -v -t f4 -w4 got | sort | uniq -c)"
done

# A checkpoint that is read through the mount, as export/ is, waits as well.
printf s >&4
wait_until 60 stands_at 0 64 || fail "$(cat patient/.frag/health)"
FRAGFS=$top_builddir/fragfs fragctl get -j patient/export 'w[0,:2]' >late 2>why &
reader=$!
started $reader
wait_until 60 grep -q '^read w .*, waits ' patient/.frag/inflight || fail "export is not read: $(cat why)"
printf s >&5
printf s >&6
wait_until 60 is_over $reader || fail "$(cat patient/.frag/inflight)"
wait $reader || fail "export: $(cat why)"
[ "$(cat late)" = '32  32' ] || fail "export: $(cat late)"

# Rank 1 is behind when an owner is lost: nobody waits for timeout=.
printf s >&4
wait_until 60 stands_at 0 66 || fail "$(cat patient/.frag/health)"
cat patient/params/w/fp32 >late 2>why &
reader=$!
started $reader
wait_until 60 grep -q '^read w fp32 .*, waits ' patient/.frag/inflight || fail "$(cat patient/.frag/inflight)"
kill -KILL "$rank2"
wait_until 60 is_over $reader || fail "$(cat patient/.frag/inflight)"
! wait $reader || fail "the bytes of a lost rank were read"
grep -q 'Input/output error' why || fail "lost while it waits: $(cat why)"
status=0
within 60 cat patient/params/w/fp32 >got 2>why || status=$?
[ $status = 1 ] && grep -q 'Input/output error' why || fail "lost before: $status $(cat why)"
exec 4>&- 5>&- 6>&-
