#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The algorithm of DeepSpeed's ContiguousMemoryAllocator without tensors, over actions from stdin.

    arena SIZE
    a NUMBER SIZE ADDRESS   allocate; ADDRESS is where it must come to lie
    r NUMBER                release
    time                    from here on time is taken
Prints CPU seconds an action; exit 1 where an address differs.  Compacting is not in it: nothing here asks for it.
"""

import sys
import time


class Allocator:
    def __init__(self, size):
        self.contiguous_sizes = {0: size}
        self.tensor_addresses = {}
        self.tensor_sizes = {}
        self.tensor_ids = {}
        self.total_size = self.total_free = self.largest_contiguous = size
        self.max_allocated = 0

    def allocate(self, id_, size):
        assert size <= self.total_free and size <= self.largest_contiguous
        self.total_free -= size
        self.max_allocated = max(self.max_allocated, self.total_size - self.total_free)
        address = self.new_address(size)
        self.tensor_addresses[id_] = address
        self.tensor_sizes[address] = size
        self.tensor_ids[address] = id_
        self.mark_as_occupied(address, size)
        return address

    def new_address(self, size):
        best = None
        for address, contiguous_size in self.contiguous_sizes.items():
            if contiguous_size >= size and (
                best is None or contiguous_size < self.contiguous_sizes[best]
            ):
                best = address
        return best

    def mark_as_occupied(self, address, size):
        available = self.contiguous_sizes.pop(address)
        if available != size:
            self.contiguous_sizes[address + size] = available - size
        self.largest_contiguous = self.largest()

    def largest(self):
        return max((size for _, size in self.contiguous_sizes.items()), default=0)

    def release(self, id_):
        address = self.tensor_addresses.pop(id_)
        size = self.tensor_sizes.pop(address)
        del self.tensor_ids[address]
        self.total_free += size
        self.consolidate(address, size)
        self.largest_contiguous = self.largest()

    def consolidate(self, address, size):
        if address + size in self.contiguous_sizes:
            size += self.contiguous_sizes.pop(address + size)
        for before, before_size in self.contiguous_sizes.items():
            if before + before_size == address:
                del self.contiguous_sizes[before]
                size += before_size
                address = before
                break
        self.contiguous_sizes[address] = size


def main():
    actions = [line.split() for line in sys.stdin]
    allocator = Allocator(int(actions[0][1]))
    begin = timed = 0
    for word, *rest in actions[1:]:
        timed += begin != 0
        if word == "a":
            if allocator.allocate(int(rest[0]), int(rest[1])) != int(rest[2]):
                return 1
        elif word == "r":
            allocator.release(int(rest[0]))
        else:
            begin = time.process_time()
    print((time.process_time() - begin) / timed)
    return 0


sys.exit(main())
