# SPDX-License-Identifier: Apache-2.0
"""What safetensors, transformers and DeepSpeed read in export/ of a mount: of a checkpoint, and of a job."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from pathlib import Path

import test_torch

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "tests" / "data" / "checkpoints" / "ds0.19.8"

FRAGFS = os.environ.get("FRAGFS") or shutil.which("fragfs")
SOURCE = os.environ.get("FRAG_SOURCE")


def needs(*modules: str) -> object:
    missing = [module for module in modules if not importlib.util.find_spec(module)]
    return unittest.skipIf(missing, f"not installed: {' '.join(missing)}")


@unittest.skipUnless(FRAGFS and os.path.exists("/dev/fuse"), "no fragfs, or no /dev/fuse")
@unittest.skipUnless(SOURCE, "FRAG_SOURCE names no job: this machine may not mount")
@needs("torch", "safetensors")
class Export(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def mount(self, source: str, *options: str) -> Path:
        at = self.folder / "mount"
        at.mkdir()
        subprocess.run([FRAGFS, source, at, *options], check=True, timeout=60)
        self.addCleanup(subprocess.run, ["fusermount3", "-u", at], check=True, timeout=60)
        return at

    def test_one_open_file_of_a_running_job_is_of_one_step(self) -> None:
        import torch
        from safetensors import safe_open
        from safetensors.torch import load_file

        mount = self.mount(SOURCE, "-o", "plain") if os.environ.get("FRAG_PLAIN") else self.mount(SOURCE)
        with safe_open(mount / "export/model.safetensors", "pt") as file:
            self.assertEqual(set(file.keys()), set(os.listdir(mount / "params")))
            before = {name: file.get_tensor(name).clone() for name in file.keys()}
            step = int((mount / "step").read_text())
            while int((mount / "step").read_text()) < step + 3:
                time.sleep(0.01)
            for name, value in before.items():
                self.assertTrue(torch.equal(file.get_tensor(name), value), name)
                shape = (mount / "params" / name / "shape").read_text().split()
                self.assertEqual(list(value.shape), [int(n) for n in shape])
        after = load_file(mount / "export/model.safetensors")
        self.assertFalse(all(torch.equal(after[name], before[name]) for name in before))
        rounded = load_file(mount / "export/model.bf16.safetensors")
        self.assertEqual({value.dtype for value in rounded.values()}, {torch.bfloat16})
        states = load_file(mount / "export/optimizer.safetensors")
        self.assertEqual(set(states), {f"{name}.{key}" for name in before for key in ("exp_avg", "exp_avg_sq")})

    def test_parameters_of_a_job_that_are_empty_or_tied(self) -> None:
        """Empty ones are there, and one of two names that are one tensor, as safetensors' own save_model has it."""
        import torch
        from safetensors import safe_open
        from safetensors.torch import load_model

        import fragfs

        class Model(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embed, self.head = torch.nn.Embedding(7, 4), torch.nn.Linear(4, 7, bias=False)
                self.head.weight = self.embed.weight
                self.alone = torch.nn.Parameter(torch.empty(0, 3, dtype=torch.bfloat16), requires_grad=False)
                self.scale = torch.nn.Parameter(torch.empty(0))

        model, loaded = Model(), Model()
        with fragfs.attach(model, torch.optim.AdamW(model.parameters())) as job:
            mount = self.mount(job.address)
            for file in (mount / "export/model.safetensors", mount / "export/hf/model-00001-of-00001.safetensors"):
                with safe_open(file, "pt") as tensors:
                    self.assertEqual({name: tensors.get_slice(name).get_shape() for name in tensors.keys()},
                                     {"embed.weight": [7, 4], "alone": [0, 3], "scale": [0]}, file.name)
                    self.assertEqual(tensors.get_tensor("alone").dtype, torch.bfloat16)
            self.assertEqual(load_model(loaded, mount / "export/model.safetensors"), (set(), []))
        self.assertTrue(torch.equal(loaded.head.weight, model.embed.weight))

    @needs("transformers")
    def test_transformers_loads_a_checkpoint_from_hf(self) -> None:
        import torch
        import transformers
        from safetensors.torch import load_file

        torch.manual_seed(3)
        config = transformers.LlamaConfig(vocab_size=61, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                                          num_attention_heads=2, num_key_value_heads=1)
        model = transformers.LlamaForCausalLM(config)
        saved = self.folder / "saved"
        model.save_pretrained(saved)
        mount = self.mount(str(saved))
        whole = load_file(mount / "export/model.safetensors")
        hf = self.folder / "hf"
        hf.mkdir()
        for file in (mount / "export/hf").iterdir():
            (hf / file.name).symlink_to(file)
        shutil.copy(saved / "config.json", hf)
        loaded = transformers.LlamaForCausalLM.from_pretrained(hf, dtype=torch.bfloat16).state_dict()
        self.assertEqual(set(loaded), set(model.state_dict()))
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(whole[name], value), name)
            self.assertTrue(torch.equal(loaded[name], value.to(torch.bfloat16)), name)


