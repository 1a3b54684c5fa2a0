#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Views of a state by name: .npy that is written, other formats, text, slices and single elements; of a job, of a
# made-up job and of a checkpoint.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"

has_numpy() {
	python3 -c 'import numpy' 2>/dev/null
}

# by_numpy PARAM STATE...: every view of these float32 states equals what numpy makes of the state's own bytes.
by_numpy() {
	has_numpy || return 0
	within 300 python3 - "$M/params/$1" "$@" <<'END' || fail "$what: views of $*"
import itertools, os, sys, numpy as np
base, _, *states = sys.argv[1:]
shape = tuple(int(n) for n in open(base + "/shape").read().split())
choices = "0", "-1", ":", "1:-1", "::2", "::-3", "-2:", "5:1:-1", "1:1"
slices = ["...", "()"] + [",".join(c) for n in range(1, len(shape) + 1) for c in itertools.product(choices, repeat=n)]
slices += ["...," + c for c in choices] if shape else []
for state in states:
    raw = open(f"{base}/{state}", "rb").read()
    whole = np.frombuffer(raw, np.float32).reshape(shape)
    assert np.load(f"{base}/{state}.npy").tobytes() == raw
    with np.errstate(all="ignore"):
        assert np.fromfile(f"{base}/{state}.f16", np.uint16).size == whole.size
        half = np.fromfile(f"{base}/{state}.f16", np.float16).reshape(shape)
        assert np.array_equal(half, whole.astype(np.float16), equal_nan=True)
        bits = np.fromfile(f"{base}/{state}.bf16", np.uint16).reshape(shape)
        want = whole.view(np.uint32).astype(np.uint64)
        want = ((want + 0x7fff + (want >> 16 & 1)) >> 16).astype(np.uint16)
        assert np.array_equal(np.where(np.isnan(whole), 0, bits), np.where(np.isnan(whole), 0, want))
        assert (np.isnan((bits.astype(np.uint32) << 16).view(np.float32)) == np.isnan(whole)).all()
    assert open(f"{base}/{state}.f32", "rb").read() == raw
    for text in slices:
        path = f"{base}/{state}[{text}]"
        try:
            want = np.asarray(eval(f"whole[{text}]"))
        except IndexError:
            assert not os.path.exists(path + ".npy"), path
            continue
        got = np.load(path + ".npy")
        assert got.shape == want.shape and got.tobytes() == want.tobytes(), path
        assert os.path.getsize(path) == want.nbytes and os.path.getsize(path + ".bf16") == want.nbytes // 2, path
    path = f"{base}/{state}[{'...,' if shape else '...'}{':9' if shape else ''}].txt"
    lines = open(path).read().splitlines(keepends=True)
    part = whole[..., :9] if shape else whole
    assert sum(map(len, lines)) == os.path.getsize(path)
    if part.size:
        assert len(lines) == part.size // (part.shape[-1] if shape else 1), path
        numbers = np.array([float(n) for line in lines for n in line.split()], np.float32)
        same = numbers.view(np.uint32) == part.ravel().view(np.uint32)
        assert (same | (np.isnan(numbers) & np.isnan(part.ravel()))).all(), path
END
}

# rows PARAM STATE: reads a range of rows, a column and elements of a matrix of 4-byte elements, and compares by dd and
# od.
rows() {
	file=$M/params/$1/$2
	read -r height width <"$M/params/$1/shape"
	cat "$file" >state || fail "$what: $file"
	dd if=state bs=$((4 * width)) skip=2 count=3 status=none >want
	within 60 cat "$file[2:5,:]" | cmp - want || fail "$what: rows of $file"
	within 60 tail -c +129 "$file[2:5].npy" | cmp - want || fail "$what: .npy of rows of $file"
	head -n 1 "$file[2:5].npy" | grep -aq "'shape': (3, $width), }" || fail "$what: shape of rows of $file"
	od -A n -v -t x4 -w$((4 * width)) state | awk '{ print $2 }' >want
	within 60 cat "$file[:,1]" | od -A n -v -t x4 -w4 | tr -d ' ' | cmp - want || fail "$what: a column of $file"
	range "$file[::-1]" "$file[::-1]" 10 3
	within 60 dd if="$file.txt" bs=7 skip=3 count=5 status=none >got
	within 60 cat "$file.txt" >text
	dd if=text bs=7 skip=3 count=5 status=none | cmp - got || fail "$what: a range of $file.txt"
	[ "$(stat -c %s "$file.txt")" = "$(stat -c %s text)" ] || fail "$what: size of $file.txt"
	[ "$(wc -l <text)" = "$height" ] || fail "$what: lines of $file.txt"
	[ "$(awk 'NR == 2 { print $3 }' text)" = "$(cat "$M/params/$1/elem/$2/1,2")" ] || fail "$what: element of $file"
}

