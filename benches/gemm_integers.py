"""Products of integers beside torch (`_int_mm`, oneDNN's VNNI kernels; its quantised linear), onnxruntime and NumKong.

One process, interleaved, medians: with one thread seconds of the process, with two of the wall, where a pause before
each turn lets the others' threads go to sleep. A ratio is ours over the fastest peer; torch
multiplies int8 with int8 alone, and that is the yardstick of the other signs. "peak" is ours as a part of what the
instruction reaches on registers, "read" a plain read of as many bytes. Held to AVX2, torch's kernels saturate: they are
no peer of the exact ones of that row. `python benches/gemm_integers.py`
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import torch

import samebits as sb
from samebits import dtypes, tuning
from samebits.bench import peak, peers
from samebits.bench.measure import PAUSE, Call, clock, medians
from samebits.codegen.isa import Isa, current
from samebits.kernels.gemm import selection

Array = np.ndarray[Any, np.dtype[Any]]
PAIRS = (("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8"))
FEW = ((768, 768), (768, 3072), (3072, 768), (4096, 4096))
ROWS = (8, 32, 128)
_RNG = np.random.default_rng(0)


def draw(kind: str, *shape: int) -> Array:
    """Every integer of a format."""
    dtype = dtypes.of(kind)
    made: Array = _RNG.integers(int(dtype.min), int(dtype.max) + 1, shape).astype(dtype.numpy)
    return made


def seconds(
    calls: Mapping[str, Call], rounds: int, burst: int = 1, least: float = 0.0, threads: int = 1
) -> dict[str, float]:
    """The median of each call."""
    return medians(calls, rounds, burst, PAUSE if threads > 1 else 0.0, least=least, clock=clock(threads))


def rate_of_registers(isa: Isa, a: str, b: str, threads: int = 1) -> float | None:
    """10^9 operations a second of the engine of a pair of formats."""
    found = selection.engine_for(dtypes.of(a), dtypes.of(b), isa, tuning.machine(isa))
    return peak.rate(found, isa, threads, lambda calls, rounds: seconds(calls, rounds, threads=threads))


def int_mm(a: Array, b: Array) -> Call:
    """torch's product of int8."""
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    return lambda: torch._int_mm(x, y)


def quantised(rows: int, weight: Array) -> Call:
    """torch's linear of float32, quantised on the way in and out, with a kept int8 weight [N, K]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch: its quantised tensors are to go
        x, w = torch.randn(rows, weight.shape[1]), torch.from_numpy(weight.copy())
        kept = torch.ops.quantized.linear_prepack(torch._make_per_tensor_quantized_tensor(w, 0.01, 0), None)
    return lambda: torch.ops.quantized.linear_dynamic(x, kept, False)


def onnx_runtime(a: Array, b: Array) -> dict[str, Call]:
    """MatMulInteger with a constant right operand, where it is installed."""
    (found,) = peers.named(["onnxruntime"])
    if not found.installed:
        return {}
    made = found.call(sb.Tensor.from_any(a), sb.Tensor.from_any(np.ascontiguousarray(b)), True, 1)
    return {} if isinstance(made, str) else {"onnxruntime": made}


def numkong(a: Array, b: Array) -> dict[str, Call]:
    """NumKong's product of 4-bit integers, b packed ahead: it keeps two a byte, the first in the high half."""
    if importlib.util.find_spec("numkong") is None:
        return {}
    import numkong

    def halves(x: Array) -> Any:
        codes = x.astype(np.uint8) & 15
        return numkong.Tensor(np.ascontiguousarray(codes[:, ::2] << 4 | codes[:, 1::2]), dtype=str(x.dtype))

    x, kept = halves(a), numkong.dots_pack(halves(np.ascontiguousarray(b.T)), dtype=str(b.dtype))
    return {"NumKong": lambda: numkong.dots_packed(x, kept)}


def row(name: str, work: float, took: Mapping[str, float], top: float | None = None) -> dict[str, object]:
    """Rates, the part of the peak, and ours over the fastest peer's."""
    rates = {key: work / value for key, value in took.items()}
    ours = next(value for key, value in rates.items() if key.startswith("ours"))
    others = [value for key, value in rates.items() if not key.startswith("ours") and key != "read"]
    part = {} if top is None else {"peak": ours / top}
    return {"product": name, **rates, **part, **({"ratio": ours / max(others)} if others else {})}


def cubes(threads: int = 1) -> list[dict[str, object]]:
    """N cubed, nothing packed ahead."""
    torch.set_num_threads(threads)
    rows: list[dict[str, object]] = []
    for n in (1024, 4096):
        calls: dict[str, Call] = {"torch": int_mm(draw("int8", n, n), draw("int8", n, n))}
        for left, right in PAIRS:
            a, b = draw(left, n, n), draw(right, n, n)
            calls[f"{left} x {right}"] = lambda a=a, b=b: sb.matmul(a, b, threads=threads)
        took = seconds(calls, 9 if n < 4096 else 3, threads=threads)
        for left, right in PAIRS:
            one = {"ours": took[f"{left} x {right}"], "torch int8": took["torch"]}
            top = rate_of_registers(current(), left, right, threads)
            rows.append(row(f"{n} cubed {left} x {right}", 2e-9 * n**3, one, top))
    return rows


