"""Matrix products beside NumPy (OpenBLAS) and torch: float32, GFLOP/s, one thread and two; a kept weight at M = 1.

Candidates take turns in one process, each after a pause in which the others' threads go to sleep, then one call that is
not counted; figures are medians. Each table is a process of its own, because OpenBLAS reads its thread count and
its core type once. The avx2 row is compared with OpenBLAS held to its Haswell kernels. `python benches/gemm.py`
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence

from samebits.bench.measure import PAUSE, Call, medians

SQUARES = (256, 512, 1024, 2048)
# An encoder layer of MiniLM at sequence 128, one head's share of attention, and decoding with a wide weight.
SHAPES = ((128, 384, 384), (128, 384, 1536), (128, 1536, 384), (16, 384, 384), (8, 768, 768), (4, 4096, 4096))


def product(a: object, b: object, out: object, isa: str, threads: int, *, packed: bool = False) -> Call:
    """A call of our kernels on arrays."""
    import numpy as np

    from samebits.codegen.isa import named
    from samebits.kernels import gemm
    from samebits.kernels.gemm import Contraction, Matrix, Panels
    from samebits.native.scratch import Block
    from samebits.native.table import Table

    assert isinstance(a, np.ndarray)
    assert isinstance(b, np.ndarray)
    assert isinstance(out, np.ndarray)
    row, (m, k), n = named(isa), a.shape, b.shape[1]
    left, right, target = (Matrix(x.strides[0] // 4, x.strides[1] // 4) for x in (a, b, out))
    held: list[object] = [a, b, out]
    addresses = [a.ctypes.data, b.ctypes.data, out.ctypes.data]
    operand: Matrix | Panels = right
    if packed:
        block = Block(gemm.packed_elements(k, n, row) * 4)
        Table([(gemm.plan_pack(k, n, right, row), [0, 1])], 2, 1).run([b.ctypes.data, block.address])
        held.append(block)
        addresses[1], operand = block.address, Panels(gemm.panel_columns(row))
    plan = gemm.plan(Contraction(m, n, k, left, operand, target), row, threads)
    if plan.workspace_bytes:
        workspace = Block(plan.workspace_bytes)
        held.append(workspace)
        addresses.append(workspace.address)
    table = Table([(plan, list(range(len(addresses))))], len(addresses), threads)

    def run() -> object:
        table.run(addresses)
        return held

    return run


def squares(isa: str, threads: int) -> list[dict[str, object]]:
    """N cubed, unpacked."""
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    rows: list[dict[str, object]] = []
    for n in SQUARES:
        a, b, c, d = (np.random.default_rng(i).standard_normal((n, n), dtype=np.float32) for i in range(4))
        ta, tb, td = map(torch.from_numpy, (a, b, d.copy()))
        calls: dict[str, Call] = {
            "ours": product(a, b, c, isa, threads),
            "OpenBLAS": lambda a=a, b=b, d=d: np.matmul(a, b, out=d),
        }
        if "OPENBLAS_CORETYPE" not in os.environ:
            calls["torch"] = lambda a=ta, b=tb, d=td: torch.mm(a, b, out=d)
        burst = 1 if n >= 2048 else 3 if n >= 1024 else 10
        rows.append(row(f"{n} x {n} x {n}", 2e-9 * n**3, medians(calls, 9, burst, PAUSE if threads > 1 else 0.0)))
    return rows


def shapes(isa: str, threads: int) -> list[dict[str, object]]:
    """x @ weight^T, the weight packed once; torch's linear has it as [N, K]."""
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    rows: list[dict[str, object]] = []
    for m, k, n in SHAPES:
        x, w = (np.random.default_rng(i).standard_normal(s, dtype=np.float32) for i, s in enumerate(((m, k), (n, k))))
        tx, tw, out, other = (
            torch.from_numpy(x),
            torch.from_numpy(w),
            np.empty((m, n), np.float32),
            np.empty((m, n), np.float32),
        )
        calls: dict[str, Call] = {
            "ours": product(x, w.T, out, isa, threads, packed=True),
            "OpenBLAS": lambda x=x, w=w, o=other: np.matmul(x, w.T, out=o),
            "torch": lambda x=tx, w=tw: torch.nn.functional.linear(x, w),
            "ours, not packed": product(x, w.T, out, isa, threads),
        }
        pause = PAUSE if threads > 1 else 0.0
        rows.append(row(f"{m} x {k} x {n}", 2e-9 * m * k * n, medians(calls, 9, 5, pause)))
    return rows


