# SPDX-License-Identifier: Apache-2.0
"""One rank of what bench-torch.sh measures: torch-job.py fsdp2 | zero2 | attach.  Rank 0 prints the rows.

What is compared is measured in turn, there and back; a row has the median, and the median of the ratios.
"""

import ctypes
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", 7))
SHM = os.environ.get("BENCH_SHM", "/dev/shm")
WIDTH, BLOCKS = 512, 16  # 16.8 million elements in 96 tensors
STEPS, PAIRS = 1, 3 * ROUNDS  # of a window; windows of each kind


# ---- rows, as tests/bench/table.sh has them ----


def row(name: str, value: float, unit: str, of: tuple[str, float] | None = None, goal: float | None = None,
        ratios: list[float] | None = None) -> None:
    if RANK:
        return
    ratio = spread = None
    if of:
        ratio = statistics.median(ratios) if ratios else value / of[1]
        spread = half_interval(ratios) if ratios else None
    print(json.dumps({"name": name, "value": float(f"{value:.6g}"), "unit": unit, "reference": of and of[0],
                      "reference_value": of and float(f"{of[1]:.6g}"), "ratio": ratio and float(f"{ratio:.6g}"),
                      "spread": spread and float(f"{spread:.3g}"), "goal": goal, "better": "lower"}), flush=True)


