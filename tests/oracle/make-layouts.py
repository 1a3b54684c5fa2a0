#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes layouts from running DeepSpeed and FSDP2 engines and writes them to tests/data/layouts.

Run by hand, see README.md.  Every element of every parameter gets a value of its own, the engine is
started, and each rank's flat fp32 partition is searched for these values: what is written is where
the elements really are, not what the framework says of it.

A file is lines of words.  '#' begins a comment.
    group KIND SHARDS ALIGNMENT ROUND_ROBIN SUB_GROUP_SIZE   begins a layout; KIND: flat per_param rows
    ranks R...                                               that share it, shard 0 first
    param trainable|frozen NUMEL ROW NAME                    numbered from 0; ROW: numel of one row
    partition SHARD SUB NUMEL PADDING
    fragment SHARD SUB PARTITION_OFFSET PARAM PARAM_OFFSET NUMEL
"""

import argparse
import os

import processes

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "data", "layouts")

# One list of shapes a param group; a shape in braces, {shape}, is frozen.
MODELS = {
    "two": [[(3, 5), (3,), (7, 3)], [(7,), (1, 7)]],
    "odd": [
        [(5, 19), {(4, 4)}, (19,), (), (1,), (3, 2, 2, 2), (53, 3)],
        [(3,), (1,), {(2,)}, (1,), (11,), (2, 1)],
    ],
    "tiny": [[(2,), (3,)], [(1,)]],
    "zero": [[(0,), (3, 5), (3,), (0, 4), (7, 3)], [(2,), (0,)]],
    "many": [[(1 + i * 37 % 101, 1 + i % 5) for i in range(40)]],
    "exact": [[(8,), (4, 6), (24,), (48, 2)]],
    "rows": [[(5, 3), (3,), (1, 7), (2,), {(4, 2)}, (9, 2, 2), (1,), (4, 4)]],
    "norows": [[(2, 3), (0, 3), (5,), (3, 0), (1, 4)]],
}

# (name of the engine, stage, model, more)
DEEPSPEED = {
    1: [("stage", 1, "two", {}), ("stage", 3, "odd", {"sub": 50}), ("bf16", 1, "odd", {})],
    2: [
        ("stage", 1, "two", {}),
        ("stage", 2, "odd", {}),
        ("stage", 1, "zero", {}),
        ("stage", 1, "many", {"rr": True}),
        ("stage", 2, "zero", {"rr": True}),
        ("stage", 3, "odd", {}),
        ("stage", 3, "many", {"sub": 1000}),
        ("stage", 3, "zero", {"sub": 7}),
        ("bf16", 1, "odd", {}),
        ("moe", 2, "two", {"ep": 2}),
    ],
    3: [
        ("stage", 1, "odd", {}),
        ("stage", 2, "two", {"rr": True, "lp": "bf16"}),
        ("stage", 2, "many", {"rr": True}),
        ("stage", 3, "two", {"sub": 6}),
        ("stage", 3, "odd", {"sub": 1, "lp": "bf16"}),
        ("bf16", 1, "zero", {}),
        ("bf16", 1, "many", {}),
        ("moe", 1, "two", {"ep": 3}),
    ],
    4: [
        ("stage", 1, "tiny", {}),
        ("stage", 1, "exact", {}),
        ("stage", 2, "many", {}),
        ("stage", 2, "odd", {"rr": True}),
        ("stage", 3, "tiny", {}),
        ("stage", 3, "two", {"sub": 8}),
        ("stage", 3, "odd", {"sub": 20}),
        ("stage", 3, "zero", {"sub": 1}),
        ("stage", 3, "exact", {"sub": 8}),
        ("bf16", 1, "tiny", {}),
        ("bf16", 1, "two", {}),
        ("moe", 1, "odd", {"ep": 2}),
        ("moe", 2, "odd", {"ep": 2}),
    ],
}
FSDP2 = {
    1: [("rows", 1)],
    2: [("rows", 1), ("norows", 1)],
    3: [("rows", 1), ("many", 1), ("norows", 1)],
    4: [("rows", 1), ("rows", 2), ("many", 1), ("norows", 1)],
}


# ---- values: the i-th positive normal bfloat16, which fp32 holds too ----

FIRST_BITS = 0x0080
LAST_BITS = 0x7F7F


def fill(params):
    """Gives the elements of params the values 0, 1, 2 ...; returns where each begins."""
    import torch

    begins, at = [], 0
    for p in params:
        begins.append(at)
        bits = torch.arange(at, at + p.numel(), dtype=torch.int32) + FIRST_BITS
        p.data.copy_((bits << 16).view(torch.float32).view(p.shape))
        at += p.numel()
    assert FIRST_BITS + at <= LAST_BITS + 1, "the model has more elements than there are values"
    return begins + [at]


def fragments(flat, begins):
    """Runs of a partition: [(partition offset, param, param offset, numel)]."""
    import torch

    bits = flat.detach().float().contiguous().view(-1).view(torch.int32).tolist()
    runs = []
    for offset, b in enumerate(bits):
        value = (b >> 16) - FIRST_BITS
        if b & 0xFFFF or not 0 <= value < begins[-1]:
            continue
        param = max(i for i in range(len(begins) - 1) if begins[i] <= value < begins[i + 1])
        at = value - begins[param]
        last = runs[-1] if runs else None
        if last and (last[0] + last[3], last[1], last[2] + last[3]) == (offset, param, at):
            last[3] += 1
        else:
            runs.append([offset, param, at, 1])
    return runs


# ---- files ----


def describe(params):
    """params: [(name, tensor or DTensor, frozen)]"""
    lines = []
    for name, shape, frozen in params:
        numel, row = 1, 1
        for i, d in enumerate(shape):
            numel *= d
            row *= d if i else 1
        lines.append(f"param {'frozen' if frozen else 'trainable'} {numel} {row} {name}")
    return lines


def gather(group, params, kind, flats, begins, options):
    """All ranks call; the lines of one layout on the ranks of `group`, else none."""
    import torch.distributed as dist

    mine = [(f.numel(), fragments(f, begins)) for f in flats]
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, mine)
    lines = [f"group {kind} {len(group)} {options}", "ranks " + " ".join(map(str, group))]
    lines += describe(params)
    for shard, rank in enumerate(group):
        for sub, (numel, runs) in enumerate(every[rank]):
            padding = numel - sum(r[3] for r in runs)
            lines.append(f"partition {shard} {sub} {numel} {padding}")
            lines += [f"fragment {shard} {sub} " + " ".join(map(str, r)) for r in runs]
    return lines


def write(args, case, lines, versions):
    import torch.distributed as dist

    if dist.get_rank() == 0:
        with open(os.path.join(args.out, case + ".layout"), "w") as f:
            f.write(f"# {case}, {versions}; made by tests/oracle/make-layouts.py\n")
            f.write("\n".join(lines) + "\n")
        print(case, flush=True)
    dist.barrier()


# ---- models ----


def build(name):
    """The module and its groups [[(name, param)]]."""
    import torch

    module = torch.nn.Module()
    groups = []
    for g, shapes in enumerate(MODELS[name]):
        groups.append([])
        for i, shape in enumerate(shapes):
            frozen = isinstance(shape, set)
            p = torch.nn.Parameter(torch.zeros(next(iter(shape)) if frozen else shape))
            p.requires_grad = not frozen
            module.register_parameter(f"g{g}p{i}", p)
            groups[-1].append((f"g{g}p{i}", p))
    return module, groups


def add_experts(module, groups, ep_size):
    """Puts an MoE layer beside the rest; its experts become a group of their own."""
    import torch
    from deepspeed.moe.layer import MoE

    world = int(os.environ["WORLD_SIZE"])
    module.moe = MoE(
        hidden_size=5, expert=torch.nn.Linear(5, 7), num_experts=2 * ep_size, ep_size=ep_size, k=1
    )
    experts, rest = [], []
    for name, p in module.moe.named_parameters():
        (rest if getattr(p, "allreduce", True) else experts).append((name, p))
    groups[0] += rest
    groups.append(experts)
    return [[r for r in range(world) if r % ep_size == e] for e in range(ep_size)]


# ---- DeepSpeed ----


def config(engine, stage, more):
    zero = {"stage": stage}
    if "sub" in more:
        zero["sub_group_size"] = more["sub"]
    if more.get("rr"):
        zero["round_robin_gradients"] = True
    result = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    if engine == "bf16" or more.get("lp") == "bf16":
        result["bf16"] = {"enabled": True}
    if engine == "bf16":
        result["data_types"] = {"grad_accum_dtype": "fp32"}
    return result


def partitions(optimizer, engine, stage, ngroups):
    """This rank's flat fp32 partitions: [group][sub-group]."""
    if stage == 3:
        flats = [[] for _ in range(ngroups)]
        for sub, flat in enumerate(optimizer.fp32_partitioned_groups_flat):
            flats[optimizer.sub_group_to_group_id[sub]].append(flat)
        return flats
    if type(optimizer).__name__ == "BF16_Optimizer":
        return [[flat] for flat in optimizer.fp32_groups_flat_partition]
    assert engine != "bf16", "DeepSpeed did not choose BF16_Optimizer"
    return [[flat] for flat in optimizer.single_partition_of_fp32_groups]


