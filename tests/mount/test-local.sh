#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The states of ranks/R are read-only on a rw mount, because replicas and low-precision copies would not follow.  With
# -o rw,local they can be written: one rank alone changes, and the log says which.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"
start_job 0 2 small
param=$M/params/one

# look NAME: prints what each rank has, and the copy.
look() {
	for rank in 0 1; do
		cat "$M/ranks/$rank/params/one/fp32" >"$1.$rank" || fail "$1: rank $rank"
		cat "$M/ranks/$rank/partitions/0.0/exp_avg" >"$1.partition.$rank" || fail "$1: rank $rank"
	done
	cat "$param/bf16" >"$1.bf16"
}

mount_job rw
look before
head -c "$(stat -c %s before.0)" /dev/urandom >new
head -c "$(stat -c %s before.partition.0)" /dev/urandom >new.partition
for file in ranks/0/params/one/fp32 ranks/1/params/one/fp32; do
	refused "Permission denied" cp new "$M/$file"
	[ "$(stat -c %a "$M/$file")" = 444 ] || fail "$file: mode $(stat -c %a "$M/$file")"
done
for file in ranks/0/partitions/0.0/exp_avg ranks/1/partitions/0.0/exp_avg; do
	refused "Permission denied" cp new.partition "$M/$file"
done
[ "$(grep -c 'ranks/.* is not writable: .*rw,local' "$M/.frag/log")" = 1 ] || fail "$(cat "$M/.frag/log")"
ask check
unmount

mount_job rw,local
[ "$(stat -c %a "$M/ranks/1/params/one/fp32")" = 644 ] || fail "not writable: $(ls -l "$M/ranks/1/params/one")"
within 60 cp new "$M/ranks/1/params/one/fp32" || fail "an edit of rank 1's"
within 60 cp new.partition "$M/ranks/0/partitions/0.0/exp_avg" || fail "an edit of rank 0's partition"
look after
same before.0 after.0
same new after.1
same before.bf16 after.bf16
same new.partition after.partition.0
same before.partition.1 after.partition.1
for line in '"param":"one","state":"fp32","local_to_rank":1,.*"outcome":"committed"' \
	'"group":0,"sub_group":0,"state":"exp_avg","local_to_rank":0,.*"outcome":"committed"'; do
	[ "$(grep -c "$line" "$M/.frag/log")" = 1 ] || fail "$line: $(cat "$M/.frag/log")"
done
within 60 cp new "$param/fp32" || fail "an edit of all ranks"
! grep '"param":"one"' "$M/.frag/log" | grep -v '"local_to_rank":1' | grep -q local || fail "all ranks, called local"
unmount

refused "option local is for a mount that is rw" fragfs "$address" "$M" -o local
refused "option local is for a mount that is rw" fragfs "$address" "$M" -o rw,local,ro
end_job
