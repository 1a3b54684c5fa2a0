# SPDX-License-Identifier: Apache-2.0
"""The checkpoints that make-checkpoints.py makes, and the engines that save and load them."""

STEPS = 3

# By name: what differs from the defaults in DEFAULTS.  Of one mp and world all run in the same processes.
CASES = {
    "z0-fp32-w2": dict(stage=0, lp="fp32"),
    "z0-fp16-w1": dict(stage=0, lp="fp16", world=1),
    "z0-bf16-w2": dict(stage=0),
    "z1-fp32-w1": dict(stage=1, lp="fp32", world=1),
    "z1-bf16-w2": dict(stage=1),
    "z1-fp16-w4": dict(stage=1, lp="fp16", world=4),
    "z1-bf16-w3-elastic": dict(stage=1, world=3, elastic=True),
    "z1-fp16-w3-elastic": dict(stage=1, lp="fp16", world=3, elastic=True),
    "z1-bf16-w4-mp2": dict(stage=1, world=4, mp=2),
    "z1-bf16-w2-adagrad": dict(stage=1, optimizer="adagrad"),
    "bf16opt-w1": dict(stage=1, accumulate="fp32", world=1),
    "bf16opt-w3": dict(stage=1, accumulate="fp32", world=3),
    "z2-bf16-w4": dict(stage=2, world=4),
    "z2-fp16-w3": dict(stage=2, lp="fp16", world=3),
    "z2-fp32-w2": dict(stage=2, lp="fp32"),
    "z2-bf16-w4-rr": dict(stage=2, world=4, round_robin=True),
    "z2-fp16-w4-rr": dict(stage=2, lp="fp16", world=4, round_robin=True),
    "z2-fp16-w3-rr-elastic": dict(stage=2, lp="fp16", world=3, round_robin=True, elastic=True),
    "z1-fp16-w2-aligned": dict(stage=1, lp="fp16", aligned=True),
    "z2-bf16-w3-rr-aligned": dict(stage=2, world=3, round_robin=True, aligned=True),
    "z2-bf16-w2-offload": dict(stage=2, offload=True),
    "z2-bf16-w2-legacy": dict(stage=2, legacy=True),
    "z2-bf16-w2-client": dict(stage=2, client=True),
    "z2-bf16-w3-sgd": dict(stage=2, world=3, optimizer="sgd"),
    "z2-fp32-w3-amsgrad": dict(stage=2, lp="fp32", world=3, optimizer="amsgrad"),
    "z2-bf16-w2-no-frozen": dict(stage=2, no_frozen=True),
    "z2-bf16-w4-mp2": dict(stage=2, world=4, mp=2),
    "z2-bf16-w3-cpu-adam": dict(stage=2, world=3, offload=True, optimizer="cpu-adam"),
    "z3-fp16-w2-cpu-adam-half": dict(stage=3, lp="fp16", offload=True, optimizer="cpu-adam-half", low_master=True),
    "z1-bf16-w3-low-master": dict(stage=1, world=3, low_master=True),
    "z3-bf16-w2-low-master": dict(stage=3, low_master=True),
    "z2-bf16-w3-universal": dict(stage=2, world=3, scalar=False, universal=True),
    "z3-bf16-w1": dict(stage=3, world=1),
    "z3-bf16-w2": dict(stage=3),
    "z3-fp16-w4": dict(stage=3, lp="fp16", world=4),
    "z3-fp32-w3": dict(stage=3, lp="fp32", world=3),
    "z3-bf16-w3-sub": dict(stage=3, world=3, sub_group=40),
    "z3-bf16-w4-sub1": dict(stage=3, world=4, sub_group=1),
    "z3-fp32-w2-sub": dict(stage=3, lp="fp32", sub_group=90),
    "z3-bf16-w2-offload": dict(stage=3, offload=True),
    "z3-bf16-w2-legacy": dict(stage=3, legacy=True),
    "z3-bf16-w3-sgd": dict(stage=3, world=3, optimizer="sgd"),
    "z3-fp16-w2-no-frozen": dict(stage=3, lp="fp16", no_frozen=True),
    "z3-bf16-w2-no-frozen": dict(stage=3, no_frozen=True),
    "z3-bf16-w4-mp2": dict(stage=3, world=4, mp=2),
    "z3-bf16-w3-universal": dict(stage=3, world=3, scalar=False, universal=True),
}
DEFAULTS = dict(world=2, mp=1, lp="bf16", accumulate=None, sub_group=None, optimizer="adam", scalar=True)
# What old versions are asked for, instead of all: of torch 1.13, with 0.10, gloo can do no more.
OF_VERSION = {
    "0.10": """z1-fp32-w1 z1-fp16-w4 z2-fp16-w3 z2-fp32-w2 z2-fp16-w4-rr z2-fp32-w3-amsgrad""",
    "0.14": """z1-bf16-w2 z2-bf16-w4 z2-bf16-w4-rr z2-bf16-w2-offload
        z2-bf16-w3-universal z3-bf16-w2 z3-bf16-w3-sub z3-bf16-w2-no-frozen""",
}


