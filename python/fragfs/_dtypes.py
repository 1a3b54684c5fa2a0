# SPDX-License-Identifier: Apache-2.0
"""The dtypes of states, by the names that files `dtype` and frag_dtype_name() give them.

Neither numpy, ml_dtypes nor torch is imported before somebody asks for a dtype of theirs.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Dtype(NamedTuple):
    number: int  # enum frag_dtype
    itemsize: int  # bytes
    numpy: str | None  # numpy's name; None: numpy has no such dtype of its own
    ml: str | None  # ml_dtypes' name
    torch: str | None  # torch's name


DTYPES = {
    "float32": Dtype(1, 4, "float32", None, "float32"),
    "float64": Dtype(2, 8, "float64", None, "float64"),
    "float16": Dtype(3, 2, "float16", None, "float16"),
    "bfloat16": Dtype(4, 2, None, "bfloat16", "bfloat16"),
    "float8_e4m3fn": Dtype(5, 1, None, "float8_e4m3fn", "float8_e4m3fn"),
    "float8_e5m2": Dtype(6, 1, None, "float8_e5m2", "float8_e5m2"),
    "int8": Dtype(7, 1, "int8", None, "int8"),
    "int16": Dtype(8, 2, "int16", None, "int16"),
    "int32": Dtype(9, 4, "int32", None, "int32"),
    "int64": Dtype(10, 8, "int64", None, "int64"),
    "uint8": Dtype(11, 1, "uint8", None, "uint8"),
    "bool": Dtype(12, 1, "bool", None, "bool"),
    "uint16": Dtype(13, 2, "uint16", None, "uint16"),
    "uint32": Dtype(14, 4, "uint32", None, "uint32"),
    "uint64": Dtype(15, 8, "uint64", None, "uint64"),
    "complex32": Dtype(16, 4, None, None, "complex32"),
    "complex64": Dtype(17, 8, "complex64", None, "complex64"),
    "complex128": Dtype(18, 16, "complex128", None, "complex128"),
    "float8_e4m3fnuz": Dtype(19, 1, None, "float8_e4m3fnuz", "float8_e4m3fnuz"),
    "float8_e5m2fnuz": Dtype(20, 1, None, "float8_e5m2fnuz", "float8_e5m2fnuz"),
    "float8_e8m0fnu": Dtype(21, 1, None, "float8_e8m0fnu", "float8_e8m0fnu"),
}


def numpy_dtype(name: str) -> Any:
    """The numpy dtype; bfloat16 and the float8 are those of ml_dtypes, which must be installed."""
    import numpy

    dtype = DTYPES[name]
    if dtype.numpy:
        return numpy.dtype(dtype.numpy)
    if not dtype.ml:
        raise TypeError(f"numpy has no {name}: read it with .torch()")
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"numpy has no {name}: install ml_dtypes, or read it with .torch()") from None
    return numpy.dtype(getattr(ml_dtypes, dtype.ml))


def torch_dtype(name: str) -> Any:
    """The torch dtype; TypeError: this torch has no such."""
    import torch

    found = getattr(torch, DTYPES[name].torch or "", None)
    if found is None:
        raise TypeError(f"this torch has no dtype {name}")
    return found


def number_of(torch_dtype_: Any) -> int:
    """enum frag_dtype of a torch dtype.  TypeError: libfrag has no such."""
    name = str(torch_dtype_).removeprefix("torch.")
    if name not in DTYPES:
        raise TypeError(f"libfrag has no dtype {name}")
    return DTYPES[name].number
