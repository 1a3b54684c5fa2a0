# SPDX-License-Identifier: Apache-2.0
"""attach: shows what an optimizer holds, follows its steps, and lets it go again.

The job never stops for it.  A hook that fails says so in one line and detaches; training goes on.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import weakref
from array import array
from collections.abc import Callable, Iterable, Sequence
from ctypes import c_int
from typing import Any, NamedTuple

from ._job import Job, watch_storage
from ._log import say
from .adapters.base import Adapter, Boundaries, Declared, Kept, Place

_FEW = 64  # tensors, whose addresses each boundary compares
_LOOK_EVERY = 32  # boundaries; after a change sooner


class _Registered:
    """A state that libfrag knows: where its tensors were, and what drops it before their memory is freed."""

    def __init__(self, kept: Kept, forget: Callable[[Any], None]) -> None:
        self.signature = _signature(kept)
        tensors = [tensor for _, tensor in kept.tensors]
        self._watches = [weakref.ref(storage, forget) for storage in
                         {id(storage): storage for storage in (tensor.untyped_storage() for tensor in tensors)}.values()]
        self._refs = [weakref.ref(tensor) for tensor in tensors] if len(tensors) <= _FEW else []

    def has_moved(self) -> bool:
        """Of few tensors: whether one is gone, or has other memory."""
        try:
            return any(ref().data_ptr() != address for ref, address in zip(self._refs, self.signature.addresses))
        except AttributeError:  # of None
            return True


class _Gradients:
    """A declared place: its gradients have memory from grads_valid to grads_gone."""

    def __init__(self, job: Job, place: Place, declared: Declared) -> None:
        self.place, self.declared = place, declared
        self._numbers = (c_int * len(declared.numbers))(*declared.numbers)
        self._numels = [fragment.numel for fragment in map(job.fragment, declared.numbers) if fragment]
        self._watches: list[Any] = []
        self._declare(job)

    def _declare(self, job: Job) -> None:
        if not self.declared.numbers:
            job.declare(*self.place, self.declared.dtype)
        for number in self.declared.numbers:
            job.declare_fragment(number, self.place.key, self.declared.dtype)

    def come(self, job: Job, tensors: Sequence[Any], forget: Callable[[Any], None]) -> None:
        """forget is called when memory of theirs is freed, whoever holds it until then."""
        present = [tensor for tensor in tensors if tensor is not None]
        if not present:
            return
        dtypes = {tensor.dtype for tensor in present}
        if len(dtypes) > 1:
            raise ValueError("the gradients of one param group have several dtypes")
        if self.declared.dtype not in dtypes:
            job.drop(*self.place)
            self.declared = self.declared._replace(dtype=present[0].dtype)
            self._declare(job)
        of = type(present[0])
        self._watches = [weakref.ref(storage, forget) for storage in map(of.untyped_storage, present)]
        if not self.declared.numbers:
            job.move(*self.place, present[0])
            return
        numels = self._numels
        if len(present) < len(tensors):
            numels = [numel for numel, tensor in zip(numels, tensors) if tensor is not None]
        if list(map(of.numel, present)) != numels or not all(map(of.is_contiguous, present)):
            raise ValueError("a gradient has other elements than the layout, or is not contiguous")
        addresses: Iterable[int] = map(of.data_ptr, present)
        if len(present) < len(tensors):
            addresses = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
        job.move_fragments(self._numbers, self.place.key, addresses)

    def go(self, job: Job) -> None:
        if self._watches:
            self._watches = []
            job.move(*self.place, None)


class _Signature(NamedTuple):
    """What of a Kept libfrag knows; without the tensors."""

    kind: str
    dtypes: tuple[Any, ...]
    numbers: array[int]
    addresses: array[int]
    numels: array[int]


def _signature(kept: Kept) -> _Signature:
    tensors = [tensor for _, tensor in kept.tensors]
    return _Signature(kept.kind, tuple(tensor.dtype for tensor in tensors),
                      array("q", [number for number, _ in kept.tensors]),
                      array("Q", [tensor.data_ptr() for tensor in tensors]),
                      array("Q", [tensor.numel() for tensor in tensors]))


class _Hyper:
    """A number of an optimizer's param group."""

    def __init__(self, group: int, options: dict[str, Any], key: str, index: int | None = None) -> None:
        self.group, self.options, self._key, self._index = group, options, key, index

    def get(self) -> float:
        value = self.options[self._key]
        return float(value if self._index is None else value[self._index])

    def put(self, value: float) -> None:
        old = self.options[self._key]
        if self._index is not None:
            new = list(old)
            new[self._index] = value
            self.options[self._key] = type(old)(new)
        elif hasattr(old, "fill_"):
            old.fill_(value)
        else:
            self.options[self._key] = value


