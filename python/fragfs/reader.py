# SPDX-License-Identifier: Apache-2.0
"""Read and edit what fragfs mounts, from Python: no libfrag, no torch, and no numpy until one is asked for.

    with fragfs.open("/frag") as job:               # a mount, HOST:PORT of a job, or a checkpoint
        weight = job["layers.0.mlp.up.weight"]
        weight.shape, weight.dtype, weight.states   # (4096, 1024), 'bfloat16', ('exp_avg', ...)
        weight.fp32[3:5]                            # two rows: these bytes alone are gathered
        weight.exp_avg.numpy(), weight.bf16.torch()
        with job.freeze():                          # one moment of many parameters
            norms = {name: abs(p.grad.numpy()).max() for name, p in job.items()}
        weight.fp32[7] = 0.0                        # one row, committed on all ranks, or on none
        with job.edit() as e:                       # several states, together or not at all
            e[weight.name].fp32[7] = e[weight.name].exp_avg[7] = 0.0
        for event in job.events():                  # {'event': 'step', 'step': 18, ...}
            ...
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import json
import mmap
import operator
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from . import _dtypes

PREAD_MAX = 1 << 30
_READERS = 4  # threads
_AT_ONCE = 128 << 20  # bytes of a file of several parameters; ranks that go on preserve all of it
_PIECE, _PIECE_PARTS = 1 << 20, 512  # of that file, for one read: more bytes are several requests to the mount
_LARGE, _HUGE = 1 << 20, 2 << 20

# The escapes of these letters of a key in a file name.
_ESCAPED = str.maketrans({"%": "%25", "/": "%2F", "@": "%40"})

# Files of a parameter's folder that are no states.
_FACTS = frozenset({"shape", "dtype", "numel", "group", "group_index", "fragments", "stats", "elem"})
# Files of a group's folder that are no hyper-parameters.
_GROUP_FACTS = frozenset({"params", "kind", "shards", "replicas", "sub_groups", "ranks", "loss_scale"})


def _escape(name: str, facts: frozenset[str]) -> str:
    """The file name of a name that stands among files with these names; fs/names.h has the rules."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    if name in facts:
        return f"%{ord(name[0]):02X}{name[1:]}"
    return name.translate(_ESCAPED) or "%"


def _state_file(key: str) -> str:
    """The file name of a state, beside which another one ends in .npy; tree_state_file() of fs/tree-internal.h."""
    file = _escape(key, _FACTS)
    return file[:-4] + "%2Enpy" if file.endswith(".npy") else file


def _unescape(file: str) -> str:
    """The name that a file name stands for; fs/names.h has the rules."""
    if file == "%":
        return ""
    out, raw, at = bytearray(), os.fsencode(file), 0
    while at < len(raw):
        if raw[at] == ord("%"):
            out.append(int(raw[at + 1:at + 3], 16))
            at += 3
        else:
            out.append(raw[at])
            at += 1
    return os.fsdecode(bytes(out))


def _numel(shape: tuple[int, ...]) -> int:
    product = 1
    for extent in shape:
        product *= extent
    return product


def _row_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    return _numel(shape[1:]) * _dtypes.DTYPES[dtype].itemsize


def _part_shape(shape: tuple[int, ...], rows: int) -> tuple[int, ...]:
    return (rows, *shape[1:]) if shape else ()


def _extents(text: str) -> tuple[int, ...]:
    return tuple(int(extent) for extent in text.split())


