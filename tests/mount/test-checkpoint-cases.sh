#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every checkpoint of tests/data/checkpoints, mounted: all files have what the engine had when it saved them.
# TEST_CASES: only those with this text in their path, dsVERSION/NAME.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
cases=$top_srcdir/tests/data/checkpoints
[ "$sanitizer" = no ] || : "${TEST_CASES:=-w3}" # a part: it is slow

# Entries of a parameter's folder that are no states.
aside='step\|dtype\|fragments\|group\|group_index\|numel\|.*\.npy'
wrong=0

complain() {
	echo "$C: $*"
	wrong=$((wrong + 1))
}

# check_folder FOLDER: params or buffers.
check_folder() {
	diff -r "$C/values/$1" "$M/$1" 2>&1 | grep -v "^Only in $M/$1/[^/]*: \($aside\)\$" >"$T/diff" || :
	[ ! -s "$T/diff" ] || complain "$(head -n 5 "$T/diff")"
}

# check_fact WORD...: checks a line of the manifest.
check_fact() {
	case $1 in
	step) [ "$(cat "$M/step")" = "$2" ] || complain step ;;
	ranks) [ "$(ls "$M/ranks" | wc -l)" = "$2" ] || complain ranks ;;
	alias) check_alias "$2" "$3" ;;
	param) check_npy "$4" "$6" && check_group "$4" "$6" ;;
	buffer) check_npy "$4" "$6" ;;
	esac
}

# check_group SHAPE FILE: a parameter of the optimizer is in group 0, or in 1 when it is a vector or a scalar.
check_group() {
	case $2 in */exp_avg | */momentum_buffer | */sum) ;; *) return 0 ;; esac
	case $C,$1 in
	*universal,*) return 0 ;;
	*adagrad,* | *,*,*) group=0 ;;
	*) group=1 ;;
	esac
	folder=${2%/*}
	case $folder in params/*) groups=groups ;; *) groups=${folder%%/*}/groups ;; esac
	[ "$(cat "$M/$folder/group")" = $group ] || complain "group of $folder"
	case $folder in */head.weight) return 0 ;; esac # another name of a member
	[ "$M/$groups/$group/params/${folder##*/}" -ef "$M/$folder" ] || complain "$groups/$group has no $folder"
}

fragments_of() {
	cat "$M"/params/"$1"/fragments "$M"/mp_rank_*/params/"$1"/fragments 2>/dev/null || :
}

check_alias() {
	fragments_of "$1" >"$T/one"
	fragments_of "$2" >"$T/other"
	[ -s "$T/one" ] && cmp "$T/one" "$T/other" || complain "$1 is not where $2 is"
}

# check_npy SHAPE FILE: the .npy of a few states.
check_npy() {
	case $2 in
	*/temp/fp32 | */head.weight/fp32) ;;
	*) return 0 ;;
	esac
	shape=$(echo "$1" | sed 's/^-$//; s/^[0-9]*$/&,/; s/^,$//; s/,\(.\)/, \1/g')
	head -n 1 "$M/$2.npy" | grep -q "'shape': ($shape)" || complain "shape of $2.npy"
	tail -c "$(stat -c %s "$M/$2")" "$M/$2.npy" | cmp - "$C/values/$2" || complain "$2.npy"
}

# check_step PATH: the optimizer's step, of each group or of each parameter; DeepSpeed's masters of stage 0, and its old
# versions, make one step more at the beginning.
check_step() {
	case $1 in */z0-bf16-* | */z0-fp16-* | */ds0.10.*) step=4 ;; *) step=3 ;; esac
	cat "$M"/groups/*/step "$M"/mp_rank_*/groups/*/step >"$T/steps" 2>"$T/none" || :
	for file in "$M"/params/*/step; do
		[ ! -e "$file" ] || od -An -tf4 "$file"
	done >>"$T/steps"
	case $C in
	*-sgd | z3-*-universal) [ ! -s "$T/steps" ] ;;
	*) [ "$(sort -bu "$T/steps" | tr -d ' ')" = $step ] ;;
	esac || complain "steps are" $(sort -u "$T/steps")
	! grep skipped "$M/.frag/source" || complain "something is skipped"
}

# check_partitions TREE: where a group is in one piece, ranks/R/partitions/G.0 has the bytes of its parameters.
check_partitions() {
	for group in "$1"/groups/*; do
		[ "$(cat "$group/sub_groups")" = 1 ] || continue
		awk '$2 == "fp32" || $2 == "master" || $2 == "exp_avg" {
			of = $1 " " $2
			if (!(of in first) || $5 < first[of])
				first[of] = $5
			name = FILENAME
			sub("/fragments$", "", name)
			if (name ~ /\/(emb.weight|layers.1.up.weight|one)$/)
				found[++n] = of " " $5 " " $6 " " $7 " " name
		}
		END {
			for (i = 1; i <= n; i++) {
				split(found[i], x, " ")
				print x[1], x[2], x[3] - first[x[1] " " x[2]], x[4], x[5], x[6]
			}
		}' "$group"/params/*/fragments >"$T/pieces"
		check_pieces "${group##*/}" <"$T/pieces"
	done
}

# check_pieces GROUP <RANK STATE BYTE ELEMENT NUMEL FOLDER ...
check_pieces() {
	while read -r rank state byte element numel folder; do
		there=$M/ranks/$rank/partitions/$1.0/$state
		[ $state != fp32 ] || [ ! -e "$folder/master" ] || continue
		size=$(($(stat -L -c %s "$folder/$state") / $(cat "$folder/numel")))
		cmp -n $((numel * size)) -i "$byte:$((element * size))" "$there" "$folder/$state" ||
			complain "$there at $byte is not $folder/$state at $element"
		pieces=$((pieces + 1))
	done
}

# check_names: the parameters of fragctl stats have the names that fragctl ls prints.
check_names() {
	within 60 fragctl ls -j "$M" -H -o name | sort >"$T/names"
	within 60 fragctl stats -j "$M" -H -o name | grep -v '^\(mp_rank_[0-9]*/\)\?buffers/' | sort -u | cmp - "$T/names" ||
		complain "fragctl stats has other names than fragctl ls"
}

check_mounted() {
	for folder in "$C"/values/params "$C"/values/buffers "$C"/values/mp_rank_*/*; do
		[ ! -d "$folder" ] || check_folder "${folder#"$C"/values/}"
	done
	while read -r line; do
		check_fact $line
	done <"$C/manifest"
	check_step "$1"
	check_names
	pieces=0
	for tree in "$M" "$M"/mp_rank_*; do
		[ ! -d "$tree/groups" ] || [ ! -d "$M/ranks/0/partitions" ] || check_partitions "$tree"
	done
	case $C in z0-* | *-universal | z3-*-sub*) ;; *) [ $pieces -ge 3 ] || complain "no partitions" ;; esac
}

check_case() {
	gzip -dc "$1" | tar -xf -
	C=$(basename "$1" .tar.gz)
	if within 60 fragfs "$C" "$M"; then
		check_mounted "$1"
		unmount
	else
		complain "cannot be mounted"
	fi
	rm -r "$C"
}

checked=0
for archive in "$cases"/*/*.tar.gz; do
	case $archive in *"${TEST_CASES:-}"*) ;; *) continue ;; esac
	check_case "$archive"
	checked=$((checked + 1))
done
echo "$checked cases"
[ $checked -gt 0 ] && [ $wrong -eq 0 ] || fail "$wrong things are wrong"