def _hypers(group: int, options: dict[str, Any]) -> dict[str, _Hyper]:
    found = {}
    for key in ("lr", "weight_decay", "eps", "momentum", "alpha"):
        if isinstance(options.get(key), (int, float)) or hasattr(options.get(key), "fill_"):
            found[key] = _Hyper(group, options, key)
    betas = options.get("betas")
    for index in range(len(betas) if isinstance(betas, (tuple, list)) else 0):
        found[f"beta{index + 1}"] = _Hyper(group, options, "betas", index)
    return found


class Attachment:
    """A training process that can be mounted.  detach(), the end of a with block, or of Python, ends it."""

    def __init__(self, make_adapter: Callable[[Job], Adapter], **config: Any) -> None:
        self._job: Job | None = Job(**config)
        self._registered: dict[Place, _Registered] = {}
        self._lps: dict[tuple[int, bool], tuple[int, Any]] = {}  # address and finalizer of low-precision values
        self._gradients: list[_Gradients] = []
        self._hypers: list[_Hyper] = []
        self._dirty = True
        self._shape: object = None
        self._few = True
        self._boundaries = self._look_at = 0
        self._in_step = False
        self._unhook: Callable[[], None] = lambda: None
        try:
            self._adapter = make_adapter(self._job)
            for group, options in self._adapter.param_groups():
                for name, hyper in _hypers(group, options).items():
                    self._job.hyper(group, name, hyper.get, hyper.put)
                    self._hypers.append(hyper)
            self._sync()
            self._gradients = [_Gradients(self._job, *declared) for declared in self._adapter.declared()]
            self._job.ready()
            self._unhook = self._adapter.hook(Boundaries(
                *(functools.partial(self._guard, step) for step in
                  (self._grads_gone, self._grads_valid, self._step_begin, self._step_end, self._changed))))
        except BaseException:
            self.detach()
            raise
        atexit.register(self.detach)

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()

    def __bool__(self) -> bool:
        return self._job is not None

    @property
    def address(self) -> str | None:
        """HOST:PORT for fragfs; None until it is known, and after detach()."""
        return self._job.address if self._job else None

    @property
    def optimizer(self) -> Any:
        """The object whose step is followed."""
        return self._adapter.optimizer

    def detach(self) -> None:
        """Takes the hooks away and closes libfrag.  Again: nothing."""
        unhook, self._unhook = self._unhook, lambda: None
        unhook()
        self._close()

    def _close(self) -> None:
        """The hooks stay, and do nothing."""
        job, self._job = self._job, None
        if job is None:
            return
        for _, watch in self._lps.values():
            watch.detach()
        self._registered.clear()
        self._lps.clear()
        self._gradients.clear()
        if job.is_open:
            job.close()
        atexit.unregister(self.detach)

    def safe_point(self) -> None:
        """A boundary without a step, where edits go in: for steps that are left out.  All ranks call it alike."""
        self._guard(lambda job: job.safe_point())

    # ---- boundaries: in the trainer's thread ----

    def _guard(self, step: Callable[..., None], *args: Any) -> None:
        if self._job is None or not self._job.is_open:
            return
        try:
            step(self._job, *args)
        except Exception as e:
            say(f"{e}; detached, training goes on")
            self._close()  # this is a hook: torch goes through its hooks, and they must not change meanwhile

    def _grads_gone(self, job: Job) -> None:
        job.grads_gone()
        for gradients in self._gradients:
            gradients.go(job)

    def _grads_valid(self, job: Job, loss_scale: float) -> None:
        self._sync()
        forget = functools.partial(_forget_gradients, weakref.ref(self))
        for gradients in self._gradients:
            gradients.come(job, self._adapter.gradients(gradients.place), forget)
        job.grads_valid(loss_scale)

    def _step_begin(self, job: Job) -> None:
        if self._in_step:  # of an optimizer within the optimizer
            return
        job.step_begin()
        self._in_step = True

    def _step_end(self, job: Job) -> None:
        if not self._in_step:
            return
        self._in_step = False
        self._sync()
        job.step_end()

    def _changed(self, _: Job) -> None:
        self._dirty = True

    # ---- the registry ----

    def _may_have_changed(self) -> bool:
        """Finalizers tell of memory that is freed.  Where somebody holds what was replaced, a look finds it: at
        few tensors at each boundary, at many, whose objects are in no cache by then, within _LOOK_EVERY.
        """
        self._boundaries += 1
        return (self._dirty or self._shape != self._adapter.shape_of_states() or
                self._boundaries >= self._look_at or
                self._few and any(registered.has_moved() for registered in self._registered.values()))

    def _sync(self) -> None:
        """Makes libfrag's registry what the optimizer holds now."""
        if not self._may_have_changed():
            return
        self._dirty, self._shape = False, self._adapter.shape_of_states()
        options = dict(self._adapter.param_groups())  # others, after load_state_dict
        for hyper in self._hypers:
            hyper.options = options.get(hyper.group, hyper.options)
        wanted = {place: kept for place, kept in self._adapter.states() if kept.tensors}
        changed = False
        for place in list(self._registered):
            if place not in wanted or self._registered[place].signature != _signature(wanted[place]):
                self._drop(place)
        self._dirty = False
        for place, kept in wanted.items():
            if place not in self._registered:
                self._keep(place, kept)
                changed = True
        self._few = sum(len(kept.tensors) for kept in wanted.values()) <= _FEW
        self._boundaries, self._look_at = 0, 1 if changed else min(2 * self._look_at + 1, _LOOK_EVERY)
        for number, is_shard, tensor in self._adapter.lps():
            self._place_lp((number, is_shard), tensor)

    def _place_lp(self, lp: tuple[int, bool], tensor: Any) -> None:
        assert self._job is not None
        old, new = self._lps.get(lp), 0 if tensor is None else tensor.data_ptr()
        if not old and not new or old and old[0] == new and old[1].alive:
            return
        if old:
            self._lps.pop(lp)[1].detach()
        if new:
            self._lps[lp] = new, watch_storage(tensor, _forget_lp, weakref.ref(self), lp)
        if new and (not old or old[0] != new):
            self._job.move_lp(*lp, tensor)
        elif old and not new:
            self._job.move_lp(*lp, None)

    def _keep(self, place: Place, kept: Kept) -> None:
        assert self._job is not None
        self._registered[place] = _Registered(kept, functools.partial(_forget, weakref.ref(self), place))
        for number, tensor in kept.tensors:
            if kept.kind == "fragments":
                self._job.keep_fragment(number, place.key, tensor)
            elif kept.kind == "whole":
                self._job.keep_whole(place.group, place.key, tensor)
            else:
                self._job.keep(place.group, place.sub, place.key, tensor)

    def _drop(self, place: Place) -> None:
        if not self._registered.pop(place, None) or self._job is None or not self._job.is_open:
            return
        self._job.drop(*place)
        self._dirty = True


