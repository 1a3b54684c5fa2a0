#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the process groups that DeepSpeed makes of sizes of a mesh to tests/data/mesh/groups.

Run by hand, see README.md.  The functions of deepspeed/utils/groups.py and parallel_state_sp.py run as they are; only
the communication below them is replaced, which records the ranks of each new group.  A line has WORLD PP SP TP EP HPZ
DATA_FIRST KIND, then the groups: ranks with commas between them.
"""

from types import SimpleNamespace

from deepspeed.runtime.sequence_parallel import parallel_state_sp
from deepspeed.utils import groups

from lines import write_lines


class Recorder:
    """Stands in for deepspeed.comm in a job of `world` ranks."""

    def __init__(self, world):
        self.world, self.made = world, []

    def is_initialized(self):
        return True

    def get_world_size(self, group=None):
        return self.world

    def get_rank(self, group=None):
        return 0

    def new_group(self, ranks):
        self.made.append(list(ranks))
        return SimpleNamespace()


def recorded(world, call):
    recorder = Recorder(world)
    groups._release_process_group_references()
    parallel_state_sp._release_sequence_parallel_groups()
    groups.dist = parallel_state_sp.dist = recorder
    groups.log_dist = lambda *args, **kwargs: None
    call()
    return recorder.made


def main():
    lines = []

    def add(kind, made, world, pp=1, sp=1, tp=1, ep=1, hpz=1, data_first=False):
        sizes = [str(n) for n in (world, pp, sp, tp, ep, hpz, int(data_first))]
        line = " ".join(sizes + [kind] + [",".join(map(str, ranks)) for ranks in made])
        if line not in lines:
            lines.append(line)

    for world, pp, tp, ep in ((16, 1, 1, 2), (16, 1, 2, 4), (16, 2, 2, 2), (16, 2, 1, 4), (32, 2, 2, 4), (24, 3, 2, 2),
                              (8, 1, 1, 8), (8, 1, 8, 1), (6, 1, 1, 3)):
        for data_first in False, True:
            expert, expert_data = groups._get_expert_parallel_ranks(world, tp, ep, pp, data_first)
            add("expert", expert, world, pp=pp, tp=tp, ep=ep, data_first=data_first)
            add("expert-data", expert_data, world, pp=pp, tp=tp, ep=ep, data_first=data_first)
        made = recorded(world, lambda: groups._create_expert_and_data_parallel(ep, mp_size=tp, pp_size=pp))
        if tp == 1:  # expert-data groups come first there
            made = made[-(world // ep):] + made[:-(world // ep)]
            add("expert", made[:world // ep], world, pp=pp, tp=tp, ep=ep)
            add("expert-data", made[world // ep:], world, pp=pp, tp=tp, ep=ep)
    for world, sp, ep in (8, 2, 4), (12, 3, 2):
        made = recorded(world, lambda: groups._create_expert_and_data_parallel(ep, mp_size=sp, pp_size=1, mp_mode="sp"))
        add("expert", made[:world // ep], world, sp=sp, ep=ep)
        add("expert-data", made[world // ep:], world, sp=sp, ep=ep)
    for world, tp in (8, 2), (12, 3), (4, 4):
        made = recorded(world, lambda: groups._init_tp_groups_with_new_group(tp))
        add("data", made[:tp], world, tp=tp)
        add("tensor", made[tp:], world, tp=tp)
    for world, sp in (8, 2), (12, 4):
        made = recorded(world, lambda: parallel_state_sp.initialize_sequence_parallel(sp))
        add("sequence", made[:world // sp], world, sp=sp)
        add("sequence-data", made[world // sp:], world, sp=sp)
    for world, hpz in (16, 2), (8, 8):
        add("hpz", recorded(world, lambda: groups._create_zero_param_parallel_group(hpz)), world, hpz=hpz)
    write_lines("mesh", "groups", lines)


if __name__ == "__main__":
    main()
