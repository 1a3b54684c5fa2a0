# SPDX-License-Identifier: Apache-2.0
"""A callback of transformers' Trainer: trainer.add_callback(fragfs.TrainerCallback())."""

from __future__ import annotations

from typing import Any

import transformers

from .attachment import attach_aloud


class TrainerCallback(transformers.TrainerCallback):
    """Attaches what the Trainer trains, from the first step to the end of train(); arguments as attach() takes them.

    Under any launcher, with DeepSpeed, FSDP or without.
    """

    def __init__(self, **options: Any) -> None:
        self.options, self.job = options, None

    def on_train_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
        self.on_train_end()  # of a train() that an exception has ended
        self.job = attach_aloud(optimizer, **self.options)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        if self.job is not None:
            self.job.detach()
            self.job = None
