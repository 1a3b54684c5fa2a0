#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/examples/train --device over a stub of the CUDA runtime, found by its usual name: the losses and files are the
# same, bit for bit, as without a device; an edit; metrics; readers of a device that stands still get an error in time,
# and the job goes on.
# shellcheck disable=SC2086 # lists of process ids are split where they are used
. "$top_srcdir/tests/mount/train.sh"
stub=$top_builddir/tests/cuda/.libs/libcudart-stub.so
[ -f "$stub" ] || skip "built without CUDA: no stub of its runtime"
need_fuse
mkdir "$T/lib"
ln -s "$stub" "$T/lib/libcudart.so.13"
shape='--hidden 53' rank_libraries=$T/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export STUB_STALL_FILE="$T/stall" FRAG_GATHER=host

end_job() {
	kill -TERM $ranks 2>/dev/null || :
	finish
}

stepped() { # stepped N: so many steps at least
	[ "$(cat "$M/step")" -ge "$1" ]
}

# The job rests after its first step.
copy_states() {
	wait_until 60 stepped 1 || fail "$name: no step: $(cat "$name".*.log)"
	mkdir "$1"
	for folder in "$M"/params/*; do
		for key in fp32 exp_avg exp_avg_sq grad bf16; do
			cat "$folder/$key" >"$1/${folder##*/}.$key" || fail "$name: ${folder##*/}/$key"
		done
	done
}

# ---- with a device and without

for where in host device; do
	set -- --forever --pause-ms 3600000
	[ $where = host ] || set -- "$@" --device 0
	start $where "$@"
	mount_it
	copy_states $where.states
	unmount
	end_job
done
[ "$(ls host.states | wc -l)" -ge 20 ] || fail "few states: $(ls host.states)"
diff -r host.states device.states || fail "other bytes on a device"
for log in host device; do
	sed -n 's/^train: losses //p' $log.0.log >$log.losses
done
[ -s host.losses ] || fail "no losses"
# Stage 3; its shards are in an arena of the device, which is compacted.
for where in host device; do
	set -- --stage 3 --steps 8
	[ $where = host ] || set -- "$@" --device 0 --arena
	start arena.$where "$@"
	finish
done
[ "$(grep losses arena.host.0.log)" = "$(grep losses arena.device.0.log)" ] || fail "other losses in an arena on a device"
grep -q ' [1-9][0-9]* moved$' arena.device.0.log || fail "arena: nothing was moved: $(tail -n 1 arena.device.0.log)"
cmp host.losses device.losses || fail "other losses on a device"

# ---- states on NVMe that are moved to the device, and trained there

mkdir "$T/swap"
echo 60 >line-60
echo 0 >line-0
start still --steps 120
finish
FRAG_PINNED_MEM=64K
export FRAG_PINNED_MEM
start placed --forever --pause-ms 2 --swap "$T/swap" --device 0
mount_it rw
P=$(find "$M/params" -name exp_avg -printf '%s %h\n' | sort -n | tail -n 1 | cut -d ' ' -f 2)
for tier in device host device swap device; do
	within 60 fragctl place -j "$M" 'params/*/exp_avg*' $tier || fail "no move to $tier: $(cat "$name".*.log)"
	[ "$(awk '$2 == "exp_avg" { print $3 }' "$P/fragments" | sort -u)" = $tier ] || fail "not in $tier: $(cat "$P/fragments")"
	within 60 cat "$P/exp_avg" "$P/fp32" "$P/exp_avg_sq" >/dev/null || fail "not read in $tier"
	step=$(cat "$M/step")
	wait_until 60 stepped $((step + 2)) || fail "it does not train in $tier"
done
within 60 fragctl place -j "$M" '*/*' device || fail "no move of all to the device"
step=$(cat "$M/step")
wait_until 60 stepped $((step + 2)) || fail "it does not train on the device"
echo 60 >line
cp line "$M/.frag/freeze"
head -c "$(stat -c %s "$P/exp_avg")" /dev/zero >zeros
cp "$P/exp_avg" kept
cp zeros "$P/exp_avg" || fail "no edit on the device"
cmp zeros "$P/exp_avg" || fail "the edit is not there"
cp kept "$P/exp_avg" || fail "no edit back"
echo 0 >line
cp line "$M/.frag/freeze"
wait_until 60 stepped $((step + 4)) || fail "it does not go on"
unmount
end_job
unset FRAG_PINNED_MEM
losses still >still.losses
losses placed | head -n 120 >placed.losses
[ "$(wc -l <placed.losses)" -ge 5 ] || fail "too few losses: $(cat placed.losses)"
head -n "$(wc -l <placed.losses)" still.losses | cmp - placed.losses || fail "other losses where states have moved"

# ---- a sweep of more than one slice of a device

