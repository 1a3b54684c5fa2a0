# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer, Accelerate and Lightning, under launchers (callback_job.py)."""

import os
import re
import shutil
import signal
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
            job = subprocess.Popen([*launcher, str(HERE / script), *arguments], stdout=subprocess.PIPE, cwd=folder,
                                   stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                   env={**environment, "PYTHONPATH": str(HERE.parent), "DS_ACCELERATOR": "cpu",
                                        "XDG_RUNTIME_DIR": folder})
            try:
                output = job.communicate(timeout=TIMEOUT_S)[0]
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGKILL)  # the launcher, and its ranks
                self.fail(job.communicate()[0][-4000:])
        self.assertEqual(job.returncode, 0, output[-4000:])
        return output

    def of_kind(self, kind: str, launcher: list[str], job: str) -> None:
        """job: the id that libfrag takes of this launcher's environment."""
        output = self.run_below(launcher, "callback_job.py", kind, ".")
        self.assertEqual(len(re.findall(f"job {job} compared 4", output)), 4 if kind == "hf" else 2, output)

    def below_torchrun(self, kind: str) -> None:
        port = str(free_port())
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        self.of_kind(kind, [*torchrun, "--master-port", port], f"127.0.0.1-{port}")

    @needs("transformers")
    @needs("accelerate")
    def test_trainer_of_transformers(self) -> None:
        self.of_kind("hf", [sys.executable], "default")
        self.below_torchrun("hf")

    @needs("transformers")
    @needs("accelerate")
    def test_example(self) -> None:
        output = self.run_below([sys.executable], "../../docs/examples/torch/hf_trainer.py", "--steps", "4", "--every", "2")
        self.assertIn("attached: fragfs", output)

    @needs("accelerate")
    def test_accelerate(self) -> None:
        self.of_kind("accelerate", [sys.executable], "default")
        self.below_torchrun("accelerate")

    @needs("accelerate")
    def test_accelerate_frees_a_model_and_prepares_another(self) -> None:
        self.of_kind("freed", [sys.executable], "default")

    @needs("accelerate")
    def test_accelerate_launch(self) -> None:
        port = str(free_port())
        self.of_kind("accelerate", [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2",
                                    "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
                                    "--main_process_port", port], f"127.0.0.1-{port}")

    @needs("accelerate")
    def test_torchrun_standalone(self) -> None:
        self.of_kind("accelerate", [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
                     "[0-9a-f-]{36}")

    @needs("accelerate")
    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun in PATH")
    def test_mpirun(self) -> None:
        command = ["mpirun", "--oversubscribe", "-n", "2", "-x", "MASTER_ADDR=127.0.0.1", "-x", f"MASTER_PORT={free_port()}"]
        command += ["--allow-run-as-root"] * (os.geteuid() == 0)
        self.of_kind("accelerate", [*command, sys.executable], "[^ ]+")

    @needs("deepspeed")
    def test_launcher_of_deepspeed(self) -> None:
        launcher = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", "2", "--master_port", str(free_port())]
        output = self.run_below(launcher, "../../docs/examples/torch/zero.py", "--steps", "4", "--every", "2")
        self.assertRegex(output, "fragfs 127.0.0.1:[0-9]+ /frag")

    @needs("lightning")
    def test_lightning(self) -> None:
        self.of_kind("lightning", [sys.executable], "default")
        self.below_torchrun("lightning")


if __name__ == "__main__":
    unittest.main()
