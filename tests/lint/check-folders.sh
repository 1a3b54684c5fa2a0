#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The folders of engine/ include and call only what the table in engine/README.md allows, downwards; fs/ and
# mount-helpers/ include the headers listed there; no circle of modules within a folder; functions that other files call
# begin with their module's name; no folder of engine/ has more than 40 files; no file stands twice in a list.
# A module is a header, and the files whose names begin with the header's: swapper.h, swapper.c, swapper-block.c.
set -eu
cd "${top_srcdir:-.}"
build=${top_builddir:?}
rules=${RULES:-engine/README.md}

# include FROM TO and call FROM TO SYMBOL, of files.
{
	grep -r --include='*.[ch]' '^#include "[a-z-]*/' engine fs mount-helpers |
		sed 's/^\([^:]*\):#include "\([^"]*\)".*/include \1 \2/'
	# Objects whose source has been removed since they were built do not count.
	(cd "$build" && find engine fs mount-helpers -name '*.o') | while read -r object; do
		source=$(echo "${object%.o}.c" | sed 's:/\.libs/:/:; s:/\(lib[a-z]*_la\|[a-z_]*fragfs\)-:/:')
		[ ! -f "$source" ] || echo "$object"
	done | (cd "$build" && xargs nm -A) |
		sed -n 's/^\([^:]*\)\.o:[0-9a-f ]* \([A-Za-z]\) \([A-Za-z0-9_]*\)$/\1 \2 \3/p' |
		sed 's:/\.libs/:/:; s:/\(lib[a-z]*_la\|[a-z_]*fragfs\)-:/:' | awk '
			{ file = $1 ".c" }
			$2 ~ /[TDBRC]/ { at[$3] = file }
			$2 == "U" { used[file " " $3] = 1 }
			END { for (u in used) { split(u, p, " ")
				if (p[2] in at && at[p[2]] != p[1]) print "call", p[1], at[p[2]], p[2] } }'
} >"$TMPDIR/edges"
[ "$(grep -c '^call' "$TMPDIR/edges")" -gt 1000 ] || { echo "no objects in $build/engine"; exit 1; }

awk -v rules="$rules" '
	function folder(path) { sub(/\/[^\/]*$/, "", path); return path }
	BEGIN {
		while ((getline line < rules) > 0) {
			if (split(line, column, "|") < 4 || column[2] !~ /`/) continue
			n = split(column[2], name, "`")
			from = name[2]; sub(/\/$/, "", from)
			from = from ~ /^\.\.\// ? substr(from, 4) : "engine" (from == "." ? "" : "/" from)
			row[from] = ++rows
			n = split(column[4], name, "`")
			for (i = 2; i <= n; i += 2) {
				to = name[i]
				if (to ~ /\.h$/) { may[from " engine/" to] = 1; continue }
				sub(/\/$/, "", to)
				to = "engine" (to == "." ? "" : "/" to)
				may[from " " to] = 1
				if (!(to in row)) { print rules ": " from " may use " to ", which no row above it has"; bad = 1 }
			}
		}
		all["engine/frag.h"] = all["engine/engine.h"] = within["engine/engine-ops.h"] = 1
	}
	{
		from = folder($2); to = folder($3)
		if (from == to || $3 in all || (from ~ /^engine/ && ($3 in within || to == "engine/base"))) next
		if (!(from in row)) { print $2 ": " rules " has no row for " from; bad = 1; next }
		if (from !~ /^engine/) { # what these call is in engine.h or a header that they include
			if ($1 == "include" && !(from " " $3 in may)) { print $2 ": includes " $3; bad = 1 }
			next
		}
		used[from " " to] = 1
		if (from " " to in may) next
		print $2 ": " ($1 == "call" ? "calls " $4 " of " : "includes ") $3; bad = 1
	}
	END {
		for (m in may) if (m !~ /\.h$/ && !(m in used)) {
			split(m, p, " "); print rules ": " p[1] " does not use " p[2]; bad = 1 }
		exit bad
	}' "$TMPDIR/edges" || bad=1

# Circles of modules within one folder, by calls, and by includes where the modules are of different subjects:
# transport.h, transport-socket.h and transport-zmq.c are pieces of one subject. Files without a header of their own, as
# those of api/, are one module.
find engine fs mount-helpers -name '*.h' >"$TMPDIR/headers"
awk -v headers="$TMPDIR/headers" '
	function subject(path) { sub(/^.*\//, "", path); sub(/[-.].*/, "", path); return path }
	function module(path,   stem) {
		sub(/(-internal)?\.[ch]$/, "", path)
		for (stem = path; !(stem in header); )
			if (!sub(/-[a-z0-9]+$/, "", stem)) { sub(/\/[^\/]*$/, "", path); return path }
		return stem
	}
	BEGIN { while ((getline h < headers) > 0) { sub(/(-internal)?\.h$/, "", h); header[h] = 1 } }
	{
		from = $2; to = $3
		sub(/\/[^\/]*$/, "", from); sub(/\/[^\/]*$/, "", to)
		if (from == to && ($1 == "call" || subject($2) != subject($3))) print module($2), module($3)
	}' "$TMPDIR/edges" | sort -u >"$TMPDIR/modules"
tsort "$TMPDIR/modules" >/dev/null 2>"$TMPDIR/circles" || { cat "$TMPDIR/circles"; bad=1; }

# Functions that other files call begin with the module's name or its plural, as requests_init of request.c, or with
# api_ (api/api.h) or engine_ (engine.h).
awk '
	function is_named(symbol, path,   stem) {
		stem = path; sub(/^.*\//, "", stem); sub(/\.c$/, "", stem); gsub(/-/, "_", stem)
		while (symbol !~ "^" stem "(s?_|$)")
			if (!sub(/_[a-z0-9]+$/, "", stem)) return 0
		return 1
	}
	$1 == "call" && $4 !~ /^(frag|api|engine)_/ && !is_named($4, $3) && !said[$4]++ {
		print $3 ": " $4 " does not begin with its module'"'"'s name"; bad = 1 }
	END { exit bad }' "$TMPDIR/edges" || bad=1

find engine -name '*.[ch]' | sed 's:/[^/]*$::' | sort | uniq -c |
	awk '$1 > 40 { print $2 ": " $1 " files"; bad = 1 } END { exit bad }' || bad=1

# *.am merge by union, which doubles a line that both sides have changed.
for am in *.am $(find engine fs mount-helpers docs python tests -name '*.am'); do
	sed -e ':more' -e '/\\$/{N;s/\\\n//;b more' -e '}' "$am" | awk -v am="$am" '
		/^[A-Za-z_]+ *[+]?=/ {
			split("", seen)
			for (i = 3; i <= NF; i++)
				if ($i ~ /\// && seen[$i]++) { print am ": " $i " twice in " $1; bad = 1 }
		}
		END { exit bad }' || bad=1
done
exit ${bad:-0}
