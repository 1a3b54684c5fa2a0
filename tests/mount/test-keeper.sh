#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A checkpoint is served by a process that may do almost nothing, and mounted by another that outlives it.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
[ "$(uname -m)" = x86_64 ] || [ "$(uname -m)" = aarch64 ] || skip "no seccomp filter for $(uname -m)"

head -c 4000 /dev/urandom >"$T/data"
header='{"w":{"dtype":"F32","shape":[1000],"data_offsets":[0,4000]}}    '
{
	printf '\100\0\0\0\0\0\0\0%s' "$header" # 64 bytes of header
	cat "$T/data"
} >"$T/x.safetensors"
[ ${#header} -eq 64 ] || fail "the header has ${#header} bytes"

start() {
	within 60 fragfs "$T/x.safetensors" "$M" || fail "fragfs: status $?"
	same "$M/params/w/fp32" "$T/data"
	keeper= server=
	for pid in $(servers); do
		parent=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status")
		case " $(echo $(servers)) " in *" $parent "*) server=$pid ;; *) keeper=$pid ;; esac
	done
	[ -n "$keeper" ] && [ -n "$server" ] || fail "processes: $(servers)"
}

ended() {
	wait_until_gone || fail "$1: processes stay"
	! mounted "$M" || fail "$1: it is still mounted"
}

# The kernel may be about to end the mount.
sees_dead_mount() {
	fragctl doctor -H -o found | grep -q "^$M: its fragfs is gone"
}

start
grep -q '^Seccomp:.*2' "/proc/$server/status" || fail "no seccomp"
grep -q '^NoNewPrivs:.*1' "/proc/$server/status" || fail "programs of other rights can be started"
[ $((0x$(sed -n 's/^CapEff:[[:space:]]*//p' "/proc/$server/status") & ~6)) -eq 0 ] ||
	fail "capabilities stay"
unmount
ended umount

for signal in TERM INT HUP; do
	start
	kill -$signal "$keeper"
	ended "SIG$signal to the keeper"
	start
	kill -$signal "$server"
	ended "SIG$signal to the server"
done
start
kill -KILL "$server"
ended "SIGKILL of the server"

# Without its keeper a server ends; the dead mount is no obstacle to the next one, though its attributes are cached.
start
stat "$M" >/dev/null
kill -KILL "$keeper"
wait_until_gone || fail "SIGKILL of the keeper: the server stays"
wait_until 60 sees_dead_mount || fail "fragctl doctor: $(fragctl doctor)"
for command in ls 'get w' plan arena; do
	# shellcheck disable=SC2086 # words
	[ "$command" = plan ] && set -- plan "$M" || set -- $command -j "$M"
	within 60 fragctl "$@" 2>&1 | grep -qx "fragctl: $M: Transport endpoint is not connected" || fail "fragctl $*"
done
start
within 60 fragfs "$T/x.safetensors" "$M" -f 2>"$T/out" && fail "mounted twice"
unmount
ended "SIGKILL of the keeper"
fragfs "$T/x.safetensors" "$M" -f &
keeper=$!
started $keeper
wait_until 60 mounted "$M" || fail "no mount in the foreground"
same "$M/params/w/fp32" "$T/data"
kill -KILL "$keeper"
wait_until_gone || fail "SIGKILL of fragfs -f: the server stays"
drop_mount "$M"
ended "SIGKILL of fragfs -f"

# A source that is no checkpoint, or cannot be mounted, gives one line and leaves nothing behind.
echo nonsense >"$T/bad.safetensors"
refused 'bad.safetensors' fragfs "$T/bad.safetensors" "$M"
ended "a refused checkpoint"
refused 'bad.safetensors' fragfs "$T/bad.safetensors" "$M" -f
refused 'cannot mount on .* with -o context=nonsense: ' fragfs "$T/x.safetensors" "$M" -o context=nonsense
ended "a refused mount"
