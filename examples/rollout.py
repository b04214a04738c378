"""Tokens that come one at a time, beside a cache and in any batch, have the logits that a trainer computes at once."""

from typing import Any

import torch
from torch import Tensor, nn

import samebits.torch as st

TOKENS, LENGTH, WORDS, WIDTH, HEADS = 64, 12, 96, 64, 4
torch.manual_seed(0)
table = torch.randn(WORDS, WIDTH)
shapes = (3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 2 * WIDTH)
layers = [[torch.randn(shape) * shape[1] ** -0.5 for shape in shapes] for _ in range(2)]


def logits(f: Any, tokens: Tensor, cache: list[list[Tensor]]) -> Any:
    """Of the word behind each token, by the functions of f; the cache has the keys and values of tokens before."""
    x = table[tokens]
    for (qkv, out, up, down), past in zip(layers, cache, strict=True):
        q, k, v = f.linear(f.rms_norm(x, (WIDTH,)), qkv).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        past[:] = [torch.cat([*past[i : i + 1], new], 2) for i, new in enumerate((k, v))]
        seen = f.scaled_dot_product_attention(q, *past, is_causal=q.shape[2] > 1)
        x = x + f.linear(seen.transpose(1, 2).flatten(2), out)
        gate, value = f.linear(f.rms_norm(x, (WIDTH,)), up).chunk(2, -1)
        x = x + f.linear(f.silu(gate) * value, down)
    return f.linear(x, table)


if __name__ == "__main__":
    tokens = torch.randint(WORDS, (TOKENS, LENGTH))
    for name, f in (("samebits", st), ("torch", nn.functional)):
        for batch in (1, 3, TOKENS):
            cache: list[list[Tensor]] = [[], []]
            steps = [logits(f, tokens[:batch, i : i + 1], cache) for i in range(LENGTH)]
            print(name, batch, torch.equal(torch.cat(steps, 1), logits(f, tokens, [[], []])[:batch]))
