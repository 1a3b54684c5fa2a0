#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A mount's process outlives umount(8) a little: a command that needs its locks waits for it, says so, and gives up in
# time.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
gzip -dc "$top_srcdir/tests/data/checkpoints"/*/z2-bf16-w4.tar.gz | tar -xf -
C=$T/z2-bf16-w4
F=$M/params/emb.weight/fp32

mount_it() {
	within 60 fragfs "$C" "$M" -o "$1" || fail "fragfs -o $1: status $?"
}
edit() {
	printf '\0\0\200\77' | dd of="$F" conv=notrunc status=none || fail "cannot edit"
}
let_go() {
	within 60 fusermount3 -u "$M" || fail "cannot unmount"
}

for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	mount_it overlay=laid
	edit
	let_go
	within 60 fragctl commit laid >out 2>&1 || fail "round $round: commit: $(cat out)"
	mount_it rw
	let_go
	mount_it rw
	let_go
	mount_it ro
	let_go
done

# A mount whose process does not end for a while.
mount_it overlay=laid
edit
stopped=$(servers)
for pid in $stopped; do
	stop_process "$pid"
done
let_go
within 60 fragctl commit laid >out 2>&1 &
commit=$!
started $commit
wait_until 60 grep -q "waiting for process [0-9]*, which has $T/laid locked" out || fail "it does not say what it waits for: $(cat out)"
kill -CONT $stopped
wait $commit || fail "commit: $(cat out)"

# A mount whose process does not end.
mount_it rw
refused "is mounted with -o rw by process [0-9]" fragfs "$C" "$T"
unmount
