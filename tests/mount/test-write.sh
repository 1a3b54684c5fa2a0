#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Written bytes are committed once, as a whole, or not at all; sizes never change.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
mount_fake rw
P=$M/params/layers.0.bias
F=$P/fp32
N=4000

commits() {
	cat "$M/groups/0/commits"
}

# unchanged WHAT: bytes, number of commits and size are as before.
unchanged() {
	cmp "$F" "$T/now" || fail "$1 changed bytes"
	[ "$(commits)" = "$before" ] || fail "$1 committed"
	[ "$(stat -c %s "$F")" = $N ] || fail "$1 changed the size"
}

# changed: there is one commit more, and the bytes are $T/now.
changed() {
	cmp "$F" "$T/now" || fail "$1: other bytes"
	[ "$(commits)" = $((before + 1)) ] || fail "$1: $(commits) commits, $before before"
	[ "$(stat -c %s "$F")" = $N ] || fail "$1 changed the size"
	before=$(commits)
}

fresh() {
	head -c ${1:-$N} /dev/urandom >"$T/new"
}

before=$(commits)
fake-bytes layers.0.bias "" fp32 >"$T/now"
unchanged nothing

for tool in "cp \$T/new \$F" "cat \$T/new >\$F" "dd if=\$T/new of=\$F bs=77 status=none" \
	"dd if=\$T/new of=\$F bs=77 conv=notrunc status=none" "tee \$F <\$T/new >/dev/null" \
	"dd if=\$T/new of=\$F bs=1000 conv=fsync status=none" "cp -p \$T/new \$F"; do
	fresh
	(eval "within 60 $tool") || fail "$tool: status $?"
	cp "$T/new" "$T/now"
	changed "$tool"
done

# A hole that cp leaves out is zeros.
for sparse in auto always; do
	fresh
	cp "$T/new" "$F" || fail "cp"
	before=$(commits)
	rm "$T/new"
	truncate -s $N "$T/new"
	within 60 cp --sparse=$sparse "$T/new" "$F" || fail "cp --sparse=$sparse: status $?"
	cp "$T/new" "$T/now"
	changed "cp --sparse=$sparse"
done

# So is one in the middle; one at the beginning is a seek of a program that has truncated by mistake.
W=$M/params/layers.0.weight/fp32 # 2 MiB
fresh 4096
truncate -s 1M "$T/new"
head -c 1048576 /dev/urandom >>"$T/new"
within 60 cp --sparse=always "$T/new" "$W" || fail "cp of a hole in the middle: status $?"
cmp "$W" "$T/new" || fail "cp of a hole in the middle: other bytes"
before=$(commits)
truncate -s 0 "$T/new"
truncate -s 1M "$T/new"
head -c 1048576 /dev/urandom >>"$T/new"
cp "$W" "$T/weight"
refused "Invalid argument" cp --sparse=always "$T/new" "$W"
cmp "$W" "$T/weight" || fail "cp of a hole at the beginning changed bytes"
unchanged "cp of a hole at the beginning"

# Setting times does nothing, but succeeds: programs that copy set them, and would fail after the commit.
fresh
touch -d 2026-01-02 "$F" || fail "touch"
! stat -c %y "$F" | grep -q 2026-01-02 || fail "touch has set the time"
unchanged touch

# A part in place.
fresh 300
dd if="$T/new" of="$F" bs=100 seek=7 conv=notrunc status=none || fail "dd notrunc"
dd if="$T/new" of="$T/now" bs=100 seek=7 conv=notrunc status=none
changed "dd seek"
fresh 3
dd if="$T/new" of="$F" bs=1 seek=3997 conv=notrunc status=none || fail "dd at the end"
dd if="$T/new" of="$T/now" bs=1 seek=3997 conv=notrunc status=none
changed "dd at the end"

