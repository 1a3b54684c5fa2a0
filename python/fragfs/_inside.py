# SPDX-License-Identifier: Apache-2.0
"""The part of `python -m fragfs attach` that runs in the job: in its main thread, between two bytecodes.

There it only looks for the optimizer and waits for the end of its next steps.  It carries an order out behind the
step that all ranks have been told: ranks that began at different steps would count boundaries differently.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from .adapters.base import wrap_method


class Refused(Exception):
    """Why this process is not attached or detached, in one line."""


def _after_any_step(optimizer: Any, *_: Any) -> None:
    for order in [*vars(optimizer).get("_fragfs_orders", ())]:
        order._after_step()


class _Behind:
    """In place of a hook of others, which it calls: ours comes behind that."""

    def __init__(self, other: Callable[..., Any]) -> None:
        self.other = other

    def __call__(self, optimizer: Any, *args: Any) -> None:
        self.other(optimizer, *args)
        _after_any_step(optimizer)


def _hook_steps(order: Order) -> Callable[[], None]:
    """Has torch call the order after each step of its optimizer, also where somebody sets optimizer.step to another method for
    each step, as Accelerate does for a GradScaler.  The result ends that.

    The hook of torch is for all optimizers, and stays: torch may be going through its hooks just now, and there must not be more
    or fewer of them behind one than before it.
    """
    from torch.optim import optimizer as torch_hooks

    hooks = getattr(torch_hooks, "_global_optimizer_post_hooks", None)
    if hooks is None:
        return wrap_method(order.optimizer, "step", order._around)
    if not any(hook is _after_any_step or isinstance(hook, _Behind) for hook in hooks.values()):
        if hooks:
            last = next(reversed(hooks))
            hooks[last] = _Behind(hooks[last])
        else:
            torch_hooks.register_optimizer_step_post_hook(_after_any_step)
    orders = vars(order.optimizer).setdefault("_fragfs_orders", [])
    orders.append(order)
    return lambda: orders.remove(order) if order in orders else None


class Order:
    """An order of the attaching process, in a folder that this process has made, with the answers to it.

    The file `taken` is there as long as the order holds; the file `step` has the step behind which it is carried out.
    """

    def __init__(self, folder: str, action: str, config: dict[str, Any]) -> None:
        self.folder, self.action, self.config = folder, action, config
        self._pid = os.getpid()
        self._first: tuple[int, int] | None = None  # the first count that was seen, and how many steps since
        self._is_ready = False  # it has answered that it knows the step
        self._undo = lambda: None

    def answer(self, word: str, *values: object) -> None:
        try:
            with open(f"{self.folder}/answers", "a") as f:
                f.write(" ".join(map(str, (word, *values))).replace("\n", " ") + "\n")
        except OSError:  # nobody waits any more
            pass

    def _take(self) -> bool:
        """Takes the order, which cannot be taken back from then on.  False: it was taken back before."""
        try:
            os.rename(f"{self.folder}/taken", f"{self.folder}/doing")
        except OSError:
            return False
        return True

    def begin(self) -> None:
        """Finds the optimizer, and waits for its steps."""
        from ._find import main_optimizer, things_of

        if "torch" not in sys.modules:
            raise Refused("it has not imported torch")
        attachments = _attachments()
        if self.action == "attach":
            if attachments:
                raise Refused(f"it is attached already ({attachments[0].address or 'rank 0 has the address'})")
            self.optimizer = main_optimizer()
            if self.optimizer is None:
                raise Refused("it has no DeepSpeedEngine and no torch optimizer")
        elif attachments:
            self.optimizer = attachments[0].optimizer
        else:
            raise Refused("it is not attached")
        self.things = things_of(self.optimizer)
        names = " and ".join(type(thing).__name__ for thing in self.things)
        rank, world = _place()
        is_engine = len(self.things) == 1
        self._undo = wrap_method(self.optimizer, "step", self._around) if is_engine else _hook_steps(self)
        self.answer("found", rank, world, names)

    def _around(self, step: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = step(*args, **kwargs)
            self._after_step()
            return result
        return wrapped

    def _after_step(self) -> None:
        if os.getpid() != self._pid:
            return
        try:
            if not os.path.exists(f"{self.folder}/taken"):
                self._undo()
                return
            now = self._count()
            try:
                with open(f"{self.folder}/step") as f:
                    at = int(f.read())
            except FileNotFoundError:
                self.answer("step", now, time.monotonic())
                return
            if now > at:
                raise Refused(f"step {at} was over before it heard of it")
            if not self._is_ready:
                self._is_ready = True
                self.answer("ready", now)
            if now < at:
                return
            self._undo()
            if self._take():
                self._do()
        except Exception as e:  # the job's objects may raise anything
            self._undo()
            self.answer("refused", e)

    def _count(self) -> int:
        from ._find import steps_done

        now = steps_done(self.things)
        if now is None and _place()[1] == 1:
            now = 0 if self._first is None else sum(self._first) + 1
        if now is None:
            raise Refused("nothing counts its steps (neither its optimizer nor an LRScheduler), "
                          "so that its ranks cannot begin at the same one")
        first, since = self._first or (now, -1)
        self._first = first, since + 1
        if now != sum(self._first):
            raise Refused("its count of steps does not grow by one with each step of its optimizer")
        return now

    def _do(self) -> None:
        from .attachment import attach

        if self.action == "attach":
            job = attach(*self.things, strict=True, **self.config)
            self.answer("done", job.address or "-")
        else:
            for attachment in _attachments():
                attachment.detach()
            self.answer("done", "-")


def _attachments() -> list[Any]:
    from ._find import instances
    from .attachment import Attachment

    return [thing for thing in instances(Attachment) if thing]


def _place() -> tuple[int, int]:
    from .attachment import launched_as

    place = launched_as()
    return int(place.get("rank", os.environ.get("RANK", 0))), int(place.get("world", os.environ.get("WORLD_SIZE", 1)))


def serve(folder: str, action: str, config: dict[str, Any], library: str | None) -> None:
    """Called by the code that the attaching process has put into this one."""
    order = Order(folder, action, config)
    try:
        if library:
            from . import _libfrag

            _libfrag.load(library)
        order.begin()
    except Exception as e:
        order.answer("refused", e)
