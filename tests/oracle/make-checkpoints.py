#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small model with DeepSpeed and writes its checkpoints, and what the engine held when it saved
them, to tests/data/checkpoints/dsVERSION/CASE.tar.gz.

Run by hand, see README.md.  An archive has
    CASE/latest, CASE/global_step3/...   as DeepSpeed wrote them
    CASE/values/PATH                     what the mount's file PATH must say, byte for byte
    CASE/manifest                        lines of words, '#' begins a comment:
        step N | ranks N | stage N
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

import processes

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "data", "checkpoints")
STEPS = 3

# By name: what differs from the defaults in DEFAULTS.  Of one mp and world all run in the same processes.
CASES = {
    "z0-fp32-w2": dict(stage=0, lp="fp32"),
    "z0-fp16-w1": dict(stage=0, lp="fp16", world=1),
    "z0-bf16-w2": dict(stage=0),
    "z1-fp32-w1": dict(stage=1, lp="fp32", world=1),
    "z1-bf16-w2": dict(stage=1),
    "z1-fp16-w4": dict(stage=1, lp="fp16", world=4),
    "z1-bf16-w3-elastic": dict(stage=1, world=3, elastic=True),
    "z1-fp16-w3-elastic": dict(stage=1, lp="fp16", world=3, elastic=True),
    "z1-bf16-w4-mp2": dict(stage=1, world=4, mp=2),
    "z1-bf16-w2-adagrad": dict(stage=1, optimizer="adagrad"),
    "bf16opt-w1": dict(stage=1, accumulate="fp32", world=1),
    "bf16opt-w3": dict(stage=1, accumulate="fp32", world=3),
    "z2-bf16-w4": dict(stage=2, world=4),
    "z2-fp16-w3": dict(stage=2, lp="fp16", world=3),
    "z2-fp32-w2": dict(stage=2, lp="fp32"),
    "z2-bf16-w4-rr": dict(stage=2, world=4, round_robin=True),
    "z2-fp16-w4-rr": dict(stage=2, lp="fp16", world=4, round_robin=True),
    "z2-fp16-w3-rr-elastic": dict(stage=2, lp="fp16", world=3, round_robin=True, elastic=True),
    "z1-fp16-w2-aligned": dict(stage=1, lp="fp16", aligned=True),
    "z2-bf16-w3-rr-aligned": dict(stage=2, world=3, round_robin=True, aligned=True),
    "z2-bf16-w2-offload": dict(stage=2, offload=True),
    "z2-bf16-w2-legacy": dict(stage=2, legacy=True),
    "z2-bf16-w2-client": dict(stage=2, client=True),
    "z2-bf16-w3-sgd": dict(stage=2, world=3, optimizer="sgd"),
    "z2-fp32-w3-amsgrad": dict(stage=2, lp="fp32", world=3, optimizer="amsgrad"),
    "z2-bf16-w2-no-frozen": dict(stage=2, no_frozen=True),
    "z2-bf16-w4-mp2": dict(stage=2, world=4, mp=2),
    "z2-bf16-w3-universal": dict(stage=2, world=3, scalar=False, universal=True),
    "z3-bf16-w1": dict(stage=3, world=1),
    "z3-bf16-w2": dict(stage=3),
    "z3-fp16-w4": dict(stage=3, lp="fp16", world=4),
    "z3-fp32-w3": dict(stage=3, lp="fp32", world=3),
    "z3-bf16-w3-sub": dict(stage=3, world=3, sub_group=40),
    "z3-bf16-w4-sub1": dict(stage=3, world=4, sub_group=1),
    "z3-fp32-w2-sub": dict(stage=3, lp="fp32", sub_group=90),
    "z3-bf16-w2-offload": dict(stage=3, offload=True),
    "z3-bf16-w2-legacy": dict(stage=3, legacy=True),
    "z3-bf16-w3-sgd": dict(stage=3, world=3, optimizer="sgd"),
    "z3-fp16-w2-no-frozen": dict(stage=3, lp="fp16", no_frozen=True),
    "z3-bf16-w2-no-frozen": dict(stage=3, no_frozen=True),
    "z3-bf16-w4-mp2": dict(stage=3, world=4, mp=2),
    "z3-bf16-w3-universal": dict(stage=3, world=3, scalar=False, universal=True),
}
DEFAULTS = dict(world=2, mp=1, lp="bf16", accumulate=None, sub_group=None, optimizer="adam", scalar=True)
# What else than all of them a version is asked for: of torch 1.13, with 0.10, gloo can do no more.
OF_VERSION = {
    "0.10": """z1-fp32-w1 z1-fp16-w4 z2-fp16-w3 z2-fp32-w2 z2-fp16-w4-rr z2-fp32-w3-amsgrad""",
    "0.14": """z1-bf16-w2 z1-bf16-w3-elastic bf16opt-w3 z2-bf16-w4 z2-bf16-w4-rr z2-bf16-w2-offload
        z2-bf16-w3-universal z3-bf16-w2 z3-bf16-w3-sub z3-bf16-w2-no-frozen z3-bf16-w4-mp2""",
}