# none PARAM NAME...: the files do not exist.
none() {
	param=$1
	shift
	for name in "$@"; do
		refused 'No such file' cat "$M/params/$param/$name"
	done
}

# npy_written PARAM STATE: numpy's own writers, and cp, write through NAME.npy.
npy_written() {
	file=$M/params/$1/$2
	size=$(stat -c %s "$file")
	within 60 cat "$file.npy" >new.npy
	tr '\000-\377' '\001-\377\000' <"$file" >new
	head -c $(($(stat -c %s new.npy) - size)) new.npy >header
	cat header new >new.npy
	within 60 cp new.npy "$file.npy" || fail "$what: cp to $file.npy"
	same "$file" new
	tr "'" '"' <header | cat - new >other.npy
	refused 'Invalid argument' cp other.npy "$file.npy"
	grep -q -e "$2.npy: .*header" "$M/.frag/log" || fail "$what: no line of the header"
	refused 'Invalid argument' cp new "$file.npy"
	refused 'Invalid argument' sh -c "head -c 100 new.npy >'$file.npy'"
	same "$file" new
	# The header alone, and a part of the data.
	within 60 dd if=header of="$file.npy" conv=notrunc status=none || fail "$what: header to $file.npy"
	printf abcd | within 60 dd of="$file.npy" bs=1 seek=$(($(stat -c %s header) + 2)) conv=notrunc status=none ||
		fail "$what: a part of $file.npy"
	printf abcd | dd of=new bs=1 seek=2 conv=notrunc status=none
	same "$file" new
	: >"$file.npy" || fail "$what: truncation"
	same "$file" new
	has_numpy || return 0
	within 60 python3 - "$file.npy" <<'END' || fail "$what: numpy writes $file.npy"
import sys, numpy as np
path = sys.argv[1]
a = np.load(path)
a.flat[:] = np.arange(a.size, dtype=a.dtype)
np.save(path, a)
assert np.array_equal(np.load(path), a)
for wrong in a.astype(np.float64), np.zeros((1, *a.shape), a.dtype):
    try:
        np.save(path, wrong)
    except OSError:
        continue
    raise AssertionError(wrong.dtype)
assert np.array_equal(np.load(path), a)
with open(path, "r+b") as f: # as open_memmap does it
    np.lib.format.write_array_header_1_0(f, np.lib.format.header_data_from_array_1_0(a))
    f.seek(a.itemsize, 1)
    f.write(np.full(1, -7, a.dtype).tobytes())
a.flat[1] = -7
assert np.array_equal(np.load(path), a)
rows = path[:-4] + "[0:1]" + ".npy"
b = np.load(rows) * 2 + 1
np.save(rows, b)
a[0:1] = b
assert np.array_equal(np.load(path), a)
strided = path[:-4] + "[::-3]"
want = a[::-3] + 1
np.save(strided + ".npy", want)
a[::-3] = want
assert np.array_equal(np.load(path), a)
with open(strided, "r+b", buffering=0) as f: # bytes that are not committed yet
    f.seek(2)
    f.write(b"abcdef")
    f.seek(0)
    assert f.read(8)[2:] == b"abcdef"
END
}

