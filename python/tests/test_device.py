# SPDX-License-Identifier: Apache-2.0
"""A rank whose states are in memory of a GPU, over the stub of CUDA's runtime that `make check` builds."""

import array
import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile
import time
import types
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fragfs
from fragfs import _job, _libfrag

NUMEL = 4
RUNTIME = "libcudart.so.13"


def stub() -> Path:
    """Where the build of the library has it; this path has no file where there is none."""
    with contextlib.suppress(OSError):
        return Path(_libfrag.find()).parents[1] / "tests/cuda/.libs/libcudart-stub.so"
    return Path("/nonexistent")


class Device(NamedTuple):
    type: str
    index: int


class Tensor:
    """What a Job asks of torch's."""

    dtype, device = "float32", Device("cuda", 1)

    def __init__(self, cuda: Any) -> None:
        memory = ctypes.c_void_p()
        with current(cuda, self.device):
            assert not cuda.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(4 * NUMEL))
        self.values = (ctypes.c_float * NUMEL).from_address(memory.value)

    def numel(self) -> int:
        return NUMEL

    def is_contiguous(self) -> bool:
        return True

    def data_ptr(self) -> int:
        return ctypes.addressof(self.values)


@contextlib.contextmanager
def current(cuda: Any, device: Device) -> Iterator[None]:
    cuda.cudaSetDevice(device.index)
    yield
    cuda.cudaSetDevice(0)


def rank() -> None:
    """A reader sees what a step has enqueued on the stream that was current, however late it is done."""
    cuda, stream = ctypes.CDLL(RUNTIME), ctypes.c_void_p()
    cuda.cudaLaunchHostFunc.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    assert not cuda.cudaStreamCreateWithFlags(ctypes.byref(stream), 0)
    sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(  # type: ignore[assignment]
        device=lambda device: current(cuda, device),
        current_stream=lambda device: types.SimpleNamespace(cuda_stream=stream.value)))
    job = _job.Job(rank=0, world=1)
    param = job.param("w", [NUMEL], "float32")
    group = job.group([param], stage=1)
    tensors = {key: Tensor(cuda) for key in ("fp32", "exp_avg", "grad")}
    job.keep(group, 0, "fp32", tensors["fp32"])
    job.keep_fragments([param], "exp_avg", [tensors["exp_avg"]])
    job.declare(group, 0, "grad", "float32")

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def work(value: int) -> None:
        time.sleep(0.2)
        for tensor in tensors.values():
            tensor.values[:] = [value] * NUMEL

    job.ready()
    job.wait_ready(60)
    with fragfs.open(job.address) as mount:
        for value in (1, 2, 3):
            job.step_begin()
            assert not cuda.cudaLaunchHostFunc(stream, work, value)
            job.step_end()
            job.move(group, 0, "grad", tensors["grad"])
            job.grads_valid(1)
            for key in tensors:
                assert array.array("f", mount["w"][key].bytes()).tolist() == [value] * NUMEL, (key, value)
            job.grads_gone()
    other = Tensor(cuda)
    other.device = Device("mps", 0)
    try:
        job.keep(group, 0, "exp_avg_sq", other)
        raise AssertionError("memory of another kind was taken")
    except ValueError:
        job.close()


@unittest.skipUnless(stub().exists(), "no stub of CUDA's runtime is built")
class Memory(unittest.TestCase):
    def test_states_in_memory_of_a_device(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, RUNTIME).symlink_to(stub())
            done = subprocess.run(
                [sys.executable, __file__, "rank"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                env={**os.environ, "LD_LIBRARY_PATH": folder, "FRAG_GATHER": "host", "MASTER_PORT": "0",
                     "FRAG_JOB_ID": f"device-{os.getpid()}"})
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    rank() if sys.argv[1:] == ["rank"] else unittest.main()
