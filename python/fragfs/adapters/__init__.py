# SPDX-License-Identifier: Apache-2.0
"""What each framework keeps where.  No framework is imported here: objects are known by their classes' names."""

from __future__ import annotations

from typing import Any

from .._job import Job
from .base import Adapter


def _names(thing: Any) -> set[str]:
    return {f"{c.__module__}.{c.__name__}" for c in type(thing).__mro__}


def _is(thing: Any, package: str, name: str) -> bool:
    return any(full.startswith(package + ".") and full.endswith("." + name) for full in _names(thing))


def _inner(optimizer: Any) -> Any:
    """The optimizer that Accelerate's, which is none of torch's, is around."""
    while _is(optimizer, "accelerate", "AcceleratedOptimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def adapter_for(job: Job, things: tuple[Any, ...]) -> Adapter:
    """The adapter of a DeepSpeedEngine, of (model, optimizer), or of an optimizer, whose model is looked for.

    TypeError: there is none for these.  LookupError: no model has the optimizer's parameters.
    """
    things = tuple(map(_inner, things))
    if len(things) == 1 and (_is(things[0], "torch", "Optimizer") or _is(things[0], "deepspeed", "DeepSpeedOptimizer")):
        from .._find import things_of

        things = things_of(things[0])
    engine = next((thing for thing in things if _is(thing, "deepspeed", "DeepSpeedEngine")), None)
    if engine is not None:
        from .deepspeed import adapter_for_engine

        return adapter_for_engine(job, engine)
    if len(things) == 2 and _is(things[0], "torch", "Module") and _is(things[1], "torch", "Optimizer"):
        from .torch_optim import FlatAdapter, RedundancyAdapter, TorchAdapter

        if _is(things[1], "torch", "ZeroRedundancyOptimizer"):
            return RedundancyAdapter(job, *things)
        is_flat = any(_is(module, "torch", "FullyShardedDataParallel") for module in things[0].modules())
        return (FlatAdapter if is_flat else TorchAdapter)(job, *things)
    kinds = ", ".join(type(thing).__name__ for thing in things) or "nothing"
    raise TypeError("attach takes a DeepSpeedEngine, a model and its torch optimizer, or an optimizer of either "
                    f"(Accelerate's too), not {kinds}")
