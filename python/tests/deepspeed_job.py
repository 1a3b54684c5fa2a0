# SPDX-License-Identifier: Apache-2.0
"""One rank of small DeepSpeed jobs, one after the other: deepspeed_job.py CASE...  Rank 0 mounts and compares.

Exit status 0: all was right.  Environment: as for torch_job.py.
"""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest.mock
from collections.abc import Callable
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_grad, safe_get_full_optimizer_state
from joined import open_joined

import fragfs
from fragfs._inside import _attachments
from fragfs.adapters.deepspeed import Zero3

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
VERSION = tuple(map(int, deepspeed.__version__.split(".")[:2]))
STATES = ("fp32", "exp_avg", "exp_avg_sq")


class Model(torch.nn.Module):
    """Odd shapes, one element, a frozen parameter, a tied one, and one without elements, where DeepSpeed takes such."""

    def __init__(self, stage: int) -> None:
        super().__init__()
        self.first = torch.nn.Linear(37, 53)
        self.norm = torch.nn.LayerNorm(53)
        self.frozen = torch.nn.Linear(53, 53, bias=False).requires_grad_(False)
        self.second = torch.nn.Linear(53, 53)
        self.tied = torch.nn.Linear(53, 53, bias=False)
        self.tied.weight = self.second.weight
        self.scale = torch.nn.Parameter(torch.ones(1))
        if stage < 3 and VERSION >= (0, 19):
            self.empty = torch.nn.Parameter(torch.empty(0, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.frozen(self.norm(self.first(x)).relu())
        return self.tied(self.second(x)) * self.scale


class Experts(torch.nn.Module):
    def __init__(self, ep_size: int) -> None:
        super().__init__()
        from deepspeed.moe.layer import MoE

        self.first = torch.nn.Linear(37, 24)
        expert = torch.nn.Sequential(torch.nn.Linear(24, 11), torch.nn.Linear(11, 24))
        self.moe = MoE(24, expert, num_experts=4, ep_size=ep_size, k=1, min_capacity=4, use_rts=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.moe(self.first(x))[0]


class Case:
    """options: what differs from a bf16 job; the rest is DeepSpeed's zero_optimization."""

    def __init__(self, *, dtype: str = "bf16", api: bool = True, accumulate: int = 1, ep_size: int = 0, groups: int = 2,
                 fused: bool = False, grads: str | None = None, clip: float = 0, managed: bool = True, **zero: Any) -> None:
        self.dtype, self.api, self.accumulate, self.ep_size = dtype, api, accumulate, ep_size
        self.groups, self.fused, self.grads, self.zero = groups, fused, grads, zero
        self.clip, self.managed = clip, managed

    @property
    def torch_dtype(self) -> torch.dtype:
        return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[self.dtype]

    @property
    def lp(self) -> str:
        """The file of low-precision values."""
        return "lp" if self.dtype == "fp32" else self.dtype

    @property
    def config(self) -> dict[str, Any]:
        config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": self.accumulate,
                  "zero_optimization": self.zero, "zero_allow_untested_optimizer": True,
                  "zero_force_ds_cpu_optimizer": False, "steps_per_print": 1 << 30}
        if self.dtype == "bf16":
            config["bf16"] = {"enabled": True}
        elif self.dtype == "fp16":
            config["fp16"] = {"enabled": True, "loss_scale": 128}
        if self.clip:
            config["gradient_clipping"] = self.clip
        if not self.managed:
            config["managed_gradient_accumulation"] = False
        if self.grads:
            config["data_types"] = {"grad_accum_dtype": self.grads}
        return config


CPU = {"device": "cpu"}
CASES = {
    # api=False: DeepSpeed's safe_get_full_* cannot say, or says what is wrong
    "0-fp16": Case(stage=0, dtype="fp16", api=False), "0-bf16": Case(stage=0, api=False),
    "0-fused": Case(stage=0, dtype="fp16", fused=True, api=False),
    "0-bf16-fused": Case(stage=0, fused=True, api=False, groups=1, accumulate=2),
    "0-fp32": Case(stage=0, dtype="fp32", api=False, accumulate=2),
    "0-moe": Case(stage=0, api=False, ep_size=2),
    "0-clipped": Case(stage=0, dtype="fp32", api=False, clip=1e-3), "2-unmanaged": Case(stage=2, groups=1, managed=False),
    "1-bf16": Case(stage=1, groups=1), "1-fp32": Case(stage=1, dtype="fp32", groups=1),
    "1-fp16": Case(stage=1, dtype="fp16", groups=1), "1-groups": Case(stage=1, api=False, groups=3),
    "2-bf16": Case(stage=2, groups=1), "2-fp32": Case(stage=2, dtype="fp32", groups=1, accumulate=3),
    "2-fp16": Case(stage=2, dtype="fp16", groups=1), "2-groups": Case(stage=2, api=False, groups=3),
    "2-round-robin": Case(stage=2, api=False, round_robin_gradients=True),
    "1-round-robin": Case(stage=1, api=False, round_robin_gradients=True, accumulate=2),
    "2-scattered": Case(stage=2, groups=1, contiguous_gradients=False, overlap_comm=False),
    "1-scattered": Case(stage=1, groups=1, contiguous_gradients=False, reduce_scatter=False, accumulate=2),
    "2-overlap": Case(stage=2, groups=1, overlap_comm=True, reduce_bucket_size=1000),
    "1-offload": Case(stage=1, groups=1, offload_optimizer=CPU),
    "2-offload": Case(stage=2, groups=1, offload_optimizer=CPU),
    "2-offload-groups": Case(stage=2, api=False, offload_optimizer=CPU, accumulate=2),
    "2-aligned": Case(stage=2, api=False, parameter_alignment=True),
    "2-fp32-grads": Case(stage=2, groups=1, grads="fp32"),
    "1-moe": Case(stage=1, api=False, ep_size=2), "2-moe": Case(stage=2, api=False, ep_size=2),
    "2-moe-all": Case(stage=2, api=False, ep_size=1),
    "3-moe": Case(stage=3, ep_size=2),
    "bf16-optimizer": Case(stage=1, api=False, grads="fp32", accumulate=2),
    "3-bf16": Case(stage=3), "3-fp16": Case(stage=3, dtype="fp16"), "3-fp32": Case(stage=3, dtype="fp32"),
    "3-subs": Case(stage=3, sub_group_size=700, accumulate=2),
    "3-partitioned": Case(stage=3, stage3_param_persistence_threshold=0),
    "3-offload": Case(stage=3, offload_optimizer=CPU),
    "3-offload-all": Case(stage=3, offload_optimizer=CPU, offload_param=CPU),
    "3-offload-fp32": Case(stage=3, dtype="fp32", offload_optimizer=CPU),
}


def param_groups(model: torch.nn.Module, case: Case) -> list[dict[str, Any]]:
    """So many groups, of alternating parameters; the frozen one is in the first."""
    groups: list[dict[str, Any]] = [{"params": [], "lr": 1e-3 * (1 + i), "name": str(i)} for i in range(case.groups)]
    for i, p in enumerate(model.parameters()):
        groups[i % case.groups if p.requires_grad else 0]["params"].append(p)
    if case.ep_size:
        from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer

        groups = split_params_into_different_moe_groups_for_optimizer(groups)
    return groups


class Job:
    def __init__(self, case: Case) -> None:
        torch.manual_seed(1234)
        self.case = case
        model = Experts(case.ep_size) if case.ep_size else Model(case.zero["stage"])
        torch.manual_seed(1000 + RANK)
        self.optimizer = torch.optim.AdamW(param_groups(model, case), lr=1e-3, foreach=False)
        if case.fused:  # which optimizer is around it depends on its class alone
            deepspeed.runtime.engine.FusedAdam = torch.optim.AdamW
        try:
            self.engine = deepspeed.initialize(model=model, optimizer=self.optimizer, config=case.config)[0]
        finally:
            deepspeed.runtime.engine.FusedAdam = deepspeed.ops.adam.FusedAdam
        self.named = dict(self.engine.module.named_parameters())
        self.mount: fragfs.Mount | None = None
        self.id = os.environ["FRAG_JOB_ID"]
        self.folder = ""

    def __enter__(self) -> "Job":
        self.attachment = fragfs.attach(self.engine, strict=True)
        return self

    def __exit__(self, *exception: object) -> None:
        if self.mount:
            self.mount.close()
        if not exception[0]:
            dist.barrier()
        self.attachment.detach()

    def open(self) -> None:
        dist.barrier()
        if RANK == 0:
            self.mount = open_joined(self.attachment.address, "rw")
        path = [self.mount.path if self.mount else ""]
        dist.broadcast_object_list(path)
        self.folder = path[0]

    def step(self, look: Callable[[], None] = lambda: None) -> None:
        """look() is called where gradients are valid."""
        for micro in range(self.case.accumulate):
            x = torch.randn(4, 37).to(self.case.torch_dtype)
            self.engine.backward(self.engine(x).float().square().mean())
            if micro == self.case.accumulate - 1:
                look()
            self.engine.step()

    def shape(self, name: str) -> tuple[int, ...]:
        p = self.named[name]
        return tuple(getattr(p, "ds_shape", p.shape))

    def trained(self) -> dict[str, torch.nn.Parameter]:
        return {name: p for name, p in self.named.items() if p.requires_grad and getattr(p, "ds_numel", p.numel())}

    def file(self, name: str) -> str:
        """The name of one of this rank's parameters in the mount."""
        p = self.named.get(name)
        if getattr(p, "allreduce", True) or self.case.ep_size == 1:
            return name
        return f"{name}@ep={RANK % self.case.ep_size}"

    def value(self, p: torch.nn.Parameter) -> torch.Tensor:
        """The parameter that the model computes with.  Stage 3: all ranks call it."""
        if not hasattr(p, "ds_id"):
            return p.detach().clone()
        with deepspeed.zero.GatheredParameters([p]):
            return p.detach().clone()

    def api(self, p: torch.nn.Parameter, key: str) -> torch.Tensor:
        if key == "grad":
            return safe_get_full_grad(p)
        return safe_get_full_fp32_param(p) if key == "fp32" else safe_get_full_optimizer_state(p, key)


def same(got: torch.Tensor, want: torch.Tensor) -> bool:
    """All bits."""
    return bool(got.dtype == want.dtype and got.shape == want.shape and
                torch.equal(got.contiguous().flatten().view(torch.uint8), want.contiguous().flatten().view(torch.uint8)))


def how(got: torch.Tensor, want: torch.Tensor) -> str:
    """How they differ."""
    apart = (got != want).flatten().nonzero().flatten().tolist()
    return f"{len(apart)} of {got.numel()} from {apart[:1]}: {got.flatten()[apart[:4]]} for {want.flatten()[apart[:4]]}"


def mounted(job: Job) -> fragfs.Mount:
    """Every rank reads the one mount, since each has other experts."""
    return fragfs.open(job.folder)


def check_values(job: Job, when: str) -> None:
    """The arbiter: a master, rounded, is the value that the model computes with, and so is the mount's own."""
    mount = mounted(job)
    for name, p in job.named.items():
        value, shown = job.value(p), mount[job.file(name)]
        dist.barrier()
        assert shown.shape == tuple(value.shape), f"{name}: {shown.shape}"
        if value.numel() and (job.case.dtype != "fp32" or not p.requires_grad):
            lp = shown[job.case.lp].torch()
            assert same(lp, value), f"{when}: the value of {name} differs"
        if name in job.trained():
            assert same(shown["fp32"].torch().to(value.dtype), value), f"{when}: the master of {name} differs"
    dist.barrier()


def check_api(job: Job, when: str, keys: tuple[str, ...] = STATES) -> None:
    """What DeepSpeed's own calls say, but for the sign of zero, which those of stages 1 and 2 lose."""
    if not job.case.api:
        return
    mount = mounted(job)
    for name, p in job.trained().items():
        for key in keys:
            want = job.api(p, key).detach().cpu()
            dist.barrier()
            got = mount[job.file(name)][key].torch()
            assert torch.equal(got, want.to(got.dtype)), f"{when}: {name}/{key} differs"
    dist.barrier()


def read(job: Job, keys: tuple[str, ...]) -> dict[tuple[str, str], torch.Tensor]:
    """Of this rank's parameters, in one generation."""
    mount = mounted(job)
    dist.barrier()  # a replica of a rank that is late would show its step before
    states = {(name, key): wait_for(mount, job.file(name), key) for name in job.trained() for key in keys}
    dist.barrier()
    return states


def wait_for(mount: fragfs.Mount, file: str, key: str) -> torch.Tensor:
    """A mount knows a second later what was registered anew."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return mount[file][key].torch()
        except (KeyError, FileNotFoundError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def check_step(job: Job, when: str, look: Callable[[], None] = lambda: None) -> None:
    """The gradients and states of one step that the mount shows are those that Adam makes the next ones of."""
    before, grads = read(job, STATES), {}
    options = {name: group for group, names in group_names(job) for name in names}
    counts = {name: step_count(job) for name in job.trained()}
    job.step(lambda: (look(), grads.update(read(job, ("grad",))), check_api(job, when + ", window", ("grad",))))
    after = read(job, STATES)
    for name in job.trained():
        p = torch.nn.Parameter(before[name, "fp32"].clone())
        p.grad = grads[name, "grad"].float() / float(getattr(job.engine.optimizer, "loss_scale", 1) or 1)
        adam = torch.optim.AdamW([p], lr=options[name]["lr"], foreach=False)
        adam.state[p] = {"step": torch.tensor(float(counts[name])), "exp_avg": before[name, "exp_avg"].clone(),
                         "exp_avg_sq": before[name, "exp_avg_sq"].clone()}
        adam.step()
        assert p.grad.abs().sum() > 0 or "moe" in name, f"{when}: no gradient of {name}"
        for key, want in (("fp32", p.detach()), *((key, adam.state[p][key]) for key in STATES[1:])):
            got = after[name, key]
            assert torch.allclose(got, want, rtol=1e-5, atol=1e-10), f"{when}: {name}/{key} is not the step's: {how(got, want)}"
    dist.barrier()


def check_while_training(job: Job, when: str) -> None:
    """What is read while all ranks train is what there was behind one step; gradients come with the next step."""
    name, key = "first.weight", "exp_avg"
    behind, of, got = [], [], {key: [], "grad": []}
    mount = mounted(job)
    readers = [threading.Thread(target=lambda key=key: got[key].append(mount[name][key].torch())) for key in got]
    behind.append(read(job, (key,))[name, key])
    for reader in readers if RANK == 0 else ():
        reader.start()
    done = torch.zeros(1)
    while not done.item():
        job.step(lambda: of.append(read(job, ("grad",))[name, "grad"]))
        behind.append(read(job, (key,))[name, key])
        done.fill_(not any(reader.is_alive() for reader in readers))
        dist.broadcast(done, 0)
    if RANK == 0:
        assert any(same(got[key][0], truth) for truth in behind), f"{when}: {key} of no step"
        assert any(same(got["grad"][0], truth) for truth in of), f"{when}: gradients of no step"
    dist.barrier()


def step_count(job: Job) -> float:
    return next(float(state["step"]) for state in job.optimizer.state.values() if "step" in state)


def group_names(job: Job) -> list[tuple[dict[str, Any], list[str]]]:
    """The trained parameters of each param group that the job was made with."""
    groups = param_groups(job.engine.module, job.case)
    names = {p: name for name, p in job.named.items()}
    return [(group, [names[p] for p in group["params"]]) for group in groups]


Edit = dict[tuple[str, str], torch.Tensor]


def edit(job: Job, values: Edit, boundary: Callable[[], None]) -> None:
    """A process of rank 0's writes through the mount, while all ranks pass boundaries."""
    torch.save({(job.file(name), key): value for (name, key), value in values.items()}, f"/tmp/{job.id}-{RANK}.pt")
    done = torch.zeros(1)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, job.folder, f"/tmp/{job.id}-0.pt"]) if RANK == 0 else None
    while not done.item():
        boundary()
        done.fill_(writer.poll() is not None if writer else 0)
        dist.broadcast(done, 0)
    os.unlink(f"/tmp/{job.id}-{RANK}.pt")
    assert not writer or writer.returncode == 0


