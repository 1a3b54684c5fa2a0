# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's optimizers: stage 0, ZeRO 1 to 3 and BF16_Optimizer; attributes as of 0.14 to 0.19."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .. import _libfrag
from .._job import Job
from .._log import say
from .base import Adapter, Boundaries, Declared, Fragments, Kept, Others, Place, partition_states, tensors_of, wrap_method
from .torch_optim import TorchAdapter

# What DeepSpeed calls between steps, on all ranks alike, and what gives states other values or other memory.
_LIKE_A_STEP = ("load_checkpoint", "offload_states", "reload_states")


def _ranks_of(group: Any) -> list[int] | None:
    """The global ranks of a process group; None: all."""
    import torch.distributed as dist

    return dist.get_process_group_ranks(group) if group is not None else None


def _coordinate(p: Any) -> str | None:
    """Ranks of an expert-parallel group have different experts under one name; None: it is the same on all."""
    if getattr(p, "allreduce", True):
        return None
    from deepspeed.utils import groups

    if groups._get_expert_parallel_world_size(p.group_name) == 1:
        return None
    return f"ep={groups._get_expert_parallel_rank(p.group_name)}"


def _is_on_nvme(p: Any) -> bool:
    """Whether this rank's piece of a parameter is in a file when nobody uses it."""
    location = getattr(p.ds_tensor, "final_location", None)
    return getattr(location, "value", location) == "nvme"


