#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of DeepSpeed, edited in place through a mount.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
export LC_ALL=C
cases=$top_srcdir/tests/data/checkpoints

# unpack NAME: unpacks a checkpoint to $C.
unpack() {
	rm -rf "$T/case"
	mkdir "$T/case"
	gzip -dc "$cases"/*/"$1".tar.gz | tar -xf - -C "$T/case"
	C=$T/case/$(ls "$T/case")
}

mount_case() {
	within 60 fragfs "$C" "$M" ${1:+-o "$1"} || fail "fragfs $C -o $1: status $?"
}

check_zips() {
	command -v python3 >/dev/null 2>&1 || return 0
	for file in "$C"/*/*.pt; do
		[ "$(head -c 2 "$file")" = PK ] || continue
		python3 -m zipfile -t "$file" >"$T/out" 2>&1 || fail "$file: $(cat "$T/out")"
		! grep -q corrupted "$T/out" || fail "$file: $(cat "$T/out")"
	done
}

# Writes bytes of a pattern to every fifth writable state; afterwards another mount shows these, and all other states as
# before.
edit_all() {
	mount_case rw
	(cd "$M" && find params mp_rank_*/params -type f -perm -200 ! -size 0 ! -name '*.npy' 2>/dev/null || :) |
		sort | awk 'NR % 5 == 2' >"$T/names"
	[ -s "$T/names" ] || fail "$C: nothing is writable"
	: >"$T/edited"
	while read -r name; do
		size=$(stat -c %s "$M/$name")
		mkdir -p "$T/new/$(dirname "$name")"
		yes "$(basename "$name")" | head -c "$size" >"$T/new/$name"
		cat "$T/new/$name" >"$M/$name" || fail "$C: cannot write $name"
		echo "$name" >>"$T/edited"
	done <"$T/names"
	grep -qx "edits $(wc -l <"$T/edited")" "$M/.frag/source" || fail "$C: $(cat "$M/.frag/source")"
	unmount
}

check_all() {
	mount_case
	while read -r name; do
		same "$M/$name" "$T/new/$name"
	done <"$T/edited"
	(cd "$C/values" && find params buffers mp_rank_* -type f 2>/dev/null || :) >"$T/names"
	while read -r name; do
		check_untouched "$name"
	done <"$T/names"
	unmount
}

# States that an edit of fp32 also changes are checked below.
check_untouched() {
	case $1 in */bf16 | */fp16 | */fp32 | */exp_avg* | */max_exp*) return 0 ;; esac
	same "$M/$1" "$C/values/$1"
}

for case in z2-bf16-w4 z3-bf16-w3-sub z2-bf16-w2-legacy; do
	unpack "$case"
	rm -rf "$T/new"
	edit_all
	[ -z "$(find "$C" -name '.fragfs*')" ] || fail "$C: a journal is left"
	check_all
	check_zips
done

# ---- one parameter, byte by byte ----

unpack z2-bf16-w4
P=$M/params/emb.weight
model=$C/global_step3/mp_rank_00_model_states.pt
mount_case rw
ls -l "$P/bf16" | grep -q '^-r--r--r--' || fail "bf16 beside fp32 is writable"
refused "Permission denied" cp "$T/out" "$P/bf16"
refused "Invalid argument" cp "$P/fp32" "$P/fp32.npy"
refused "Permission denied" cp "$T/out" "$P/shape"
cp "$C/values/params/emb.weight/fp32" "$T/fp32"
cp "$C/values/params/emb.weight/bf16" "$T/bf16"
# 1.0, 1.00390625 (between two, to even: 1.0), 1.01171875 (to even: 1.015625), -infinity
printf '\0\0\200\077\0\200\200\077\0\200\201\077\0\0\200\377' >"$T/values"
printf '\200\077\200\077\202\077\200\377' >"$T/rounded"
dd if="$T/values" of="$P/fp32" bs=4 seek=13 conv=notrunc 2>/dev/null || fail "cannot edit"
dd if="$T/values" of="$T/fp32" bs=4 seek=13 conv=notrunc 2>/dev/null
dd if="$T/rounded" of="$T/bf16" bs=2 seek=13 conv=notrunc 2>/dev/null
same "$P/fp32" "$T/fp32"
same "$P/bf16" "$T/bf16"

