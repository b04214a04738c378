"""Quantising a bfloat16 weight of 4096 x 4096 to block formats and back, beside memory and torchao.

The floor is what the memory alone takes: x is read once, twice where a scale of everything is found first, and what is
stored is written once; that is done by NumPy in the same turns. Medians of turns in one process; torchao, if it is
installed, runs eagerly, and with `--compile` under torch.compile too, NVFP4 with the same bits as ours of that dialect.
`python benches/quantize.py [--compile] [FORMAT ...]`
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import samebits as sb
from samebits.bench.measure import Call, clock, medians
from samebits.kernels.quantize import formats

N = 4096
ROUNDS = 15
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Member:
    """A format by a dialect, and torchao's call that makes the same, if it has one."""

    format: str
    dialect: str
    peer: Callable[[torch.Tensor], Callable[[], object]] | None = None

    def __str__(self) -> str:
        return f"{self.format} by {self.dialect}"


def nvfp4(x: torch.Tensor) -> Callable[[], object]:
    """torchao's NVFP4 with a global scale."""
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale

    return lambda: nvfp4_quantize(x, 16, per_tensor_amax_to_scale(torch.amax(torch.abs(x))))


def mx(element: torch.dtype | str, mode: str) -> Callable[[torch.Tensor], Callable[[], object]]:
    """torchao's MX by a rule of scales."""

    def call(x: torch.Tensor) -> Callable[[], object]:
        from torchao.prototype.mx_formats.config import ScaleCalculationMode
        from torchao.prototype.mx_formats.mx_tensor import to_mx

        return lambda: to_mx(x, element, 32, ScaleCalculationMode[mode])

    return call


MEMBERS = (
    Member("nvfp4", "nvfp4/torchao-0.18", nvfp4),
    Member("nvfp4", "nvfp4/exact-1"),
    Member("nvfp4", "nvfp4/modelopt-0.47"),
    Member("mxfp8-e4m3", "mx/floor", mx(torch.float8_e4m3fn, "FLOOR")),
    Member("mxfp8-e4m3", "mx/rceil", mx(torch.float8_e4m3fn, "RCEIL")),
    Member("mxfp6-e3m2", "mx/even", mx("fp6_e3m2", "EVEN")),
    Member("mxfp4", "mx/floor", mx(torch.float4_e2m1fn_x2, "FLOOR")),
    Member("mxint8", "mxint8/ocp"),
    Member("fp8-1x128", "fp8/exact-1"),
    Member("fp8-128x128", "fp8/exact-1"),
    Member("nvfp4-16x16", "nvfp4/exact-1"),
    Member("fp8-row", "fp8/exact-1"),
    Member("fp8-column", "fp8/exact-1"),
    Member("fp8-tensor", "fp8/exact-1"),
    Member("int8-row", "int/exact-1"),
    Member("int8-column", "int/exact-1"),
    Member("uint8-row-zero", "int/affine-1"),
    Member("uint4-group32-zero", "int/affine-1"),
    Member("uint4-group64-float-zero", "int/affine-1"),
    Member("nf4", "nf4/qlora"),
)


def floor(reads: list[Array], written: Array, threads: int) -> Call:
    """Read and write these, by so many threads."""
    workers = ThreadPoolExecutor(threads) if threads > 1 else None
    parts = [np.array_split(a, threads) for a in reads]
    targets = np.array_split(written, threads)

    def one(k: int) -> None:
        for part in parts:
            np.bitwise_or.reduce(part[k])
        targets[k].fill(1)

    def run() -> None:
        if workers is None:
            one(0)
        else:
            list(workers.map(one, range(threads)))

    return run


