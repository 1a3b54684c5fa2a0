#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Bytes come as the engine gave them, whichever way they are read.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
mount_fake

# The parameter is 3 MiB and 1000 bytes, so that requests end in the middle of a block.
P=$M/params/tail
for key in fp32 exp_avg grad bf16; do
	fake-bytes tail "" $key >"$T/want"
	within 60 cat "$P/$key" | cmp - "$T/want" || fail "cat $key"
	within 60 cp "$P/$key" "$T/copy" && same "$T/copy" "$T/want"
	[ "$(stat -c %s "$P/$key")" = "$(stat -c %s "$T/want")" ] || fail "st_size of $key"
	for range in "1 1000003 2" "4096 0 999" "3 1048575 1" "1000 3145 1" "1048576 2 5" "65537 7 13"; do
		set -- $range
		dd if="$P/$key" bs="$1" skip="$2" count="$3" 2>/dev/null >"$T/a"
		dd if="$T/want" bs="$1" skip="$2" count="$3" 2>/dev/null >"$T/b"
		same "$T/a" "$T/b"
	done
	tail -c 1001 "$P/$key" >"$T/a"
	tail -c 1001 "$T/want" | cmp - "$T/a" || fail "tail of $key"
done

# Behind the end there is nothing; a parameter of no elements is an empty file.
[ "$(dd if="$P/fp32" bs=1M skip=9 2>/dev/null | wc -c)" = 0 ] || fail "bytes behind the end"
[ "$(within 60 cat "$M/params/empty/fp32" | wc -c)" = 0 ] || fail "bytes of nothing"
[ "$(within 60 cat "$M/params/scale/fp32" | wc -c)" = 4 ] || fail "bytes of a scalar"

# Several readers at once.
fake-bytes tail "" exp_avg >"$T/want"
for i in 1 2 3 4; do
	within 60 cmp "$P/exp_avg" "$T/want" &
	pids="${pids:-} $!"
done
for pid in $pids; do
	wait "$pid" || fail "readers at once"
done

# The reader gets the engine's errors.
refused "Input/output error" cat "$M/params/faulty/fails"
fake-bytes faulty "" slow >"$T/want"
same "$M/params/faulty/slow" "$T/want"
unmount
