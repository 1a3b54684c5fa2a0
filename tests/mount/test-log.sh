#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where log lines go: a mount's to standard error while the command runs, then to syslog, also from the sandboxed
# process of a checkpoint; a rank's own are in ranks/R/log.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse

export FRAG_LOG=trace,ranks=0
train_job logs
unset FRAG_LOG
grep -Eq '^fragfs: trace: rank 0: frag-step\.c:[0-9]+: boundary [0-9]+, step [0-9]+$' rank0.log || fail "no boundary"
for way in to from; do
	grep -Eq "^fragfs: trace: rank 0: [a-z]+\.c:[0-9]+: message $way peer .*: [A-Z_]+ [0-9]+, [0-9]+ bytes$" rank0.log ||
		fail "no message $way a peer"
done
! grep -E '^fragfs: (info|debug|trace): ' rank1.log || fail "rank 1 is not listed"
within 60 fragfs "$(fragctl jobs -H -o job,address | sed -n 's/^logs	//p')" "$M" || fail "fragfs: $?"
grep -Eq '^fragfs: info: [0-9]+\.[0-9]{3}: rank 0: ' "$M/ranks/0/log" || fail "ranks/0/log: $(cat "$M/ranks/0/log")"
[ -s "$M/ranks/1/log" ] || fail "ranks/1/log is empty"
! grep -v ': rank 1: ' "$M/ranks/1/log" || fail "ranks/1/log: lines of others"
# The log of a lost rank shows what was read last; if it was never read, nothing.
unmount
within 60 fragfs "$(fragctl jobs -H -o job,address | sed -n 's/^logs	//p')" "$M" || fail "fragfs: $?"
cp "$M/ranks/1/log" before
kill -9 "$(cat "$M/ranks/0/pid")" "$(cat "$M/ranks/1/pid")" # at once: a rank ends by itself when another one is lost
for rank in 0 1; do
	wait_until 60 grep -q '^lost' "$M/ranks/$rank/state" || fail "rank $rank: $(cat "$M/ranks/$rank/state")"
done
cat "$M/ranks/1/log" >after || fail "no log of a lost rank"
tail -n 1 after | grep -Eq '^fragfs: info: [0-9]+\.[0-9]{3}: rank 1 is lost: these are the lines that were read last$' ||
	fail "no line says that they are old: $(cat after)"
head -n -1 after | cmp - before || fail "other lines of a lost rank: $(cat after)"
! cat "$M/ranks/0/log" 2>err || fail "a log that was never read"
grep -q 'Input/output error' err || fail "$(cat err)"
unmount

[ "$sanitizer" = no ] || exit 0
# In place of syslog(3): the daemon's lines, with priorities, go to the descriptor that was opened when it connected.
cat >said.c <<'END'
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static int fd = -1;

void openlog(const char *name, int option, int facility)
{
	if (option & 8) /* LOG_NDELAY */
		fd = open(getenv("SAID"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

void syslog(int priority, const char *fmt, ...)
{
	va_list ap;

	dprintf(fd, "<%d>", priority);
	va_start(ap, fmt);
	vdprintf(fd, fmt, ap);
	va_end(ap);
	dprintf(fd, "\n");
}
END
$CC -shared -fPIC -o said.so said.c || fail "said.c"

header='{"w":{"dtype":"F32","shape":[1000],"data_offsets":[0,4000]}}    '
{
	printf '\100\0\0\0\0\0\0\0%s' "$header" # 64 bytes of header
	head -c 4000 /dev/zero
} >x.safetensors
SAID=$T/said FRAG_LOG=info LD_PRELOAD=$T/said.so within 60 fragfs "$T/x.safetensors" "$M" -o rw 2>err || fail "fragfs: $(cat err)"
echo 1 >"$M/params/w/elem/fp32/5" || fail "no edit"
unmount
grep -q '^fragfs: info: sandbox: ' err || fail "standard error: $(cat err)"
! grep -q committed err || fail "a daemon's line on standard error: $(cat err)"
grep -q '^<6>.*w.*: committed, 2 bytes$' said || fail "syslog: $(cat said)"
! grep -q '^<[0-9]>fragfs: ' said || fail "syslog: $(cat said)"
