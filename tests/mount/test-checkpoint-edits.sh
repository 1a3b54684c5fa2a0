#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Edits that DeepSpeed has accepted, made again through a mount: the files are those that it loaded, and a mount of them
# shows the written values.  TEST_CASES: only those with this text in their path, dsVERSION/NAME.
. "$top_srcdir/tests/mount/lib.sh"
. "$top_srcdir/tests/mount/edits.sh"
need_fuse
[ "$sanitizer" = no ] || : "${TEST_CASES:=-w3}" # a part: it is slow

check_case() {
	C=$(basename "$1" .edits)
	gzip -dc "${1%.edits}.tar.gz" | tar -xf -
	within 60 fragfs "$C" "$M" -o rw || fail "$C: fragfs: status $?"
	make_edits "$1"
	unmount
	check_files "$1"
	within 60 fragfs "$C" "$M" || fail "$C: fragfs: status $?"
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
