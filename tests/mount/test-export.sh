#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# export/: a safetensors file that is copied from a mount is mounted in turn, and has the same states; of a job that
# trains, all its bytes are of one generation, by read(2) and by a shared mapping.
# TEST_CASES: only those of tests/data/checkpoints with this text in their path.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
[ "$sanitizer" = no ] || : "${TEST_CASES:=-w3}" # a part: it is slow
export LC_ALL=C
PATH=$top_builddir/tests/mount:$top_builddir/tests/fail:$PATH
cases=$top_srcdir/tests/data/checkpoints
N=$T/N
mkdir "$N"

mount_copy() {
	rm -rf "$T/copy"
	mkdir "$T/copy"
	within 60 cp "$1" "$T/copy/x.safetensors" || fail "cp $1"
	[ "$(stat -c %s "$1")" = "$(stat -c %s "$T/copy/x.safetensors")" ] || fail "st_size of $1"
	within 60 fragfs "$T/copy" "$N" || fail "$1 is refused"
}

unmount_copy() {
	within 60 fusermount3 -u "$N" || fail "cannot unmount the copy"
}

# same_model PART: the copy has the part's state of each parameter; only in the copy fp32 may be widened.
same_model() {
	for folder in "$N"/params/*; do
		name=${folder##*/}
		from=$1/params/$name
		[ -d "$from" ] || from=$1/buffers/$name
		cmp "$folder/shape" "$from/shape" || fail "shape of $name"
		for state in "$folder"/*.npy; do
			state=${state##*/}
			case $state in fp32.npy) [ -e "$from/fp32" ] || continue ;; esac
			cmp "$folder/${state%.npy}" "$from/${state%.npy}" || fail "$name/${state%.npy}"
		done
	done
}

# same_optimizer PART
same_optimizer() {
	for folder in "$N"/params/*; do
		name=${folder##*/}
		state=${name##*.}
		for own in "$folder"/*.npy "$folder/fp32"; do # fp32 may be widened
			own=${own%.npy}
			case $own in */fp32) ;; *) break ;; esac
		done
		cmp "$own" "$1/params/${name%.*}/$state" || fail "$name of the optimizer"
	done
}

# check_names PART: each parameter that has a state is in the copy, or is named in its header as another name of one that is.
check_names() {
	(cd "$1/params" && for p in *; do
		[ ! -e "$p/fp32" ] && [ -z "$(ls "$p" | grep npy)" ] || echo "$p"
	done) | sort >"$T/names"
	ls "$N/params" | sort >"$T/names.copy"
	for name in $(comm -23 "$T/names" "$T/names.copy"); do
		of=$(head -c 4000 "$T/copy/x.safetensors" | grep -a -o "__metadata__\":{[^}]*\"$name\":\"[^\"]*" | sed 's/.*"//')
		[ -n "$of" ] || fail "not exported: $name"
		[ -d "$N/params/$of" ] || fail "not exported: $name, which is $of"
		for state in "$1/params/$name"/*.npy; do
			cmp "$state" "$1/params/$of/${state##*/}" || fail "$name is not $of"
		done
		echo "$name $of" >>"$T/tied"
	done
}

# ---- checkpoints of all kinds

