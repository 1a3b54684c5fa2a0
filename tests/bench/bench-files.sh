# SPDX-License-Identifier: Apache-2.0
# A state of many small files, all read by cat: what opening, looking for the owners and closing cost, against
# the trivial server's files and tmpfs.  FRAG_BENCH_BYTES: size of the state of 4 MiB files.
. "$(dirname "$0")/lib.sh"

available=$(awk '/^MemAvailable/ { print int($2 / 1024 / 8) }' /proc/meminfo)
[ "$available" -lt 1024 ] || available=1024
bytes=${FRAG_BENCH_BYTES:-$((available << 20))}
[ "$bytes" -ge 16777216 ] || skip "too little memory is free"
[ "$rounds" -lt 5 ] || rounds=5

cat_all() { "$tools/measure" time sh -c 'xargs cat' <"$work/list.$1"; }
warm() { cat_all frag; }
trivial() { cat_all trivial; }
tmpfs() { cat_all tmpfs; }

cold() {
	unmount "$work/frag"
	mount_frag "$work/frag"
	cat_all frag
}

# A file's, microseconds.
each() { awk -v s="$(median "$1")" -v n="$files" 'BEGIN { printf "%.4g", s / n * 1e6 }'; }

# file_rows SIZE-NAME SIZE BYTES
file_rows() {
	files=$(($3 / $2))
	start_job 4 "$3" "$files"
	mount_frag "$work/frag"
	mount_trivial "$work/trivial" "$3" "$files"
	mkdir "$shm/files"
	head -c "$3" /dev/zero | (cd "$shm/files" && split -a 6 -d -b "$2")
	find "$work/frag/params" -name fp32 >"$work/list.frag"
	find "$shm/files" -type f >"$work/list.tmpfs"
	seq -f "$work/trivial/%.0f" 0 $((files - 1)) >"$work/list.trivial"
	for system in frag trivial tmpfs; do cat_all $system >/dev/null; done
	interleave warm trivial tmpfs
	row "cat of $files files of $1, a file" "$(each warm)" us "trivial server" "$(each trivial)" 1.15 lower
	row "cat of $files files of $1, a file" "$(each warm)" us tmpfs "$(each tmpfs)" null lower
	interleave cold
	row "cat of $files files of $1, freshly mounted, a file" "$(each cold)" us null null null lower
	unmount "$work/frag"
	unmount "$work/trivial"
	rm -r "$shm/files"
	stop_job
}

file_rows "4 MiB" 4194304 "$bytes"
file_rows "64 KiB" 65536 $((bytes / 4))
file_rows "4 KiB" 4096 $((bytes / 16))