@unittest.skipUnless(FRAGFS and os.path.exists("/dev/fuse"), "no fragfs, or no /dev/fuse")
@needs("torch", "deepspeed")
class Universal(unittest.TestCase):
    """DeepSpeed resumes, on other numbers of ranks, and holds all masters and moments bit for bit."""

    def setUp(self) -> None:
        from importlib.metadata import version

        if tuple(map(int, version("deepspeed").split(".")[:2])) < (0, 19):
            self.skipTest("DeepSpeed is older than 0.19")
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, world: int, *arguments: object) -> list[subprocess.Popen]:
        environment = {**os.environ, "WORLD_SIZE": str(world), "LOCAL_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(test_torch.free_port()), "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1",
                       "FRAG_PLAIN": "1", "FRAG_JOB_ID": f"universal-{os.getpid()}", "PYTHONPATH": str(HERE.parent)}
        ranks = []
        for rank in range(world):
            with open(self.folder / f"{arguments[0]}.{rank}.log", "w") as log:
                ranks.append(subprocess.Popen([sys.executable, HERE / "universal_job.py", *map(str, arguments)], stdout=log,
                                              env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                                              stderr=subprocess.STDOUT))
                self.addCleanup(ranks[-1].wait)
                self.addCleanup(ranks[-1].kill)
        return ranks

    def finish(self, ranks: list[subprocess.Popen], what: str) -> None:
        for rank, process in enumerate(ranks):
            status = process.wait(timeout=test_torch.TIMEOUT_S)
            self.assertEqual(status, 0, (self.folder / f"{what}.{rank}.log").read_text()[-4000:])

    def link(self, source: str, *options: str) -> None:
        """Mounts, and makes links/ of export/: a name with a '/' is folders in folders to DeepSpeed."""
        mount, links = self.folder / "mount", self.folder / "links"
        mount.mkdir()
        subprocess.run([FRAGFS, source, mount, *options], check=True, timeout=60)
        self.addCleanup(subprocess.run, ["fusermount3", "-u", mount], check=True, timeout=60)
        (links / "universal" / "zero" / "odd").mkdir(parents=True)
        (links / "latest_universal").symlink_to(mount / "export" / "latest_universal")
        for file in (mount / "export" / "universal").iterdir():
            if file.name != "zero":
                (links / "universal" / file.name).symlink_to(file)
        for file in (mount / "export" / "universal" / "zero").iterdir():
            name = file.name.replace("%2F", "/").replace("%25", "%")
            (links / "universal" / "zero" / name).symlink_to(file)

    def resume(self, case: str, world: int, stage: int) -> None:
        self.finish(self.start(world, "resume", case, self.folder, stage), "resume")

    def check_checkpoint(self, case: str, world: int, stage: int) -> None:
        with tarfile.open(DATA / f"{case}.tar.gz") as tar:
            tar.extractall(self.folder)
        (self.folder / "values").symlink_to(self.folder / case / "values")
        self.link(str(self.folder / case))
        self.resume(case, world, stage)

    def test_a_checkpoint_of_stage_2_goes_on_in_stage_2(self) -> None:
        self.check_checkpoint("z2-bf16-w3-cpu-adam", 2, 2)

    def test_a_checkpoint_of_stage_2_goes_on_in_stage_3(self) -> None:
        self.check_checkpoint("z2-bf16-w4", 3, 3)

    def test_a_checkpoint_of_stage_3_goes_on_in_stage_3(self) -> None:
        self.check_checkpoint("z3-bf16-w3-sub", 2, 3)

    def test_a_checkpoint_of_stage_3_goes_on_in_stage_1(self) -> None:
        self.check_checkpoint("z3-bf16-w2", 3, 1)

    def test_a_checkpoint_of_bf16_optimizer_goes_on_in_it(self) -> None:
        self.check_checkpoint("bf16opt-w3", 2, 1)

    def check_job(self, case: str, world: int, stage: int) -> None:
        job = self.start(2, "run", case, self.folder)
        deadline = time.monotonic() + test_torch.TIMEOUT_S
        while not (self.folder / "address").exists():
            self.assertLess(time.monotonic(), deadline)
            if any(rank.poll() is not None for rank in job):
                self.finish(job, "run")
            time.sleep(0.1)
        self.link((self.folder / "address").read_text(), "-o", "plain")
        self.resume(case, world, stage)
        (self.folder / "done").touch()
        self.finish(job, "run")

    def test_a_job_of_stage_2_goes_on_in_stage_3(self) -> None:
        self.check_job("z2-bf16-w4", 3, 3)

    def test_a_job_of_stage_3_goes_on_in_stage_3(self) -> None:
        self.check_job("z3-bf16-w2", 3, 3)


if __name__ == "__main__":
    unittest.main()
