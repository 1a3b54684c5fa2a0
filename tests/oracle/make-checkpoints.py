#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small model with DeepSpeed and writes its checkpoints, and what the engine held when it saved
them, to tests/data/checkpoints/dsVERSION/CASE.tar.gz.

Run by hand, see README.md.  An archive has
    CASE/latest, CASE/global_step3/...   as DeepSpeed wrote them
    CASE/values/PATH                     what the mount's file PATH must say, byte for byte
    CASE/manifest                        lines of words, '#' begins a comment:
        step N | stage N | ranks N
        param|buffer NAME STATE SHAPE DTYPE PATH    SHAPE a,b or -
        alias NAME OF                               another name of the same bytes
Names are escaped as the mount does it.  There is a line for each state of each parameter and buffer: what has
no line is not to be shown.
"""

import argparse
import glob
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version

import cases
import held
import processes

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "data", "checkpoints")


# ---- files ----


def put(folder, path, data):
    path = os.path.join(folder, "values", path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def write_values(folder, shown):
    """Lines of the manifest."""
    lines = []
    for path, kind, name, states, of in shown:
        for key, x in sorted(states.items()):
            put(folder, f"{path}/{key}", held.raw(x))
            shape = ",".join(map(str, x.shape)) or "-"
            lines.append(f"{kind} {name} {key} {shape} {str(x.dtype).split('.')[1]} {path}/{key}")
        put(folder, f"{path}/shape", (" ".join(map(str, x.shape)) + "\n").encode())
        if of:
            lines.append(f"alias {name} {held.escaped(of)}")
    return lines


# What people put there: a checkpoint is read without any of these.
def client_state():
    import collections
    import datetime
    import enum
    import fractions
    import pathlib

    import numpy
    import torch

    return {
        "args": argparse.Namespace(lr=0.1, path=pathlib.PurePosixPath("/a/b"), act=torch.nn.functional.relu),
        "random": {"numpy": numpy.random.RandomState(3).get_state(), "torch": torch.arange(5, dtype=torch.uint8)},
        "of numpy": [numpy.float64(0.5), numpy.arange(6, dtype=numpy.int16).reshape(2, 3), numpy.dtype("f4")],
        "mode": enum.Enum,
        "when": datetime.datetime(2026, 11, 21, 9, 30),
        "half": fractions.Fraction(1, 2),
        "counts": collections.Counter("abca"),
        "queue": collections.deque([1, 2], maxlen=4),
        "default": collections.defaultdict(list, a=[1]),
        "set": {1, 2},
        "big": [2**70, -(2**63), 2**31, complex(1, 2), b"\x00\xff", "\u00e4\u20ac"],
        "step": "not the step",
    }


def save(folder, engine, case):
    import inspect

    how = {"client_state": client_state()} if case.get("client") else {}
    if case.get("no_frozen"):
        assert "exclude_frozen_parameters" in inspect.signature(engine.save_checkpoint).parameters
        how["exclude_frozen_parameters"] = True
    engine.save_checkpoint(folder, **how)


def pack(folder, archive):
    def plain(info):
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() else 0o644
        return info

    with open(archive, "wb") as raw_file, gzip.GzipFile("", "wb", 9, raw_file, 0) as f:
        with tarfile.open(fileobj=f, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            tar.add(folder, os.path.basename(folder), filter=plain)


def make_universal(folder):
    """The same checkpoint as DeepSpeed's own converter makes it universal, in its place."""
    with open(os.path.join(folder, "latest")) as f:
        tag = f.read()
    there = os.path.join(folder, tag + "_universal")
    tool = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state"]
    tool += ["--num_extract_workers=1", "--num_merge_workers=1"]
    subprocess.run([*tool, f"--input_folder={os.path.join(folder, tag)}", f"--output_folder={there}"],
                   check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(os.path.join(folder, tag))
    os.unlink(os.path.join(folder, "latest"))


# ---- processes ----


def make(name, args):
    import torch
    import torch.distributed as dist

    import deepspeed

    case = cases.case_of(name)
    grid = cases.Grid(case["mp"])
    folder = os.path.join(args.scratch, name)
    engine = cases.start(case, grid)
    cases.train(engine, grid)
    lines = [None] * dist.get_world_size()
    save(folder, engine, case)
    shown = held.shown(engine, case, grid)
    dist.all_gather_object(lines, write_values(folder, shown) if not grid.dp_rank else [])
    if dist.get_rank() == 0:
        versions = f"DeepSpeed {deepspeed.__version__}, torch {torch.__version__.split('+')[0]}, Python {sys.version.split()[0]}"
        facts = [f"# {name}: {versions}; made by tests/oracle/make-checkpoints.py"]
        facts += [f"step {engine.global_steps}", f"stage {case['stage']}"]
        if not case.get("universal"):
            # Without ZeRO those who share a model have the same, and one writes it.
            facts += [f"ranks {dist.get_world_size() if case['stage'] else case['mp']}"]
        with open(os.path.join(folder, "manifest"), "w") as f:
            f.write("\n".join(facts + sum(lines, [])) + "\n")
    engine.destroy()
    dist.barrier()


def work(args):
    import torch.distributed as dist

    processes.start_deepspeed()
    for name in args.cases:
        make(name, args)
    dist.destroy_process_group()


def finish(name, args):
    folder = os.path.join(args.scratch, name)
    if cases.case_of(name).get("universal"):
        make_universal(folder)
    for script in glob.glob(os.path.join(folder, "*.py")):
        os.unlink(script)
    there = os.path.join(args.out, "ds" + version("deepspeed"))
    os.makedirs(there, exist_ok=True)
    pack(folder, os.path.join(there, name + ".tar.gz"))
    print(name, os.path.getsize(os.path.join(there, name + ".tar.gz")), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=OUT)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--scratch", help=argparse.SUPPRESS)
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    if args.worker:
        return work(args)
    with tempfile.TemporaryDirectory() as args.scratch:
        for world, names in cases.by_world(args.cases or cases.of_version(version("deepspeed"))):
            processes.run(world, __file__, "--worker", "--scratch", args.scratch, *names)
            for name in names:
                finish(name, args)


if __name__ == "__main__":
    main()
