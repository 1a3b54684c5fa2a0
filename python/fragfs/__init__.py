# SPDX-License-Identifier: Apache-2.0
"""fragfs: see and edit the sharded state of a training job.

In the training script, on each rank:      fragfs.attach(engine)   or   fragfs.attach(model, optimizer)
Anywhere else:                             fragfs.open("/frag")["layers.0.weight"].fp32[3:5]
"""

from __future__ import annotations

from .attachment import Attachment, attach
from .reader import Mount, Parameter, State, open

__all__ = ["Attachment", "Mount", "Parameter", "State", "attach", "open"]
