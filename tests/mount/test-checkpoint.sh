#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A safetensors file and a Hugging Face folder, mounted.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
export LC_ALL=C
PATH=$top_builddir/tests/mount:$PATH

# put_u64 NUMBER: little-endian.
put_u64() {
	n=$1
	for _ in 1 2 3 4 5 6 7 8; do
		printf "\\$(printf %03o $((n % 256)))"
		n=$((n / 256))
	done
}

# make_safetensors FILE HEADER DATA
make_safetensors() {
	{
		put_u64 ${#2}
		printf %s "$2"
		cat "$3"
	} >"$1"
}

# part FILE OFFSET SIZE
part() {
	tail -c +$(($2 + 1)) "$1" | head -c "$3"
}

mount_checkpoint() {
	within 60 fragfs "$1" "$M" ${2:+-o "$2"} || fail "fragfs: status $?"
}

# bf16 to fp32, as hexadecimal digits
widened() {
	od -An -v -tx1 -w2 "$1" | sed 's/^/ 00 00/'
}

# 2 MiB of bf16; then fp32, int64, a float32 without dimensions, a tensor without elements.
head -c 2097152 /dev/urandom >"$T/w"
head -c 4000 /dev/urandom >"$T/b"
head -c 24 /dev/urandom >"$T/i"
head -c 4 /dev/urandom >"$T/s"
cat "$T/w" "$T/b" "$T/i" "$T/s" >"$T/data"
header='{"__metadata__":{"format":"pt"},
"layer.w":{"dtype":"BF16","shape":[1024,1024],"data_offsets":[0,2097152]},
"layer.b":{"dtype":"F32","shape":[1000],"data_offsets":[2097152,2101152]},
"a/index":{"dtype":"I64","shape":[3],"data_offsets":[2101152,2101176]},
"scale":{"dtype":"F32","shape":[],"data_offsets":[2101176,2101180]},
"none":{"dtype":"BF16","shape":[0,7],"data_offsets":[2101180,2101180]}}'
mkdir "$T/one"
make_safetensors "$T/one/x.safetensors" "$header" "$T/data"

check_tree() {
	[ "$(echo $(ls -A "$M"))" = ".frag params ranks" ] || fail "root: $(ls -A "$M")"
	[ "$(echo $(ls "$M/params"))" = "a%2Findex layer.b layer.w none scale" ] || fail "params"
	[ "$(echo $(ls "$M/params/layer.w"))" = \
		"bf16 bf16.npy dtype fp32 fp32.npy fragments group group_index numel shape" ] || fail "files"
	[ "$(echo $(ls "$M/params/a%2Findex"))" = \
		"dtype fragments group group_index int64 int64.npy numel shape" ] || fail "files of integers"
	[ "$(cat "$M/params/layer.w/shape")" = "1024 1024" ] || fail "shape"
	[ "$(cat "$M/params/layer.w/dtype")" = bfloat16 ] || fail "dtype"
	[ "$(cat "$M/params/none/numel")" = 0 ] || fail "numel"
	[ "$(stat -c %s "$M/params/layer.w/fp32")" = 4194304 ] || fail "size of fp32"
	grep -qx "format safetensors" "$M/.frag/source" || fail "source"
	grep -qx "params 5" "$M/.frag/source" || fail "source: params"
	grep -qx "metadata format pt" "$M/.frag/source" || fail "source: metadata"
	[ -z "$(find "$M" -perm /222 -not -type l)" ] || fail "something is writable"
}

check_bytes() {
	same "$M/params/layer.w/bf16" "$T/w"
	same "$M/params/layer.b/fp32" "$T/b"
	same "$M/params/a%2Findex/int64" "$T/i"
	same "$M/params/scale/fp32" "$T/s"
	same "$M/params/none/bf16" /dev/null
	same "$M/params/none/fp32" /dev/null
	widened "$T/w" | cksum >"$T/expected"
	od -An -v -tx1 -w4 "$M/params/layer.w/fp32" | cksum >"$T/got"
	same "$T/got" "$T/expected"
	tail -c 4194304 "$M/params/layer.w/fp32.npy" | cmp - "$M/params/layer.w/fp32" || fail npy
}