WRITER = """
import sys, torch, fragfs
mount = fragfs.open(sys.argv[1])
for (name, key), value in torch.load(sys.argv[2]).items():
    if name == "lr":
        for group in mount.groups:
            if "lr" in group:
                group["lr"] = value.item()
    else:
        mount[name][key][...] = value.numpy()
"""


def check_edit(job: Job, when: str) -> None:
    """Edits while all train: the next step computes with them, the model's values follow at once."""
    name = "first.weight"
    # exp_avg stays 0 only where no gradient comes: with lr 0 the master stays as it was edited
    values = {("lr", ""): torch.zeros(1), (name, "fp32"): torch.randn(job.shape(name))}
    edit(job, values, job.step)
    got, want = read(job, ("fp32",))[name, "fp32"], broadcast(values[name, "fp32"])
    assert same(got, want), f"{when}: the master is not the edit: {how(got, want)}"
    check_values(job, when + ", after an edit")


def broadcast(tensor: torch.Tensor) -> torch.Tensor:
    """Rank 0's."""
    dist.broadcast(tensor, 0)
    return tensor


def run(name: str) -> None:
    case = CASES[name]
    with Job(case) as job:
        job.step()
        job.step()
        job.open()
        check_values(job, name)
        check_api(job, name)
        for _ in range(2):
            check_step(job, name)
        check_values(job, name + ", later")
        check_while_training(job, name)
        check_edit(job, name)
    job.step()
    job.engine.destroy()