def _forget(attachment: Callable[[], Attachment | None], place: Place, _: object) -> None:
    """The memory of a state is about to be freed: libfrag must not know it any more."""
    owner = attachment()
    if owner is not None:
        owner._drop(place)


def _forget_lp(attachment: Callable[[], Attachment | None], lp: tuple[int, bool]) -> None:
    """Inside a step others do not read, and edits that wait are to find the memory that is there at its end."""
    owner = attachment()
    if owner is None:
        return
    owner._dirty = True
    if not owner._in_step and owner._lps.pop(lp, None) and owner._job and owner._job.is_open:
        owner._job.move_lp(*lp, None)


def _forget_gradients(attachment: Callable[[], Attachment | None], _: object) -> None:
    """Gradients are about to be freed although no hook has said that they go."""
    owner = attachment()
    if owner is not None:
        owner._guard(owner._grads_gone)


def attach_aloud(*things: Any, **options: Any) -> Attachment | _Nothing:
    """attach(), and a line that says what to mount."""
    job = attach(*things, **options)
    if job and job.address:
        say(f"attached: fragfs {job.address} /frag")
    return job


class _Nothing:
    """What attach returns where it could not: false, and it takes the calls of an Attachment."""

    address = None

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def __bool__(self) -> bool:
        return False

    def detach(self) -> None:
        pass

    def safe_point(self) -> None:
        pass


_RANKS = ("FRAG_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")


def launched_as() -> dict[str, Any]:
    """Rank and world, of torch.distributed where it knows them; of a single process, where no launcher says any."""
    distributed = sys.modules.get("torch.distributed")
    if "FRAG_RANK" not in os.environ and distributed and distributed.is_available() and distributed.is_initialized():
        return {"rank": distributed.get_rank(), "world": distributed.get_world_size()}
    return {} if any(name in os.environ for name in _RANKS) else {"rank": 0, "world": 1}


def attach(*things: Any, strict: bool = False, **config: Any) -> Attachment | _Nothing:
    """Lets `fragfs HOST:PORT /frag` mount what is trained here; each rank calls it, and waits for none.

    things: a DeepSpeedEngine; or a model and its torch optimizer (FSDP2, DDP, one process).
    config: fields of struct frag_config of frag(3), such as job="run-7"; by default the launcher's
    environment says where rank 0 is, and torch.distributed, or else the environment, rank and world.
    strict: raises what is wrong.  By default one line says it, the result is false, training goes on.
    """
    from .adapters import adapter_for

    try:
        return Attachment(lambda job: adapter_for(job, things), **{**launched_as(), **config})
    except Exception as e:
        if strict:
            raise
        say(f"not attached: {e}")
        return _Nothing()
