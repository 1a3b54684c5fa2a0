# SPDX-License-Identifier: Apache-2.0
# For test scripts: . "$top_srcdir/tests/lib.sh".  They are then in a folder of their own, $T, that
# tests/run-test.sh removes; what they have named to started() is gone when they end.
set -eu

T=$TMPDIR
cd "$T"
begun= # the processes of started(), each as PID:TIME, with when it began

skip() {
	echo "skipped: $*"
	exit 77
}

# The ends of all logs of the test go with it.
fail() {
	for log in "$T"/*.log; do
		[ ! -s "$log" ] || { echo "${log##*/}:"; tail -n 20 "$log"; }
	done >&2
	echo "FAILED: $*" >&2
	exit 1
}

# What a test must undo itself.
at_end() {
	:
}

clean_up() {
	status=$?
	trap - EXIT
	for process in $begun; do
		! is_that_process "$process" || kill -9 "${process%:*}" 2>/dev/null || :
	done
	at_end
	exit $status
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# When a process began, in ticks of the machine; nothing where there is none.
begin_of() {
	sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20
}

# is_that_process PID:TIME: and not another one.  Where many tests run, the kernel gives the number of a process that has
# ended to another process within a minute.
is_that_process() {
	[ "${1#*:}" ] && [ "${1#*:}" = "$(begin_of "${1%:*}")" ]
}

# Kills what it is given, by process id, when the script ends.
started() {
	begun="$begun $1:$(begin_of "$1")"
}

# wait_until SECONDS COMMAND...: until it succeeds.
wait_until() {
	tries=$(($1 * 50))
	shift
	until "$@"; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || return 1
		sleep 0.02
	done
}

# A signal stops one thread, and that the others when it is scheduled: until then they go on.
all_threads_stopped() {
	! grep -h '^State:' "/proc/$1/task"/*/status | grep -qv '[TZ] ('
}
stop_process() {
	kill -STOP "$1"
	wait_until 60 all_threads_stopped "$1" || fail "process $1 does not stop"
}

# kill_at_once PROCESS...: the ranks of a job, of which none is to see another's end and to leave in order.
kill_at_once() {
	for process in "$@"; do
		stop_process "$process"
	done
	kill -9 "$@"
}

# It has ended, whether or not its parent knows.
is_over() {
	! grep -q '^State:.[^Z]' "/proc/$1/status" 2>/dev/null
}

# within SECONDS COMMAND...: 124 if it takes longer.
within() {
	timeout -k 5 "$@"
}

mounted() {
	grep -q " $1 " /proc/self/mountinfo
}

need_dev_fuse() {
	[ -e /dev/fuse ] || skip "/dev/fuse is not there"
	(: <>/dev/fuse) 2>/dev/null || skip "/dev/fuse may not be opened by $(id -un)"
}

# What is started from here on finds the stubs of the CUDA runtime and of NCCL in place of these.
use_stubs() {
	libraries=$top_builddir/tests/cuda/.libs
	[ -f "$libraries/libnccl-stub.so" ] || skip "built without NCCL: no headers to compile its stub with"
	mkdir "$T/stubs"
	ln -s "$libraries/libcudart-stub.so" "$T/stubs/libcudart.so.13"
	ln -s "$libraries/libnccl-stub.so" "$T/stubs/libnccl.so.2"
	LD_LIBRARY_PATH=$T/stubs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	export LD_LIBRARY_PATH
}

is_free() {
	! grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04x "$1") " /proc/net/tcp /proc/net/tcp6 2>/dev/null
}
# take_port [FIRST]: sets FRAG_PORT to a free port from FIRST on that a job which is started again has again: not of those that
# jobs draw (20000-32767, 21017-21117) nor, as a rule, of the kernel's ephemeral ones.
take_port() {
	FRAG_PORT=${1:-$((10000 + $$ % 8000))}
	until is_free $FRAG_PORT; do
		FRAG_PORT=$((FRAG_PORT + 1))
	done
	export FRAG_PORT
}
