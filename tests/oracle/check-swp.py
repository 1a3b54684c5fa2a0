# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's optimizer swapper and frag_swp_import, frag_swp_export on each other's files, by hand:

    /tmp/oracle/bin/python tests/oracle/check-swp.py build/.libs/libfrag.so

The swapper is DeepSpeed's own; its aio handle, which needs a compiler and libaio, is replaced by plain
reads and writes of whole buffers.
"""
import ctypes
import os
import sys
import tempfile

import torch
from deepspeed.runtime.swap_tensor import partitioned_optimizer_swapper as partitioned

SIZES = [300001, 262144 + 77, 5]  # sub-groups: the first, the second with the third
THREADS = 3


class Handle:
    """What the swapper asks of an aio_handle."""

    pinned = []
    pending = 0

    def __init__(self, **_):
        pass

    def new_cpu_locked_tensor(self, numel, example):
        tensor = torch.zeros(numel, dtype=example.dtype)
        Handle.pinned.append((tensor.data_ptr(), tensor.data_ptr() + numel * 4))
        return tensor

    def free_cpu_locked_tensor(self, tensor):
        return True

    def is_pinned(self, tensor):
        return any(begin <= tensor.data_ptr() < end for begin, end in Handle.pinned)

    def get_alignment(self):
        return 512 * THREADS

    def async_pwrite(self, tensor, path, offset):
        raw = tensor.contiguous().numpy().tobytes()
        assert len(raw) % (512 * THREADS) == 0
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), 'wb') as file:
            file.write(raw)
        Handle.pending += 1
        return 0

    def async_pread(self, tensor, path, offset):
        with open(path, 'rb') as file:
            raw = file.read(tensor.numel() * 4)
        assert len(raw) == tensor.numel() * 4, f'{path} is short'
        tensor.copy_(torch.frombuffer(bytearray(raw), dtype=torch.float32))
        Handle.pending += 1
        return 0

    def wait(self):
        done, Handle.pending = Handle.pending, 0
        return done


class Builder:
    def load(self):
        return type('op', (), {'aio_handle': Handle})


class Config:
    buffer_count = 4


def swapper_on(folder, optimizer, numel):
    partitioned.AsyncIOBuilder = Builder
    partitioned.dist.get_rank = lambda: 0
    partitioned.print_object = lambda **_: None
    import deepspeed.runtime.swap_tensor.optimizer_utils as utils
    utils.dist.get_rank = lambda: 0
    aio = dict(block_size=1 << 20, queue_depth=8, single_submit=False, overlap_events=True,
               intra_op_parallelism=THREADS)
    return partitioned.PartitionedOptimizerSwapper(Config(), aio, folder, optimizer, numel, 'cpu',
                                                   torch.float32, None)


class Tensor(ctypes.Structure):
    _fields_ = [('size', ctypes.c_size_t), ('name', ctypes.c_char_p),
                ('coordinate', ctypes.c_char_p), ('dtype', ctypes.c_int),
                ('ndim', ctypes.c_uint32), ('shape', ctypes.POINTER(ctypes.c_uint64)),
                ('lp', ctypes.c_void_p), ('lp_shard', ctypes.c_void_p), ('flags', ctypes.c_uint)]


class Zero(ctypes.Structure):
    _fields_ = [('size', ctypes.c_size_t), ('stage', ctypes.c_int), ('sharding', ctypes.c_int),
                ('ranks', ctypes.c_void_p), ('nranks', ctypes.c_uint32),
                ('replicas', ctypes.c_uint32), ('sub_group_size', ctypes.c_uint64),
                ('flags', ctypes.c_uint)]


class Swp(ctypes.Structure):
    _fields_ = [('size', ctypes.c_size_t), ('folder', ctypes.c_char_p),
                ('numbers', ctypes.c_void_p), ('smallest', ctypes.c_uint64),
                ('threads', ctypes.c_uint)]


class Rank:
    """One rank with masters, over ctypes."""

    def __init__(self, library):
        os.environ.update(FRAG_RANK='0', FRAG_WORLD_SIZE='1', FRAG_PLAIN='1', FRAG_JOB='check-swp')
        self.lib = ctypes.CDLL(library)
        self.lib.frag_swp_import.restype = self.lib.frag_swp_export.restype = ctypes.c_int64
        self.f = ctypes.c_void_p()
        assert self.lib.frag_open(ctypes.byref(self.f), None) == 0
        params = (ctypes.c_int * len(SIZES))()
        for i, numel in enumerate(SIZES):
            shape = (ctypes.c_uint64 * 1)(numel)
            tensor = Tensor(ctypes.sizeof(Tensor), b'p%d' % i, None, 4, 1, shape, None, None, 0)
            params[i] = self.lib.frag_param(self.f, ctypes.byref(tensor))
        zero = Zero(ctypes.sizeof(Zero), 3, 0, None, 0, 0, SIZES[0] - 1, 0)
        group = self.lib.frag_group(self.f, params, ctypes.c_size_t(len(SIZES)),
                                    ctypes.byref(zero))
        assert group == 0 and self.lib.frag_sub_groups(self.f, 0) == 2

    def swp(self, call, folder):
        swp = Swp(ctypes.sizeof(Swp), folder.encode(), None, 0, THREADS)
        return call(self.f, ctypes.byref(swp))

    def get(self, param, key, numel):
        out = torch.empty(numel)
        rc = self.lib.frag_local_get(self.f, param, key.encode(), ctypes.c_void_p(out.data_ptr()),
                                     ctypes.c_uint64(numel * 4))
        assert rc == 0, rc
        return out

    def set(self, param, key, value):
        assert self.lib.frag_local_set(self.f, param, key.encode(),
                                       ctypes.c_void_p(value.data_ptr()),
                                       ctypes.c_uint64(value.numel() * 4)) == 0


def main():
    torch.manual_seed(1)
    groups = [[0], [1, 2]]
    numel = [sum(SIZES[i] for i in g) for g in groups]
    masters, values = [], {}
    for g, n in zip(groups, numel):
        master = torch.nn.Parameter(torch.empty(0))
        master.ds_id = f'{g[0]}_{g[-1]}'
        masters.append(master)
        values[master.ds_id] = {key: torch.randn(n) for key in ('fp32', 'exp_avg', 'exp_avg_sq')}
    optimizer = type('optimizer', (), {'state': {}})()

    with tempfile.TemporaryDirectory() as base:
        swapper = swapper_on(base, optimizer, max(numel))
        swapper.initialize_parameters(masters, [values[m.ds_id]['fp32'] for m in masters])
        for master in masters:  # a first step: the states come to be, and go out with it
            swapper.swap_in_optimizer_state(master)
            assert torch.equal(master.data, values[master.ds_id]['fp32'])
            optimizer.state[master] = {'step': torch.tensor(1.0)}
            for key in ('exp_avg', 'exp_avg_sq'):
                optimizer.state[master][key] = values[master.ds_id][key].clone()
            swapper._get_param_swap_info(master)
            swapper.swap_out_optimizer_state(master)
        folder = swapper.swap_folder
        print(sorted(os.listdir(folder)))

        rank = Rank(sys.argv[1])
        assert rank.swp(rank.lib.frag_swp_import, folder) == 6
        for g, master in zip(groups, masters):
            for key, value in values[master.ds_id].items():
                got = torch.cat([rank.get(i, key, SIZES[i]) for i in g])
                assert torch.equal(got, value), (master.ds_id, key)
        print('frag_swp_import has what DeepSpeed swapped out')

        for i, size in enumerate(SIZES):
            for key in ('fp32', 'exp_avg', 'exp_avg_sq'):
                rank.set(i, key, rank.get(i, key, size) * 2)
        assert rank.swp(rank.lib.frag_swp_export, folder) == 6
        for master in masters:
            swapper.swap_in_optimizer_state(master)
            state = optimizer.state[master]
            for key, value in values[master.ds_id].items():
                got = master.data if key == 'fp32' else state[key]
                assert torch.equal(got, value * 2), (master.ds_id, key)
            swapper.release_swap_buffers(master)
        print('DeepSpeed swaps in what frag_swp_export wrote')


if __name__ == '__main__':
    main()
