# SPDX-License-Identifier: Apache-2.0
"""What an adapter does: it describes parameters and groups once, and lists the states' tensors at any time."""

from __future__ import annotations

import functools
import operator
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .._job import Job


class Place(NamedTuple):
    """Where libfrag has a state."""

    group: int
    sub: int
    key: str


class Kept(NamedTuple):
    """The memory of a state: a partition, the whole group, or the fragments of parameters."""

    kind: str  # "partition", "whole", "fragments"
    tensors: list[Any]
    numbers: array[int] = array("i")  # the parameters' of kind "fragments", one of each tensor


class Declared(NamedTuple):
    """Gradients that are other tensors in each step: all that is known of them before there is one."""

    kind: str  # as in Kept
    numbers: array[int]  # the parameters' of kind "fragments"
    dtype: Any


class Boundaries(NamedTuple):
    """What the hooks of an adapter call; none raises, but for what the handler of a signal does in a freeze."""

    grads_gone: Callable[[], None]
    grads_valid: Callable[[float], None]
    step_begin: Callable[[], None]
    step_end: Callable[[], None]
    changed: Callable[[], None]  # the memory of states may be another, which the next boundary looks at


class Adapter:
    """One framework's objects.  The constructor describes parameters and groups to the job."""

    job: Job
    model: Any
    optimizer: Any  # whose step is followed

    def states(self) -> Iterator[tuple[Place, Kept]]:
        """All states that there are now, and gradients whose memory stays over the steps."""
        raise NotImplementedError

    def shows_gradients(self) -> bool:
        """False: there is no time at which they can be read, and states() and declared() are not asked for them."""
        return True

    def declared(self) -> Iterator[tuple[Place, Declared]]:
        """The gradients that are other tensors in each step."""
        yield from ()

    def gradients(self, place: Place) -> Sequence[Any]:
        """Of a declared place: the tensor of each of its numbers, or of the partition; None where there is none."""
        raise NotImplementedError

    def state(self) -> Mapping[Any, Any]:
        """The optimizer's dict of states by parameters."""
        raise NotImplementedError

    def addresses(self) -> list[int]:
        """Those of a few of the tensors that are shown, such as move when others do; each step asks for them."""
        raise NotImplementedError

    def lps(self) -> Iterator[tuple[int, bool, Any]]:
        """(parameter, whether it is this rank's piece, tensor) of low-precision values whose memory may change."""
        yield from ()

    def trains_more(self) -> bool:
        """Whether parameters are trained now that were not when they were described; asked at looks at all tensors."""
        return False

    def is_outdated(self) -> bool:
        """Whether parameters that were described are neither the optimizer's nor the model's any more; asked at such looks, too."""
        return False

    def param_groups(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(number of the group, the optimizer's dict of hyper-parameters)."""
        raise NotImplementedError

    def let_go(self) -> None:
        """Lets go of the parameters: no more than the hooks is called from now on."""

    def hook(self, boundaries: Boundaries) -> Callable[[], None]:
        """Hooks the step and the gradients' window; the result takes the hooks away again."""
        raise NotImplementedError


def kind_of(p: Any) -> int:
    """A hash of what a parameter is described by.  One of ZeRO-3 has its own shape while it is gathered alone."""
    return hash((p.dtype, getattr(p, "ds_shape", p.shape), getattr(p, "placements", None)))


class Others:
    """Parameters that the optimizer has not.  The model alone keeps them, and may have others in their places at any time, or none:
    they are looked for there each time, and none is held.
    """

    def __init__(self, model: Any, numbers: dict[Any, int]) -> None:
        """numbers: of the parameters; those that have a place in a module of the model are taken out."""
        self._model = model
        self._modules: list[tuple[str, ...]] = []  # by names from the model on
        self._names: list[tuple[str, ...]] = []  # of the parameters of each
        self._kinds = array("q")
        self._were_frozen = bytearray()
        self.numbers = array("i")
        self.are_trained = False  # some that were frozen
        same: dict[tuple[str, ...], tuple[str, ...]] = {}
        left: list[tuple[tuple[str, ...], Any]] = [((), model)] if numbers else []
        known = set()
        while left:  # in the order of named_parameters(), which names a parameter by its first place
            at, module = left.pop()
            if id(module) in known or not hasattr(module._parameters, "get"):  # as those of TorchScript
                continue
            known.add(id(module))
            names = []
            for name, p in module._parameters.items():
                if p is not None and p in numbers:
                    names.append(name)
                    self.numbers.append(numbers.pop(p))
                    self._kinds.append(kind_of(p))
                    self._were_frozen.append(not p.requires_grad)
            if names:
                self._modules.append(at)
                self._names.append(same.setdefault(tuple(names), tuple(names)))
            left += [((*at, name), child) for name, child in list(module._modules.items())[::-1] if child is not None]

    def _params(self, at: tuple[str, ...]) -> Mapping[str, Any]:
        module = self._model
        for name in at:
            module = module._modules.get(name)
            if module is None:
                return {}
        return module._parameters

    def now(self) -> Iterator[tuple[int, Any]]:
        """(number, parameter); None: there is none any more, or one that is not as it was described."""
        self.are_trained, described = False, zip(self.numbers, self._kinds, self._were_frozen)
        for at, names in zip(self._modules, self._names):
            params = self._params(at)
            for name, (number, kind, was_frozen) in zip(names, described):
                p = params.get(name)
                if p is not None and p.requires_grad and was_frozen:
                    self.are_trained = True
                yield number, p if p is not None and kind_of(p) == kind else None


class HereOnly:
    """Calls a function of fragfs.  A copy or a pickle of what holds it has another callable there, and needs no fragfs."""

    def __init__(self, function: Callable[..., Any], elsewhere: Callable[..., Any]) -> None:
        self.function, self.elsewhere = function, elsewhere

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        """A method that is copied, or pickled, beside its object is one of the new object."""
        return operator.getitem, ((self.elsewhere,), 0)


class _Method(HereOnly):
    """In place of a method: it has the method's signature, which Accelerate looks at before it calls zero_grad, and the marks
    that others have set, such as LRScheduler's at step.
    """

    def __init__(self, function: Callable[..., Any], method: Callable[..., Any]) -> None:
        functools.update_wrapper(self, method)
        super().__init__(function, method)
        self.__self__ = getattr(method, "__self__", None)

    @property
    def __func__(self) -> Callable[..., Any]:
        """What LRScheduler, whose own wrapper goes around this, binds to the optimizer anew."""
        def call(_: Any, *args: Any, **kwargs: Any) -> Any:
            return self(*args, **kwargs)
        return functools.update_wrapper(call, self, updated=())


def wrap_method(thing: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
                ) -> Callable[[], None]:
    """Sets thing.name to make(the method that was there); the result undoes that.

    A wrapper that somebody has put around ours stays: then ours becomes a plain call of the method.
    """
    had = name in vars(thing)
    method = getattr(thing, name)
    call = _Method(make(method), method)

    def undo() -> None:
        call.function = method
        if vars(thing).get(name) is call:
            if had:
                setattr(thing, name, method)
            else:
                delattr(thing, name)

    setattr(thing, name, call)
    return undo


class Fragments(dict[str, Kept]):
    """The fragments of one param group, by the keys of states."""

    def add(self, key: str, number: int, tensor: Any) -> None:
        kept = self.get(key)
        if kept is None:
            kept = self[key] = Kept("fragments", [], array("i"))
        kept.tensors.append(tensor)
        kept.numbers.append(number)

    def of(self, group: int) -> Iterator[tuple[Place, Kept]]:
        for key, kept in self.items():
            yield Place(group, 0, key), kept


def tensors_of(state: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """The tensors among an optimizer's states of one parameter whose keys can stand beside fp32 and grad, but for the count of
    steps."""
    for key, value in state.items():
        if isinstance(key, str) and key not in ("step", "fp32", "grad") and hasattr(value, "data_ptr"):
            yield key, value


def partition_states(optimizer: Any, flat: Any) -> Iterator[tuple[str, Any]]:
    """The optimizer's states of one flat parameter that have its number of elements."""
    for key, value in tensors_of(optimizer.state.get(flat, {})):
        if value.dim() and value.numel() == flat.numel():
            yield key, value
