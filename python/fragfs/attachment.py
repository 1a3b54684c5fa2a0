# SPDX-License-Identifier: Apache-2.0
"""attach: shows what an optimizer holds, follows its steps, and lets it go again.

The job never stops for it.  A hook that fails says so in one line and detaches; training goes on.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
import threading
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ._job import Interrupt, Job
from ._log import say
from .adapters.base import Adapter, Boundaries, Declared, Kept, Place

_LOOK_EVERY = 16  # steps; after a change sooner


class _Registered:
    """A state that libfrag knows, or that a line has said is not shown: what it was, and what drops it before its tensors'
    memory is freed.
    """

    __slots__ = ("signature", "is_shown", "_watches")

    def __init__(self, kept: Kept, signature: int, forget: Callable[[Any], None]) -> None:
        self.signature, self.is_shown = signature, True
        self._watches = tuple(weakref.ref(storage, forget) for storage in _storages(kept.tensors))


def _storages(tensors: Iterable[Any]) -> Iterator[Any]:
    """Of tensors that follow each other as views of one buffer that buffer once."""
    last = None
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage is not last:
            yield storage
            last = storage


class _Lp(weakref.ref):
    """The storage of low-precision values that libfrag knows by their address."""

    __slots__ = ("place", "address")


class _Gradients:
    """A declared place: its gradients have memory from grads_valid to grads_gone."""

    def __init__(self, job: Job, place: Place, declared: Declared) -> None:
        self.place, self.declared = place, declared
        self._numels = array("q")
        self._watches: list[Any] = []
        self._declare(job)

    def _declare(self, job: Job) -> None:
        if self.declared.numbers:
            job.declare_fragments(self.declared.numbers, self.place.key, self.declared.dtype)
        else:
            job.declare(*self.place, self.declared.dtype)

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
        numels = self._numels = self._numels or array("q", map(job.numel, self.declared.numbers))
        if len(present) < len(tensors):
            numels = array("q", [numel for numel, tensor in zip(numels, tensors) if tensor is not None])
        if array("q", map(of.numel, present)) != numels or not all(map(of.is_contiguous, present)):
            raise ValueError("a gradient has other elements than the layout, or is not contiguous")
        addresses: Iterable[int] = map(of.data_ptr, present)
        if len(present) < len(tensors):
            addresses = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
        job.move_fragments(self.declared.numbers, self.place.key, addresses)

    def go(self, job: Job) -> None:
        if self._watches:
            self._watches = []
            job.move(*self.place, None)


def _signature(kept: Kept) -> int:
    """A hash of what libfrag knows of a Kept; that itself, of many tensors, would take more memory than libfrag does."""
    tensors = kept.tensors
    return hash((kept.kind, frozenset(tensor.dtype for tensor in tensors), kept.numbers.tobytes(),
                 array("Q", [tensor.data_ptr() for tensor in tensors]).tobytes(),
                 array("Q", [tensor.numel() for tensor in tensors]).tobytes()))


def _is_on_device(number: Any) -> bool:
    return hasattr(number, "fill_") and number.device.type != "cpu"


class _Hypers:
    """The numbers of an optimizer's param groups: each a key of the group's dict, or an index in a tuple there.

    To read one that is a tensor on a device is to wait for the device: that is done while somebody asks, and not in each step.
    """

    def __init__(self, param_groups: Iterable[tuple[int, dict[str, Any]]]) -> None:
        self.is_asked = True
        self.names: list[tuple[int, str]] = []  # group, and name to readers
        self._places: list[tuple[dict[str, Any], str, int]] = []  # the index -1: none
        for group, options in param_groups:
            for key in ("lr", "weight_decay", "eps", "momentum", "alpha"):
                if isinstance(options.get(key), (int, float)) or hasattr(options.get(key), "fill_"):
                    self.names.append((group, key))
                    self._places.append((options, key, -1))
            betas = options.get("betas")
            for index in range(len(betas) if isinstance(betas, (tuple, list)) else 0):
                self.names.append((group, f"beta{index + 1}"))
                self._places.append((options, "betas", index))
        self._last = [0.0] * len(self._places)
        self._find_device()

    def _find_device(self) -> None:
        self._has_device = any(_is_on_device(self._at(place)) for place in self._places)

    def find(self, param_groups: Iterable[tuple[int, dict[str, Any]]]) -> None:
        """Finds the groups' dicts anew: load_state_dict makes other ones."""
        by_group = dict(param_groups)
        self._places = [(by_group.get(group, options), key, index)
                        for (group, _), (options, key, index) in zip(self.names, self._places)]
        self._find_device()

    def get(self) -> list[float]:
        """A number that cannot be read now, or is on a device and nobody asks, is shown as it was."""
        try:
            if not self._has_device or self.is_asked:
                self._last = [float(o[key] if index < 0 else o[key][index]) for o, key, index in self._places]
                return self._last
        except Exception as e:
            if _is_of_handler(e):
                raise
        self._last = [self._get_or(last, place) for last, place in zip(self._last, self._places)]
        return self._last

    @staticmethod
    def _at(place: tuple[dict[str, Any], str, int]) -> Any:
        options, key, index = place
        try:
            return options[key] if index < 0 else options[key][index]
        except Exception:
            return None

    def _get_or(self, last: float, place: tuple[dict[str, Any], str, int]) -> float:
        number = self._at(place)
        try:
            return last if not self.is_asked and _is_on_device(number) else float(number)
        except Exception:
            return last

    def put(self, number: int, value: float) -> None:
        options, key, index = self._places[number]
        old = options[key]
        if index >= 0:
            new = list(old)
            new[index] = value
            options[key] = type(old)(new)
        elif hasattr(old, "fill_"):
            old.fill_(value)
        else:
            options[key] = value


