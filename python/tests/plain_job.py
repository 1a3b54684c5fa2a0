# SPDX-License-Identifier: Apache-2.0
"""plain_job.py KIND STOP: a rank of a job that knows nothing of fragfs; it trains until there is a file STOP.

Rank 0 prints a line for each step: its number, the loss, a hash of what the parameter `first.weight` was behind it.
KIND: ddp, compiled (the same by torch.compile), scaled (the same by Accelerate with a GradScaler), plain (one process),
zero2, sgd (nothing counts its steps).
"""

import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(31, 17)
        self.second = torch.nn.Linear(17, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).tanh())


def main(kind: str, stop: str) -> None:
    torch.manual_seed(7)
    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK", 0))
    if kind != "plain":
        dist.init_process_group("gloo")
    model = Model()
    dtype = torch.float32
    make = torch.optim.SGD if kind == "sgd" else torch.optim.AdamW
    if kind == "zero2":
        import deepspeed

        dtype = torch.bfloat16
        config = {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2},
                  "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
        engine = deepspeed.initialize(model=model, optimizer=make(model.parameters(), lr=1e-3), config=config)[0]
    else:
        whole = torch.nn.parallel.DistributedDataParallel(model) if kind != "plain" else model
        if kind == "compiled":
            whole = torch.compile(whole)
        optimizer = make(model.parameters(), lr=1e-3)
        scaler = None
        if kind == "scaled":
            from accelerate import Accelerator
            from accelerate.optimizer import AcceleratedOptimizer

            Accelerator(cpu=True)  # without which there is no state for the optimizer
            scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
            optimizer = AcceleratedOptimizer(optimizer, scaler=scaler)
    step = 0
    going = torch.ones(1)
    while going.item():
        step += 1
        torch.manual_seed(100 * step + rank)
        x = torch.randn(4, 31).to(dtype)
        if kind == "zero2":
            loss = engine(x).float().square().mean()
            engine.backward(loss)
            engine.step()
        else:
            loss = whole(x).square().mean()
            optimizer.zero_grad()
            (scaler.scale(loss) if scaler else loss).backward()
            optimizer.step()
        if rank == 0:
            weight = model.first.weight.detach().contiguous().view(torch.uint8).numpy()
            print(step, loss.item().hex(), hashlib.sha256(weight.tobytes()).hexdigest(), flush=True)
        time.sleep(0.005)
        going.fill_(not os.path.exists(stop))
        if kind != "plain":
            dist.broadcast(going, 0)
    if kind != "plain":
        dist.destroy_process_group()
        # gloo's thread may free a tensor while the interpreter ends, which then aborts (torch 2.15)
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
