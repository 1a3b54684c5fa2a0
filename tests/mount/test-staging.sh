#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Only its own handle sees staged bytes; staging is bounded, and its memory is given back.
. "$top_srcdir/tests/mount/lib.sh"
need_fuse
mount_fake rw,stage_mem=1M

W=$M/params/layers.0.weight/fp32 # 2 MiB
head -c 2097152 /dev/urandom >"$T/new"
fake-bytes layers.0.weight "" fp32 >"$T/old"
for i in 1 2 3; do
	refused "No space left" cp "$T/new" "$W"
	refused "No space left" dd if="$T/new" of="$W" bs=1M conv=notrunc
	same "$W" "$T/old"
done
# One MiB fits, again and again.
for i in 1 2 3; do
	dd if="$T/new" of="$W" bs=1M count=1 conv=notrunc status=none || fail "1 MiB of 1 MiB"
done
head -c 1048576 "$T/new" >"$T/want"
tail -c 1048576 "$T/old" >>"$T/want"
same "$W" "$T/want"

command -v python3 >/dev/null || { unmount; echo "handles not tried: no python3"; exit 0; }
PYTHONPATH=$top_srcdir/tests/mount PYTHONDONTWRITEBYTECODE=1 within 60 python3 - "$M" <<'END' || fail "handles"
import errno, os, sys
from errnos import fails
top = sys.argv[1]
path = top + "/params/layers.0.bias/exp_avg"
old = open(path, "rb").read()
commits = lambda: float(open(top + "/groups/0/commits").read())
before = commits()

# The handle's own reads see staged bytes, also over their edges; other handles do not before fsync.
fd = os.open(path, os.O_RDWR)
assert os.pwrite(fd, b"A" * 10, 3) == 10 and os.pwrite(fd, b"B" * 4, 11) == 4
want = old[:3] + b"A" * 8 + b"B" * 4 + old[15:]
assert os.pread(fd, 5000, 0) == want
assert os.pread(fd, 7, 8) == want[8:15]
assert open(path, "rb").read() == old
os.fsync(fd)
assert open(path, "rb").read() == want and commits() == before + 1
os.fsync(fd)
os.close(fd)
assert commits() == before + 1, "committed twice"

# A write over the end is short, and close fails; none of its bytes is kept.
fd = os.open(path, os.O_RDWR)
assert os.pwrite(fd, b"C" * 10, 3995) == 5
assert fails(os.pwrite, fd, b"C", 4000) == errno.EFBIG
assert fails(os.fsync, fd) == errno.EFBIG
assert fails(os.close, fd) == errno.EFBIG
assert open(path, "rb").read() == want

# ftruncate begins anew; a flush by a forked child keeps staged bytes.
fd = os.open(path, os.O_RDWR)
os.pwrite(fd, b"D" * 100, 0)
os.ftruncate(fd, 0)
os.pwrite(fd, b"E" * 2000, 0)
assert fails(os.fsync, fd) == errno.EINVAL
child = os.fork()
if not child:
    os._exit(0)
os.waitpid(child, 0)
assert open(path, "rb").read() == want
os.pwrite(fd, b"F" * 2000, 2000)
os.close(fd)
assert open(path, "rb").read() == b"E" * 2000 + b"F" * 2000 and commits() == before + 2

# Opened, duplicated and closed without a write: no commit.
fd = os.open(path, os.O_RDWR | os.O_TRUNC)
os.close(os.dup(fd))
os.close(fd)
assert commits() == before + 2

# ftruncate to the whole size, after a truncation and the last write, fills the rest with zeros, as cp does for a hole
# at the end.  Before a write, by which a program reserves room, it does not: that program may be killed half way.
fd = os.open(path, os.O_RDWR | os.O_TRUNC)
os.pwrite(fd, b"G" * 1500, 500)
os.ftruncate(fd, 4000)
os.close(fd)
assert open(path, "rb").read() == bytes(500) + b"G" * 1500 + bytes(2000) and commits() == before + 3
fd = os.open(path, os.O_RDWR | os.O_TRUNC)
os.ftruncate(fd, 4000)
os.pwrite(fd, b"H" * 1500, 500)
assert fails(os.close, fd) == errno.EINVAL
fd = os.open(path, os.O_RDWR)
os.pwrite(fd, b"I" * 500, 0)
os.ftruncate(fd, 4000)
os.close(fd)
assert open(path, "rb").read() == b"I" * 500 + b"G" * 1500 + bytes(2000) and commits() == before + 4
fd = os.open(path + ".npy", os.O_RDWR | os.O_TRUNC)
os.ftruncate(fd, os.fstat(fd).st_size)
assert fails(os.close, fd) == errno.EINVAL and commits() == before + 4
END
unmount
