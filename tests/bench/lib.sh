# SPDX-License-Identifier: Apache-2.0
# For the scripts of tests/bench: a job to measure, mounts, medians, rows.  They source it, with the
# build folder as the current one.
set -eu
LC_ALL=C
export LC_ALL
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT FRAG_RANK FRAG_PORT FRAG_PLAIN FRAG_KEY_FILE FRAG_RDZV FRAG_BULK
builddir=${top_builddir:-$PWD}
tools=$builddir/tests/bench
rounds=${FRAG_BENCH_ROUNDS:-7}
job='' readers='' mounts='' measuring='the first row'

skip() {
	echo "${0##*/}: skipped: $*" >&2
	exit 77
}

[ -r /dev/fuse ] && [ -w /dev/fuse ] || skip "/dev/fuse is missing or not for this user"
work=$(mktemp -d "${TMPDIR:-/tmp}/frag-bench.XXXXXX")
shm=$(mktemp -d "/dev/shm/frag-bench${BENCH_RUN:+-$BENCH_RUN}.XXXXXX") || skip "/dev/shm is not there"
XDG_RUNTIME_DIR=$work HOME=$work
export XDG_RUNTIME_DIR HOME

clean_up() {
	trap - EXIT
	[ -z "$job$readers" ] || kill $job $readers 2>/dev/null || :
	for mnt in $mounts; do fusermount3 -u -z "$mnt" 2>/dev/null || umount -l "$mnt" || :; done
	rm -rf --one-file-system "$work" "$shm"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'echo "bench: ended while it measured $measuring" >&2; exit 143' TERM HUP

# ---- a job, its mounts ----

# start_job RANKS BYTES PARAMS [kept]: sets $job and $address.
start_job() {
	mkfifo "$work/commands" "$work/answers"
	"$tools/bench-job" "$@" <"$work/commands" >"$work/answers" &
	job=$!
	exec 3>"$work/commands" 4<"$work/answers"
	read -r address <&4
	mode=idle
}

# job_does idle|train|commit
job_does() {
	echo "$1" >&3
	read -r answer <&4
	mode=$1
}

stop_job() {
	exec 3>&- 4<&-
	wait "$job"
	job=''
	rm "$work/commands" "$work/answers"
}

# mount_frag MOUNTPOINT [OPTIONS]
mount_frag() {
	mkdir -p "$1"
	"$builddir/fragfs" "$address" "$1" ${2:+-o "$2"} 3>&- 4<&-
	mounts="$1 $mounts"
}

# mount_trivial MOUNTPOINT BYTES [FILES]
mount_trivial() {
	mkdir -p "$1"
	"$tools/trivial-server" "$@" 3>&- 4<&-
	mounts="$1 $mounts"
	first=state
	[ $# = 2 ] || first=0
	cmp -n 4096 "$1/$first" /dev/zero >/dev/null 2>&1 || : # it has its memory when it answers
}

unmount() {
	fusermount3 -u "$1" 2>/dev/null || umount "$1"
	mounts=$(echo " $mounts " | sed "s| $1 | |; s/^ *//; s/ *\$//")
}

# The process behind a mount.
server_of() {
	grep -lzxF "$1" /proc/[0-9]*/cmdline 2>/dev/null | while IFS=/ read -r _ _ pid _; do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" != fragfs ] || echo "$pid"
	done
}

# ---- measuring ----

# Seconds that dd says.
dd_of() {
	said=$(dd if="$1" of=/dev/null bs=1M 2>&1) || { echo "$said" >&2; exit 1; }
	echo "$said" | sed -n 's/.* copied, \([0-9.e-]*\) s,.*/\1/p'
}

# interleave FUNCTION...: calls each as often as $rounds says, in turn, there and back; what each
# prints is kept for median.
interleave() {
	for f; do : >"$work/times.$f"; done
	round=0
	while [ $round -lt "$rounds" ]; do
		order=
		for f; do
			if [ $((round % 2)) = 0 ]; then order="$order $f"; else order="$f $order"; fi
		done
		for f in $order; do
			measuring="$f, round $((round + 1)) of $rounds, after ${measured:-no row}"
			"$f" >>"$work/times.$f"
		done
		round=$((round + 1))
	done
}

# median FUNCTION [COLUMN]
median() {
	awk -v c="${2:-1}" '{ print $c }' "$work/times.$1" | sort -g | awk '{ v[NR] = $1 }
		END { printf "%.10g\n", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# rate BYTES SECONDS: GB/s
rate() {
	awk -v b="$1" -v s="$2" 'BEGIN { printf "%.4g", b / s / 1e9 }'
}

# row NAME VALUE UNIT REFERENCE REFERENCE_VALUE GOAL BETTER [RATIO SPREAD]; GOAL may be null, the two of the
# reference together, and so RATIO, which is that of the values where it is not given.
row() {
	measured="row \"$1\""
	awk -v name="$1" -v value="$2" -v unit="$3" -v reference="$4" -v of="$5" -v goal="$6" \
		-v better="$7" -v ratio="${8:-}" -v spread="${9:-null}" 'BEGIN {
		if (ratio == "") ratio = of == "null" ? "null" : sprintf("%.4g", value / of)
		if (of != "null") reference = "\"" reference "\""
		printf "{\"name\": \"%s\", \"value\": %s, \"unit\": \"%s\", \"reference\": %s, ", name, value, unit, reference
		printf "\"reference_value\": %s, \"ratio\": %s, \"spread\": %s, ", of, ratio, spread
		printf "\"goal\": %s, \"better\": \"%s\"}\n", goal, better
	}'
}