# strided PARAM STATE: writes every other element, from the last to the first, in pieces that cut elements.  Those between stay.
strided() {
	file="$M/params/$1/$2[::-2]"
	od -An -v -tx4 -w4 "$M/params/$1/$2" >elements
	head -c "$(stat -c %s "$file")" /dev/urandom >new
	od -An -v -tx4 -w4 new >new.elements
	within 60 dd if=new of="$file" bs=6 status=none || fail "$what: dd to $file"
	same "$file" new
	awk 'NR == FNR { new[NR] = $0; next } { old[++n] = $0 }
		END { for (k = 1; k in new; k++) old[n - 2 * (k - 1)] = new[k]
			for (i = 1; i <= n; i++) print old[i] }' new.elements elements >want
	od -An -v -tx4 -w4 "$M/params/$1/$2" | cmp - want || fail "$what: $M/params/$1/$2 after dd to $file"
	printf abcdef | within 60 dd of="$file" bs=1 seek=6 conv=notrunc status=none || fail "$what: a part of $file"
	printf abcdef | dd of=new bs=1 seek=6 conv=notrunc status=none
	same "$file" new
	refused 'Invalid argument' sh -c "head -c 4 new >'$file'"
	same "$file" new
}

# A commit of elements that are apart has a list of them, which stage_mem bounds, too.
too_many_apart() {
	file=$M/params/tail/fp32
	cp "$file" was
	head -c 40000 /dev/zero >zeros
	refused 'No space left' dd if=zeros of="$file[::2]" conv=notrunc,fsync
	same "$file" was
}

# elements PARAM INDICES: writes an element as text.
elements() {
	file=$M/params/$1/elem/$2
	within 60 sh -c "echo 0.1 >'$file'" || fail "$what: echo >$file"
	[ "$(cat "$file")" = 0.1 ] || fail "$what: $file: $(cat "$file")"
	[ "$(cat "$M/params/$1/elem/fp32/$2")" = 0.1 ] || fail "$what: fp32/$2"
	refused 'Invalid argument' sh -c "echo 0.1x | dd of='$file'"
	grep -q -e "$2: 0.1x is refused: no number" "$M/.frag/log" || fail "$what: no line of 0.1x"
	refused 'Invalid argument' sh -c "echo 1e99 | dd of='$file'"
	refused 'Invalid argument' sh -c "echo | dd of='$file'"
	! sh -c "echo x >'$file'" 2>/dev/null || fail "$what: echo x >$file is no error"
	[ "$(cat "$file")" = 0.1 ] || fail "$what: $file after what was refused"
	within 60 sh -c "printf %s -3 >'$file'" || fail "$what: without a newline"
	[ "$(cat "$file")" = -3 ] || fail "$what: $file: $(cat "$file")"
	exec 9<>"$file"
	read -r was <&9
	[ "$was" = -3 ] || fail "$what: read of $file: $was"
	exec 9<&-
}

what=fake
mount_fake rw
P=$M/params/layers.0.weight
[ "$(ls "$P" | grep -c '[][]\|elem\|txt\|\.bf16')" = 0 ] || fail "views are listed: $(ls "$P")"
[ "$(ls "$P/elem" | tr '\n' ' ')" = 'bf16 exp_avg fp32 grad ' ] || fail "elem/ lists $(ls "$P/elem")"
rows layers.0.weight fp32
by_numpy tail exp_avg
by_numpy scale fp32
by_numpy empty fp32
npy_written layers.0.bias exp_avg
strided layers.0.bias fp32
elements layers.0.weight 511,1023
elements layers.0.weight -1,0
elements scale '()'
[ "$(cat "$P/elem/-1,0")" = "$(cat "$P/elem/511,0")" ] || fail "a negative index"
none layers.0.weight 'fp32[512].npy' 'fp32[0,0,0].npy' 'fp32[].npy' 'fp32[0' 'fp32[0]x' 'fp32[::0].npy' fp32.f64 fp32.npy.npy \
	'fp32[0].npy.npy' elem/512,0 elem/0 elem/0,0,0 elem/x elem/0: elem/... elem/fp32/0,1024 elem/none/0,0 'none[0].npy' .txt
