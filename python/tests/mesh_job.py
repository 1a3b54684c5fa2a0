# SPDX-License-Identifier: Apache-2.0
"""One rank of a job whose parameters lie otherwise than in rows: mesh_job.py CASE.  As torch_job.py."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch_job import WORLD, Model, TorchJob, main


class MeshJob(TorchJob):
    """Tensor parallelism, FSDP2 over it, and FSDP2 that cuts columns."""

    def __init__(self, kind: str) -> None:
        self.inputs, hidden, outputs = (36, 52, 8) if kind.startswith("fsdp2") else (37, 53, 7)
        self.model = Model(self.inputs, hidden, outputs)
        if kind == "fsdp2-columns-bf16":
            self.model.bfloat16()
            self.value = "bf16"
        if kind == "tp-sequence":
            self.parallelize_sequence(init_device_mesh("cpu", (WORLD,), mesh_dim_names=("tp",)))
            self.unreduced = tuple((name, key) for name in ("norm.weight", "norm.bias") for key in ("grad", "momentum_buffer"))
        elif kind == "tp":
            self.parallelize(init_device_mesh("cpu", (WORLD,), mesh_dim_names=("tp",)))
        elif kind == "fsdp2-tp":
            mesh = init_device_mesh("cpu", (2, WORLD // 2), mesh_dim_names=("dp", "tp"))
            self.parallelize(mesh["tp"])
            self.shard(mesh["dp"])
        else:
            self.shard(init_device_mesh("cpu", (WORLD,), mesh_dim_names=("dp",)), columns=True)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW([{"params": trained[:2]}, {"params": trained[2:], "lr": 3e-3}], lr=1e-3,
                                           foreach=False)
        if kind == "tp-sequence":  # whose momentum begins as the gradient itself
            self.optimizer, self.moments = torch.optim.SGD(trained, lr=1e-3, momentum=0.9), ("momentum_buffer",)

    def parallelize_sequence(self, mesh) -> None:
        """The norm computes with some rows of its input on each rank, and has a part of its gradients there."""
        from torch.distributed.tensor import Shard
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

        parallelize_module(self.model, mesh, {"first": ColwiseParallel(output_layouts=Shard(0)),
                                              "norm": SequenceParallel(sequence_dim=0, use_local_output=True),
                                              "second": RowwiseParallel(input_layouts=Shard(0))})

    def parallelize(self, mesh) -> None:
        from torch.distributed.tensor import Replicate
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        parallelize_module(self.model, mesh, {"first": ColwiseParallel(output_layouts=Replicate()),
                                              "second": RowwiseParallel(input_layouts=Replicate())})

    def shard(self, mesh, columns: bool = False) -> None:
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import Shard

        def placement(p: torch.nn.Parameter) -> Shard:
            return Shard(1 if columns and p.dim() > 1 else 0)

        fully_shard(self.model.first, mesh=mesh, shard_placement_fn=placement)
        fully_shard(self.model, mesh=mesh, shard_placement_fn=placement)


class RedundancyJob(TorchJob):
    """ZeroRedundancyOptimizer under DDP."""

    def __init__(self, kind: str) -> None:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        self.model = torch.nn.parallel.DistributedDataParallel(Model())
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = ZeroRedundancyOptimizer(trained, torch.optim.AdamW, lr=1e-3)

    def replace_states(self) -> None:
        self.optimizer.optim.load_state_dict(self.optimizer.optim.state_dict())

    def full(self, name: str, param: torch.nn.Parameter, key: str) -> torch.Tensor:
        owner = self.optimizer._param_to_rank[param]
        tensor = {"fp32": param, "grad": param.grad}.get(key)
        if tensor is None:
            tensor = self.optimizer.optim.state[param][key] if owner == dist.get_rank() else torch.empty_like(param)
        tensor = tensor.detach().clone()
        dist.broadcast(tensor, owner)
        return tensor


class FlatJob(TorchJob):
    """FSDP1: the truth are the parts of all ranks, one after the other."""

    def __init__(self, kind: str) -> None:
        from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

        strategies = {"fsdp1-grad": ShardingStrategy.SHARD_GRAD_OP, "fsdp1-hybrid": ShardingStrategy.HYBRID_SHARD}
        options = {"use_orig_params": True, "device_id": torch.device("cpu"),
                   "sharding_strategy": strategies.get(kind, ShardingStrategy.FULL_SHARD)}
        self.sharers = WORLD
        if kind == "fsdp1-hybrid":
            self.sharers = WORLD // 2
            options["device_mesh"] = init_device_mesh("cpu", (2, self.sharers), mesh_dim_names=("replicate", "shard"))
        self.model = Model()
        self.shapes = {name: p.shape for name, p in self.model.named_parameters()}
        self.model.first = FullyShardedDataParallel(self.model.first, **options)
        self.model = FullyShardedDataParallel(self.model, **options)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        groups = [{"params": trained[:1]}, {"params": trained[1:], "lr": 3e-3}] if kind == "fsdp1-groups" else trained
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3)

    def full(self, name: str, param: torch.nn.Parameter, key: str) -> torch.Tensor:
        tensor = {"fp32": param, "grad": param.grad}.get(key)
        if tensor is None and param.numel() and key != "grad":
            tensor = self.optimizer.state[param][key]
        parts: list = [None] * WORLD
        dist.all_gather_object(parts, torch.empty(0) if tensor is None else tensor.detach().clone())
        mine = dist.get_rank() // self.sharers * self.sharers  # hybrid: this node's first
        return torch.cat(parts[mine:mine + self.sharers]).reshape(self.shapes[name.replace("_fsdp_wrapped_module.", "")])

    def truth(self, keys=()):
        return {(name.replace("_fsdp_wrapped_module.", ""), key): tensor
                for (name, key), tensor in super().truth(keys).items()}


class KernelsJob(TorchJob):
    """The forms that torch's optimizers have: a loop, foreach, fused; learning rates that are tensors."""

    def __init__(self, kind: str) -> None:
        self.model = torch.nn.parallel.DistributedDataParallel(Model())
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW([{"params": trained[:2]}, {"params": trained[2:]}], amsgrad=True,
                                           lr=torch.tensor(1e-3) if kind == "fused" else 1e-3, **{kind: True})


