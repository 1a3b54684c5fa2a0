#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fragfs returns when the mount is ready, or says in one line why it is not; its end leaves nothing behind.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse

# says TEXT COMMAND...: the command fails with one line, which has TEXT.
says() {
	refused "$@"
	[ "$(wc -l <"$T/out")" = 1 ] || fail "more than one line: $(cat "$T/out")"
	grep -q '^fragfs: ' "$T/out" || fail "whose line is it: $(cat "$T/out")"
	[ -z "$(servers)" ] || [ -n "${serving:-}" ] || fail "$*: a process is left"
}

# Each error has its line.
says "nobody listens" fragfs-fake none "$M"
says "nobody listens" fragfs-fake none "$M" -f
mounted "$M" && fail "mounted all the same"
says "No such file" fragfs-fake fake "$T/missing"
touch "$T/file"
says "not a directory" fragfs-fake fake "$T/file"
says "unknown option 'wr'" fragfs-fake fake "$M" -o wr
says "unknown option 'timeoutx=3'" fragfs-fake fake "$M" -o rw,timeoutx=3
says "unknown option '-x'" fragfs-fake -x fake "$M"
says "timeout needs a value: seconds, 0.001 to 4294967" fragfs-fake fake "$M" -o timeout
says "rw takes no value" fragfs-fake fake "$M" -o rw=1
for bad in timeout=soon timeout=-1 timeout=0 stage_mem=much stage_mem=-1 stage_mem=1X; do
	says "will not do" fragfs-fake fake "$M" -o $bad
done
says "a mountpoint are needed" fragfs-fake fake
says "there is a source and a mountpoint already" fragfs-fake fake "$M" extra
says "needs options" fragfs-fake fake "$M" -o

fragfs-fake --version | grep -q '^fragfs ' || fail --version
fragfs-fake --help >"$T/help" || fail --help
for option in rw ro timeout=SECONDS stage_mem=SIZE key=FILE plain 'transport=auto|zmq' 'gather=auto|nccl|host' noreadahead allow_other; do
	grep -q -e "-o $option " "$T/help" || fail "--help has no $option"
done

# Behind a mount no descriptor of the shell stays open, as of a lock.
printf '\066\0\0\0\0\0\0\0{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}\0\0\0\0' >"$T/x.safetensors"
for source in fake "$T/x.safetensors"; do
	program=fragfs-fake
	[ "$source" = fake ] || program=fragfs
	(
		exec 9>"$T/lock"
		flock -n 9
		within 60 $program "$source" "$M"
	) || fail "$source: $?"
	flock -n "$T/lock" true || fail "$source: its processes have the shell's lock: $(servers)"
	unmount
done

# None of its own descriptors is taken for one of 0 to 2, which the shell may have closed.
within 60 fragfs-fake fake "$M" <&- >&- 2>&- || fail "closed descriptors: $?"
[ "$(cat "$M/step")" = 41 ] || fail "closed descriptors"
unmount

# The mount is ready when fragfs returns; a relative mount point; options as FUSE users know them.
(cd "$T" && within 60 fragfs-fake fake,b "../${T##*/}/mnt" -o noatime,allow_other,timeout=2.5,stage_mem=2M) ||
	fail "mount"
serving=yes
grep -q " $M .* - fuse.fragfs fake,b .*default_permissions,allow_other" /proc/self/mountinfo ||
	fail "mountinfo: $(grep fragfs /proc/self/mountinfo)"
[ "$(cat "$M/step")" = 41 ] || fail "not ready"
[ "$(cat "$M/.frag/options")" = ro,timeout=2.5,stage_mem=2M,allow_other,noatime ] || fail "$(cat "$M/.frag/options")"
says "already mounted by fragfs" fragfs-fake fake "$M"
[ "$(readlink "/proc/$(servers)/cwd")" = / ] || fail "the server stays in its directory"
[ "$(readlink "/proc/$(servers)/fd/2")" = /dev/null ] || fail "the server keeps the terminal"
unmount
serving=

within 60 fragfs-fake fake "$M" -o max_read=4096 || fail "max_read"
serving=yes
[ "$(within 60 cat "$M/step")" = 41 ] || fail "max_read: not ready"
unmount
serving=

# A file system of another kind is mounted there.
if mount -t tmpfs none "$M" 2>/dev/null; then
	says "busy, a tmpfs file system is mounted there" fragfs-fake fake "$M"
	umount "$M"
fi

# Signals.
for signal in TERM INT HUP; do
	mount_fake
	kill -$signal "$(servers)"
	wait_until_gone || fail "SIG$signal does not end it"
	mounted "$M" && fail "SIG$signal leaves the mount"
done

# A user who ends the mounting command before it has returned finds no mount later.
for ms in 0 1 2 3 4 5 6 7 8 9 10 12 14 16 18 20 25 30; do
	fragfs-fake fake "$M" &
	starting=$!
	sleep "$(printf '0.%03d' $ms)"
	kill $starting 2>/dev/null || :
	if wait $starting 2>/dev/null; then
		unmount
	else
		wait_until_gone || fail "ended after $ms ms: a server stays"
		! mounted "$M" || fail "ended after $ms ms: mounted"
	fi
done

# The mount is ended as soon as it is there.
for i in 1 2 3 4 5 6 7 8 9 10; do
	fragfs-fake fake "$M" -f &
	server=$!
	started $server
	until mounted "$M"; do :; done
	kill -TERM $server
	wait_until_gone || fail "SIGTERM at its start does not end it"
done

# A killed mount is cleaned up by the next one.
for i in 1 2; do
	mount_fake
	kill -9 "$(servers)"
	wait_until_gone
	# The kernel may be about to end the mount.
	wait_until 60 eval '! ls "$M" 2>why && grep -q "not connected" why' || fail "killed: $(cat why)"
done
mount_fake
[ "$(cat "$M/step")" = 41 ] || fail "no mount after a killed one"
unmount
mounted "$M" && fail "a dead mount lies below"

# In the foreground.
fragfs-fake fake "$M" -f &
server=$!
started $server
wait_until 60 mounted "$M" || fail "-f does not mount"
[ "$(within 60 cat "$M/step")" = 41 ] || fail "-f does not serve"
kill -TERM $server
wait $server || fail "-f: status $? after SIGTERM"
mounted "$M" && fail "-f leaves the mount"
exit 0
