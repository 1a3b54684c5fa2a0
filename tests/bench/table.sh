#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# table.sh OUT PROGRAM...: runs each in turn, gathers the JSON lines of their stdout in OUT and
# prints them as a table.  One object a line: name, value, unit, reference, reference_value, ratio,
# spread (how far from the ratio the true one may be, null or missing where that is not known), goal, better
# ("higher" or "lower").  reference, reference_value and ratio are null when there is nothing to compare with,
# goal is null when there is none; it is the ratio's, or the value's where there is no ratio.  A goal within the
# spread is neither met nor missed: "?".  Fails when a program did or printed nothing, not when a goal is missed; a program
# that cannot run here exits 77.  In the end it names what was skipped.
# FRAG_BENCH_SECONDS: one that takes longer (1800) is ended, and so is what it started; what it has mounted is unmounted.
set -u
out=$1
shift
status=0
seconds=${FRAG_BENCH_SECONDS:-1800}
work=$(mktemp -d) || exit 1
lines=$work/lines
running=
export XDG_RUNTIME_DIR="$work" TMPDIR="$work" BENCH_RUN=$$ # jobs' files, mounts
: >"$out"

unmount_all() {
	sed -n "s|^[^ ]* [^ ]* [^ ]* [^ ]* \(${work}[^ ]*\) .*|\1|p" /proc/self/mountinfo | sort -r |
	while read -r left; do
		fusermount3 -u -z "$left" 2>/dev/null || umount -l "$left"
	done
}

clean_up() {
	trap - EXIT
	[ -z "$running" ] || { kill "$running" && wait "$running"; } 2>/dev/null
	unmount_all
	rm -rf --one-file-system "$work" /dev/shm/frag-bench-$$.*
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# What programs say is kept, for what they skip.
mkfifo "$work/errors"
tee "$work/said" <"$work/errors" >&2 &
teller=$!
exec 2>"$work/errors"

# In a process group of its own, which timeout ends.
run() {
	case $1 in
	*.sh) set -- "${SHELL:-/bin/sh}" "$1" ;;
	*) set -- "./$1" ;;
	esac
	timeout -k 20 "$seconds" "$@" >"$lines" &
	running=$!
	wait "$running"
	set -- $?
	running=
	return "$1"
}

# What one that has not ended well may have left behind.
after_failure() {
	echo "bench: $1 $2; its last row: $(tail -n 1 "$lines" | sed -n 's/^{"name": "\([^"]*\)".*/\1/p' | grep . || echo none)" >&2
	status=1
	unmount_all
	rm -rf --one-file-system /dev/shm/frag-bench-$$.*
}

table() {
	awk -v head="$1" '
	function field(key,   v) {
		if (!match($0, "\"" key "\" *: *(\"[^\"]*\"|[^,}]*)")) return ""
		v = substr($0, RSTART, RLENGTH)
		sub(/^"[^"]*" *: */, "", v); gsub(/^"|"$| +$/, "", v)
		return v == "null" ? "" : v
	}
	function number(v) { return v == "" ? "-" : sprintf(v + 0 < 100 ? "%.3g" : "%.0f", v) }
	BEGIN {
		row = "%-70s %9s %-5s %-16s %9s %6s %6s %5s %s\n"
		if (head) printf row, "what", "value", "unit", "measured against", "value", "ratio", "+-", "goal", "met"
	}
	{
		goal = field("goal"); ratio = field("ratio"); of = ratio == "" ? field("value") : ratio
		beyond = field("better") == "lower" ? of - goal : goal - of; spread = field("spread") + 0
		met = beyond <= -spread ? "yes" : (beyond > spread) ? "NO" : "?"
		printf row, field("name"), number(field("value")), field("unit"), field("reference"),
			number(field("reference_value")), number(ratio), spread ? number(spread) : "",
			goal == "" ? "-" : goal, goal == "" ? "" : met
	}'
}

head=1
for program; do
	run "$program"
	case $? in
	0) ;;
	77) continue ;; # it has said why
	124 | 137) after_failure "$program" "was ended after $seconds s" ;;
	*) after_failure "$program" failed ;;
	esac
	grep '^{.*}$' "$lines" >>"$out" || { echo "bench: $program measured nothing" >&2; status=1; }
	grep '^{.*}$' "$lines" | table $head
	head=0
done
exec 2>&1
timeout 2 tail --pid="$teller" -f /dev/null # something that was left behind may still have the fifo
kill "$teller" 2>/dev/null
if grep -q 'skipped: ' "$work/said"; then
	echo "not measured:"
	sed -n 's/^.*skipped: /  &/p' "$work/said"
fi
exit $status