def check_replaced(job: Job, when: str, change: Callable[[], None], same_values: bool = True) -> None:
    """What gives states other memory: the mount has it at once, and goes on with it."""
    before, lp = read(job, STATES), read_lp(job)
    change()
    after = read(job, STATES)
    for place, value in before.items() if same_values else ():
        assert same(after[place], value), f"{when}: {place} differs"
    for name, value in read_lp(job).items() if same_values else ():
        assert same(value, lp[name]), f"{when}: the value of {name} differs"


def read_lp(job: Job) -> dict[str, torch.Tensor]:
    mount = mounted(job)
    values = {name: wait_for(mount, job.file(name), job.case.lp) for name, p in job.named.items()
              if getattr(p, "ds_numel", p.numel()) and (job.case.dtype != "fp32" or not p.requires_grad)}
    dist.barrier()
    return values


def offloaded(name: str) -> None:
    """offload_states and reload_states."""
    fused = deepspeed.ops.adam.fused_adam
    kept, fused.FusedAdam = fused.FusedAdam, torch.optim.AdamW  # stage 3 offloads those of this class alone
    with Job(CASES[name]) as job:
        job.step()
        job.step()
        job.open()
        for pin in (True, False):
            check_replaced(job, f"{name}, offload_states", lambda: job.engine.offload_states(pin_memory=pin))
            check_replaced(job, f"{name}, reload_states", job.engine.reload_states)
            check_step(job, f"{name}, after reload_states")
            check_values(job, f"{name}, after reload_states")
        check_edit(job, f"{name}, after reload_states")
    fused.FusedAdam = kept
    job.engine.destroy()


