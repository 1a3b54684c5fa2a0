# SPDX-License-Identifier: Apache-2.0
"""What a DeepSpeed engine holds: by the memory that it trains with, not by what it says of it."""


def gather(piece, group):
    import torch
    import torch.distributed as dist

    pieces = [torch.empty_like(piece) for _ in range(dist.get_world_size(group))]
    dist.all_gather(pieces, piece.contiguous(), group=group)
    return torch.cat(pieces)


def flat_states(optimizer, master, state):
    """The vectors beside a master of the same length: [(key, vector)]."""
    found = [("fp32", master)]
    for key, x in sorted(state.items()):
        if getattr(x, "shape", None) == master.shape:
            found.append((key, x))
    return found


def held_in_partitions(optimizer, grid):
    """Stages 1, 2, BF16_Optimizer: a parameter is a view of its group's flat vector, whose place tells which
    elements of the ranks' masters are its own: {id of parameter: {key: tensor}}."""
    bf16 = hasattr(optimizer, "bf16_groups_flat")
    flats = optimizer.bf16_groups_flat if bf16 else optimizer.bit16_groups_flat
    masters = optimizer.fp32_groups_flat_partition if bf16 else optimizer.single_partition_of_fp32_groups
    held = {}
    for params, flat, master in zip(optimizer.bf16_groups if bf16 else optimizer.bit16_groups, flats, masters):
        for key, piece in flat_states(optimizer, master, optimizer.optimizer.state[master]):
            whole = gather(piece.detach(), grid.dp_group)
            for p in params:
                at, rest = divmod(p.data_ptr() - flat.data_ptr(), p.element_size())
                assert not rest and 0 <= at <= flat.numel() - p.numel()
                held.setdefault(id(p), {})[key] = whole[at : at + p.numel()].view(p.shape)
    return held


def held_in_shards(optimizer, grid):
    """Stage 3: where the engine adds a parameter's gradient to the masters."""
    held = {}
    for p in (p for group in optimizer.fp16_groups for p in group):
        sub, at, _ = optimizer.grad_position[optimizer.get_param_id(p)]
        master = optimizer.fp32_partitioned_groups_flat[sub]
        n = p.ds_tensor.ds_numel
        for key, vector in flat_states(optimizer, master, optimizer.optimizer.state[master]):
            whole = gather(vector.detach()[at : at + n], grid.dp_group)
            held.setdefault(id(p), {})[key] = whole[: p.ds_numel].view(p.ds_shape)
    return held


def held_whole(optimizer):
    """Stage 0: the optimizer of torch, or around it one that has masters for a model of fp16 or bf16."""
    masters = {}
    inner = getattr(optimizer, "optimizer", optimizer)
    for params, group in zip(getattr(optimizer, "fp16_groups", []), getattr(optimizer, "fp32_groups", [])):
        masters.update({id(p): master for p, master in zip(params, group)})
    held = {}
    for p in (p for g in inner.param_groups for p in g["params"]) if not masters else []:
        held[id(p)] = dict(flat_states(optimizer, p.detach(), inner.state.get(p, {})))
    for i, master in masters.items():
        held[i] = dict(flat_states(optimizer, master.detach(), inner.state.get(master, {})))
    return held


def held_by(engine, case, grid):
    if case["stage"] == 3:
        return held_in_shards(engine.optimizer, grid)
    return held_in_partitions(engine.optimizer, grid) if case["stage"] else held_whole(engine.optimizer)


LP_KEYS = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}


def own_key(x, has_master):
    if str(x.dtype) == "torch.float32":
        return "lp" if has_master else "fp32"
    return LP_KEYS.get(str(x.dtype), str(x.dtype).split(".")[1])


def with_copy(x, master=None):
    """What a checkpoint shows of the model's own tensor, and the fp32 that it widens to."""
    return {own_key(x, master is not None): x, **({"fp32": x.float()} if x.is_floating_point() else {})}


def whole_params(engine, case):
    """All parameters in the model's own type, {name: tensor}; all ranks call."""
    import deepspeed

    named = list(engine.module.named_parameters())
    if case["stage"] < 3:
        return {n: p.detach().clone() for n, p in named}
    with deepspeed.zero.GatheredParameters([p for _, p in named]):
        return {n: p.detach().clone() for n, p in named}


def states_of(engine, case, grid):
    """{name: {state: tensor}} as a checkpoint has them."""
    import torch

    held, lp, states = held_by(engine, case, grid), whole_params(engine, case), {}
    for name, p in engine.module.named_parameters():
        mine = held.get(id(p), {}) if p.requires_grad else {}
        if "fp32" in mine:
            assert torch.equal(mine["fp32"].to(lp[name].dtype), lp[name]), name
            if mine["fp32"].dtype != torch.float32:
                mine.update(master=mine["fp32"], fp32=mine["fp32"].float())
        stored = not (case["stage"] == 3 and p.requires_grad)
        master = mine.get("fp32") if case["stage"] or case["lp"] != "fp32" else None
        if p.requires_grad or not case.get("no_frozen"):
            states[name] = {**(with_copy(lp[name], master) if stored else {}), **mine}
    return states


def buffers_of(engine):
    return {n: with_copy(b) for n, b in engine.module.state_dict().items() if n in dict(engine.module.named_buffers())}


def escaped(name):
    return "".join("%%%02X" % ord(c) if c in "/%@" else c for c in name)


def raw(x):
    import torch

    flat = x.detach().clone(memory_format=torch.contiguous_format).view(-1)
    if flat.dtype == torch.bfloat16:
        flat = flat.view(torch.int16)
    return flat.numpy().tobytes()


def aliases_of(module):
    first = {id(p): n for n, p in module.named_parameters()}
    every = ((m + "." if m else m) + n for m, x in module.named_modules() for n in x._parameters)
    named = [(n, first[id(p)]) for n in every for p in [module.get_parameter(n)] if p is not None]
    return [(n, of) for n, of in named if n != of]


def shown(engine, case, grid):
    """What a mount shows of it: [(folder, kind, name, states, alias of)]; all ranks call."""
    below = f"mp_rank_{grid.mp_rank:02}/" if case["mp"] > 1 else ""
    states = states_of(engine, case, grid)
    every = [("param", name, x, None) for name, x in states.items()]
    every += [("buffer", name, x, None) for name, x in buffers_of(engine).items()]
    every += [("param", name, states[of], of) for name, of in aliases_of(engine.module)]
    return [(f"{below}{kind}s/{escaped(name)}", kind, escaped(name), *rest) for kind, name, *rest in every]
