#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes small checkpoints of torch.distributed.checkpoint, and what is in them, to tests/data/dcp.

Run by hand, see README.md.  Each case is a folder, and CASE.tree what a mount of it has, in the words of
tests/unit/checkpoint/formats/mounted.h; the values are those that the job held, gathered from its tensors, not read back.
"""

import argparse
import os
import shutil
import socket

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn

OLD = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 3)
if OLD:
    from torch.distributed._tensor import DeviceMesh, DTensor, Replicate, Shard, distribute_tensor
else:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "data", "dcp")


class Model(nn.Module):
    def __init__(self, dtype, inner=7):
        super().__init__()
        self.up = nn.Linear(4, inner, dtype=dtype)
        self.down = nn.Linear(inner, 4, bias=False, dtype=dtype)
        self.one = nn.Parameter(torch.ones(1, dtype=dtype))
        self.register_buffer("seen", torch.arange(3))

    def forward(self, x):
        return self.down(torch.relu(self.up(x))) * self.one


def train(model, dtype, groups):
    params = list(model.parameters())
    groups = [{"params": params[:2], "lr": 0.5}, {"params": params[2:]}] if groups else params
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.9))
    for i in range(3):
        model(torch.full((2, 4), 0.5 + i, dtype=dtype)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


# ---- cases: (processes, function of rank and folder, which returns what is expected) ----


def states(model, optimizer, **how):
    return get_state_dict(model, optimizer, options=StateDictOptions(**how))


def fsdp(out, dtype=torch.float32, mesh=None, groups=False, **how):
    torch.manual_seed(4)
    model = Model(dtype)
    fully_shard(model, mesh=mesh or init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = train(model, dtype, groups)
    m, o = states(model, optimizer, **how)
    dcp.save({"model": m, "optim": o, "step": 11, "name": "bytes"}, checkpoint_id=out)
    return expected(model, optimizer, 11)


def hsdp(out):
    return fsdp(out, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))


def tp(out):
    """Torchtitan's way: the model's names without, the optimizer's with a beginning, flat."""
    torch.manual_seed(5)
    model = Model(torch.float32, 6)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    optimizer = train(model, torch.float32, False)
    m, o = states(model, optimizer, flatten_optimizer_state_dict=True)
    o = {k: v for k, v in o.items() if k.startswith("state.")}
    dcp.save({**m, "optimizer": o}, checkpoint_id=out)
    return expected(model, optimizer, 3)


def boxes(out):
    """Two dimensions cut, unevenly; a transposed tensor; replicas; another dtype."""
    mesh = init_device_mesh("cpu", (2, 2))
    full = {
        "both": (torch.arange(35.0).view(5, 7), [Shard(0), Shard(1)]),
        "swapped": (torch.arange(30.0).view(5, 6) + 100, [Shard(1), Shard(0)]),
        "columns": (torch.arange(24, dtype=torch.bfloat16).view(2, 3, 4), [Replicate(), Shard(2)]),
        "everywhere": (torch.arange(6, dtype=torch.float16), [Replicate(), Replicate()]),
        "few": (torch.arange(2, dtype=torch.int64), [Shard(0), Shard(0)]),
    }
    state = {k: distribute_tensor(t, mesh, p) for k, (t, p) in full.items()}
    state["turned"] = torch.arange(12.0).view(3, 4).t()
    state["none"] = torch.zeros(0, 5)
    dcp.save(state, checkpoint_id=out)
    return {k: {"own": full_tensor(t)} for k, t in state.items()}, [], None


def plain(out):
    """One process, no process group; the optimizer's own numbering, which names no parameters."""
    torch.manual_seed(6)
    model = Model(torch.bfloat16)
    optimizer = train(model, torch.bfloat16, False)
    dcp.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 11},
             checkpoint_id=out, no_dist=True)
    tensors = {"model." + k: {"own": t} for k, t in model.state_dict().items()}
    for i, s in enumerate(optimizer.state_dict()["state"].values()):
        tensors.update({f"optimizer.state.{i}.{k}": {"own": t} for k, t in s.items()})
    return tensors, [], 11


def unshown(out):
    """Tensors whose values are not their bytes."""
    state = {"plain": torch.arange(3.0), "conj": torch.tensor([1 + 2j, 3]).conj(), "neg": torch._neg_view(torch.ones(2))}
    dcp.save(state, checkpoint_id=out, no_dist=True)
    why = "its values are the conjugates, or negatives, of its bytes"
    return {"plain": {"own": state["plain"]}}, [f"source skipped {n}: {why}" for n in ("conj", "neg")], None


