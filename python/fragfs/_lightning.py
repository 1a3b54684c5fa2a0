# SPDX-License-Identifier: Apache-2.0
"""A callback of Lightning's Trainer: Trainer(callbacks=[fragfs.LightningCallback()])."""

from __future__ import annotations

import sys
from typing import Any

from .attachment import attach_aloud

# Lightning's package has two names, and a Trainer of one takes no callback of the other.
if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback


class LightningCallback(Callback):
    """Attaches the first optimizer, from the first step to the end of fit(); arguments as attach() takes them."""

    def __init__(self, **options: Any) -> None:
        self.options, self.job = options, None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.optimizers:
            self.job = attach_aloud(trainer.optimizers[0], **self.options)

    def on_train_end(self, *_: Any) -> None:
        if self.job is not None:
            self.job.detach()
            self.job = None

    on_exception = on_train_end