def checkpoint(name: str) -> None:
    """A checkpoint has edits of the mount; load_checkpoint replaces states in this job and in another one."""
    edited = {("first.weight", "fp32"): torch.randn(53, 37), ("first.weight", "exp_avg"): torch.randn(53, 37)}
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    with Job(CASES[name]) as job:
        job.step()
        job.step()
        job.open()
        edit(job, edited, job.attachment.safe_point)
        saved = read(job, STATES)
        assert same(saved["first.weight", "fp32"], broadcast(edited["first.weight", "fp32"]))
        job.engine.save_checkpoint(folder[0], tag="saved")
        job.step()
        job.step()
        job.engine.load_checkpoint(folder[0], tag="saved")
        for place, value in read(job, STATES).items():
            assert same(value, saved[place]), f"{name}, load_checkpoint: {place} differs"
        check_values(job, name + ", after load_checkpoint")
        check_step(job, name + ", after load_checkpoint")
        check_values(job, name + ", later")
    job.engine.destroy()
    with Job(CASES[name]) as job:
        job.open()
        job.engine.load_checkpoint(folder[0], tag="saved")
        for place, value in read(job, STATES).items():
            assert same(value, saved[place]), f"{name}, another job: {place} differs"
        check_values(job, name + ", another job")
        check_step(job, name + ", another job")
    job.engine.destroy()
    if RANK == 0:
        shutil.rmtree(folder[0])