check_ranges() {
	for range in "0 1" "1 3" "4095 2" "1048575 4097" "2097151 1" "2097151 9" "3000000 5"; do
		set -- $range
		part "$T/w" $1 $2 >"$T/expected"
		dd if="$M/params/layer.w/bf16" bs=1 skip=$1 count=$2 of="$T/got" 2>/dev/null
		same "$T/got" "$T/expected"
	done
}

check_mapped() {
	map-file "$M/params/layer.w/fp32" >"$T/mapped" || fail "cannot map"
	same "$T/mapped" "$M/params/layer.w/fp32"
}

# The first round reads from the disk as far as possible, the next from the page cache, by a mapping first.
mount_checkpoint "$T/one/x.safetensors"
check_tree
check_mapped
check_ranges
check_bytes
refused "Read-only file system" cp "$T/b" "$M/params/layer.b/fp32"
refused "No such file" cat "$M/phase"
refused "No such file" cat "$M/.frag/freeze"
unmount
mount_checkpoint "$T/one" source=safetensors,timeout=5,gather=host,noreadahead,stage_mem=1M 2>"$T/err"
[ "$(cat "$T/err")" = "fragfs: warn: -o timeout,gather,noreadahead: no effect, $T/one is a checkpoint" ] ||
	fail "options of a job: $(cat "$T/err")"
grep -qF ": $(sed 's/^fragfs: warn: //' "$T/err")" "$M/.frag/log" || fail "log: $(cat "$M/.frag/log")"
check_ranges
check_bytes
check_tree

# Another file takes its place: a read is never a mixture of the two.
sed 's/"none"/"NONE"/' "$T/one/x.safetensors" >"$T/one/new"
mv "$T/one/new" "$T/one/x.safetensors"
unmount
mount_checkpoint "$T/one"
mv "$T/one/x.safetensors" "$T/one/y"
cp "$T/one/y" "$T/one/x.safetensors"
rm "$T/one/y"
refused "Stale file handle" cat "$M/params/layer.b/fp32"
refused "Stale file handle" cat "$M/params/layer.b/fp32"
[ "$(grep -c "x.safetensors was replaced or changed since it was mounted" "$M/.frag/log")" = 1 ] || fail "$(cat "$M/.frag/log")"
unmount

# A Hugging Face folder: tensors that the index does not name are skipped.
mkdir "$T/hf"
cat "$T/b" "$T/b" >"$T/bb"
make_safetensors "$T/hf/model-00001-of-00002.safetensors" \
	'{"b":{"dtype":"F32","shape":[10,100],"data_offsets":[0,4000]},
	"extra":{"dtype":"F32","shape":[1000],"data_offsets":[4000,8000]}}' "$T/bb"
make_safetensors "$T/hf/model-00002-of-00002.safetensors" \
	'{"w":{"dtype":"F16","shape":[2000],"data_offsets":[0,4000]}}' "$T/b"
cat >"$T/hf/model.safetensors.index.json" <<-END
	{"metadata": {"total_size": 8000}, "weight_map":
	 {"b": "model-00001-of-00002.safetensors", "w": "model-00002-of-00002.safetensors"}}
END
mount_checkpoint "$T/hf"
[ "$(echo $(ls "$M/params"))" = "b w" ] || fail "params of the folder"
same "$M/params/b/fp32" "$T/b"
same "$M/params/w/fp16" "$T/b"
[ "$(stat -c %s "$M/params/w/fp32")" = 8000 ] || fail "size of the widened"
grep -q "^skipped extra: " "$M/.frag/source" || fail "what was skipped is not said"
unmount

# A universal checkpoint beside the checkpoint that it was made of.
gzip -dc "$top_srcdir/tests/data/checkpoints/ds0.19.8/z2-bf16-w3-universal.tar.gz" | (cd "$T" && tar -xf -)
mv "$T/z2-bf16-w3-universal" "$T/both"
mount_checkpoint "$T/both"
grep -qx "format universal" "$M/.frag/source" || fail "latest_universal alone"
unmount
ln -s . "$T/both/gone"
echo gone >"$T/both/latest"
refused "gone" fragfs "$T/both" "$M"
mount_checkpoint "$T/both" source=universal
same "$M/params/conv/fp32" "$T/both/values/params/conv/fp32"
[ "$(stat -c %s "$M/params/conv/step")" = 4 ] || fail "step is one number"
head -n 1 "$M/params/conv/step.npy" | grep -q "'shape': ()" || fail "shape of step"
[ "$(within 60 fragctl get -j "$M" conv/step)" = "$(tr -d " " <"$M/params/conv/step.txt")" ] || fail "get of a step"
unmount

