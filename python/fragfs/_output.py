# SPDX-License-Identifier: Apache-2.0
"""What the commands of python -m fragfs print."""

from __future__ import annotations

import os


def say(line: str) -> None:
    """OSError: standard output does not take the line."""
    try:
        print(line, flush=True)
    except OSError as e:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # takes the buffered line, which the interpreter's exit would write again
        raise OSError(f"standard output: {e.strerror}") from None
