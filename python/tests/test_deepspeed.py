# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's jobs, attached, mounted, compared and edited: deepspeed_job.py in several processes."""

import os
import shutil
import unittest

import test_torch

JOB = str(test_torch.HERE / "deepspeed_job.py")


@unittest.skipUnless(os.environ.get("FRAGFS") or shutil.which("fragfs"), "no fragfs in PATH")
@test_torch.needs("deepspeed")
class DeepSpeed(unittest.TestCase):
    run_ranks = test_torch.Torch.run_ranks

    def run_cases(self, worlds: str, *cases: str) -> None:
        for world in map(int, worlds.split()):
            with self.subTest(world=world):
                self.run_ranks([JOB, *cases], cases[0], world)

    def test_stage_0_with_masters_apart(self) -> None:
        self.run_cases("2 4", "0-fp16", "0-bf16", "0-fused", "0-bf16-fused")

    def test_stage_0_of_torch_s_own_optimizer(self) -> None:
        self.run_cases("2 3 4", "0-fp32")

    def test_stages_1_and_2(self) -> None:
        self.run_cases("2 4", "1-bf16", "1-fp32", "1-fp16", "2-bf16", "2-fp32", "2-fp16", "2-fp32-grads", "2-aligned")
        self.run_cases("3", "1-bf16", "2-bf16", "2-aligned")

    def test_several_param_groups(self) -> None:
        self.run_cases("2 3 4", "1-groups", "2-groups")

    def test_round_robin_gradients(self) -> None:
        self.run_cases("2 3 4", "1-round-robin", "2-round-robin")

    def test_gradients_that_are_not_contiguous(self) -> None:
        self.run_cases("2 4", "1-scattered", "2-scattered", "2-overlap")

    def test_offload_to_the_host(self) -> None:
        self.run_cases("2 4", "1-offload", "2-offload", "2-offload-groups", "3-offload", "3-offload-all", "3-offload-fp32")
        self.run_cases("3", "2-offload-groups", "3-offload-all")

    def test_bf16_optimizer(self) -> None:
        self.run_cases("2 3 4", "bf16-optimizer")

    def test_experts(self) -> None:
        self.run_cases("2 4", "0-moe", "1-moe", "2-moe", "2-moe-all")

    def test_experts_of_stage_3_are_refused_by_deepspeed_itself(self) -> None:
        self.run_cases("2", "refused/3-moe")

    def test_states_on_nvme_are_said_not_to_be_shown(self) -> None:
        for world in (2, 4):
            output = self.run_ranks([JOB, "swapped/3-bf16"], "swapped-3-bf16", world)
            self.assertIn("masters, optimizer states and gradients on NVMe are not shown", output)

    def test_a_script_that_knows_nothing_is_attached_with_all_its_param_groups(self) -> None:
        for case in ("2-groups", "3-bf16"):
            output = self.run_ranks(["-m", "fragfs", "run", JOB, f"launched/{case}"], f"launched-{case}", 2)
            self.assertRegex(output, "fragfs: rank 0: attached: fragfs [0-9.]+:[0-9]+ /frag")

    def test_gradients_are_shown_while_nothing_changes_them(self) -> None:
        self.run_cases("2 4", "twice/2-bf16", "twice/3-bf16", "clipped/0-clipped")

    def test_gradients_that_are_reduced_in_the_step_are_said_not_to_be_shown(self) -> None:
        for world in (2, 4):
            output = self.run_ranks([JOB, "unmanaged/2-unmanaged"], "unmanaged", world)
            self.assertIn("gradients are not shown", output)

    def test_stage_3(self) -> None:
        self.run_cases("2 4", "3-bf16", "3-fp16", "3-fp32", "3-subs", "3-partitioned")
        self.run_cases("3", "3-bf16", "3-subs", "3-partitioned")

    def test_a_checkpoint_has_edits_and_load_checkpoint_is_followed(self) -> None:
        self.run_cases("2 4", "checkpoint/2-bf16", "checkpoint/3-bf16")
        self.run_cases("2", "checkpoint/1-groups", "checkpoint/bf16-optimizer", "checkpoint/2-offload", "checkpoint/0-fp16")

    def test_all_can_be_set_and_got(self) -> None:
        self.run_cases("2", "fragments/1-bf16", "fragments/2-bf16", "fragments/3-bf16", "fragments/bf16-optimizer")

    def test_offload_states_is_followed(self) -> None:
        self.run_cases("2", "offloaded/2-bf16")

    def test_tensors_that_somebody_replaces_are_found(self) -> None:
        self.run_cases("2", "replaced/2-bf16")

    def test_the_sign_of_zero_stays(self) -> None:
        self.run_cases("2", "zeros/2-bf16", "zeros/3-bf16")


if __name__ == "__main__":
    unittest.main()
