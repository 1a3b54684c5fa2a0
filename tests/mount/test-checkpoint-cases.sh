#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every checkpoint of tests/data/checkpoints, mounted: all files are what the engine held when it saved them.
# TEST_CASES: only archives whose path has this in it.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
cases=$top_srcdir/tests/data/checkpoints

# What a folder of a parameter has beside states.
aside='dtype\|fragments\|group\|numel\|.*\.npy'

# check_folder FOLDER: params or buffers.
check_folder() {
	diff -r "$C/values/$1" "$M/$1" >"$T/diff" || :
	grep -v "^Only in $M/$1/[^/]*: \($aside\)\$" "$T/diff" && fail "$C: $1 differs"
	return 0
}

check_facts() {
	while read -r word a b shape dtype path; do
		case $word in
		step) [ "$(cat "$M/step")" = "$a" ] || fail "$C: step" ;;
		ranks) [ "$(ls "$M/ranks" | wc -l)" = "$a" ] || fail "$C: ranks" ;;
		alias) check_alias "$a" "$b" ;;
		param | buffer) check_npy "$path" "$shape" ;;
		esac
	done <"$C/manifest"
}

check_alias() {
	for name in "$a" "$b"; do
		cat "$M"/params/"$name"/fragments "$M"/mp_rank_*/params/"$name"/fragments 2>/dev/null >"$T/at.$name" || :
	done
	cmp "$T/at.$a" "$T/at.$b" && [ -s "$T/at.$a" ] || fail "$C: $a is not where $b is"
}

# The first line of it and the size; that of float32 alone, since others say the same.
check_npy() {
	[ "${1##*/}" = fp32 ] || return 0
	grep -aq "'shape': ($(echo "$2" | sed 's/^-$//; s/,/, /g; s/^[0-9]*$/&,/; s/^,$//'))" "$M/$1.npy" || fail "$C: $1.npy"
	tail -c "$(stat -c %s "$M/$1")" "$M/$1.npy" | cmp - "$C/values/$1" || fail "$C: $1.npy"
}

check_case() {
	C=$(basename "$1" .tar.gz)
	gzip -dc "$1" | tar -xf -
	within 20 fragfs "$C" "$M" || fail "$C: fragfs: status $?"
	for folder in "$C"/values/params "$C"/values/buffers "$C"/values/mp_rank_*/*; do
		[ ! -d "$folder" ] || check_folder "${folder#"$C"/values/}"
	done
	check_facts
	unmount
	rm -r "$C"
}

checked=0
for archive in "$cases"/*/*"${TEST_CASES:-}"*.tar.gz; do
	check_case "$archive"
	checked=$((checked + 1))
done
[ $checked -gt 0 ] || fail "no case"
