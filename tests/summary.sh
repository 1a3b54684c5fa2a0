#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# summary.sh --skipped LOG...  names the tests that were skipped and says why.
# summary.sh --total LOG...    "N passed, N failed, N skipped", summed.
# Each LOG is a test-suite.log of automake; the tests' own logs lie beside it.
set -eu
what=$1
shift
case $what in
--skipped)
	for log; do
		sed -n 's/^SKIP: \(.*\)$/\1/p' "$log" | while read -r name; do
			own=$(dirname "$log")/${name%.sh}.log
			# The last line before automake's own is the reason.
			reason=$(grep -v '^SKIP ' "$own" | sed '/^$/d' | tail -n 1)
			reason=${reason#skip*: }
			echo "skipped: $name: ${reason:-no reason given}"
		done
	done
	;;
--total)
	cat "$@" | awk '
		/^# PASS:/ || /^# XFAIL:/ { passed += $3 }
		/^# FAIL:/ || /^# XPASS:/ || /^# ERROR:/ { failed += $3 }
		/^# SKIP:/ { skipped += $3 }
		END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }'
	;;
*)
	echo "usage: summary.sh --skipped|--total LOG..." >&2
	exit 2
	;;
esac
