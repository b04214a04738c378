"""Write docs/formats.md: every block format and dialect, from their rows, and how far the dialects differ, measured.

    python tools/block_formats.py --write

Without `--write` it says whether the page is current. What zeros, NaN and Inf do, how many codes two dialects differ
in, and how near their values are is found by the NumPy reference on numbers of fixed seeds. Start at `page`.
"""

from __future__ import annotations

import functools
import itertools
import math
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from samebits.kernels.quantize import dialects, formats, gguf, reference
from samebits.kernels.quantize.blocks import Blocking
from samebits.kernels.quantize.dialects import Dialect
from samebits.kernels.quantize.formats import BlockFormat

__all__ = ["PAGE", "page"]

Array = npt.NDArray[Any]

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "formats.md"

_HEAD = """# Block formats and dialects

Written by `python tools/block_formats.py --write` from the rows of `samebits.kernels.quantize`.
`samebits.quantize(x, format, dialect=...)` makes them, `q.dequantize()` gives their values, and
[numerics.md](numerics.md) section 9 decides the bits. A format says what is stored; a dialect by which formulas, and in
which order of roundings, as one tool in one version does it. A value is
`(element - zero point) * scale * global scale`.

## Formats
A block is rows by columns, the columns along the axis of the blocks; `all` is the whole axis, and `short` says that the
last block of an axis may be. Bits are those an element takes, with its share of the scale and zero point. The dialect
is the one that is meant where none is named. Kernels quantise and dequantise all of them; lines of elements that end
inside a byte are computed by NumPy, slowly.

| format | element | block | scale | global scale | zero point | bits | dialect |
|---|---|---|---|---|---|---|---|
"""
_DIALECTS = """
## Dialects
A is the largest magnitude of a block, G that of everything, E and e the exponents of A and of M, the largest value of
an element. Each operation is rounded to float32 unless it says otherwise; a rounding to e4m3 is to nearest even and
saturates at 448. A global scale g is what one divides by, s what one multiplies with, kept as the tool keeps it: of 17%
of all float32 numbers the reciprocal's reciprocal is another number. In `nvfp4/exact-1`, g is a power of two and
multiplies. Dialects of torchao, ModelOpt, compressed-tensors and gguf are compared with the package on every kind of
number, 0 codes differing; the others with a transcription of the published formula. Two things are left out: which
NaN a tool stores where it stores NaN, since torch's vector and tail code differ in its sign; and `log2` in `mx/rceil`
and `mx/modelopt-0.47`, where torch may round up to 22 float32 numbers above a power of two down to it.

| dialect | formats | of | formula | source |
|---|---|---|---|---|
"""
_EDGES = """
### What zeros, NaN and Inf do
The scale of a block of zeros among others, and where everything is zero; what becomes of a block with one NaN or Inf,
and of all else. Tried on 128 by 256 numbers.

| dialect | scale of zeros | of all zeros | one NaN | one Inf |
|---|---|---|---|---|
"""
_DIFFERENCES = """
### How many codes differ
Elements and scales, per million, that two dialects store otherwise, of bfloat16 numbers [256, 1024]: normal, normal
times 0.02, Student's t with 3 degrees of freedom, and normal with blocks scaled by powers of two from 2^-12 to 2^12.

| dialects | normal | 0.02 | heavy | wide |
|---|---|---|---|---|
"""
_NEARNESS = """
### How near the values are
Signal to quantisation noise in dB, float32 numbers [256, 1024]. That the global scale of `nvfp4/exact-1` is a power of
two makes all that follows exact and costs nothing: a block's scale is rounded to 3 bits of fraction in any case.

| format | dialect | normal | 0.02 | heavy | wide |
|---|---|---|---|---|---|
"""
_OPTIONS = """
## Options
- `rounding="stochastic", seed=`: elements are rounded to the code farther from 0 as often as they are near to it, by
  the words that `cast` draws ([numerics.md](numerics.md) section 9): the same for every layout and number of threads.
  Scales, blocks of zeros and NaN are those of the dialect. For gradients, whose small elements would be lost.
- `dialect="nvfp4/four-over-six-1"`: of each block the scale that makes its largest magnitude 6, or the one that makes
  it 4, below which float4 has finer steps at the top: whichever has the lesser squared error, the first where both
  have the same. Zeros and NaN as in `nvfp4/exact-1`.
- `nvfp4-16x16`: one scale for 16 x 16, stored once, so that a weight and its transpose have the same values:
  `quantize(w, "nvfp4-16x16")` for both products of training, which [numerics.md](numerics.md) section 4 sums.
- `hadamard`: the random Hadamard transform. Both operands of a product are turned along K before they are quantised,
  which leaves the product what it was but for rounding, and an outlier shares its run of 16:
  `linear(quantize(hadamard(x), "nvfp4"), quantize(hadamard(w), "nvfp4"))`. Transformer Engine's recipe turns both
  operands of the gradient of weights, `dY^T` and `X^T` along their rows, with its fixed signs, and rounds gradients
  stochastically; weights and forward activations are not turned.
"""
_GGUF = """
## GGUF
`samebits.decode_gguf(data, type)` gives the values of blocks; d and dmin are float16, q is an element.

| type | elements | bytes | value |
|---|---|---|---|
"""


