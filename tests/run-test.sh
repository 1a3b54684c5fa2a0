#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs one test: run-test.sh COMMAND...  It gets a folder of its own for what it makes (TMPDIR,
# XDG_RUNTIME_DIR, HOME), the built programs first in PATH, freed memory filled with a random byte,
# and TEST_TIMEOUT seconds (600) before it and what it started are killed.
set -u
scratch=$(mktemp -d /tmp/frag-test.XXXXXX) || exit 99
chmod 0700 "$scratch"
seconds=${TEST_TIMEOUT:-600}

finish() {
	LC_ALL=C sed -n "s|^[^ ]* [^ ]* [^ ]* [^ ]* \(${scratch}[^ ]*\) .*|\1|p" /proc/self/mountinfo | sort -r |
	while read -r left; do
		echo "run-test: still mounted: $left"
		fusermount3 -u -z "$left" 2>/dev/null || umount -l "$left"
	done
	rm -rf --one-file-system "$scratch"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

TMPDIR=$scratch XDG_RUNTIME_DIR=$scratch HOME=$scratch
PATH=${top_builddir:-.}:$PATH
LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
: "${MALLOC_PERTURB_:=$(($$ % 255 + 1))}"
: "${CK_DEFAULT_TIMEOUT:=60}" "${CK_TIMEOUT_MULTIPLIER:=4}"
# intercept_tls_get_addr=0: the leak checker guesses how large thread-local memory of loaded libraries is, and crashes.
reports=$scratch/sanitizer # of daemons, too, whose standard error nobody reads
ASAN_OPTIONS=log_path=$reports:intercept_tls_get_addr=0:detect_stack_use_after_return=1:strict_string_checks=1:${ASAN_OPTIONS:-}
UBSAN_OPTIONS=log_path=$reports:print_stacktrace=1:halt_on_error=1:${UBSAN_OPTIONS:-}
TSAN_OPTIONS=log_path=$reports:halt_on_error=1:second_deadlock_stack=1:suppressions=${top_srcdir:-.}/tests/tsan.supp:${TSAN_OPTIONS:-}
export TMPDIR XDG_RUNTIME_DIR HOME PATH LC_ALL PYTHONDONTWRITEBYTECODE MALLOC_PERTURB_ \
	CK_DEFAULT_TIMEOUT CK_TIMEOUT_MULTIPLIER ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS

# A launcher around us must not make every test a rank of its job.
launchers='FRAG\|OMPI\|PMIX\|PMI\|SLURM\|TORCHELASTIC'
for name in $(env | sed -n "s/^\(\($launchers\)_[A-Za-z0-9_]*\)=.*/\1/p"); do
	unset "$name"
done
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT

# libfuse 3.14 keeps an INTERRUPT that comes behind the answer to its request until the next request, and never frees the last
# one: a request of 128 bytes, and its channel.  A suppression of libfuse would hide what our handlers, which it calls, leak.
is_of_libfuse() {
	awk '/^(Direct|Indirect) leak of/ { leaks++; whole += $1 == "Direct"; other += $0 !~ /leak of (128|48) byte.s. in 1 object/ }
		/^ *#1 / { other += !/libfuse3[.]so/ } /ERROR: |runtime error: / { other += !/LeakSanitizer/ } END { exit !leaks || whole != 1 || other }' "$1"
}

timeout -k 10 "$seconds" "$@"
status=$?
for report in "$reports".*; do
	[ -f "$report" ] || continue
	cat "$report"
	# The leak checker says so of threads that end, or are begun, while it looks; a leak that it finds has lines of its own.
	of_threads='Unable to get registers from thread [0-9]*\|Running thread [0-9]* was not suspended\. False leaks are possible'
	if [ -s "$report" ] && ! grep -qv "^==[0-9]*==\($of_threads\)\.\$" "$report"; then
		continue
	fi
	! is_of_libfuse "$report" || continue
	[ $status != 0 ] || status=1
done
case $status in
0 | 77) ;;
124 | 137) echo "run-test: killed after $seconds seconds" ;;
*) echo "run-test: exit $status, MALLOC_PERTURB_=$MALLOC_PERTURB_" ;;
esac
exit $status
