# SPDX-License-Identifier: Apache-2.0
"""What the examples share: a small GPT, the text that it learns, and the loop; nothing here knows of fragfs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

CONTEXT, WIDTH, HEADS, LAYERS = 64, 96, 4, 2
TEXT = (Path(__file__).resolve().parent.parent / "alice.txt").read_bytes()
VOCAB = sorted(set(TEXT))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(len(VOCAB), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(VOCAB), bias=False)

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        """The loss of predicting each symbol from those before it."""
        x = self.embed(symbols[:, :-1]) + self.place.weight
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x)).float()
        return nn.functional.cross_entropy(logits.flatten(0, 1), symbols[:, 1:].flatten())


def batches(rank: int, size: int = 8):
    """Samples of the text, other ones on each rank."""
    numbers = {symbol: number for number, symbol in enumerate(VOCAB)}
    text = torch.tensor([numbers[symbol] for symbol in TEXT])
    draw = torch.Generator().manual_seed(rank)
    while True:
        starts = torch.randint(len(text) - CONTEXT, (size,), generator=draw)
        yield torch.stack([text[start:start + CONTEXT + 1] for start in starts])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=50, help="steps between two lines")
    parser.add_argument("--pause-ms", type=int, default=0, help="after each step")
    parser.add_argument("--poison", type=int, default=0, metavar="STEP", help="rank 1 breaks a number there")
    parser.add_argument("--local_rank", help="given by the launcher deepspeed")
    return parser.parse_args()


def train(args: argparse.Namespace, loss_of: Callable[[torch.Tensor], torch.Tensor],
          learn: Callable[[torch.Tensor], None], poison: Callable[[], None], stand: Callable[[], None]) -> None:
    """A step whose loss is no number is left out, on all ranks: stand() is called instead of learn(loss)."""
    rank = dist.get_rank()
    for step, batch in zip(range(1, args.steps + 1), batches(rank)):
        loss = loss_of(batch)
        mean = loss.detach().float().clone()
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
        if rank == 0 and step % args.every == 0:
            print(f"step {step} loss {mean:.3f}", flush=True)
        if mean.isfinite():
            learn(loss)
        else:
            stand()
        if step == args.poison and rank == 1:
            poison()
        time.sleep(args.pause_ms / 1000)
