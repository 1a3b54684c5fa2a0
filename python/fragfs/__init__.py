# SPDX-License-Identifier: Apache-2.0
"""fragfs: see and edit the sharded state of a training job.

fragfs.open(SOURCE) reads a mount, a job or a checkpoint (fragfs.reader).
"""

from __future__ import annotations

from .reader import Mount, Parameter, State, open

__all__ = ["Mount", "Parameter", "State", "open"]