def case_of(name):
    return dict(DEFAULTS, **CASES[name])


# ---- the engine ----


def config(case):
    zero = {"stage": case["stage"]}
    if case.get("round_robin"):
        zero["round_robin_gradients"] = True
    if case.get("aligned"):
        zero["parameter_alignment"] = True
    if case.get("elastic"):
        zero["elastic_checkpoint"] = True
    if case.get("offload"):
        zero["offload_optimizer"] = {"device": "cpu"}
        if case["stage"] == 3:
            zero["offload_param"] = {"device": "cpu"}
    if case["stage"] == 3:
        zero["stage3_param_persistence_threshold"] = 0
        zero["sub_group_size"] = case["sub_group"] or 10**9
    result = {
        "train_micro_batch_size_per_gpu": 1,
        # Stage 0 of 0.19.8 cannot clip a 0-dim parameter.
        "gradient_clipping": 1.0 if case["stage"] else 0.0,
        "steps_per_print": 10**9,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    if case["lp"] == "bf16":
        result["bf16"] = {"enabled": True}
    if case["lp"] == "fp16":
        result["fp16"] = {"enabled": True, "initial_scale_power": 6}
    if case["accumulate"]:
        result["data_types"] = {"grad_accum_dtype": case["accumulate"]}
    if case.get("legacy"):
        result["checkpoint"] = {"checkpoint_serialization": False}
    return result


def optimizer_of(case, groups):
    import torch

    if case["optimizer"] == "sgd":
        return torch.optim.SGD(groups, lr=0.01, momentum=0.9)
    if case["optimizer"] == "adagrad":
        return torch.optim.Adagrad(groups, lr=0.01)
    return torch.optim.Adam(groups, lr=0.01, amsgrad=case["optimizer"] == "amsgrad")


class Grid:
    """What Megatron calls an mpu: ranks of the same data and another part of the model are neighbours."""

    def __init__(self, mp):
        import torch.distributed as dist

        rank, world = dist.get_rank(), dist.get_world_size()
        for first in range(0, world, mp):
            group = dist.new_group(range(first, first + mp))
            if first <= rank < first + mp:
                self.mp_group, self.mp_rank, self.mp = group, rank - first, mp
        for first in range(mp):
            group = dist.new_group(range(first, world, mp))
            if rank % mp == first:
                self.dp_group, self.dp_rank, self.dp = group, rank // mp, world // mp

    def get_model_parallel_group(self):
        return self.mp_group

    def get_model_parallel_rank(self):
        return self.mp_rank

    def get_model_parallel_world_size(self):
        return self.mp

    def get_data_parallel_group(self):
        return self.dp_group

    def get_data_parallel_rank(self):
        return self.dp_rank

    def get_data_parallel_world_size(self):
        return self.dp

    get_tensor_model_parallel_group = get_model_parallel_group
    get_tensor_model_parallel_rank = get_model_parallel_rank
    get_tensor_model_parallel_world_size = get_model_parallel_world_size


def start(case, grid):
    import deepspeed

    import model

    module = model.make(7 + grid.mp_rank, scalar=case["scalar"])
    return deepspeed.initialize(
        model=module,
        optimizer=optimizer_of(case, model.groups(module, 1 if case["optimizer"] == "adagrad" else 2)),
        config=config(case),
        mpu=grid if case["mp"] > 1 else None,
    )[0]


def train(engine, grid):
    import model

    for step in range(STEPS):
        loss = engine(model.batch(step, grid.dp_rank))
        engine.backward(loss)
        engine.step()
    assert engine.global_steps == STEPS and not engine.skipped_steps


# ---- what it holds: by the memory that it trains with, not by what it says of it ----


def gather(piece, group):
    import torch
    import torch.distributed as dist

    pieces = [torch.empty_like(piece) for _ in range(dist.get_world_size(group))]
    dist.all_gather(pieces, piece.contiguous(), group=group)
    return torch.cat(pieces)


def flat_states(optimizer, master, state):
    """The vectors beside a master of the same length: [(key, vector)]."""
    found = [("fp32", master)]
    for key, x in sorted(state.items()):
        if getattr(x, "shape", None) == master.shape:
            found.append((key, x))
    return found


def held_in_partitions(optimizer, grid):
    """Stages 1, 2, BF16_Optimizer: a parameter is a view of its group's flat vector, whose place tells which
    elements of the ranks' masters are its own: {id of parameter: {key: tensor}}."""
    bf16 = hasattr(optimizer, "bf16_groups_flat")
    flats = optimizer.bf16_groups_flat if bf16 else optimizer.bit16_groups_flat
    masters = optimizer.fp32_groups_flat_partition if bf16 else optimizer.single_partition_of_fp32_groups
    held = {}
    for params, flat, master in zip(optimizer.bf16_groups if bf16 else optimizer.bit16_groups, flats, masters):
        for key, piece in flat_states(optimizer, master, optimizer.optimizer.state[master]):
            whole = gather(piece.detach(), grid.dp_group)
            for p in params:
                at, rest = divmod(p.data_ptr() - flat.data_ptr(), p.element_size())
                assert not rest and 0 <= at <= flat.numel() - p.numel()
                held.setdefault(id(p), {})[key] = whole[at : at + p.numel()].view(p.shape)
    return held


def held_in_shards(optimizer, grid):
    """Stage 3: where the engine adds a parameter's gradient to the masters."""
    held = {}
    for p in (p for group in optimizer.fp16_groups for p in group):
        sub, at, _ = optimizer.grad_position[optimizer.get_param_id(p)]
        master = optimizer.fp32_partitioned_groups_flat[sub]
        n = p.ds_tensor.ds_numel
        for key, vector in flat_states(optimizer, master, optimizer.optimizer.state[master]):
            whole = gather(vector.detach()[at : at + n], grid.dp_group)
            held.setdefault(id(p), {})[key] = whole[: p.ds_numel].view(p.ds_shape)
    return held


def held_whole(optimizer):
    """Stage 0: the optimizer of torch, or around it one that has masters for a model of fp16 or bf16."""
    masters = {}
    inner = getattr(optimizer, "optimizer", optimizer)
    for params, group in zip(getattr(optimizer, "fp16_groups", []), getattr(optimizer, "fp32_groups", [])):
        masters.update({id(p): master for p, master in zip(params, group)})
    held = {}
    for p in (p for g in inner.param_groups for p in g["params"]) if not masters else []:
        held[id(p)] = dict(flat_states(optimizer, p.detach(), inner.state.get(p, {})))
    for i, master in masters.items():
        held[i] = dict(flat_states(optimizer, master.detach(), inner.state.get(master, {})))
    return held


def held_by(engine, case, grid):
    if case["stage"] == 3:
        return held_in_shards(engine.optimizer, grid)
    return held_in_partitions(engine.optimizer, grid) if case["stage"] else held_whole(engine.optimizer)


LP_KEYS = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}