def replaced(name: str) -> None:
    """Somebody gives the optimizer other tensors: a boundary later they are what the mount has."""
    with Job(CASES[name]) as job:
        job.step()
        job.step()
        job.open()
        job.optimizer.load_state_dict(job.optimizer.state_dict())
        check_step(job, name + ", new moments")
        for group in job.optimizer.param_groups:
            for master in group["params"]:
                master.data = master.data.clone()
        job.step()
        check_step(job, name + ", new masters")
        check_values(job, name + ", new masters")
        frozen = job.engine.module.frozen
        frozen.weight = torch.nn.Parameter(broadcast(torch.randn_like(frozen.weight)), requires_grad=False)
        job.named["frozen.weight"] = frozen.weight
        for _ in range(20):
            job.step()
        check_values(job, name + ", a new frozen parameter")
    job.engine.destroy()


def zeros(name: str) -> None:
    """The sign of zero: DeepSpeed's own calls lose it in stages 1 and 2, the model's values have it."""
    with Job(CASES[name]) as job:
        job.step()
        job.open()
        edit(job, {("norm.bias", key): torch.full((53,), -0.0) for key in ("fp32", "exp_avg")}, job.attachment.safe_point)
        got = read(job, ("fp32", "exp_avg"))
        assert torch.signbit(job.value(job.named["norm.bias"])).all()
        assert all(torch.signbit(got["norm.bias", key]).all() for key in ("fp32", "exp_avg"))
        check_values(job, name)
    job.engine.destroy()