RANK=0 WORLD_SIZE=1 FRAG_JOB_ID=sweep-$$ FRAG_SWAP_DIR=$T/swap FRAG_PINNED_MEM=8M \
	LD_LIBRARY_PATH=$T/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$top_builddir/tests/mount/sweep-job" >sweep.log 2>sweep.err &
job=$!
started $job
wait_until 60 grep -q '^address' sweep.log || fail "no job: $(cat sweep.err)"
within 60 "$top_builddir/fragfs" "$(sed -n 's/^address //p' sweep.log)" "$M" -o rw || fail "fragfs: $?"
swept() { # swept SLICES
	[ "$(grep '^slices' sweep.log | tail -n 1)" = "slices $1" ]
}
for tier in device swap device; do
	within 60 fragctl place -j "$M" 'params/w/*' $tier || fail "no move to $tier: $(cat sweep.err)"
	step=$(cat "$M/step")
	wait_until 60 stepped $((step + 2)) || fail "it does not train in $tier: $(cat sweep.err)"
	[ $tier = swap ] || wait_until 60 swept 2 || fail "not two slices: $(cat sweep.log)"
done
cp line-60 "$M/.frag/freeze"
cp "$M/params/w/fp32" "$M/params/w/exp_avg" .
for tier in swap device; do
	within 60 fragctl place -j "$M" 'params/w/*' $tier || fail "no move to $tier in a freeze"
	for key in fp32 exp_avg; do
		cmp $key "$M/params/w/$key" || fail "$key in $tier is not what it was"
	done
done
cp line-0 "$M/.frag/freeze"
step=$(cat "$M/step")
wait_until 60 stepped $((step + 2)) || fail "it does not go on: $(cat sweep.err)"
kill -TERM $job
wait $job || fail "the sweeping job: $(cat sweep.err)"
unmount

# ---- while it trains

start training --forever --pause-ms 5 --device 1 --device-ms 1000
mount_it rw
P=$M/params/$(ls "$M/params" | head -n 1)
wait_until 60 stepped 3 || fail "it does not train"
grep -q '^none: rank 0 is not to be connected: FRAG_GATHER=host was set$' "$M/.frag/nccl" || fail "nccl: $(cat "$M/.frag/nccl")"
grep -q device "$P/fragments" || fail "fragments: $(cat "$P/fragments")"
within 60 cat "$M"/params/*/fp32 "$M"/params/*/exp_avg >/dev/null || fail "a read"

echo 60 >line
cp line "$M/.frag/freeze"
head -c "$(stat -c %s "$P/fp32")" /dev/zero >zeros
cp zeros "$P/fp32" || fail "the edit"
cmp zeros "$P/fp32" || fail "the edit is not there"
cmp -n "$(stat -c %s "$P/bf16")" zeros "$P/bf16" || fail "the low-precision copy is another"
echo 0 >line
cp line "$M/.frag/freeze"
step=$(cat "$M/step")
wait_until 60 stepped $((step + 2)) || fail "it does not go on"
! cmp -s zeros "$P/fp32" || fail "the masters do not change any more"

value() { # value METRIC
	sed -n "s/^fragfs_rank_$1 //p" metrics
}
counts() { # a rank says its numbers once a second
	cat "$M/.frag/metrics" >metrics
	[ "$(value "$1")" -gt 0 ]
}
for counter in 'state_bytes{rank="1",tier="device"}' 'device_from_bytes_total{rank="1"}' 'device_to_bytes_total{rank="1"}'; do
	wait_until 60 counts "$counter" || fail "metrics: $counter"
done
grep -q 'fragfs_rank_device_kept_bytes{rank="1"}' metrics || fail "metrics: kept"
[ "$(value 'device_errors_total{rank="1"}')" = 0 ] || fail "metrics: errors"

# ---- a device that stands still

touch "$T/stall"
status=0
within 60 cat "$P/exp_avg" >/dev/null 2>cat.err || status=$?
[ $status = 1 ] && grep -q 'Input/output error\|timed out' cat.err || fail "a read of a device that stands still: $status $(cat cat.err)"
wait_until 60 counts 'device_errors_total{rank="0"}' || wait_until 60 counts 'device_errors_total{rank="1"}' || fail "metrics: no error"
step=$(cat "$M/step")
wait_until 60 stepped $((step + 2)) || fail "the job does not go on"
within 60 cat "$P/bf16" >/dev/null || fail "what is in memory cannot be read"
! within 60 cp zeros "$P/fp32" 2>/dev/null || fail "an edit of a device that stands still"
wait_until 60 grep -q '"outcome":"failed".*rank [01] could not apply it' "$M/.frag/log" || fail "it is not said to have failed: $(tail -n 5 "$M/.frag/log")"
rm "$T/stall"
unmount
end_job
