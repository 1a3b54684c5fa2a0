# SPDX-License-Identifier: Apache-2.0
# A checkpoint of DeepSpeed, mounted: all its fp32 files against plain files of the same bytes on the same file
# system, and getting one parameter and all against DeepSpeed's zero_to_fp32.
# FRAG_BENCH_BYTES: of its fp32; 4.5 times as much is needed on the disk.  FRAG_BENCH_PYTHON: has torch and deepspeed.
. "$(dirname "$0")/lib.sh"

bytes=${FRAG_BENCH_BYTES:-1073741824}
python=${FRAG_BENCH_PYTHON:-python3}
source=$(dirname "$0")
[ "$rounds" -lt 5 ] || rounds=5
usual=$rounds
[ "$(df -Pk "$work" | awk 'END { print $4 }')" -gt $((bytes / 1024 * 5)) ] || skip "too little room in $work"

PATH=$builddir/tests/zero:$PATH
tag=global_step1000
one=model.layers.3.mlp.up_proj.weight
address=$work/checkpoint

# ---- what is run; each prints numbers ----

can_drop() { sync && echo 1 2>/dev/null >/proc/sys/vm/drop_caches; }

mount_anew() {
	[ -z "$mounts" ] || unmount "$work/frag"
	mount_frag "$work/frag"
}

cat_all() { "$tools/measure" time sh -c 'xargs cat' <"$work/list.$1"; }

cold_frag() { mount_anew && can_drop && cat_all frag; }
cold_plain() { can_drop && cat_all plain; }
first_frag() { mount_anew && cat_all frag; }
cached_frag() { cat_all frag; }
cached_plain() { cat_all plain; }
cached_trivial() { cat_all trivial; }
first_trivial() {
	mount_equal_files && cat_all trivial
}

# Of the same bytes in as many files, all of one length, by a server that has them in memory.
mount_equal_files() {
	case " $mounts " in *" $work/trivial "*) unmount "$work/trivial" ;; esac
	mount_trivial "$work/trivial" "$all" "$(wc -l <"$work/list.frag")" keep
}

# MiB at most of the processes behind the mount.
peak() {
	for pid in $(server_of "$work/frag"); do
		awk '/^VmHWM/ { print $2 / 1024 }' "/proc/$pid/status"
	done | sort -g | tail -n 1
}

# loaded FILE...: seconds to mount and to have all of them in memory; MiB of the reader and of fragfs.
loaded() {
	[ -z "$mounts" ] || unmount "$work/frag"
	begin=$(date +%s.%N)
	mount_frag "$work/frag"
	mib=$("$tools/measure" load "$@")
	echo "$begin $(date +%s.%N) $mib $(peak)" | awk '{ print $2 - $1, $3 + $4 }'
}

load_one() { loaded "$work/frag/params/$one/fp32"; }
load_all() { loaded $(cat "$work/list.frag"); }
their_one() { "$python" "$source/zero-to-fp32.py" "$address" "$one"; }
their_all() { "$python" "$source/zero-to-fp32.py" "$address"; }

# ---- rows ----

# cat_row NAME MINE THEIRS [GOAL [REFERENCE]]
cat_row() {
	row "cat of all fp32 of a ZeRO-$stage checkpoint, $1" "$(rate "$all" "$(median "$2")")" GB/s \
		"${5:-plain files}" "$(rate "$all" "$(median "$3")")" "${4:-0.9}" higher
}

cat_rows() {
	if can_drop; then
		interleave cold_frag cold_plain
		cat_row cold cold_frag cold_plain
	else
		echo "the page cache cannot be dropped by this user: no cold rows" >&2
	fi
	cat_all plain >/dev/null
	interleave first_frag first_trivial cached_plain
	cat_row "cached, freshly mounted" first_frag cached_plain null
	cat_row "cached, freshly mounted" first_frag first_trivial null "trivial server"
	interleave cached_frag cached_trivial cached_plain
	cat_row cached cached_frag cached_plain
	cat_row cached cached_frag cached_trivial null "trivial server"
	unmount "$work/trivial"
}

# load_rows WHAT MINE THEIRS REFERENCE: theirs are two numbers
load_rows() {
	row "get $1 of a ZeRO-$stage checkpoint, mounting it" "$(median "$2")" s "$4" "$(echo "$3" | awk '{ print $1 }')" \
		null lower
	row "memory to get $1 of a ZeRO-$stage checkpoint" "$(median "$2" 2)" MiB "$4" \
		"$(echo "$3" | awk '{ print $2 }')" null lower
}

compare_loads() {
	[ "$rounds" -lt 3 ] || rounds=3
	interleave load_one load_all
	if "$python" "$source/zero-to-fp32.py" "$address" >/dev/null 2>"$work/why"; then
		interleave their_one their_all
		load_rows "one parameter" load_one "$(median their_one) $(median their_one 2)" zero_to_fp32
		load_rows "all" load_all "$(median their_all) $(median their_all 2)" zero_to_fp32
	else
		echo "$python: $(tail -n 1 "$work/why"): what was recorded of zero_to_fp32 stands for it" >&2
		load_rows "one parameter" load_one "$recorded" recorded
		load_rows "all" load_all "$recorded" recorded
	fi
}

# checkpoint_rows STAGE SECONDS: what zero_to_fp32 took for a GiB (DeepSpeed 0.19.8, torch 2.15, the least of several runs on
# two cores of an AMD EPYC, files in the page cache); its memory was 556 MiB and 2028 for a GiB.
checkpoint_rows() {
	stage=$1
	recorded=$(awk -v s="$2" -v bytes="$bytes" 'BEGIN { gib = bytes / 2 ^ 30; print s * gib, 556 + 2028 * gib }')
	mkdir -p "$address/$tag" "$work/plain"
	echo $tag >"$address/latest"
	make-zero -p "$work/plain" "$address/$tag" "$stage" 4 "$bytes"
	mount_frag "$work/frag"
	find "$work/frag/params" -name fp32 >"$work/list.frag"
	seq -f "$work/trivial/%.0f" 0 $(($(wc -l <"$work/list.frag") - 1)) >"$work/list.trivial"
	sed "s|.*/params/\(.*\)/fp32|$work/plain/\1|" "$work/list.frag" >"$work/list.plain"
	all=$(cat "$work/plain"/* | wc -c)
	cmp "$work/plain/$one" "$work/frag/params/$one/fp32"
	rounds=$usual
	cat_rows
	compare_loads
	unmount "$work/frag"
	rm -r "$address" "$work/plain"
}

checkpoint_rows 3 3.0
checkpoint_rows 2 1.5
