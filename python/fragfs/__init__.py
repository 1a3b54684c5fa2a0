# SPDX-License-Identifier: Apache-2.0
"""fragfs: see and edit the sharded state of a training job.

In the training script, on each rank:      fragfs.attach(engine)   or   fragfs.attach(model, optimizer)
Anywhere else:                             fragfs.open("/frag")["layers.0.weight"].fp32[3:5]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._accelerate import attach_accelerator
    from ._log import log_to
    from ._lightning import LightningCallback
    from ._transformers import TrainerCallback
    from .attachment import Attachment, attach
    from .reader import Mount, Parameter, State, open

_MODULES = {"Attachment": "attachment", "attach": "attachment", "attach_accelerator": "_accelerate",
            "LightningCallback": "_lightning", "TrainerCallback": "_transformers",
            "log_to": "_log", "Mount": "reader", "Parameter": "reader", "State": "reader", "open": "reader"}
__all__ = ["Attachment", "LightningCallback", "Mount", "Parameter", "State", "TrainerCallback", "attach",
           "attach_accelerator", "log_to", "open"]


def __getattr__(name: str) -> Any:
    """Each name is imported when it is first used, so that `import fragfs` costs nothing."""
    if name not in _MODULES:
        raise AttributeError(f"fragfs has no {name}")
    value = getattr(importlib.import_module("." + _MODULES[name], __name__), name)
    globals()[name] = value
    return value
