# SPDX-License-Identifier: Apache-2.0
"""Where lines for people go: to standard error, or to a logger of Python."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
from typing import Any

from . import _libfrag

_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, logging.DEBUG)

_logger: logging.Logger | None = None
_callback: Any = None  # the function that libfrag calls


def log_to(logger: logging.Logger | None) -> None:
    """Gives the lines of libfrag, up to the level of FRAG_LOG, and of this package to a logger; None: to stderr again.

    libfrag's lines come from a thread of libfrag.
    """
    global _logger, _callback
    library = _libfrag.load()
    callback = _libfrag.frag_log_line(
        lambda _, level, text: logger.log(_LEVELS[level], "%s", text.decode(errors="replace"))) if logger else None
    code = library.frag_log(callback or _libfrag.frag_log_line(), None)
    if code:
        raise OSError(-code, f"frag_log: {os.strerror(-code)}")
    _logger, _callback = logger, callback
    atexit.unregister(_end)
    if logger:
        atexit.register(_end)


def _end() -> None:
    log_to(None)


def say(text: str) -> None:
    """A line that standard error does not take (it is closed, its disk is full, its reader has gone) is lost: training goes on."""
    if _logger:
        _logger.warning("%s", text)
        return
    rank = os.environ.get("RANK")
    with contextlib.suppress(OSError, ValueError):
        print(f"fragfs: {f'rank {rank}: ' if rank else ''}{text}", file=sys.stderr, flush=True)