# Too short, too long, empty.
fresh 3999
refused "Invalid argument" cp "$T/new" "$F"
unchanged "cp of a short file"
refused "Invalid argument" sh -c 'cat "$1" >"$2"' sh "$T/new" "$F"
unchanged "cat of a short file"
fresh 4001
refused "File too large" cp "$T/new" "$F"
unchanged "cp of a long file"
refused "File too large" dd if="$T/new" of="$F" bs=4001 conv=notrunc
unchanged "dd of a long file"
: >"$F" || fail "': >' is refused"
unchanged "': >'"
refused "File too large" sh -c 'cat "$1" >>"$2"' sh "$T/new" "$F"
unchanged "'>>'"
refused "Invalid argument" truncate -s 10 "$F"
refused "Invalid argument" truncate -s 4001 "$F"
truncate -s $N "$F" || fail "truncate to the size it has"
truncate -s 0 "$F" || fail "truncate to 0, as cp does"
unchanged truncate
refused "Operation not supported" fallocate -l 8000 "$F"
unchanged fallocate

# The engine refuses: close(2) fails.
head -c 16384 /dev/zero >"$T/new"
refused "Input/output error" cp "$T/new" "$M/params/faulty/fails"
unchanged "another file's error"

# Files that cannot be written.
refused "Permission denied" cp "$T/new" "$P/bf16"
refused "Invalid argument" cp "$T/new" "$P/fp32.npy"
refused "Permission denied" cp "$T/new" "$P/shape"
refused "Permission denied" cp "$T/new" "$M/ranks/0/params/layers.0.bias/fp32"
refused "Permission denied" cp "$T/new" "$M/ranks/0/partitions/0.0/fp32"
[ "$(grep -c 'ranks/0/.* is not writable: ' "$M/.frag/log")" = 1 ] || fail "not one line: $(cat "$M/.frag/log")"
refused "not permitted" touch "$M/params/new"
refused "not permitted" mkdir "$M/params/new"
refused "not permitted" rm -f "$F"
refused "not permitted" mv "$F" "$P/other"
refused "not permitted" ln -s x "$M/new"
refused "not permitted" chmod 600 "$F"
unchanged "what is refused"

# Hyper-parameters are text.
echo 5e-4 >"$M/groups/0/lr" || fail "echo to lr"
[ "$(cat "$M/groups/0/lr")" = 0.0005 ] || fail "lr is $(cat "$M/groups/0/lr")"
printf 0.25 >"$M/groups/0/lr" || fail "printf to lr"
[ "$(cat "$M/groups/0/lr")" = 0.25 ] || fail "lr is $(cat "$M/groups/0/lr")"
if (echo fast >"$M/groups/0/lr") 2>/dev/null; then fail "lr took 'fast'"; fi
for bad in nan -nan inf -Infinity 'nan(7)'; do
	if (echo "$bad" >"$M/groups/0/lr") 2>/dev/null; then fail "lr took '$bad'"; fi
	printf %s "$bad" >"$T/bad"
	refused "Invalid argument" cp "$T/bad" "$M/groups/0/lr"
done
[ "$(grep -c 'groups/0/lr: .* is refused: no finite number' "$M/.frag/log")" = 10 ] || fail "$(cat "$M/.frag/log")"
echo "0.1 0.2" >"$T/two"
refused "Invalid argument" cp "$T/two" "$M/groups/0/lr"
head -c 65 /dev/zero | tr '\0' 1 >"$T/two"
refused "Invalid argument" cp "$T/two" "$M/groups/0/lr"
grep -q 'groups/0/lr: more than 64 bytes are refused' "$M/.frag/log" || fail "$(cat "$M/.frag/log")"
for lost in 1e-400 1e400; do
	printf %s $lost >"$T/two"
	refused "Invalid argument" cp "$T/two" "$M/groups/0/lr"
	if (echo $lost >"$M/groups/0/lr") 2>/dev/null; then fail "lr took '$lost'"; fi
	[ "$(grep -c "groups/0/lr: $lost is refused: not representable as a float64" "$M/.frag/log")" = 2 ] ||
		fail "$(cat "$M/.frag/log")"