class State:
    """One file of a parameter: fp32, grad, exp_avg, bf16 and so on.

    Each call opens the file anew, and so sees the newest generation; the bytes of one call are all of
    one generation.  Of a job that trains a call may wait until its ranks have come to one boundary.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"<fragfs.State {self.path}>"

    def _attribute(self, name: str) -> str:
        """FileNotFoundError: the job has dropped the state, and the file is about to go."""
        try:
            return os.getxattr(self.path, "user.frag." + name).decode()
        except OSError as e:
            if e.errno != errno.ENODATA:
                raise
            what = "a checkpoint has no generation, nor has a state that is gone" if name == "generation" else (
                "the job has no such state now")
            raise FileNotFoundError(errno.ENOENT, what, self.path) from None

    def _tensor(self) -> tuple[str, tuple[int, ...]]:
        """dtype and shape, by one request to the mount: a job that comes back may have another dtype."""
        dtype, *extents = self._attribute("tensor").split()
        return dtype, tuple(map(int, extents))

    @property
    def shape(self) -> tuple[int, ...]:
        return self._tensor()[1]

    @property
    def dtype(self) -> str:
        """Its name, as in frag_dtype_name(): 'float32', 'bfloat16' ..."""
        return self._tensor()[0]

    @property
    def generation(self) -> int:
        """The newest generation; it grows with each step and each edit."""
        return int(self._attribute("generation"))

    @property
    def nbytes(self) -> int:
        return os.stat(self.path).st_size

    def bytes(self, offset: int = 0, size: int | None = None) -> bytearray:
        """Bytes [offset, offset + size), little-endian and in C order; size None: up to the end."""
        if size is None:
            size = self.nbytes - offset
        if offset < 0 or size < 0:
            raise ValueError(f"{self.path}: bytes from {offset} on are not within its {self.nbytes}")
        out = bytearray(size)
        self._read_into(out, offset)
        return out

    def _read_into(self, out: Any, offset: int = 0) -> None:
        view, done = memoryview(out), 0
        # The kernel's pages of a checkpoint's file help a reader of few bytes, again; for many they are one more copy.
        around = os.O_DIRECT if len(view) >= _PIECE else 0
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | around)
        try:
            while done < len(view):
                got = os.preadv(fd, [view[done:done + PREAD_MAX]], offset + done)
                if not got:
                    raise EOFError(f"{self.path}: ends at byte {offset + done}")
                done += got
        finally:
            os.close(fd)

    def numpy(self) -> Any:
        """The whole tensor; the array is the caller's own.  bfloat16 and float8 need ml_dtypes."""
        import numpy

        dtype, shape = self._tensor()
        data = _aligned(_numel(shape) * _dtypes.DTYPES[dtype].itemsize)
        self._read_into(data)
        return _array(data, dtype, shape)

    def torch(self) -> Any:
        """The whole tensor, in the host's memory."""
        import torch

        dtype, shape = self._tensor()
        tensor = torch.empty(shape, dtype=_dtypes.torch_dtype(dtype))
        if tensor.numel():
            self._read_into(tensor.reshape(-1).view(torch.uint8).numpy())
        return tensor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def _rows(self, shape: tuple[int, ...], key: Any) -> tuple[int, int, Any]:
        """The rows [first, last) of dimension 0 that key needs, and what key is within these rows."""
        if not shape:
            return 0, 1, key
        rows = shape[0]
        of_rows, rest = (key[0], key[1:]) if isinstance(key, tuple) and key else (key, ())
        if isinstance(of_rows, slice):
            wanted = range(*of_rows.indices(rows))
            if not wanted:
                return 0, 0, (slice(None), *rest)
            ends = wanted[0], wanted[-1]
            return min(ends), max(ends) + 1, (slice(None, None, wanted.step), *rest)
        if isinstance(of_rows, bool) or not hasattr(of_rows, "__index__") or getattr(of_rows, "shape", ()):
            return 0, rows, key
        row = operator.index(of_rows)
        if not -rows <= row < rows:
            raise IndexError(f"index {row} is out of the {rows} rows of {self.path}")
        row %= rows
        return row, row + 1, (0, *rest)

    def __getitem__(self, key: Any) -> Any:
        """Indexes like a numpy array; of dimension 0 the rows that key needs are gathered, and no others."""
        dtype, shape = self._tensor()
        first, last, inner = self._rows(shape, key)
        row = _row_bytes(dtype, shape)
        return _array(self.bytes(first * row, (last - first) * row), dtype, _part_shape(shape, last - first))[inner]

    def _patch(self, key: Any, value: Any) -> _Patch:
        """The patch that state[key] = value writes: rows, and which of their elements."""
        import numpy

        dtype, shape = self._tensor()
        first, last, inner = self._rows(shape, key)
        row = _row_bytes(dtype, shape)
        part = _array(bytearray((last - first) * row), dtype, _part_shape(shape, last - first))
        part[inner] = numpy.asarray(value, dtype=part.dtype)
        asked = numpy.zeros(part.shape, dtype=bool)
        asked[inner] = True
        return _Patch(first * row, part, asked)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Writes these elements as one edit, on every rank that has a part or a copy, or on none.

        OSError says why not.  Of a job it returns after the boundary at which the ranks apply it.
        """
        _StateChange(self, [self._patch(key, value)]).commit()

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError(f"{self.path} has no axes, and so no length")
        return shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))


@contextlib.contextmanager
def _writing(path: str, flags: int = 0) -> Iterator[int]:
    """A descriptor to write to.  Where the block fails, nothing of what it wrote is left for close(2) to commit, and the
    exception is the block's: of Ctrl-C it is KeyboardInterrupt, and not the EINTR that close(2) has then.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags)
    try:
        yield fd
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
        with contextlib.suppress(OSError):
            os.close(fd)
        raise
    os.close(fd)


