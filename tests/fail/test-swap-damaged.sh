#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A job whose container is damaged behind its back, or whose disk swallows a write: what is read of that is EIO, to a mount
# and to the trainer, and the rank says which parameter it is.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
train=$top_builddir/docs/examples/train
export FRAG_PINNED_MEM=64K
at_end() {
	drop_mount "$M" || :
	umount -l "$T/faulty" 2>/dev/null || fusermount3 -u -z "$T/faulty" 2>/dev/null || :
}

# job NAME DIR: one rank that trains there
job() {
	FRAG_JOB_ID=$1-$$ "$train" --hidden 100 --batch 1 --forever --pause-ms 5 --swap "$2" >"$1.log" 2>&1 &
	rank=$!
	started $rank
	wait_until 60 grep -q '^train: address' "$1.log" || fail "$1: no job"
}

ended() {
	! kill -0 $rank 2>/dev/null
}

named="rank 0: swap: [a-z_0-9]* of [a-z0-9._]*\( and [0-9]* more\)\? (group [01], sub-group 0), bytes [0-9]* to [0-9]*: damaged"

# ---- each block is another while nobody writes

mkdir swap
job flipped "$T/swap"
within 60 "$top_builddir/fragfs" "$(sed -n 's/^train: address //p' flipped.log)" "$M" -o rw || fail "fragfs: $?"
wait_until 60 sh -c "[ \$(cat '$M/step') -ge 3 ]" || fail "it does not train"
echo 60 >line
cp line "$M/.frag/freeze" || fail "it does not freeze"
container=
for fd in "/proc/$rank/fd"/*; do
	case $(readlink "$fd") in *.swap*) container=$fd ;; esac
done
[ -n "$container" ] || fail "no container"
tr '\000-\377' '\001-\377\000' <"$container" >others
dd if=others of="$container" bs=1M conv=notrunc status=none
large=$(find "$M/params" -name exp_avg -size +40k | head -n 1)
[ -n "$large" ] || fail "no large parameter"
name=$(basename "$(dirname "$large")")
if dd if="$large" bs=4096 skip=5 count=1 status=none >got 2>why; then
	fail "damaged bytes were served"
fi
grep -q 'Input/output error' why || fail "$(cat why)"
grep -q "rank 0: swap: exp_avg of $name (group [01], sub-group 0), bytes [0-9]* to [0-9]*: damaged" flipped.log ||
	fail "no line says that it is $name"
grep -q '^damaged_blocks [1-9]' "$M/ranks/0/swap" || fail "ranks/0/swap: $(cat "$M/ranks/0/swap")"
counted() { # a rank says its numbers now and then
	"$top_builddir/fragctl" status "$M" >status.log && grep -q 'damaged block' status.log
}
wait_until 60 counted || fail "fragctl status shows no damage: $(cat status.log)"
! grep -q 'disk error' status.log || fail "a damaged block is no error of the disk: $(cat status.log)"
echo 0 >line
cp line "$M/.frag/freeze"
wait_until 60 ended || fail "it trains with damaged states"
! wait $rank || fail "it ended as if all were well"
drop_mount "$M"

# ---- a write of which nothing is done

mkdir folder faulty
"$top_builddir/tests/fail/faulty-fs" "$T/folder" write 50 LOST "$T/faulty" -f 2>fs.log &
started $!
wait_until 60 mountpoint -q "$T/faulty" || skip "needs to mount: $(cat fs.log)"
job lost "$T/faulty"
wait_until 60 ended || fail "it trains with states of another step"
! wait $rank || fail "it ended as if all were well"
grep -q "$named" lost.log || fail "no line says what was lost"
[ "$(grep -c ': damaged' lost.log)" = 1 ] || fail "more than one line"
