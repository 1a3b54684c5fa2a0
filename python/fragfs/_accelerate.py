# SPDX-License-Identifier: Apache-2.0
"""For scripts that use Accelerate: fragfs.attach_accelerator(accelerator)."""

from __future__ import annotations

from typing import Any

from .adapters.base import wrap_method
from .attachment import Attachment, _Nothing, attach_aloud


class attach_accelerator:
    """Attaches the first optimizer that accelerator.prepare() has made ready, or will; detaches at end_training().

    job: what attach() has returned; None until prepare().  options: as attach() takes them.
    """

    def __init__(self, accelerator: Any, **options: Any) -> None:
        self.options = options
        self.job: Attachment | _Nothing | None = None
        self._undo = [wrap_method(accelerator, "end_training", self._around_end)]
        if accelerator._optimizers:
            self._attach(accelerator)
        else:
            self._undo.append(wrap_method(accelerator, "prepare", lambda prepare: self._around(accelerator, prepare)))

    def _attach(self, accelerator: Any) -> None:
        self.job = attach_aloud(accelerator._optimizers[0], **self.options)

    def _around(self, accelerator: Any, prepare: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = prepare(*args, **kwargs)
            if accelerator._optimizers and self.job is None:
                self._attach(accelerator)
            return result
        return wrapped

    def _around_end(self, end_training: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.detach()
            return end_training(*args, **kwargs)
        return wrapped

    def detach(self) -> None:
        for undo in self._undo:
            undo()
        if self.job is not None:
            self.job.detach()
