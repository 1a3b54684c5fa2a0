# SPDX-License-Identifier: Apache-2.0
"""For scripts that use Accelerate: fragfs.attach_accelerator(accelerator)."""

from __future__ import annotations

from typing import Any

from .adapters.base import wrap_method
from .attachment import Attachment, _Nothing, attach_aloud


class attach_accelerator:
    """Attaches the first optimizer that accelerator.prepare() has made ready, or will; detaches at free_memory(), after
    which the next prepare() is followed, and at end_training().

    job: what attach() has returned; None where nothing is prepared.  options: as attach() takes them.
    """

    def __init__(self, accelerator: Any, **options: Any) -> None:
        self.options = options
        self.job: Attachment | _Nothing | None = None
        self._undo = [wrap_method(accelerator, "end_training", self._around_end),
                      wrap_method(accelerator, "free_memory", self._around_free),  # clear() calls it
                      wrap_method(accelerator, "prepare", lambda prepare: self._around(accelerator, prepare))]
        self._attach(accelerator._optimizers)

    def _attach(self, optimizers: list[Any]) -> None:
        if optimizers and not self.job:
            self.job = attach_aloud(optimizers[0], **self.options)

    def _around(self, accelerator: Any, prepare: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            before = len(accelerator._optimizers)
            result = prepare(*args, **kwargs)
            self._attach(accelerator._optimizers[before:])
            return result
        return wrapped

    def _around_free(self, free_memory: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self._detach()
            return free_memory(*args, **kwargs)
        return wrapped

    def _around_end(self, end_training: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.detach()
            return end_training(*args, **kwargs)
        return wrapped

    def _detach(self) -> None:
        job, self.job = self.job, None  # it holds the optimizer, whose memory is to be freed
        if job is not None:
            job.detach()

    def detach(self) -> None:
        for undo in self._undo:
            undo()
        self._detach()
