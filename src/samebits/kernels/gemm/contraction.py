"""Contraction: what one matrix product is, as a frozen value. Nothing here knows tiles, threads or instructions.

`out[m, n] = epilogue(sum_k a[m, k] * b[k, n], sources...)`, with batch dimensions in front, each operand by its own
strides. The order of the sum is `Spec` (numerics.md section 2). Operands of a plan are numbered: a, b, what blocks of b
share, the sources that are matrices in their order, out. Start at `Contraction`; `fused` builds the usual epilogue.

`out` may overlap no operand, with one exception: a source that is exactly `out` (same address and strides), which
`in_place` declares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from samebits import driver
from samebits.dtypes import DType, float32, float64, int32, int64
from samebits.errors import OptionError, shown
from samebits.frozen import frozen
from samebits.kernels.expression import Chain, Expression, ExpressionValue
from samebits.layout import Layout

# Each is a step of a plan, and a sum of its own in the workspace.
_MOST_SEGMENTS = 1024


@frozen
@dataclass(frozen=True, slots=True)
class Spec:
    """The order of a contraction: chunks of `chunk` along K, K cut into `segments` joined by a binary tree.

    The default is `sb1` (numerics.md section 2). Sums of floats by another have other bits; integers have the same.

    Raises:  OptionError if chunk is no int of at least 1, or segments no power of two up to 1024.
    """

    chunk: int = 128
    segments: int = 1

    def __post_init__(self) -> None:
        if type(self.chunk) is not int or self.chunk < 1:
            expected, remedy = "an int of at least 1", "leave it at 128, which is sb1"
            raise OptionError("Spec", "chunk", "", shown(self.chunk), expected, remedy)
        if type(self.segments) is not int or not 1 <= self.segments <= _MOST_SEGMENTS or self.segments.bit_count() > 1:
            expected = f"a power of two up to {_MOST_SEGMENTS}"
            raise OptionError("Spec", "segments", "", shown(self.segments), expected, "use 1, 2, 4 or 8")

    def bounds(self, k: int) -> tuple[tuple[int, int], ...]:
        """The half-open ranges of k that the segments cover; the last ones may be empty."""
        size = -(-k // (self.segments * self.chunk)) * self.chunk
        return tuple((min(k, s * size), min(k, (s + 1) * size)) for s in range(self.segments))


SB1 = Spec()


@dataclass(frozen=True, slots=True)
class Matrix:
    """How a matrix operand lies: strides in elements, 0 where it repeats; one batch stride for each batch dimension.

    `packed`: where elements do not lie each in whole bytes, how they do, from the byte of the first. The strides are
    then those of the copy that the plan unpacks first (`unpack`).
    """

    row: int
    column: int
    batch: tuple[int, ...] = ()
    dtype: DType = float32
    packed: Layout | None = None

    @property
    def transposed(self) -> Matrix:
        """Rows and columns exchanged."""
        return replace(self, row=self.column, column=self.row)


@dataclass(frozen=True, slots=True)
class Panels:
    """A right operand that is already in panels (`packed.PackedMatrix`): elements of `dtype` as words of the engine
    called `engine`, `nr` columns a panel; batches lie `batch` words apart."""

    nr: int
    batch: tuple[int, ...] = ()
    dtype: DType = float32
    engine: str = "fma float32"


@dataclass(frozen=True, slots=True)
class PerBlock:
    """Float32 values that blocks of b share: one for `size` consecutive k of a column (numerics.md section 4).

    `matrix`: [ceil(K / size), N] with b's batch dimensions, of a format that converts exactly.
    """

    size: int
    matrix: Matrix


@dataclass(frozen=True, slots=True)
class Quantized:
    """A left operand of floats that is quantised first (numerics.md section 3).

    `a`: how the floats lie.   `scale`, `zero`: which sources are their scales and zero points, one a row; no zero
    points are zeros.
    """

    a: Matrix
    scale: int
    zero: int | None = None


@dataclass(frozen=True, slots=True)
class Immediate:
    """A scalar source whose value is part of the plan: the element's bits."""

    code: int
    dtype: DType = float32

    @classmethod
    def of(cls, value: float, dtype: DType = float32) -> Immediate:
        """value rounded to a float dtype, whatever the caller's rounding mode; infinite where it is too large."""
        with driver.default_float_environment(), np.errstate(over="ignore"):
            rounded = np.asarray(value, np.float64).astype(dtype.numpy)
        return cls(int(rounded.view(f"i{dtype.size_bytes}")), dtype)


