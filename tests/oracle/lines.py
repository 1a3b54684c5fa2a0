# SPDX-License-Identifier: Apache-2.0
"""Writes a file of tests/data that has a line for each answer of DeepSpeed."""

import os
import sys

import deepspeed


def write_lines(folder, name, lines):
    """Writes tests/data/FOLDER/NAME; its first line says which program made it, of which DeepSpeed."""
    data = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", folder)
    os.makedirs(data, exist_ok=True)
    with open(os.path.join(data, name), "w") as out:
        out.write("# deepspeed %s; made by tests/oracle/%s\n" % (deepspeed.__version__, os.path.basename(sys.argv[0])))
        out.write("".join(line + "\n" for line in lines))
