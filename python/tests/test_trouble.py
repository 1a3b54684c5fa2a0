# SPDX-License-Identifier: Apache-2.0
"""What happens to jobs happens to attached ones as to others (trouble_job.py): same losses, same errors, no wait."""

import contextlib
import importlib.util
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest
from collections.abc import Sequence
from typing import Any

from joined import open_joined
from test_torch import HERE, TIMEOUT_S, free_port, needs

TORCH, DEEPSPEED = ("ddp", "fsdp2"), ("zero2", "zero3")  # of several ranks
ALL = ("plain", *TORCH, *DEEPSPEED * bool(importlib.util.find_spec("deepspeed")))


@unittest.skipUnless(os.environ.get("FRAGFS") or shutil.which("fragfs"), "no fragfs in PATH")
@needs("torch")
class Trouble(unittest.TestCase):
    def start(self, kind: str, framework: str, how: str, world: int, stderr: Any = subprocess.PIPE) -> list[subprocess.Popen]:
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "DS_ACCELERATOR": "cpu", "WORLD_SIZE": str(world),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        ranks = [subprocess.Popen([sys.executable, str(HERE / "trouble_job.py"), kind, framework, how],
                                  env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                                  stdout=subprocess.PIPE, stderr=stderr, text=True) for rank in range(world)]
        for rank in ranks:
            self.addCleanup(rank.communicate)
            self.addCleanup(rank.kill)
        return ranks

    def losses(self, kind: str, how: str, says: str = "", framework: str = "plain") -> list[str]:
        """Of all ranks."""
        ranks, lines = self.start(kind, framework, how, 1 if framework == "plain" else 2), []
        for rank in ranks:
            out, err = rank.communicate(timeout=TIMEOUT_S)
            self.assertEqual(rank.returncode, 0, err[-4000:])
            self.assertIn(says, err)
            lines += [line for line in out.splitlines() if line.startswith(("loss", "compiled"))]  # DeepSpeed prints others
        return lines

    def same(self, *kinds: str, says: str = "", frameworks: Sequence[str] = ("plain",)) -> None:
        for kind, framework in itertools.product(kinds, frameworks):
            with self.subTest(kind=kind, framework=framework):
                bare = self.losses(kind, "bare", framework=framework)
                self.assertGreater(len(bare), 3)
                self.assertEqual(bare, self.losses(kind, "attached", says, framework))

    def test_workers_of_a_data_loader(self) -> None:
        self.same("workers-fork", "workers-spawn")

    def test_a_compiled_model(self) -> None:
        """Nor is it compiled more often."""
        self.same("compiled-inner", "compiled-outer", "compiled-late")

    def test_attach_and_detach_again(self) -> None:
        self.same("again", frameworks=ALL)

    def test_an_exception_that_the_script_catches(self) -> None:
        self.same("caught", frameworks=ALL)

    def test_what_goes_wrong_in_a_hook_is_a_line(self) -> None:
        self.same("hook_fails")
        self.losses("hook_fails", "attached", says="of libfrag; detached, training goes on")

    def test_a_line_that_standard_error_does_not_take_is_lost_and_no_more(self) -> None:
        bare = self.losses("hook_fails", "bare")
        with open("/dev/full", "w") as full:
            rank, = self.start("hook_fails", "plain", "attached", 1, stderr=full)
        self.assertEqual(rank.communicate(timeout=TIMEOUT_S)[0].splitlines(), bare)
        self.assertEqual(rank.returncode, 0)

    def of_two(self, kind: str, framework: str, how: str) -> list[tuple[int, str]]:
        """Exit status and last line of each rank."""
        ranks = self.start("raises" if kind == "raises" else "endless", framework, how, 2)
        if kind != "raises":
            for rank in ranks:
                for _ in range(5):
                    self.assertTrue(any(line.startswith("loss") for line in iter(rank.stdout.readline, "")))
            for rank in ranks[1:] if kind == "killed" else ranks:
                rank.send_signal(signal.SIGKILL if kind == "killed" else signal.SIGINT)
        ends = []
        for rank in ranks:
            err = rank.communicate(timeout=TIMEOUT_S)[1]
            lines = [re.sub(r"^\[rank\d\]: ?", "", line) for line in err.splitlines()]  # torch's
            errors = [line for line in lines if re.match(r"[\w.]*(Error|KeyboardInterrupt)\b", line)]
            ends.append((rank.returncode, errors[-1] if errors else err[-2000:]))
        return ends

    def test_an_interrupt_ends_a_job_that_is_frozen(self) -> None:
        for framework in ALL:
            with self.subTest(framework=framework):
                ranks = self.start("endless", framework, "attached", 1 if framework == "plain" else 2)
                address = next(line.split()[1] for line in ranks[0].stdout if line.startswith("address"))
                with open_joined(address, "rw") as mount, contextlib.suppress(TimeoutError), mount.freeze(seconds=40000):
                    for rank in ranks:
                        rank.send_signal(signal.SIGINT)
                    ends = [(rank.communicate(timeout=TIMEOUT_S), rank.returncode) for rank in ranks]
                self.assertTrue(all("KeyboardInterrupt" in err for (_, err), _ in ends), ends)
                self.assertTrue(all(status in (1, -signal.SIGINT) for _, status in ends), ends)

    def both(self, framework: str) -> None:
        for kind in ("raises", "interrupted", "killed"):
            with self.subTest(kind=kind, framework=framework):
                ends = self.of_two(kind, framework, "attached")
                if kind == "raises":
                    self.assertEqual(ends, [(1, "ValueError: of the job")] * 2)
                elif kind == "interrupted":
                    self.assertTrue(any(line.startswith("KeyboardInterrupt") for _, line in ends), ends)
                    self.assertTrue(all(status in (1, -signal.SIGINT) for status, _ in ends), ends)
                else:
                    self.assertEqual(ends[1][0], -signal.SIGKILL)
                    self.assertEqual(ends[0][0], 1)
                    self.assertRegex(ends[0][1], "RuntimeError|DistBackendError")

    def test_errors_of_torch(self) -> None:
        for framework in TORCH:
            self.both(framework)

    @needs("deepspeed")
    def test_errors_of_deepspeed(self) -> None:
        for framework in DEEPSPEED:
            self.both(framework)


if __name__ == "__main__":
    unittest.main()
