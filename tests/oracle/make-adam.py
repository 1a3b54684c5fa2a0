#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes single steps of torch.optim.Adam and AdamW to tests/data/adam/steps.

Run by hand, see README.md.  Lines of words, reals as C99 hexadecimal, elements as the bits of a float32:
    case adam|adamw LR BETA1 BETA2 EPS WEIGHT_DECAY STEP      begins one; STEP is the step that is taken
    PARAM EXP_AVG EXP_AVG_SQ GRAD PARAM EXP_AVG EXP_AVG_SQ    an element, before and after
"""

import argparse
import os
import struct

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "data", "adam")
N = 75  # no multiple of a vector
CASES = [
    # optimizer, lr, betas, eps, weight decay, step
    ("adam", 1e-3, (0.9, 0.999), 1e-8, 0.0, 1),
    ("adam", 1e-3, (0.9, 0.999), 1e-8, 0.0, 1000),
    ("adam", 3e-4, (0.9, 0.95), 1e-6, 0.1, 7),
    ("adam", 1e-2, (0.3, 0.5), 1e-8, 0.01, 3),
    ("adamw", 1e-3, (0.9, 0.999), 1e-8, 0.01, 1),
    ("adamw", 6e-4, (0.9, 0.95), 1e-8, 0.1, 250000),
]


def bits(tensor):
    return ["%08x" % struct.unpack("<I", struct.pack("<f", x))[0] for x in tensor.tolist()]


def one(out, name, lr, betas, eps, decay, step):
    param = torch.nn.Parameter(torch.randn(N))
    kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    optimizer = kind([param], lr=lr, betas=betas, eps=eps, weight_decay=decay, foreach=False)
    state = optimizer.state[param]
    state["step"] = torch.tensor(float(step - 1))
    first = step == 1
    state["exp_avg"] = torch.zeros(N) if first else torch.randn(N) * 1e-2
    state["exp_avg_sq"] = torch.zeros(N) if first else torch.rand(N) * 1e-3
    param.grad = torch.randn(N) * 10.0 ** torch.randint(-6, 2, (N,))
    param.grad[0] = 0
    columns = [bits(t) for t in (param.data, state["exp_avg"], state["exp_avg_sq"], param.grad)]
    optimizer.step()
    columns += [bits(t) for t in (param.data, state["exp_avg"], state["exp_avg_sq"])]
    reals = [float(x).hex() for x in (lr, *betas, eps, decay)]
    out.write(" ".join(["case", name, *reals, str(step)]) + "\n")
    for row in zip(*columns):
        out.write(" ".join(row) + "\n")


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.manual_seed(1)
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, "steps"), "w") as out:
        out.write("# torch %s\n" % torch.__version__)
        for case in CASES:
            one(out, *case)


main()
