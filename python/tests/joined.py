# SPDX-License-Identifier: Apache-2.0
"""What the jobs of these tests do alike."""

import time

import fragfs


def open_joined(address: str, *options: str) -> fragfs.Mount:
    """Mounts a job whose ranks may be finding each other still: on a busy machine that takes longer than fragfs waits."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return fragfs.open(address, *options)
        except OSError as e:
            if "joined" not in str(e) or time.monotonic() > deadline:
                raise
        time.sleep(0.1)
