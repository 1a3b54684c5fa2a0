#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Edits checkpoints of tests/data/checkpoints through a mount, lets DeepSpeed load them, and looks whether the
engine then holds exactly what was written, and of the rest what was there before.

Run by hand, see README.md.  With --record, what DeepSpeed has accepted is kept beside the archive as CASE.edits:
    edit PATH OFFSET BYTES      written to the mount's file PATH; BYTES as printf takes them
    file NAME SHA256            of the checkpoint, afterwards
"""

import argparse
import glob
import hashlib
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.metadata import version

import cases
import held
import processes

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "checkpoints")
# What DeepSpeed 0.19.8 can load again: not elastic ones, nor those without frozen parameters.
EDITED = """z0-fp32-w2 z0-fp16-w1 z0-bf16-w2 z1-fp32-w1 z1-bf16-w2 z1-fp16-w4 z1-bf16-w4-mp2 bf16opt-w3 z2-bf16-w4-rr
    z2-bf16-w3-rr-aligned z2-fp32-w2 z2-bf16-w2-legacy z2-bf16-w3-sgd z2-bf16-w3-cpu-adam z3-bf16-w2-legacy
    z3-bf16-w3-sub z3-fp16-w4 z3-fp32-w3 z3-bf16-w4-mp2 z1-bf16-w3-low-master z3-bf16-w2-low-master
    z3-fp16-w2-cpu-adam-half z2-bf16-w3-universal z3-bf16-w3-universal""".split()


# ---- what is written ----


def floats(dtype, *values):
    import torch

    return held.raw(torch.tensor(values).to(getattr(torch, dtype)))


def dtypes_of(manifest):
    """{path: name of its type}"""
    with open(manifest) as f:
        lines = [line.split() for line in f]
    return {words[5]: words[4] for words in lines if words[0] in ("param", "buffer")}


SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}


def edits(case, values, dtypes):
    """[(path, offset, bytes)] of a checkpoint of which values are {path: bytes}."""
    every = []

    def edit(path, offset, data):
        """Of each part of the model, what it has of it."""
        found = sorted(p for p in values if p.endswith(path))
        assert found, path
        for at in found:
            assert offset + len(data) <= len(values[at])
            every.append((at, offset, data))

    def edit_values(path, first, *numbers):
        """Elements in their own type."""
        dtype = next(dtypes[p] for p in sorted(dtypes) if p.endswith(path))
        edit(path, first * SIZES[dtype], floats(dtype, *numbers))

    def edit_cut(path, first, data):
        """From the second byte of an element on."""
        dtype = next(dtypes[p] for p in sorted(dtypes) if p.endswith(path))
        edit(path, first * SIZES[dtype] + 1, data)

    second = {p.rpartition("/")[2] for p in values if "/emb.weight/" in "/" + p}
    master = "master" if "master" in second else "fp32"
    second = sorted(second - {"fp32", "bf16", "fp16", "lp", "master"})
    edit_values(f"params/head.weight/{master}", 7, *(i / 3 for i in range(20)))  # by the other name
    edit_values(f"params/layers.0.up.weight/{master}", 0, *((-1) ** i * 2.0**i / 7 for i in range(-10, 25)))  # all of it
    edit_cut(f"params/layers.0.down.weight/{master}", 11, b"\x01\x02\x03\x3e\x7b\x80")  # cuts three elements, or two
    # To even, to even, the smallest, beyond float16, infinite, -0.
    edit_values(f"params/unused/{master}", 3, 1.00390625, 1.01171875, 2.0**-149, 70000.0, float("inf"), -0.0)
    edit_values(f"params/one/{master}", 0, 3.0e-8)
    if case["scalar"]:
        edit_values(f"params/temp/{master}", 0, -17.3)
    for i, key in enumerate(second):
        edit_values(f"params/emb.weight/{key}", 30, *(0.001 * (j + i) for j in range(21)))
        if case["scalar"]:
            edit_values(f"params/temp/{key}", 0, 0.25 + i)
        edit_cut(f"params/conv/{key}", 5, b"\x3c\x11\x3c\x22")
        edit_values(f"params/layers.1.down.weight/{key}", 0, *(0.5 + i + j / 64 for j in range(15)))
    if case.get("universal"):
        return every  # of the rest DeepSpeed loads nothing
    own = case["lp"]
    edit(f"params/frozen.weight/{own}", 8, b"\x81\x3f\x82\x3f\x83\x3f\x84\x40")
    # Not all versions convert buffers.
    edit("buffers/pos/" + (own if any(p.endswith("buffers/pos/" + own) for p in values) else "fp32"), 4, b"\x21\x3f\x22\x3f")
    edit("buffers/mask/bool", 1, b"\x01")
    edit("buffers/layers.1.calls/int64", 0, struct.pack("<q", 2**40 + 5))
    return every


def write(folder, every):
    for path, offset, data in every:
        f = os.open(os.path.join(folder, path), os.O_WRONLY)
        try:
            assert os.pwrite(f, data, offset) == len(data)
        finally:
            os.close(f)


# ---- what must be there then ----


def other_names(manifest):
    """{name: the other name of the same bytes}"""
    with open(manifest) as f:
        pairs = [line.split()[1:] for line in f if line.startswith("alias ")]
    return {a: b for x, y in pairs for a, b in ((x, y), (y, x))}


def places(path, others):
    """Paths of the same bytes."""
    folder, key = path.rsplit("/", 1)
    parent, name = folder.rsplit("/", 1)
    return [path] + ([f"{parent}/{others[name]}/{key}"] if name in others else [])


def expected(values, every, others, lp):
    """values, edited: by all names, and in the other types in which there is the same."""
    after = {p: bytearray(v) for p, v in values.items()}
    edited = set()
    for path, offset, data in every:
        for p in places(path, others):
            after[p][offset : offset + len(data)] = data
            edited.add(p)
    for path in edited:
        follow(after, *path.rsplit("/", 1), lp)
    return {p: bytes(v) for p, v in after.items()}


def follow(after, folder, key, lp):
    """fp32 is made of the model's own where there is no master; else it is the other way round."""
    import torch

    types = {"bf16": torch.bfloat16, "fp16": torch.float16, "lp": torch.float32}
    if key == "master":  # of the model's own type
        if f"{folder}/{lp}" in after:
            after[f"{folder}/{lp}"] = bytearray(after[f"{folder}/master"])
        types["master"] = types[lp]
    if key in types:
        after[f"{folder}/fp32"] = bytearray(held.raw(torch.frombuffer(after[f"{folder}/{key}"], dtype=types[key]).float()))
    for own, dtype in types.items() if key == "fp32" else ():
        if f"{folder}/{own}" in after:
            after[f"{folder}/{own}"] = bytearray(
                held.raw(torch.frombuffer(after[f"{folder}/fp32"], dtype=torch.float32).to(dtype))
            )


