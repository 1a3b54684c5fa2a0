# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's optimizers: ZeRO 1 to 3 and BF16_Optimizer; attributes as of 0.14 to 0.19."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import _libfrag
from .._job import Job
from .base import Adapter, Boundaries, Declared, Kept, Place, partition_states, wrap_method


def _ranks_of(group: Any) -> list[int] | None:
    """The global ranks of a process group; None: all."""
    import torch.distributed as dist

    return dist.get_process_group_ranks(group) if group is not None else None


class _DeepSpeed(Adapter):
    def __init__(self, job: Job, engine: Any) -> None:
        self.job, self.engine, self.optimizer = job, engine, engine.optimizer
        self.names = {p: name for name, p in engine.module.named_parameters()}
        self.numbers: dict[Any, int] = {}  # parameter -> its number
        self.groups: list[int] = []
        self._describe()
        for p, name in self.names.items():
            if p not in self.numbers:
                whole = None if hasattr(p, "ds_id") else p
                self.numbers[p] = job.param(name, getattr(p, "ds_shape", p.shape), p.dtype, lp=whole, frozen=True)

    def _describe(self) -> None:
        raise NotImplementedError

    def _param(self, p: Any, **memory: Any) -> int:
        shape = getattr(p, "ds_shape", p.shape)
        self.numbers[p] = self.job.param(self.names[p], shape, p.dtype, **memory)
        return self.numbers[p]

    def _flat_states(self, group: int, sub: int, flat: Any) -> Iterator[tuple[Place, Kept]]:
        """The master of one partition, and the optimizer's states of it."""
        yield Place(group, sub, "fp32"), Kept("partition", ((-1, flat),))
        for key, value in partition_states(self._inner(), flat):
            yield Place(group, sub, key), Kept("partition", ((-1, value),))

    def _inner(self) -> Any:
        """The torch optimizer that DeepSpeed's is around."""
        return self.optimizer.optimizer

    def shape_of_states(self) -> object:
        state = self._inner().state
        return id(state), len(state)

    def param_groups(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield from zip(self.groups, self._inner().param_groups)

    def _loss_scale(self) -> float:
        return float(getattr(self.optimizer, "loss_scale", 1) or 1)

    def hook(self, boundaries: Boundaries) -> Callable[[], None]:
        def around_step(step: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                boundaries.step_begin()
                boundaries.grads_gone()
                try:
                    return step(*args, **kwargs)
                finally:
                    boundaries.step_end()
            return wrapped

        def after_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                result = backward(*args, **kwargs)
                if self.engine.is_gradient_accumulation_boundary():
                    boundaries.grads_valid(self._loss_scale())
                return result
            return wrapped

        # loss.backward() and engine.backward() both end in _backward_epilogue, where there is one.
        backward = "_backward_epilogue" if hasattr(self.engine, "_backward_epilogue") else "backward"
        undo = [wrap_method(self.optimizer, "step", around_step),
                wrap_method(self.engine, backward, after_backward)]

        def unhook() -> None:
            for one in undo:
                one()

        return unhook


class Zero12(_DeepSpeed):
    """DeepSpeedZeroOptimizer, stages 1 and 2."""

    def _describe(self) -> None:
        o = self.optimizer
        for number, params in enumerate(o.bit16_groups):
            numbers = [self._param(p, lp=p) for p in params]
            group = self.job.group(
                numbers, stage=2 if o.partition_gradients else 1,
                ranks=_ranks_of(o.real_dp_process_group[number]),
                flags=((_libfrag.FRAG_ROUND_ROBIN if o.round_robin_gradients else 0) |
                       (_libfrag.FRAG_ALIGNED if getattr(o, "parameter_alignment", False) else 0)))
            have, want = self.job.partition_numel(group, 0), o.single_partition_of_fp32_groups[number].numel()
            if have != want:
                raise ValueError(f"group {number}: DeepSpeed's partition has {want} elements, libfrag's {have}")
            self.groups.append(group)

    def states(self) -> Iterator[tuple[Place, Kept]]:
        o = self.optimizer
        for number, group in enumerate(self.groups):
            flat = o.single_partition_of_fp32_groups[number]
            yield from self._flat_states(group, 0, flat)
            if o.cpu_offload and flat.grad is not None:
                yield Place(group, 0, "grad"), Kept("partition", ((-1, flat.grad),))

    def _has_compact_grads(self, number: int) -> bool:
        """Whether a group's gradients are views of one buffer as large as the partition."""
        compact = getattr(self.optimizer, "_use_compact_grad_partition_buffer", None)
        return bool(compact and compact(number))

    def declared(self) -> Iterator[tuple[Place, Declared]]:
        o = self.optimizer
        for number, group in enumerate(self.groups if not o.cpu_offload else ()):
            params = o.params_in_partition[number]
            dtype = getattr(o, "gradient_accumulation_dtype", params[0].dtype if params else None)
            if params and self._has_compact_grads(number):
                yield Place(group, 0, "grad"), Declared("partition", (), dtype)
            elif params:
                yield Place(group, 0, "grad"), Declared("fragments", tuple(self.numbers[p] for p in params), dtype)

    def gradients(self, place: Place) -> Sequence[Any]:
        number = self.groups.index(place.group)
        grads = self.optimizer.averaged_gradients.get(number)
        if not self._has_compact_grads(number):
            wanted = len(self.optimizer.params_in_partition[number])
            grads = [grad for grad in grads or () if not hasattr(grad, "_zero_padding")]  # between, of alignment
            return grads[:wanted] if grads else [None] * wanted  # padding may follow, too
        return [(grads[0] if grads[0]._base is None else grads[0]._base) if grads else None]


class Bf16(_DeepSpeed):
    """BF16_Optimizer: the partitions of stage 1, and gradients that each rank has whole."""

    def _describe(self) -> None:
        o = self.optimizer
        for number, params in enumerate(o.bf16_groups):
            group = self.job.group([self._param(p, lp=p) for p in params], stage=1,
                                   ranks=_ranks_of(o.real_dp_process_group[number]))
            self.groups.append(group)

    def states(self) -> Iterator[tuple[Place, Kept]]:
        o = self.optimizer
        for number, group in enumerate(self.groups):
            flat = o.fp32_groups_flat_partition[number]
            yield from self._flat_states(group, 0, flat)
            yield Place(group, 0, "grad"), Kept("whole", ((-1, o.fp32_groups_gradients_flat[number]),))


class Zero3(_DeepSpeed):
    """DeepSpeedZeroOptimizer_Stage3: param groups in sub-groups."""

    def _describe(self) -> None:
        o = self.optimizer
        self.subs: list[tuple[int, int, int, int]] = []  # DeepSpeed's number, group, sub, offset in the gradients
        of_group: dict[int, list[int]] = {}
        for sub in range(len(o.fp16_groups)):
            of_group.setdefault(o.sub_group_to_group_id[sub], []).append(sub)
        starts, at = [], 0
        for params in o.fp16_groups:
            starts.append(at)
            at += sum(p.partition_numel() for p in params)
        for _, subs in sorted(of_group.items()):
            numbers = [self._param(p, shard=p.ds_tensor) for sub in subs for p in o.fp16_groups[sub]]
            group = self.job.group(numbers, stage=3, sub_group_size=int(o.sub_group_size or 0),
                                   ranks=_ranks_of(o.dp_process_group))
            if self.job.sub_groups(group) != len(subs):
                raise ValueError(f"DeepSpeed has {len(subs)} sub-groups, libfrag {self.job.sub_groups(group)}")
            self.groups.append(group)
            self.subs += [(sub, group, index, starts[sub]) for index, sub in enumerate(subs)]

    def states(self) -> Iterator[tuple[Place, Kept]]:
        o = self.optimizer
        for sub, group, index, start in self.subs:
            flat = o.fp32_partitioned_groups_flat[sub]
            if flat is None:  # on NVMe, in DeepSpeed's own files
                continue
            yield from self._flat_states(group, index, flat)
            grad = flat.grad if o.offload_optimizer else o.grad_partitions_flat_buffer.narrow(0, start, flat.numel())
            if grad is not None:
                yield Place(group, index, "grad"), Kept("partition", ((-1, grad),))


_ADAPTERS = {"DeepSpeedZeroOptimizer": Zero12, "DeepSpeedZeroOptimizer_Stage3": Zero3, "BF16_Optimizer": Bf16}


def adapter_for_engine(job: Job, engine: Any) -> Adapter:
    """TypeError: no adapter knows the engine's optimizer."""
    name = type(engine.optimizer).__name__
    if name in _ADAPTERS:
        return _ADAPTERS[name](job, engine)
    if hasattr(engine.optimizer, "register_step_pre_hook"):  # stage 0 in float32: torch's own
        from .torch_optim import TorchAdapter

        return TorchAdapter(job, engine.module, engine.optimizer)
    raise TypeError(f"DeepSpeed's {name} is not known to fragfs")
