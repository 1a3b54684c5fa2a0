# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer: torchrun --nproc-per-node 2 hf_trainer.py"""

import gpt
import torch
import transformers

import fragfs


class Learner(gpt.GPT):
    def forward(self, symbols: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": super().forward(symbols)}


class Text(torch.utils.data.IterableDataset):
    def __iter__(self):
        for batch in gpt.batches(0, size=1):
            yield {"symbols": batch[0]}


options = gpt.arguments()
transformers.set_seed(1)
args = transformers.TrainingArguments("/tmp/hf_trainer", max_steps=options.steps, logging_steps=options.every, use_cpu=True,
                                      per_device_train_batch_size=8, learning_rate=1e-3, report_to=[],
                                      save_strategy="no", disable_tqdm=True)
trainer = transformers.Trainer(Learner(), args, train_dataset=Text())
trainer.add_callback(fragfs.TrainerCallback())
trainer.train()