class OddModel(Model):
    """Tied, empty and unused parameters, one of no dimension, one of another dtype, and one with sparse gradients."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.tied = torch.nn.Linear(37, 53)
        self.tied.weight = self.first.weight
        self.empty = torch.nn.Parameter(torch.empty(0, 5))
        self.unused = torch.nn.Parameter(torch.ones(3))
        self.scale = torch.nn.Parameter(torch.tensor(1.5))
        self.narrow = torch.nn.Parameter(torch.ones(5, dtype=torch.bfloat16))
        self.table = torch.nn.Embedding(11, 3, sparse=sparse)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x + self.tied(x).mean()) * self.scale + self.table(torch.tensor([2, 7])).sum() + self.narrow.sum()


class OddJob(TorchJob):
    def __init__(self, kind: str) -> None:
        self.model = OddModel(kind == "odd-sparse")
        make = torch.optim.SGD if kind == "odd-sparse" else torch.optim.AdamW
        self.optimizer = make([p for p in self.model.parameters() if p.requires_grad], lr=1e-3)

    def truth(self, keys=()):
        held = {(name, key): {**self.optimizer.state[p], own: p, "grad": p.grad}.get(key)
                for name, p in self.model.named_parameters() if p.requires_grad and p.numel()
                for own in ("fp32" if p.dtype == torch.float32 else "bf16",) for key in keys or (own, "exp_avg")}
        return {at: tensor.detach().clone() for at, tensor in held.items()
                if tensor is not None and not tensor.is_sparse}


JOBS = {"odd-sparse": OddJob, "odd": OddJob, "zero-redundancy": RedundancyJob, "foreach": KernelsJob, "fused": KernelsJob,
        "fsdp1": FlatJob, "fsdp1-grad": FlatJob, "fsdp1-groups": FlatJob, "fsdp1-hybrid": FlatJob}

if __name__ == "__main__":
    main(sys.argv[1], JOBS.get(sys.argv[1], MeshJob))