def start(module, groups, expert_group, settings):
    import deepspeed
    import torch

    options = [{"params": [p for _, p in g], "weight_decay": 0.1 * i} for i, g in enumerate(groups)]
    if expert_group:
        options[-1].update(moe=True, name=groups[-1][0][1].group_name)
    optimizer = torch.optim.Adam(options, lr=1e-3)
    engine, _, _, _ = deepspeed.initialize(model=module, optimizer=optimizer, config=settings)
    return engine


def deepspeed_case(args, world, engine, stage, model, more):
    import deepspeed
    import torch

    module, groups = build(model)
    expert_ranks = add_experts(module, groups, more["ep"]) if engine == "moe" else []
    begins = [fill([p for _, p in g]) for g in groups]
    shapes = [[(n, tuple(p.shape), not p.requires_grad) for n, p in g] for g in groups]
    running = start(module, groups, expert_ranks, config(engine, stage, more))
    flats = partitions(running.optimizer, engine, stage, len(groups))
    kind = "per_param" if stage == 3 else "flat"
    options = f"{1 if stage == 3 else 2} {int(bool(more.get('rr')))} "
    options += str(more.get("sub", 10**9) if stage == 3 else 0)
    lines = []
    for g in range(len(groups)):
        for ranks in expert_ranks if expert_ranks and g == len(groups) - 1 else [range(world)]:
            lines += gather(ranks, shapes[g], kind, flats[g], begins[g], options)
    words = [f"{engine}{stage}" if engine != "bf16" else "bf16", f"w{world}", model]
    words += [f"{k}{v}" if k not in ("rr", "lp") else str(v if k == "lp" else k) for k, v in more.items()]
    versions = f"deepspeed {deepspeed.__version__}, torch {torch.__version__.split('+')[0]}"
    running.destroy()
    write(args, "-".join(words), lines, versions)