def fragments(name: str) -> None:
    """DeepSpeed's own test_zero_tensor_fragment.py in our words: all is set and got, by the mount."""
    case = CASES[name]
    with Job(case) as job:
        job.step()
        job.step()
        job.open()
        for key in STATES:  # get of all, set of all, get again
            values = {(n, key): torch.randn(job.shape(n)).abs() for n in job.trained()}
            edit(job, values, job.attachment.safe_point)
            got = read(job, (key,))
            for place, value in values.items():
                assert same(got[place], broadcast(value)), f"{name}: {place} is not what was set"
            check_api(job, f"{name}, {key} was set", (key,))
        check_values(job, f"{name}, after edits")
        # so small that DeepSpeed does not clip them
        values = {(n, "grad"): (torch.randn(job.shape(n)) / 256).bfloat16().float() for n in job.trained()}
        for value in values.values():
            broadcast(value)

        def look() -> None:
            edit(job, values, job.attachment.safe_point)
            got = read(job, ("grad",))
            for place, value in values.items():
                assert torch.equal(got[place].float(), value.to(got[place].dtype).float()), \
                    f"{name}: {place} is not what was set"
            check_api(job, f"{name}, gradients were set", ("grad",))

        check_step(job, f"{name}, with gradients that were set", look)
        mount = mounted(job)
        for n, p in job.named.items():
            assert (n in job.trained()) == ("fp32" in mount[job.file(n)]), n
        dist.barrier()
    job.engine.destroy()