def case_of(name):
    return dict(DEFAULTS, **CASES[name])


def of_version(version):
    """Names."""
    return OF_VERSION.get(version.rpartition(".")[0], "").split() or list(CASES)


def by_world(names):
    """[(ranks, names of cases that can run in the same processes)]"""
    kinds = {}
    for name in names:
        case = case_of(name)
        kinds.setdefault((case["world"], case["mp"]), []).append(name)
    return [(world, names) for (world, _), names in sorted(kinds.items())]


def config(case, load=False):
    zero = {"stage": case["stage"]}
    if case.get("round_robin"):
        zero["round_robin_gradients"] = True
    if case.get("aligned"):
        zero["parameter_alignment"] = True
    if case.get("elastic"):
        zero["elastic_checkpoint"] = True
    if case.get("offload"):
        zero["offload_optimizer"] = {"device": "cpu"}
        if case["stage"] == 3:
            zero["offload_param"] = {"device": "cpu"}
    if case["stage"] == 3:
        zero["stage3_param_persistence_threshold"] = 0
        zero["sub_group_size"] = case["sub_group"] or 10**9
    result = {
        "train_micro_batch_size_per_gpu": 1,
        # Stage 0 of 0.19.8 cannot clip a 0-dim parameter.
        "gradient_clipping": 1.0 if case["stage"] else 0.0,
        "steps_per_print": 10**9,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    if case["lp"] == "bf16":
        result["bf16"] = {"enabled": True}
    if case["lp"] == "fp16":
        result["fp16"] = {"enabled": True, "initial_scale_power": 6}
    if case.get("low_master"):
        result[case["lp"]][case["lp"] + "_master_weights_and_grads"] = True
    if case.get("low_master") and case["lp"] == "bf16":
        result["bf16"]["bf16_optimizer_states"] = True
    if case["accumulate"]:
        result["data_types"] = {"grad_accum_dtype": case["accumulate"]}
    if case.get("legacy"):
        result["checkpoint"] = {"checkpoint_serialization": False}
    if case.get("universal") and load:
        result["checkpoint"] = {"load_universal": True}
    return result


def optimizer_of(case, groups):
    import torch

    if case["optimizer"] == "sgd":
        return torch.optim.SGD(groups, lr=0.01, momentum=0.9)
    if case["optimizer"] == "adagrad":
        return torch.optim.Adagrad(groups, lr=0.01)
    if case["optimizer"].startswith("cpu-adam"):
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        return DeepSpeedCPUAdam(groups, lr=0.01, fp32_optimizer_states="half" not in case["optimizer"])
    return torch.optim.Adam(groups, lr=0.01, amsgrad=case["optimizer"] == "amsgrad")


class Grid:
    """What Megatron calls an mpu: ranks of the same data and another part of the model are neighbours."""

    def __init__(self, mp):
        import torch.distributed as dist

        rank, world = dist.get_rank(), dist.get_world_size()
        for first in range(0, world, mp):
            group = dist.new_group(range(first, first + mp))
            if first <= rank < first + mp:
                self.mp_group, self.mp_rank, self.mp = group, rank - first, mp
        for first in range(mp):
            group = dist.new_group(range(first, world, mp))
            if rank % mp == first:
                self.dp_group, self.dp_rank, self.dp = group, rank // mp, world // mp

    def get_model_parallel_group(self):
        return self.mp_group

    def get_model_parallel_rank(self):
        return self.mp_rank

    def get_model_parallel_world_size(self):
        return self.mp

    def get_data_parallel_group(self):
        return self.dp_group

    def get_data_parallel_rank(self):
        return self.dp_rank

    def get_data_parallel_world_size(self):
        return self.dp

    get_tensor_model_parallel_group = get_model_parallel_group
    get_tensor_model_parallel_rank = get_model_parallel_rank
    get_tensor_model_parallel_world_size = get_model_parallel_world_size


def start(case, grid, load=False):
    import deepspeed

    import model

    module = model.make(7 + grid.mp_rank, scalar=case["scalar"])
    return deepspeed.initialize(
        model=module,
        optimizer=optimizer_of(case, model.groups(module, 1 if case["optimizer"] == "adagrad" else 2)),
        config=config(case, load),
        mpu=grid if case["mp"] > 1 else None,
    )[0]


def train(engine, grid):
    import model

    for step in range(STEPS):
        loss = engine(model.batch(step, grid.dp_rank))
        engine.backward(loss)
        engine.step()
    assert engine.global_steps == STEPS and not engine.skipped_steps
