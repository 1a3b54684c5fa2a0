#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The demo, interrupted at several moments by Ctrl-C (INT to all of its processes) or by TERM to the
# script alone, leaves no process and no mount, and exits as interrupted.
. "$top_srcdir/tests/lib.sh"
need_dev_fuse
mark=DEMO_MARK=$$.$(od -A n -N 8 -t x8 /dev/urandom | tr -d ' ')

left() {
	{ grep -lz "^$mark\$" /proc/[0-9]*/environ 2>/dev/null || :; } | cut -d/ -f3
}

names() {
	for pid in $(left); do
		tr '\0' ' ' <"/proc/$pid/cmdline"
	done
}

at_end() {
	for pid in $(left); do
		kill -KILL "$pid" 2>/dev/null || :
	done
}

gone() {
	! kill -0 "$demo" 2>/dev/null
}

said_or_gone() {
	grep -qs -e "$1" output.log || gone
}

nothing_left() {
	[ -z "$(left)" ]
}

interrupt() { # interrupt SIGNAL TEXT: when the output has TEXT, its own and not that of the one before
	rm -f output.log
	setsid env --default-signal=INT,TERM "$mark" \
		sh "$top_srcdir/docs/examples/demo.sh" "$top_builddir" >output.log 2>&1 &
	demo=$!
	wait_until 90 said_or_gone "$2" && ! gone || fail "before '$2': it did not get there"
	case $1 in
	INT) kill -INT "-$demo" ;;
	TERM) kill -TERM "$demo" ;;
	esac
	wait_until 60 gone || fail "$1 at '$2': it goes on"
	result=0
	wait "$demo" || result=$?
	case $1.$result in
	INT.130 | TERM.143) ;;
	*) fail "$1 at '$2': exit $result" ;;
	esac
	wait_until 60 nothing_left || fail "$1 at '$2': left behind: $(names)"
	! grep -q " $T/" /proc/self/mountinfo || fail "$1 at '$2': a mount is left"
	[ -z "$(ls -d frag-demo.* 2>/dev/null)" ] || fail "$1 at '$2': a folder is left"
}

interrupt INT 'A tour of fragfs'
interrupt TERM 'for r in 0 1 2 3'
interrupt INT 'fragfs 127'
interrupt TERM 'ls frag'
interrupt TERM 'dd of='

# The reader of the output ends after the first line of a step.
setsid env "$mark" sh "$top_srcdir/docs/examples/demo.sh" "$top_builddir" </dev/null 2>/dev/null | sed -n '/^step/{p;q}' >output.log
wait_until 60 nothing_left || fail "a closed pipe: left behind: $(names)"
[ -z "$(ls -d frag-demo.* 2>/dev/null)" ] || fail "a closed pipe: a folder is left"
