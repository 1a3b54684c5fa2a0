#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Manual pages name all that programs and libraries offer, and nothing else.
set -eu
cd "${top_srcdir:-.}"
bad=0

differ() { # differ WHAT HAVE WANT...: two sorted lists in files
	if ! diff "$2" "$3" >"$TMPDIR/diff"; then
		echo "$1:"
		sed -n 's/^</  only in the first:/p; s/^>/  only in the second:/p' "$TMPDIR/diff"
		bad=1
	fi
}

# Options as --help prints them, each at the beginning of a line: "  -j, --json  text".
help_options() {
	"$top_builddir/$1" --help | sed -n 's/^ *\(-[a-zA-Z-]*\),* *\(--[a-z-]*\)*.*/\1 \2/p' |
		tr -s ' ' '\n' | sort -u
}
# Options of a page: each has an .It Fl (mdoc: Fl f is -f, Fl -json is --json).
page_options() {
	sed -n 's/^\.It //p' "$1" | grep -o 'Fl [a-zA-Z-]*' | sed 's/^Fl /-/' | sort -u
}
# Settings of -o: "  -o NAME=VALUE  text" in --help, .It Cm NAME in the page.
help_settings() {
	"$top_builddir/$1" --help | sed -n 's/^ *-o \([a-z_]*\).*/\1/p' | sort -u
}
page_settings() {
	sed -n 's/^\.It Cm \([a-z_]*\).*/\1/p' "$1" | sort -u
}

for program in fragfs fragctl; do
	page=docs/$program.1
	help_options $program >"$TMPDIR/a"
	page_options $page >"$TMPDIR/b"
	[ -s "$TMPDIR/a" ] || { echo "$program --help names no option"; bad=1; }
	differ "options: $program --help, $page" "$TMPDIR/a" "$TMPDIR/b"
done
help_settings fragfs >"$TMPDIR/a"
page_settings docs/fragfs.1 >"$TMPDIR/b"
differ "-o settings: fragfs --help, docs/fragfs.1" "$TMPDIR/a" "$TMPDIR/b"

# The files that pages link to exist, in a release too.
for page in README.md HACKING.md docs/*.md; do
	for to in $(grep -o '](\([^)#:]*\))' "$page" | tr -d '()]'); do
		[ -e "$(dirname "$page")/$to" ] || { echo "$page links to $to"; bad=1; }
	done
done

# frag.h, frag(3), libfrag.so.
sed -n 's/^FRAG_API .*[ *]\(frag_[a-z0-9_]*\)(.*/\1/p' engine/frag.h | sort -u >"$TMPDIR/header"
sed -n 's/^\.Fn \(frag_[a-z0-9_]*\).*/\1/p; s/^\.Fo \(frag_[a-z0-9_]*\).*/\1/p' docs/frag.3 |
	sort -u >"$TMPDIR/page"
differ "functions: engine/frag.h, docs/frag.3" "$TMPDIR/header" "$TMPDIR/page"
nm -D --defined-only "$top_builddir/.libs/libfrag.so" |
	awk '$2 == "T" || $2 == "D" || $2 == "B" || $2 == "R" { sub(/@.*/, "", $3); print $3 }' |
	sort -u >"$TMPDIR/symbols"
differ "symbols: engine/frag.h, libfrag.so" "$TMPDIR/header" "$TMPDIR/symbols"

# frag(3) has all environment variables that the engine reads.
grep -oh '"\(FRAG\|OMPI\|PMIX\|PMI\|SLURM\|TORCHELASTIC\|MASTER\)_[A-Za-z_]*"' $(find engine -name '*.c') |
	tr -d '"' | sort -u >"$TMPDIR/read"
[ -s "$TMPDIR/read" ] || { echo "engine/ looks at no environment"; bad=1; }
while read -r name; do
	grep -q "^\.\(It \)\?Ev .*\b$name\b\|^.Pq with Ev $name" docs/frag.3 ||
		{ echo "docs/frag.3 does not name $name"; bad=1; }
done <"$TMPDIR/read"
exit $bad
