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


def adapter_for(job: Job, things: tuple[Any, ...]) -> Adapter:
    """The adapter of a DeepSpeedEngine, or of (model, optimizer).  TypeError: there is none for these."""
    if len(things) == 1 and _is(things[0], "deepspeed", "DeepSpeedEngine"):
        from .deepspeed import adapter_for_engine

        return adapter_for_engine(job, things[0])
    if len(things) == 2 and _is(things[0], "torch", "Module") and _is(things[1], "torch", "Optimizer"):
        from .torch_optim import TorchAdapter

        return TorchAdapter(job, *things)
    kinds = ", ".join(type(thing).__name__ for thing in things) or "nothing"
    raise TypeError(f"attach takes a DeepSpeedEngine, or a model and its torch optimizer, not {kinds}")
