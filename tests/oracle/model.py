# SPDX-License-Identifier: Apache-2.0
"""The small model of make-checkpoints.py and check-edits.py: one of everything that a checkpoint may have to say
of a model, in a few hundred elements.  What it computes has no meaning, but a gradient everywhere (but in
`unused`); in float32, since a CPU may not do it in less.
"""

import torch

WORDS, WIDTH = 11, 5


class Embedding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(WORDS, WIDTH))

    def forward(self, words):
        return self.weight.float()[words]


class Linear(torch.nn.Module):
    def __init__(self, n, m, weight=None, bias=True):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(m, n) / n**0.5) if weight is None else weight
        self.bias = torch.nn.Parameter(torch.randn(m) / 9) if bias else None

    def forward(self, x):
        y = x @ self.weight.float().t()
        return y if self.bias is None else y + self.bias.float()


class Block(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.rand(3) + 0.5)
        self.up = Linear(WIDTH, hidden)
        self.down = Linear(hidden, WIDTH)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return x + self.down(torch.tanh(self.up(x))) * self.gain.float().prod()


class Model(torch.nn.Module):
    def __init__(self, scalar=True):
        super().__init__()
        if scalar:
            self.temp = torch.nn.Parameter(torch.tensor(1.25))
        self.one = torch.nn.Parameter(torch.tensor([0.75]))
        self.conv = torch.nn.Parameter(torch.randn(2, 3, 2, 1))
        self.unused = torch.nn.Parameter(torch.randn(2, 7))
        self.register_parameter("odd/name%", torch.nn.Parameter(torch.randn(3)))
        self.emb = Embedding()
        self.frozen = Linear(WIDTH, 7).requires_grad_(False)
        self.layers = torch.nn.ModuleList([Block(7), Block(3)])
        self.head = Linear(WIDTH, WORDS, self.emb.weight, bias=False)
        self.register_buffer("pos", torch.randn(WIDTH))
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("passing", torch.randn(4), persistent=False)

    def forward(self, words):
        x = self.emb(words) + self.pos.float()
        for layer in self.layers:
            x = layer(x)
        y = self.head(x) * self.one.float()
        if hasattr(self, "temp"):
            y = y * self.temp.float()
        rest = self.conv.float().square().sum() + self.get_parameter("odd/name%").float().sin().sum()
        return y.logsumexp(-1).mean() + rest / 9 + self.frozen(x).square().mean()


def make(seed, **how):
    torch.manual_seed(seed)
    return Model(**how)


def groups(model, n):
    """Two groups of the optimizer: matrices, and what is not decayed.  Or one."""
    params = list(model.parameters())
    if n == 1:
        return [{"params": params}]
    return [
        {"params": [p for p in params if p.dim() > 1], "weight_decay": 0.01, "lr": 0.02},
        {"params": [p for p in params if p.dim() <= 1], "weight_decay": 0.0},
    ]


def batch(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(0, WORDS, (4, 3), generator=generator)
