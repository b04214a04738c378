"""Files of 512 MiB of bfloat16, warm: opened, read in full, copied, written. `python benches/checkpoint.py`

The peer is the official safetensors package with torch tensors. Ours writes to the disk (fsync) before the new file
takes its place, the peer's does not: `written, no fsync` leaves that away. Rates are medians of rounds in turns.
"""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import Any

import safetensors.torch
import torch
from _turns import Call, medians

from samebits import checkpoint

ROUNDS, TENSORS = 5, 16
SHAPE = (4096, 4096)
BYTES = TENSORS * 4096 * 4096 * 2


def touched(tensors: dict[str, Any]) -> None:
    """Read every byte, a page at a time of it once."""
    for x in tensors.values():
        x.view(torch.int64).sum()


def ours(path: pathlib.Path) -> dict[str, Any]:
    """Tensors on the mapped file, as torch's; torch ignores that memory is read-only, so it takes NumPy's word."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = checkpoint.load(path)
        return {name: torch.from_numpy(x.numpy().view("u2")) for name, x in found.items()}


def row(what: str, ways: dict[str, Call], rounds: int = ROUNDS, *, latency: bool = False) -> None:
    """Measure, print a line, and a figure for the README."""
    found = medians(ways, rounds)
    mine, theirs = (found[name] for name in ("ours", "peer"))
    unit = (lambda s: f"{s * 1e6:.0f} us") if latency else (lambda s: f"{BYTES / s / 1e9:.2f} GB/s")
    print(f"{what:28} ours {unit(mine):>12} safetensors {unit(theirs):>12} ratio {theirs / mine:.2f}")
    print(f"figure: {what}, 512 MiB | {unit(mine)} | safetensors {unit(theirs)} | {theirs / mine:.2f}")


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = pathlib.Path(folder) / "x.safetensors", pathlib.Path(folder) / "y.safetensors"
        tensors = {f"w{i}": torch.randn(SHAPE).to(torch.bfloat16) for i in range(TENSORS)}
        safetensors.torch.save_file(tensors, path)
        touched(safetensors.torch.load_file(path))
        lazy = {"ours": lambda: checkpoint.load(path), "peer": lambda: safetensors.torch.load_file(path)}
        row("safetensors loaded, lazy", lazy, 50, latency=True)
        looked = {"ours": lambda: touched(ours(path)), "peer": lambda: touched(safetensors.torch.load_file(path))}
        row("safetensors loaded, read", looked)
        copied = {
            "ours": lambda: checkpoint.load(path, copy=True),
            "peer": lambda: {name: x.clone() for name, x in safetensors.torch.load_file(path).items()},
        }
        row("safetensors copied", copied)
        saved = {
            "ours": lambda: checkpoint.save(out, tensors),
            "peer": lambda: safetensors.torch.save_file(tensors, out),
        }
        row("safetensors written", saved)
        fsync, os.fsync = os.fsync, lambda _: None
        row("safetensors written, no fsync", saved)
        os.fsync = fsync


if __name__ == "__main__":
    main()
