#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A ZeRO-3 checkpoint of a Llama of 70 B parameters, of 64 ranks: its metadata are real, its values holes but for some.
# It takes seconds and little memory to mount it, and to read a part of it.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
PATH=$top_builddir/tests/zero:$PATH

memory_max=100 # MB
seconds_max=20

now_ms() { echo $(($(date +%s%N) / 1000000)); }

need_sparse_files() {
	truncate -s 14G "$T/sparse" 2>"$T/why" || skip "no file of 14 GB: $(cat "$T/why")"
	[ "$(du -k "$T/sparse" | cut -f 1)" -lt 1000 ] || skip "the file system has no sparse files"
	rm "$T/sparse"
}

# make_checkpoint OPTIONS...
make_checkpoint() {
	rm -rf "$T/c"
	mkdir "$T/c"
	within 60 make-zero -s "$@" "$T/c" 3 64 70b >"$T/known" || fail "make-zero: status $?"
}

mount_checkpoint() {
	before=$(now_ms)
	within $seconds_max fragfs "$T/c" "$M" || fail "fragfs: status $?"
	echo "mounted in $(($(now_ms) - before)) ms"
}

check_memory() {
	peak=$(for pid in $(servers); do sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$pid/status"; done |
		sort -n | tail -n 1)
	echo "memory $((peak / 1000)) MB, $1"
	[ "$sanitizer" != no ] || [ "$peak" -lt $((memory_max * 1000)) ] || fail "memory: $peak kB, $1"
}

# value NAME STATE ELEMENT: as hexadecimal digits
value() {
	dd if="$M/params/$1/$2" bs=4 skip="$3" count=1 2>/dev/null | od -An -tx4 | tr -d ' '
}

check_known() {
	awk "NR % $1 == 1" "$T/known" | while read -r name state element expected; do
		[ "$(value "$name" "$state" "$element")" = "$expected" ] ||
			fail "$name/$state[$element]: $(value "$name" "$state" "$element"), not $expected"
	done
}

read_bytes() { sed -n 's/^fragfs_read_bytes_total //p' "$M/.frag/metrics"; }

check_norm() {
	bytes=$(read_bytes) before=$(now_ms)
	within 60 cat "$M/params/model.norm.weight/fp32" >"$T/norm" || fail "cat: status $?"
	echo "a norm of 8192 elements read in $(($(now_ms) - before)) ms"
	[ "$(stat -c %s "$T/norm")" = 32768 ] || fail "size of a norm"
	[ $(($(read_bytes) - bytes)) -le 65536 ] || fail "a norm cost $(($(read_bytes) - bytes)) bytes"
}

# Checks hf/: no shard exceeds the size, and a byte of the last one costs no read of the others.
check_hf() {
	hf=$M/export/hf before=$(now_ms)
	n=$(ls "$hf" | grep -c '^model-000..-of-000..[.]safetensors$')
	[ "$n" -gt 28 ] && [ "$n" -lt 40 ] || fail "$n shards of 141 GB"
	[ "$(stat -c %s "$hf"/*.safetensors | sort -n | tail -n 1)" -lt 5001000000 ] || fail "a shard of more than 5 GB"
	[ "$(grep -c '": "model-' "$hf/model.safetensors.index.json")" = 723 ] || fail "the index has not all"
	bytes=$(read_bytes)
	tail -c 10000 "$hf/model-000$n-of-000$n.safetensors" >"$T/tail"
	[ "$(wc -c <"$T/tail")" = 10000 ] || fail "the end of the last shard"
	[ $(($(read_bytes) - bytes)) -le 2097152 ] || fail "10 kB cost $(($(read_bytes) - bytes)) bytes"
	echo "$n shards listed and one read in $(($(now_ms) - before)) ms"
}

need_sparse_files
make_checkpoint
mount_checkpoint
check_memory "mounted"
[ "$(ls "$M/params" | wc -l)" = 723 ] || fail "$(ls "$M/params" | wc -l) parameters"
[ "$(stat -c %s "$M/params/lm_head.weight/exp_avg")" = 1048576000 ] || fail "size of lm_head.weight"
[ "$(cat "$M/step")" = 1000 ] || fail "step $(cat "$M/step")"
check_norm
check_known 97
check_hf
check_memory "read"
unmount

# One sub-group, whose storages have more than 4 GiB.
make_checkpoint -g 1000000000000
mount_checkpoint
check_known 997
unmount
