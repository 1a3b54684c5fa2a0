#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the lines that DeepSpeed's get_numactl_cmd makes on made-up machines to tests/data/numa/lines.

Run by hand, see README.md.  The functions of deepspeed/utils/numa.py run as they are; only what they ask the machine
is replaced.  Lines of words:
    list LIST NUMBER...                    what parse_range_list makes of a list
    bad LIST                               it raises ValueError
    line NODES CORES|- PROCS RANK LINE...  NODES: the cores of each node, "." for none, with slashes between them;
                                           -: as many cores as all nodes have, without a list
"""

import os

from deepspeed.utils import numa

from lines import write_lines

TWO = "0-3/4-7"
FOUR = "0-1,8-9/2-3,10-11/4-5,12-13/6-7,14-15"
HBM = "0-3/4-7/./."
FAKE = "0-3/0-3/4-7/4-7"
CASES = [(TWO, "-", 2), (TWO, "-", 4), (TWO, "-", 1), (TWO, "-", 3), (TWO, "-", 8), (TWO, "0,2-4,6", 2), (TWO, "1-2,5-6", 2),
         (TWO, "1,3,5,7", 1), (FOUR, "0-1,8-9", 2), (FOUR, "0,2,4,6,8,10,12,14", 4), (HBM, "-", 2),
         (HBM, "-", 4), (HBM, "2-5", 1), (FAKE, "0-7", 2), (FAKE, "0-7", 1), ("0-3", "-", 2), ("0-7/.", "0-7", 2),
         ("0-3/4-7/.", "0-7", 2)]
LISTS = ["0,2-4,6", "0", "3-3", "0-1,2-3", "7,9-10,12"]
BAD = ["", "a", "2-1", "1,1", "0-2,2", "3,1", "0,", "1-2-3", "0--1", "-1", "0;1"]


def cores_of(text):
    return [] if text == "." else numa.parse_range_list(text)


def main():
    lines = []
    numa.check_for_numactl_pkg = lambda: True
    os.environ.pop("KMP_AFFINITY", None)
    for text in LISTS:
        lines.append("list %s %s" % (text, " ".join(map(str, numa.parse_range_list(text)))))
    for text in BAD:
        try:
            numa.parse_range_list(text)
            raise SystemExit("%s is no error" % text)
        except (ValueError, IndexError):
            lines.append("bad " + text)
    for nodes, cores, procs in CASES:
        table = [cores_of(text) for text in nodes.split("/")]
        numa.get_numa_cores = lambda table=table: table
        total = len({core for node in table for core in node})
        numa.psutil.cpu_count = lambda logical=False, total=total: total
        for rank in range(procs):
            _, words = numa.get_numactl_cmd(None if cores == "-" else cores, procs, rank)
            lines.append("line %s %s %d %d %s" % (nodes, cores, procs, rank, " ".join(words)))
    write_lines("numa", "lines", lines)


if __name__ == "__main__":
    main()