class _Patch(NamedTuple):
    offset: int  # bytes
    part: Any  # array of whole rows
    asked: Any  # which elements of part are written: a job may have changed the others meanwhile

    def write(self, fd: int) -> None:
        import numpy

        view = memoryview(self.part.reshape(-1).view(numpy.uint8))  # of bfloat16 there is no memoryview
        edges = numpy.flatnonzero(numpy.diff(self.asked.ravel(), prepend=False, append=False)) * self.part.itemsize
        for first, last in edges.reshape(-1, 2).tolist():
            while first < last:
                first += os.pwrite(fd, view[first:last], self.offset + first)


class _StateChange(NamedTuple):
    """Patches of one state, which are one commit."""

    state: State
    patches: list[_Patch]

    @property
    def path(self) -> str:
        return self.state.path

    def commit(self) -> None:
        with _writing(self.state.path) as fd:
            for patch in self.patches:
                patch.write(fd)
            os.fsync(fd)

    def inverse(self) -> _StateChange:
        """The change that puts the present elements back."""
        return _StateChange(self.state, [
            patch._replace(part=_array(self.state.bytes(patch.offset, patch.part.nbytes), self.state.dtype,
                                       patch.part.shape)) for patch in self.patches])


def _aligned(size: int) -> Any:
    """Memory for bytes of a file.  A MiB of it is one request to the mount where it begins with a page, and two where it
    does not; numpy asks for huge pages where it takes 4 MiB and more.
    """
    import numpy

    if size < _LARGE:
        return numpy.empty(size, numpy.uint8)
    align = _HUGE if size >= _HUGE else mmap.PAGESIZE
    room = numpy.empty(size + align, numpy.uint8)
    first = -room.__array_interface__["data"][0] % align
    return room[first:first + size]


