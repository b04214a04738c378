"""Square matrix products beside NumPy (OpenBLAS), torch and onnxruntime, in GFLOP/s: float32, other floats, quantised.

Candidates take turns in one process, each after one call that is not counted; figures are medians, of the process's
time with one thread, of the wall with two, where a pause before each turn lets the others' threads go to sleep. Each
table is a process of its own. The avx2 row is compared with libraries held to AVX2 by what each reads from the
environment. The peak is what the same step reaches with operands in registers. torch has no product of float8, and its
products of float16, and of bfloat16 where it is held to AVX2, reach 1 GFLOP/s; so it converts the operands first and
the result last, float8 by way of bfloat16, all others of float32. NumKong's packing of b is part of its time.

What falls short, and why: torch converts float8_e5m2 to bfloat16 by a shift, so that even the peak would be 1.41 times
it; our conversion, while packing, takes 2.5 % of the time. float16 is multiplied as float32 by all: the peak is 1.2
times torch, whose own product of float16 we are 100 times as fast as. bfloat16: at 512 cubed, one thread, 93 % of the
time is in the microkernel, of which 97 % are steps: joining a chunk of 128 elements is 24 additions and 24 stores of 64
bytes, two cycles each, beside 1536 steps, where torch keeps a sum in registers over all of K. The rest, by samples:
packing B 2.0 %, which moves 128 bytes through the second cache for every 64 and is no faster with half its
instructions, packing A 1.6, looking for subnormals in both 0.8, rounding C 1.2.
Figures of two threads, the peak too, move by 10 % and more between runs of this shared machine.
`python benches/gemm.py`
"""

from __future__ import annotations

import os

from _products import BEST, Part, Rows, figure, limit, medians, row, run

import samebits as sb
from samebits.bench.measure import Call

