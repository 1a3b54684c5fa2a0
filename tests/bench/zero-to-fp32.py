# SPDX-License-Identifier: Apache-2.0
"""zero-to-fp32.py FOLDER [NAME]: what DeepSpeed's own way to a checkpoint's values costs: seconds without its imports, MiB
at most; of all parameters, or of one, which takes all too.  Status 1: there is no DeepSpeed."""
import contextlib
import io
import resource
import sys
import time

try:
    with contextlib.redirect_stdout(io.StringIO()):
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
except ImportError as e:
    sys.exit(f"no DeepSpeed: {e}")
begin = time.monotonic()
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    values = get_fp32_state_dict_from_zero_checkpoint(sys.argv[1])
    if len(sys.argv) > 2:
        values = values[sys.argv[2]].clone()
seconds = time.monotonic() - begin
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