class Attachment:
    """A training process that can be mounted.  detach(), the end of a with block, of its model and optimizer, or of Python,
    ends it.
    """

    def __init__(self, make_adapter: Callable[[Job], Adapter], **config: Any) -> None:
        global _last
        _refuse_second()
        self._job: Job | None = Job(**config)
        self._adapter: Any = None  # the hooks alone hold this object, by way of the model and its optimizer
        self._hypers: Any = None
        self._registered: dict[Place, _Registered] = {}
        self._trains_more = False  # of which a line has been said
        self._not_shown: set[str] = set()  # keys of states, of which a line has said so
        self._lps: dict[tuple[int, bool], _Lp] = {}
        self._forget_lp = functools.partial(_forget_lp, weakref.ref(self))
        self._gradients: list[_Gradients] = []
        self._dirty = True
        self._shape = 0, 0  # of the optimizer's dict of states: its id and length
        self._addresses: object = None
        self._steps = self._look_at = 0
        self._in_step = False
        self._loss_scale: float | None = None  # of gradients that are valid and not shown
        self._is_asked = False
        self._is_synced = False  # the registry was made anew since the window of gradients began
        self._unhook: Callable[[], None] = lambda: None
        try:
            self._adapter = make_adapter(self._job)
            self._hypers = _Hypers(self._adapter.param_groups())
            self._job.hypers(self._hypers.names, self._hypers.get, self._hypers.put)
            self._sync()
            if self._adapter.shows_gradients():
                self._gradients = [_Gradients(self._job, *declared) for declared in self._adapter.declared()]
            self._job.ready()
            self._listen()
            self._unhook = self._adapter.hook(Boundaries(
                *(functools.partial(self._guard, step) for step in
                  (self._grads_gone, self._grads_valid, self._step_begin, self._step_end, self._changed))))
        except BaseException:
            self.detach()
            raise
        _last = weakref.ref(self)

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
        return self._adapter and self._adapter.optimizer

    def detach(self) -> None:
        """Takes the hooks away and closes libfrag.  Again: nothing."""
        unhook, self._unhook = self._unhook, lambda: None
        unhook()
        self._close()

    def _close(self) -> None:
        """Closes libfrag; the hooks stay, and do nothing."""
        job, self._job = self._job, None
        if job is None:
            return
        self._registered.clear()
        self._lps.clear()
        self._gradients.clear()
        if self._adapter:
            self._adapter.let_go()  # the hooks may stay, and have it
        self._adapter = self._hypers = None  # who keeps this object keeps no model
        if job.is_open:
            job.close()

    def safe_point(self) -> None:
        """A boundary without a step, where edits go in: for steps that are left out.  All ranks call it alike."""
        self._guard(lambda job: job.safe_point())

    # ---- boundaries: in the trainer's thread ----

    def _guard(self, step: Callable[..., None], *args: Any) -> None:
        if self._job is None or not self._job.is_open:
            return
        interrupt = None
        try:
            step(self._job, *args)
        except Interrupt as e:
            interrupt, = e.args
        except Exception as e:
            is_of_handler = _is_of_handler(e)
            if self._job is not None:  # a failure within this one has closed it
                self._close()  # this is a hook: torch goes through its hooks, and they must not change meanwhile
                then = "as the handler of a signal raised it in a hook" if is_of_handler else "training goes on"
                say(f"{_reason(e)}; detached, {then}")
            if is_of_handler:
                raise
        if interrupt is not None:  # not within `except`, which would give it a context
            raise interrupt

    def _grads_gone(self, job: Job) -> None:
        with job.lock:
            if self._loss_scale is not None:
                self._loss_scale = None
                job.grads_skip()
                return
            job.grads_gone()
            for gradients in self._gradients:
                gradients.go(job)

    def _grads_valid(self, job: Job, loss_scale: float) -> None:
        """While nobody asks, new gradients, whose objects are in no cache, are not looked at one by one."""
        with job.lock:
            self._loss_scale = loss_scale
            if not self._is_asked:
                return
            self._sync()
            self._is_synced = True
            if not job.asked(-1):  # the last mount has gone
                self._listen()
            self._show_gradients(job)

    def _show_gradients(self, job: Job) -> None:
        """Tells libfrag of the window of gradients that is open; does nothing if it is told already, or none is open."""
        with job.lock:
            if self._loss_scale is None:
                return
            forget = functools.partial(_forget_gradients, weakref.ref(self))
            for gradients in self._gradients:
                gradients.come(job, self._adapter.gradients(gradients.place), forget)
            job.grads_valid(self._loss_scale)
            self._loss_scale = None

    def _listen(self) -> None:
        """Starts a thread that sleeps until somebody asks for this rank's states: a job may stand for long when the
        first mount comes.
        """
        assert self._job is not None
        hears, tells = os.pipe()
        try:
            self._is_asked = self._hypers.is_asked = self._job.asked(tells)
        finally:
            os.close(tells)
        threading.Thread(target=_hear, args=(hears, weakref.ref(self)), name="fragfs", daemon=True).start()

    def _asked(self, job: Job) -> None:
        self._is_asked = self._hypers.is_asked = True
        self._show_gradients(job)

    def _step_begin(self, job: Job) -> None:
        if self._in_step:  # of an optimizer within the optimizer
            return
        if not self._is_synced:
            self._sync()
        if self._is_asked:  # since the window began; a freeze, in which no other thread could show them, begins here
            self._show_gradients(job)
        try:
            job.step_begin()
        finally:
            self._in_step = True  # also behind Ctrl-C in a freeze: the boundary was passed

    def _step_end(self, job: Job) -> None:
        if not self._in_step:
            return
        self._in_step = self._is_synced = False
        if self._dirty or not self._shape[1] or self._look_at == 1:  # else its states have been there for long
            self._sync(look=False)
        job.step_end()

    def _changed(self, _: Job) -> None:
        self._dirty = True

    # ---- the registry ----

    def _has_moved(self) -> bool:
        """Whether all tensors are to be looked at.  Finalizers tell of memory that is freed.  A tensor that was replaced and is
        still held is found by a look: at few of them in each step, at many, whose objects are in no cache by then, every
        _LOOK_EVERY steps.
        """
        self._steps += 1
        return self._steps >= self._look_at or self._addresses != self._adapter.addresses()

    def _sync(self, look: bool = True) -> None:
        """Makes libfrag's registry what the optimizer holds now."""
        state = self._adapter.state()
        shape = id(state), len(state)
        if self._dirty or shape != self._shape or look and self._has_moved():
            self._shape = shape
            assert self._job is not None
            with self._job.lock:  # finalizers of other threads drop states
                self._look()

    def _look(self) -> None:
        self._dirty = False
        if self._adapter.is_outdated():
            raise RuntimeError("parameters were replaced by others, in the model and its optimizer: attach again to see these")
        self._addresses = self._adapter.addresses()
        self._hypers.find(self._adapter.param_groups())
        gone, changed = set(self._registered), False
        for place, kept in self._adapter.states():
            if not kept.tensors or place.key == "grad" and not self._adapter.shows_gradients():
                continue
            gone.discard(place)
            signature, registered = _signature(kept), self._registered.get(place)
            if registered and registered.signature == signature:
                continue
            self._drop(place)
            self._keep(place, kept, signature)
            changed = True
        for place in gone:
            self._drop(place)
        self._steps, self._look_at = 0, 1 if changed else min(2 * self._look_at + 1, _LOOK_EVERY)
        for number, is_shard, tensor in self._adapter.lps():
            self._place_lp((number, is_shard), tensor)
        if not self._trains_more and self._adapter.trains_more():
            self._trains_more = True
            say("parameters that were frozen at attach, or not the optimizer's, are trained now: detach and attach again to see their "
                "states")

    def _place_lp(self, place: tuple[int, bool], tensor: Any) -> None:
        assert self._job is not None
        if tensor is not None and not tensor.is_contiguous():
            tensor = None
        old, address = self._lps.get(place), 0 if tensor is None else tensor.data_ptr()
        old_address = old.address if old is not None else 0
        if address == old_address and (old is None or old() is not None):
            return
        self._lps.pop(place, None)
        if address:
            lp = self._lps[place] = _Lp(tensor.untyped_storage(), self._forget_lp)
            lp.place, lp.address = place, address
        if address != old_address:
            self._job.move_lp(*place, tensor)

    def _keep(self, place: Place, kept: Kept, signature: int) -> None:
        assert self._job is not None
        self._registered[place] = _Registered(kept, signature, functools.partial(_forget, weakref.ref(self), place))
        try:
            if kept.kind == "fragments":
                self._job.keep_fragments(kept.numbers, place.key, kept.tensors)
            elif kept.kind == "whole":
                self._job.keep_whole(place.group, place.key, kept.tensors[0])
            else:
                self._job.keep(place.group, place.sub, place.key, kept.tensors[0])
        except (TypeError, ValueError, OSError) as e:  # as of 8-bit optimizers, whose states of small tensors are float32
            if place.key in ("fp32", "grad") or _is_of_handler(e):
                raise
            self._registered[place].is_shown = False
            with contextlib.suppress(ValueError, OSError):  # some of its fragments may have been taken
                self._job.drop(*place)
            if place.key not in self._not_shown:
                self._not_shown.add(place.key)
                say(f"{e.strerror if isinstance(e, OSError) else e}: it is not shown")

    def _drop(self, place: Place) -> None:
        job = self._job
        if job is None or not job.is_open:
            return
        with job.lock:
            registered = self._registered.pop(place, None)
            if registered and registered.is_shown:
                job.drop(*place)