class _Engine(Adapter):
    """What all engines have: hooks."""

    engine: Any
    optimizer: Any

    def _loss_scale(self) -> float:
        scaler = getattr(self.engine, "torch_autocast_z0_gradscaler", None)
        if scaler:
            return float(scaler.get_scale())
        return float(getattr(self.optimizer, "loss_scale", 1) or 1)

    def shows_gradients(self) -> bool:
        is_managed = getattr(self.engine, "managed_gradient_accumulation", None)
        return not is_managed or bool(is_managed())

    def _are_reduced(self) -> bool:
        """Whether the backward pass that has ended was the last one before a step."""
        return not getattr(self.engine, "inside_no_sync_ctxt", False) and self.engine.is_gradient_accumulation_boundary()

    def hook(self, boundaries: Boundaries) -> Callable[[], None]:
        """Gradients are valid from the end of the last backward pass before a step on, until another one, or the step, begins,
        or what changes them in place before the step: a scaler, or the clipping of stage 0.
        """
        are_valid = False

        def gone() -> None:
            nonlocal are_valid
            if are_valid:
                are_valid = False
                boundaries.grads_gone()

        def before(method: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                gone()
                return method(*args, **kwargs)
            return wrapped

        def around(method: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                try:
                    boundaries.step_begin()  # raises what the handler of a signal does in a freeze, and nothing else
                    gone()
                    return method(*args, **kwargs)
                finally:
                    boundaries.step_end()
            return wrapped

        def around_changes(method: Callable[..., Any]) -> Callable[..., Any]:
            def changes(*args: Any, **kwargs: Any) -> Any:
                try:
                    return method(*args, **kwargs)
                finally:
                    boundaries.changed()
            return around(changes)

        def after_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                nonlocal are_valid
                gone()
                result = backward(*args, **kwargs)
                if self._are_reduced():
                    are_valid = True
                    boundaries.grads_valid(self._loss_scale())
                return result
            return wrapped

        if not self.shows_gradients():
            say("gradients are not shown: without managed_gradient_accumulation DeepSpeed reduces them in the step alone")
        # loss.backward() and engine.backward() both end in _backward_epilogue, where there is one.
        backward = "_backward_epilogue" if hasattr(self.engine, "_backward_epilogue") else "backward"
        undo = [wrap_method(self.optimizer, "step", around), wrap_method(self.engine, backward, after_backward)]
        changing = ((self.engine, "_backward_prologue"), (self.engine, "clip_fp32_gradients"),
                    (getattr(self.engine, "torch_autocast_z0_gradscaler", None), "unscale_"))
        undo += [wrap_method(thing, name, before) for thing, name in changing if hasattr(thing, name)]
        undo += [wrap_method(self.engine, name, around_changes) for name in _LIKE_A_STEP if hasattr(self.engine, name)]

        def unhook() -> None:
            for one in undo:
                one()

        return unhook


class Plain(_Engine, TorchAdapter):
    """Stage 0 without a master apart from the parameters: torch's own optimizer."""

    def __init__(self, job: Job, engine: Any) -> None:
        self.engine = engine
        TorchAdapter.__init__(self, job, engine.module, engine.optimizer)


class _DeepSpeed(_Engine):
    def __init__(self, job: Job, engine: Any) -> None:
        self.job, self.engine, self.model, self.optimizer = job, engine, engine.module, engine.optimizer
        self.names = {p: name for name, p in engine.module.named_parameters()}
        self.numbers: dict[Any, int] = {}  # parameter -> its number
        self.groups: list[int] = []
        self._describe()
        others = [p for p in self.names if p not in self.numbers]
        self._describe_others(others)
        numbers = {p: self.numbers.pop(p) for p in others}
        self._others = Others(self.model, numbers)
        self.numbers.update(numbers)  # those that were not found
        for p in others:
            del self.names[p]

    def let_go(self) -> None:
        self.names.clear()
        self.numbers.clear()
        self._others = Others(None, {})

    def _describe(self) -> None:
        raise NotImplementedError

    def _describe_others(self, params: Sequence[Any]) -> None:
        """Those that the optimizer has not."""
        for p in params:
            if p.requires_grad and getattr(p, "ds_numel", p.numel()):
                say(f"{self.names[p]} has gradients, but the optimizer does not have it, as if it had come after "
                    "deepspeed.initialize: its value alone is shown")
            self._param(p, frozen=True)

    def _param(self, p: Any, **options: Any) -> int:
        if p not in self.names:
            raise ValueError("the optimizer has a parameter that the engine's module has not")
        if not p.is_contiguous():
            say(f"{self.names[p]} is not contiguous (channels_last?): its values are not shown")
        self.numbers[p] = self.job.param(self.names[p], getattr(p, "ds_shape", p.shape), p.dtype,
                                         coordinate=_coordinate(p), **options)
        return self.numbers[p]

    def _numbers(self, params: Sequence[Any]) -> array[int]:
        return array("i", [self.numbers[p] for p in params])

    def lps(self) -> Iterator[tuple[int, bool, Any]]:
        for p, number in self.numbers.items():
            yield number, False, p
        for number, p in self._others.now():
            yield number, False, p

    def _flat_states(self, group: int, sub: int, flat: Any) -> Iterator[tuple[Place, Kept]]:
        """The master of one partition, and the optimizer's states of it."""
        yield Place(group, sub, "fp32"), Kept("partition", [flat])
        for key, value in partition_states(self._inner(), flat):
            if not key.endswith("_offload_buffer"):  # the memory of an offloaded state, under a second key
                yield Place(group, sub, key), Kept("partition", [value])

    def _inner(self) -> Any:
        """The torch optimizer that DeepSpeed's is around."""
        return self.optimizer.optimizer

    def state(self) -> Mapping[Any, Any]:
        return self._inner().state

    def param_groups(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield from zip(self.groups, self._inner().param_groups)


class Stage0(_DeepSpeed):
    """FP16_UnfusedOptimizer and FP16_Optimizer: each rank has all masters, apart from the parameters."""

    def _describe(self) -> None:
        for params in self.optimizer.fp16_groups:
            self.groups.append(self.job.group([self._param(p) for p in params], stage=0,
                                              ranks=_ranks_of(self._sharers(params))))

    def _sharers(self, params: Sequence[Any]) -> Any:
        """The process group of the ranks that have these parameters."""
        from deepspeed.utils import groups

        if params and _coordinate(params[0]):
            return groups._get_expert_data_parallel_group(params[0].group_name)
        return self.engine.seq_data_parallel_group

    def states(self) -> Iterator[tuple[Place, Kept]]:
        for number, group in enumerate(self.groups):
            if hasattr(self.optimizer, "fp32_groups_flat"):
                yield from self._flat_states(group, 0, self.optimizer.fp32_groups_flat[number])
            else:
                yield from self._own_states(number, group)

    def addresses(self) -> list[int]:
        masters = getattr(self.optimizer, "fp32_groups_flat", None) or [group[0] for group in self.optimizer.fp32_groups if group]
        return [master.data_ptr() for master in masters]

    def _own_states(self, number: int, group: int) -> Iterator[tuple[Place, Kept]]:
        """Of masters that are tensors of their own."""
        fragments = Fragments()
        for p, master in zip(self.optimizer.fp16_groups[number], self.optimizer.fp32_groups[number]):
            for key, value in (("fp32", master), *tensors_of(self._inner().state.get(master, {}))):
                if value.shape == master.shape and value.numel():
                    fragments.add(key, self.numbers[p], value)
        yield from fragments.of(group)

    def _members(self, group: int) -> list[Any]:
        return [p for p in self.optimizer.fp16_groups[self.groups.index(group)] if p.numel()]

    def declared(self) -> Iterator[tuple[Place, Declared]]:
        for group in self.groups:
            params = self._members(group)
            if params:
                yield Place(group, 0, "grad"), Declared("fragments", self._numbers(params), params[0].dtype)

    def gradients(self, place: Place) -> Sequence[Any]:
        return [p.grad for p in self._members(place.group)]


class Zero12(_DeepSpeed):
    """DeepSpeedZeroOptimizer, stages 1 and 2."""

    def _describe(self) -> None:
        o = self.optimizer
        for number, params in enumerate(o.bit16_groups):
            numbers = [self._param(p) for p in params]
            group = self.job.group(
                numbers, stage=2 if o.partition_gradients else 1,
                ranks=_ranks_of(o.real_dp_process_group[number]),
                flags=((_libfrag.FRAG_ROUND_ROBIN if o.round_robin_gradients else 0) |
                       (_libfrag.FRAG_ALIGNED if getattr(o, "parameter_alignment", False) else 0)))
            have, want = self.job.partition_numel(group, 0), o.single_partition_of_fp32_groups[number].numel()
            if have != want:
                raise ValueError(f"group {number}: DeepSpeed's partition has {want} elements, libfrag's {have}")
            self.groups.append(group)

    def addresses(self) -> list[int]:
        o = self.optimizer
        return [flat.data_ptr() for flat in (*o.bit16_groups_flat,  # which the parameters are views of
                                             *o.single_partition_of_fp32_groups)]

    def states(self) -> Iterator[tuple[Place, Kept]]:
        o = self.optimizer
        for number, group in enumerate(self.groups):
            flat = o.single_partition_of_fp32_groups[number]
            yield from self._flat_states(group, 0, flat)
            if o.cpu_offload and flat.grad is not None:
                yield Place(group, 0, "grad"), Kept("partition", [flat.grad])

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
                yield Place(group, 0, "grad"), Declared("partition", array("i"), dtype)
            elif params:
                yield Place(group, 0, "grad"), Declared("fragments", self._numbers(params), dtype)

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
            group = self.job.group([self._param(p) for p in params], stage=1,
                                   ranks=_ranks_of(o.real_dp_process_group[number]))
            self.groups.append(group)

    def addresses(self) -> list[int]:
        return [flat.data_ptr() for flat in self.optimizer.fp32_groups_flat_partition]

    def states(self) -> Iterator[tuple[Place, Kept]]:
        o = self.optimizer
        for number, group in enumerate(self.groups):
            flat = o.fp32_groups_flat_partition[number]
            yield from self._flat_states(group, 0, flat)
            yield Place(group, 0, "grad"), Kept("whole", [o.fp32_groups_gradients_flat[number]])


class Zero3(_DeepSpeed):
    """DeepSpeedZeroOptimizer_Stage3: param groups in sub-groups."""

    def _describe(self) -> None:
        o = self.optimizer
        self.subs: list[tuple[int, int, int, int]] = []  # DeepSpeed's number, group, sub, offset in the gradients
        self.sources: list[int] = []  # of each group, the number in the optimizer
        of_group: dict[tuple[int, Any], list[int]] = {}
        starts, at = [], 0
        for sub, params in enumerate(o.fp16_groups):
            sharers = getattr(params[0], "ds_process_group", o.dp_process_group)  # those of experts are others
            of_group.setdefault((o.sub_group_to_group_id[sub], sharers), []).append(sub)
            starts.append(at)
            at += sum(p.partition_numel() for p in params)
        for (source, sharers), subs in of_group.items():
            numbers = [self._param(p) for sub in subs for p in o.fp16_groups[sub]]
            group = self.job.group(numbers, stage=3, sub_group_size=int(o.sub_group_size or 0),
                                   ranks=_ranks_of(sharers))
            if self.job.sub_groups(group) != len(subs):
                raise ValueError(f"DeepSpeed has {len(subs)} sub-groups, libfrag {self.job.sub_groups(group)}")
            self.groups.append(group)
            self.sources.append(source)
            self.subs += [(sub, group, index, starts[sub]) for index, sub in enumerate(subs)]
        if any(self._is_swapped(sub) for sub, *_ in self.subs):
            say("masters, optimizer states and gradients on NVMe are not shown")
        if any(_is_on_nvme(p) for p in self.numbers):
            say("low-precision values on NVMe are not shown")

    def _describe_others(self, params: Sequence[Any]) -> None:
        """They are cut like the others, of which libfrag learns by a group."""
        super()._describe_others(params)
        cut = [self.numbers[p] for p in params if hasattr(p, "ds_id")]
        if cut:
            self.job.group(cut, stage=3, ranks=_ranks_of(self.optimizer.dp_process_group))

    def lps(self) -> Iterator[tuple[int, bool, Any]]:
        for p, number in self.numbers.items():
            yield from self._lps(number, p)
        for number, p in self._others.now():
            if p is None:
                yield number, True, None
                yield number, False, None
            else:
                yield from self._lps(number, p)

    @staticmethod
    def _lps(number: int, p: Any) -> Iterator[tuple[int, bool, Any]]:
        if not hasattr(p, "ds_id"):
            yield number, False, p
            return
        yield number, True, None if _is_on_nvme(p) else p.ds_tensor
        if p.ds_persist:  # each rank has all of it, which no step gathers again
            yield number, False, p

    def addresses(self) -> list[int]:
        o = self.optimizer
        return [tensor.data_ptr() for tensor in (*(params[0].ds_tensor for params in o.fp16_groups), *o.persistent_parameters,
                                                 *(() if o.swap_optimizer else o.fp32_partitioned_groups_flat))]

    def param_groups(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for group, source in zip(self.groups, self.sources):
            yield group, self._inner().param_groups[source]

    def states(self) -> Iterator[tuple[Place, Kept]]:
        o = self.optimizer
        for sub, group, index, start in self.subs:
            flat = o.fp32_partitioned_groups_flat[sub]
            if self._is_swapped(sub):
                continue
            yield from self._flat_states(group, index, flat)
            grad = flat.grad if o.offload_optimizer else o.grad_partitions_flat_buffer.narrow(0, start, flat.numel())
            if grad is not None:
                yield Place(group, index, "grad"), Kept("partition", [grad])

    def _is_swapped(self, sub: int) -> bool:
        """Whether a sub-group is on NVMe, and visits memory inside a step alone."""
        return bool(self.optimizer.swap_optimizer and self.optimizer._swappable_optimizer_subgroup(sub))


_ADAPTERS = {"DeepSpeedZeroOptimizer": Zero12, "DeepSpeedZeroOptimizer_Stage3": Zero3, "BF16_Optimizer": Bf16,
             "FP16_UnfusedOptimizer": Stage0, "FP16_Optimizer": Stage0}


def adapter_for_engine(job: Job, engine: Any) -> Adapter:
    """TypeError: no adapter knows the engine's optimizer."""
    name = type(engine.optimizer).__name__
    if engine.optimizer is None:
        raise TypeError("the DeepSpeedEngine has no optimizer")
    if name in _ADAPTERS:
        return _ADAPTERS[name](job, engine)
    if hasattr(engine.optimizer, "register_step_pre_hook"):
        return Plain(job, engine)
    raise TypeError(f"DeepSpeed's {name} is not known to fragfs")
