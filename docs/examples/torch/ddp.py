# SPDX-License-Identifier: Apache-2.0
"""torchrun --nproc-per-node 2 ddp.py"""

import gpt
import torch
import torch.distributed as dist

import fragfs

args = gpt.arguments()
torch.manual_seed(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(gpt.GPT())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def learn(loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def poison() -> None:
    model.module.layers[1].up.weight.data[7, 3] = float("nan")


with fragfs.attach(model, optimizer) as job:
    if dist.get_rank() == 0:
        print("fragfs", job.address, "/frag", flush=True)
    gpt.train(args, model, learn, poison, job.safe_point)
dist.destroy_process_group()
