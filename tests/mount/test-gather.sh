#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A mount's reads of states on devices, by rounds of the ranks, over the stubs of the CUDA runtime and of NCCL: the
# bytes are those that come by the host, of the step that the reader has open, whatever is trained since; a resting
# trainer, or a rank killed meanwhile, only cost the reader time.
# shellcheck disable=SC2086 # lists of process ids are split where they are used
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
use_stubs
train=$top_builddir/docs/examples/train
fragfs=$top_builddir/fragfs
H=$T/host
mkdir "$H"
export WORLD_SIZE=2 FRAG_GATHER_MEM=32M

# shellcheck disable=SC2317 # called when the script ends
# start NAME OPTION...
start() {
	name=$1 ranks=
	shift
	for rank in 0 1; do
		RANK=$rank FRAG_JOB_ID=$name-$$ "$train" --stage 2 --every 1 --batch 4 --hidden 53 --forever --device $rank \
			"$@" >"$name.$rank.log" 2>&1 &
		ranks="$ranks $!"
		started $!
	done
	wait_until 60 grep -q '^train: address' "$name.0.log" || fail "$name: no job"
	address=$(sed -n 's/^train: address //p' "$name.0.log")
}

finish() { # finish SIGNAL
	kill -$1 $ranks 2>/dev/null || :
	for pid in $ranks; do
		wait $pid || [ $1 = KILL ] || fail "$name: a rank exited with $?"
	done
}

mount_at() { # mount_at FOLDER OPTIONS
	within 60 "$fragfs" "$address" "$1" -o "$2" || fail "$name: fragfs: $?"
}

leave() {
	within 60 fusermount3 -u "$1" 2>/dev/null || within 60 umount "$1" || fail "cannot unmount $1"
}

metric() { # metric NAME
	sed -n "s/^fragfs_$1 //p" "$M/.frag/metrics"
}

connected() {
	grep -q '^connected, ranks 0 1$' "$M/.frag/nccl"
}

stepped() { # stepped N: so many steps at least
	[ "$(cat "$M/step")" -ge "$1" ]
}

# comes_by_rounds FILE: reads it; true once a round has brought bytes.  A read from the kernel's pages brings none.
comes_by_rounds() {
	cat "$1" >"$T/some"
	[ "$(metric owner_round_bytes_total)" -gt 0 ]
}

set -- "$fragfs" nobody:1 "$M" -o gather=often
status=0
"$@" 2>why || status=$?
[ $status = 2 ] && [ "$(wc -l <why)" = 1 ] && grep -q "gather: 'often' is none of auto|nccl|host" why || fail "gather=often: $status $(cat why)"

# ---- while the job trains, and while it stands

start training --pause-ms 1
mount_at "$M" gather=nccl,rw
mount_at "$H" gather=host
wait_until 60 connected || fail "not connected: $(cat "$M/.frag/nccl")"
wait_until 60 stepped 2 || fail "it does not train"
param=$(ls -S "$M"/params/*/exp_avg | head -n 1)
param=${param#"$M"/}
wait_until 60 comes_by_rounds "$M/$param" || fail "nothing by rounds: $(cat "$M/.frag/nccl")"

echo 60 >line
cp line "$M/.frag/freeze"
for file in "$M"/params/*/fp32 "$M"/params/*/exp_avg; do
	same "$file" "$H/${file#"$M"/}"
done
cp "$H/$param" truth
exec 3<"$M/$param"
head -c 1000 <&3 >got
echo 0 >line
cp line "$M/.frag/freeze"
step=$(cat "$M/step")
wait_until 60 stepped $((step + 3)) || fail "it does not go on"
cat <&3 >>got
exec 3<&-
cmp got truth || fail "other bytes than those of its step"
! cmp -s "$M/$param" truth || fail "nothing was trained"

grep -q '^for mounts: brought [1-9]' "$M/.frag/nccl" || fail "the rank: $(cat "$M/.frag/nccl")"
grep -q '^this mount: gather nccl, by rounds [1-9]' "$M/.frag/nccl" || fail "the mount: $(cat "$M/.frag/nccl")"
grep -q '^this mount: gather host, by rounds 0 .* gather=host [1-9]' "$H/.frag/nccl" || fail "the other: $(cat "$H/.frag/nccl")"
[ "$(metric owner_round_reads_total)" -gt 0 ] || fail "metrics: no reads"
leave "$H"

# ---- a rank is killed meanwhile

(
	while cat "$M/$param" >/dev/null 2>>killed.err; do :; done
	touch over
) &
reader=$!
started $reader
kill -9 ${ranks##* }
wait_until 60 [ -e over ] || fail "a reader hangs"
wait $reader || :
grep -q 'Input/output error\|timed out\|Stale' killed.err || fail "a rank was killed: $(cat killed.err)"
unmount
finish KILL

# ---- a trainer that rests

FRAG_GATHER_MEM=much
start resting --pause-ms 3600000
grep -q 'FRAG_GATHER_MEM=much is no number of bytes' resting.0.log || fail "FRAG_GATHER_MEM=much: nothing is said"
mount_at "$M" gather=nccl
wait_until 60 stepped 1 || fail "it does not train"
wait_until 60 connected || fail "not connected: $(cat "$M/.frag/nccl")"
within 60 cat "$M/$param" >/dev/null || fail "a read of a job that rests"
[ "$(metric 'round_unfit_total{reason="boundary"}')" -ge 1 ] || fail "not for want of a boundary: $(cat "$M/.frag/metrics")"
[ "$(metric owner_round_bytes_total)" = 0 ] || fail "a round without a boundary"
[ "$(metric owner_message_bytes_total)" -gt 0 ] || fail "nothing by messages"
unmount
finish TERM
