"""Casts between float32 and narrow floats beside torch and the floor of memory: one process, interleaved, one thread.

4096 x 4096 elements into memory that is there, medians of the thread's CPU time. The floor is what reading the input
and writing the output take alone in the same run: a sum of the one by torch, and a fill of the other.
`python benches/convert.py [FORMAT ...]`
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch
from _turns import Call, medians

import samebits
from samebits import dtypes

ROUNDS, SIDE = 9, 4096
FORMATS = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e8m0fnu", "float6_e3m2fn", "float4_e2m1fn")


def casts(name: str, x: Any, back: Any) -> dict[str, Call]:
    """Ours and torch's, both ways."""
    narrow = np.empty(x.shape, dtypes.of(name).numpy)
    calls: dict[str, Call] = {
        "to": lambda: samebits.cast(x, name, out=narrow, threads=1),
        "saturating": lambda: samebits.cast(x, name, out=narrow, overflow="saturate", threads=1),
        "stochastic": lambda: samebits.cast(x, name, out=narrow, rounding="stochastic", seed=1, threads=1),
        "from": lambda: samebits.cast(narrow, "float32", out=back, threads=1),
    }
    if name.startswith("float8") and hasattr(torch, name):
        theirs, wide, made = (
            torch.empty(x.shape, dtype=getattr(torch, name)),
            torch.from_numpy(x),
            torch.from_numpy(back),
        )
        calls |= {"torch to": lambda: theirs.copy_(wide), "torch from": lambda: made.copy_(theirs)}
    return calls


def packed(x: Any, back: Any) -> dict[str, Call]:
    """Two elements a byte."""
    wide, made = samebits.Tensor.from_any(x), samebits.Tensor.from_any(back)
    narrow = samebits.Tensor.empty(x.shape, "float4_e2m1fn", storage="packed")
    return {
        "to": lambda: samebits.cast(wide, "float4_e2m1fn", out=narrow, threads=1),
        "from": lambda: samebits.cast(narrow, "float32", out=made, threads=1),
    }


def main() -> None:
    torch.set_num_threads(1)
    x = np.random.default_rng(0).standard_normal((SIDE, SIDE)).astype(np.float32)
    back = np.empty_like(x)
    bytes_ = torch.empty((SIDE, SIDE), dtype=torch.uint8)
    floors: dict[str, Call] = {
        "read 4": lambda: torch.sum(torch.from_numpy(x)),
        "write 4": lambda: torch.from_numpy(back).fill_(1.0),
        "read 1": lambda: torch.sum(bytes_.view(torch.float32)),
        "write 1": lambda: bytes_.fill_(1),
        "read 0.5": lambda: torch.sum(bytes_[: SIDE // 2].view(torch.float32)),
        "write 0.5": lambda: bytes_[: SIDE // 2].fill_(1),
    }
    print(f"{'format':22} {'cast':12} {'ms':>7} {'floor':>7} {'x floor':>8} {'torch':>7} {'x torch':>8}")
    for name in sys.argv[1:] or (*FORMATS, "packed"):
        calls = packed(x, back) if name == "packed" else casts(name, x, back)
        for call in (floors | calls).values():
            call()
        found = {key: 1e3 * took for key, took in medians(floors | calls, ROUNDS, time.thread_time).items()}
        size = "0.5" if name == "packed" else "1"
        for cast in [cast for cast in calls if not cast.startswith("torch")]:
            away = cast != "from"
            floor = found["read 4"] + found[f"write {size}"] if away else found[f"read {size}"] + found["write 4"]
            theirs = found.get("torch to" if away else "torch from")
            torch_text = f"{theirs:7.2f} {theirs / found[cast]:8.2f}" if theirs else ""
            print(f"{name:22} {cast:12} {found[cast]:7.2f} {floor:7.2f} {found[cast] / floor:8.2f} {torch_text}")
            if name == FORMATS[0] and theirs and cast in ("to", "from"):
                what = f"cast float32 to {name}" if away else f"cast {name} to float32"
                ours = f"{found[cast]:.1f} ms, {found[cast] / floor:.2f} of memory alone"
                ratio = f"{theirs / found[cast]:.2f}"
                print(f"figure: {what}, 4096 x 4096, one thread | {ours} | torch {theirs:.1f} ms | {ratio}")


if __name__ == "__main__":
    main()