Source = Matrix | Immediate


@dataclass(frozen=True, slots=True)
class Contraction:
    """One product and its epilogue.

    `epilogue` takes t as input 0 and `sources` as inputs 1, 2, ...; each source is a full matrix, or repeats along
    rows (`row=0`: a bias over N), along columns (`column=0`), or both; None stores t. `zeros`: which sources are the
    int32 zero points of a (one a row) and of b (one a column); the epilogue has inputs for them and does not use them.
    `accumulates`: t begins as what out holds, not with the first chunk (section 5); there is no epilogue then.
    `quantized`: a describes what the floats of the operand are quantised to: int8 or uint8, dense.
    `b_scale`, `b_zero`: scales of b's blocks along k, and what is subtracted from b's elements first.
    """

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix | Panels
    out: Matrix
    batch: tuple[int, ...] = ()
    epilogue: Expression | None = None
    sources: tuple[Source, ...] = ()
    in_place: bool = False
    spec: Spec = SB1
    zeros: tuple[int | None, int | None] = (None, None)
    accumulates: bool = False
    b_scale: PerBlock | None = None
    b_zero: PerBlock | None = None
    quantized: Quantized | None = None

    @property
    def per_block(self) -> dict[str, PerBlock]:
        """What blocks of b share, by the names of their operands."""
        return {name: x for name, x in (("b_scale", self.b_scale), ("b_zero", self.b_zero)) if x is not None}

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the plan's operands in order; a matrix source is called by its input number."""
        matrices = [f"source {i}" for i, s in enumerate(self.sources, 1) if isinstance(s, Matrix)]
        return ("a", "b", *self.per_block, *matrices, "out")

    @property
    def work(self) -> int:
        """Products of elements; or bytes of a and b where these are more, as where few rows wait for memory."""
        size_bits = self.m * self.a.dtype.width_bits + self.n * self.b.dtype.width_bits
        return math.prod(self.batch) * max(self.k, 1) * max(self.m * self.n, size_bits >> 3)

    @property
    def transposed(self) -> Contraction:
        """out^T = b^T a^T: the same bits, because products commute and NaN is canonical."""
        assert isinstance(self.b, Matrix)  # panels hold no other order
        assert not self.per_block  # which are of b
        return replace(
            self, m=self.n, n=self.m, a=self.b.transposed, b=self.a.transposed, out=self.out.transposed,
            sources=tuple(s.transposed if isinstance(s, Matrix) else s for s in self.sources),
            zeros=(self.zeros[1], self.zeros[0]),
        )  # fmt: skip

    def __str__(self) -> str:
        batch = f" batch {list(self.batch)}" if self.batch else ""
        right = "packed" if isinstance(self.b, Panels) else "b"
        types = "" if self.a.dtype is self.b.dtype is float32 else f" {self.a.dtype.name} x {self.b.dtype.name}"
        types = f" {self.quantized.a.dtype.name} as{types}" if self.quantized else types
        shared = "".join(f", {name} of {x.size}" for name, x in self.per_block.items())
        return f"matmul{types} a[{self.m},{self.k}] {right}[{self.k},{self.n}]{batch}, chunk {self.spec.chunk}{shared}"


