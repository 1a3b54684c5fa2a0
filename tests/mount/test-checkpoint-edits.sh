#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Edits that DeepSpeed has accepted, made again through a mount: the files are those that it loaded, and a mount
# of them says what was written.  TEST_CASES: only those whose path has this in it, dsVERSION/NAME.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
cases=$top_srcdir/tests/data/checkpoints
[ "$sanitizer" = no ] || : "${TEST_CASES:=-w3}" # a part: it is slow

# edit FILE OFFSET BYTES
edit() {
	printf "$3" >"$T/bytes"
	dd if="$T/bytes" of="$M/$1" bs=1 seek="$2" conv=notrunc 2>"$T/dd" || fail "$C: $1: $(tail -n 1 "$T/dd")"
}

make_edits() {
	grep '^edit ' "$1" >"$T/edits"
	while read -r _ path offset bytes; do
		edit "$path" "$offset" "$bytes"
	done <"$T/edits"
}

check_files() {
	sed -n 's/^file \([^ ]*\) \([0-9a-f]*\)$/\2  \1/p' "$1" >"$T/sums"
	[ -s "$T/sums" ] || fail "$1 names no file"
	(cd "$C" && sha256sum --check --quiet --strict "$T/sums") || fail "$C: other files than DeepSpeed loaded"
}

# What was written last to a place is there.
check_edits() {
	tac "$T/edits" | while read -r _ path offset bytes; do
		printf "$bytes" >"$T/bytes"
		tail -c +$((offset + 1)) "$M/$path" | head -c "$(stat -c %s "$T/bytes")" |
			cmp - "$T/bytes" || fail "$C: $path at $offset"
	done
}

check_case() {
	C=$(basename "$1" .edits)
	gzip -dc "${1%.edits}.tar.gz" | tar -xf -
	within 20 fragfs "$C" "$M" -o rw || fail "$C: fragfs: status $?"
	make_edits "$1"
	unmount
	check_files "$1"
	within 20 fragfs "$C" "$M" || fail "$C: fragfs: status $?"
	check_edits
	unmount
	rm -r "$C"
}

checked=0
for edits in "$cases"/*/*.edits; do
	case $edits in *"${TEST_CASES:-}"*) ;; *) continue ;; esac
	check_case "$edits"
	checked=$((checked + 1))
done
[ $checked -gt 0 ] || fail "no case"
