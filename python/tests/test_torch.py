# SPDX-License-Identifier: Apache-2.0
"""Real jobs of torch and DeepSpeed, attached, mounted, compared and edited: torch_job.py in several processes."""

import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a shell has in the background, and by its children
TIMEOUT_S = 900  # of a whole job, some of which take minutes where many others run


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def needs(module: str) -> object:
    return unittest.skipUnless(importlib.util.find_spec(module), f"{module} is not installed")


@unittest.skipUnless(os.environ.get("FRAGFS") or shutil.which("fragfs"), "no fragfs in PATH")
@needs("torch")
class Torch(unittest.TestCase):
    def run_job(self, case: str, world: int) -> None:
        self.run_ranks([str(HERE / "torch_job.py"), case], case, world)

    def run_ranks(self, command: list[str], case: str, world: int) -> str:
        """What rank 0 has written."""
        environment = {**os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(free_port()), "FRAG_PLAIN": "1", "DS_ACCELERATOR": "cpu",
                       "PYTHONPATH": str(HERE.parent), "FRAG_JOB_ID": f"{case.replace('/', '-')}-{os.getpid()}"}
        ranks = [subprocess.Popen([sys.executable, *command],
                                  env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                 for rank in range(world)]
        try:
            outputs = [rank.communicate(timeout=TIMEOUT_S)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        failed = [f"rank {number} of {world}: {output[-3000:]}"
                  for number, (rank, output) in enumerate(zip(ranks, outputs)) if rank.returncode]
        self.assertFalse(failed, "\n".join(failed))  # one alone may say no more than that another has gone
        return outputs[0]

    def test_ddp(self) -> None:
        for world in (2, 4):
            with self.subTest(world=world):
                self.run_job("ddp", world)

    def test_a_parameter_without_a_master_is_shown_as_what_it_is(self) -> None:
        for case, world in itertools.product(("ddp-bf16", "fsdp2-bf16"), (2, 4)):
            with self.subTest(case=case, world=world):
                self.run_job(case, world)

    def test_neither_collectives_nor_autograd_are_touched(self) -> None:
        cases = ["ddp", "fsdp2", "fsdp2-mixed"] + ["2-bf16", "3-bf16"] * bool(importlib.util.find_spec("deepspeed"))
        self.run_ranks([str(HERE / "untouched_job.py"), *cases], "untouched", 2)

    def test_fsdp2(self) -> None:
        for world in (2, 3, 4):
            with self.subTest(world=world):
                self.run_job("fsdp2", world)

    def test_fsdp2_mixed_precision(self) -> None:
        for world in (2, 4):
            with self.subTest(world=world):
                self.run_job("fsdp2-mixed", world)

    def test_hsdp(self) -> None:
        self.run_job("hsdp", 4)

    def run_mesh_jobs(self, *cases: tuple[str, int]) -> None:
        for case, world in cases:
            with self.subTest(case=case, world=world):
                self.run_ranks([str(HERE / "mesh_job.py"), case], case, world)

    def test_parameters_that_are_not_cut_by_rows(self) -> None:
        self.run_mesh_jobs(("tp", 2), ("tp", 3), ("tp", 4), ("fsdp2-tp", 4), ("fsdp2-columns", 2), ("fsdp2-columns", 4))

    def test_gradients_that_the_optimizer_alone_reduces_are_not_shown(self) -> None:
        for world in (2, 4):
            with self.subTest(world=world):
                output = self.run_ranks([str(HERE / "mesh_job.py"), "tp-sequence"], "tp-sequence", world)
                self.assertRegex(output, r"grad of norm.weight is placed as \(Partial\(sum\),\), .* is not shown")

    def test_fsdp1(self) -> None:
        self.run_mesh_jobs(("fsdp1", 2), ("fsdp1", 3), ("fsdp1", 4), ("fsdp1-grad", 2), ("fsdp1-hybrid", 2), ("fsdp1-hybrid", 4))

    def test_fsdp1_of_param_groups_within_a_unit(self) -> None:
        output = self.run_ranks([str(HERE / "mesh_job.py"), "fsdp1-groups"], "fsdp1-groups", 2)
        self.assertIn("first.weight and first.bias are of one FSDP1 unit and of 2 param groups", output)

    def test_zero_redundancy_optimizer(self) -> None:
        self.run_mesh_jobs(("zero-redundancy", 2), ("zero-redundancy", 3), ("zero-redundancy", 4))

    def test_the_forms_of_torchs_optimizers(self) -> None:
        self.run_mesh_jobs(("foreach", 2), ("foreach", 4), ("fused", 2), ("fused", 4))

    def test_odd_parameters(self) -> None:
        self.run_mesh_jobs(("odd", 1), ("odd-sparse", 1))

    def run_script(self, script: str, *arguments: str, before: tuple[str, ...] = ()) -> str:
        """Below python -m fragfs run.  before: what a launcher has put there."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "script.py").write_text(script)
            return self.run_ranks(["-m", "fragfs", *before, "run", f"{folder}/script.py", *arguments], "run", 1)

    def test_a_script_that_knows_nothing_is_attached(self) -> None:
        script = ("import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 1))\n"
                  "optimizer = torch.optim.AdamW(model.parameters())\n"
                  "for _ in range(3):\n    model(torch.ones(2, 3)).mean().backward()\n    optimizer.step()\n"
                  "import sys\nassert __name__ == '__main__' and 'fragfs' in sys.modules\nprint('given', sys.argv[1:])\n")
        for before in ((), ("--local_rank=0",)):  # DeepSpeed's launcher puts that before the arguments of a module
            output = self.run_script(script, "a", before=before)
            self.assertRegex(output, "fragfs: rank 0: attached: fragfs [0-9.]+:[0-9]+ /frag")
            self.assertIn(f"given {[*before, 'a']}", output)
            self.assertNotIn("not attached", output)

    def test_a_script_that_steps_no_optimizer_is_said_not_to_be_attached(self) -> None:
        """As one that trains in processes of its own."""
        output = self.run_script("print('here')")
        self.assertEqual(output.splitlines(), ["here", "fragfs: rank 0: not attached: no optimizer has ended a step (of DeepSpeed: "
                                               "two) in this process"])

    def test_examples(self) -> None:
        for name in ["ddp", "fsdp2"] + ["zero"] * bool(importlib.util.find_spec("deepspeed")):
            with self.subTest(name):
                script = HERE.parents[1] / "docs/examples/torch" / f"{name}.py"
                self.run_ranks([str(script), "--steps", "8", "--poison", "4"], name, 2)


if __name__ == "__main__":
    unittest.main()