def in_rows(full, counts):
    """What FSDP had before DTensors: some rows on each rank."""
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.metadata import ShardMetadata

    rank = dist.get_rank()
    first = sum(counts[:rank])
    shard = full[first : first + counts[rank]].contiguous()
    where = ShardMetadata([first] + [0] * (full.dim() - 1), list(shard.shape), f"rank:{rank}/cpu")
    shards = [sharded_tensor.Shard(shard, where)] if counts[rank] else []
    return sharded_tensor.init_from_local_shards(shards, *full.shape)


def old(out):
    """Of torch before 2.3: sharded tensors, DTensors in one dimension, replicas, bytes."""
    full = {
        "up.weight": torch.arange(15.0).view(5, 3),
        "up.bias": torch.arange(5, dtype=torch.bfloat16) + 1,
        "down": torch.arange(14.0).view(7, 2) + 0.5,
        "columns": torch.arange(12.0).view(3, 4) - 3,
        "scale": torch.tensor(3.25),
    }
    mesh = DeviceMesh("cpu", [0, 1])
    model = {
        "up.weight": in_rows(full["up.weight"], [3, 2]),
        "up.bias": in_rows(full["up.bias"], [5, 0]),
        "down": distribute_tensor(full["down"], mesh, [Shard(0)]),
        "columns": distribute_tensor(full["columns"], mesh, [Shard(1)]),
        "scale": full["scale"],
    }
    state = {"exp_avg": full["up.weight"] / 7, "step": torch.tensor(5.0)}
    optim = {
        "state": {"up.weight": {"exp_avg": in_rows(state["exp_avg"], [3, 2]), "step": state["step"]}},
        "param_groups": [{"lr": 0.5, "betas": (0.8, 0.9), "params": ["up.weight"]}],
    }
    dcp.save_state_dict({"model": model, "optim": optim, "step": 11}, dcp.FileSystemWriter(out))
    tensors = {k: {"own": t} for k, t in full.items()}
    tensors["up.weight"].update(state)
    return tensors, [], 11


CASES = {
    "fsdp-2": (2, lambda out: fsdp(out, groups=True)),
    "fsdp-3-bf16": (3, lambda out: fsdp(out, torch.bfloat16, flatten_optimizer_state_dict=True)),
    "hsdp-4": (4, hsdp),
    "tp-4": (4, tp),
    "boxes-4": (4, boxes),
    "plain-1": (1, plain),
    "unshown-1": (1, unshown),
}
if OLD:
    CASES = {"old-2": (2, old)}

# ---- what is expected ----

KEYS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
WIDER = (torch.float16, torch.bfloat16)


def full_tensor(t):
    return t.full_tensor() if isinstance(t, DTensor) else t


def expected(model, optimizer, step):
    tensors = {k: {"own": full_tensor(t)} for k, t in model.state_dict().items()}
    for name, p in model.named_parameters():
        s = optimizer.state[p]
        tensors[name].update({k: full_tensor(v) for k, v in s.items()})
    return tensors, [], step


def raw(t):
    flat = t.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    return bytes(flat.view(torch.uint8).tolist()).hex() if flat.numel() else "-"


def lines_of(name, states):
    own = states["own"]
    kind = str(own.dtype).split(".")[1]
    shown = {KEYS.get(kind, kind): own, **{k: v for k, v in states.items() if k != "own"}}
    if own.dtype in WIDER:
        shown["fp32"] = own.float()
    yield f"param {name} {','.join(map(str, own.shape)) or '-'} {len(shown)}"
    yield from (f"state {name} {key} {raw(t)}" for key, t in sorted(shown.items()))


def write_tree(case, tensors, more, step):
    lines = [f"# torch {torch.__version__}", "source format dcp"] + more
    for name in sorted(tensors):
        lines += lines_of(name, tensors[name])
    if step is not None:
        lines.append(f"step {step}")
    with open(os.path.join(OUT, case + ".tree"), "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")


def run(rank, world, port, case):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    if world > 1:
        dist.init_process_group("gloo", rank=rank, world_size=world)
    result = CASES[case][1](os.path.join(OUT, case))
    if rank == 0:
        write_tree(case, *result)
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", nargs="*", default=list(CASES))
    for case in parser.parse_args().case:
        shutil.rmtree(os.path.join(OUT, case), ignore_errors=True)
        os.makedirs(OUT, exist_ok=True)
        world = CASES[case][0]
        mp.spawn(run, (world, free_port(), case), nprocs=world)


if __name__ == "__main__":
    main()