# A folder above several checkpoints, without `latest`.
mkdir "$T/run"
for n in 2 9 10 11 100 1000; do
	mkdir "$T/run/global_step$n"
	ln "$T/one/x.safetensors" "$T/run/global_step$n"
done
mkdir "$T/run/logs"
refused "/run is no checkpoint, and has no latest that names one of these in it:\
 global_step1000, global_step100, global_step11, global_step10, global_step9 and 1 more\$" fragfs "$T/run" "$M"

# The cache of Hugging Face consists of links.
mkdir -p "$T/hub/blobs" "$T/hub/refs" "$T/hub/snapshots/5f0b"
ln "$T/one/x.safetensors" "$T/hub/blobs/8f0a2c"
ln -s ../../blobs/8f0a2c "$T/hub/snapshots/5f0b/model.safetensors"
refused "in it: snapshots/5f0b\$" fragfs "$T/hub" "$M"
refused "5f0b: model.safetensors is a symbolic link, which is not followed; cp -rlL FOLDER NEW" \
	fragfs "$T/hub/snapshots/5f0b" "$M"
cp -rlL "$T/hub/snapshots/5f0b" "$T/hub/linked"
mount_checkpoint "$T/hub/linked"
same "$M/params/layer.b/fp32" "$T/b"
unmount
mount_checkpoint "$T/hub/snapshots/5f0b/model.safetensors"
same "$M/params/layer.b/fp32" "$T/b"
unmount

# Refused with one line: an empty folder, a damaged file, a link, a tensor whose file is missing.
mkdir "$T/empty"
refused "is no checkpoint that is known: looked for dcp" fragfs "$T/empty" "$M"
refused "No such file" fragfs "$T/gone" "$M"
for format in dcp:.metadata safetensors:.safetensors torch:.torch.save universal:/zero zero:model_states.pt; do
	refused "/empty: .*${format#*:}" fragfs "$T/empty" "$M" -o "source=${format%:*}"
done
refused "there is no .*model_states.pt" fragfs "$T/one/x.safetensors" "$M" -o source=zero
refused "option source: 'zarr' is none of auto|dcp|safetensors" fragfs "$T/one" "$M" -o source=zarr
head -c 2000 "$T/hf/model-00002-of-00002.safetensors" >"$T/hf/cut"
mv "$T/hf/cut" "$T/hf/model-00002-of-00002.safetensors"
refused "model-00002-of-00002.safetensors: " fragfs "$T/hf" "$M"
[ "$(wc -l <"$T/out")" = 1 ] || fail "more than one line"
ln -sf ../one/x.safetensors "$T/hf/model-00002-of-00002.safetensors"
refused "symbolic link" fragfs "$T/hf" "$M"
rm "$T/hf/model-00002-of-00002.safetensors"
cp "$T/one/x.safetensors" "$T/hf/model-00002-of-00002.safetensors"
refused "names 1 tensors that are not in their files" fragfs "$T/hf" "$M"

# df and fragctl show the checkpoint.
mount_checkpoint "$T/one"
[ "$(df --output=used -B1 "$M" | tail -n 1)" -ge 2101180 ] || fail "df: $(df "$M")"
df --output=source "$M" | grep -qx "$T/one" || fail "df: $(df "$M")"
fragctl status "$M" >"$T/status" || fail "fragctl status: status $?"
for line in "  checkpoint $T/one" '  format     safetensors' '  params     5' '  bytes      2101180'; do
	grep -qx "$line" "$T/status" || fail "no '$line' in: $(cat "$T/status")"
done
fragctl status --json "$M" >"$T/status" || fail "fragctl status --json: status $?"
tr -d ' \n' <"$T/status" | grep -q '"source":\[\["format","safetensors"\]' || fail "$(cat "$T/status")"
unmount
