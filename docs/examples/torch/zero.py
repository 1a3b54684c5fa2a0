# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed, ZeRO stage 2 in bfloat16: deepspeed --num_gpus 2 zero.py, or torchrun --nproc-per-node 2 zero.py"""

import deepspeed
import gpt
import torch
import torch.distributed as dist

import fragfs

CONFIG = {"train_micro_batch_size_per_gpu": 8, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2},
          "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}

args = gpt.arguments()
torch.manual_seed(1)
deepspeed.init_distributed()
model = gpt.GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
engine = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)[0]


def learn(loss: torch.Tensor) -> None:
    engine.backward(loss)
    engine.step()


def poison() -> None:
    engine.optimizer.single_partition_of_fp32_groups[0].data[4711] = float("nan")


with fragfs.attach(engine) as job:
    if dist.get_rank() == 0:
        print("fragfs", job.address, "/frag", flush=True)
    gpt.train(args, engine, learn, poison, job.safe_point)
dist.destroy_process_group()
