# SPDX-License-Identifier: Apache-2.0
"""libfrag by ctypes: every function, struct and constant of engine/frag.h, under its own name.

Nothing is loaded before the first call of load().  Calls release the GIL, so that one that waits
(frag_get, frag_set, frag_barrier, ...) holds up no other Python thread.  python/tests/test_binding.py
compares this file with frag.h: sizes, offsets, constants, and the arguments of each function.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import subprocess
from ctypes import (CFUNCTYPE, POINTER, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint,
                    c_uint16, c_uint32, c_uint64, c_void_p)
from pathlib import Path
from typing import Any

# ---- constants ----

FRAG_F32, FRAG_F64, FRAG_F16, FRAG_BF16, FRAG_F8_E4M3, FRAG_F8_E5M2 = range(1, 7)
FRAG_I8, FRAG_I16, FRAG_I32, FRAG_I64, FRAG_U8, FRAG_BOOL, FRAG_U16, FRAG_U32, FRAG_U64 = range(7, 16)
FRAG_C32, FRAG_C64, FRAG_C128, FRAG_F8_E4M3FNUZ, FRAG_F8_E5M2FNUZ, FRAG_F8_E8M0 = range(16, 22)

FRAG_LOG_ERROR, FRAG_LOG_WARN, FRAG_LOG_INFO, FRAG_LOG_DEBUG, FRAG_LOG_TRACE = range(5)

FRAG_NAME_MAX = 1023
FRAG_KEY_MAX = 63
FRAG_DIMS_MAX = 16
FRAG_PARAMS_MAX = 4 << 20
FRAG_GROUPS_MAX = 65536
FRAG_WORLD_MAX = 65536
FRAG_CUTS_MAX = 8
FRAG_FROZEN = 1 << 0
FRAG_ZERO, FRAG_FSDP2, FRAG_FSDP1 = range(3)
FRAG_ROUND_ROBIN = 1 << 0
FRAG_ALIGNED = 1 << 1
FRAG_SHARD = 1 << 0
FRAG_SWEEP_MAX = 16
FRAG_READ_ONLY = 1 << 0
FRAG_WRITE_ONLY = 1 << 1
FRAG_LEAF_NAME, FRAG_LEAF_SUFFIX, FRAG_LEAF_GLOB = range(3)
FRAG_ADD = 1 << 0
FRAG_CHANGED = 1 << 0
FRAG_FETCHES_MAX = 16

# ---- structs ----


class _Sized(ctypes.Structure):
    """A struct whose first field is its own size."""

    def __init__(self, **fields: object) -> None:
        super().__init__(ctypes.sizeof(type(self)), **fields)


class frag_config(_Sized):
    _fields_ = [("size", c_size_t), ("rank", c_char_p), ("world", c_uint32), ("job", c_char_p),
                ("master_addr", c_char_p), ("port", c_uint16), ("key_file", c_char_p),
                ("swap_dir", c_char_p), ("pinned_mem", c_uint64), ("swap_config", c_char_p),
                ("swap_max", c_uint64)]


class frag_cut(ctypes.Structure):
    _fields_ = [("dim", c_uint32), ("parts", c_uint32)]


class frag_tensor(_Sized):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("coordinate", c_char_p), ("dtype", c_int),
                ("ndim", c_uint32), ("shape", POINTER(c_uint64)), ("lp", c_void_p),
                ("lp_shard", c_void_p), ("flags", c_uint), ("cuts", POINTER(frag_cut)), ("ncuts", c_uint32)]


class frag_zero(_Sized):
    _fields_ = [("size", c_size_t), ("stage", c_int), ("sharding", c_int), ("ranks", POINTER(c_uint32)),
                ("nranks", c_uint32), ("replicas", c_uint32), ("sub_group_size", c_uint64),
                ("flags", c_uint), ("alignment", c_uint32)]


class frag_fragment(ctypes.Structure):
    _fields_ = [("group", c_uint32), ("sub", c_uint32), ("partition_offset", c_uint64),
                ("param_offset", c_uint64), ("numel", c_uint64)]


class frag_swp(_Sized):
    _fields_ = [("size", c_size_t), ("folder", c_char_p), ("numbers", POINTER(c_uint64)),
                ("smallest", c_uint64), ("threads", c_uint)]


frag_arena_moved = CFUNCTYPE(None, c_void_p, c_int, c_uint, c_void_p)


class frag_arena(_Sized):
    _fields_ = [("size", c_size_t), ("bytes", c_uint64), ("moved", frag_arena_moved), ("arg", c_void_p),
                ("memory", c_void_p)]


class frag_arena_figures(_Sized):
    _fields_ = [("size", c_size_t), ("bytes", c_uint64), ("used", c_uint64), ("used_max", c_uint64),
                ("free", c_uint64), ("largest", c_uint64), ("blocks", c_uint64), ("holes", c_uint64),
                ("moved", c_uint64)]


class frag_swept(ctypes.Structure):
    _fields_ = [("key", c_char_p), ("flags", c_uint)]


class frag_devices(_Sized):
    _fields_ = [("size", c_size_t), ("number", c_int), ("stream", c_void_p), ("timeout_ms", c_uint),
                ("keep", c_uint64), ("keep_host", c_uint64)]


frag_grad_update = CFUNCTYPE(None, c_void_p, c_int, POINTER(c_float), c_uint64)
frag_log_line = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
frag_hyper_get = CFUNCTYPE(c_double, c_void_p)
frag_hyper_set = CFUNCTYPE(None, c_void_p, c_double)
frag_frozen = CFUNCTYPE(c_int, c_void_p)

# ---- functions: name, result, arguments; a struct frag * and a struct frag_sweep * are c_void_p ----

_F, _KEY, _OUT, _DTYPE, _ADDRESS = c_void_p, c_char_p, c_void_p, c_int, POINTER(c_void_p)

FUNCTIONS = {
    "frag_dtype_size": (c_size_t, [_DTYPE]),
    "frag_dtype_name": (c_char_p, [_DTYPE]),
    "frag_version": (c_char_p, []),
    "frag_error": (c_char_p, []),
    "frag_log": (c_int, [frag_log_line, c_void_p]),
    "frag_open": (c_int, [_ADDRESS, POINTER(frag_config)]),
    "frag_close": (None, [_F]),
    "frag_rank": (c_int, [_F]),
    "frag_world": (c_int, [_F]),
    "frag_param": (c_int, [_F, POINTER(frag_tensor)]),
    "frag_group": (c_int, [_F, POINTER(c_int), c_size_t, POINTER(frag_zero)]),
    "frag_sub_groups": (c_uint32, [_F, c_int]),
    "frag_partition_numel": (c_uint64, [_F, c_int, c_uint32]),
    "frag_fragment": (c_int, [_F, c_int, POINTER(frag_fragment)]),
    "frag_state_alloc": (c_int, [_F, c_int, c_uint32, _KEY, _DTYPE, _ADDRESS]),
    "frag_state_keep": (c_int, [_F, c_int, c_uint32, _KEY, _DTYPE, c_void_p]),
    "frag_state_keep_whole": (c_int, [_F, c_int, _KEY, _DTYPE, c_void_p]),
    "frag_flat_numel": (c_uint64, [_F, c_int]),
    "frag_fragment_keep": (c_int, [_F, c_int, _KEY, _DTYPE, c_void_p]),
    "frag_fragments_keep": (c_int, [_F, POINTER(c_int), c_size_t, _KEY, _DTYPE, _ADDRESS]),
    "frag_state_move": (c_int, [_F, c_int, c_uint32, _KEY, c_void_p]),
    "frag_fragments_move": (c_int, [_F, POINTER(c_int), c_size_t, _KEY, _ADDRESS]),
    "frag_lp_move": (c_int, [_F, c_int, c_uint, c_void_p]),
    "frag_state_drop": (c_int, [_F, c_int, c_uint32, _KEY]),
    "frag_hyper": (c_int, [_F, c_int, c_char_p, POINTER(c_double)]),
    "frag_hyper_calls": (c_int, [_F, c_int, c_char_p, frag_hyper_get, frag_hyper_set, c_void_p]),
    "frag_publish": (c_int, [_F, c_char_p, c_void_p, c_uint64]),
    "frag_ready": (c_int, [_F]),
    "frag_wait_ready": (c_int, [_F, c_uint]),
    "frag_grads_gone": (c_int, [_F]),
    "frag_grads_skip": (c_int, [_F]),
    "frag_asked": (c_int, [_F, c_int]),
    "frag_grads_valid": (c_int, [_F, c_double]),
    "frag_step_begin": (c_int, [_F]),
    "frag_step_end": (c_int, [_F]),
    "frag_safe_point": (c_int, [_F]),
    "frag_frozen_call": (c_int, [_F, frag_frozen, c_void_p]),
    "frag_get_bytes": (c_int64, [_F, c_int, _KEY]),
    "frag_get": (c_int, [_F, c_int, _KEY, _OUT, c_uint64]),
    "frag_get_range": (c_int, [_F, c_int, _KEY, c_uint64, _OUT, c_uint64]),
    "frag_set": (c_int, [_F, c_int, _KEY, c_void_p, c_uint64]),
    "frag_update_grads": (c_int, [_F, POINTER(c_int), c_size_t, frag_grad_update, c_void_p]),
    "frag_local_get": (c_int, [_F, c_int, _KEY, _OUT, c_uint64]),
    "frag_local_set": (c_int, [_F, c_int, _KEY, c_void_p, c_uint64]),
    "frag_local_view": (c_int, [_F, c_int, _KEY, _ADDRESS, POINTER(c_int)]),
    "frag_state_keys": (c_int, [_F, c_int, c_void_p, c_int]),
    "frag_update_hp": (c_int, [_F, c_int]),
    "frag_update_lp": (c_int, [_F, c_int]),
    "frag_state_from_fragments": (c_int, [_F, c_int, c_uint32, _KEY, _DTYPE, _ADDRESS, c_size_t]),
    "frag_leaf": (c_int, [_F, c_int, c_char_p, c_int]),
    "frag_leaf_params": (c_int, [_F, c_int, POINTER(c_int), c_int]),
    "frag_leaf_get_bytes": (c_int64, [_F, c_int, c_char_p]),
    "frag_leaf_get": (c_int, [_F, c_int, c_char_p, c_void_p, c_uint64]),
    "frag_swp_import": (c_int64, [_F, POINTER(frag_swp)]),
    "frag_swp_export": (c_int64, [_F, POINTER(frag_swp)]),
    "frag_arena_open": (c_int, [_F, POINTER(frag_arena)]),
    "frag_arena_close": (c_int, [_F]),
    "frag_arena_alloc": (c_int, [_F, c_uint64, POINTER(c_uint64)]),
    "frag_arena_release": (c_int, [_F, c_uint64]),
    "frag_arena_release_param": (c_int, [_F, c_int, c_uint]),
    "frag_arena_memory": (c_int, [_F, c_uint64, _ADDRESS, POINTER(c_uint64)]),
    "frag_arena_pin": (c_int, [_F, c_uint64]),
    "frag_arena_unpin": (c_int, [_F, c_uint64]),
    "frag_arena_assign": (c_int, [_F, c_int, c_uint, c_uint64, c_uint64]),
    "frag_arena_unassign": (c_int, [_F, c_int, c_uint]),
    "frag_arena_find": (c_int, [_F, c_int, c_uint, POINTER(c_uint64), _ADDRESS]),
    "frag_arena_compact": (c_int64, [_F, c_uint64, c_uint64]),
    "frag_arena_figures": (c_int, [_F, POINTER(frag_arena_figures)]),
    "frag_state_swap": (c_int, [_F, c_int, c_uint32, _KEY, _DTYPE]),
    "frag_sweep_begin": (c_int, [_F, c_int, c_uint32, POINTER(frag_swept), c_size_t, _ADDRESS]),
    "frag_sweep_then": (c_int, [c_void_p, c_int, c_uint32]),
    "frag_sweep_next": (c_int, [c_void_p, POINTER(c_uint64), POINTER(c_uint64), _ADDRESS]),
    "frag_sweep_end": (None, [c_void_p]),
    "frag_state_put": (c_int, [_F, c_int, c_uint32, _KEY, c_uint64, c_void_p, c_uint64, c_uint]),
    "frag_state_clear": (c_int, [_F, c_int, c_uint32, _KEY]),
    "frag_params_swap": (c_int, [_F, POINTER(c_int), c_size_t, _ADDRESS]),
    "frag_params_in": (c_int, [_F, POINTER(c_int), c_size_t, _ADDRESS]),
    "frag_params_ahead": (c_int, [_F, POINTER(c_int), c_size_t]),
    "frag_params_out": (c_int, [_F, POINTER(c_int), c_size_t, c_uint]),
    "frag_param_put": (c_int, [_F, c_int, c_uint64, c_void_p, c_uint64]),
    "frag_swap_flush": (c_int, [_F, c_uint]),
    "frag_devices": (c_int, [_F, POINTER(frag_devices)]),
    "frag_peer_read": (c_int, [_F, c_int, c_char_p, c_uint64, _OUT, c_uint64]),
    "frag_barrier": (c_int, [_F, c_uint]),
    "frag_gather": (c_int, [_F, c_int, _KEY, _OUT, c_uint64, c_uint]),
    "frag_scatter": (c_int, [_F, c_int, _KEY, c_int, c_void_p, c_uint64, c_uint]),
    "frag_fetch": (c_int, [_F, c_int, _KEY, _OUT, c_uint64]),
    "frag_fetched": (c_int, [_F, c_int]),
    "frag_address": (c_char_p, [_F]),
}

# ---- the library ----


def _from_pkg_config() -> str | None:
    command = ["pkg-config", "--variable=libdir", "frag"]
    try:
        libdir = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    path = Path(libdir, "libfrag.so")
    return str(path) if path.exists() else None


def find() -> str:
    """The path of libfrag.so: FRAG_LIBRARY, the wheel's own, a build beside the package, the system's.

    OSError: there is none.
    """
    package = Path(__file__).resolve().parent
    given = os.environ.get("FRAG_LIBRARY")
    for path in ([Path(given)] if given else
                 [package / "lib" / "libfrag.so", package.parents[1] / "build/.libs/libfrag.so"]):
        if path.exists():
            return str(path)
    found = None if given else _from_pkg_config() or ctypes.util.find_library("frag")
    if not found:
        raise OSError(f"libfrag.so was not found{f' at {given}' if given else ''}: "
                      "install fragfs, or name the library in FRAG_LIBRARY")
    return found




class _Library(ctypes.CDLL):
    """Makes a function, with its prototype, when it is first called: a job calls few of them."""

    def __getattr__(self, name: str) -> Any:
        if name not in FUNCTIONS:
            raise AttributeError(name)
        function = self[name]
        function.restype, function.argtypes = FUNCTIONS[name]
        setattr(self, name, function)  # not before: another thread would call it without a prototype
        return function


_library: ctypes.CDLL | None = None


def load(path: str | None = None) -> ctypes.CDLL:
    """The library, with the prototypes of FUNCTIONS; it is loaded once, from path, or from where find() finds it.

    OSError: it cannot be loaded, or is too old.
    """
    global _library
    if _library is None:
        path = path or find()
        library = _Library(path, mode=ctypes.RTLD_LOCAL)
        try:
            for name in FUNCTIONS:
                library[name]
        except AttributeError:
            raise OSError(f"{path} has no {name}: it is of another version of fragfs") from None
        _library = library
    return _library