def vector() -> list[dict[str, object]]:
    """M = 1, K = N = 4096: GB/s of weight, kept packed and as torch keeps it."""
    k, rows = 4096, list[dict[str, object]]()
    for left, right in PAIRS:
        a, w = draw(left, 1, k), draw(right, k, k)
        kept, read = sb.pack(w.T, left=left), w.copy().view(np.uint64)
        common: dict[str, Call] = {"read": lambda read=read: read.max()}
        if right == "int8":
            common["torch quantised"] = quantised(1, w)
        if left == "uint8":
            common |= onnx_runtime(a, w.T)
        packed: dict[str, Call] = {"ours": lambda a=a, kept=kept: sb.matmul(a, kept, threads=1)}
        rows.append(row(f"{left} x {right} packed", 1e-9 * k * k, seconds(packed | common, 9, 3)))
        lying = w.copy()
        plain: dict[str, Call] = {
            "ours": lambda a=a, w=lying: sb.matmul(a, w.T, threads=1), "read": common["read"]
        }  # fmt: skip
        if left == right == "int8":
            plain["torch"] = int_mm(a, w.copy().T)
        rows.append(row(f"{left} x {right} [N, K]", 1e-9 * k * k, seconds(plain, 9, 3)))
    return rows


def few() -> list[dict[str, object]]:
    """Few rows, the weight [N, K] kept packed."""
    rows: list[dict[str, object]] = []
    for m in ROWS:
        for k, n in FEW:
            for left in ("uint8", "int8"):
                a, w = draw(left, m, k), draw("int8", n, k)
                kept = sb.pack(w.T, left=left)
                calls: dict[str, Call] = {
                    "ours": lambda a=a, kept=kept: sb.matmul(a, kept, threads=1), "torch quantised": quantised(m, w)
                }  # fmt: skip
                calls |= {"torch": int_mm(a, w.copy().T)} if left == "int8" else onnx_runtime(a, w.T)
                rows.append(row(f"{left} x int8 {m} x {k} x {n}", 2e-9 * m * k * n, seconds(calls, 7, 3, 1e-3)))
    return rows


def narrow() -> list[dict[str, object]]:
    """4-bit integers, one a byte, b kept packed."""
    rows: list[dict[str, object]] = []
    for kind in ("int4", "uint4"):
        a, b = (draw(kind, 1024, 1024).astype(getattr(ml_dtypes, kind)) for _ in range(2))
        kept = sb.pack(b)
        calls: dict[str, Call] = {"ours": lambda a=a, kept=kept: sb.matmul(a, kept, threads=1)}
        top = rate_of_registers(current(), kind, kind)
        rows.append(row(f"1024 cubed {kind} x {kind}", 2e-9 * 1024**3, seconds(calls | numkong(a, b), 7), top))
    return rows


TABLES: tuple[tuple[str, str, Callable[[], list[dict[str, object]]]], ...] = (
    ("Nothing packed ahead, one thread", "GOP/s", cubes),
    ("One row, K = N = 4096, one thread", "GB/s of weight", vector),
    ("Few rows, the weight kept packed, one thread", "GOP/s", few),
    ("4-bit integers, one a byte, b kept packed, one thread", "GOP/s", narrow),
    ("Nothing packed ahead, two threads", "GOP/s", lambda: cubes(2)),
)


def show(title: str, unit: str, rows: list[dict[str, object]]) -> None:
    """One Markdown table."""
    names = list(dict.fromkeys(key for found in rows for key in found if key not in ("product", "peak", "ratio")))
    names += [name for name in ("peak", "ratio") if any(name in found for found in rows)]
    print(f"\n### {title} ({unit})\n\n| M x K x N | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for found in rows:
        rates = " | ".join(_cell(name, found[name]) if name in found else "" for name in names)
        print(f"| {found['product']} | {rates} |")


def _cell(name: str, value: object) -> str:
    if name == "peak":
        return f"{value:.0%}"
    return f"{value:.2f}" if name == "ratio" else f"{value:.1f}"


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    print(f"## Integers\n\nIsa row {current().name}.")
    for title, unit, table in TABLES:
        rows = table()
        show(title, unit, rows)
        for found in rows if table is cubes else []:
            if found["product"] in ("1024 cubed int8 x int8", "1024 cubed uint8 x int8"):
                rate, other = (f"{found[key]:.0f}" for key in ("ours", "torch int8"))
                what = f"matmul {found['product']}, 1 thread"
                print(f"figure: {what} | {rate} GOP/s | torch {other} | {found['ratio']:.2f}")


if __name__ == "__main__":
    main()