for archive in "$cases"/*/*.tar.gz; do
	case $archive in *"${TEST_CASES-}"*) ;; *) continue ;; esac
	rm -rf "$T/c"
	mkdir "$T/c"
	tar -xzf "$archive" -C "$T/c"
	echo "$archive"
	for C in "$T"/c/* "$T"/c; do
		[ ! -d "$C" ] || ! within 60 fragfs "$C" "$M" 2>/dev/null || break
	done
	mounted "$M" || fail "$archive is not mounted"
	for part in "$M" "$M"/mp_rank_*; do
		[ -d "$part/params" ] || continue
		[ -z "$(ls -A "$part" | grep export)" ] || fail "export is listed"
		mount_copy "$part/export/model.safetensors"
		check_names "$part"
		same_model "$part"
		unmount_copy
		mount_copy "$part/export/optimizer.safetensors"
		same_optimizer "$part"
		[ -z "$(ls "$N/params" | grep '^head.weight')" ] || fail "the optimizer's states of a tensor twice"
		unmount_copy
		within 60 map-file "$part/export/model.bf16.safetensors" >"$T/mapped"
		cmp "$T/mapped" "$part/export/model.bf16.safetensors" || fail "a mapping of model.bf16"
	done
	unmount
done

[ -n "${TEST_CASES-}" ] || [ "$(sort -u "$T/tied")" = 'head.weight emb.weight' ] || fail "tied: $(sort -u "$T/tied")"

# ---- a name that is not UTF-8, which a header has escaped

within 60 fragfs "$top_srcdir/tests/data/checkpoint/names.pt" "$M" || fail "names.pt is not mounted"
mount_copy "$M/export/model.safetensors"
head -c 4000 "$T/copy/x.safetensors" | grep -a -q 'nul%C0%80' || fail "names: $(ls "$N/params")"
unmount_copy
unmount

# ---- conversion, and hf/

# round_to_bf16: converts float32 to bfloat16, to nearest even, both as decimal numbers
round_to_bf16() {
	awk '{ m = $1 % 2147483648; high = int($1 / 65536)
		if (m > 2139095040) { if (int(high / 64) % 2 == 0) high += 64; print high }
		else print int(($1 + 32767 + high % 2) / 65536) }'
}

mount_fake
P=$M/params
mount_copy "$M/export/model.bf16.safetensors"
for name in tail layers.0.weight scale; do
	head -c 400000 "$P/$name/fp32" | od -An -v -tu4 -w4 | round_to_bf16 >"$T/rounded"
	head -c 200000 "$N/params/$name/bf16" | od -An -v -tu2 -w2 | tr -d ' ' | cmp - "$T/rounded" || fail "$name in bf16"
done
unmount_copy
# Ranges of any bytes, without pages of the kernel and with them.
cp "$M/export/model.bf16.safetensors" "$T/whole"
size=$(stat -c %s "$T/whole")
for i in 1 2 3 4 5 6 7 8 9; do
	at=$((i * 263891 % size)) n=$((i * i * i * 1777 + 1))
	dd if="$M/export/model.bf16.safetensors" bs=$n count=1 skip=$at iflag=skip_bytes,direct 2>/dev/null >"$T/range"
	tail -c +$((at + 1)) "$T/whole" | head -c $n | cmp - "$T/range" || fail "$n bytes at $at"
	tail -c +$((at + 1)) "$M/export/model.bf16.safetensors" | head -c $n | cmp - "$T/range" || fail "pages at $at"
done
within 60 map-file "$M/export/model.bf16.safetensors" >"$T/mapped"
cmp "$T/mapped" "$T/whole" || fail "a mapping"
[ "$(ls "$M/export/hf")" = "model-00001-of-00001.safetensors
model.safetensors.index.json" ] || fail "hf: $(ls "$M/export/hf")"
grep -q '"layers.0.weight": "model-00001-of-00001.safetensors"' "$M/export/hf/model.safetensors.index.json" ||
	fail "index"
refused 'No such file or directory' cat "$M/export/hf/model-00002-of-00002.safetensors"
refused 'Read-only file system' sh -c ': >"$1"' sh "$M/export/model.safetensors"
unmount

# ---- a job that trains

# values FILE TYPE BYTES: prints the different values in the file's data
values() {
	head=$(od -An -tu8 -N8 "$1")
	tail -c +$((head + 9)) "$1" | od -An -v -t"$2" -w"$3" | uniq | sort -u
}

# one_value FILE WHAT
one_value() {
	values "$1" f4 4 >"$T/values"
	[ "$(wc -l <"$T/values")" = 1 ] || fail "$2: of several generations: $(head -n 5 "$T/values")"
	seen="$seen $(cat "$T/values")"
}

is_past() {
	[ "$(cat "$M/step")" -gt "$1" ]
}

# read_slowly FILE: reads half of it after a step has passed
read_slowly() {
	{
		head -c 300000
		step=$(cat "$M/step")
		wait_until 60 is_past $((step + 1)) || fail "no step"
		cat
	} <"$1"
}

mkdir "$T/swap"
for stage in 1 3 swap1; do
	FRAG_JOB_ID=export-$$-$stage WORLD_SIZE=3
	export FRAG_JOB_ID WORLD_SIZE
	[ $stage != swap1 ] || export FRAG_SWAP_DIR="$T/swap" FRAG_PINNED_MEM=256K FRAG_SWAP_MAX=1G
	: >job.log
	ranks=
	for r in 0 1 2; do
		RANK=$r tear-job "${stage#swap}" 20000 >>job.log 2>&1 &
		ranks="$ranks $!"
		started $!
	done
	wait_until 60 grep -q '^127' job.log || fail "no job"
	within 60 fragfs "$(grep -m 1 '^127' job.log)" "$M" || fail "fragfs: status $?"
	wait_until 60 is_past 2 || fail "no step"
	seen=
	for file in model optimizer; do
		E=$M/export/$file.safetensors
		read_slowly "$E" >"$T/export"
		one_value "$T/export" "$stage $file"
		map-file "$E" >"$T/export"
		one_value "$T/export" "$stage $file mapped"
		cp "$E" "$T/export" & # two at once, each of a generation of its own
		copy=$!
		cp "$E" "$T/export.2"
		wait $copy
		one_value "$T/export" "$stage $file copied"
		one_value "$T/export.2" "$stage $file copied beside"
	done
	[ "$(echo $seen | tr ' ' '\n' | sort -u | wc -l)" -ge 3 ] || fail "the job does not train: $seen"
	echo "stage $stage: $seen"
	cp "$M/export/model.bf16.safetensors" "$T/export"
	[ "$(values "$T/export" x2 2 | wc -l)" = 1 ] || fail "$stage bf16: of several generations"
	unmount
	kill $ranks
	wait $ranks || :
done
