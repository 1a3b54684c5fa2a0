#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes traces from DeepSpeed's ContiguousMemoryAllocator and writes them to tests/data/arena.

Run by hand, see README.md.  A trace is lines of words, sizes and addresses in elements:
    arena SIZE                     begins it
    alloc ID SIZE ADDRESS MOVED    MOVED 1: it defragmented first
    full ID SIZE                   refused: less is free
    release ID
    at ID ADDRESS                  where a tensor is after a defragmentation
    figures FREE LARGEST MOST      total_free, largest_contiguous, max_allocated
    map TEXT                       print_allocation, one character an element
Every tensor is assigned to a parameter and none is empty: what the allocator does otherwise is wrong.
"""

import argparse
import os
import random

import deepspeed
import torch
from deepspeed.runtime.zero import contiguous_memory_allocator as cma

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "data", "arena")


class Recorder:
    def __init__(self, path, size):
        self.out = open(path, "w")
        self.printed = []
        cma.print_rank_0 = self.printed.append
        self.allocator = cma.ContiguousMemoryAllocator(size, torch.float32, "cpu")
        self.size = size
        self.tensors = {}
        self.next_id = 0
        self.say("#", "DeepSpeed", deepspeed.__version__)
        self.say("arena", size)

    def say(self, *words):
        self.out.write(" ".join(str(w) for w in words) + "\n")

    def address(self, tensor):
        return tensor.storage_offset()

    def alloc(self, size):
        id_ = self.next_id
        self.next_id += 1
        if size > self.allocator.total_free:
            try:
                self.allocator.allocate_tensor(size)
            except AssertionError:
                self.say("full", id_, size)
                return None
            raise SystemExit("it was expected to refuse")
        moves = self.allocator.largest_contiguous < size
        tensor = self.allocator.allocate_tensor(size)
        parameter = torch.nn.Parameter(torch.zeros(size))
        self.allocator.assign_to_param(tensor, parameter, size, (size,))
        self.tensors[id_] = (tensor, parameter)
        self.say("alloc", id_, size, self.address(tensor), int(moves))
        parameter.data.fill_(id_)
        if moves:
            self.places()
        return id_

    def places(self):
        for id_, (tensor, parameter) in self.tensors.items():
            assert (parameter.data == id_).all() and (tensor == id_).all()
            self.say("at", id_, self.address(tensor))

    def release(self, id_):
        tensor, _ = self.tensors.pop(id_)
        self.allocator.release_tensor(tensor)
        self.say("release", id_)

    def figures(self):
        a = self.allocator
        self.say("figures", a.total_free, a.largest_contiguous, a.max_allocated)

    def map(self):
        self.printed.clear()
        self.allocator.print_allocation(resolution=self.size)
        self.say("map", self.printed[0])


def own_test(path):
    """The sizes of DeepSpeed's runtime/zero/test.py."""
    r = Recorder(path, 1024)
    ids = [r.alloc(256) for _ in range(4)]
    r.figures()
    for i in (0, 2):
        r.release(ids[i])
        r.figures()
    r.alloc(512)
    r.figures()
    r.release(ids[1])
    r.release(ids[3])
    r.alloc(512)
    r.figures()


def equal_holes(path):
    """Of equal holes the oldest is taken."""
    r = Recorder(path, 80)
    ids = [r.alloc(8) for _ in range(10)]
    for i in (5, 1, 3):
        r.release(ids[i])
        r.map()
    for size in (8, 4, 4, 8):
        r.alloc(size)
        r.map()
    r.release(ids[2])
    r.release(ids[0])
    r.map()
    r.figures()


def at_random(path, seed, size, most, actions, fill):
    draw = random.Random(seed)
    r = Recorder(path, size)
    for _ in range(actions):
        used = size - r.allocator.total_free
        if not r.tensors or (draw.random() < 0.7 if used < size * fill else draw.random() < 0.3):
            r.alloc(draw.randint(1, most))
        else:
            r.release(draw.choice(list(r.tensors)))
        r.figures()
        if size <= 64:
            r.map()


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    os.makedirs(OUT, exist_ok=True)

    def path(name):
        return os.path.join(OUT, name + ".trace")

    own_test(path("own-test"))
    equal_holes(path("equal-holes"))
    at_random(path("small"), 1, 40, 12, 120, 0.8)
    at_random(path("equal-sizes"), 2, 60, 3, 150, 0.9)
    at_random(path("large"), 3, 1 << 20, 1 << 16, 300, 0.9)
    at_random(path("full"), 4, 1000, 300, 200, 0.99)


main()
