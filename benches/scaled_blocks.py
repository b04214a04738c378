"""Products of block-scaled operands on one thread beside torch, in GFLOP/s and, where few rows read a weight, in 10^9
weights a second.

No library of a CPU multiplies these formats: torch has its product of float32 on dequantised operands, which it is
given for nothing, and beside one row its linear of bfloat16. Candidates take turns in one process; figures are medians.
Ours packs both operands within its time, but for the weight of the second table, which both keep. On a machine with
tiles, which sum blocks of 64 and more, the same product without them takes turns too.

What the order of numerics.md section 4 leaves, in vector operations of 16 lanes, of which float32 takes one for each
product. Sums of MXFP8 are chains that round at every step, so that no sum of integers is theirs: 32 fma and 2
operations for the scale of a block are at most 0.94 of the peak of float32, of which torch reaches seven eighths,
unless a processor takes two steps in one: VDPBF16PS has the rate of fma on Zen 4, 16 + 2 operations, at most 1.78, and
half of it on Sapphire and Emerald Rapids, where it gains nothing. Exact sums take four products an operation: NVFP4
4 + 2 of 16, at most 2.67 of the peak of float32, MXFP4 and int8 by 32 8 + 3 of 32, 2.91, int8 by 64 and 128 3.37 and
3.66.

Of one row beside elements of four bits, eight of 16 columns take 20 vector operations where lookups of float32 are one:
8 lookups, 4 shifts and 8 fma, 10 cycles of two ports: 39 * 10^9 weights a second at 3.05 GHz. Where nothing in the sum
of a run can be rounded, integers take 9 to 11 operations, and memory is what is waited for: such a core reads 26 to 30
GB/s, 43 to 48 * 10^9 weights and their scales (NVFP4, int4 by 32), 54 (int4 by 128). How many runs these are is a
matter of the activations, which are normally distributed here; in the rows with tails each is multiplied with exp of
another such number, doubled.
`python benches/scaled_blocks.py`
"""

from __future__ import annotations

from _products import BEST, Part, Rows, row, run

import samebits as sb
from samebits.bench.measure import Call
from samebits.codegen import isa as isas

# Elements, scales, elements of a block.
SQUARES = (
    ("NVFP4", "float4_e2m1fn", "float8_e4m3fn", 16), ("MXFP4", "float4_e2m1fn", "float8_e8m0fnu", 32),
    ("MXFP8", "float8_e4m3fn", "float8_e8m0fnu", 32), ("int8 by 32", "int8", "float32", 32),
    ("int8 by 64", "int8", "float32", 64), ("int8 by 128", "int8", "float32", 128),
)  # fmt: skip
WEIGHTS = (
    ("NVFP4", "float4_e2m1fn", "float8_e4m3fn", 16), ("int4 by 32", "int4", "float16", 32),
    ("int4 by 128", "int4", "float16", 128), ("MXFP8", "float8_e4m3fn", "float8_e8m0fnu", 32),
    ("int8 by 32", "int8", "float16", 32), ("int8 by 128", "int8", "float16", 128),
)  # fmt: skip


def _drawn(name: str, *shape: int) -> object:
    """Elements or scales of a format."""
    import numpy as np

    from samebits import dtypes

    dtype, random = dtypes.of(name), np.random.default_rng(len(shape))
    if dtype.is_integer:
        return random.integers(int(dtype.min), int(dtype.max) + 1, shape).astype(dtype.numpy)
    x = random.standard_normal(shape) if dtype.has_zero else np.exp2(random.integers(-3, 4, shape))
    return np.asarray(x).astype(dtype.numpy)


def _by_vectors(a: object, b: object, given: dict[str, object]) -> object:
    """The product on the best Isa row without tiles."""
    with sb.use_isa("avx512_bf16"):
        return sb.matmul(a, b, **given)


def squares(isa: str, threads: int) -> Rows:
    """N cubed, scales of blocks on both sides."""
    import torch
    from _products import medians

    torch.set_num_threads(threads)
    rows = Rows()
    for n in (1024, 4096):
        wide = [torch.randn(n, n) for _ in range(2)]
        for name, element, kind, size in SQUARES if n == 1024 else SQUARES[:3]:
            a, b = _drawn(element, n, n), _drawn(element, n, n)
            given = {"a_scale": _drawn(kind, n, n // size), "b_scale": _drawn(kind, n // size, n), "threads": threads}
            given |= {"a_group": size, "b_group": size}
            calls: dict[str, Call] = {
                "ours": lambda a=a, b=b, g=given: sb.matmul(a, b, **g),
                "torch, float32": lambda x=wide: torch.mm(*x),
            }
            if isas.named(isa).has_tiles and size >= 64:
                calls["ours by vectors"] = lambda a=a, b=b, g=given: _by_vectors(a, b, g)
            with sb.use_isa(isa):
                seconds = medians(calls, threads, 9 if n == 1024 else 3)
            rows.append(row(f"{name}, {n} x {n} x {n}", 2e-9 * n**3, seconds))
    return rows


def weights(isa: str, threads: int) -> Rows:
    """One row of bfloat16 by a weight that is packed with its scales."""
    import torch
    from _products import medians

    torch.set_num_threads(threads)
    rows, n = Rows(), 4096
    x, wide = torch.randn(1, n).bfloat16(), torch.randn(n, n).bfloat16()
    tails = (torch.randn(1, n) * (2 * torch.randn(1, n)).exp()).bfloat16()
    for name, element, kind, size in WEIGHTS:
        with sb.use_isa(isa):
            kept = sb.pack(_drawn(element, n, n), left="bfloat16", scale=_drawn(kind, n // size, n), group=size)
            for more, given in (("", x), (" with tails", tails))[: 2 if kept.dtype.width_bits == 4 else 1]:
                calls: dict[str, Call] = {
                    "ours": lambda k=kept, x=given: sb.linear(x, k, threads=threads),
                    "torch, bfloat16": lambda x=given: torch.nn.functional.linear(x, wide),
                }
                seconds = medians(calls, threads, 25)
                rows.append(row(f"{name}{more}, 1 x {n} x {n}", 1e-9 * n**2, seconds))
    return rows


PARTS = (
    Part("Scaled blocks on both sides, one thread, GFLOP/s", squares, BEST, 1),
    Part(
        "A weight of 4 or 8 bits beside one row of bfloat16, one thread, 10^9 weights a second",
        weights,
        BEST,
        1,
    ),
)

if __name__ == "__main__":
    run(__file__, PARTS)
