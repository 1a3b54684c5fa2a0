# SPDX-License-Identifier: Apache-2.0
# A job of very many parameters: mounting it, listing it, what fragfs needs for it.
# FRAG_BENCH_PARAMS: how many.
. "$(dirname "$0")/lib.sh"

params=${FRAG_BENCH_PARAMS:-100000}
many="$((params / 1000))k parameters"
[ "$rounds" -lt 5 ] || rounds=5

mount_anew() {
	[ -z "$mounts" ] || unmount "$work/frag"
	mount_frag "$work/frag"
}

mount_time() {
	[ -z "$mounts" ] || unmount "$work/frag"
	mounts="$work/frag"
	"$tools/measure" time "$builddir/fragfs" "$address" "$work/frag" 3>&- 4<&-
}

list() { "$tools/measure" time ls -l "$1"; }
ls_cold() { mount_anew; list "$work/frag/params"; }
ls_warm() { list "$work/frag/params"; }
ls_tmpfs() { list "$shm/params"; }
find_frag() { "$tools/measure" time find "$work/frag/params" -maxdepth 1; }
find_tmpfs() { "$tools/measure" time find "$shm/params" -maxdepth 1; }

# An entry's, microseconds.
each() { awk -v s="$(median "$1")" -v n="$params" 'BEGIN { printf "%.4g", s / n * 1e6 }'; }

start_job 1 $((params * 64)) "$params"
mkdir -p "$work/frag" "$shm/params"
awk -v n="$params" 'BEGIN { for (i = 0; i < n; i++) printf "layers.%06d.weight\n", i }' |
	(cd "$shm/params" && xargs mkdir)

interleave mount_time
row "mount, $many" "$(median mount_time)" s null null null lower
interleave ls_cold ls_warm ls_tmpfs
row "ls -l params, $many, cold, an entry" "$(each ls_cold)" us tmpfs "$(each ls_tmpfs)" 3 lower
row "ls -l params, $many, warm, an entry" "$(each ls_warm)" us tmpfs "$(each ls_tmpfs)" 3 lower
interleave find_frag find_tmpfs
row "find params, $many, an entry" "$(each find_frag)" us tmpfs "$(each find_tmpfs)" null lower
row "memory of fragfs, $many" \
	"$(awk '/^VmHWM/ { print $2 / 1024 }' "/proc/$(server_of "$work/frag")/status")" MiB null null null lower
unmount "$work/frag"
stop_job
