# SPDX-License-Identifier: Apache-2.0
"""trouble_job.py KIND FRAMEWORK HOW: a rank that prints its losses, and to which something happens.

HOW: bare, attached.  FRAMEWORK: plain (one process), ddp, fsdp2, zero2, zero3.
"""

import contextlib
import gc
import os
import sys

import torch
import torch.distributed as dist
from joined import open_joined
from plain_job import Model

import fragfs

RANK = int(os.environ.get("RANK", 0))


class Data(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.randn(31, generator=torch.Generator().manual_seed(i))


def zero(job: "Job", stage: int) -> None:
    import deepspeed

    config = {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "zero_optimization": {"stage": stage},
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    job.engine = deepspeed.initialize(model=job.model, optimizer=job.optimize(), config=config)[0]
    job.gather = deepspeed.zero.GatheredParameters


def ddp(job: "Job") -> None:
    job.whole = torch.nn.parallel.DistributedDataParallel(job.model)
    job.optimize()


def fsdp2(job: "Job") -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    fully_shard(job.model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    job.optimize()


FRAMEWORKS = {"plain": lambda job: job.optimize(), "ddp": ddp, "fsdp2": fsdp2, "zero2": lambda job: zero(job, 2),
              "zero3": lambda job: zero(job, 3)}


class Job:
    def __init__(self, framework: str, how: str) -> None:
        self.model, self.engine, self.gather = Model(), None, contextlib.nullcontext
        self.whole, self.attachment, self.is_attached = self.model, None, how == "attached"
        FRAMEWORKS[framework](self)

    def optimize(self) -> torch.optim.Optimizer:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        return self.optimizer

    def attach(self, *things: object) -> None:
        things = things or ((self.engine,) if self.engine else (self.whole, self.optimizer))
        if self.is_attached:
            self.attachment = fragfs.attach(*things, strict=True)

    def step(self, x: torch.Tensor) -> None:
        if self.engine:
            loss = self.engine(x.bfloat16()).float().square().mean()
            self.engine.backward(loss)
            self.engine.step()
        else:
            loss = self.whole(x).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        print("loss", loss.item().hex(), flush=True)

    def steps(self, number: int) -> None:
        for step in range(number):
            torch.manual_seed(100 * step + RANK)
            self.step(torch.randn(4, 31))

    def look(self) -> None:
        """A mount shows what the model has now."""
        params = dict(self.model.named_parameters())
        with self.gather(list(params.values())):
            truth = {name: p.full_tensor() if hasattr(p, "full_tensor") else p.detach().clone() for name, p in params.items()}
        if self.attachment and RANK == 0:
            with open_joined(self.attachment.address) as mount:
                for name, value in truth.items():
                    assert torch.equal(mount[name]["bf16" if self.engine else "fp32"].torch(), value), name
        if dist.is_initialized():
            dist.barrier()


def workers(job: Job, context: str) -> None:
    job.attach()
    loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context=context)
    for _ in range(2):
        for batch in loader:
            job.step(batch)
    job.look()


def compiled(job: Job, given: str) -> None:
    """given: what attach() gets, the model or the compiled one; before or after there is code of it."""
    job.whole = torch.compile(job.model, fullgraph=True, backend="aot_eager")
    if given == "late":
        job.steps(2)
    job.attach(job.model if given == "inner" else job.whole, job.optimizer)
    job.steps(4)
    job.look()
    gc.collect()
    print("compiled", torch._dynamo.utils.counters["frames"]["ok"])


def again(job: Job, _: str) -> None:
    for _ in range(3):
        job.attach()
        job.steps(2)
        job.look()
        if job.attachment:
            job.attachment.detach()
        job.steps(2)


def caught(job: Job, _: str) -> None:
    """An exception in a step that the script catches; it goes on."""
    job.attach()
    job.steps(2)

    def fail(*_: object) -> None:
        hook.remove()
        raise ValueError("of the job")

    hook = job.optimizer.register_step_pre_hook(fail)
    try:
        job.steps(1)
    except Exception as e:  # torch's own, since a hook was removed, or the hook's
        assert "of the job" in str(e) or isinstance(e, RuntimeError), e
    job.optimizer.zero_grad()
    job.look()
    job.steps(2)
    job.look()


def hook_fails(job: Job, _: str) -> None:
    """Whatever is wrong in libfrag is a line, and the job's steps go on."""
    job.attach()
    job.steps(2)
    if job.attachment:
        def fail(*_: object) -> None:
            raise OSError("of libfrag")

        job.attachment._job.step_begin = fail
    job.steps(3)
    assert not job.attachment


def raises(job: Job, _: str) -> None:
    def fail(*_: object) -> None:
        raise ValueError("of the job")

    job.attach()
    job.steps(3)
    (job.engine.optimizer.optimizer if job.engine else job.optimizer).register_step_pre_hook(fail)
    job.steps(1)


def endless(job: Job, _: str) -> None:
    job.attach()
    if job.attachment:
        print("address", job.attachment.address, flush=True)
    job.steps(1000000)


KINDS = {"workers": workers, "compiled": compiled, "again": again, "caught": caught, "hook_fails": hook_fails,
         "raises": raises, "endless": endless}


def main(kind: str, framework: str, how: str) -> None:
    torch.manual_seed(5)
    torch.set_num_threads(1)
    if framework != "plain":
        dist.init_process_group("gloo")
    name, _, what = kind.partition("-")
    KINDS[name](Job(framework, how), what)
    if framework != "plain":
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