def _array(data: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    import numpy

    return numpy.frombuffer(data, dtype=_dtypes.numpy_dtype(dtype)).reshape(shape)


def _read_pieces(fd: int, at: int, arrays: Iterable[Any]) -> None:
    """Fills arrays with what lies one after the other in a file, by several threads."""
    from concurrent.futures import ThreadPoolExecutor

    pieces: list[tuple[int, list[memoryview]]] = []
    size, parts = 0, []
    for array in arrays:
        rest = memoryview(array.reshape(-1)).cast("B") if array.size else memoryview(b"")
        while rest:
            part, rest = rest[:_PIECE - size], rest[_PIECE - size:]
            parts.append(part)
            size += len(part)
            if size == _PIECE or len(parts) == _PIECE_PARTS:
                pieces.append((at, parts))
                at, size, parts = at + size, 0, []
    pieces.append((at, parts))

    def read(piece: tuple[int, list[memoryview]]) -> None:
        at, parts = piece
        if os.preadv(fd, parts, at) < sum(map(len, parts)):
            raise OSError(errno.EIO, f"less than {sum(map(len, parts))} bytes are at {at}")

    with ThreadPoolExecutor(_READERS) as pool:
        for _ in pool.map(read, pieces):
            pass


class Parameter(Mapping[str, State]):
    """A parameter: a mapping of its states, which are attributes too (p.fp32 is p['fp32'])."""

    __slots__ = ("path", "name")  # p.fp32 = 0 is an AttributeError: p.fp32[:] = 0 is the edit

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.name = name

    def __repr__(self) -> str:
        return f"<fragfs.Parameter {self.name} {self.dtype} {list(self.shape)}>"

    def _fact(self, file: str) -> str:
        with io.open(os.path.join(self.path, file), encoding="ascii") as f:
            return f.read().strip()

    @property
    def shape(self) -> tuple[int, ...]:
        return _extents(self._fact("shape"))

    @property
    def dtype(self) -> str:
        """The dtype of the low-precision parameter, with which the model computes."""
        return self._fact("dtype")

    @property
    def group(self) -> int | None:
        """The number of its param group; None: it is in none."""
        text = self._fact("group")
        return int(text) if text.isdecimal() else None

    @property
    def fragments(self) -> list[dict[str, str]]:
        """Which rank has which part: a row of the file `fragments` each."""
        header, *rows = (line.split("\t") for line in self._fact("fragments").splitlines())
        return [dict(zip(header, row)) for row in rows]

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(_unescape(file) for file in sorted(os.listdir(self.path))
                     if file not in _FACTS and not file.endswith(".npy"))

    def __iter__(self) -> Iterator[str]:
        return iter(self.states)

    def __len__(self) -> int:
        return len(self.states)

    def _file(self, key: str) -> str:
        return os.path.join(self.path, _state_file(key))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and os.path.isfile(self._file(key))

    def __getitem__(self, key: str) -> State:
        if key not in self:
            raise KeyError(f"{self.name} has no {key}; it has {', '.join(self)}")
        return State(self._file(key))

    def __getattr__(self, key: str) -> State:
        if key.startswith("_"):
            raise AttributeError(key)
        try:
            return self[key]
        except KeyError as e:
            raise AttributeError(e.args[0]) from None


class Group(Mapping[str, float]):
    """A param group: its hyper-parameters, which can be set: job.groups[0]['lr'] = 1e-4."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __iter__(self) -> Iterator[str]:
        for file in sorted(os.listdir(self.path)):
            if file not in _GROUP_FACTS and os.path.isfile(os.path.join(self.path, file)):
                yield _unescape(file)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _file(self, name: str) -> str:
        return os.path.join(self.path, _escape(name, _GROUP_FACTS))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and os.path.isfile(self._file(name))

    def __getitem__(self, name: str) -> float:
        if name not in self:
            raise KeyError(f"{self.path} has no {name}; it has {', '.join(self)}")
        with io.open(self._file(name), encoding="ascii") as f:
            return float(f.read())

    def __setitem__(self, name: str, value: float) -> None:
        line = b"%r\n" % float(value)
        with _writing(self._file(name), os.O_TRUNC) as fd:
            os.write(fd, line)  # whole lines are committed by write(2), which says why not


class _HyperChange(NamedTuple):
    group: Group
    name: str
    value: float

    @property
    def path(self) -> str:
        return self.group._file(self.name)

    def commit(self) -> None:
        self.group[self.name] = self.value

    def inverse(self) -> _HyperChange:
        return self._replace(value=self.group[self.name])


class _StagedState(State):
    def __init__(self, path: str, changes: dict[Any, Any]) -> None:
        super().__init__(path)
        self._changes = changes

    def __setitem__(self, key: Any, value: Any) -> None:
        self._changes.setdefault(self.path, _StateChange(State(self.path), [])).patches.append(self._patch(key, value))


class _StagedParameter(Parameter):
    __slots__ = ("_changes",)

    def __init__(self, path: str, name: str, changes: dict[Any, Any]) -> None:
        super().__init__(path, name)
        self._changes = changes

    def __getitem__(self, key: str) -> State:
        return _StagedState(super().__getitem__(key).path, self._changes)


class _StagedGroup(Group):
    def __init__(self, path: str, changes: dict[Any, Any]) -> None:
        super().__init__(path)
        self._changes = changes

    def __setitem__(self, name: str, value: float) -> None:
        self[name]  # KeyError: the group has none
        self._changes[self.path, name] = _HyperChange(Group(self.path), name, float(value))


class Edit:
    """Parameters and groups as those of a mount; what is set is kept aside until the block of edit() ends."""

    def __init__(self, mount: Mount) -> None:
        self._mount = mount
        self._changes: dict[Any, Any] = {}

    def __getitem__(self, name: str) -> Parameter:
        return _StagedParameter(self._mount[name].path, name, self._changes)

    @property
    def groups(self) -> list[Group]:
        return [_StagedGroup(group.path, self._changes) for group in self._mount.groups]

    def _commit(self) -> None:
        """Commits the changes.  Raises the error of a change; OSError names earlier changes that could not be put back."""
        several = len(self._changes) > 1  # else the job is not frozen, and the change is all or nothing itself
        undo = [change.inverse() for change in self._changes.values()] if several else []
        done = 0
        try:
            for change in self._changes.values():
                change.commit()
                done += 1
        except BaseException as e:
            left = []
            for inverse in undo[:done + (not isinstance(e, OSError))]:  # an interrupted commit may have been applied
                try:
                    inverse.commit()
                except OSError:
                    left.append(inverse.path)
            if left:
                raise OSError(getattr(e, "errno", None), f"{e}; not put back: {', '.join(left)}") from e
            raise


class Mount(Mapping[str, Parameter]):
    """A mount: a mapping of parameters by their names (a coordinate follows behind @)."""

    def __init__(self, path: str, own: _OwnMount | None = None) -> None:
        self.path = path
        self._own = own
        self._freezer: int | None = None  # the thread that is within freeze()
        self._names: dict[str, str] = {}
        if own:
            self._process = os.getpid()
            atexit.register(self.close)

    def __repr__(self) -> str:
        return f"<fragfs.Mount {self.path}>"

    def __enter__(self) -> Mount:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmounts what open() has mounted, and leaves a mount that was there before."""
        if not self._own or os.getpid() != self._process:  # a forked child's parent has the mount
            return
        own, self._own = self._own, None
        atexit.unregister(self.close)
        own.end()

    def _is_job(self) -> bool:
        return os.path.exists(os.path.join(self.path, ".frag", "freeze"))

    def _text(self, *file: str) -> str:
        with io.open(os.path.join(self.path, *file), encoding="utf-8") as f:
            return f.read().strip()

    def _folder(self) -> str:
        return os.path.join(self.path, "params")

    def _name_of(self, file: str) -> str:
        """The name of a parameter; that of a file name that was cut, with ~ and 16 digits at its end, is an attribute."""
        if len(os.fsencode(file)) < 255:
            return _unescape(file)
        for state in os.listdir(os.path.join(self._folder(), file)):
            with contextlib.suppress(OSError):
                return os.fsdecode(os.getxattr(os.path.join(self._folder(), file, state), "user.frag.name"))
        return _unescape(file)

    def _files(self) -> dict[str, str]:
        self._names = {self._name_of(file): file for file in os.listdir(self._folder())}
        return self._names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._files()))

    def __len__(self) -> int:
        return len(self._files())

    def _likely_file(self, name: str) -> str | None:
        """The file of the parameter, if there is one; None: the list of all says which it is."""
        is_plain = isinstance(name, str) and name and not set("/%") & set(name) and not name.startswith(".") and len(name) < 200
        return self._names.get(name) or (name if is_plain else None)

    def __getitem__(self, name: str) -> Parameter:
        file = self._likely_file(name)
        if file is None or name not in self._names and not os.path.isdir(os.path.join(self._folder(), file)):
            file = self._files().get(name)
        if file is None:
            raise KeyError(f"{self.path} has no parameter {name}")
        return Parameter(os.path.join(self._folder(), file), name)

    @property
    def step(self) -> int:
        return int(self._text("step"))

    @property
    def phase(self) -> str:
        return self._text("phase")

    @property
    def groups(self) -> list[Group]:
        folder = os.path.join(self.path, "groups")
        if not os.path.isdir(folder):  # as of a checkpoint without an optimizer
            return []
        return [Group(os.path.join(folder, number)) for number in sorted(os.listdir(folder), key=int)]

    @contextlib.contextmanager
    def freeze(self, seconds: float = 60) -> Iterator[None]:
        """All ranks stand at one boundary inside the block, for so long at most.

        OSError: EBUSY, ESTALE and ETIMEDOUT as fragfs(1) says under Freezing; ETIMEDOUT at the end of
        the block: the freeze had ended before.  ValueError: seconds are not in [1, 86400]; whole ones count.
        """
        if not 1 <= seconds <= 86400:  # 0 would thaw what somebody else has frozen
            raise ValueError(f"{seconds} seconds: a job is frozen for 1 to 86400")
        with io.open(os.path.join(self.path, ".frag", "freeze"), "wb", buffering=0) as f:
            f.write(b"%d held\n" % seconds)
            self._freezer = threading.get_ident()
            try:
                yield
            finally:
                self._freezer = None
            f.write(b"0\n")

    @contextlib.contextmanager
    def edit(self, seconds: float = 60) -> Iterator[Edit]:
        """Edits of several parameters and groups that go in together when the block ends, or not at all.

            with job.edit() as e:
                e["layers.0.weight"].fp32[3] = 0
                e["layers.0.weight"].exp_avg[3] = 0
                e.groups[0]["lr"] = 1e-4

        An exception in the block: nothing is written.  A job is frozen for so long at most, unless it stands
        already by this thread's freeze(); all files are committed at that one boundary, each by itself, and where one is
        refused those before it are put back: OSError says why.  A reader that is killed in between leaves a part.
        """
        e = Edit(self)
        yield e
        freezes = len(e._changes) > 1 and self._is_job() and self._freezer != threading.get_ident()
        with self.freeze(seconds) if freezes else contextlib.nullcontext():
            e._commit()

    def _masters(self) -> dict[str, Any] | None:
        """All of fp32, of one moment, out of one file; None: not all parameters have it, or they are too large for that."""
        path = os.path.join(self.path, "export", "model.safetensors")
        if not self._is_job() or os.stat(path).st_size > _AT_ONCE:
            return None
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)  # else through pages of the kernel
        try:
            size = int.from_bytes(os.pread(fd, 8, 0), "little")
            header = json.loads(os.pread(fd, size, 8))
            names = list(self)
            if header.pop("__metadata__").get("state") != "fp32" or names != sorted(header):
                return None
            arrays = {name: _array(_aligned(4 * _numel(tensor["shape"])), "float32", tensor["shape"])
                      for name, tensor in header.items()}  # in the order of the file
            _read_pieces(fd, 8 + size, list(arrays.values()))
            return {name: arrays[name] for name in names}
        finally:
            os.close(fd)

    def numpy(self, key: str, names: Iterable[str] | None = None) -> dict[str, Any]:
        """The state `key` of these parameters, or of all that have it: sooner than one after the other.

        fp32 of all, up to 128 MiB of a job, is of one moment.  Else steps come between, unless freeze() holds them.
        """
        from concurrent.futures import ThreadPoolExecutor

        if key == "fp32" and names is None:
            with contextlib.suppress(OSError):  # a view of all that has not come about, or not lasted
                masters = self._masters()
                if masters is not None:
                    return masters
        folder, key_file = self._folder(), _state_file(key)

        def read(name: str) -> Any:
            """None: one of all has no such state."""
            file = self._likely_file(name)
            if file is not None:
                with contextlib.suppress(FileNotFoundError):  # a look before would be a request of its own
                    return State(os.path.join(folder, file, key_file)).numpy()
            return self[name][key].numpy() if names is not None else None  # KeyError says what there is

        wanted = list(self if names is None else names)
        if len(wanted) == 1:
            return {name: array for name in wanted if (array := read(name)) is not None}
        with ThreadPoolExecutor(_READERS) as pool:
            return {name: array for name, array in zip(wanted, pool.map(read, wanted)) if array is not None}

    def events(self) -> Iterator[dict[str, Any]]:
        """The events from now on, until the mount or the job ends; fragfs(1), Events."""
        f = io.open(os.path.join(self.path, "events"), "rb", buffering=0)
        return self._follow(f)

    @staticmethod
    def _follow(f: Any) -> Iterator[dict[str, Any]]:
        with f:
            rest = b""
            while chunk := f.read(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)


