# SPDX-License-Identifier: Apache-2.0
"""python -m fragfs run SCRIPT ARGS...: the script, attached as it is.   python -m fragfs doctor: what is here.
python -m fragfs attach PID...: a job that is running."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import runpy
import shutil
import sys
from collections.abc import Iterator
from typing import Any

USAGE = ("usage: python -m fragfs run SCRIPT [ARGUMENT...]\n"
         "       python -m fragfs attach [OPTION...] PID... (--help: its options)\n       python -m fragfs doctor")


# ---- run ----


def run(script: str, arguments: list[str]) -> int:
    """Runs a script as it is, and attaches the optimizer that steps first, behind that step; that of a DeepSpeedEngine behind the
    next one: in the step, while torch's optimizer steps for each param group, the others are not there.
    """
    try:
        os.stat(script)
    except OSError as e:
        print(f"fragfs: {script}: {e.strerror}", file=sys.stderr)
        return 2
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from ._find import engine_of
    from .adapters.base import wrap_method
    from ._log import say
    from .attachment import attach_aloud

    seen = tried = False

    def after_step(optimizer: Any, *_: Any) -> None:  # the hook stays: torch is iterating over its hooks
        nonlocal seen, tried
        if seen:
            return
        seen = True
        engine = engine_of(optimizer) if "deepspeed" in sys.modules else None
        if engine is None:
            tried = True
            attach_aloud(optimizer)
        else:
            attach_behind_step(engine)

    def attach_behind_step(engine: Any) -> None:
        def around(step: Any) -> Any:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                nonlocal tried
                result = step(*args, **kwargs)
                undo()
                tried = True
                attach_aloud(engine)
                return result
            return wrapped

        undo = wrap_method(engine.optimizer, "step", around)

    register_optimizer_step_post_hook(after_step)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        if not tried:
            say("not attached: no optimizer has ended a step (of DeepSpeed: two) in this process")
    return 0


# ---- doctor ----


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package) if importlib.util.find_spec(package) else None
    except importlib.metadata.PackageNotFoundError:
        return "of no known version"


def _findings() -> Iterator[tuple[bool, str]]:
    """Of each finding: whether it is as it should be, and a line."""
    from . import _libfrag, remote

    try:
        yield True, f"libfrag {_libfrag.load().frag_version().decode()}: {_libfrag.find()}"
    except OSError as e:
        yield False, f"libfrag: {e}: no job can be attached"
    program = os.environ.get("FRAGFS") or shutil.which("fragfs")
    yield bool(program), f"fragfs: {program or 'not in PATH: fragfs.open reads mounts that are there, and makes none'}"
    fuse = os.access("/dev/fuse", os.R_OK | os.W_OK)
    yield fuse, f"/dev/fuse: {'can be opened' if fuse else 'cannot be opened: nothing can be mounted here'}"
    for package, what in (("torch", "DDP, FSDP1 (use_orig_params) and 2, tensor parallelism and plain torch can be attached"),
                          ("deepspeed", "ZeRO 0 to 3 and BF16_Optimizer can be attached"),
                          ("numpy", "states can be read as arrays"), ("ml_dtypes", "bfloat16 and float8 too")):
        version = _version(package)
        yield bool(version), f"{package} {version}: {what}" if version else f"{package}: not installed"
    try:
        yield True, f"attach PID: by {remote.way_here()}"
    except remote.Refused as e:
        yield False, f"attach PID: {e}"
    said = [f"{name}={os.environ[name]}" for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "FRAG_JOB_ID")
            if name in os.environ]
    yield True, f"launcher: {' '.join(said) or 'none has set RANK here'}"


def doctor() -> int:
    """Exit status 0: a job could be attached."""
    from ._output import say

    findings = list(_findings())
    try:
        for well, line in findings:
            say(f"{'ok     ' if well else 'missing'} {line}")
    except OSError as e:
        print(f"fragfs: {e}", file=sys.stderr)
        return 1
    return 0 if findings[0][0] else 1


def main() -> int:
    given = [argument for argument in sys.argv[1:2] if argument.startswith("--local_rank=")]  # by DeepSpeed's launcher
    arguments = sys.argv[1 + len(given):]
    if arguments == ["doctor"]:
        return doctor()
    if arguments[:1] == ["run"] and len(arguments) > 1 and not arguments[1].startswith("-"):  # run has no options
        return run(arguments[1], given + arguments[2:])
    if arguments[:1] == ["attach"]:
        from . import remote

        return remote.main(arguments[1:])
    print(USAGE, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
