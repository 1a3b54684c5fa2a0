#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Bytes that are written through a mount are in the memory of every holder, of replicas and low-precision copies too,
# and no other bytes change: whole states by cp, parts by dd, bytes that cut elements, on NVMe too.  The ranks
# themselves check it.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"
worlds='1 2 3 8'
[ "${sanitizer:-no}" = no ] || worlds='1 3'

# write_whole PARAM NAME KEY
write_whole() {
	file=$M/params/$2/$3
	head -c "$(stat -c %s "$file")" /dev/urandom >new
	within 60 cp new "$file" || fail "$what: cp to $file"
	ask change "$1" "$3" 0 "$T/new"
	ask check
	cmp "$file" new || fail "$what: $file reads otherwise"
}

# write_part PARAM NAME KEY OFFSET SIZE
write_part() {
	file=$M/params/$2/$3
	head -c "$5" /dev/urandom >new
	dd if=new of="$file" bs=4096 oflag=seek_bytes seek="$4" conv=notrunc status=none || fail "$what: dd to $file"
	ask change "$1" "$3" "$4" "$T/new"
	ask check
}

write_some() {
	write_whole one one fp32
	write_whole a/b a%2Fb fp32
	write_whole odd.w odd.w exp_avg
	write_whole cube cube grad
	write_part embed.weight embed.weight fp32 4096 8192
	write_part embed.weight embed.weight fp32 30001 7
	write_part odd.w odd.w fp32 $((61 * 37 * 4 - 3)) 3
	write_part odd.w odd.w fp32 "$(chance 4000)" "$((1 + $(chance 5000)))"
	write_part scalar scalar fp32 1 2
	write_part a/b a%2Fb grad "$(chance 6000)" "$((1 + $(chance 6000)))"
	write_part two two exp_avg 3 2
}

# went_by memory|message: ranks have copied the bytes out of the mount's memory, or were sent them: never both.
went_by() {
	awk -v way="fragfs_commit_$1_bytes_total" '
		/^fragfs_commit_(memory|message)_bytes_total / && ($1 == way) != ($2 > 0) { exit 1 }' "$M/.frag/metrics" ||
		fail "$what: not by $1: $(grep '^fragfs_commit_' "$M/.frag/metrics")"
}

write_small() { # write_small LAYOUT WORLD [OPTIONS WAY]
	start_job "$1" "$2" small
	ask check
	mount_job "rw${3:+,$3}"
	write_some
	went_by "${4:-memory}"
	unmount
	end_job
}

for layout in 0 1 2 3 fsdp2; do
	for world in $worlds; do
		write_small $layout "$world"
	done
done
on_nvme write_small 1 3
on_nvme write_small 3 3
write_small 2 3 transport=zmq message
FRAG_PLAIN=1
export FRAG_PLAIN
write_small 1 2 plain message
unset FRAG_PLAIN
# Ranks that may not read the mount's memory, as under Yama.
as='setpriv --bounding-set=-sys_ptrace'
[ "$(id -u)" != 0 ] || ! $as true || write_small 3 2 "" message
as=

# A frozen parameter has no master: the bf16 values themselves are written, on every rank.
write_frozen() { # write_frozen LAYOUT WORLD
	start_job "$1" "$2" frozen
	mount_job rw
	write_whole tokens tokens bf16
	write_part tokens tokens bf16 4099 8193
	write_whole scale scale bf16
	write_whole w w fp32
	for file in "$M/params/w/bf16" "$M/ranks/0/params/tokens/bf16"; do
		refused 'Permission denied' dd if=new of="$file" conv=notrunc
	done
	ask check
	ask views "$M"
	unmount
	mount_job
	refused 'Read-only file system' dd if=new of="$M/params/tokens/bf16" conv=notrunc
	unmount
	end_job
}
for layout in 0 2 3 fsdp2; do
	write_frozen $layout 3
done
write_frozen 3 1

start_job 3 4 some
mount_job rw,transport=zmq
write_whole w w fp32
write_part v v fp32 1000001 700001
unmount
end_job
FRAG_PLAIN=1
export FRAG_PLAIN
start_job 0 3 some
mount_job rw,plain
write_whole v v fp32
write_part w w fp32 99999 1000003
write_part w w exp_avg 4093 4097
unmount
end_job
