#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes small files of torch.save, and what is in them, to tests/data/checkpoint.

Run by hand, see README.md.  For each NAME.pt there is a NAME.expect of lines of words:
    # ...                                            a comment
    tensor PATH DTYPE SHAPE STRIDE CONTIGUOUS HEX    SHAPE and STRIDE a,b or -; HEX of the elements in order
    int PATH VALUE | real PATH VALUE | text PATH VALUE | object PATH NAME
PATH is of keys and indices with '/' between; '.' is the root.
NAME.tree is the same file mounted, in the words of tests/unit/checkpoint/formats/mounted.h.
"""

import argparse
import collections
import io
import os

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "data", "checkpoint")


def plain_dtypes():
    names = """float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 bool uint16 uint32 uint64
        complex32 complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz
        float8_e8m0fnu"""
    return [getattr(torch, n) for n in names.split() if hasattr(torch, n)]


def of_dtype(dtype, n, seed):
    size = torch.empty(0, dtype=dtype).element_size()
    raw = bytes((seed * 31 + i * 7) % (2 if dtype == torch.bool else 251) for i in range(n * size))
    return torch.frombuffer(bytearray(raw), dtype=dtype).clone()


def mixed():
    base = of_dtype(torch.float32, 24, 3)
    attributed = of_dtype(torch.float32, 3, 5)
    attributed.note = "kept by torch"
    parameter = torch.nn.Parameter(of_dtype(torch.float32, 4, 8))
    parameter.ds_id = 7
    complex_one = of_dtype(torch.complex64, 2, 1)
    return collections.OrderedDict(
        dtypes={str(d).split(".")[1]: of_dtype(d, 3, i) for i, d in enumerate(plain_dtypes())},
        views=[base.view(4, 6), base[5:11], base.view(4, 6).t(), base.view(2, 3, 4)[:, 1:2, :],
               base[::3], base[2:3].expand(2, 4), base[7]],
        few=(torch.zeros(()), torch.zeros(0, 3), torch.zeros(1, 0), torch.ones(1, 1, 2)),
        parameters={"plain": torch.nn.Parameter(of_dtype(torch.bfloat16, 5, 2)),
                    "frozen": torch.nn.Parameter(of_dtype(torch.float16, 5, 2), requires_grad=False),
                    "with_state": parameter, "attributed": attributed},
        conj=complex_one.conj(),
        numbers={"int": -7, "big": 2**80, "real": 0.1, "text": "plain", "size": torch.Size([4, 5]),
                 0: "zero"},
        others=argparse.Namespace(a=1, function=len, dtype=torch.float16),
    )


def module():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))


def names():
    """Keys and shapes of graph that a state_dict has not."""
    x, tied = of_dtype(torch.float32, 3, 1), of_dtype(torch.bfloat16, 4, 2)
    shared = {"w": of_dtype(torch.int64, 2, 3)}
    ring = [of_dtype(torch.float32, 2, 9)]
    ring.append(ring)
    return {
        "a.b": x, "a": {"b": of_dtype(torch.float32, 5, 2), "c": x},
        0: {-1: x[:2]}, (1, "t"): x[1:], True: x[2:3], None: x[2], 1.5: x[:1], torch.float16: x[:0],
        "tied": tied, "tied_too": tied.view(4), "square": tied.view(2, 2),
        "once": shared, "twice": shared, "ring": ring, "x" * 1100: x, "x" * 1023: x, "nul\0": x,
        "empty": {}, "step": 17, "far": of_dtype(torch.int8, 1, 5).expand(5000),
    }


class Odd(torch.Tensor):
    pass


def unshown():
    """Tensors whose values are not bytes in the file, and what is beside them."""
    x = of_dtype(torch.float32, 6, 1).view(2, 3)
    c = of_dtype(torch.complex64, 2, 1)
    odd = torch.Tensor._make_subclass(Odd, x)
    odd.scale = of_dtype(torch.float32, 1, 2)
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.qint8)
    noted = torch.ones(2).to_sparse()
    noted.note = "kept by torch"
    return {
        "plain": x,
        "conj": c.conj(),
        "neg": torch._neg_view(x[0]),
        "part": of_dtype(torch.complex64, 2, 4).conj().imag,
        "parameter": torch.nn.Parameter(c.conj()),
        "sparse": [torch.eye(2).to_sparse(), torch.eye(2).to_sparse_csr()],
        "noted": noted,
        "quantized": {"tensor": quantized, "channels": torch.quantize_per_channel(
            torch.ones(2, 2), torch.tensor([0.5, 0.25]), torch.tensor([0, 1]), 0, torch.quint8)},
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "meta": torch.empty(3, device="meta"),
        "odd": odd,
        "small": of_dtype(torch.uint8, 2, 1).view(torch.float4_e2m1fn_x2),
    }


# What is expected of those, in the file's order.
LAZY = "its values are the conjugates, or negatives, of its bytes"
UNSHOWN = f"""conj: {LAZY}
neg: {LAZY}
part: {LAZY}
parameter: {LAZY}
sparse.0: it is sparse
sparse.1: it is sparse
noted: it is sparse
quantized.tensor: it is quantized
quantized.channels: it is quantized
nested: it is nested, of tensors of several shapes
meta: it has no values, on the device meta
odd: it is of class __main__.Odd
small: its dtype is torch.float4_e2m1fn_x2""".splitlines()


def float8():
    """Every value but NaN, whose bits torch does not keep."""
    every = {}
    for dtype in plain_dtypes():
        if str(dtype).startswith("torch.float8"):
            x = torch.arange(256).to(torch.uint8).view(dtype)
            every[str(dtype).split(".")[1]] = x.view(torch.uint8)[~x.float().isnan()].view(dtype)
    return every


def many():
    return {"layers.%d.weight" % i: torch.full((2,), float(i)) for i in range(40)}


# ---- what is expected ----


def numbers(values):
    return ",".join(str(v) for v in values) or "-"


def raw_bytes(t):
    flat = t.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""


def describe(path, x, lines):
    if isinstance(x, torch.Tensor) and (x.is_conj() or x.is_neg()):
        lines.append(f"object {path} _rebuild_tensor_v2")
    elif isinstance(x, torch.Tensor):
        lines.append(f"tensor {path} {str(x.dtype).split('.')[1]} {numbers(x.shape)} {numbers(x.stride())} "
                     f"{int(x.is_contiguous())} {raw_bytes(x).hex() or '-'}")
    elif isinstance(x, dict):
        for k, v in x.items():
            describe(f"{path}/{k}" if path != "." else str(k), v, lines)
    elif isinstance(x, (list, tuple)):
        for i, v in enumerate(x):
            describe(f"{path}/{i}" if path != "." else str(i), v, lines)
    elif isinstance(x, bool) or x is None:
        pass
    elif isinstance(x, int) and -(2**63) <= x < 2**63:
        lines.append(f"int {path} {x}")
    elif isinstance(x, float):
        lines.append(f"real {path} {x!r}")
    elif isinstance(x, str):
        lines.append(f"text {path} {x}")
    elif not isinstance(x, int):
        lines.append(f"object {path} {type(x).__name__}")


# ---- what is expected of a mount ----

KEYS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64",
        "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", "float8_e4m3fnuz": "fp8_e4m3fnuz",
        "float8_e5m2fnuz": "fp8_e5m2fnuz", "float8_e8m0fnu": "fp8_e8m0"}
FLOATS = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
          torch.float8_e5m2fnuz, torch.float8_e8m0fnu)
# Of parameters; integers that buffers have are not.
WIDER = FLOATS + (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.bool)
RUNS_MAX = 4096
NUL = b"\xc0\x80".decode(errors="surrogateescape")


def key_text(k):
    if isinstance(k, tuple):
        return ".".join(map(key_text, k))
    if isinstance(k, str):
        return k.replace("\0", NUL)
    return str(k).split(".")[-1] if isinstance(k, torch.dtype) else str(k)


def members(x):
    """(component of the name or None, whether a module's buffers, value)"""
    if isinstance(x, torch.nn.Module):
        for layer in ("_parameters", "_modules", "_buffers"):
            yield from ((k, layer == "_buffers", v) for k, v in vars(x)[layer].items())
    elif isinstance(x, dict):
        yield from ((key_text(k), False, v) for k, v in x.items())
    elif isinstance(x, (list, tuple)):
        yield from ((str(i), False, v) for i, v in enumerate(x))


def is_shown(x):
    return (type(x) in (torch.Tensor, torch.nn.Parameter) and x.layout == torch.strided and x.device.type == "cpu"
            and not (x.is_conj() or x.is_neg() or x.is_quantized or x.is_nested or "float4" in str(x.dtype)))


def named(x, path, buffer, above, out):
    if isinstance(x, torch.Tensor) and not is_shown(x):
        if type(x) is Odd:
            out.append((".".join(path + ["scale"]), buffer, x.scale))
    elif isinstance(x, torch.Tensor):
        out.append((".".join(path), buffer, x))
    elif id(x) not in above:
        for k, b, v in members(x):
            if len(".".join(path + [k])) <= 1023:
                named(v, path + [k], buffer or b, above | {id(x)}, out)


def tree(name, x):
    found, lines, seen = [], [f"# torch {torch.__version__}", "source format torch"], set()
    if name.startswith("unshown"):
        lines += ["source skipped " + s for s in UNSHOWN]
    if name.startswith("mixed"):
        lines.append("source skipped conj: " + LAZY)
    named(x, [], False, frozenset(), found)
    for n, buffer, t in found:
        kind = str(t.dtype).split(".")[1]
        n = n or name
        scattered = not t.is_contiguous() and t.numel() > RUNS_MAX
        if n in seen or scattered:
            lines.append(f"skipped {n}: " + ("its elements are scattered over the file" if scattered else
                                             "another tensor has that name"))
            continue
        seen.add(n)
        wider = t.dtype in (FLOATS if buffer else WIDER)
        lines.append(f"{'buffer' if buffer else 'param'} {n} {numbers(t.shape)} {1 + wider}")
        lines.append(f"state {n} {KEYS.get(kind, kind)} {raw_bytes(t).hex() or '-'}")
        if wider and not t.float().isnan().any():  # of those torch loses the bits
            lines.append(f"state {n} fp32 {raw_bytes(t.float()).hex() or '-'}")
    return lines


def write(name, x, as_object=False, crc=True, **how):
    path = os.path.join(OUT, name + ".pt")
    torch.serialization.set_crc32_options(crc)
    if as_object:
        buffer = io.BytesIO()
        torch.save(x, buffer, **how)
        with open(path, "wb") as f:
            f.write(buffer.getvalue())
    else:
        torch.save(x, path, **how)
    torch.serialization.set_crc32_options(True)
    lines = [f"# torch {torch.__version__}"]
    if name not in ("names", "unshown", "unshown-legacy"):  # which is in itself; which is no tensors
        describe(".", x, lines)
        with open(path[:-3] + ".expect", "w", encoding="ascii") as f:
            f.write("\n".join(lines) + "\n")
    with open(path[:-3] + ".tree", "w", encoding="utf-8", errors="surrogateescape") as f:
        f.write("\n".join(tree(name, x)) + "\n")


def main():
    os.makedirs(OUT, exist_ok=True)
    write("mixed", mixed())
    write("mixed-legacy", mixed(), _use_new_zipfile_serialization=False)
    write("mixed-protocol5", mixed(), as_object=True, pickle_protocol=5)
    write("many", many(), crc=False)
    write("module", module())
    write("names", names())
    write("unshown", unshown())
    write("unshown-legacy", unshown(), _use_new_zipfile_serialization=False)
    write("float8", float8())
    write("tensor", torch.arange(6.0).view(2, 3))
    write("nothing", {"step": 3, "names": ["a", "b"]})
    write("state-dict", module().state_dict())


if __name__ == "__main__":
    main()
