# SPDX-License-Identifier: Apache-2.0
"""Any torch.optim optimizer: FSDP2 (DTensors), DDP, one process; each parameter is its own master."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import _libfrag
from .._job import Job
from .base import Adapter, Boundaries, Declared, Kept, Place, wrap_method


def _local(tensor: Any) -> Any:
    """This rank's piece of a DTensor; another tensor itself."""
    return tensor._local_tensor if hasattr(tensor, "_local_tensor") else tensor


def _is_master(p: Any) -> bool:
    return str(p.dtype) == "torch.float32"


class TorchAdapter(Adapter):
    def __init__(self, job: Job, model: Any, optimizer: Any) -> None:
        self.job, self.model, self.optimizer = job, model, optimizer
        self.names = {p: name.removeprefix("module.") for name, p in model.named_parameters()}
        self.members: list[tuple[int, list[tuple[int, Any]]]] = []  # group, (number, parameter) of each
        described = set()
        for options in optimizer.param_groups:
            params = [p for p in options["params"] if p.requires_grad]
            numbers = [self._param(p) for p in params]
            self.members.append((job.group(numbers, **self._layout(params)), list(zip(numbers, params))))
            described.update(params)
        self._here = {group: [(n, p) for n, p in members if _local(p).numel()] for group, members in self.members}
        for p, name in self.names.items():
            if p not in described:
                job.param(name, tuple(p.shape), p.dtype, lp=_local(p), frozen=True)

    def _param(self, p: Any) -> int:
        """A float32 parameter is its own master; another one has none, and is shown as what it is."""
        memory = {} if _is_master(p) else {"shard" if hasattr(p, "device_mesh") else "lp": _local(p)}
        return self.job.param(self._name(p), tuple(p.shape), p.dtype, **memory)

    def _name(self, p: Any) -> str:
        if p not in self.names:
            raise ValueError("the optimizer has a parameter that the model has not: attach(model, optimizer)")
        return self.names[p]

    def _layout(self, params: list[Any]) -> dict[str, Any]:
        meshes = {p.device_mesh for p in params if hasattr(p, "device_mesh")}
        if not meshes:
            return {"stage": 0}
        if len(meshes) > 1 or not all(hasattr(p, "device_mesh") for p in params):
            raise ValueError("a param group has parameters of several device meshes")
        for p in params:
            sharded = p.placements[-1]
            if not sharded.is_shard(0) or not all(other.is_replicate() for other in p.placements[:-1]):
                raise ValueError(f"{self.names[p]} has placements {p.placements}: only rows of dimension 0 are known")
        mesh = meshes.pop()
        shards = mesh.size(mesh.ndim - 1)
        return {"sharding": _libfrag.FRAG_FSDP2, "ranks": mesh.mesh.flatten().tolist(),
                "replicas": mesh.mesh.numel() // shards}

    def states(self) -> Iterator[tuple[Place, Kept]]:
        for group, here in self._here.items():
            yield Place(group, 0, "fp32"), Kept(
                "fragments", tuple((n, _local(p)) for n, p in here if _is_master(p)))
            by_key: dict[str, list[tuple[int, Any]]] = {}
            for n, p in here:
                for key, value in self.optimizer.state.get(p, {}).items():
                    if hasattr(value, "data_ptr") and value.dim() and value.shape == p.shape:
                        by_key.setdefault(key, []).append((n, _local(value)))
            for key, tensors in by_key.items():
                yield Place(group, 0, key), Kept("fragments", tuple(tensors))

    def shape_of_states(self) -> object:
        state = self.optimizer.state
        return id(state), len(state)

    def declared(self) -> Iterator[tuple[Place, Declared]]:
        for group, members in self._here.items():
            if members:
                yield (Place(group, 0, "grad"),
                       Declared("fragments", tuple(n for n, _ in members), members[0][1].dtype))

    def gradients(self, place: Place) -> Sequence[Any]:
        grads = [p.grad for _, p in self._here[place.group]]
        return [None if grad is None else _local(grad) for grad in grads]

    def param_groups(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield from zip((group for group, _ in self.members), self.optimizer.param_groups)

    def hook(self, boundaries: Boundaries) -> Callable[[], None]:
        """Gradients are valid from the optimizer's step on, until zero_grad or the next forward pass.

        A step that takes a closure begins where the closure, which computes the gradients, has ended.
        """
        import torch

        in_closure = False

        def begin() -> None:
            boundaries.grads_valid(1.0)
            boundaries.step_begin()

        def begin_after(closure: Callable[[], Any]) -> Callable[[], Any]:
            def wrapped() -> Any:
                nonlocal in_closure
                in_closure = True
                try:
                    result = closure()
                finally:
                    in_closure = False
                begin()
                return result
            return wrapped

        def before_step(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            """args: the optimizer, then what step() was given."""
            closure = args[1] if len(args) > 1 else kwargs.get("closure")
            if closure is None:
                begin()
                return None
            return (args[0], begin_after(closure)), {}

        def after_step(*_: Any) -> None:
            boundaries.step_end()

        def gone(*_: Any) -> None:
            if torch.compiler.is_compiling():  # the pass itself, which has no word of this then
                return
            if not in_closure:  # an exception has ended the step, and not after_step
                boundaries.step_end()
            boundaries.grads_gone()

        def before_zero(zero_grad: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                gone()
                return zero_grad(*args, **kwargs)
            return wrapped

        hooks = [self.optimizer.register_step_pre_hook(before_step),
                 self.optimizer.register_step_post_hook(after_step),
                 self.model.register_forward_pre_hook(gone)]
        undo = [wrap_method(self.optimizer, "zero_grad", before_zero),
                wrap_method(self.model, "zero_grad", before_zero)]

        def unhook() -> None:
            for hook in hooks:
                hook.remove()
            for one in undo:
                one()

        return unhook