def page() -> str:
    """The page as it should be."""
    parts = [_HEAD, *_formats(), _DIALECTS, *_dialects(), _EDGES, *_edges(), _DIFFERENCES, *_differences()]
    return "".join([*parts, _OPTIONS, _NEARNESS, *_nearness(), _GGUF, *_gguf_rows()])


def _line(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"


def _formats() -> Iterator[str]:
    for row in formats.ROWS:
        block = " x ".join("all" if n is None else str(n) for n in row.block) + (", short" if row.partial else "")
        bits = "" if row.bits is None else f"{row.bits:g}"
        element = f"{row.element} of a code book" if row.codebook else f"{row.element}"
        element += f" * 2^{math.frexp(row.unit)[1] - 1}" if row.unit != 1 else ""
        optional = (x or "" for x in (row.global_scale, row.zero_point))
        yield _line(f"`{row}`", element, block, row.scale, *optional, bits, f"`{dialects.default(row)}`")


def _dialects() -> Iterator[str]:
    for row in dialects.ROWS:
        kinds = ", ".join(name.replace("bfloat", "bf").replace("float", "f") for name in row.takes)
        yield _line(f"`{row}`", _named(row.formats), kinds, row.text, row.source)


def _named(names: tuple[str, ...]) -> str:
    """The names of formats, those of a family as one."""
    if len(names) <= 5:
        return ", ".join(names)
    for family in ("fp8", "uint", "int"):
        if names[0].startswith(family):
            return f"{len(names)} of {family}"
    return f"{len(names)}"


@functools.cache
def _numbers(kind: str, shape: tuple[int, int]) -> Array:
    """float32 numbers of one kind, which nobody writes into."""
    rng = np.random.default_rng(11)
    x = rng.standard_t(3, shape) if kind == "heavy" else rng.standard_normal(shape)
    if kind == "0.02":
        x = x * 0.02
    if kind == "wide":
        x = x * np.exp2(rng.integers(-12, 13, (shape[0], shape[1] // 16))).repeat(16, 1)
    found: Array = x.astype(np.float32)
    found.flags.writeable = False
    return found


_SHAPE = (256, 1024)
_KINDS = ("normal", "0.02", "heavy", "wide")


def _tried(row: Dialect) -> BlockFormat:
    """The format of a dialect to try it on: one with several blocks a line."""
    found = [formats.of(name) for name in row.formats]
    return next((f for f in found if f.block[1] not in (None, 1)), found[0])


def _values(x: Array, row: BlockFormat, dialect: Dialect) -> tuple[reference.StoredParts, Array]:
    parts = reference.quantize(x, row, dialect)
    return parts, reference.dequantize(parts, row, dialect.divides)


def _edges() -> Iterator[str]:
    for dialect in dialects.ROWS:
        row = _tried(dialect)
        x = _numbers("normal", (128, 256))
        some = np.where(np.arange(256) < 128, np.float32(0), x)
        zero = reference.quantize(some, row, dialect).scales[0, 0]
        all_zero = reference.quantize(np.zeros_like(x), row, dialect).scales[0, 0]
        yield _line(
            f"`{dialect}`",
            _scale(zero),
            _scale(all_zero),
            _effect(x, row, dialect, math.nan),
            _effect(x, row, dialect, math.inf),
        )


def _scale(scale: Any) -> str:
    number = float(scale)
    power = math.frexp(number)[1] - 1 if number else 0
    return f"2^{power}" if number == 2.0**power and abs(power) > 2 else f"{number:.6g}"


def _effect(x: Array, row: BlockFormat, dialect: Dialect, value: float) -> str:
    """What one number that is none does to its block, and to all others."""
    _, before = _values(x, row, dialect)
    spoiled = x.copy()
    spoiled[40, 40] = value
    _, after = _values(spoiled, row, dialect)
    blocks = Blocking(row, x.shape, -1)
    own = np.zeros(x.shape, bool)
    own[40, 40] = True
    inside = blocks.joined(
        np.broadcast_to(blocks.split(own).any(axis=blocks.within, keepdims=True), blocks.split(own).shape)
    )
    beside, outside = after[inside & ~own], after[~inside]
    words = [f"it is {_word(after[40, 40])}", f"its block {_change(before[inside & ~own], beside)}"]
    if _change(before[inside & ~own], beside) == _word(after[40, 40]):
        words = [f"its block is {_word(after[40, 40])}"]
    return "; ".join([*words, f"all else {_change(before[~inside], outside)}"])


def _word(value: Any) -> str:
    if np.isnan(value):
        return "NaN"
    return "Inf" if np.isinf(value) else f"{value:.3g}"


def _change(before: Array, after: Array) -> str:
    if np.isnan(after).all():
        return "NaN"
    if (after == 0).all():
        return "0"
    return "kept" if (before == after).all() else "changed"


def _differences() -> Iterator[str]:
    for name in ("nvfp4", "mxfp4", "mxfp8-e4m3"):
        row = formats.of(name)
        made = {
            dialect: [_codes(_numbers(kind, _SHAPE).astype(ml_dtypes.bfloat16), row, dialect) for kind in _KINDS]
            for dialect in dialects.dialects(row)
        }
        for first, second in itertools.combinations(made, 2):
            pairs = zip(made[first], made[second], strict=True)
            cells = [f"{_million(a, c)} / {_million(b, d)}" for (a, b), (c, d) in pairs]
            short = second.name.partition("/")[2]
            yield _line(f"{row}: `{first.name.partition('/')[2]}`, `{short}`", *cells)


def _codes(x: Array, row: BlockFormat, dialect: Dialect) -> tuple[Array, Array]:
    parts = reference.quantize(x, row, dialect)
    return parts.elements, parts.scales.view(np.uint8)


def _million(a: Array, b: Array) -> int:
    return round(int((a != b).sum()) * 1e6 / a.size)


def _nearness() -> Iterator[str]:
    for row in formats.ROWS:
        for dialect in dialects.dialects(row):
            cells = []
            for kind in _KINDS:
                x = _numbers(kind, _SHAPE)
                y = _values(x, row, dialect)[1].astype(np.float64)
                error = ((x.astype(np.float64) - y) ** 2).sum()
                cells.append(f"{10 * math.log10((x.astype(np.float64) ** 2).sum() / error):.2f}")
            yield _line(f"`{row}`", f"`{dialect}`", *cells)


def _gguf_rows() -> Iterator[str]:
    for row in gguf.ROWS:
        yield _line(f"`{row}`", row.elements, row.size_bytes, row.text)


def main() -> int:
    """Write the page, or say whether it is current."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
        return 0
    current = PAGE.exists() and PAGE.read_text() == page()
    print("docs/formats.md is " + ("current" if current else "not current: python tools/block_formats.py --write"))
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main())
