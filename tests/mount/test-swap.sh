#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/examples/train --swap: states many times their pinned memory, and the same losses bit for bit while a mount reads
# them all; then an edit of a state on NVMe, ranks/R/swap and pinned, the tier in xattrs, and the metrics.
# shellcheck disable=SC2086 # lists of process ids are split where they are used
. "$top_srcdir/tests/mount/train.sh"
need_fuse
mkdir "$T/swap"
export FRAG_PINNED_MEM=64K

# all_losses NAME: prints those of a job that has ended, with its last line.
all_losses() {
	losses "$1"
	sed -n 's/^train: losses //p' "$1.0.log"
}

job_lives() {
	kill -0 ${ranks##* } 2>/dev/null
}

number() { # number FILE NAME
	sed -n "s/^$2 //p" "$1"
}

# ---- without --swap, and with it

start memory --steps 60
finish
all_losses memory >memory.losses
[ "$(wc -l <memory.losses)" = 61 ] || fail "not a line for each step"

start swapped --steps 60 --pause-ms 30 --swap "$T/swap"
mount_it
for pid in $ranks; do
	ls -l "/proc/$pid/fd" | grep -q "$T/swap/swapped-$$.rank[01].swap (deleted)" || fail "no file, or it has a name"
done
[ -z "$(ls "$T/swap")" ] || fail "a file: $(ls "$T/swap")"
ended() {
	! job_lives
}

# Gradients can be read between backward and the optimizer's step, and at no other time.
read_grads() {
	for file in "$M"/params/*/grad; do
		if cat "$file" >"$T/read" 2>grad.err; then
			grads=$((grads + 1))
		elif ! grep -q 'No data available' grad.err; then
			wait_until 60 ended || fail "a read failed: $(cat grad.err)"
		fi
	done
}

reads=0 grads=0
while job_lives; do
	read_grads
	for file in "$M"/params/*/fp32 "$M"/params/*/exp_avg* "$M"/ranks/*/params/*/exp_avg; do
		cat "$file" >"$T/read" 2>cat.err || break
		reads=$((reads + 1))
	done
	[ ! -s cat.err ] || wait_until 60 ended || fail "a read failed: $(cat cat.err)"
done
finish
unmount
all_losses swapped | cmp - memory.losses || fail "other losses on NVMe than in memory"
[ "$reads" -ge 10 ] || fail "only $reads reads while it trained"
[ "$grads" -ge 1 ] || fail "no gradient was read while it trained"

# ---- the files of a mount, and an edit

start edited --forever --pause-ms 5 --swap "$T/swap"
mount_it rw
by_size=$(find "$M/params" -name exp_avg -printf '%s %h\n' | sort -n | cut -d ' ' -f 2)
P=$(echo "$by_size" | tail -n 1)
small=$(echo "$by_size" | head -n 1)
wait_until 60 sh -c "[ \$(cat '$M/step') -ge 3 ]" || fail "it does not train"

cat "$M/ranks/1/swap" >swap.text
cat "$M/ranks/1/pinned" >pinned.text
for line in 'states 4' 'errors 0' 'last_error none' 'damaged_blocks 0' 'request_bytes 2097152' \
	'requests_at_once 128' 'read_ahead yes' 'written_behind yes'; do
	grep -qx "$line" swap.text || fail "ranks/1/swap has not '$line': $(cat swap.text)"
done
grep -q '^0\.0	exp_avg_sq	' swap.text || fail "no line of a state: $(cat swap.text)"
grep -q '^swap_out_state	' swap.text || fail "no timer: $(cat swap.text)"
budget=$(($(number pinned.text buffer_bytes) * $(number pinned.text buffers)))
[ "$budget" -le 65536 ] || fail "$budget bytes of buffers"
[ "$(number swap.text state_bytes)" -ge $((3 * budget)) ] || fail "no more states than buffers"
grep -q 'swap' "$P/fragments" || fail "fragments: $(cat "$P/fragments")"
# A state that is too small for the disk is in memory, and its tier says so.
! grep -q 'swap' "$small/fragments" || fail "fragments: $(cat "$small/fragments")"
grep -q 'host' "$small/fragments" || fail "fragments: $(cat "$small/fragments")"
grep -q '^1\.0	exp_avg_sq	' swap.text || fail "no line of a state that stays: $(cat swap.text)"

value() { # value METRIC
	sed -n "s/^fragfs_rank_$1 //p" metrics
}
cat "$M/.frag/metrics" >metrics
[ "$(value 'state_bytes{rank="1",tier="swap"}')" = "$(number swap.text state_bytes)" ] || fail "metrics: state_bytes"
[ "$(value 'swap_errors_total{rank="1"}')" = 0 ] || fail "metrics: errors"
counts() { # a rank says its numbers once a second
	cat "$M/.frag/metrics" >metrics
	[ "$(value "$1{rank=\"1\"}")" -gt 0 ]
}
for counter in swap_in_bytes_total swap_out_bytes_total pinned_bytes; do
	wait_until 60 counts $counter || fail "metrics: $counter"
done

if command -v python3 >/dev/null; then
	tier=$(python3 -c 'import os, sys; print(os.getxattr(sys.argv[1], "user.frag.tier").decode())' "$P/exp_avg")
	[ "$tier" = swap ] || fail "tier $tier"
fi

# An open file shows one generation, by whichever way it is read and whatever the trainer writes meanwhile.
if command -v python3 >/dev/null; then
	cat >twice.py <<'END'
import os, sys, time

def step():
    with open(sys.argv[1]) as f:
        return int(f.read())

for path in sys.argv[2:]:
    fd = os.open(path, os.O_RDONLY)
    size = os.fstat(fd).st_size
    first, begin, end = os.pread(fd, size, 0), step(), time.monotonic() + 60
    while step() < begin + 3:
        assert time.monotonic() < end, 'it does not train'
        time.sleep(0.005)
    again = b''.join(os.pread(fd, min(1000, size - at), at) for at in range(0, size, 1000))
    assert len(first) == size and again == first, f'{path} changed while it was open'
    fresh = os.open(path, os.O_RDONLY)
    assert os.pread(fresh, size, 0) != first, f'{path} is as it was three steps ago'
END
	python3 twice.py "$M/step" "$P/fp32" "$P/exp_avg" "$P/exp_avg_sq" 2>why || fail "$(tail -n 1 why)"
fi

# In a freeze, so that no step changes the state; the low-precision copy follows.
echo 60 >"$T/line"
cp "$T/line" "$M/.frag/freeze"
cat "$P/fp32" "$P/exp_avg_sq" >before
head -c "$(stat -c %s "$P/fp32")" /dev/zero >zeros
cp zeros "$P/fp32" || fail "the edit"
cmp zeros "$P/fp32" || fail "the edit is not there"
cmp -n "$(stat -c %s "$P/bf16")" zeros "$P/bf16" || fail "the low-precision copy is another"
dd if="$P/exp_avg_sq" bs=100 skip=3 count=7 status=none >part
tail -c +$(($(stat -c %s zeros) + 301)) before | head -c 700 | cmp - part || fail "a range is another than the whole"
echo 0 >"$T/line"
cp "$T/line" "$M/.frag/freeze"
step=$(cat "$M/step")
wait_until 60 sh -c "[ \$(cat '$M/step') -gt $((step + 2)) ]" || fail "it does not go on"
! cmp -s zeros "$P/fp32" || fail "the masters do not change any more"
kill -TERM $ranks
finish
unmount

# ---- a job without --swap

start none --forever --pause-ms 5
mount_it
# a busy machine's rank may not answer in time
wait_until 60 sh -c "[ \"\$(cat '$M/ranks/0/swap' '$M/ranks/0/pinned')\" = 'none
none' ]" || fail "a job without swap: $(cat "$M/ranks/0/swap")"
! grep -q 'swap\|pinned' "$M/.frag/metrics" || fail "metrics of what is not there"
[ -z "$(ls "$T/swap")" ] || fail "a file: $(ls "$T/swap")"
kill -TERM $ranks
finish
