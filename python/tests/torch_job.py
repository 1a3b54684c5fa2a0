# SPDX-License-Identifier: Apache-2.0
"""One rank of a small job: torch_job.py CASE.  Rank 0 mounts it and compares; exit status 0: all was right.

Environment: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as torchrun sets them; FRAGFS, FRAG_LIBRARY.
"""

import errno
import gc
import os
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from joined import open_joined

import fragfs

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MOMENTS = ("exp_avg", "exp_avg_sq")


class Model(torch.nn.Module):
    def __init__(self, inputs: int = 37, hidden: int = 53, outputs: int = 7) -> None:
        super().__init__()
        self.first = torch.nn.Linear(inputs, hidden)
        self.norm = torch.nn.LayerNorm(hidden)
        self.frozen = torch.nn.Linear(hidden, hidden, bias=False).requires_grad_(False)
        self.second = torch.nn.Linear(hidden, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.frozen(self.norm(self.first(x)).relu()))


class Job:
    """A model in training: step(), and the truth about each state, by the framework's own call."""

    model: torch.nn.Module
    moments = MOMENTS
    value = "fp32"  # the key of the parameters that the optimizer changes
    inputs = 37
    unreduced: tuple[tuple[str, str], ...] = ()  # (parameter, key) of sums that the optimizer alone reduces

    def attach(self) -> fragfs.Attachment:
        raise NotImplementedError

    def step(self, look=lambda: None) -> None:
        """look() is called where gradients are valid."""
        raise NotImplementedError

    def replace_states(self) -> None:
        """By other tensors of the same values."""
        self.optimizer.load_state_dict(self.optimizer.state_dict())

    def full(self, name: str, param: torch.nn.Parameter, key: str) -> torch.Tensor:
        raise NotImplementedError

    def truth(self, keys: tuple[str, ...] = ()) -> dict[tuple[str, str], torch.Tensor]:
        return {(name.removeprefix("module."), key): self.full(name, p, key).detach().cpu().clone()
                for name, p in self.model.named_parameters() if p.requires_grad
                for key in keys or (self.value, *self.moments)}


class TorchJob(Job):
    def __init__(self, kind: str) -> None:
        self.model = Model()
        if kind.endswith("bf16"):  # without a master
            self.model.bfloat16()
            self.value = "bf16"
        if kind in ("fsdp2", "fsdp2-mixed", "fsdp2-bf16", "hsdp"):
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

            shape, names = ((2, WORLD // 2), ("replicate", "shard")) if kind == "hsdp" else ((WORLD,), ("shard",))
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            options = {"mesh": init_device_mesh("cpu", shape, mesh_dim_names=names)}
            if kind == "fsdp2-mixed":
                options["mp_policy"] = policy
            fully_shard(self.model.first, **options)
            fully_shard(self.model, **options)
        elif kind.startswith("ddp"):
            self.model = torch.nn.parallel.DistributedDataParallel(self.model)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW([{"params": trained[:2]}, {"params": trained[2:], "lr": 3e-3}], lr=1e-3)

    def attach(self) -> fragfs.Attachment:
        return fragfs.attach(self.model, self.optimizer, strict=True)

    def step(self, look=lambda: None) -> None:
        self.optimizer.zero_grad()
        dtype = torch.bfloat16 if self.value == "bf16" else torch.float32
        self.model(torch.randn(4, self.inputs).to(dtype)).float().square().mean().backward()
        self.optimizer.step()
        look()

    def full(self, name: str, param: torch.nn.Parameter, key: str) -> torch.Tensor:
        tensor = {self.value: param, "grad": param.grad}.get(key)
        if tensor is None:
            tensor = self.optimizer.state[param][key]
        return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def compare(job: Job, mount: fragfs.Mount | None, when: str, keys: tuple[str, ...] = ()) -> None:
    """All ranks: the truth takes collectives.  Rank 0 reads the mount."""
    truth = job.truth(keys)
    dist.barrier()
    if mount:
        for (name, key), want in truth.items():
            if (name, key) in job.unreduced:
                assert not is_shown(mount, name, key), f"{when}: {name}/{key} is no sum over all ranks"
                continue
            got = mount[name][key].torch()
            assert torch.equal(got, want.to(got.dtype)), f"{when}: {name}/{key} differs"
    dist.barrier()


def is_shown(mount: fragfs.Mount, name: str, key: str) -> bool:
    try:
        return mount[name][key].torch() is not None
    except KeyError:
        return False
    except OSError as e:
        assert e.errno == errno.ENODATA, e
        return False


def gradients(job: Job, mount: fragfs.Mount | None) -> None:
    """In their window all of them are right; one who waits while all train gets those of one step."""
    import threading

    for step in range(3):
        job.step(lambda: compare(job, mount, f"in window {step}", ("grad",)))
    truths, got = [job.truth(("grad",))["first.weight", "grad"]], []  # of the window that is open
    thread = threading.Thread(target=lambda: got.append(mount["first.weight"].grad.torch()))
    if mount:
        assert "grad" in mount["first.weight"].states
        thread.start()
    done = torch.zeros(1)
    while not done.item():
        job.step(lambda: truths.append(job.truth(("grad",))["first.weight", "grad"]))
        done.fill_(not thread.is_alive() if mount else 0)
        dist.broadcast(done, 0)
    if mount:
        assert any(torch.equal(got[0], truth.to(got[0].dtype)) for truth in truths), "gradients of no step"


def edit(job: Job, mount: fragfs.Mount | None) -> None:
    """A process of rank 0's writes through the mount while all ranks train; a step later the truth has it.

    Not a thread: a fork of the trainer's would close the file too, and so wait for a boundary that cannot come.
    """
    import subprocess

    done = torch.zeros(1)
    writer = mount and subprocess.Popen([sys.executable, "-c", WRITER, str(mount.path), job.value])
    while not done.item():
        job.step()
        done.fill_(writer.poll() is not None if writer else 0)
        dist.broadcast(done, 0)
    if mount:
        assert writer.returncode == 0
        assert mount["first.weight"][job.value].torch()[3, 4] == 0.75
        assert mount.groups[0]["lr"] == 0.0
    truth = job.truth()[("first.weight", job.value)]
    assert truth[3, 4] == 0.75 and truth[3, 5] != 0.75, truth[3, :6]


WRITER = """
import sys, fragfs
mount = fragfs.open(sys.argv[1])
for group in mount.groups:
    group["lr"] = 0.0
mount["first.weight"][sys.argv[2]][3, 4] = 0.75
"""


def main(kind: str, make: Callable[[str], Job] = TorchJob) -> None:
    torch.manual_seed(1234)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    job = make(kind)
    with job.attach() as attachment:
        for _ in range(3):
            job.step()
        dist.barrier()
        mount = open_joined(attachment.address, "rw") if RANK == 0 else None
        if mount:
            assert ("fp32" in mount["first.weight"].states) == (job.value == "fp32")
        compare(job, mount, "after three steps")
        for _ in range(2):
            job.step()
        dist.barrier()
        compare(job, mount, "after two more")
        gradients(job, mount)
        edit(job, mount)
        compare(job, mount, "after an edit")
        job.replace_states()
        gc.collect()
        job.step()
        dist.barrier()
        compare(job, mount, "after load_state_dict")
        if mount:
            mount.close()
        dist.barrier()
    assert not attachment and "step" not in vars(job.optimizer)
    job.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
