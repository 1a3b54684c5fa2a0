# SPDX-License-Identifier: Apache-2.0
# size-readers.py HOW FILE SIZE: reads FILE again and again, until there is a file "over", by sendfile, copy
# (copy_file_range), copyfile (shutil's), private, shared (mappings); each time it has to be SIZE bytes.  ESTALE is
# counted: an edit came.  EXDEV: kernels from 5.19 on copy_file_range between file systems of one kind alone.
import errno, mmap, os, shutil, sys

how, path, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
out = f"{how}.copy"


def copy(call):
    with open(path, "rb", 0) as i, open(out, "wb", 0) as o:
        while call(i.fileno(), o.fileno()):
            pass
    return os.stat(out).st_size


def private():
    with open(path, "rb", 0) as f, mmap.mmap(f.fileno(), size, access=mmap.ACCESS_COPY) as m:
        m[0:4] = b"mine"
        for _ in range(50):
            assert len(bytes(m)) == size and os.fstat(f.fileno()).st_size == size
            assert m[0:4] == b"mine", "the private change is lost"
    return size


def shared():
    with open(path, "rb", 0) as f:
        try:
            m = mmap.mmap(f.fileno(), size, access=mmap.ACCESS_READ)
        except OSError as e:
            assert e.errno == errno.ENODEV, e
            return size
        with m:
            for _ in range(50):
                assert len(bytes(m)) == size
    return size


once = {
    "sendfile": lambda: copy(lambda i, o: os.sendfile(o, i, None, size)),
    "copy": lambda: copy(lambda i, o: os.copy_file_range(i, o, size)),
    "copyfile": lambda: os.stat(shutil.copyfile(path, out)).st_size,
    "private": private,
    "shared": shared,
}[how]
rounds = stale = 0
while not rounds or not os.path.exists("over"):
    try:
        got = once()
        assert got == size, f"{how}: {got} bytes, not {size}"
    except OSError as e:
        if e.errno not in (errno.ESTALE, errno.EXDEV):
            raise
        stale += e.errno == errno.ESTALE
    rounds += 1
print(f"{how}: {rounds} rounds, {stale} stale")
