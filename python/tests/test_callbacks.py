# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer, Accelerate and Lightning, under launchers (callback_job.py)."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from test_torch import HERE, TIMEOUT_S, free_port, needs


@unittest.skipUnless(os.environ.get("FRAGFS") or shutil.which("fragfs"), "no fragfs in PATH")
@needs("torch")
class Callbacks(unittest.TestCase):
    def run_below(self, launcher: list[str], script: str, *arguments: str) -> str:
        """What the job has written.  Its environment is the launcher's alone, its folder one that goes with it."""
        environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([*launcher, str(HERE / script), *arguments], stdout=subprocess.PIPE, cwd=folder,
                                  stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S,
                                  env={**environment, "PYTHONPATH": str(HERE.parent), "DS_ACCELERATOR": "cpu"})
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
        return done.stdout

    def of_kind(self, kind: str, launcher: list[str]) -> None:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
        for name, below in (("alone", [sys.executable]), ("torchrun", torchrun), ("own", launcher)):
            if below:
                with self.subTest(name):
                    output = self.run_below(below, "callback_job.py", kind, ".")
                    self.assertEqual(output.count("compared 4"), 4 if kind == "hf" else 2, output)

    @needs("transformers")
    @needs("accelerate")
    def test_trainer_of_transformers(self) -> None:
        self.of_kind("hf", [])

    @needs("transformers")
    @needs("accelerate")
    def test_example(self) -> None:
        output = self.run_below([sys.executable], "../../docs/examples/torch/hf_trainer.py", "--steps", "4", "--every", "2")
        self.assertIn("attached: fragfs", output)

    @needs("accelerate")
    def test_accelerate(self) -> None:
        self.of_kind("accelerate", [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2",
                                    "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
                                    "--main_process_port", str(free_port())])

    @needs("lightning")
    def test_lightning(self) -> None:
        self.of_kind("lightning", [])


if __name__ == "__main__":
    unittest.main()
