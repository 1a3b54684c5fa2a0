#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Which of a file's open files fills pages of the kernel, from which sendfile(2) and mappings read.
. "$top_srcdir/tests/mount/lib.sh"
command -v python3 >/dev/null || skip "no python3 to call sendfile with"
need_fuse
mount_fake rw
within 60 python3 - "$M/params/$(ls "$M/params" | head -n 1)/fp32" <<'END' || fail "python: $?"
import errno, os, sys, time

out = os.open("copy", os.O_RDWR | os.O_CREAT)


def open_it():
    return os.open(sys.argv[1], os.O_RDONLY)


def fills(fd):
    try:
        return os.sendfile(out, fd, 0, 4) == 4
    except OSError as e:
        assert e.errno == errno.EINVAL, e
        return False


def wait_until_fills():
    "RELEASE may come after close(2)."
    end = time.monotonic() + 50
    while True:
        fd = open_it()
        if fills(fd):
            return fd
        os.close(fd)
        assert time.monotonic() < end, "nobody may fill pages any more"


for _ in range(100):
    fd = open_it()
    assert fills(fd), "the file is open once, and fills no page"
    os.close(fd)

beside = open_it()  # while the next one fills pages, of which it may have found some
first = open_it()
assert fills(first)
second = open_it()
assert not fills(second), "two open files fill pages"
os.close(first)
os.close(second)
third = open_it()
assert not fills(third), "an open file finds pages of two others"
assert os.pread(third, 4, 0) == os.pread(beside, 4, 0)
os.close(third)
os.close(beside)
fourth = wait_until_fills()
process = os.fork()
if not process:
    os._exit(fills(open_it()))
assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0, "two processes fill pages"
END
unmount