def vector(isa: str, threads: int) -> list[dict[str, object]]:
    """M = 1, K = N = 4096, GB/s of weight; beside a read of the same bytes."""
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    k = n = 4096
    x, w = (np.random.default_rng(i).standard_normal(s, dtype=np.float32) for i, s in enumerate(((1, k), (n, k))))
    # Each reads bytes of its own: what another just read may still be in the last cache.
    tx, tw, out = torch.from_numpy(x), torch.from_numpy(w.copy()), np.empty((1, n), np.float32)
    words = w.copy().view(np.uint64)
    calls: dict[str, Call] = {
        "ours": product(x, w.T, out, isa, threads, packed=True),
        "OpenBLAS": lambda: np.matmul(x, w.T),
        "torch": lambda: torch.nn.functional.linear(tx, tw),
        "read": lambda: words.max(),
    }
    return [row(f"1 x {k} x {n}, GB/s", 4e-9 * k * n, medians(calls, 9, 3, 0.02 if threads > 1 else 0.0))]


def types(isa: str, threads: int) -> list[dict[str, object]]:
    """1024 cubed in each type, nothing packed ahead; torch multiplies int8 alone, and float8 here as bfloat16."""
    import ml_dtypes
    import numpy as np
    import torch

    import samebits as sb

    torch.set_num_threads(threads)
    n, rows = 1024, list[dict[str, object]]()
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, n)) for _ in range(2))
    tx, ty = torch.from_numpy(x), torch.from_numpy(y)
    for name in ("float64", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"):
        kind = getattr(ml_dtypes, name, name)
        a, b, ta, tb = x.astype(kind), y.astype(kind), *(t.to(getattr(torch, name)) for t in (tx, ty))
        calls: dict[str, Call] = {"ours": lambda a=a, b=b: sb.matmul(a, b, threads=threads)}
        if name == "float64":
            calls["OpenBLAS"] = lambda a=a, b=b: a @ b
        if name.startswith("float8"):
            calls["torch"] = lambda a=ta, b=tb: a.bfloat16() @ b.bfloat16()
        else:
            calls["torch"] = lambda a=ta, b=tb: a @ b
        with sb.use_isa(isa):
            rows.append(row(name, 2e-9 * n**3, medians(calls, 5 if name != "float16" else 2, 1, 0.0)))
    small = (rng.integers(0, 128, (n, n)) for _ in range(2))
    p, q = (torch.from_numpy(z.astype(np.int8)) for z in small)
    for left, right in ((np.int8, np.int8), (np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8)):
        a, b = p.numpy().astype(left), q.numpy().astype(right)
        calls = {
            "ours": lambda a=a, b=b: sb.matmul(a, b, threads=threads),
            "torch": lambda: torch._int_mm(p, q),
        }
        with sb.use_isa(isa):
            rows.append(row(f"{left.__name__} x {right.__name__}", 2e-9 * n**3, medians(calls, 5, 3, 0.0)))
    return rows


def quantised(isa: str, threads: int) -> list[dict[str, object]]:
    """int8 weights, nothing packed ahead: what quantising a and requantising the result add to the plain product."""
    import numpy as np

    import samebits as sb

    rows, rng = list[dict[str, object]](), np.random.default_rng(0)
    for m, k, n in ((128, 768, 768), (1024, 1024, 1024)):
        a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((m, k), (k, n)))
        x, scale = rng.standard_normal((m, k), dtype=np.float32), np.full(m, 0.03, np.float32)
        wide, narrow, given = np.empty((m, n), np.int32), np.empty((m, n), np.int8), {"threads": threads}
        first = {"a_dtype": "int8", "a_scale": scale, **given}
        last = {"b_scale": 0.02, "out_scale": 2.0, "out": narrow}
        calls: dict[str, Call] = {
            "int8 to int32": lambda a=a, b=b, o=wide, g=given: sb.matmul(a, b, out=o, **g),
            "to int8": lambda a=a, b=b, s=scale, g=given, o=last: sb.matmul(a, b, a_scale=s, **g, **o),
            "float32 to int32": lambda x=x, b=b, o=wide, g=first: sb.matmul(x, b, out=o, out_dtype="int32", **g),
            "float32 to int8": lambda x=x, b=b, g=first, o=last: sb.matmul(x, b, **g, **o),
        }
        with sb.use_isa(isa):
            seconds = medians(calls, 25, 5 if m < 1024 else 1, 0.0)
        rates = {name: 2e-9 * m * k * n / value for name, value in seconds.items()}
        least = min(rates["to int8"], rates["float32 to int32"])
        rows.append({"shape": f"{m} x {k} x {n}", **rates, "ratio": least / rates["int8 to int32"]})
    return rows


