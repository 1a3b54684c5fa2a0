# SPDX-License-Identifier: Apache-2.0
"""A rank of a job in libfrag's words: struct frag as an object, -errno as OSError."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from array import array
from collections.abc import Callable, Generator, Iterable, Sequence
from ctypes import addressof, c_double, c_int, c_uint32, c_uint64, c_void_p, sizeof
from typing import Any, NamedTuple

from . import _libfrag
from ._dtypes import number_of

_CONFIG = [name for name, _ in _libfrag.frag_config._fields_ if name != "size"]
_CONFIG_TEXTS = ("rank", "job", "master_addr", "key_file", "swap_dir", "swap_config")


class Fragment(NamedTuple):
    """frag_fragment: which part of a parameter this rank has, and where in its partition."""

    group: int
    sub: int
    partition_offset: int
    param_offset: int
    numel: int


_jobs: weakref.WeakSet[Job] = weakref.WeakSet()


def _leave_to_parent() -> None:
    for job in list(_jobs):
        job.is_open = False


@atexit.register
def _close_all() -> None:
    for job in list(_jobs):
        if job.is_open:
            job.close()


os.register_at_fork(after_in_child=_leave_to_parent)


class Interrupt(BaseException):
    """Around what the handler of a signal has raised in a freeze: an error of the job's own."""


class _Hypers:
    """Numbers that the trainer keeps where it likes, and doubles of libfrag's beside them.

    Readers get, and edits change, the doubles.  libfrag could get each number itself (frag_hyper_calls); calls from C
    into Python cost more than all else of a step, and so it calls for edits alone.
    """

    def __init__(self, get: Callable[[], list[float]], put: Callable[[int, float], None]) -> None:
        self._get, self._put = get, put  # each list that get gives is a new one
        self._seen = get()
        self._shown = (c_double * len(self._seen))(*self._seen)
        self.set = _libfrag.frag_hyper_set(self._edited)
        self.failure: BaseException | None = None  # of the trainer's, as it was given an edit, or of a signal's handler
        stand = self._stand()
        next(stand)
        self.frozen = _libfrag.frag_frozen(stand.send)

    def show(self) -> None:
        seen = self._get()
        if seen != self._seen:
            self._shown[:] = self._seen = seen

    def address(self, index: int) -> int:
        return addressof(self._shown) + index * sizeof(c_double)

    def _edited(self, address: int, value: float) -> None:
        index = (address - addressof(self._shown)) // sizeof(c_double)
        self._seen[index] = value
        try:
            self._put(index, value)
        except Exception as e:  # which ctypes would print, and forget
            self.failure = self.failure or e

    def _stand(self) -> Generator[int, object, None]:
        """In a freeze Python runs the handlers of signals where this goes on, at its yield: 1 when one of them raises, as that of
        Ctrl-C does, and this rank is to go on.  A function would have them run at its start, before any `try`, and ctypes would
        print the exception, and forget it.
        """
        code = 0
        while True:
            try:
                while True:
                    yield code
                    code = 0
            except GeneratorExit:
                return
            except BaseException as e:
                e.__traceback__ = e.__traceback__ and e.__traceback__.tb_next  # without this frame, which traceback.clear_frames would end
                self.failure, code = Interrupt(e), 1


