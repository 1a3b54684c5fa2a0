# SPDX-License-Identifier: Apache-2.0
"""One rank of jobs whose attachment is watched: untouched_job.py CASE...; a case of torch_job.py, or of deepspeed_job.py.

In attach(), in all that hooks call, and in detach() there is no collective, nor an op of torch on a DTensor or on what
requires a gradient; no tensor has another version, and autograd's graph, leaves and hooks are those that there were.
Exit status 0: all was right.
Environment: as for torch_job.py.
"""

import functools
import importlib
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from joined import open_joined
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_job import RANK, TorchJob

import fragfs
from fragfs.attachment import Attachment

calls: list[str] = []  # of fragfs, that were watched
ops: list[str] = []  # that ran inside them, and touch what they must not


class Watch(TorchDispatchMode):
    """Collectives are ops of other namespaces; an op on a DTensor may need one."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if op.namespace != "aten" or any(tensor.requires_grad or hasattr(tensor, "device_mesh") for tensor in tensors):
            ops.append(op.name())
        return op(*args, **(kwargs or {}))


def graph(tensor: torch.Tensor) -> list[str]:
    """The names of autograd's nodes below a tensor."""
    names, wanted, seen = [], [tensor.grad_fn], set()
    while wanted:
        node = wanted.pop()
        if node is not None and node not in seen:
            seen.add(node)
            names.append(node.name())
            wanted += [below for below, _ in node.next_functions]
    return sorted(names)


class Tensors:
    """All tensors of a job, and what autograd knows of them."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.params, self.optimizer = list(model.parameters()), optimizer

    def look(self) -> list[tuple[Any, ...]]:
        states = [value for state in self.optimizer.state.values() for value in state.values()
                  if isinstance(value, torch.Tensor)]
        masters = [p for group in self.optimizer.param_groups for p in group["params"]]
        grads = [p.grad for p in [*self.params, *masters] if p.grad is not None]
        return [(id(tensor), tensor._version, tensor.requires_grad, tensor.is_leaf, tensor.grad_fn,
                 len(tensor._backward_hooks or ()), len(tensor._post_accumulate_grad_hooks or ()))
                for tensor in (*self.params, *masters, *states, *grads)]


def watched(tensors: Tensors, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        is_trainer = threading.current_thread() is threading.main_thread()  # beside another thread tensors change
        calls.append(function.__name__)
        before = is_trainer and tensors.look()
        with Watch():
            result = function(*args, **kwargs)
        assert before == (is_trainer and tensors.look()), f"{function.__name__} {args[1:]} has changed tensors"
        return result
    return call


def run(case: str) -> None:
    if case[0].isdigit():
        deepspeed_job = importlib.import_module("deepspeed_job")
        job = deepspeed_job.Job(deepspeed_job.CASES[case])
        model, optimizer, things = job.engine.module, job.optimizer, (job.engine,)
    else:
        job = TorchJob(case)
        model, optimizer, things = job.model, job.optimizer, (job.model, job.optimizer)
    graphs: list[list[str]] = []
    model.register_forward_hook(lambda _, args, out: graphs.append(graph(out)))
    for _ in range(2):
        job.step()
    bare, tensors, guard = graphs[-1], Tensors(model, optimizer), Attachment._guard
    Attachment._guard = watched(tensors, guard)
    try:
        attachment = watched(tensors, fragfs.attach)(*things, strict=True)
        for _ in range(3):
            job.step()
        dist.barrier()
        mount = open_joined(attachment.address) if RANK == 0 else None
        for _ in range(3):  # where somebody reads, gradients are shown
            if mount:
                for name in mount:
                    for key in set(mount[name].states) - {"grad"}:
                        mount[name][key].bytes()
            dist.barrier()
            job.step()
        dist.barrier()
        if mount:
            mount.close()
        watched(tensors, attachment.detach)()
    finally:
        Attachment._guard = guard
    assert len(calls) > 20 and not ops, (len(calls), ops)
    assert bare and all(seen == bare for seen in graphs[1:]), graphs
    with Watch():
        dist.barrier()
    assert "c10d::barrier" in ops, ops  # a collective would have been seen
    ops.clear()
    calls.clear()


def main(cases: list[str]) -> None:
    torch.manual_seed(1234)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for case in cases:
        run(case)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
