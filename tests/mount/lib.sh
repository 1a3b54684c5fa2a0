# SPDX-License-Identifier: Apache-2.0
# For tests of a real mount: . "$top_srcdir/tests/mount/lib.sh".  Everything is below $T; what was
# mounted or started there is gone when the script ends.
set -eu

T=$(mktemp -d)
M=$T/mnt
mkdir "$M"
started=

skip() {
	echo "skipped: $*"
	exit 77
}

fail() {
	echo "FAILED: $*" >&2
	exit 1
}

clean_up() {
	status=$?
	for pid in $started; do
		kill -9 "$pid" 2>/dev/null || :
	done
	if mounted "$M"; then
		fusermount3 -u -z "$M" 2>/dev/null || umount -l "$M" || :
	fi
	wait_until_gone 2>/dev/null || :
	rm -rf --one-file-system "$T"
	exit $status
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Kills what it is given, by process id, when the script ends.
started() {
	started="$started $1"
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

# within SECONDS COMMAND...: 124 if it takes longer.
within() {
	timeout -k 5 "$@"
}

mounted() {
	grep -q " $1 " /proc/self/mountinfo
}

# The processes that serve $M: their command line has the end of its path.
servers() {
	for p in /proc/[0-9]*; do
		case $({ tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null) in
		fragfs-fake\ *"${T##*/}/mnt"* | */fragfs-fake\ *"${T##*/}/mnt"*) echo "${p#/proc/}" ;;
		esac
	done
}

no_server() {
	[ -z "$(servers)" ]
}

wait_until_gone() {
	wait_until 10 no_server
}

need_fuse() {
	[ -e /dev/fuse ] || skip "/dev/fuse is not there"
	[ -r /dev/fuse ] && [ -w /dev/fuse ] || skip "/dev/fuse may not be opened by $(id -un)"
	if ! fragfs-fake fake "$M" 2>"$T/why"; then
		grep -q 'not permitted\|denied' "$T/why" && skip "$(cat "$T/why")"
		cat "$T/why" >&2
		fail "cannot mount"
	fi
	unmount
}

# mount_fake [OPTIONS [SOURCE]]
mount_fake() {
	within 20 fragfs-fake "${2:-fake}" "$M" ${1:+-o "$1"} || fail "fragfs-fake: status $?"
}

unmount() {
	within 10 fusermount3 -u "$M" 2>/dev/null || within 10 umount "$M" || fail "cannot unmount"
	wait_until_gone || fail "fragfs-fake goes on after the unmount"
}

# refused TEXT COMMAND...: it fails, and its last line has TEXT.
refused() {
	text=$1
	shift
	if within 10 "$@" >"$T/out" 2>&1; then
		fail "not refused: $*"
	fi
	tail -n 1 "$T/out" | grep -q -e "$text" || fail "$*: '$(tail -n 1 "$T/out")', not '$text'"
}

same() {
	cmp "$1" "$2" || fail "$1 and $2 differ"
}
