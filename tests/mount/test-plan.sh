#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fragctl plan foretells, byte by byte, what the ranks of jobs and of DeepSpeed's checkpoints hold.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
export LC_ALL=C
unset FRAG_PINNED_MEM FRAG_SWAP_CONFIG FRAG_SWAP_DIR

# planned COLUMN MODEL OPTION...: prints what a rank needs, which must be the same for all ranks.
planned() {
	column=$1
	shift
	within 60 fragctl plan -Hp -o "$column" "$@" >out || fail "fragctl plan $*: $?"
	[ "$(wc -l <out)" = 1 ] || fail "fragctl plan $*: ranks are not alike: $(cat out)"
	cat out
}

# held RANK KEY: prints the bytes of the rank's partitions of a state in the mount.
held() {
	stat -c %s "$M/ranks/$1/partitions"/*/"$2" | awk '{ sum += $1 } END { print sum }'
}

# ---- DeepSpeed's checkpoints, planned for the ranks that saved them

check_checkpoint() { # ARCHIVE STAGE
	rm -rf c
	mkdir c
	tar -xzf "$top_srcdir/tests/data/checkpoints/$1.tar.gz" -C c
	C=$(echo c/*)
	within 60 fragfs -o fsname=other "$C" "$M" || fail "$1 is not mounted"
	world=$(ls "$M/ranks" | wc -l)
	fp32=$(planned fp32 "$C" -S "$2")
	[ "$fp32" = "$(held 0 fp32)" ] || fail "$1: rank 0 has fp32 of $(held 0 fp32), planned $fp32"
	[ "$(planned optimizer "$C" -S "$2" --world "$world")" = "$(($(held 0 exp_avg) + $(held 0 exp_avg_sq)))" ] ||
		fail "$1: optimizer"
	# The files of other ranks lack the padding at the end.
	for rank in $(ls "$M/ranks"); do
		[ "$(held "$rank" fp32)" -le "$fp32" ] || fail "$1: rank $rank has fp32 of $(held "$rank" fp32), planned $fp32"
	done
	# The plan of the mount is the same.
	[ "$(planned fp32 "$M" -S "$2")" = "$(held 0 fp32)" ] || fail "$1: of the mount"
	unmount
}

check_checkpoint ds0.19.8/z1-bf16-w2 1
check_checkpoint ds0.19.8/z2-fp16-w3 2
check_checkpoint ds0.14.5/z2-bf16-w4 2
check_checkpoint ds0.14.5/z3-bf16-w2 3
check_checkpoint ds0.14.5/z3-bf16-w3-sub 3

# ---- running jobs

# train STAGE OPTION...: starts three ranks, and mounts the job.
train() {
	rm -f rank*.log
	stage=$1
	shift
	ranks=
	for rank in 0 1 2; do
		RANK=$rank WORLD_SIZE=3 FRAG_JOB_ID=plan-$$-$stage "$top_builddir/docs/examples/train" --stage "$stage" \
			--forever --every 1 --pause-ms 20 "$@" >rank$rank.log 2>&1 &
		started $!
		ranks="$ranks $!"
	done
	wait_until 60 grep -qs '^step' rank0.log || fail "it does not train"
	address=$(sed -n 's/^train: address //p' rank0.log)
	within 60 fragfs "$address" "$M" || fail "no mount"
}

end_train() {
	unmount
	kill $ranks
	wait $ranks 2>/dev/null || :
}

# health RANK COLUMN
health() {
	awk -v rank="$1" -v column="$2" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } NR > 1 && $1 == rank { print $at[column] }' \
		"$M/.frag/health"
}

# counted RANK: prints the bytes that fragctl status shows of the rank.
counted() {
	fragctl status -Hp -o rank,bytes "$M" | awk -v rank="$1" '$1 == rank { print $2 }'
}

# same_as_job MODEL OPTION...: the plan is that which the job's ranks have.
same_as_job() {
	fp32=$(planned fp32 "$@")
	lp=$(planned lp "$@")
	nvme=$(planned nvme "$@")
	[ "$(planned grad "$@")" = "$fp32" ] && [ "$(planned optimizer "$@")" = $((2 * fp32)) ] || fail "plan: $*"
	for rank in 0 1 2; do
		for key in fp32 grad exp_avg exp_avg_sq; do
			[ "$(held $rank $key)" = "$fp32" ] || fail "rank $rank: $key of $(held $rank $key), planned $fp32: $*"
		done
		[ "$(health "$rank" swap_bytes)" = "$nvme" ] ||
			fail "rank $rank: NVMe $(health "$rank" swap_bytes), planned $nvme: $*"
	done
	# Rank 0 has pieces without padding.
	stat -c %s "$M/ranks/0/params"/*/bf16 | awk -v want="$lp" '{ sum += $1 } END { print sum; exit sum != want }' >out ||
		fail "rank 0: bf16 of $(cat out), planned $lp: $*"
}

