#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Functions, macros among them, that a header offers begin with the header's name: swapper_... in swapper.h, or with its
# plural, as requests_init in request.h. X-internal.h, the inside of module X, and X-common.h, what the implementations
# of port X share, have names of X.
set -eu
cd "${top_srcdir:-.}"

# Not named so:
#	engine-ops.h	what stands behind engine.h: engine_...
#	frag.h		frag_..., by check-docs.sh
#	base.h		what C lacks: u64_add, monotonic_ms
#	commands.h	the commands of fragctl: NAME_run of NAME.c
for h in $(find engine fs mount-helpers -name '*.h' | sort); do
	case $h in
	engine/engine-ops.h) prefix=engine ;;
	engine/frag.h | engine/base/base.h | mount-helpers/commands.h) continue ;;
	*) prefix=$(basename "$h" .h | sed 's/-internal$//; s/-common$//; s/-/_/g') ;;
	esac
	awk -v h="$h" -v prefix="$prefix" '
		function offered(name) {
			all++
			if (name !~ "^" prefix "(s?_|$)") { print h ": " name " does not begin with " prefix "_"; bad = 1 }
		}
		function declared(text,   before, name) {
			while (sub(/__attribute__[ ]*\(\([^()]*(\([^()]*\))*[^()]*\)\)/, "", text)) ;
			if (text ~ /^[ 	]*typedef|^[ 	]*(extern|struct|union|enum)[^()]*$|=/ || !index(text, "(")) return
			before = text; sub(/[ 	]*\(.*/, "", before)
			name = before; sub(/^.*[^A-Za-z0-9_]/, "", name)
			if (name ~ /^[a-z]/ && name != before && name != "static_assert") offered(name)
		}
		{ line = $0 }
		comment { if (!sub(/^.*\*\//, "", line)) next; comment = 0 }
		{
			while (match(line, /\/\*/)) {
				rest = substr(line, RSTART); head = substr(line, 1, RSTART - 1)
				if (!match(rest, /\*\//)) { line = head; comment = 1; break }
				line = head " " substr(rest, RSTART + 2)
			}
		}
		continued || line ~ /^#/ {
			if (!continued && match(line, /^#[ ]*define [a-z][a-z0-9_]*\(/)) {
				name = substr(line, 1, RLENGTH - 1); sub(/^#[ ]*define /, "", name); offered(name)
			}
			continued = line ~ /\\$/
			next
		}
		{
			n = length(line)
			for (i = 1; i <= n; i++) {
				c = substr(line, i, 1)
				if (c == "{") { if (!depth++) { declared(text); text = "" } }
				else if (c == "}") depth--
				else if (depth) continue
				else if (c == ";") { declared(text); text = "" }
				else text = text c
			}
			text = text " "
		}
		END { print all + 0 > "/dev/stderr"; exit bad }' "$h" 2>>"$TMPDIR/counts" || bad=1
done
# No rule without its subject.
[ "$(awk '{ n += $1 } END { print n }' "$TMPDIR/counts")" -gt 1000 ] || { echo "headers offer too few functions"; bad=1; }
exit ${bad:-0}