def _is_of_handler(e: Exception) -> bool:
    """Whether the handler of a signal has raised it, which is an error of the job's own: Python gives the handler the frame that it
    interrupts.
    """
    at = e.__traceback__
    while at and at.tb_next:
        for value in at.tb_next.tb_frame.f_locals.values():
            if any(one is at.tb_frame for one in (value if isinstance(value, tuple) else (value,))):
                return True
        at = at.tb_next
    return False


def _reason(e: Exception) -> str:
    """One line.  Some exceptions of Python say no more than a name, or nothing."""
    text = " ".join(str(e).split())
    needs_type = not text or isinstance(e, (AssertionError, AttributeError, IndexError, KeyError))
    return f"{type(e).__name__}{': ' if text else ''}{text}" if needs_type else text


_last: Callable[[], Attachment | None] = lambda: None  # the one that was made last


def _refuse_second() -> None:
    """A process has one attachment.  One whose model nobody holds any more may still wait for Python's garbage collector."""
    if _last():
        gc.collect()
    other = _last()
    if other:
        adapter = other._adapter
        raise RuntimeError(f"{type(adapter.model).__name__} and {type(adapter.optimizer).__name__} are attached already "
                           f"({other.address or 'rank 0 has the address'}): detach() first what attach() returned for them")


