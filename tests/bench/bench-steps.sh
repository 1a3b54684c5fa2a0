# SPDX-License-Identifier: Apache-2.0
# What readers cost a job: the step time of docs/examples/train while nobody, one or eight read all its
# state, against the same readers of the same bytes in tmpfs.
. "$(dirname "$0")/lib.sh"

seconds=1 # of a period

# ---- the job ----

start_trainer() {
	FRAG_JOB_ID=bench-steps-$$ WORLD_SIZE=2
	export FRAG_JOB_ID WORLD_SIZE
	for rank in 0 1; do
		RANK=$rank "$builddir/docs/examples/train" --forever --every 1 --hidden 200 \
			--stage 1 >"$work/train.$rank" 2>&1 &
		job="$job $!"
	done
	tries=0
	until [ "$(grep -c '^step' "$work/train.0")" -gt 20 ]; do
		[ $((tries += 1)) -lt 300 ] || { echo "the trainer does not step" >&2; exit 1; }
		sleep 0.1
	done
	address=$(sed -n 's/^train: address //p' "$work/train.0")
}

steps() { grep -c '^step' "$work/train.0"; }

# Milliseconds of a step, of those that end within a period.
step_time() {
	from=$(steps)
	sleep "$seconds"
	to=$(steps)
	sed -n "/^step/p" "$work/train.0" | awk -v from="$from" -v to="$to" \
		'NR > from && NR <= to { sum += $5; n++ } END { printf "%.6f", sum / n }'
}

# ---- what is there beside it ----

# start_readers COUNT FOLDER: each loops over all states below it.
start_readers() {
	rm -f "$work"/read.*
	n=0
	while [ $n -lt "$1" ]; do
		"$tools/measure" loop "$2"/*/fp32 "$2"/*/exp_avg "$2"/*/exp_avg_sq "$2"/*/grad \
			"$2"/*/bf16 >"$work/read.$n" &
		readers="$readers $!" n=$((n + 1))
	done
}

stop_readers() {
	kill $readers
	wait $readers || :
	readers=
}

bytes_read() { cat "$work"/read.* | awk '{ sum += $1 } END { printf "%.0f", sum }'; }

# fragfs_rank_NUMBER, summed over the ranks.
rank_number() {
	awk -v name="^fragfs_rank_$1[{]" '$0 ~ name { sum += $2 } END { printf "%.9f", sum }' \
		"$work/frag/.frag/metrics"
}

# with_readers COUNT FOLDER: step time, bytes read, seconds held and bytes kept of a rank's step.
with_readers() {
	first=$(steps) held=$(rank_number held_seconds_total) kept=$(rank_number kept_bytes_total)
	start_readers "$@"
	time=$(step_time)
	stop_readers
	last=$(steps)
	echo "$time $(bytes_read) $held $(rank_number held_seconds_total)" \
		"$kept $(rank_number kept_bytes_total) $((last - first))" |
		awk '{ print $1, $2, ($4 - $3) / $7 / 2 * 1e6, ($6 - $5) / $7 / 2 }'
}

no_mount() {
	unmount "$work/frag"
	step_time
	mount_frag "$work/frag"
}

idle_mount() { step_time; }
one_frag() { with_readers 1 "$work/frag/params"; }
one_tmpfs() { with_readers 1 "$shm/params"; }
eight_frag() { with_readers 8 "$work/frag/params"; }
eight_tmpfs() { with_readers 8 "$shm/params"; }

# ---- rows ----

# reader_rows NAME FUNCTION-PART GOAL
reader_rows() {
	interleave "$2_frag" "$2_tmpfs"
	row "step of the example trainer, $1" "$(median "$2_frag")" ms "same of tmpfs" \
		"$(median "$2_tmpfs")" "$3" lower
	row "bytes read a second, $1" "$(rate "$(median "$2_frag" 2)" $seconds)" GB/s "same of tmpfs" \
		"$(rate "$(median "$2_tmpfs" 2)" $seconds)" null higher
	row "trainer's thread in frag_ calls for them, of a step, $1" "$(median "$2_frag" 3)" us \
		null null null lower
	row "bytes preserved by a rank in a step, $1" "$(median "$2_frag" 4)" B null null null lower
}

start_trainer
mount_frag "$work/frag"
for state in fp32 exp_avg exp_avg_sq grad bf16; do
	for param in "$work"/frag/params/*; do
		mkdir -p "$shm/params/${param##*/}"
		cp "$param/$state" "$shm/params/${param##*/}/"
	done
done
usual=$rounds
rounds=$((4 * usual)) # a thousandth is looked for
interleave no_mount idle_mount
row "step of the example trainer, mount idle" "$(median idle_mount)" ms "no mount" \
	"$(median no_mount)" 1.001 lower
rounds=$((2 * usual))
reader_rows "1 reader" one 1.02
reader_rows "8 readers" eight 1.05