none scale elem/0
none ..%2F fp32.f16 2>/dev/null || :
[ "$(cat "$M/params/odd%2Fname%2541%40x/fp32[1:].txt" | wc -c)" = 32 ] || fail "a parameter with a slash"
[ -s "$M/params/keys/x%2Fy z[::-1].npy" ] || fail "a state with a slash"
# fragctl, of a state with a blank in its key, and of slices with many blanks, or too many characters.
for key in 'x%2Fy z' 'x%2Fy z[0]'; do
	within 60 fragctl set -j "$M" "keys/$key" 3 || fail "fragctl set keys/$key: $?"
	[ "$(within 60 fragctl get -j "$M" -H "keys/$key" | tr '\t' '\n' | sort -u)" = 3 ] || fail "fragctl set keys/$key"
done
blanks=$(printf '%300s' '')
within 60 fragctl set -j "$M" "layers.0.weight/fp32[2,${blanks}3]" 5 || fail "fragctl set of a long slice: $?"
within 60 fragctl get -j "$M" "layers.0.weight/fp32[2,${blanks}3]" -o got.npy || fail "fragctl get -o of a long slice: $?"
tail -c 4 got.npy | cmp - "$P/fp32[2,3]" || fail "fragctl get -o of a long slice"
refused '\[0,0*0\]: a slice of at most 255 characters' fragctl get -j "$M" "layers.0.weight/fp32[0,$(printf '%0300d' 0)]"
refused 'Permission denied' sh -c "echo 1 >'$P/fp32.bf16'"
refused 'Permission denied' sh -c "echo 1 >'$P/fp32[:,1].f32'"
refused 'Invalid argument' sh -c "echo 1 | dd of='$P/fp32[:,1].npy'"
refused 'Permission denied' sh -c "echo 1 >'$P/elem/bf16/0,0'"
refused 'Permission denied' sh -c "echo 1 >'$M/now/layers.0.weight/elem/0,0'"
cmp "$M/now/layers.0.weight/fp32[5]" "$P/fp32[5]" || fail "a slice below now/"
# Many names: each is found, used and forgotten again.
i=0
while [ $i -lt 1000 ]; do
	echo "$P/elem/$((i / 4)),$((i % 4))"
	i=$((i + 1))
done | xargs cat >many
tr -s ' ' '\n' <"$P/fp32[:250,:4].txt" | sed '/^$/d' | cmp - many || fail "a thousand elements"
unmount
mount_fake rw,stage_mem=64K
too_many_apart
unmount
mount_fake
refused 'Read-only' sh -c "echo 1 >'$M/params/scale/elem/()'"
refused 'Read-only' cp many "$M/params/scale/fp32.npy"
unmount

start_job 0 3 small
mount_job rw
name=$(for p in "$M"/params/*; do [ "$(wc -w <"$p/shape")" = 2 ] && echo "$(cat "$p/numel") ${p##*/}"; done | sort -n | tail -n 1 | cut -d ' ' -f 2)
rows "$name" fp32
by_numpy "$name" fp32 exp_avg
npy_written "$name" fp32
elements "$name" 1,1
[ "$(cat "$M/buffers/x/elem/0" 2>/dev/null)" = "" ] || fail "buffers of a job"
unmount
end_job

what=checkpoint
tar xzf "$top_srcdir/tests/data/checkpoints/ds0.19.8/z2-fp16-w3.tar.gz" -C "$T"
folder=$(dirname "$(find "$T" -name '*model_states.pt' | head -n 1)")
within 60 "$top_builddir/fragfs" -o rw "$folder" "$M" || fail "no mount"
name=$(for p in "$M"/params/*; do [ "$(wc -w <"$p/shape")" = 2 ] && [ -e "$p/fp32" ] && echo "$(cat "$p/numel") ${p##*/}"; done | sort -n | tail -n 1 | cut -d ' ' -f 2)
rows "$name" fp32
by_numpy "$name" fp32 exp_avg
npy_written "$name" fp32
elements "$name" 1,1
within 60 cat "$M/params/$name/fp32.txt" >edited
unmount
within 60 "$top_builddir/fragfs" "$folder" "$M" || fail "no mount"
within 60 cat "$M/params/$name/fp32.txt" | cmp - edited || fail "edits of the checkpoint are not there"
unmount
has_numpy || echo "other formats and numpy's writers not tried: no numpy"
