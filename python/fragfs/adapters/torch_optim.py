# SPDX-License-Identifier: Apache-2.0
"""Any torch.optim optimizer: DTensors (FSDP2, tensor parallelism), DDP, ZeroRedundancyOptimizer, one process.

Each parameter is its own master.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import combinations, islice
from math import prod
from typing import Any, NamedTuple

from .. import _libfrag
from .._job import Job
from .._log import say
from . import _is, _names
from .base import Adapter, Boundaries, Declared, Fragments, HereOnly, Kept, Others, Place, kind_of, tensors_of, wrap_method

_FEW = 16  # parameters: each step compares the addresses of all
_WRAPPERS = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")


def _local(tensor: Any) -> Any:
    """This rank's piece of a DTensor; another tensor itself."""
    return tensor._local_tensor if hasattr(tensor, "_local_tensor") else tensor


def _is_master(p: Any) -> bool:
    return str(p.dtype) == "torch.float32"


def _computes_in_gradients(options: Mapping[str, Any]) -> bool:
    """Whether torch's SGD adds the momentum to the gradients themselves, as its foreach form does, which it takes on devices."""
    if not options.get("nesterov") or any(map(options.get, ("weight_decay", "maximize", "fused"))):
        return False
    foreach = options.get("foreach")
    return foreach or foreach is None and any(p.device.type != "cpu" for p in options["params"][:1])


def _is_running(function: Any) -> bool:
    """Whether a thread is within a function."""
    code = getattr(function, "__code__", None)
    for frame in sys._current_frames().values():
        at: Any = frame
        while at is not None:
            if at.f_code is code:
                return True
            at = at.f_back
    return False


def _prefix(model: Any) -> str:
    """What the wrappers around a whole model, in any order, put before its parameters' names."""
    child = next((name for name in _WRAPPERS if name in model._modules), None)
    if any(kind.__name__ in ("DistributedDataParallel", "DataParallel") for kind in type(model).__mro__):
        child = "module"
    return f"{child}.{_prefix(model._modules[child])}" if child else ""


def _plain_names(model: Any) -> Iterator[tuple[str, Any]]:
    """The parameters by their names without what DDP, FSDP and torch.compile have put in."""
    prefix = _prefix(model)
    for name, p in model.named_parameters():
        yield ".".join(part for part in name.removeprefix(prefix).split(".") if part not in _WRAPPERS), p


class _Layout(NamedTuple):
    """How a parameter lies on ranks: those with equal ones, but for the cuts, can be one group of libfrag's."""

    ranks: tuple[int, ...] | None
    replicas: int
    sharding: int
    alignment: int = 0
    unit: int = 0  # of FSDP1
    dtype: Any = None  # a state of a group has one


def _cut_order(dims: Sequence[tuple[int, int, int | None]]) -> list[int]:
    """The order in which mesh dimensions cut one dimension of a tensor.

    dims: (mesh dimension, its size, split factor of _StridedShard, or None), from left to right.  As DTensor
    says, a strided one cuts behind those to its right that make so many parts, another one before all these.
    """
    order: list[tuple[int, int]] = []
    for mesh_dim, size, factor in reversed(dims):
        at = 0
        if factor is not None:
            at = next((n for n in range(len(order) + 1) if prod(s for _, s in order[:n]) == factor), -1)
        if at < 0:
            raise ValueError(f"a split factor of {factor} is not that of a mesh dimension")
        order.insert(at, (mesh_dim, size))
    return [mesh_dim for mesh_dim, _ in order]


def _cuts(p: Any) -> list[tuple[int, int]]:
    """(mesh dimension, dimension of the tensor) of each cut of a DTensor, in order."""
    by_dim: dict[int, list[tuple[int, int, int | None]]] = {}
    for mesh_dim, placement in enumerate(p.placements):
        if placement.is_partial():
            raise ValueError(f"placements {p.placements}: a partial sum is no value")
        if not placement.is_replicate():
            by_dim.setdefault(placement.dim % p.dim(), []).append(
                (mesh_dim, p.device_mesh.size(mesh_dim), getattr(placement, "split_factor", None)))
    return [(mesh_dim, dim) for dim, dims in sorted(by_dim.items()) for mesh_dim in _cut_order(dims)]