done
[ "$(cat "$M/groups/0/lr")" = 0.25 ] || fail "lr is $(cat "$M/groups/0/lr")"
# A partial write would make another number.
printf 9 >"$T/nine"
refused "Invalid argument" dd if="$T/nine" of="$M/groups/0/lr" conv=notrunc
refused "Invalid argument" dd if="$T/nine" of="$M/groups/0/lr" bs=1 seek=3 conv=notrunc
if (echo 9 >>"$M/groups/0/lr") 2>/dev/null; then fail "lr took '9' behind it"; fi
[ "$(grep -c 'groups/0/lr: a write of a part is refused' "$M/.frag/log")" = 3 ] || fail "$(cat "$M/.frag/log")"
grep -q 'groups/0/lr: what was written is refused: no number' "$M/.frag/log" || fail "$(cat "$M/.frag/log")"
[ "$(cat "$M/groups/0/lr")" = 0.25 ] || fail "lr is $(cat "$M/groups/0/lr")"
# write(2) commits a whole line, and shells report its errno; a second line is a partial write.
before=$(cat "$M/generation")
# lr_is VALUE COMMITS: lr has the value, after that many edits.
lr_is() {
	[ "$(cat "$M/groups/0/lr")" = "$1" ] || fail "lr is $(cat "$M/groups/0/lr"), not $1"
	[ "$(cat "$M/generation")" = $((before + $2)) ] || fail "$(($(cat "$M/generation") - before)) edits, not $2"
}
if (printf '0.5\n' && printf '0.625\n') >"$M/groups/0/lr" 2>/dev/null; then fail "lr took a second line"; fi
lr_is 0.5 1
(echo fast 2>/dev/null || echo 0.25) >"$M/groups/0/lr" || fail "lr took nothing after a line that it refused"
lr_is 0.25 2
exec 5>"$M/groups/0/lr"
echo 0 >&5
lr_is 0 3
exec 5>&-
lr_is 0 3
if (echo -1 >"$M/groups/0/lr") 2>"$T/why"; then fail "echo has not heard that the edit failed"; fi
grep -q 'Input/output error\|I/O error' "$T/why" || fail "$(cat "$T/why")"
lr_is 0 3
before=$(commits)
printf '0.75\n' | dd of="$M/groups/0/lr" conv=notrunc status=none || fail "all of it, in place"
[ "$(cat "$M/groups/0/lr")" = 0.75 ] || fail "lr is $(cat "$M/groups/0/lr")"

# A program that writes a new file and renames it fails; one that truncates and writes succeeds.
for tool in "sed -i s/0/1/ \$M/groups/0/lr" "mv \$T/moved \$F" "mv \$F \$T/away"; do
	head -c $N /dev/zero >"$T/moved"
	refused "not permitted" sh -c 'M=$1 T=$2 F=$3; eval "$4"' sh "$M" "$T" "$F" "$tool"
done
[ "$(cat "$M/groups/0/lr")" = 0.75 ] || fail "lr is $(cat "$M/groups/0/lr")"
unchanged "sed -i and mv"
if command -v vim >/dev/null; then
	within 60 vim -N -u NONE -es -c 's/.*/0.5/' -c wq "$M/groups/0/lr" </dev/null || fail "vim: $?"
	[ "$(cat "$M/groups/0/lr")" = 0.5 ] || fail "vim: lr is $(cat "$M/groups/0/lr")"
	within 60 vim -N -u NONE -b -es -c wq "$F" </dev/null || :
	cmp "$F" "$T/now" || fail "vim changed bytes"
fi
grep -q 'layers.0.bias/fp32: closed without a commit, 3999 staged bytes dropped' \
	"$M/.frag/log" || fail "what was dropped is not in the log"
# A child that closes a file which its parent writes commits nothing.
if command -v python3 >/dev/null; then
	within 60 python3 - "$F" "$M/groups/0/commits" <<'END' || fail "a child's close: $?"
import os, subprocess, sys


def commits():
    with open(sys.argv[2]) as f:
        return f.read()


before = commits()
fd = os.open(sys.argv[1], os.O_WRONLY)
os.pwrite(fd, b"abcd", 0)
subprocess.run(["true"], pass_fds=[fd], check=True)
assert commits() == before, "the child has committed"
os.close(fd)
assert commits() != before, "the writer has not committed"
END
fi
unmount
