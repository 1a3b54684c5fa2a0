# SPDX-License-Identifier: Apache-2.0
# For tests of a real mount, at $M: . "$top_srcdir/tests/mount/lib.sh".
. "$top_srcdir/tests/lib.sh"

M=$T/mnt
mkdir "$M"

drop_mount() {
	! mounted "$1" || fusermount3 -u -z "$1" 2>/dev/null || umount -l "$1"
}

# Drops all mounts below $T, those within others first.
drop_mounts() {
	LC_ALL=C sed -n "s|^[^ ]* [^ ]* [^ ]* [^ ]* \($T/[^ ]*\) .*|\1|p" /proc/self/mountinfo | sort -r |
		while read -r below; do drop_mount "$below" || :; done
}

at_end() {
	drop_mounts
	wait_until_gone 2>/dev/null || :
}

# The processes that serve $M: the end of its path is one of their arguments.
servers() {
	grep -lzx ".*${T##*/}/mnt" /proc/[0-9]*/cmdline 2>/dev/null | while IFS=/ read -r _ _ pid _; do
		case $(cat "/proc/$pid/comm" 2>/dev/null) in fragfs*) echo "$pid" ;; esac
	done
}

no_server() {
	[ -z "$(servers)" ]
}

wait_until_gone() {
	wait_until 60 no_server
}

need_fuse() {
	need_dev_fuse
	if ! fragfs-fake fake "$M" 2>"$T/why"; then
		grep -q 'not permitted\|denied' "$T/why" && skip "$(cat "$T/why")"
		cat "$T/why" >&2
		fail "cannot mount"
	fi
	unmount
}

# mount_fake [OPTIONS [SOURCE]]
mount_fake() {
	within 60 fragfs-fake "${2:-fake}" "$M" ${1:+-o "$1"} || fail "fragfs-fake: status $?"
}

unmount() {
	within 60 fusermount3 -u "$M" 2>/dev/null || within 60 umount "$M" || fail "cannot unmount"
	wait_until_gone || fail "fragfs goes on after the unmount"
}

# refused TEXT COMMAND...: the command fails, and its last line has TEXT.
refused() {
	text=$1
	shift
	if within 60 "$@" >"$T/out" 2>&1; then
		fail "not refused: $*"
	fi
	tail -n 1 "$T/out" | grep -q -e "$text" || fail "$*: '$(tail -n 1 "$T/out")', not '$text'"
}

same() {
	cmp "$1" "$2" || fail "$1 and $2 differ"
}

# train_job JOB: two ranks of docs/examples/train, which print a line for each step into rank0.log and rank1.log; $rank0 and
# $rank1 are their processes, $address is the job's.
train_job() {
	for rank in 0 1; do
		RANK=$rank WORLD_SIZE=2 FRAG_JOB_ID=$1 "$top_builddir/docs/examples/train" --stage 2 --forever --every 1 \
			--pause-ms 20 >rank$rank.log 2>&1 &
		eval "rank$rank=$!"
		started $!
	done
	wait_until 60 grep -qs '^step' rank0.log || fail "it does not train"
	address=$(sed -n 's/^train: address //p' rank0.log)
}

# drive_ranks JOB: three ranks that do what descriptors 4, 5 and 6 tell them (tests/fail/driven-job.c); $rank0 and so on
# are their processes, $address is the job's.
drive_ranks() {
	export FRAG_JOB_ID="$1-$$" WORLD_SIZE=3
	for rank in 0 1 2; do
		mkfifo cmd.$rank
		RANK=$rank "$top_builddir/tests/fail/driven-job" <cmd.$rank >>job.log 2>&1 &
		eval "rank$rank=$!"
		started $!
	done
	exec 4>cmd.0 5>cmd.1 6>cmd.2
	wait_until 60 grep -q '^127' job.log || fail "no job: $(cat job.log)"
	address=$(grep -m 1 '^127' job.log)
}
