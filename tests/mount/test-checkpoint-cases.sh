#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every checkpoint of tests/data/checkpoints, mounted: all files are what the engine held when it saved them.
# TEST_CASES: only those whose path has this in it, dsVERSION/NAME.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
cases=$top_srcdir/tests/data/checkpoints
[ "$sanitizer" = no ] || : "${TEST_CASES:=-w3}" # a part: it is slow

# What a folder of a parameter has beside states.
aside='step\|dtype\|fragments\|group\|numel\|.*\.npy'
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

# Lines of the manifest.
check_fact() {
	case $1 in
	step) [ "$(cat "$M/step")" = "$2" ] || complain step ;;
	ranks) [ "$(ls "$M/ranks" | wc -l)" = "$2" ] || complain ranks ;;
	alias) check_alias "$2" "$3" ;;
	param) check_npy "$4" "$6" && check_group "$4" "$6" ;;
	buffer) check_npy "$4" "$6" ;;
	esac
}

# check_group SHAPE FILE: what the optimizer has is in group 0, or in 1 when it is a vector or a scalar.
check_group() {
	case $2 in */head.weight/*) return 0 ;; */exp_avg | */momentum_buffer | */sum) ;; *) return 0 ;; esac
	case $C,$1 in
	*universal,*) return 0 ;;
	*adagrad,* | *,*,*) group=0 ;;
	*) group=1 ;;
	esac
	folder=${2%/*}
	case $folder in params/*) groups=groups ;; *) groups=${folder%%/*}/groups ;; esac
	[ "$(cat "$M/$folder/group")" = $group ] || complain "group of $folder"
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

# check_npy SHAPE FILE: that of a few.
check_npy() {
	case $2 in
	*/temp/fp32 | */head.weight/fp32) ;;
	*) return 0 ;;
	esac
	shape=$(echo "$1" | sed 's/^-$//; s/^[0-9]*$/&,/; s/^,$//; s/,\(.\)/, \1/g')
	head -n 1 "$M/$2.npy" | grep -q "'shape': ($shape)" || complain "shape of $2.npy"
	tail -c "$(stat -c %s "$M/$2")" "$M/$2.npy" | cmp - "$C/values/$2" || complain "$2.npy"
}

check_mounted() {
	for folder in "$C"/values/params "$C"/values/buffers "$C"/values/mp_rank_*/*; do
		[ ! -d "$folder" ] || check_folder "${folder#"$C"/values/}"
	done
	while read -r line; do
		check_fact $line
	done <"$C/manifest"
}

check_case() {
	gzip -dc "$1" | tar -xf -
	C=$(basename "$1" .tar.gz)
	if within 20 fragfs "$C" "$M"; then
		check_mounted
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
