#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The kernel's pages of a file, from which sendfile(2) and mappings read: each open file has pages of one generation.
. "$top_srcdir/tests/mount/lib.sh"
command -v python3 >/dev/null || skip "no python3 to call sendfile with"
need_fuse
mount_fake rw
within 60 python3 - "$M/params/$(ls "$M/params" | head -n 1)/fp32" <<'END' || fail "python: $?"
import errno, os, sys

path = sys.argv[1]
out = os.open("copy", os.O_RDWR | os.O_CREAT)


def open_it(path=path):
    return os.open(path, os.O_RDONLY)


def fills(fd):
    "True: sendfile has found what read(2) finds."
    try:
        count = os.sendfile(out, fd, 0, 4)
    except OSError as e:
        assert e.errno == errno.EINVAL, e
        return False
    assert count == 4 and os.pread(out, 4, os.lseek(out, 0, os.SEEK_CUR) - 4) == os.pread(fd, 4, 0)
    return True


for _ in range(100):
    fd = open_it()
    assert fills(fd), "the file is open once, and fills no page"
    os.close(fd)

before = open_it()
first = open_it()
assert fills(first)
second = open_it()
assert fills(second), "a file that is opened while others use pages has no inode of its own"
assert fills(before), "a file that was open, and had read nothing, has not joined"
assert len({os.fstat(fd).st_ino for fd in (before, first, second)}) == 1, "programs take them for several files"
os.close(first)
third = open_it()
assert fills(third)
again = open_it(f"/proc/self/fd/{second}")
assert fills(again), "the same inode, found by its file"
assert os.pread(again, 4, 0) == os.pread(second, 4, 0)
process = os.fork()
if not process:
    os._exit(not fills(open_it()))
assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0, "two processes cannot both fill pages"
many = [open_it() for _ in range(40)]
assert all(fills(fd) for fd in reversed(many))
readers = []
for _ in range(24):
    process = os.fork()
    if not process:
        for _ in range(50):
            fd = open_it()
            fills(fd)
            os.close(fd)
        os._exit(0)
    readers.append(process)
for process in readers:
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0, "one of many that open at once cannot"
writer = os.open(path, os.O_RDWR)
assert not fills(writer), "pages that may differ from what was written"
END
unmount