SIZES = (256, 512, 1024, 2048, 4096)
FLOATS = ("float64", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
HELD = {
    "OPENBLAS_CORETYPE": "Haswell", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}  # fmt: skip


def squares(isa: str, threads: int) -> Rows:
    """N cubed in float32, nothing packed ahead."""
    import numpy as np
    import torch

    from samebits.bench import peers
    from samebits.kernels.gemm.engine import FMA32
    from samebits.tensor import Tensor

    torch.set_num_threads(threads)
    held = "ONEDNN_MAX_CPU_ISA" in os.environ
    rows, most = Rows(), limit(FMA32, isa, threads)
    for n in SIZES[: -1 if held else None]:
        a, b, c, d = (np.random.default_rng(i).standard_normal((n, n), dtype=np.float32) for i in range(4))
        ta, tb, td = map(torch.from_numpy, (a, b, d.copy()))
        calls: dict[str, Call] = {
            "ours": lambda a=a, b=b, c=c: sb.matmul(a, b, out=c, threads=threads),
            "OpenBLAS": lambda a=a, b=b, d=d: np.matmul(a, b, out=d),
        }
        if not held:
            calls["torch"] = lambda a=ta, b=tb, d=td: torch.mm(a, b, out=d)
            (other,) = peers.named(["onnxruntime"])
            call = other.call(Tensor.from_any(a), Tensor.from_any(b), False, threads) if other.installed else ""
            if not isinstance(call, str) and n < 4096:
                calls["onnxruntime"] = call
        with sb.use_isa(isa):
            seconds = medians(calls, threads, 3 if n > 1024 else 9, 1 if n > 512 else 3)
        rows.append(row(f"{n} x {n} x {n}", 2e-9 * n**3, seconds, most))
    return rows


def floats(isa: str, threads: int) -> Rows:
    """1024 cubed in each float format, nothing packed ahead."""
    import ml_dtypes
    import numpy as np
    import torch

    from samebits import dtypes, tuning
    from samebits.bench import peers
    from samebits.codegen import isa as isas
    from samebits.kernels.gemm import selection
    from samebits.tensor import Tensor

    torch.set_num_threads(threads)
    held = "ONEDNN_MAX_CPU_ISA" in os.environ
    n, rows, rng = 1024, Rows(), np.random.default_rng(0)
    x, y = (rng.standard_normal((n, n)) for _ in range(2))
    tx, ty = torch.from_numpy(x), torch.from_numpy(y)
    for name in FLOATS:
        kind, dtype = getattr(ml_dtypes, name, name), dtypes.of(name)
        a, b, ta, tb = x.astype(kind), y.astype(kind), *(t.to(getattr(torch, name)) for t in (tx, ty))
        calls: dict[str, Call] = {"ours": lambda a=a, b=b: sb.matmul(a, b, threads=threads)}
        if name == "float64":
            calls["OpenBLAS"] = lambda a=a, b=b: a @ b
        if name == "float64" or (name == "bfloat16" and not held):
            calls["torch"] = lambda a=ta, b=tb: a @ b
        else:
            wide = torch.float32 if held or name == "float16" else torch.bfloat16
            calls["torch, converted"] = lambda a=ta, b=tb, w=wide: (a.to(w) @ b.to(w)).to(a.dtype)
        (other,) = peers.named(["numkong"])
        if other.installed and not held:
            call = other.call(Tensor.from_any(a), Tensor.from_any(b), False, threads)
            calls |= {} if isinstance(call, str) else {"NumKong": call}
        with sb.use_isa(isa):
            seconds = medians(calls, threads, 9)
        engine = selection.engine_for(dtype, dtype, isas.named(isa), tuning.machine(isas.named(isa)))
        rows.append(row(name, 2e-9 * n**3, seconds, limit(engine, isa, threads)))
    return rows


def halves(isa: str, threads: int) -> Rows:
    """N cubed in bfloat16, nothing packed ahead."""
    import ml_dtypes
    import numpy as np
    import torch

    from samebits.kernels.gemm.engine import PAIRS

    torch.set_num_threads(threads)
    rows, most = Rows(), limit(PAIRS, isa, threads)
    for n in SIZES:
        x, y = (np.random.default_rng(i).standard_normal((n, n), dtype=np.float32) for i in range(2))
        ta, tb, td = (torch.from_numpy(z).bfloat16() for z in (x, y, y))
        a, b, c = (z.astype(ml_dtypes.bfloat16) for z in (x, y, y))
        calls: dict[str, Call] = {
            "ours": lambda a=a, b=b, c=c: sb.matmul(a, b, out=c, threads=threads),
            "torch": lambda a=ta, b=tb, d=td: torch.mm(a, b, out=d),
        }
        with sb.use_isa(isa):
            seconds = medians(calls, threads, 3 if n > 1024 else 9, 1 if n > 512 else 3)
        rows.append(row(f"{n} x {n} x {n}", 2e-9 * n**3, seconds, most))
    return rows


def quantised(isa: str, threads: int) -> Rows:
    """int8 weights, nothing packed ahead: what quantising a and requantising the result add to the plain product."""
    import numpy as np

    rows, rng = Rows(), np.random.default_rng(0)
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
            seconds = medians(calls, threads, 25, 5 if m < 1024 else 1)
        rates = {name: 2e-9 * m * k * n / value for name, value in seconds.items()}
        least = min(rates["to int8"], rates["float32 to int32"])
        rows.append({"shape": f"{m} x {k} x {n}", **rates, "ratio": least / rates["int8 to int32"]})
    return rows


_QUANTISED = "Quantised on the way, one thread: the last column is the slower step beside none"
PARTS = (
    Part("float32, one thread", squares, "avx512", 1),
    Part("float32, two threads", squares, "avx512", 2),
    Part("float32, one thread, beside OpenBLAS held to Haswell", squares, "avx2", 1, HELD),
    Part("float32, two threads, beside OpenBLAS held to Haswell", squares, "avx2", 2, HELD),
    Part("bfloat16, one thread", halves, BEST, 1),
    Part("bfloat16, two threads", halves, BEST, 2),
    Part("Floats at 1024 cubed, one thread", floats, BEST, 1),
    Part("Floats at 1024 cubed, one thread, beside libraries held to AVX2", floats, "avx2", 1, HELD),
    Part(_QUANTISED, quantised, "avx512_vnni", 1),
    Part(_QUANTISED, quantised, "avx2", 1),
)

if __name__ == "__main__":
    found = run(__file__, PARTS)
    for threads in (1, 2):
        one = found.get(("avx512", threads, "1024 x 1024 x 1024"))
        if one is not None:
            figure(f"matmul 1024 cubed, {threads} thread{'s' if threads > 1 else ''}", "GFLOP/s", one)