def with_copy(x):
    """What a checkpoint shows of a tensor without a master: itself, and fp32 that it widens to."""
    import torch

    key = LP_KEYS.get(str(x.dtype), "fp32" if x.dtype == torch.float32 else str(x.dtype).split(".")[1])
    return {key: x, **({"fp32": x.float()} if x.is_floating_point() else {})}


def whole_params(engine, case):
    """All parameters in the model's own type, {name: tensor}; all ranks call."""
    import deepspeed

    named = list(engine.module.named_parameters())
    if case["stage"] < 3:
        return {n: p.detach().clone() for n, p in named}
    with deepspeed.zero.GatheredParameters([p for _, p in named]):
        return {n: p.detach().clone() for n, p in named}


def states_of(engine, case, grid):
    """{name: {state: tensor}} as a checkpoint has them."""
    import torch

    held, lp, states = held_by(engine, case, grid), whole_params(engine, case), {}
    for name, p in engine.module.named_parameters():
        mine = held.get(id(p), {}) if p.requires_grad else {}
        if "fp32" in mine:
            assert torch.equal(mine["fp32"].to(lp[name].dtype), lp[name]), name
        stored = not (case["stage"] == 3 and p.requires_grad)
        if p.requires_grad or not case.get("no_frozen"):
            states[name] = {**(with_copy(lp[name]) if stored else {}), **mine}
    return states


