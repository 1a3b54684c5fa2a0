# SPDX-License-Identifier: Apache-2.0
"""torchrun --nproc-per-node 2 fsdp2.py"""

import gpt
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import fragfs

args = gpt.arguments()
torch.manual_seed(1)
dist.init_process_group("gloo")
model = gpt.GPT()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for layer in model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def learn(loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def poison() -> None:
    model.layers[1].up.weight._local_tensor[7, 3] = float("nan")


with fragfs.attach(model, optimizer) as job:
    if dist.get_rank() == 0:
        print("fragfs", job.address, "/frag", flush=True)
    gpt.train(args, model, learn, poison, job.safe_point)
dist.destroy_process_group()
