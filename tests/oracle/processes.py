# SPDX-License-Identifier: Apache-2.0
"""Processes of a job on this machine, with gloo and without a GPU, for the scripts here."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import types

SECONDS = 1800


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(world, script, *arguments):
    """Runs a script as `world` ranks; exits when one of them fails."""
    port = str(free_port())
    ranks = []
    try:
        for rank in range(world):
            env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
            env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, OMP_NUM_THREADS="1")
            env.update(LOCAL_SIZE=str(world), DS_ACCELERATOR="cpu")
            env.setdefault("GLOO_SOCKET_IFNAME", "lo")
            ranks.append(subprocess.Popen([sys.executable, os.path.abspath(script), *arguments], env=env))
        failed = first_failed(ranks)
    finally:
        for p in ranks:
            p.kill()
            p.wait()
    if failed is not None:
        sys.exit(f"{' '.join(arguments)}: rank {failed} of {world} failed")


def first_failed(ranks):
    """Waits for all of them, or until one has failed: others may wait for it in vain."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        results = [p.poll() for p in ranks]
        failed = [r for r, result in enumerate(results) if result]
        if failed:
            return failed[0]
        if None not in results:
            return None
        time.sleep(0.1)
    return 0


def start_deepspeed():
    """To be called first of all in a rank."""
    # Before 0.11 DeepSpeed takes the CPU only together with Intel's extensions, and then needs nothing of them.
    with contextlib.suppress(ImportError):
        from importlib.metadata import version

        if tuple(map(int, version("deepspeed").split(".")[:2])) < (0, 11):
            for name in ("intel_extension_for_pytorch", "oneccl_bindings_for_pytorch"):
                sys.modules.setdefault(name, types.ModuleType(name))
    import deepspeed
    import torch

    torch.set_num_threads(1)
    skip_broadcasts()
    from deepspeed.accelerator import get_accelerator

    # What is computed in float16 here is converted first.
    get_accelerator().is_fp16_supported = lambda: True
    get_accelerator()._communication_backend_name = "gloo"
    deepspeed.init_distributed("gloo")


def skip_broadcasts():
    """Ranks are filled alike, and 0.19.8 cannot broadcast a 0-dim parameter as bytes."""
    import deepspeed
    from deepspeed.runtime.zero.partition_parameters import Init

    def convert(init, param):
        init._convert_to_deepspeed_param(param)
        param.partition()

    deepspeed.DeepSpeedEngine._broadcast_model = lambda engine: None
    Init._zero_init_param = convert
