#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# unreached.sh FOLDER: lists each line of engine/ that makes an error (-E...) and that no test in one process or of
# several engines reaches, but for those in tests/unreached, each with its reason.  Exit 1 when one is listed, or
# when a reason is for a line that is reached, or gone.  By hand: `make unreached`, 3 minutes.
#
# It builds in FOLDER with gcc --coverage and runs check-errors there.  In parts: UNREACHED_TESTS='tests/unit/test-x ...'
# runs those and adds them to what ran there before; UNREACHED_KEEP=1 looks again at what ran.
# Of a line that chooses (a ? -EX : b) both sides must have run.
set -eu
top=$(cd "${top_srcdir:?}" && pwd)
mkdir -p "$1"
cd "$1"

if [ -z "${UNREACHED_KEEP:-}" ]; then
	[ -f Makefile ] || "$top/configure" -q CC="${CC:-gcc}" --enable-coverage >configure.log
	[ -n "${UNREACHED_TESTS:-}" ] || find . -name '*.gcda' -exec rm -f {} +
	make -j2 >build.log 2>&1 || { tail build.log; exit 1; }
	if [ -n "${UNREACHED_TESTS:-}" ]; then
		make -j2 check TESTS="$UNREACHED_TESTS"
	else
		TEST_ALL=1 make -j2 check-errors
	fi >check.log 2>&1 || { grep '^FAIL\|^ERROR' check.log; exit 1; }
fi

# What was counted of a file before it was changed says nothing of it now.
lines_of() {
	gcov -b -c -t -o "${1%/*}" "$1" >unreached.lines 2>/dev/null || {
		rm -f "${1%.gcno}.gcda"
		gcov -b -c -t -o "${1%/*}" "$1" >unreached.lines 2>/dev/null
	}
	cat unreached.lines
}

# FILE FUNCTION | LINE | TEXT of the lines that no test reaches
find engine -name "*.gcno" -path "*/.libs/*" | while read -r notes; do
	lines_of "$notes"
done | awk '
function flush() {
	if (makes && (count ~ /#|=/ || (bare ~ /\?/ && one_sided)))
		print file " " name " | " line " | " text
	makes = one_sided = 0
}
/^function / { flush(); name = $2; next }
/^branch / { if (/taken 0|never executed/) one_sided = 1; next }
/^ *[-0-9#=*]+: *[0-9]+:/ {
	flush()
	split($0, part, ":")
	count = part[1]
	line = part[2] + 0
	text = $0
	sub(/^[^:]*:[^:]*:[ \t]*/, "", text)
	if (!line && sub(/^Source:/, "", text)) {
		ours = text ~ /engine\/[a-z0-9\/-]*[.]c$/
		file = text
		sub(/.*engine\//, "", file)
	}
	bare = text
	gsub(/[!=]= -E[A-Z0-9]+|case -E[A-Z0-9]+:|\/[*].*/, "", bare)
	makes = line && ours && count !~ /-$/ && bare ~ /-E[A-Z0-9]+/
}
END { flush() }' | LC_ALL=C sort -t '|' -k 1,1 -k 2,2n >unreached.found

awk -F ' [|] ' -v reasons="$top/tests/unreached" '
BEGIN {
	while ((getline row < reasons) > 0)
		if (row !~ /^(#|$)/) {
			if (split(row, column, " [|] ") != 3) {
				print "tests/unreached: no three columns: " row
				bad = 1
			}
			wanted[column[1] " | " column[2]] = column[3] ~ /^by chance: / ? "by chance" : 1
		}
}
{
	key = $1 " | " $3
	used[key] = 1
	if (!(key in wanted)) {
		split($1, at, " ")
		print "engine/" at[1] ":" $2 ": not reached: " at[2] ": " $3
		bad = 1
	}
}
END {
	for (key in wanted)
		if (!(key in used) && wanted[key] != "by chance") {
			print "tests/unreached: is reached, or gone: " key
			bad = 1
		}
	exit bad
}' unreached.found
echo "all errors of engine/ are reached but $(wc -l <unreached.found), each with its reason in tests/unreached"