# ---- FSDP2 ----


def fsdp2_case(args, world, model, replicas):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    module, groups = build(model)
    begins = fill([p for _, p in groups[0]])
    shapes = [(n, tuple(p.shape), not p.requires_grad) for n, p in groups[0]]
    shards = world // replicas
    if replicas > 1:
        mesh = init_device_mesh("cpu", (replicas, shards), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (world,))
    fully_shard(module, mesh=mesh)
    # The padded local rows, laid end to end as the all-gather takes them.
    held = module._get_fsdp_state()._fsdp_param_group.fsdp_params
    pieces = [p._sharded_param_data.view(-1) for p in held if p.sharded_param.requires_grad]
    lines = []
    for first in range(0, world, shards):
        ranks = range(first, first + shards)
        lines += gather(ranks, shapes, "rows", [torch.cat(pieces)], begins, "1 0 0")
    words = ["fsdp2", f"w{world}", model] + ([f"replicas{replicas}"] if replicas > 1 else [])
    write(args, "-".join(words), lines, f"torch {torch.__version__.split('+')[0]}")


# ---- processes ----


def work(args):
    import torch
    import torch.distributed as dist

    world = int(os.environ["WORLD_SIZE"])
    # torch.empty, which is the padding of stage 3, then gives NaN: no old values are found in it.
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    processes.start_deepspeed()
    for model, replicas in FSDP2[world]:
        fsdp2_case(args, world, model, replicas)
    for engine, stage, model, more in DEEPSPEED[world]:
        deepspeed_case(args, world, engine, stage, model, dict(more))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=OUT)
    parser.add_argument("--world", type=int, action="append", help="only this one; may be repeated")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return work(args)
    os.makedirs(args.out, exist_ok=True)
    for world in args.world or sorted(DEEPSPEED):
        processes.run(world, __file__, "--worker", "--out", args.out)


if __name__ == "__main__":
    main()