class Job:
    """struct frag.  libfrag takes one call at a time: a lock holds back finalizers of other threads.

    close(), or the end of the object or of Python, ends it.
    """

    is_open = False  # false also in a forked child, and from close() on

    def __init__(self, **config: Any) -> None:
        """config: the fields of struct frag_config; what is not given is taken from the environment."""
        unknown = config.keys() - _CONFIG
        if unknown:
            raise TypeError(f"there is no option {', '.join(sorted(unknown))}; options are {', '.join(_CONFIG)}")
        self._library = _libfrag.load()
        self.lock = threading.RLock()
        self._frag = c_void_p()
        self._calls = 0  # calls of libfrag that are under way: a finalizer may make another
        self._closing = False
        fields = {name: str(value).encode() if name in _CONFIG_TEXTS else value
                  for name, value in config.items() if value is not None}
        self._config = _libfrag.frag_config(**fields)
        for name, value in fields.items():
            if getattr(self._config, name) != value:  # ctypes has cut it
                raise ValueError(f"{name}={value} is out of range")
        self._hypers: _Hypers | None = None
        self._devices: set[Any] = set()  # those that libfrag knows
        self._library.frag_error()
        code = self._library.frag_open(ctypes.byref(self._frag), ctypes.byref(self._config))
        if code:
            raise self._error(code, "frag_open")
        self.is_open = True
        _jobs.add(self)

    def __del__(self) -> None:
        if self.is_open:
            self.close()

    def close(self) -> None:
        """Closes at once; within a call of libfrag, as by a finalizer that runs in it, at the end of that call."""
        with self.lock:
            self._closing, self.is_open = True, False
            if self._calls or not self._frag:
                return
            frag, self._frag = self._frag, c_void_p()
            self._library.frag_close(frag)

    def _call(self, function: str, *arguments: Any) -> int:
        with self.lock:
            self._calls += 1
            try:
                self._library.frag_error()  # what came before is not the reason
                code = getattr(self._library, function)(self._frag, *arguments)
                if code >= 0:
                    return code
                what = next((a.decode(errors="replace") for a in arguments if isinstance(a, bytes)), "")
                raise self._error(code, f"{function}{f' of {what}' if what else ''}")
            finally:
                self._calls -= 1
                if self._closing and not self._calls:
                    self.close()

    def _error(self, code: int, what: str) -> OSError:
        reason = self._library.frag_error().decode(errors="replace")
        return OSError(-code, f"{what}: {reason or os.strerror(-code)}")

    @property
    def rank(self) -> int:
        return self._call("frag_rank")

    @property
    def world(self) -> int:
        return self._call("frag_world")

    @property
    def address(self) -> str | None:
        """HOST:PORT, the source to mount; None until it is known."""
        with self.lock:
            text = self._library.frag_address(self._frag)
        return text.decode() if text else None

    # ---- what this rank has ----

    def param(self, name: str, shape: Sequence[int], dtype: Any, *, coordinate: str | None = None,
              frozen: bool = False, cuts: Sequence[tuple[int, int]] = ()) -> int:
        """frag_param, without low-precision values: move_lp gives them memory.

        cuts: (dimension, parts) of each struct frag_cut; none: rows.
        """
        extents = (c_uint64 * max(1, len(shape)))(*shape)
        cut = (_libfrag.frag_cut * max(1, len(cuts)))(*cuts)
        tensor = _libfrag.frag_tensor(
            name=name.encode(), coordinate=coordinate.encode() if coordinate else None,
            dtype=number_of(dtype), ndim=len(shape), shape=extents,
            flags=_libfrag.FRAG_FROZEN if frozen else 0, cuts=cut, ncuts=len(cuts))
        try:
            return self._call("frag_param", ctypes.byref(tensor))
        except OSError as e:
            raise OSError(e.errno, f"{e.strerror} ({name})") from None

    def group(self, params: Sequence[int], *, stage: int = 0, sharding: int = _libfrag.FRAG_ZERO,
              ranks: Sequence[int] | None = None, replicas: int = 0, sub_group_size: int = 0,
              flags: int = 0, alignment: int = 0) -> int:
        """frag_group."""
        numbers = (c_int * max(1, len(params)))(*params)
        sharers = (c_uint32 * len(ranks))(*ranks) if ranks else None
        zero = _libfrag.frag_zero(stage=stage, sharding=sharding, ranks=sharers,
                                  nranks=len(ranks) if ranks else 0, replicas=replicas,
                                  sub_group_size=sub_group_size, flags=flags, alignment=alignment)
        return self._call("frag_group", numbers, len(params), ctypes.byref(zero))

    def sub_groups(self, group: int) -> int:
        return self._call("frag_sub_groups", group)

    def partition_numel(self, group: int, sub: int) -> int:
        return self._call("frag_partition_numel", group, sub)

    def flat_numel(self, group: int) -> int:
        return self._call("frag_flat_numel", group)

    def fragment(self, param: int) -> Fragment | None:
        """None: this rank has no fragment of the parameter."""
        out = _libfrag.frag_fragment()
        try:
            self._call("frag_fragment", param, ctypes.byref(out))
        except FileNotFoundError:
            return None
        return Fragment(out.group, out.sub, out.partition_offset, out.param_offset, out.numel)

    def numel(self, param: int) -> int:
        """The number of elements of this rank's fragment; 0: it has none."""
        fragment = self.fragment(param)
        return fragment.numel if fragment else 0

    def keep(self, group: int, sub: int, key: str, tensor: Any) -> None:
        """frag_state_keep: the tensor is the partition, flat."""
        self._need(tensor, self.partition_numel(group, sub), key)
        self._call("frag_state_keep", group, sub, key.encode(), number_of(tensor.dtype), self._address(tensor))

    def keep_whole(self, group: int, key: str, tensor: Any) -> None:
        """frag_state_keep_whole: the tensor is the whole group, flat."""
        self._need(tensor, self.flat_numel(group), key)
        self._call("frag_state_keep_whole", group, key.encode(), number_of(tensor.dtype), self._address(tensor))

    def keep_fragments(self, params: Sequence[int], key: str, tensors: Sequence[Any]) -> None:
        """frag_fragments_keep: each tensor is this rank's fragment of one parameter."""
        for param, tensor in zip(params, tensors):
            self._need(tensor, self.numel(param), key)
        if len({tensor.dtype for tensor in tensors}) > 1:
            raise ValueError(f"{key} has several dtypes in one param group")
        if tensors:
            for tensor in tensors:
                self._use_device(tensor)
            self._call("frag_fragments_keep", _ints(params), len(params), key.encode(), number_of(tensors[0].dtype),
                       _pointers(tensor.data_ptr() for tensor in tensors))

    @staticmethod
    def _need(tensor: Any, numel: int, key: str) -> None:
        if tensor.numel() != numel:
            raise ValueError(f"{key} of shape {tuple(tensor.shape)} has {tensor.numel()} elements where the layout has {numel}")
        if not tensor.is_contiguous():
            raise ValueError(f"{key} of shape {tuple(tensor.shape)} is not contiguous (channels_last?)")

    def declare(self, group: int, sub: int, key: str, dtype: Any) -> None:
        """frag_state_keep without memory."""
        self._call("frag_state_keep", group, sub, key.encode(), number_of(dtype), None)

    def declare_fragments(self, params: Sequence[int], key: str, dtype: Any) -> None:
        """frag_fragments_keep without memory."""
        self._call("frag_fragments_keep", _ints(params), len(params), key.encode(), number_of(dtype), None)

    def move(self, group: int, sub: int, key: str, tensor: Any) -> None:
        """frag_state_move; None: the state has no memory now."""
        if tensor is not None:
            self._need(tensor, self.partition_numel(group, sub), key)
        self._call("frag_state_move", group, sub, key.encode(), self._address(tensor))

    def move_fragments(self, params: Sequence[int], key: str, addresses: Iterable[int]) -> None:
        """frag_fragments_move; address 0: no memory."""
        self._call("frag_fragments_move", _ints(params), len(params), key.encode(), _pointers(addresses))

    def move_lp(self, param: int, shard: bool, tensor: Any) -> None:
        """frag_lp_move; None: the parameter has no such values now."""
        self._call("frag_lp_move", param, _libfrag.FRAG_SHARD if shard else 0, self._address(tensor))

    def drop(self, group: int, sub: int, key: str) -> None:
        self._call("frag_state_drop", group, sub, key.encode())

    def hypers(self, names: Sequence[tuple[int, str]], get: Callable[[], list[float]],
               put: Callable[[int, float], None]) -> None:
        """frag_hyper_calls of doubles that get fills before each boundary; put is called in one with an edit's index and
        value.  frag_frozen_call: a boundary at which the handler of a signal ends a freeze raises Interrupt.

        names: (group, name) of each.
        """
        self._hypers = _Hypers(get, put)
        for index, (group, name) in enumerate(names):
            self._call("frag_hyper_calls", group, name.encode(), _libfrag.frag_hyper_get(), self._hypers.set,
                       self._hypers.address(index))
        self._call("frag_frozen_call", self._hypers.frozen, None)

    def _use_device(self, tensor: Any) -> None:
        """frag_devices, before the first memory of a GPU: what changes it is on the stream that is current now."""
        device = tensor.device
        if device.type == "cpu" or device in self._devices:
            return
        if device.type != "cuda":
            raise ValueError(f"memory of {device} cannot be read by fragfs")
        import torch

        with torch.cuda.device(device):
            stream = torch.cuda.current_stream(device).cuda_stream
            self._call("frag_devices", ctypes.byref(_libfrag.frag_devices(number=device.index, stream=stream)))
        self._devices.add(device)

    def _address(self, tensor: Any) -> int | None:
        """The memory of a tensor; None for one that has none."""
        if tensor is None:
            return None
        self._use_device(tensor)
        return tensor.data_ptr() or None

    def ready(self) -> None:
        self._call("frag_ready")

    def wait_ready(self, timeout: float) -> None:
        """frag_wait_ready: OSError ETIMEDOUT after so many seconds."""
        self._call("frag_wait_ready", int(timeout * 1000))

    # ---- the step ----

    def grads_gone(self) -> None:
        self._step_call(self._library.frag_grads_gone)

    def grads_skip(self) -> None:
        self._step_call(self._library.frag_grads_skip)

    def asked(self, fd: int) -> bool:
        """frag_asked: whether anybody looks at this rank; fd, unless it is -1, is told of the next who does."""
        return bool(self._call("frag_asked", fd))

    def grads_valid(self, loss_scale: float) -> None:
        self._call("frag_grads_valid", loss_scale)

    def step_begin(self) -> None:
        self._step_call(self._library.frag_step_begin, self._hypers)

    def step_end(self) -> None:
        """Readers see the numbers that the step began with."""
        self._step_call(self._library.frag_step_end, self._hypers, show=False)

    def safe_point(self) -> None:
        self._step_call(self._library.frag_safe_point, self._hypers)

    def _step_call(self, function: Any, hypers: _Hypers | None = None, show: bool = True) -> None:
        """As _call, and a boundary where there are hypers.  A step leaves the caches full of its own data, so that a Python
        function, an object or a call of libfrag costs more here than in a loop: there are as few as can be.
        """
        with self.lock:
            self._calls += 1  # get and put of hyper-parameters run Python of others, of which a finalizer may close
            try:
                if hypers and show:
                    hypers.show()
                if hypers and self._calls > 1:
                    raise RuntimeError("a step within a boundary, as of a signal's handler")
                code = function(self._frag)
                if hypers and hypers.failure:
                    failure, hypers.failure = hypers.failure, None
                    raise failure
                if code < 0:
                    raise self._error(code, function.__name__)
            finally:
                self._calls -= 1
                if self._closing and not self._calls:
                    self.close()


def _ints(numbers: Sequence[int]) -> Any:
    return (c_int * len(numbers)).from_buffer(array("i", numbers))


def _pointers(addresses: Iterable[int]) -> Any:
    values = array("Q", addresses)
    return (c_void_p * len(values)).from_buffer(values)
