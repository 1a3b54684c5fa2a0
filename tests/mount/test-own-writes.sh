#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Bytes that were committed through an open file are read through it, although an open file shows one generation: before
# and after fsync, by several threads, and when the mount is ended while it is open.
. "$top_srcdir/tests/mount/lib.sh"
command -v python3 >/dev/null || skip "no python3 to hold a file open with"
need_fuse
. "$top_srcdir/tests/mount/bits.sh"
start_job 0 2 small
"$top_builddir/fragfs" "$address" "$M" -o rw -f &
server=$!
started $server
wait_until 60 mounted "$M" || fail "no mount"
cat >own.py <<'END'
import os, signal, sys, threading
for path in sys.argv[2:]:
    fd = os.open(path, os.O_RDWR)
    size = os.fstat(fd).st_size
    for read_before in 0, size // 2, size:
        os.pread(fd, read_before, 0)
        new = os.urandom(size)
        os.pwrite(fd, new, 0)
        assert os.pread(fd, size, 0) == new, (path, read_before, "staged")
        os.fsync(fd)
        seen = [None] * 4
        readers = [threading.Thread(target=lambda i=i: seen.__setitem__(i, os.pread(fd, size, 0))) for i in range(4)]
        for r in readers: r.start()
        for r in readers: r.join()
        assert seen == [new] * 4, (path, read_before, "committed")
os.kill(int(sys.argv[1]), signal.SIGTERM)
END
within 60 python3 own.py $server "$M/params/one/fp32" "$M/params/odd.w/fp32" || fail "own writes"
wait $server || fail "fragfs ended with $?"
mounted "$M" && fail "the mount is still there"
end_job