def fused(
    *,
    total: DType = float32,
    result: DType | None = None,
    zeros: Sequence[Matrix] = (),
    scales: Sequence[Matrix] = (),
    alpha: float | None = None,
    beta: float | None = None,
    c: Matrix | None = None,
    bias: Matrix | None = None,
    activation: Expression | None = None,
) -> tuple[Expression | None, tuple[Source, ...]]:
    """result(activation(t * s * alpha + beta * c + bias)) as (epilogue, sources), in the order of section 2 step 4.

    Args:    total: the dtype of t; integers become float32 before a scale, a float addend or an activation.
             result: the dtype that is stored, or float32 before it becomes narrower (default: as computed).
             zeros: zero points and whatever else becomes one of the first sources and is not used here.
             scales: up to two, whose product s, rounded once, t is multiplied with.
             beta: None adds c as it is, which has the bits of beta = 1.   activation: of one float32 input.
             bias: an int32 one is part of t, which is then int64 (section 3).
    Returns: sources in the order zeros, scales, c, bias, then those that are no matrices.
    """
    chain = Chain()
    t, sources = chain.input(total), list[Source](zeros)
    for zero in zeros:
        chain.input(zero.dtype)
    exact = bias is not None and bias.dtype is int32
    kind = int64 if exact else total
    if total.is_integer and (result is None or result.is_float):
        steps = (alpha, c, None if exact else bias, activation, result)
        kind = float32 if scales or any(x is not None for x in steps) else kind

    def source(x: Source, dtype: DType = kind) -> ExpressionValue:
        sources.append(x)
        return chain.input(dtype)

    factors, addends = [source(x) for x in scales], [source(x) for x in (c,) if x is not None]
    last = source(bias, int32 if exact else kind) if bias is not None else None
    value = t
    if exact and last:
        value = chain.apply("add", *(x if x.dtype is int64 else chain.apply("cast", x, dtype=int64) for x in (t, last)))
    if kind is not value.dtype:
        value = chain.apply("cast", value, dtype=kind)
    if factors:
        value = chain.apply("mul", value, chain.apply("mul", *factors) if factors[1:] else factors[0])
    if alpha is not None:
        value = chain.apply("mul", value, source(Immediate.of(alpha, kind)))
    for addend in addends:
        if beta is not None:
            addend = chain.apply("mul", source(Immediate.of(beta, kind)), addend)
        value = chain.apply("add", value, addend)
    if last and not exact:
        value = chain.apply("add", value, last)
    if activation is not None:
        (value,) = chain.include(activation, value)
    if result is not None and result.width_bits >= 32 and result is not value.dtype:
        value = chain.apply("cast", value, dtype=result)
    if value is t and not sources:
        return None, ()
    return chain.finish(value), tuple(sources)


def requantized(
    *, total: DType, result: DType, zeros: Sequence[Matrix], scales: Sequence[Matrix], bias: Matrix | None = None
) -> tuple[Expression, tuple[Source, ...]]:
    """t + bias times the first two scales over the third, plus a zero point, as (epilogue, sources): section 3.

    Args:    total: int32 or int64, the dtype of t.   result: int8 or uint8.   scales: of a, of b, of the result.
             zeros: zero points of the operands, not used here, then the result's, which is of its dtype.
             bias: int32, added exactly.
    Returns: matrix sources come in the order zeros, scales, bias.
    """
    chain, sources = Chain(), [*zeros, *scales, *([bias] if bias else [])]
    t, *taken = (chain.input(dtype) for dtype in (total, *(x.dtype for x in sources)))
    if total is not int32 or bias:
        t = chain.apply("cast", t, dtype=float64)  # exact: K is at most engine.LONGEST
    if bias:
        t = chain.apply("add", t, chain.apply("cast", taken.pop(), dtype=float64))
    zero, *factors = taken[len(zeros) - 1 :]
    value = chain.apply("requantize", t, *factors, zero)
    assert value.dtype is result
    return chain.finish(value), tuple(sources)