def half_interval(values: list[float]) -> float:
    """Half of the 95 % interval of a median, by order statistics."""
    ordered, n, off = sorted(values), len(values), 0
    while off * off < 0.98 * 0.98 * n:
        off += 1
    return (ordered[min(n - 1, (n - 1) // 2 + off)] - ordered[max(0, n // 2 - off)]) / 2


def compare(name: str, unit: str, values: list[float], reference: str, others: list[float],
            goal: float | None = None) -> None:
    row(name, statistics.median(values), unit, (reference, statistics.median(others)), goal,
        [value / other for value, other in zip(values, others)])


# ---- the reader: a process of its own, which knows neither torch nor the job ----


def reader() -> None:
    """Each line of its input, `FOLDER [NAME...]`, reads fp32 of these parameters, or of all, once; answered by seconds.
    `loop FOLDER SECONDS` reads all once in so many seconds, until the next line.
    """
    import select

    import numpy  # noqa: F401: before the clock runs

    from fragfs.reader import Mount

    def read(folder: str, names: list[str]) -> float:
        begin = time.perf_counter()
        mount = Mount(folder)
        kept = mount.numpy("fp32", names or None)
        seconds = time.perf_counter() - begin
        assert kept
        return seconds

    def loop(folder: str) -> float:
        begin = time.perf_counter()
        for path in sorted(Path(folder).glob("params/*/fp32")):
            path.read_bytes()
        return time.perf_counter() - begin

    print("ready", flush=True)
    for line in sys.stdin:
        first, *rest = line.split() or ("",)
        if not first:  # it has ended a loop
            continue
        if first != "loop":
            print(read(first, rest), flush=True)
            continue
        while not select.select([sys.stdin], [], [], 0)[0]:
            took = loop(rest[0])
            if select.select([sys.stdin], [], [], max(0.0, float(rest[1]) - took))[0]:
                break
        print("stopped", flush=True)


class Reader:
    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, __file__, "reader"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def say(self, *words: str) -> None:
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()

    def ask(self, *words: str) -> str:
        self.say(*words)
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


# ---- what a process uses ----


def status_kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return 0


def forget_peak(pid: int) -> int:
    """The process's memory now, without what its malloc has free; its peak is counted from here."""
    if pid == os.getpid():
        ctypes.CDLL(None).malloc_trim(0)
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return status_kib(pid, "VmRSS")


def threads() -> set[Path]:
    return set(Path("/proc/self/task").iterdir())


def seconds_on_a_core(of: set[Path]) -> float:
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in of & threads()) / 1e9


def grown_mib(pids: dict[int, int]) -> float:
    return sum(max(4, status_kib(pid, "VmHWM") - before) for pid, before in pids.items()) / 1024


def loopback_bytes() -> int:
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split(":")[1].split()[0])
    return 0


def owner_bytes(mount: str) -> float:
    return sum(float(line.split()[-1]) for line in Path(mount, ".frag/metrics").read_text().splitlines()
               if line.startswith(("fragfs_owner_memory_bytes_total", "fragfs_owner_message_bytes_total",
                                   "fragfs_owner_round_bytes_total")))


def server_of(mount: str) -> int:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if mount.encode() in words and (folder / "comm").read_text().strip() == "fragfs":
                return int(folder.name)
        except OSError:
            pass
    raise LookupError(f"no fragfs serves {mount}")


# ---- jobs ----


class Job:
    title: str
    api: str

    def __init__(self) -> None:
        import torch

        class Block(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.up = torch.nn.Linear(WIDTH, 2 * WIDTH)
                self.down = torch.nn.Linear(2 * WIDTH, WIDTH)
                self.norm = torch.nn.LayerNorm(WIDTH)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x + self.down(torch.relu(self.up(self.norm(x))))

        torch.manual_seed(0)
        self.torch = torch
        self.model = torch.nn.Sequential(*[Block() for _ in range(BLOCKS)])

    def attach(self):
        raise NotImplementedError

    def step(self) -> None:
        raise NotImplementedError

    def full(self, p) -> object:
        raise NotImplementedError


class Fsdp2(Job):
    title, api = "FSDP2", "full_tensor"

    def __init__(self) -> None:
        super().__init__()
        from torch.distributed.fsdp import fully_shard

        for block in self.model:
            fully_shard(block)
        fully_shard(self.model)
        self.optimizer = self.torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.params = dict(self.model.named_parameters())

    def attach(self):
        import fragfs

        return fragfs.attach(self.model, self.optimizer, strict=True)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.torch.randn(32, WIDTH)).square().mean().backward()
        self.optimizer.step()

    def full(self, p) -> object:
        return p.detach().full_tensor()


class Zero2(Job):
    title, api = "ZeRO-2", "safe_get_full"

    def __init__(self) -> None:
        super().__init__()
        import deepspeed

        optimizer = self.torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        config = {"train_micro_batch_size_per_gpu": 32, "zero_allow_untested_optimizer": True, "steps_per_print": 10**9,
                  "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}
        self.engine = deepspeed.initialize(model=self.model.bfloat16(), optimizer=optimizer, config=config)[0]
        self.params = dict(self.engine.module.named_parameters())

    def attach(self):
        import fragfs

        return fragfs.attach(self.engine, strict=True)

    def step(self) -> None:
        x = self.torch.randn(32, WIDTH, dtype=self.torch.bfloat16)
        self.engine.backward(self.engine(x).float().square().mean())
        self.engine.step()

    def full(self, p) -> object:
        from deepspeed.utils import safe_get_full_fp32_param

        return safe_get_full_fp32_param(p)


# ---- what is measured; all ranks call it alike ----


class Bench:
    def __init__(self, job: Job) -> None:
        import torch
        import torch.distributed as dist

        self.job, self.torch, self.dist = job, torch, dist
        self.calls: list[tuple[float, float]] = []  # of a step: seconds, and seconds on a core

    def everywhere(self, value: float) -> list[float]:
        values = [None] * WORLD
        self.dist.all_gather_object(values, value)
        return values

    def timed(self, function: Callable[[], object]) -> float:
        self.dist.barrier()
        begin = time.perf_counter()
        function()
        self.dist.barrier()
        return time.perf_counter() - begin

    def window(self) -> tuple[float, float]:
        """Of a step behind another: seconds, and seconds on a core of all threads of all ranks."""
        self.job.step()
        cpu = time.process_time()
        seconds = self.timed(lambda: [self.job.step() for _ in range(STEPS)])
        return seconds / STEPS, sum(self.everywhere(time.process_time() - cpu)) / STEPS

    def in_turn(self, pairs: int, *what: Callable[[], Any]) -> list[list[Any]]:
        """The values of each, in as many rounds."""
        got: list[list[Any]] = [[] for _ in what]
        for pair in range(pairs):
            order = list(enumerate(what))
            for index, function in order if pair % 2 else reversed(order):
                got[index].append(function())
        return got

    # ---- reading ----

    def reading(self, attachment) -> None:
        import fragfs

        mount = fragfs.open(attachment.address) if RANK == 0 else None
        one_reader = Reader() if RANK == 0 else None
        server = server_of(mount.path) if mount else 0
        params = self.job.params
        large = max(params, key=lambda name: params[name].numel())
        for title, names in (("all parameters", list(params)), ("one parameter", [large])):
            moved, mine, theirs, cores = ([], []), [], [], ([], [])

            def by_mount() -> float:
                """Of a generation that nobody has read, while no rank is in a step."""
                self.job.step()
                cpu = time.process_time()
                self.dist.barrier()
                seconds = 0.0
                if mount:
                    before = owner_bytes(mount.path)
                    pids = {pid: forget_peak(pid) for pid in (one_reader.process.pid, server)}
                    seconds = float(one_reader.ask(mount.path, *(names if len(names) == 1 else ())))
                    mine.append(grown_mib(pids))
                    moved[0].append(owner_bytes(mount.path) - before)
                self.dist.barrier()
                cores[0].append(max(self.everywhere(time.process_time() - cpu)[1:]))
                return seconds

            def by_calls() -> float:
                self.job.step()
                gc.collect()
                cpu, before = time.process_time(), loopback_bytes()
                me = {os.getpid(): forget_peak(os.getpid())}
                kept = []
                seconds = self.timed(lambda: kept.extend(self.job.full(params[name]) for name in names))
                moved[1].append(loopback_bytes() - before)
                theirs.append(sum(self.everywhere(grown_mib(me))))
                cores[1].append(max(self.everywhere(time.process_time() - cpu)[1:]))
                return seconds

            got = self.in_turn(ROUNDS, by_mount, by_calls)
            if RANK:
                continue
            api = f"{self.job.api}, all ranks"
            compare(f"{title} of a {self.job.title} job in one reader's memory", "s", got[0], api, got[1], 0.2)
            compare(f"{title} of a {self.job.title} job, bytes moved between processes", "B", moved[0], api, moved[1])
            compare(f"{title} of a {self.job.title} job, peak memory of reader and fragfs", "MiB", mine, api, theirs)
            compare(f"{title} of a {self.job.title} job, another rank on a core", "s", cores[0], api, cores[1])
        if mount:
            one_reader.close()
            mount.close()

    # ---- steps ----

    def cost(self) -> None:
        """Attached, and nobody looks, against not attached at all."""
        def attached() -> tuple[float, float]:
            with self.job.attach():
                return self.window()

        got = self.in_turn(PAIRS, attached, self.window)
        self.compare_steps("attached, nobody looks", got[0], "not attached", got[1], 1.01)

    def compare_steps(self, what: str, steps: list[tuple[float, float]], reference: str, others: list[tuple[float, float]],
                      goal: float) -> None:
        """By the clock, which also counts when the cores are somebody else's, and by time on a core."""
        name = f"step of a {self.job.title} job, {what}"
        for row_name, clock in ((name, 0), (f"{name}, both ranks on a core", 1)):
            compare(row_name, "ms", [1e3 * step[clock] for step in steps], reference,
                    [1e3 * step[clock] for step in others], goal)

    def own_time(self, mounted_before: bool = False) -> None:
        """fragfs's own part of a step: all that its hooks call, in wall time and on a core, and its threads."""
        from fragfs.attachment import Attachment

        # Each clock has every second step: to read both, behind a step's work, cost half as much as what they measured.
        guard, clocks = Attachment._guard, (time.perf_counter, time.thread_time)
        clock, spent = clocks[0], []
        steps: tuple[list[float], list[float]] = ([], [])

        def timed_guard(*args) -> None:
            begin = clock()
            guard(*args)
            spent.append(clock() - begin)

        Attachment._guard = timed_guard
        others = threads()
        try:
            with self.job.attach() as attachment:
                if mounted_before:
                    self.visit(attachment)
                mine = threads() - others
                began = seconds_on_a_core(mine)
                for step in range(20 + 16 * ROUNDS):
                    clock = clocks[step % 2]
                    spent.clear()
                    self.job.step()
                    steps[step % 2].append(sum(spent))
                by_threads = (seconds_on_a_core(mine) - began) / len(steps[0] + steps[1])
        finally:
            Attachment._guard = guard
        wall, core = (seconds[10:] for seconds in steps)
        goal = {"FSDP2": 0.5, "ZeRO-2": 0.1}[self.job.title]
        when = ", mounted before, nobody reads" if mounted_before else ""
        tensors = f"{len(self.job.params)} tensors"
        calls = f"fragfs's calls in a step of a {self.job.title} job, {tensors}{when}"
        row(calls, 1e3 * statistics.median(wall), "ms", goal=goal)
        row(f"{calls}, on a core", 1e3 * statistics.median(core), "ms")
        row(f"fragfs's threads in a step of a {self.job.title} job, {tensors}{when}, on a core", 1e3 * by_threads, "ms")

    def visit(self, attachment) -> None:
        """A mount comes, reads, and goes; ends when no rank takes it for one that may read."""
        import fragfs

        self.job.step()
        if RANK == 0:
            with fragfs.open(attachment.address) as mount:
                mount.numpy("fp32")
        self.dist.barrier()
        while any(self.everywhere(attachment._is_asked)):
            time.sleep(0.5)
            self.job.step()

    def read_meanwhile(self, attachment) -> None:
        """One reader loops over fp32 of all parameters, once a second, against the same of copies in tmpfs."""
        import fragfs

        mount = fragfs.open(attachment.address) if RANK == 0 else None
        one_reader = Reader() if RANK == 0 else None
        if mount:
            for name in mount:
                copy = Path(SHM, "copy/params", name, "fp32")
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(mount[name].fp32.bytes())

        def while_reading(folder: str) -> tuple[float, float]:
            if one_reader:
                one_reader.say("loop", folder, "1")
            step = self.window()
            if one_reader:
                assert one_reader.ask("") == "stopped"
            return step

        got = self.in_turn(PAIRS, lambda: while_reading(mount.path if mount else ""),
                           lambda: while_reading(str(Path(SHM, "copy"))))
        megabytes = sum(p.numel() for p in self.job.params.values()) * 4 // 1000000
        self.compare_steps(f"1 reader of {megabytes} MB/s", got[0], "same of tmpfs", got[1], 1.02)
        if mount:
            one_reader.close()
            mount.close()


def attaching() -> None:
    """10000 parameters, each with two states, in one process."""
    import torch

    import fragfs

    count = 10000
    model = torch.nn.ParameterDict({f"p{i}": torch.nn.Parameter(torch.randn(64)) for i in range(count)})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    os.environ["MASTER_PORT"] = "0"
    seconds, kib = [], []
    for _ in range(ROUNDS):
        gc.collect()
        before = forget_peak(os.getpid())
        begin = time.perf_counter()
        attachment = fragfs.attach(model, optimizer, strict=True)
        seconds.append(time.perf_counter() - begin)
        kib.append(forget_peak(os.getpid()) - before)
        attachment.detach()
    row(f"attach a model of {count} parameters", statistics.median(seconds), "s", goal=1)
    row(f"attach a model of {count} parameters, memory", kib[0] / 1024, "MiB", goal=10)


def main(kind: str) -> None:
    if kind == "reader":
        return reader()
    if kind == "attach":
        return attaching()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    job = {"fsdp2": Fsdp2, "zero2": Zero2}[kind]()
    bench = Bench(job)
    for _ in range(3):
        job.step()
    bench.own_time()
    bench.own_time(mounted_before=True)
    bench.cost()
    with job.attach() as attachment:
        job.step()
        bench.reading(attachment)
        bench.read_meanwhile(attachment)
        dist.barrier()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
