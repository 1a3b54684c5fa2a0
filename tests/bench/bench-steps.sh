# SPDX-License-Identifier: Apache-2.0
# What a mount and its readers cost a job: the step time of docs/examples/train, while nobody, one or eight read all
# its state, against the same readers of the same bytes in tmpfs, in windows of some steps in turn.  The
# ranks, fragfs and the readers share two cores.
. "$(dirname "$0")/lib.sh"

shape="--hidden 1024 --batch 16 --stage 1" # 23 MB of state in files of up to 4 MiB, steps of some 50 ms
seconds=1                                  # in which a reader reads it all
pairs=$((6 * rounds))

command -v taskset >/dev/null || skip "taskset is not there"
cores=$(taskset -pc $$ | sed 's/.*: //; s/-/,/' | cut -d, -f1,2)
taskset -pc "$cores" $$ >/dev/null

# ---- the job ----

start_trainer() {
	FRAG_JOB_ID=bench-steps-$$ WORLD_SIZE=2
	export FRAG_JOB_ID WORLD_SIZE
	mkfifo "$work/lines"
	for rank in 0 1; do
		quiet=--quiet out=/dev/null
		[ $rank = 1 ] || quiet='' out="$work/lines"
		RANK=$rank taskset -c "$(echo "$cores" | cut -d, -f$((rank + 1)))" \
			"$builddir/docs/examples/train" --forever --every 1 $shape $quiet \
			>"$out" 2>"$work/train.$rank" &
		job="$job $!"
	done
	exec 5<"$work/lines"
	while read -r line <&5; do
		address=${line#train: address }
		[ "$address" = "$line" ] || return 0
	done
	echo "the trainer has no address" >&2
	exit 1
}

pids() { echo $job | tr ' ' ,; }

# steps NAME READERS RATE A... -- B...: its lines are kept for part.
steps() {
	name=$1
	shift
	"$tools/steps" "$pairs" "$(pids)" "$@" <&5 >"$work/steps.$name" || {
		cat "$work"/train.? >&2
		exit 1
	}
}

# part NAME METRIC COLUMN
part() { awk -v m="$2" -v c="$3" '$1 == m { print $(c + 1) }' "$work/steps.$1"; }

# cost_row NAME METRIC TITLE UNIT REFERENCE GOAL
cost_row() {
	row "$3" "$(part "$1" "$2" 1)" "$4" "$5" "$(part "$1" "$2" 2)" "$6" lower \
		"$(part "$1" "$2" 3)" "$(part "$1" "$2" 4)"
}

# ---- what is there beside it ----

states() { find "$1" -name fp32 -o -name exp_avg -o -name exp_avg_sq -o -name grad -o -name bf16 | sort; }

# fragfs_rank_NUMBER, summed over the ranks.
rank_number() {
	awk -v name="^fragfs_rank_$1[{]" '$0 ~ name { sum += $2 } END { printf "%.9f", sum }' \
		"$mnt/.frag/metrics"
}

# grown READERS NAME BEFORE SCALE: of a rank, in one of the steps with readers of fragfs.
grown() {
	rank_number "$2" | awk -v before="$3" -v scale="$4" -v steps="$(part "$1" steps 1)" \
		'{ printf "%.4g", ($1 - before) * scale / steps / 2 }'
}

# ---- rows ----

idle_rows() {
	on="mountpoint -q '$mnt' || '$builddir/fragfs' '$address' '$mnt' 5<&-"
	off="! mountpoint -q '$mnt' || fusermount3 -u '$mnt' || umount '$mnt'"
	steps idle 0 0 "$on" -- "$off"
	sh -c "$on"
	cost_row idle step "step of the example trainer, mount idle" ms "no mount" 1.001
	cost_row idle cpu "trainer's thread on a core in a step, mount idle" ms "no mount" 1.001
}

# Gradients are looked at once in each step, and the ranks wait for each other at both of its boundaries.
watch_rows() {
	sh -c "$off"
	"$builddir/fragfs" "$address" "$mnt" -o rw 5<&-
	steps watch 0 0 "echo 'break nan(grad) > 0' >'$mnt/.frag/control'" -- "echo 'break off' >'$mnt/.frag/control'"
	cost_row watch step "step of the example trainer, watched for a NaN" ms "not watched" 1.05
	cost_row watch cpu "trainer's thread on a core in a step, watched for a NaN" ms "not watched" null
	cost_row watch other "engine's threads on a core in a step, watched for a NaN" ms "not watched" null
	sh -c "$off"
	sh -c "$on"
}

# reader_rows COUNT TITLE RATE GOAL
reader_rows() {
	held=$(rank_number held_seconds_total) kept=$(rank_number kept_bytes_total)
	steps "$1" "$1" "$3" $(states "$mnt/params") -- $(states "$shm/params")
	cost_row "$1" step "step of the example trainer, $2" ms "same of tmpfs" "$4"
	cost_row "$1" cpu "trainer's thread on a core in a step, $2" ms "same of tmpfs" "$4"
	cost_row "$1" other "engine's threads on a core in a step, $2" ms "same of tmpfs" null
	row "bytes read a second, $2" "$(rate "$(part "$1" read 1)" 1)" GB/s "same of tmpfs" \
		"$(rate "$(part "$1" read 2)" 1)" null higher
	row "trainer's thread in frag_ calls, a step, $2" \
		"$(grown "$1" held_seconds_total "$held" 1e6)" us null null null lower
	row "bytes preserved by a rank in a step, $2" "$(grown "$1" kept_bytes_total "$kept" 1)" B \
		null null null lower
}

start_trainer
mnt=$work/frag mounts=$work/frag
mkdir "$mnt"
idle_rows
watch_rows
for file in $(cd "$mnt/params" && states .); do
	mkdir -p "$shm/params/${file%/*}"
	cp "$mnt/params/$file" "$shm/params/$file"
done
all=$(cat $(states "$shm/params") | wc -c)
reader_rows 1 "1 reader of $((all / seconds / 1000000)) MB/s" $((all / seconds)) 1.02
reader_rows 8 "8 readers of $((all / seconds / 1000000)) MB/s" $((all / seconds)) 1.05
