# SPDX-License-Identifier: Apache-2.0
# Edits that DeepSpeed has accepted (tests/data/checkpoints/*/*.edits), of a checkpoint $C that is mounted at $M:
# . "$top_srcdir/tests/mount/edits.sh", after lib.sh.
cases=$top_srcdir/tests/data/checkpoints

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

# Checks that the files of $C are those that DeepSpeed loaded.
check_files() {
	sed -n 's/^file \([^ ]*\) \([0-9a-f]*\)$/\2  \1/p' "$1" >"$T/sums"
	[ -s "$T/sums" ] || fail "$1 names no file"
	(cd "$C" && sha256sum --check --quiet --strict "$T/sums") || fail "$C: other files than DeepSpeed loaded"
}

# Checks that each place has the bytes that were written there last.
check_edits() {
	tac "$T/edits" | while read -r _ path offset bytes; do
		printf "$bytes" >"$T/bytes"
		tail -c +$((offset + 1)) "$M/$path" | head -c "$(stat -c %s "$T/bytes")" |
			cmp - "$T/bytes" || fail "$C: $path at $offset"
	done
}