def swapped(name: str) -> None:
    """States on NVMe, which a line says are not shown: libaio, which DeepSpeed needs for them, is on few machines, so
    that they are in memory here, and the adapter takes them for swapped.
    """
    with unittest.mock.patch.object(Zero3, "_is_swapped", lambda *_: True), Job(CASES[name]) as job:
        job.step()
        job.open()
        mount = mounted(job)
        for n in job.trained():
            assert not {*STATES, "grad"} & set(mount[n].states), (n, mount[n].states)
        dist.barrier()
        job.step()
    job.engine.destroy()


def check_gone(job: Job, when: str) -> None:
    """Gradients cannot be read now."""
    dist.barrier()  # those of a rank that is late are shown
    fd = os.open(f"{job.folder}/params/first.weight/grad", os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.read(fd, 1)
    except OSError as e:
        assert e.errno in (errno.EAGAIN, errno.ENODATA), e
    else:
        raise AssertionError(f"{when}: gradients are shown")
    finally:
        os.close(fd)
    dist.barrier()


def twice(name: str) -> None:
    """Two backward passes before one step: between them gradients are the first's, behind both those that the step takes."""
    with Job(CASES[name]) as job:
        job.step()
        job.step()
        job.open()
        for look in (lambda _: None, lambda _: check_gone(job, "in the second backward pass")):
            output = job.engine(torch.randn(4, 37).to(job.case.torch_dtype))
            output.register_hook(look)  # behind DeepSpeed's own hook, which begins the backward pass
            job.engine.backward(output.float().square().mean())
            read(job, ("grad",))
            check_api(job, "behind a backward pass", ("grad",))
        job.engine.step()
        check_values(job, name)
    job.engine.destroy()


def clipped(name: str) -> None:
    """Where DeepSpeed scales gradients in place before the step, they are not shown meanwhile."""
    job = Job(CASES[name])
    clip, looks = job.engine.clip_fp32_gradients, []

    def look() -> None:
        if job.folder:
            check_gone(job, "while they are clipped")
            looks.append(1)
        clip()

    job.engine.clip_fp32_gradients = look
    with job:
        job.step()
        job.step()
        job.open()
        for _ in range(2):
            job.step(lambda: read(job, ("grad",)))
            dist.barrier()
        assert len(looks) == 2
    job.engine.destroy()


def unmanaged(name: str) -> None:
    """Gradients are reduced in the step alone: they are not there, so that no read waits for them, and all else is."""
    with Job(CASES[name]) as job:
        for _ in range(3):
            job.step()
        job.open()
        for _ in range(2):
            job.step()
            dist.barrier()
            assert not job.mount or "grad" not in job.mount["first.weight"].states, job.mount["first.weight"].states
        check_values(job, name)
    job.engine.destroy()


def launched(name: str) -> None:
    """Below python -m fragfs run: it attaches between two steps, where all param groups are there."""
    job = Job(CASES[name])
    for _ in range(3):
        job.step()
    job.attachment, = _attachments()
    job.open()
    check_values(job, name)
    mount = mounted(job)
    shown = [group["lr"] for group in mount.groups if "lr" in group]  # one of frozen parameters has none
    assert shown == [group["lr"] for group in job.optimizer.param_groups], shown
    dist.barrier()
    check_step(job, name)
    if job.mount:
        job.mount.close()
    dist.barrier()
    job.engine.destroy()


def refused(name: str) -> None:
    """What DeepSpeed itself does not train."""
    try:
        Job(CASES[name])
    except AssertionError as e:
        assert "MoE" in str(e), e
    else:
        raise AssertionError(f"{name}: DeepSpeed trains this now")


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True  # it says that CPUs do not
    for name in names:
        kind, _, case = name.rpartition("/")
        {"": run, "checkpoint": checkpoint, "offloaded": offloaded, "replaced": replaced, "fragments": fragments,
         "zeros": zeros, "swapped": swapped, "launched": launched, "twice": twice,
         "clipped": clipped, "unmanaged": unmanaged, "refused": refused}[kind](case)
        if RANK == 0:
            print("right:", name, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