def row(name: str, work: float, seconds: dict[str, float]) -> dict[str, object]:
    """Rates, and ours over the best library's."""
    rates = {key: work / value for key, value in seconds.items()}
    peers = [value for key, value in rates.items() if key in ("OpenBLAS", "torch")]
    return {"shape": name, **rates, "ratio": rates["ours"] / max(peers)}


PARTS: dict[str, Callable[[str, int], list[dict[str, object]]]] = {
    "squares": squares, "shapes": shapes, "vector": vector, "types": types, "quantised": quantised
}  # fmt: skip
TABLES: tuple[tuple[str, str, str, int, dict[str, str]], ...] = (
    ("One thread, nothing packed ahead", "squares", "avx512", 1, {}),
    ("Two threads, nothing packed ahead", "squares", "avx512", 2, {}),
    ("One thread, avx2 beside OpenBLAS held to Haswell", "squares", "avx2", 1, {"OPENBLAS_CORETYPE": "Haswell"}),
    ("Two threads, avx2 beside OpenBLAS held to Haswell", "squares", "avx2", 2, {"OPENBLAS_CORETYPE": "Haswell"}),
    ("One thread, weight kept packed", "shapes", "avx512", 1, {}),
    ("One thread, one row, weight kept packed", "vector", "avx512", 1, {}),
    ("One thread, 1024 cubed in every type", "types", "avx512_bf16", 1, {}),
    ("One thread, 1024 cubed in every type", "types", "avx2", 1, {}),
    (
        "One thread, quantised on the way: the last column is the slower step beside none",
        "quantised",
        "avx512_vnni",
        1,
        {},
    ),
    ("One thread, quantised on the way: the last column is the slower step beside none", "quantised", "avx2", 1, {}),
)


def measured(part: str, isa: str, threads: int, extra: dict[str, str]) -> list[dict[str, object]]:
    """One table, from a process of its own."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": str(threads), **extra}
    command = [sys.executable, __file__, part, isa, str(threads)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    rows: list[dict[str, object]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def show(title: str, isa: str, threads: int, rows: Sequence[dict[str, object]]) -> None:
    """One Markdown table, and its figures for the README."""
    names = list(dict.fromkeys(key for found in rows for key in found if key not in ("shape", "ratio")))
    print(f"\n### {title} ({isa})\n")
    print("| M x K x N | " + " | ".join(names) + " | ours / best library |")
    print("|---" * (len(names) + 2) + "|")
    for found in rows:
        rates = " | ".join(f"{found[name]:.1f}" if name in found else "" for name in names)
        print(f"| {found['shape']} | {rates} | {found['ratio']:.2f} |")


def main() -> list[dict[str, object]]:
    """Measure, print, return the rows."""
    from samebits.codegen import isa

    available = {row.name for row in isa.ROWS if row.available}
    found: list[dict[str, object]] = []
    print("## Matrix products\n\nGFLOP/s (M = 1: GB/s of weight), float32 where no type is named.")
    for title, part, name, threads, extra in TABLES:
        if name in available:
            rows = measured(part, name, threads, extra)
            show(title, name, threads, rows)
            found += [{"table": title, "isa": name, "threads": threads, **one} for one in rows]
    for one in found:
        if one["shape"] in ("1024 x 1024 x 1024", "1 x 4096 x 4096, GB/s") and one["isa"] == "avx512":
            unit = "GB/s" if "GB/s" in str(one["shape"]) else "GFLOP/s"
            rates = {key: value for key, value in one.items() if key in ("OpenBLAS", "torch")}
            peer = max(rates, key=lambda key: float(str(rates[key])))
            what = (
                f"matmul {str(one['shape']).split(',')[0]}, {one['threads']} thread{'s' if one['threads'] != 1 else ''}"
            )
            print(f"figure: {what} | {one['ours']:.1f} {unit} | {peer} {rates[peer]:.1f} | {one['ratio']:.2f}")
    return found


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(PARTS[sys.argv[1]](sys.argv[2], int(sys.argv[3]))))
    else:
        main()