# ---- files ----


def values_of(folder):
    values, base = {}, os.path.join(folder, "values")
    for path in glob.glob(os.path.join(base, "**", "*"), recursive=True):
        if os.path.isfile(path) and os.path.basename(path) != "shape":
            with open(path, "rb") as f:
                values[os.path.relpath(path, base)] = f.read()
    return values


def files_of(folder):
    return sorted(glob.glob(os.path.join(folder, "global_step*", "**", "*.pt"), recursive=True))


def check_files(folder):
    """Python takes them for what they were: CRCs are right, all can be loaded."""
    import torch

    for path in files_of(folder):
        if zipfile.is_zipfile(path):
            bad = zipfile.ZipFile(path).testzip()
            assert bad is None, f"{path}: {bad}"
            torch.load(path, map_location="cpu", weights_only=False)


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def record(path, folder, every):
    lines = [f"# DeepSpeed {version('deepspeed')} holds these; by tests/oracle/check-edits.py"]
    lines += [f"edit {p} {at} " + "".join("\\%03o" % b for b in data) for p, at, data in every]
    lines += [f"file {os.path.relpath(p, folder)} {digest(p)}" for p in files_of(folder)]
    with open(path, "w") as f:
        f.write("\n".join(lines) + "\n")


# ---- ranks ----


def load(name, args):
    """All ranks: what DeepSpeed makes of the folder must be CASE/expected/PATH."""
    import torch.distributed as dist

    case = cases.case_of(name)
    grid = cases.Grid(case["mp"])
    folder = os.path.join(args.scratch, name)
    engine = cases.start(case, grid, load=True)
    path, _ = engine.load_checkpoint(folder)
    assert path and engine.global_steps == cases.STEPS
    wrong = []
    for path, kind, _, states, _ in held.shown(engine, case, grid):
        if case.get("universal") and (kind == "buffer" or "exp_avg" not in states):
            continue  # of such a checkpoint DeepSpeed loads what was trained alone
        for key, x in states.items():
            with open(os.path.join(folder, "expected", path, key), "rb") as f:
                if f.read() != held.raw(x):
                    wrong.append(f"{name}: rank {dist.get_rank()}: {path}/{key}")
    engine.destroy()
    print("".join(w + "\n" for w in wrong), end="", flush=True)
    dist.barrier()
    assert not wrong


def work(args):
    import torch.distributed as dist

    processes.start_deepspeed()
    for name in args.cases:
        load(name, args)
    dist.destroy_process_group()


def mounted(args, folder, every):
    mount = folder + ".mnt"
    os.mkdir(mount)
    subprocess.run([args.fragfs, folder, mount, "-o", "rw"], check=True)
    try:
        write(mount, every)
    finally:
        subprocess.run(["fusermount3", "-u", mount], check=True)
    os.rmdir(mount)


def edit(name, args):
    """Unpacks a case, edits it, and leaves beside it what must be there."""
    folder = os.path.join(args.scratch, name)
    with tarfile.open(os.path.join(DATA, "ds" + version("deepspeed"), name + ".tar.gz")) as tar:
        tar.extractall(args.scratch, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(args.scratch)
    values = values_of(folder)
    case, manifest = cases.case_of(name), os.path.join(folder, "manifest")
    every = [] if args.no_edits else edits(case, values, dtypes_of(manifest))
    after = expected(values, every, other_names(manifest), case["lp"])
    for path, data in after.items():
        path = os.path.join(folder, "expected", path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
    if every:
        mounted(args, folder, every)
    check_files(folder)
    return every


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fragfs", default="fragfs")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--no-edits", action="store_true", help="loads them as they are, without a mount")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--scratch", help=argparse.SUPPRESS)
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    if args.worker:
        return work(args)
    with tempfile.TemporaryDirectory() as args.scratch:
        for world, names in cases.by_world(args.cases or EDITED):
            every = {name: edit(name, args) for name in names}
            processes.run(world, __file__, "--worker", "--scratch", args.scratch, *names)
            for name in names:
                print(f"{name}: DeepSpeed holds all of {len(every[name])} edits")
                if args.record:
                    there = os.path.join(DATA, "ds" + version("deepspeed"), name + ".edits")
                    record(there, os.path.join(args.scratch, name), every[name])


if __name__ == "__main__":
    main()
