# SPDX-License-Identifier: Apache-2.0
"""A rank of a job in libfrag's words: struct frag as an object, -errno as OSError."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from array import array
from collections.abc import Callable, Iterable, Sequence
from ctypes import c_int, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple

from . import _libfrag
from ._dtypes import number_of

_CONFIG_TEXTS = ("rank", "job", "master_addr", "key_file", "swap_dir", "swap_config")


class Fragment(NamedTuple):
    """frag_fragment: which part of a parameter this rank has, and where in its partition."""

    group: int
    sub: int
    partition_offset: int
    param_offset: int
    numel: int


class Job:
    """struct frag.  libfrag takes one call at a time: a lock holds back finalizers of other threads."""

    def __init__(self, **config: Any) -> None:
        """config: the fields of struct frag_config; what is not given is taken from the environment."""
        self._library = _libfrag.load()
        self._lock = threading.RLock()
        self._frag = c_void_p()
        fields = {name: str(value).encode() if name in _CONFIG_TEXTS else value
                  for name, value in config.items() if value is not None}
        self._config = _libfrag.frag_config(**fields)
        self._numels: dict[int, int] = {}  # of fragments
        self._callbacks: list[Any] = []  # which libfrag calls
        self._pid = os.getpid()
        self._library.frag_error()
        code = self._library.frag_open(ctypes.byref(self._frag), ctypes.byref(self._config))
        if code:
            raise self._error(code, "frag_open")

    def close(self) -> None:
        with self._lock:
            frag, self._frag = self._frag, c_void_p()
            self._library.frag_close(frag)
            self._callbacks.clear()

    def _call(self, function: str, *arguments: Any) -> int:
        with self._lock:
            self._library.frag_error()  # what came before is not the reason
            code = getattr(self._library, function)(self._frag, *arguments)
            if code >= 0:
                return code
            what = next((a.decode(errors="replace") for a in arguments if isinstance(a, bytes)), "")
            raise self._error(code, f"{function}{f' of {what}' if what else ''}")

    def _error(self, code: int, what: str) -> OSError:
        reason = self._library.frag_error().decode(errors="replace")
        return OSError(-code, f"{what}: {reason or os.strerror(-code)}")

    @property
    def is_open(self) -> bool:
        """Not in a forked child, nor after close()."""
        return bool(self._frag) and os.getpid() == self._pid

    @property
    def rank(self) -> int:
        return self._call("frag_rank")

    @property
    def world(self) -> int:
        return self._call("frag_world")

    @property
    def address(self) -> str | None:
        """HOST:PORT, the source to mount; None until it is known."""
        with self._lock:
            text = self._library.frag_address(self._frag)
        return text.decode() if text else None

    # ---- what this rank has ----

    def param(self, name: str, shape: Sequence[int], dtype: Any, *, coordinate: str | None = None,
              lp: Any = None, shard: Any = None, frozen: bool = False,
              cuts: Sequence[tuple[int, int]] = ()) -> int:
        """frag_param: lp, shard are tensors of the whole low-precision parameter, and of this rank's piece.

        cuts: (dimension, parts) of each struct frag_cut; none: rows.
        """
        extents = (c_uint64 * max(1, len(shape)))(*shape)
        cut = (_libfrag.frag_cut * max(1, len(cuts)))(*cuts)
        tensor = _libfrag.frag_tensor(
            name=name.encode(), coordinate=coordinate.encode() if coordinate else None,
            dtype=number_of(dtype), ndim=len(shape), shape=extents,
            lp=_address(lp), lp_shard=_address(shard), flags=_libfrag.FRAG_FROZEN if frozen else 0,
            cuts=cut, ncuts=len(cuts))
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

    def keep(self, group: int, sub: int, key: str, tensor: Any) -> None:
        """frag_state_keep: the tensor is the partition, flat."""
        self._need(tensor, self.partition_numel(group, sub), key)
        self._call("frag_state_keep", group, sub, key.encode(), number_of(tensor.dtype), _address(tensor))

    def keep_whole(self, group: int, key: str, tensor: Any) -> None:
        """frag_state_keep_whole: the tensor is the whole group, flat."""
        self._need(tensor, self.flat_numel(group), key)
        self._call("frag_state_keep_whole", group, key.encode(), number_of(tensor.dtype), _address(tensor))

    def keep_fragment(self, param: int, key: str, tensor: Any) -> None:
        """frag_fragment_keep: the tensor is this rank's fragment of one parameter."""
        if param not in self._numels:
            fragment = self.fragment(param)
            self._numels[param] = fragment.numel if fragment else 0
        self._need(tensor, self._numels[param], key)
        self._call("frag_fragment_keep", param, key.encode(), number_of(tensor.dtype), _address(tensor))

    @staticmethod
    def _need(tensor: Any, numel: int, key: str) -> None:
        if tensor.numel() != numel or not tensor.is_contiguous():
            raise ValueError(f"{key} has {tensor.numel()} elements where the layout has {numel}, "
                             "or is not contiguous")

    def declare(self, group: int, sub: int, key: str, dtype: Any) -> None:
        """frag_state_keep without memory."""
        self._call("frag_state_keep", group, sub, key.encode(), number_of(dtype), None)

    def declare_fragment(self, param: int, key: str, dtype: Any) -> None:
        """frag_fragment_keep without memory."""
        self._call("frag_fragment_keep", param, key.encode(), number_of(dtype), None)

    def move(self, group: int, sub: int, key: str, tensor: Any) -> None:
        """frag_state_move; None: the state has no memory now."""
        if tensor is not None:
            self._need(tensor, self.partition_numel(group, sub), key)
        self._call("frag_state_move", group, sub, key.encode(), _address(tensor))

    def move_fragments(self, params: Any, key: str, addresses: Iterable[int]) -> None:
        """frag_fragments_move: params is an array of c_int; address 0: no memory."""
        memory = (c_void_p * len(params)).from_buffer(array("Q", addresses))
        self._call("frag_fragments_move", params, len(params), key.encode(), memory)

    def move_lp(self, param: int, shard: bool, tensor: Any) -> None:
        """frag_lp_move; None: the parameter has no such values now."""
        self._call("frag_lp_move", param, _libfrag.FRAG_SHARD if shard else 0, _address(tensor))

    def drop(self, group: int, sub: int, key: str) -> None:
        self._call("frag_state_drop", group, sub, key.encode())

    def hyper(self, group: int, name: str, get: Callable[[], float], put: Callable[[float], None]) -> None:
        """frag_hyper_calls: get and put are called at boundaries; while get raises, readers see what it gave last."""
        last = get()

        def get_or_last(_: Any) -> float:
            nonlocal last
            try:
                last = get()
            except Exception:
                pass
            return last

        def put_value(_: Any, value: float) -> None:
            nonlocal last
            last = value
            put(value)

        calls = _libfrag.frag_hyper_get(get_or_last), _libfrag.frag_hyper_set(put_value)
        self._call("frag_hyper_calls", group, name.encode(), *calls, None)
        self._callbacks.append(calls)

    def ready(self) -> None:
        self._call("frag_ready")

    def wait_ready(self, timeout: float) -> None:
        """frag_wait_ready: OSError ETIMEDOUT after so many seconds."""
        self._call("frag_wait_ready", int(timeout * 1000))

    # ---- the step ----

    def grads_gone(self) -> None:
        self._call("frag_grads_gone")

    def grads_valid(self, loss_scale: float) -> None:
        self._call("frag_grads_valid", loss_scale)

    def step_begin(self) -> None:
        self._call("frag_step_begin")

    def step_end(self) -> None:
        self._call("frag_step_end")

    def safe_point(self) -> None:
        self._call("frag_safe_point")


def _address(tensor: Any) -> int | None:
    """The memory of a tensor; None for one that has none."""
    return tensor.data_ptr() or None if tensor is not None else None


def watch_storage(tensor: Any, function: Any, *arguments: Any) -> weakref.finalize:
    """Calls function just before the tensor's memory is freed, whoever holds it until then."""
    watch = weakref.finalize(tensor.untyped_storage(), function, *arguments)
    watch.atexit = False
    return watch
