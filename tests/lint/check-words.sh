#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Names in pages and comments exist: files and functions in docs/, files in comments, messages in wire.h. Lines are at
# most 96 columns wide, comments too; each header begins by saying what its module is, and names one errno a line.
set -eu
cd "${top_srcdir:-.}"
bad=0

if [ -e .git ]; then git ls-files; else find . -type f ! -path './build/*' | sed 's:^\./::'; fi >"$TMPDIR/files"
grep '^\(engine\|fs\|mount-helpers\|tests\|docs/examples\)/.*\.[ch]$' "$TMPDIR/files" >"$TMPDIR/sources"
there() { # there NAME: a file of that name, in any folder; * stands for characters of one name
	grep -q "\(^\|/\)$(printf '%s' "$1" | sed 's/[.]/\\./g; s/\*/[^\/]*/g')\$" "$TMPDIR/files"
}

# In the pages that describe the code: `path/file.c` and `file*.c`, without the marks in charts; some_function and place(),
# everywhere. Comments do not count as code. The names in `others` are the kernel's, FUSE's, and of examples.
{
	grep -hv '^[	 ]*\(/\*\|\*\)' $(cat "$TMPDIR/sources")
	cat $(grep '\.\(ac\|am\|cu\|py\|sh\)$' "$TMPDIR/files" | grep -v '^tests/lint/')
} >"$TMPDIR/code"
grep -o '[A-Za-z_][A-Za-z0-9_]*' "$TMPDIR/code" | sort -u >"$TMPDIR/words"
grep -o '[A-Za-z_][A-Za-z0-9_]*(' "$TMPDIR/code" | tr -d '(' | sort -u >"$TMPDIR/called"
others='clone_fd io_uring_enter ip_local_port_range raw_syscalls read_ahead_kb sched_switch sys_enter
	bf16_weight bf16_zero_pp_rank_2_mp_rank_00_optim_states bf16_zero_pp_rank_3_mp_rank_00_optim_states my_moment'
for page in $(ls docs/*.md | grep -v deepspeed) engine/README.md README.md HACKING.md; do
	{
		grep -o '`[^`]*`' "$page" | tr -d '`'
		sed -n '/^```/,/^```/p' "$page" | grep -o '[a-zA-Z0-9_/*.-]*'
	} | sort -u >"$TMPDIR/named"
	grep '^[a-zA-Z0-9_/*-][a-zA-Z0-9_/*.-]*\.\([ch]\|am\|sh\|py\)$' "$TMPDIR/named" |
		grep -v 'NAME\|FOLDER\|^x\.\|test-x' | while read -r name; do
		there "$name" || echo "$page names $name"
	done
	# not the stem of frag_local_*
	grep -o '[A-Za-z0-9_]*' "$page" | grep '^[a-z][a-z0-9]*_[a-z0-9_]*[a-z0-9]$' | sort -u |
		comm -23 - "$TMPDIR/words" >"$TMPDIR/unknown"
	grep -o '[A-Za-z_][A-Za-z0-9_]*()' "$page" | tr -d '()' | sort -u |
		comm -23 - "$TMPDIR/called" | sed 's/$/()/' >>"$TMPDIR/unknown"
	printf '%s\n' $others | grep -vxFf - "$TMPDIR/unknown" | sed "s:^:$page names :"
done >"$TMPDIR/absent"
# Files in comments of C.
grep -v '^tests/' "$TMPDIR/sources" | xargs grep -n '\.[ch]\>' | grep -v ':#[ ]*include' |
	sed -n 's/^\([^:]*:[0-9]*\):.*[^A-Za-z0-9_/.<-]\([a-z][a-z0-9/-]*[a-z0-9]\.[ch]\)\([^A-Za-z0-9_>(].*\)\?$/\1 \2/p' |
	while read -r at name; do
		there "$name" || echo "$at names $name"
	done >>"$TMPDIR/absent"
[ ! -s "$TMPDIR/absent" ] || { cat "$TMPDIR/absent"; bad=1; }

# The chart of wire.h has all messages, and nothing else in capitals.
wire=engine/catalog/wire.h
sed -n '/^enum wire_type {/,/^};/s/^	WIRE_\([A-Z_]*\)\( = [0-9]*\)\?,$/\1/p' "$wire" |
	grep -vx TYPES | sort -u >"$TMPDIR/types"
sed -n '/^\/\* Messages/,/^ \*\//p' "$wire" | grep -o '[A-Z][A-Z_]*[A-Z]' | sort -u >"$TMPDIR/charted"
[ -s "$TMPDIR/types" ] && [ -s "$TMPDIR/charted" ] || { echo "$wire: no messages, or no chart of them"; bad=1; }
comm -13 "$TMPDIR/types" "$TMPDIR/charted" | sed "s:^:$wire has no message :" >"$TMPDIR/unknown"
comm -23 "$TMPDIR/types" "$TMPDIR/charted" | sed "s:^:the chart of $wire lacks :" >>"$TMPDIR/unknown"
[ ! -s "$TMPDIR/unknown" ] || { cat "$TMPDIR/unknown"; bad=1; }

# One errno a line of a header.
grep '\.h$' "$TMPDIR/sources" | xargs grep -n '[-]E[A-Z][A-Z0-9]*\>.*[-]E[A-Z][A-Z0-9]*\>' >"$TMPDIR/pairs" &&
	{ sed 's/$/: two errnos/' "$TMPDIR/pairs"; bad=1; }

# Width, with tabs of 8; the first comment of a header.
for f in $(cat "$TMPDIR/sources") $(grep "[.]cu$" "$TMPDIR/files"); do
	expand -t 8 "$f" | awk -v f="$f" 'length($0) > 96 { print f ":" NR ": wider than 96 columns"; bad = 1 }
		END { exit bad }' || bad=1
	case $f in
	tests/* | *.c | *.cu) ;;
	*) sed -n '2,$p' "$f" | grep -v '^$\|^#' | head -n 1 | grep -q '^/\*' ||
		{ echo "$f: does not begin with what it is"; bad=1; } ;;
	esac
done
exit $bad