def words(*tensors: sb.Tensor) -> list[Array]:
    """The memory of tensors as 64-bit words."""
    found = [t.buffer.array() for t in tensors]
    return [a[: a.size // 8 * 8].view(np.uint64) for a in found]


def quantizing(x: sb.Tensor, tx: torch.Tensor, member: Member, compiled: bool) -> dict[str, float]:
    """Seconds of each way to quantise."""
    row = formats.of(member.format)
    q = sb.quantize(x, member.format, dialect=member.dialect)
    reads = words(x) * (2 if row.global_scale is not None or row.block == (None, None) else 1)
    written = np.zeros(q.nbytes // 8, np.uint64)

    def ours(threads: int) -> Call:
        return lambda: sb.quantize(x, row, dialect=member.dialect, out=q, threads=threads)

    calls: dict[str, Call] = {"floor": floor(reads, written, 1), "ours": ours(1)}
    if member.peer is not None and has_torchao():
        calls["torchao"] = member.peer(tx)
        if compiled:
            calls["compiled"] = torch.compile(member.peer(tx))
            calls["compiled"]()
    return medians(calls, ROUNDS, clock=clock(1)) | shared(floor(reads, written, 2), ours(2))


def shared(least: Call, ours: Call, threads: int = 2) -> dict[str, float]:
    """Seconds of two threads."""
    return medians({f"floor, {threads}": least, f"ours, {threads}": ours}, 3 * ROUNDS)


def dequantizing(x: sb.Tensor, member: Member, dtype: str) -> dict[str, float]:
    """Seconds of making numbers again."""
    q = sb.quantize(x, member.format, dialect=member.dialect)
    out = q.dequantize(dtype)
    reads, written = words(*q.parts.values()), np.zeros(out.nbytes // 8, np.uint64)

    def ours(threads: int) -> Call:
        return lambda: sb.dequantize(q, dtype, out=out, threads=threads)

    calls: dict[str, Call] = {"floor": floor(reads, written, 1), "ours": ours(1)}
    return medians(calls, ROUNDS, clock=clock(1)) | shared(floor(reads, written, 2), ours(2))


def has_torchao() -> bool:
    """Whether the peer is installed."""
    try:
        import torchao  # noqa: F401
    except ImportError:
        return False
    return True


def cells(found: dict[str, float]) -> str:
    """Milliseconds, and ratios to the floor and to one thread."""
    text = [f"{1e3 * found['floor']:.2f}", f"{1e3 * found['ours']:.2f}", f"{found['ours'] / found['floor']:.2f}"]
    text += [f"{found['ours'] / found['ours, 2']:.2f}", f"{found['ours, 2'] / found['floor, 2']:.2f}"]
    for name in ("torchao", "compiled"):
        text.append(f"{found[name] / found['ours']:.1f}" if name in found else "-")
    return " | ".join(text)


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    compiled, wanted = "--compile" in sys.argv, [name for name in sys.argv[1:] if not name.startswith("--")]
    numbers = np.random.default_rng(0).standard_normal((N, N), np.float32)
    tx = torch.from_numpy(numbers).bfloat16()
    x = sb.Tensor.from_any(tx)
    members = [member for member in MEMBERS if not wanted or member.format in wanted]
    head = (
        "floor ms | ours ms | ours / floor | 1 / 2 threads | 2 threads / their floor | torchao / ours | compiled / ours"
    )
    print(f"| bfloat16 to | {head} |\n" + "|---" * 8 + "|")
    for member in members:
        found = quantizing(x, tx, member, compiled)
        print(f"| {member} | {cells(found)} |", flush=True)
        if "torchao" in found:
            ratio = found["torchao"] / found["ours"]
            peer = f"torchao {1e3 * found['torchao']:.0f} ms"
            print(f"figure: {member} | {1e3 * found['ours']:.1f} ms | {peer} | {ratio:.0f}")
    print(f"\n| from, to | {head} |\n" + "|---" * 8 + "|")
    for member in {member.format: member for member in members}.values():
        for dtype in ("bfloat16", "float32"):
            print(f"| {member.format} to {dtype} | {cells(dequantizing(x, member, dtype))} |", flush=True)


if __name__ == "__main__":
    main()
