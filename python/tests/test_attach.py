# SPDX-License-Identifier: Apache-2.0
"""python -m fragfs attach: jobs that run already and know nothing of it (plain_job.py)."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from test_torch import HERE, TIMEOUT_S, free_port, needs

import fragfs

ATTACH = [sys.executable, "-m", "fragfs", "attach"]


class PlainJob:
    """Ranks that run plain_job.py below one launcher; none of their environment is of fragfs."""

    def __init__(self, kind: str, world: int, folder: str) -> None:
        self.stop, self.out = Path(folder, "stop"), Path(folder, "out")
        self.stop.unlink(missing_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("FRAG", "PYTHONPATH"))}
        command = [sys.executable, str(HERE / "plain_job.py"), kind, str(self.stop)]
        if kind != "plain":
            command[1:1] = ["-m", "torch.distributed.run", "--nproc-per-node", str(world), "--master-addr",
                            "127.0.0.1", "--master-port", str(free_port())]
        with open(self.out, "w") as out, open(Path(folder, "err"), "w") as self.err:
            self.launcher = subprocess.Popen(command, env={**environment, "DS_ACCELERATOR": "cpu"}, cwd=folder,
                                             stdout=out, stderr=self.err)

    def lines(self) -> list[str]:
        """`step loss hash` of each step that is over."""
        return [line for line in self.out.read_text().split("\n")[:-1] if re.fullmatch(r"\d+ \S+ [0-9a-f]{64}", line)]

    def wait_for_steps(self, more: int) -> None:
        wanted = len(self.lines()) + more
        end = time.monotonic() + TIMEOUT_S
        while len(self.lines()) < wanted:
            assert self.launcher.poll() is None, Path(self.err.name).read_text()[-4000:]
            assert time.monotonic() < end, "no steps"
            time.sleep(0.05)

    def end(self) -> list[str]:
        self.stop.touch()
        try:
            assert self.launcher.wait(TIMEOUT_S) == 0, Path(self.err.name).read_text()[-4000:]
        finally:
            self.launcher.kill()
        return self.lines()


@unittest.skipUnless(os.environ.get("FRAGFS") or shutil.which("fragfs"), "no fragfs in PATH")
@unittest.skipUnless(shutil.which("gdb"), "no gdb in PATH")
@needs("torch")
class Attach(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def attach(self, *arguments: object, status: int = 0) -> str:
        done = subprocess.run([*ATTACH, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=TIMEOUT_S, env={**os.environ, "PYTHONPATH": str(HERE.parent)})
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def look(self, job: PlainJob, source: str, key: str) -> None:
        """What a mount shows is what the job had behind one of its steps."""
        with fragfs.open(source) as mount:
            for _ in range(3):
                job.wait_for_steps(2)
                seen = hashlib.sha256(mount["first.weight"][key].torch().view(-1).view(__import__("torch").uint8)
                                      .numpy().tobytes()).hexdigest()
                job.wait_for_steps(2)
                self.assertIn(seen, [line.split()[2] for line in job.lines()])
            self.assertIn("exp_avg", mount["first.weight"].states)

    def of_a_running_job(self, kind: str, world: int, key: str) -> None:
        job = PlainJob(kind, world, self.folder)
        job.wait_for_steps(5)
        for _ in range(2):
            said = self.attach("--launcher" if world > 1 else "--", job.launcher.pid)
            source = re.search("attached: fragfs ([0-9.]+:[0-9]+) /frag", said)
            self.assertTrue(source, said)
            self.look(job, source[1], key)
            self.assertIn("attached already", self.attach(
                "--launcher" if world > 1 else "--", job.launcher.pid, status=1))
            self.attach("--detach", "--launcher" if world > 1 else "--", job.launcher.pid)
            job.wait_for_steps(2)
        attached = job.end()
        bare = PlainJob(kind, world, self.folder)
        bare.wait_for_steps(len(attached))
        self.assertEqual(attached, bare.end()[:len(attached)])

    def test_a_job_of_four_ranks(self) -> None:
        self.of_a_running_job("ddp", 4, "fp32")

    def test_one_process_without_a_launcher(self) -> None:
        self.of_a_running_job("plain", 1, "fp32")

    @needs("deepspeed")
    def test_deepspeed(self) -> None:
        self.of_a_running_job("zero2", 4, "bf16")


if __name__ == "__main__":
    unittest.main()