for stage in 0 1 2 3; do
	train $stage
	same_as_job "$address" --stage $stage
	# The example keeps no low-precision gradients; the pieces of its ranks lack the padding of stage 3.
	[ $stage != 2 ] || [ "$(counted 0)" = "$(planned total "$address" --stage 2)" ] ||
		fail "stage 2: fragctl status counts $(counted 0), planned $(cat out)"
	if [ $stage = 3 ]; then
		cp "$M/export/model.safetensors" model.safetensors
		cp "$M/export/model.bf16.safetensors" model.bf16.safetensors
	fi
	end_train
done
train 3
same_as_job "$T/model.bf16.safetensors" --world 3 --stage 3
same_as_job model.bf16.safetensors -W 3
end_train

# On NVMe: with buffers of this size, partitions of 4 KiB or more are there.
export FRAG_PINNED_MEM=70K
mkdir swap
train 3 --swap "$T/swap"
same_as_job "$address" --swap
[ "$(planned host "$address" --swap)" -gt 65536 ] || fail "the small group is not in memory: $(cat out)"
[ "$(planned nvme model.bf16.safetensors -W 3 -x)" -gt 0 ] || fail "nothing goes to NVMe"
[ "$(planned pinned model.bf16.safetensors -W 3 -x)" = \
	"$(awk '/^buffer/ { at[$1] = $2 } END { print at["buffer_bytes"] * at["buffers"] }' "$M/ranks/0/pinned")" ] ||
	fail "pinned of $(cat out), of the job: $(cat "$M/ranks/0/pinned")"
end_train
unset FRAG_PINNED_MEM

# ---- tiers, sums and errors

model=model.bf16.safetensors
total=$(planned total $model -W 3)
[ "$(planned host $model -W 3 --offload cpu)" = "$((total - $(planned lp $model -W 3)))" ] || fail "offload"
[ "$(planned total $model -W 3 -k 0)" = "$((total - 2 * $(planned fp32 $model -W 3)))" ] || fail "states"
[ "$(planned hpz $model -W 4 --hpz 2)" -gt "$(planned lp $model -W 4)" ] || fail "hpz"
within 60 fragctl plan $model -W 3 >out || fail "plan: $?"
grep -q '^RANK  *TO  *DEVICE  *HOST  *NVME  *TOTAL$' out || fail "heading: $(cat out)"
grep -q '^all 3 ranks: device ' out && grep -q '^largest: rank 0, ' out || fail "sums: $(cat out)"
within 60 fragctl plan $model -W 3 -J >out || fail "plan -J: $?"
grep -q "\"total\": $total,\?$" out && grep -q "\"total\": $((3 * total)),\?$" out && grep -q '"largest": 0' out ||
	fail "JSON: $(cat out)"

within 60 fragctl plan $model -W 8 --tp 2 --groups >out || fail "plan -g: $?"
grep -qx 'data: 0,2,4,6 1,3,5,7' out && grep -qx 'tensor: 0,1 2,3 4,5 6,7' out && ! grep -q '^expert:' out ||
	fail "groups: $(cat out)"
within 60 fragctl plan $model -W 4 --hpz 2 -g -J | tr -d ' \n' >out
grep -q '"hpz":\[\[0,1\],\[2,3\]\]' out || fail "groups in JSON: $(cat out)"

fails() { # STATUS TEXT OPTION...
	status=$1 text=$2 got=0
	shift 2
	within 60 fragctl plan "$@" >out 2>&1 || got=$?
	[ $got = "$status" ] && grep -q -e "$text" out || fail "fragctl plan $*: exit $got: $(cat out)"
}
fails 2 'world 3 is not a multiple of sp 1 x tp 2' $model -W 3 --tp 2
fails 2 'ep 3: no parameter has a component experts' $model -W 3 --ep 3
fails 2 'hpz is for stage 3' $model -W 4 --hpz 2 -S 2
fails 2 'same states' $model --swap --offload cpu
fails 2 'there is only cpu' $model --offload gpu
fails 2 'a stage of ZeRO' $model -S 4
fails 1 'no mount, no job of this host and no checkpoint' nothing.safetensors