def _forget(attachment: Callable[[], Attachment | None], place: Place, _: object) -> None:
    """The memory of a state is about to be freed: libfrag must not know it any more."""
    owner = attachment()
    if owner is not None:
        owner._drop(place)
        owner._dirty = True


def _forget_lp(attachment: Callable[[], Attachment | None], lp: _Lp) -> None:
    """Low-precision memory is about to be freed.  Inside a step libfrag is not told: nobody reads then, and edits that wait
    are to find the memory that is there at its end.
    """
    owner = attachment()
    if owner is None:
        return
    owner._dirty = True
    job = owner._job
    if owner._in_step or job is None or not job.is_open:
        return
    with job.lock:
        if owner._lps.get(lp.place) is lp:
            del owner._lps[lp.place]
            job.move_lp(*lp.place, None)


def _hear(fd: int, attachment: Callable[[], Attachment | None]) -> None:
    """libfrag writes to the pipe once: when somebody asks, or when it is closed."""
    os.read(fd, 8)
    os.close(fd)
    owner = attachment()
    if owner is not None:
        owner._guard(owner._asked)


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

    things: a DeepSpeedEngine (stages 0 to 3, BF16_Optimizer); or a model and its torch optimizer: FSDP2, FSDP1 with
    use_orig_params, tensor parallelism, DDP, ZeroRedundancyOptimizer, one process; or an optimizer alone, also
    Accelerate's, whose engine or model is looked for.
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
        say(f"not attached: {_reason(e)}")
        return _Nothing()