def _dims_within(mesh: Any, whole: Any) -> tuple[int, ...] | None:
    """The dimensions of `whole` that are the mesh's: tensors of ranks, the mesh being a part of `whole`."""
    here = (whole == mesh.flatten()[0]).nonzero().tolist()
    for dims in combinations(range(whole.dim()), mesh.dim()) if here else ():
        at = tuple(slice(None) if dim in dims else here[0][dim] for dim in range(whole.dim()))
        if whole[at].shape == mesh.shape and bool((whole[at] == mesh).all()):
            return dims
    return None


class TorchAdapter(Adapter):
    def __init__(self, job: Job, model: Any, optimizer: Any) -> None:
        self.job, self.model, self.optimizer = job, model, optimizer
        self.names = {p: name for name, p in _plain_names(model)}
        self.numbers: dict[Any, int] = {}
        self.groups: list[tuple[int, int]] = []  # its number, and the place among the optimizer's param groups
        self._here: dict[int, tuple[array[int], list[Any]]] = {}  # the parameters with elements on this rank
        self._lps: tuple[array[int], list[Any]] = array("i"), []  # those without a master; once all are described, that are held here
        self._has_said: set[str] = set()  # of what a line has said that it is not shown
        meshes = [p.device_mesh.mesh for p in self.names if hasattr(p, "device_mesh")]
        self._mesh = max(meshes, key=lambda mesh: mesh.numel(), default=None)
        frozen = [p for p in self.names if not p.requires_grad and hasattr(p, "device_mesh")]
        for place, inner in enumerate(self._inner().param_groups):
            by_layout = self._describe([p for p in inner["params"] if p.requires_grad])
            for p in frozen:
                layout, cuts = self._layout(p)
                if layout in by_layout and p not in self.numbers:
                    self._param(p, cuts)
                    by_layout[layout].append(p)
            self.groups += [(self._group(*members), place) for members in by_layout.items()]
        others = [p for p in self.names if p not in self.numbers and self._is_shown(p)]
        trained = [self.names[p] for p in others if p.requires_grad]
        if trained:
            more = f" and {len(trained) - 1} more" if len(trained) > 1 else ""
            say(f"parameters with gradients that the optimizer does not have: {trained[0]}{more}; their values alone are shown")
        for members in self._describe([p for p in others if self._is_cut(p)]).items():
            self._group(*members)
        for p in others:
            if p not in self.numbers:
                self._add_param(p, frozen=True, has_master=False)
        self._say_what_is_odd()
        self._has_few = len(self.names) <= _FEW
        self.names.clear()  # a model has tens of thousands
        self.numbers.clear()
        self._let_go_of_others()
        self._few = list(islice(self._held(), _FEW if self._has_few else 1))
        self._frozen = [p for p in self._held() if not p.requires_grad]
        self._count, self._known = self._count_params(), self._hash_params()

    # ---- where an optimizer of another kind differs ----

    def _inner(self) -> Any:
        """The optimizer that has this rank's states, and their parameters."""
        return self.optimizer

    def _unit(self, p: Any) -> Sequence[Any]:
        """The parameters that make one group with p, in order, whatever param groups they are in."""
        return (p,)

    def _is_cut(self, p: Any) -> bool:
        return hasattr(p, "device_mesh")

    def _is_shown(self, p: Any) -> bool:
        """Whether this rank describes a parameter that its optimizer has not."""
        return True

    def _plain_layout(self, p: Any) -> _Layout:
        """Of a parameter that is no DTensor: all ranks have it, or all of the mesh that others are on."""
        return _Layout(None if self._mesh is None else tuple(self._mesh.flatten().tolist()), 0, _libfrag.FRAG_ZERO,
                       dtype=p.dtype)

    def _say_what_is_odd(self) -> None:
        pass

    # ---- describing ----

    def _describe(self, params: Sequence[Any]) -> dict[_Layout, list[Any]]:
        """The parameters by layouts, each of which is to be a group."""
        by_layout: dict[_Layout, list[Any]] = {}
        for p in [member for p in params for member in self._unit(p)]:
            if p in self.numbers:
                continue
            if p not in self.names:
                raise ValueError("the optimizer has a parameter that the model has not: attach(model, optimizer)")
            layout, cuts = self._layout(p)
            self._param(p, cuts)
            by_layout.setdefault(layout, []).append(p)
        return by_layout

    def _group(self, layout: _Layout, members: Sequence[Any]) -> int:
        group = self.job.group([self.numbers[p] for p in members], stage=0, sharding=layout.sharding,
                               ranks=layout.ranks, replicas=layout.replicas, alignment=layout.alignment)
        here = [p for p in members if _local(p).numel() and
                (p.requires_grad or layout.sharding == _libfrag.FRAG_FSDP1)]
        numbers = array("i", [self.numbers[p] for p in here])
        self._here[group] = numbers, here
        for number, p in zip(numbers, here):
            if self.job.numel(number) != _local(p).numel():
                raise ValueError(f"{self.names[p]} has {_local(p).numel()} elements on this rank, "
                                 f"libfrag counts {self.job.numel(number)}")
        return group

    def _param(self, p: Any, cuts: Sequence[tuple[int, int]]) -> None:
        """A float32 parameter is its own master; another one has none, and is shown as what it is."""
        self._add_param(p, not p.requires_grad, _is_master(p) and p.requires_grad, cuts)

    def _add_param(self, p: Any, frozen: bool, has_master: bool, cuts: Sequence[tuple[int, int]] = ()) -> None:
        number = self.numbers[p] = self.job.param(self.names[p], tuple(p.shape), p.dtype, cuts=cuts, frozen=frozen)
        if not has_master:
            self._lps[0].append(number)
            self._lps[1].append(p)

    def _held(self) -> Iterator[Any]:
        """The parameters of groups that have states here."""
        return (p for _, here in self._here.values() for p in here)

    def _let_go_of_others(self) -> None:
        """Those that FSDP2 has cut it holds itself, and puts whole ones in their places at times."""
        has_fsdp2 = self._mesh is not None and any(_is(module, "torch", "FSDPModule") for module in self.model.modules())
        numbers, params = self._lps
        held = set(self._held()) if params else ()
        others = {p: number for number, p in zip(numbers, params) if p not in held and not (has_fsdp2 and hasattr(p, "device_mesh"))}
        self._cut_others = {number for p, number in others.items() if hasattr(p, "device_mesh")}
        self._others = Others(self.model, others)
        not_held = set(self._others.numbers)
        params = [p for number, p in zip(numbers, params) if number not in not_held]
        self._lps = array("i", [number for number in numbers if number not in not_held]), params
        self._lp_kinds = array("q", map(kind_of, params))

    def _layout(self, p: Any) -> tuple[_Layout, list[tuple[int, int]]]:
        if not hasattr(p, "device_mesh"):
            return self._plain_layout(p), []
        try:
            cuts = _cuts(p)
        except ValueError as e:
            raise ValueError(f"{self.names[p]}: {e}") from None
        mesh, dims = p.device_mesh.mesh, tuple(range(p.device_mesh.ndim))
        within = _dims_within(mesh, self._mesh)
        if within is not None:  # ranks along the other dimensions have the same
            mesh, dims = self._mesh, within
        sharded = [dims[mesh_dim] for mesh_dim, _ in cuts]
        copies = [dim for dim in range(mesh.dim()) if dim not in sharded]
        ranks = mesh.permute(copies + sharded).flatten().tolist()
        parts = [(dim, mesh.shape[at]) for at, (_, dim) in zip(sharded, cuts)]
        replicas = prod(mesh.shape[dim] for dim in copies)
        if len(parts) == 1 and parts[0][0] == 0 and p.shape[0] % parts[0][1] == 0:
            parts = []  # plain rows
        return _Layout(tuple(ranks), replicas, _libfrag.FRAG_FSDP2, dtype=p.dtype), parts

    # ---- what there is now ----

    def states(self) -> Iterator[tuple[Place, Kept]]:
        state = self._inner().state
        for group, (numbers, here) in self._here.items():
            fragments = Fragments()
            for number, p in zip(numbers, here):
                if _is_master(p) and self._lies_as(p, "fp32", p):
                    fragments.add("fp32", number, _local(p))
                for key, value in tensors_of(state.get(p, {})):
                    if value.shape == p.shape and self._lies_as(p, key, value):
                        fragments.add(key, number, _local(value))
            yield from fragments.of(group)

    def state(self) -> Mapping[Any, Any]:
        return self._inner().state

    def declared(self) -> Iterator[tuple[Place, Declared]]:
        for group, (numbers, here) in self._here.items():
            if here:
                yield Place(group, 0, "grad"), Declared("fragments", numbers, here[0].dtype)

    def gradients(self, place: Place) -> Sequence[Any]:
        """A sparse gradient has no memory of the parameter's shape, and is not shown."""
        here = self._here[place.group][1]
        return [_local(grad) if grad is not None and not grad.is_sparse and self._lies_as(p, "grad", grad) else None
                for p, grad in zip(here, [p.grad for p in here])]

    def _lies_as(self, p: Any, key: str, value: Any) -> bool:
        """Whether a value, a gradient or a state lies in memory as its parameter is described: placed as that is, and contiguous.
        A sum that is not reduced (Partial), which the optimizer reduces, is not, nor what is channels_last; a line says once that
        it is not shown.
        """
        if self._mesh is not None and hasattr(value, "placements") and value.placements != p.placements:
            self._say_once(key, p, lambda name: f"{key} of {name} is placed as {value.placements}, {name} itself as {p.placements}: "
                                                f"{key} of such parameters is not shown")
            return False
        if _local(value).is_contiguous():
            return True
        self._say_once("", p, lambda name: f"{key} of {name} is not contiguous (channels_last?): such values are not shown")
        return False

    def _say_once(self, what: str, p: Any, line: Callable[[str], str]) -> None:
        if what not in self._has_said:
            self._has_said.add(what)
            say(line(next((name for name, other in _plain_names(self.model) if other is p), "a parameter")))

    def lps(self) -> Iterator[tuple[int, bool, Any]]:
        for number, p, kind in zip(*self._lps, self._lp_kinds):
            is_shown = kind_of(p) == kind and self._lies_as(p, "the value", p)
            yield number, hasattr(p, "device_mesh"), _local(p) if is_shown else None
        for number, p in self._others.now():
            yield number, number in self._cut_others, _local(p) if p is not None and self._lies_as(p, "the value", p) else None

    def addresses(self) -> list[int]:
        addresses = [_local(p).data_ptr() for p in self._few]
        if self._has_few:
            addresses += [0 if p is None else _local(p).data_ptr() for _, p in self._others.now()]
        return addresses

    def _count_params(self) -> int:
        return sum(len(options["params"]) for options in self.optimizer.param_groups)

    def trains_more(self) -> bool:
        return self._count_params() > self._count or self._others.are_trained or any(p.requires_grad for p in self._frozen)

    def _hash_params(self) -> int:
        return hash(array("Q", [id(p) for options in self.optimizer.param_groups for p in options["params"]]).tobytes())

    def is_outdated(self) -> bool:
        if self._hash_params() == self._known:
            return False
        present = {id(p) for options in self.optimizer.param_groups for p in options["params"]}
        present.update(map(id, self.model.parameters()))
        return any(id(p) not in present for _, here in self._here.values() for p in here)

    def param_groups(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for group, place in self.groups:  # load_state_dict makes other dicts
            yield group, self.optimizer.param_groups[place]

    def let_go(self) -> None:
        self._here.clear()
        self._lps, self._few, self._frozen, self._has_few = (array("i"), []), [], [], False
        self._others = Others(None, {})

    def hook(self, boundaries: Boundaries) -> Callable[[], None]:
        """Gradients are valid from the optimizer's step on, until zero_grad or the next forward pass.

        A step that takes a closure begins where the closure, which computes the gradients, has ended.  Where the step changes the
        gradients themselves, they are valid from its end on: one that a GradScaler gives grad_scale, as it does to fused optimizers,
        divides them; SGD with nesterov may add the momentum.
        """
        import torch

        in_closure = is_over = False
        trainer = 0  # the thread that steps: others may call the model meanwhile

        is_sgd = "torch.optim.sgd.SGD" in _names(self.optimizer)

        def changes_gradients() -> bool:
            return (getattr(self.optimizer, "grad_scale", None) is not None or
                    is_sgd and any(map(_computes_in_gradients, self.optimizer.param_groups)))

        def begin() -> None:
            nonlocal trainer
            trainer = threading.get_ident()
            if not changes_gradients():
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
            """args: the optimizer, then what step() was given, which may be other things than a closure, and more."""
            if len(args) > 1 and callable(args[1]):
                return (args[0], begin_after(args[1]), *args[2:]), kwargs
            if callable(kwargs.get("closure")):
                return args, {**kwargs, "closure": begin_after(kwargs["closure"])}
            begin()
            return None

        def after_step(*_: Any) -> None:
            if changes_gradients():
                boundaries.grads_valid(1.0)
            boundaries.step_end()

        def gone(*_: Any) -> None:
            if torch.compiler.is_compiling():  # the pass itself, which has no word of this then
                return
            if is_over:
                remove()
            if not in_closure and threading.get_ident() == trainer:  # an exception has ended the step, and not after_step
                boundaries.step_end()
            boundaries.grads_gone()

        def before_zero(zero_grad: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                gone()
                return zero_grad(*args, **kwargs)
            return wrapped

        hooks = [self.optimizer.register_step_pre_hook(before_step),
                 self.optimizer.register_step_post_hook(after_step),
                 self.model.register_forward_pre_hook(HereOnly(gone, nullcontext().__exit__))]  # which takes all, and does nothing
        undo = [wrap_method(self.optimizer, "zero_grad", before_zero),
                wrap_method(self.model, "zero_grad", before_zero)]

        def remove() -> None:
            for hook in hooks:
                hook.remove()

        def unhook() -> None:
            nonlocal is_over
            for one in undo:
                one()
            is_over = True
            if not _is_running(type(self.optimizer).step):  # which goes through its hooks: else behind the next forward pass
                remove()

        return unhook


class RedundancyAdapter(TorchAdapter):
    """ZeroRedundancyOptimizer: each parameter's states are on the one rank that updates it, and sends it to all.

    So each rank describes its own; an edit comes to the other ranks with the step after it.
    """

    def _inner(self) -> Any:
        return self.optimizer.optim

    def _is_shown(self, p: Any) -> bool:
        return not p.requires_grad

    def _plain_layout(self, p: Any) -> _Layout:
        import torch.distributed as dist

        return _Layout((dist.get_rank(),), 0, _libfrag.FRAG_ZERO, dtype=p.dtype)


class FlatAdapter(TorchAdapter):
    """FSDP1 with use_orig_params: parameters are views of this rank's part of their unit's flat tensor."""

    def __init__(self, job: Job, model: Any, optimizer: Any) -> None:
        self._units: dict[Any, tuple[Any, _Layout]] = {}  # of a parameter: its flat tensor
        self._shapes: dict[Any, tuple[int, ...]] = {}
        for module in model.modules():
            handle = module._handle if _is(module, "torch", "FullyShardedDataParallel") else None
            if handle and handle.uses_sharded_strategy:
                flat = handle.flat_param
                if flat._params is None:
                    raise ValueError("FSDP1 keeps the parameters apart with use_orig_params=True only")
                layout = _flat_layout(module, handle)
                for p, shape in zip(flat._params, flat._shapes):
                    self._units[p] = flat, layout
                    self._shapes[p] = tuple(shape)
        super().__init__(job, model, optimizer)
        self._units.clear()
        self._shapes.clear()

    def _say_what_is_odd(self) -> None:
        units: dict[int, dict[int, str]] = {}  # of a flat tensor: its param groups, and a parameter of each
        for place, options in enumerate(self.optimizer.param_groups):
            for p in options["params"]:
                if p in self._units:
                    units.setdefault(id(self._units[p][0]), {}).setdefault(place, self.names[p])
        for places in units.values():
            if len(places) > 1:
                say(f"{' and '.join(places.values())} are of one FSDP1 unit and of {len(places)} param groups: the mount "
                    f"shows all of the unit in one group, with the options of param group {min(places)}")

    def _unit(self, p: Any) -> Sequence[Any]:
        return self._units[p][0]._params if p in self._units else (p,)

    def _is_cut(self, p: Any) -> bool:
        return p in self._units or super()._is_cut(p)

    def _param(self, p: Any, cuts: Sequence[tuple[int, int]]) -> None:
        """Frozen ones too take their place in the flat tensor."""
        if p not in self._units:
            super()._param(p, cuts)
        elif not _is_master(p):
            raise ValueError(f"{self.names[p]} is {p.dtype}: of FSDP1 float32 parameters alone are known")
        else:
            self.numbers[p] = self.job.param(self.names[p], self._shapes[p], p.dtype)

    def _layout(self, p: Any) -> tuple[_Layout, list[tuple[int, int]]]:
        return (self._units[p][1], []) if p in self._units else super()._layout(p)


def _flat_layout(module: Any, handle: Any) -> _Layout:
    """Hybrid sharding has the same shards on several nodes, whose ranks are a fixed distance apart."""
    import torch.distributed as dist

    shards = dist.get_process_group_ranks(handle.process_group)
    between = getattr(module, "_inter_node_pg", None)
    nodes = dist.get_process_group_ranks(between) if between is not None else [dist.get_rank()]
    ranks = tuple(rank + node - dist.get_rank() for node in nodes for rank in shards)
    return _Layout(ranks, len(nodes), _libfrag.FRAG_FSDP1, max(1, handle._aligned_numel), id(handle))
