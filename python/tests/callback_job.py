# SPDX-License-Identifier: Apache-2.0
"""callback_job.py KIND FOLDER: a rank of a job of transformers' Trainer, of Accelerate or of Lightning.

Rank 0 mounts it between two steps, and compares what it reads with what the optimizer has.  Prints `job ID compared N`.
"""

import gc
import os
import sys
import weakref
from typing import Any

import torch
from joined import open_joined

import fragfs

STEPS, LOOK_AT = 6, (3, 5)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(31, 17)
        self.second = torch.nn.Linear(17, 5)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.second(self.first(x).tanh()).square().mean()}


class Data(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8 * STEPS

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"x": torch.randn(31, generator=torch.Generator().manual_seed(i))}


def compare(job: Any, model: torch.nn.Module, optimizer: Any) -> None:
    assert job, "not attached"
    if os.environ.get("RANK", "0") != "0":
        return
    with open_joined(job.address) as mount:
        for name, p in model.named_parameters():
            name = "model." + name if "model." + name in mount else name  # a LightningModule has it below itself
            shown = mount[name]
            assert torch.equal(shown.fp32.torch(), p.detach()), name
            for key in ("exp_avg", "exp_avg_sq"):
                assert torch.equal(shown[key].torch(), optimizer.state[p][key]), (name, key)
    jobs = [name[:-4] for name in os.listdir(os.environ["XDG_RUNTIME_DIR"] + "/fragfs") if name.endswith(".job")]
    print("job", *jobs, "compared", len(list(model.parameters())), flush=True)


def hf(model: Model, folder: str) -> Any:
    import transformers

    class Look(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
            if state.global_step in LOOK_AT:
                compare(ours.job, model, optimizer.optimizer)

    ours = fragfs.TrainerCallback(strict=True)
    args = transformers.TrainingArguments(folder, max_steps=STEPS, per_device_train_batch_size=4, use_cpu=True, report_to=[],
                                          save_strategy="no", dataloader_num_workers=2, disable_tqdm=True)
    trainer = transformers.Trainer(model, args, train_dataset=Data(), callbacks=[ours, Look()])
    trainer.train()
    trainer.train()  # again, by the same callback
    return ours.job


def accelerate(model: Model, folder: str) -> Any:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    ours = fragfs.attach_accelerator(accelerator, strict=True)
    train_accelerated(accelerator, ours, model)
    accelerator.end_training()
    assert not {"prepare", "free_memory", "end_training"} & set(vars(accelerator))
    return ours.job


def freed(model: Model, folder: str) -> Any:
    """Two models, one after the other, as accelerate's find_executable_batch_size trains them."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    ours = fragfs.attach_accelerator(accelerator, strict=True)  # after prepare()
    first = weakref.ref(accelerator._optimizers[0].optimizer)
    assert ours.job and ours.job.optimizer is first()
    accelerator.free_memory()
    gc.collect()
    assert not ours.job and not first()
    train_accelerated(accelerator, ours, model)
    accelerator.clear()
    assert not ours.job
    return ours.job


def train_accelerated(accelerator: Any, ours: Any, model: Model) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(Data(), batch_size=4)
    whole, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, batch in enumerate(loader, 1):
        optimizer.zero_grad()
        accelerator.backward(whole(**batch)["loss"])
        optimizer.step()
        if step in LOOK_AT:
            compare(ours.job, model, optimizer.optimizer)


def lightning(model: Model, folder: str) -> Any:
    import lightning.pytorch as pl

    class Learner(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            return self.model(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    class Look(pl.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            if trainer.global_step in LOOK_AT:
                compare(ours.job, model, trainer.optimizers[0])

    ours = fragfs.LightningCallback(strict=True)
    world = int(os.environ.get("WORLD_SIZE", 1))
    pl.Trainer(accelerator="cpu", devices=world, strategy="ddp" if world > 1 else "auto", max_steps=STEPS, logger=False,
               enable_checkpointing=False, enable_progress_bar=False, default_root_dir=folder,
               callbacks=[ours, Look()]).fit(Learner(), torch.utils.data.DataLoader(Data(), batch_size=4))
    return ours.job


def main(kind: str, folder: str) -> None:
    torch.manual_seed(3)
    torch.set_num_threads(1)
    assert not {"hf": hf, "accelerate": accelerate, "freed": freed, "lightning": lightning}[kind](Model(), folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
