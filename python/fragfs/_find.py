# SPDX-License-Identifier: Apache-2.0
"""Finds the model and the optimizer of a process among the objects of its interpreter."""

from __future__ import annotations

import gc
from typing import Any

from .adapters import _is


def _objects() -> list[Any]:
    """All objects that gc knows; after gc.freeze() also those that can be reached from modules and running frames."""
    objects = gc.get_objects()
    if not gc.get_freeze_count():
        return objects
    import sys

    waiting: list[Any] = [*sys.modules.values(), *sys._current_frames().values()]
    seen = {id(thing): thing for thing in objects}
    seen.update((id(thing), thing) for thing in waiting)
    while waiting:
        for thing in gc.get_referents(waiting.pop()):
            if id(thing) not in seen:
                seen[id(thing)] = thing
                if gc.is_tracked(thing):
                    waiting.append(thing)
    return list(seen.values())


def instances(*kinds: type) -> list[Any]:
    """All objects of these classes.  type() is asked, and not the object, which may be a lazy one."""
    return [thing for thing in _objects() if issubclass(type(thing), kinds)]


def params_of(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _outermost(modules: list[Any], params: set[int]) -> Any:
    """The module that has all of the parameters, and most modules below it; None: there is none."""
    holders = [module for module in modules if params <= {id(p) for p in module.parameters()}]
    return max(holders, key=lambda module: sum(1 for _ in module.modules()), default=None)


def _engine_among(modules: list[Any], optimizer: Any) -> Any:
    for module in modules:
        if _is(module, "deepspeed", "DeepSpeedEngine") and any(
                optimizer is one for one in (module.optimizer, getattr(module.optimizer, "optimizer", None))):
            return module
    return None


def engine_of(optimizer: Any) -> Any:
    """The DeepSpeedEngine whose optimizer this is, or is around this; None: there is none."""
    import torch

    return _engine_among(instances(torch.nn.Module), optimizer)


def things_of(optimizer: Any) -> tuple[Any, ...]:
    """The arguments for attach(): the DeepSpeedEngine of the optimizer, else its model and itself.

    LookupError: no model has its parameters.
    """
    import torch

    modules = instances(torch.nn.Module)
    engine = _engine_among(modules, optimizer)
    if engine is not None:
        return (engine,)
    model = _outermost(modules, {id(p) for p in params_of(optimizer)})
    if model is None:
        raise LookupError("no model has the parameters of its optimizer")
    return model, optimizer


def main_optimizer() -> Any:
    """The optimizer whose step is the job's: an engine's, else torch's with most parameters; None: there is none."""
    import torch

    engines = [module for module in instances(torch.nn.Module) if _is(module, "deepspeed", "DeepSpeedEngine")]
    engines = [engine for engine in engines if engine.optimizer is not None]
    if engines:
        # of stage 3 a parameter has no elements between two uses
        return max(engines, key=lambda engine: sum(getattr(p, "ds_numel", p.numel()) for p in engine.module.parameters())).optimizer
    optimizers = [thing for thing in instances(torch.optim.Optimizer) if getattr(thing, "param_groups", None)]
    inner = [thing for thing in optimizers  # not one that wraps another, such as Accelerate's
             if not issubclass(type(getattr(thing, "optimizer", None)), torch.optim.Optimizer)]
    return max(inner, key=lambda thing: (sum(p.numel() for p in params_of(thing)), len(thing.state)), default=None)


def steps_done(things: tuple[Any, ...]) -> int | None:
    """How many steps there have been, by a number that all ranks have alike; None: nothing counts them.

    things: as of things_of().
    """
    import torch

    if len(things) == 1:
        return int(things[0].global_steps)
    optimizer = things[1]
    states = getattr(optimizer, "optim", optimizer).state  # of ZeroRedundancyOptimizer: its inner one's
    counts = [int(state["step"]) for state in list(states.values())[:16] if "step" in state]
    if counts:
        return max(counts)
    scheduler = getattr(torch.optim.lr_scheduler, "LRScheduler", None) or torch.optim.lr_scheduler._LRScheduler
    counts = [int(one.last_epoch) for one in instances(scheduler) if getattr(one, "optimizer", None) is optimizer]
    return max(counts, default=None)
