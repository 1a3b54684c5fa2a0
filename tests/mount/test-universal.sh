#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# export/universal/: a copy of it, mounted as a universal checkpoint of DeepSpeed, has the same states.
# TEST_CASES: those of tests/data/checkpoints.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
export LC_ALL=C
cases=$top_srcdir/tests/data/checkpoints
N=$T/N
mkdir "$N"

# same_universal: the copy of export/universal has all states of the mount's parameters, in their shapes, and the
# hyper-parameters of the optimizer's groups.
same_universal() {
	for folder in "$M"/groups/[0-9]*/params/*; do
		name=${folder##*/}
		[ -e "$folder/fp32" ] || continue
		[ -n "$(cat "$folder/shape")" ] && shape=$(cat "$folder/shape") || shape=1
		[ "$(cat "$N/params/$name/shape")" = "$shape" ] || fail "shape of $name"
		for state in "$folder"/*.npy; do
			state=$(basename "$state" .npy)
			case $state in bf16 | fp16 | lp | master | step) continue ;; esac
			cmp "$folder/$state" "$N/params/$name/$state" || fail "$name/$state of export/universal"
		done
	done
	for number in "$M"/groups/[0-9]*/*[a-z0-9]; do
		case ${number##*/} in kind | params | ranks | replicas | shards | sub_groups) continue ;; esac
		cmp "$number" "$N/${number#"$M"/}" || fail "${number#"$M"/} of export/universal"
	done
}

# Without hyper-parameters of an optimizer training cannot resume, so there is no export/universal.
within 60 fragfs "$cases/../dcp/fsdp-3-bf16" "$M" || fail "fsdp-3-bf16 is not mounted"
[ -z "$(ls "$M/export" | grep universal)" ] || fail "universal: $(ls "$M/export")"
unmount

for name in ${TEST_CASES:-ds0.10.3/z1-fp16-w4 ds0.14.5/z2-bf16-w3-universal ds0.14.5/z3-bf16-w3-sub ds0.19.8/bf16opt-w3 \
	ds0.19.8/z0-bf16-w2 ds0.19.8/z1-bf16-w2-adagrad ds0.19.8/z2-bf16-w3-cpu-adam ds0.19.8/z2-bf16-w3-sgd \
	ds0.19.8/z2-fp32-w3-amsgrad ds0.19.8/z3-bf16-w3-universal ds0.19.8/z3-fp16-w4 ../dcp/fsdp-2 ../dcp/hsdp-4}; do
	C=$cases/$name
	if [ ! -d "$C" ]; then
		gzip -dc "$C.tar.gz" | tar -xf - -C "$T"
		C=$T/${name##*/}
	fi
	within 60 fragfs "$C" "$M" || fail "$name is not mounted"
	[ "$(cat "$M/export/latest_universal")" = universal ] || fail "latest_universal"
	rm -rf "$T/copy"
	within 60 cp -r "$M/export/universal" "$T/copy" || fail "cp export/universal"
	if [ -e "$T/copy/zero/odd%2Fname%25" ]; then # DeepSpeed has folders in folders
		mkdir "$T/copy/zero/odd"
		mv "$T/copy/zero/odd%2Fname%25" "$T/copy/zero/odd/name%"
	fi
	# The checkpoint's own file has both names.  A mount tells the stage from the name, and looks for frozen
	# parameters of stage 3 in the files of all ranks.
	for own in "$C"/global_step*/mp_rank_00_model_states.pt "$C"/global_step*/zero_pp_rank_0_mp_rank_00_model_states.pt; do
		[ -e "$own" ] || continue
		for model in "$T"/copy/*_model_states.pt; do
			cmp "$own" "$model" || fail "$model"
			rm "$model"
		done
		cp "${own%/*}"/*_model_states.pt "$T/copy"
	done
	case $name in *dcp/*) rm "$T"/copy/zero_pp* ;; esac
	case $name in
	*/z0-*) ;; # the file of a job without ZeRO has no shapes, which a mount needs
	*)
		within 60 fragfs "$T/copy" "$N" || fail "export/universal is refused"
		same_universal
		within 60 fusermount3 -u "$N" || fail "cannot unmount the copy"
		;;
	esac
	unmount
done
