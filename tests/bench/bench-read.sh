# SPDX-License-Identifier: Apache-2.0
# Reading and writing the state of a job through fragfs, against a server that does nothing but
# answer, and against tmpfs.  FRAG_BENCH_BYTES: size of the state.
. "$(dirname "$0")/lib.sh"

# Three states of the ranks, the trivial server's memory, the file in tmpfs, what is staged.
available=$(awk '/^MemAvailable/ { print int($2 / 1024 / 8) }' /proc/meminfo)
[ "$available" -lt 1024 ] || available=1024
bytes=${FRAG_BENCH_BYTES:-$((available << 20))}
[ "$bytes" -ge 16777216 ] || skip "too little memory is free"
size="$((bytes >> 20)) MiB"

# ---- what is run; each prints numbers ----

dd_frag() { dd_of "$file"; }
dd_trivial() { dd_of "$work/trivial/state"; }
dd_tmpfs() { dd_of "$shm/state"; }
cat_frag() { "$tools/measure" time cat "$file"; }
cat_trivial() { "$tools/measure" time cat "$work/trivial/state"; }
cat_tmpfs() { "$tools/measure" time cat "$shm/state"; }
random_frag() { "$tools/measure" random "$file" 4000; }
random_trivial() { "$tools/measure" random "$work/trivial/state" 4000; }
write_frag() { "$tools/measure" write "$file"; }
write_trivial() { "$tools/measure" write "$work/trivial/state"; }
copy() { "$tools/measure" copy "$bytes"; }

# rate_of FUNCTION [COLUMN]
rate_of() { rate "$bytes" "$(median "$@")"; }

# ---- what the memory is made of ----

# KiB of the ranks' memory in huge pages of a kind.
huge_kib() {
	for pid in $(cat "/proc/$job/task/$job/children" 2>/dev/null); do
		cat "/proc/$pid/smaps_rollup" 2>/dev/null
	done | awk -v kind="^$1:" '$0 ~ kind { sum += $2 } END { print sum + 0 }'
}

# Of the state that the engine allocated.
engine_pages() {
	want=$((bytes / 1024 * 9 / 10))
	if [ "$(huge_kib ShmemPmdMapped)" -ge $want ]; then
		echo "shared 2 MiB pages"
	elif [ "$(huge_kib AnonHugePages)" -ge $((2 * want)) ]; then
		echo "anonymous 2 MiB pages"
	else
		echo "4 KiB pages"
	fi
}

trainer_pages() {
	if [ "$(huge_kib AnonHugePages)" -ge $((bytes / 1024 * 9 / 10)) ]; then
		echo "anonymous 2 MiB pages"
	else
		echo "4 KiB pages"
	fi
}

# ---- rows ----

# dd_rows NAME GOAL-TRIVIAL GOAL-TMPFS
dd_rows() {
	interleave dd_frag dd_trivial dd_tmpfs
	row "dd $size, $1, $mode" "$(rate_of dd_frag)" GB/s "trivial server" \
		"$(rate_of dd_trivial)" "$2" higher
	row "dd $size, $1, $mode" "$(rate_of dd_frag)" GB/s tmpfs "$(rate_of dd_tmpfs)" "$3" higher
}

cat_rows() {
	interleave cat_frag cat_trivial cat_tmpfs
	row "cat $size, $1, $mode" "$(rate_of cat_frag)" GB/s "trivial server" \
		"$(rate_of cat_trivial)" null higher
	row "cat $size, $1, $mode" "$(rate_of cat_frag)" GB/s tmpfs "$(rate_of cat_tmpfs)" null higher
}

random_rows() {
	interleave random_frag random_trivial
	row "4 KiB at random, $1, $mode, p50" "$(median random_frag)" us "trivial server" \
		"$(median random_trivial)" "$2" lower
	row "4 KiB at random, $1, $mode, p99" "$(median random_frag 2)" us "trivial server" \
		"$(median random_trivial 2)" null lower
}

owner_bytes() {
	awk '/^fragfs_owner_(memory|message)_bytes_total / { sum += $2 } END { printf "%.0f", sum }' \
		"$work/frag/.frag/metrics"
}

touched() {
	before=$(owner_bytes)
	dd_frag >/dev/null
	echo $(($(owner_bytes) - before))
}

touched_row() {
	interleave touched
	row "bytes touched at the owners, $1" "$(median touched)" B "bytes read" "$bytes" 1.01 lower
}

write_rows() {
	interleave write_frag write_trivial copy
	row "write(2) into staging, $size" "$(rate_of write_frag)" GB/s "trivial server" \
		"$(rate_of write_trivial)" 0.90 higher
	row "commit at close, $size" "$(rate_of write_frag 2)" GB/s memcpy "$(rate_of copy)" 0.33 higher
}

# ---- the machine's own way ----

start_job 4 "$bytes" 1 kept
mount_trivial "$work/trivial" "$bytes"
mount_frag "$work/frag"
state=$work/frag/params/state
cp "$state/fp32" "$shm/state"
engine="engine's $(engine_pages)"
trainer="trainer's"

for does in idle train; do
	job_does $does
	file=$state/fp32
	dd_rows "$engine" 0.95 1.0
	random_rows "$engine" 2
	file=$state/exp_avg
	dd_rows "$trainer $(trainer_pages)" null null
	file=$state/exp_avg_sq
	dd_rows "$trainer 4 KiB pages" null null
done
job_does idle
file=$state/fp32
cat_rows "$engine"
touched_row "$engine"
file=$state/exp_avg
touched_row "$trainer $(trainer_pages)"
unmount "$work/frag"

# ---- writing ----

mount_frag "$work/frag" "rw,stage_mem=$((2 * bytes))"
job_does commit
file=$state/fp32
write_rows
job_does idle
unmount "$work/frag"

# ---- by messages ----

dd_socket() { "$tools/measure" socket "$bytes"; }
random_socket() { "$tools/measure" asks 4000; }

# by_messages OPTIONS NAME GOAL-DD GOAL-4-KIB, against a socket
by_messages() {
	mount_frag "$work/frag" "$1"
	file=$state/fp32
	dd_frag >/dev/null # which connects
	interleave dd_frag dd_trivial dd_socket
	row "dd $size of another host, $2" "$(rate_of dd_frag)" GB/s "trivial server" \
		"$(rate_of dd_trivial)" null higher
	row "dd $size of another host, $2" "$(rate_of dd_frag)" GB/s "TCP socket" \
		"$(rate_of dd_socket)" "$3" higher
	interleave random_frag random_trivial random_socket
	row "4 KiB at random of another host, $2, p50" "$(median random_frag)" us "trivial server" \
		"$(median random_trivial)" null lower
	row "4 KiB at random of another host, $2, p50" "$(median random_frag)" us "TCP socket" \
		"$(median random_socket)" "$4" lower
	unmount "$work/frag"
}

[ "$rounds" -lt 3 ] || rounds=3
by_messages transport=zmq TLS 0.7 null
stop_job
export FRAG_BULK=zmq
start_job 4 "$bytes" 1
by_messages transport=zmq CURVE null null
stop_job
FRAG_PLAIN=1
export FRAG_PLAIN
start_job 4 "$bytes" 1
by_messages transport=zmq,plain plain null null
stop_job