# A handle opened before shows no mixture; others show the new bytes.
exec 3<"$P/fp32" 4<"$P/exp_avg"
head -c 4 "$T/values" | dd of="$P/fp32" bs=1 conv=notrunc 2>/dev/null || fail "cannot edit again"
refused "Stale file handle" cat <&3
cat <&4 >"$T/avg" || fail "exp_avg was not edited"
exec 3<&- 4<&-
dd if="$T/values" of="$T/fp32" bs=4 count=1 conv=notrunc 2>/dev/null
same "$P/fp32" "$T/fp32"

# Sizes never change.
refused "too large" sh -c 'cat "$1" "$1" >"$2"' sh "$T/fp32" "$P/fp32"
refused "Invalid argument" sh -c 'head -c 8 "$1" >"$2"' sh "$T/fp32" "$P/fp32"
refused "Operation not permitted" rm "$P/fp32"
same "$P/fp32" "$T/fp32"

# No other mount may have it, writable or not.
mkdir "$T/other"
refused "is mounted by process [0-9]" fragfs "$C" "$T/other" -o rw
refused "is mounted with -o rw by process [0-9]" fragfs "$C" "$T/other"
refused "is mounted with -o rw by process [0-9]" fragfs "$model" "$T/other"
unmount
check_zips
mount_case
same "$P/fp32" "$T/fp32"
refused "is mounted by process [0-9]" fragfs "$C" "$T/other" -o rw
unmount

# Without coherence the model's own copy stays, and is writable.
cp "$P/bf16" "$T/before" 2>/dev/null || cp "$C/values/params/emb.weight/bf16" "$T/before"
mount_case rw,coherent=off
cp "$P/bf16" "$T/before"
cat "$C/values/params/emb.weight/fp32" >"$P/fp32" || fail "cannot edit"
same "$P/bf16" "$T/before"
cat "$C/values/params/emb.weight/bf16" >"$P/bf16" || fail "cannot edit bf16"
same "$P/bf16" "$C/values/params/emb.weight/bf16"
unmount

# Files that were replaced meanwhile, that have hard links, that may not be written.
mount_case rw
cp "$model" "$T/new-model"
mv "$T/new-model" "$model"
refused "Stale file handle" sh -c 'cat "$1" >"$2"' sh "$T/fp32" "$P/fp32"
unmount
ln "$model" "$T/snapshot"
refused "has hard links" fragfs "$C" "$M" -o rw
mount_case
unmount
rm "$T/snapshot"

# ---- an interrupted edit: a journal of half an edit, made by hand ----

# As fragfs leaves it when killed between the journal and its end.  test-commit-killed tries every moment.
unpack z3-fp32-w3
find "$C" -name '*.pt' -exec cksum {} + | sort >"$T/sums"
echo junk >"$(dirname "$(find "$C" -name '*.pt' | head -1)")/.fragfs-journal"
refused "journal is damaged" fragfs "$C" "$M"
[ "$(wc -l <"$T/out")" = 1 ] || fail "more than one line"
find "$C" -name .fragfs-journal -exec rm {} +
mount_case
unmount
find "$C" -name '*.pt' -exec cksum {} + | sort >"$T/sums-after"
same "$T/sums" "$T/sums-after"

# ---- universal: files in folders of folders; the values of `module` are in zero/ too, widened ----

# second NAME FILE: zero/NAME/fp32.pt has FILE's values.
second() {
	within 60 fragfs "$C/global_step3_universal/zero/$1/fp32.pt" "$T/other" || fail "$1/fp32.pt: fragfs: status $?"
	cp "$T/other/params/param/fp32" "$T/second" || fail "$1/fp32.pt: no values"
	within 60 fusermount3 -u "$T/other" || fail "cannot unmount"
	same "$T/second" "$2"
}

