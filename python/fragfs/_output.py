# SPDX-License-Identifier: Apache-2.0
"""The standard output of the commands of python -m fragfs."""

from __future__ import annotations

import os


def say(line: str) -> None:
    """OSError: standard output does not take the line."""
    try:
        print(line, flush=True)
    except OSError as e:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # takes the buffered line, which Python would write again when it ends
        raise OSError(f"standard output: {e.strerror}") from None