def _is_mount(path: str) -> bool:
    return os.path.isfile(os.path.join(path, ".frag", "version"))


class _OwnMount:
    """A mount that ends with this process, also where a signal ends it.

    A shell beside this process mounts, waits for a line of this process, or for its end, and unmounts.  Forked children have the
    pipe, too: the mount is there until the last of them has ended.
    """

    SHELL = """
        folder=$1
        shift
        "$@" && echo mounted && cd / && { read -r line; fusermount3 -u -z -- "$folder"; }
        status=$?
        rmdir -- "$folder"
        exit "$status"
    """

    def __init__(self, program: str, source: str, options: Iterable[str]) -> None:
        self.folder = tempfile.mkdtemp(prefix="fragfs-")
        mount = (program, *(word for option in options for word in ("-o", option)), "--", source, self.folder)
        self._shell = subprocess.Popen(("sh", "-c", self.SHELL, "sh", self.folder, *mount), stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            mounted = self._shell.stdout.readline()
        except BaseException:
            self._shell.communicate()
            raise
        if not mounted:
            self.end()

    def end(self) -> None:
        _, said = self._shell.communicate("\n")
        if self._shell.returncode:
            raise OSError(said.strip() or f"{self.folder} was not unmounted: its shell ended with {self._shell.returncode}")


def open(source: str | os.PathLike[str], *options: str) -> Mount:  # noqa: A001: fragfs.open
    """Opens SOURCE: a folder where fragfs is mounted, HOST:PORT of a job, or a checkpoint.

    The latter two are mounted in a folder of their own, with these options of fragfs(1) ("rw",
    "overlay=trial", ...), until close(), or until this process ends.  The program is fragfs of PATH, or the one that FRAGFS names.
    OSError: it cannot be mounted; the text is what fragfs says.
    """
    source = os.fspath(source)
    if _is_mount(source):
        if options:
            raise ValueError(f"{source} is mounted already: {', '.join(options)} cannot be added")
        return Mount(source)
    program = os.environ.get("FRAGFS") or shutil.which("fragfs")
    if not program:
        raise FileNotFoundError("the program fragfs is not in PATH, and FRAGFS does not name it")
    own = _OwnMount(program, source, options)
    return Mount(own.folder, own)