rm -rf "$T/case"
mkdir "$T/case"
gzip -dc "$cases"/ds0.19.8/z2-bf16-w3-universal.tar.gz | tar -xf - -C "$T/case"
C=$T/case/z2-bf16-w3-universal
mount_case rw
cat "$C/values/params/odd%2Fname%25/exp_avg" >"$M/params/odd%2Fname%25/fp32" || fail "cannot edit odd/name%"
cat "$C/values/params/emb.weight/exp_avg" >"$M/params/head.weight/fp32" || fail "cannot edit by another name"
printf '\0\0\200\077' >"$M/params/conv/step" || fail "cannot edit step"
# 2.0, -0.0, infinity; 2^40 + 2^16 + 1, which is 2^40 + 2^17 in float32; true.
printf '\0\100\0\200\200\177' | dd of="$M/params/frozen.weight/bf16" bs=2 seek=3 conv=notrunc 2>/dev/null || fail "cannot edit frozen"
printf '\1\0\1\0\0\1\0\0' >"$M/buffers/layers.1.calls/int64" || fail "cannot edit int64"
printf '\1' | dd of="$M/buffers/mask/bool" bs=1 seek=1 conv=notrunc 2>/dev/null || fail "cannot edit bool"
printf '\0\0\200\077' | dd of="$M/buffers/pos/fp32" bs=4 seek=2 conv=notrunc 2>/dev/null || fail "cannot edit pos"
cp "$M/params/frozen.weight/fp32" "$T/frozen"
cp "$M/buffers/pos/fp32" "$T/pos"
od -A n -v -t u1 -w1 "$M/buffers/mask/bool" | awk '{ printf $1 ? "\\0\\0\\200\\077" : "\\0\\0\\0\\0" }' >"$T/mask-octal"
printf "$(cat "$T/mask-octal")" >"$T/mask"
unmount
second odd/name% "$C/values/params/odd%2Fname%25/exp_avg"
second emb.weight "$C/values/params/emb.weight/exp_avg"
second head.weight "$C/values/params/emb.weight/exp_avg"
second frozen.weight "$T/frozen"
second pos "$T/pos"
second mask "$T/mask"
printf '\1\0\200\123' >"$T/calls"
second layers.1.calls "$T/calls"
[ -z "$(find "$C" -name '.fragfs*')" ] || fail "$C: a journal is left"
(cd "$C" && find . -name '*.pt') >"$T/names"
if command -v python3 >/dev/null 2>&1; then
	while read -r name; do
		python3 -m zipfile -t "$C/$name" >"$T/out" 2>&1 && ! grep -q corrupted "$T/out" || fail "$name: $(cat "$T/out")"
	done <"$T/names"
fi
mount_case
same "$M/params/emb.weight/fp32" "$C/values/params/emb.weight/exp_avg"
same "$M/params/frozen.weight/fp32" "$T/frozen"
unmount

# One of its files is mounted alone for edits, so the whole is refused: an edit of the whole may change that file too.
within 60 fragfs "$C/global_step3_universal/zero/pos/fp32.pt" "$M" -o rw || fail "fragfs: status $?"
refused "is mounted with -o rw by process [0-9]" fragfs "$C" "$T/other"
unmount

# ---- safetensors, one file: the journal is beside it ----

unpack z2-bf16-w4
mkdir "$T/st"
{
	printf '\110\0\0\0\0\0\0\0'
	printf '%-72s' '{"w":{"dtype":"F32","shape":[1000],"data_offsets":[0,4000]}}'
	head -c 4000 /dev/zero
} >"$T/st/x.safetensors"
head -c 4000 /dev/urandom >"$T/w"
ln -s "$T/st/x.safetensors" "$T/link.safetensors"
C=$T/link.safetensors
mount_case rw
cp "$T/w" "$M/params/w/fp32" || fail "cannot edit safetensors"
same "$M/params/w/fp32" "$T/w"
[ "$(tail -c 4000 "$M/params/w/fp32.npy" | cksum)" = "$(cksum <"$T/w")" ] || fail "npy"
# An edit whose fsync(2) has failed is not made by close(2), which has the same errno; another fsync(2) may make it.
if command -v python3 >/dev/null 2>&1; then
	PYTHONPATH=$top_srcdir/tests/mount PYTHONDONTWRITEBYTECODE=1 within 60 python3 - "$M/params/w/fp32" "$T/st/x.safetensors" <<'END' || fail "close behind an fsync that failed: $?"
import errno, os, sys
from errnos import fails
path, file = sys.argv[1:]
old = open(path, "rb").read()

def refused(data):
    """A descriptor with these bytes: it was asked to commit them while the file was another one."""
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, data, 0)
    os.rename(file, file + ".away")
    open(file, "w").close()
    error = fails(os.fsync, fd)
    os.rename(file + ".away", file)
    assert error == errno.ESTALE, error
    return fd

fd = refused(b"gone")
assert fails(os.close, fd) == errno.ESTALE
assert open(path, "rb").read() == old
fd = refused(b"gone")
os.pwrite(fd, old[:4], 0) # what is written behind the error is an edit of its own
os.close(fd)
fd = refused(old[:4])
os.fsync(fd)
os.close(fd)
assert open(path, "rb").read() == old
END
fi
unmount
tail -c 4000 "$T/st/x.safetensors" | cmp - "$T/w" || fail "the file has other bytes"
if [ "$(id -u)" != 0 ]; then
	chmod 444 "$T/st/x.safetensors"
	refused "Permission denied" fragfs "$C" "$M" -o rw
fi