def buffers_of(engine):
    return {n: with_copy(b) for n, b in engine.module.state_dict().items() if n in dict(engine.module.named_buffers())}


# ---- files ----


def escaped(name):
    return "".join("%%%02X" % ord(c) if c in "/%@" else c for c in name)


def raw(x):
    import torch

    flat = x.detach().clone(memory_format=torch.contiguous_format).view(-1)
    if flat.dtype == torch.bfloat16:
        flat = flat.view(torch.int16)
    return flat.numpy().tobytes()


def put(folder, path, data):
    path = os.path.join(folder, "values", path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def describe(folder, kind, name, states, below, lines):
    path = f"{below}{kind}s/{escaped(name)}"
    for key, x in sorted(states.items()):
        put(folder, f"{path}/{key}", raw(x))
        shape = ",".join(map(str, x.shape)) or "-"
        lines.append(f"{kind} {escaped(name)} {key} {shape} {str(x.dtype).split('.')[1]} {path}/{key}")
    put(folder, f"{path}/shape", (" ".join(map(str, x.shape)) + "\n").encode())


def aliases_of(module):
    first = {id(p): n for n, p in module.named_parameters()}
    every = ((m + "." if m else m) + n for m, x in module.named_modules() for n in x._parameters)
    named = [(n, first[id(p)]) for n in every for p in [module.get_parameter(n)] if p is not None]
    return [(n, of) for n, of in named if n != of]


def write_values(folder, engine, case, grid):
    """All ranks call, those that are the first of their data write.  Lines of the manifest."""
    below = f"mp_rank_{grid.mp_rank:02}/" if case["mp"] > 1 else ""
    states, lines = states_of(engine, case, grid), []
    if grid.dp_rank:
        return lines
    for name, x in states.items():
        describe(folder, "param", name, x, below, lines)
    for name, x in buffers_of(engine).items():
        describe(folder, "buffer", name, x, below, lines)
    for name, of in aliases_of(engine.module):
        describe(folder, "param", name, states[of], below, lines)
        lines.append(f"alias {escaped(name)} {escaped(of)}")
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
        "module": "not the model",
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

    case = case_of(name)
    grid = Grid(case["mp"])
    folder = os.path.join(args.scratch, name)
    engine = start(case, grid)
    train(engine, grid)
    lines = [None] * dist.get_world_size()
    save(folder, engine, case)
    dist.all_gather_object(lines, write_values(folder, engine, case, grid))
    if dist.get_rank() == 0:
        versions = f"DeepSpeed {deepspeed.__version__}, torch {torch.__version__.split('+')[0]}, Python {sys.version.split()[0]}"
        facts = [f"# {name}: {versions}; made by tests/oracle/make-checkpoints.py"]
        facts += [f"step {engine.global_steps}", f"ranks {dist.get_world_size()}", f"stage {case['stage']}"]
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
    if case_of(name).get("universal"):
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
        kinds = {}
        of_version = OF_VERSION.get(version("deepspeed").rpartition(".")[0], "").split()
        for name in args.cases or of_version or CASES:
            case = case_of(name)
            kinds.setdefault((case["world"], case["mp"]), []).append(name)
        for (world, _), names in sorted(kinds.items()):
            processes.run(world, __file__, "--worker", "--scratch", args.scratch, *names)
            for name in names:
                finish(name, args)


if __name__ == "__main__":
    main()
