#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The figures of docs/decisions.md: tests/figures.py TREE [BUILD]; BUILD has the objects of TREE."""
import collections
import os
import re
import subprocess
import sys


def run(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout


def count_lines(files):
    lines, comments, code, asserts, wide = collections.Counter(), collections.Counter(), 0, 0, 0
    for name in files:
        kind, inside = "h" if name.endswith(".h") else "c", False
        for line in open(name).read().split("\n")[:-1]:
            text = line.strip()
            whole = inside or text.startswith("/*")
            if whole:
                inside = "*/" not in text
            lines[kind] += 1
            comments[kind] += whole or "/*" in text
            code += bool(text) and not whole
            asserts += not whole and bool(re.search(r"\bassert\(", text))
            wide += len(line.expandtabs(8)) > 96
    total = sum(lines.values())
    print("lines %d, wider than 96 columns %d" % (total, wide))
    print("lines with a comment: .c %.1f %%, .h %.1f %%, all %.1f %%" % (
        100 * comments["c"] / lines["c"], 100 * comments["h"] / lines["h"],
        100 * sum(comments.values()) / total))
    print("assertions in 1000 lines of code: %.1f" % (asserts * 1000 / code))


def count_users(build):
    where, users = {}, collections.defaultdict(set)
    for folder, _, names in os.walk(build):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), build).replace("/.libs", "")
            source = re.sub(r"lib(fs|engine)_la-|fragfs-|mount.fragfs-", "", path)[:-2] + ".c"
            if not re.match(r"(engine|fs|mount-helpers)/.*\.o$", path) or not os.path.exists(source):
                continue
            for line in run("nm", os.path.join(folder, name)).split("\n"):
                word = line.split()
                if len(word) == 3 and word[1] == "T":
                    where[word[2]] = source
                elif len(word) == 2 and word[0] == "U":
                    users[word[1]].add(source)
    crossing = [users[f] - {s} for f, s in where.items() if not f.startswith("frag_")]
    crossing = [u for u in crossing if u]
    print("functions that another file calls: %d; with one such file: %d" % (
        len(crossing), sum(len(u) == 1 for u in crossing)))


if len(sys.argv) not in (2, 3):
    sys.exit("usage: tests/figures.py TREE [BUILD]")
build = len(sys.argv) > 2 and os.path.abspath(sys.argv[2])
os.chdir(sys.argv[1])
files = [f for f in run("git", "ls-files", "engine", "fs", "mount-helpers").split()
         if f.endswith((".c", ".cu", ".h"))]
folders = collections.Counter(os.path.dirname(f) for f in files)
modules = [f for f in files if re.match(r"engine/.*\.h$", f) and "internal" not in f and f != "engine/frag.h"]
print("files of engine/: %d in its root, %d in all" % (folders["engine"], sum(f.startswith("engine/") for f in files)))
print("folders below engine/: %d, largest %d" % (
    sum(d.startswith("engine/") for d in folders), max(n for d, n in folders.items() if d.startswith("engine/"))))
print("modules of engine/: %d" % len(modules))
count_lines(files)
if build:
    count_users(build)
