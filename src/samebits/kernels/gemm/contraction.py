"""Contraction: what one matrix product is, as a frozen value. Nothing here knows tiles, threads or instructions.

`out[m, n] = epilogue(sum_k a[m, k] * b[k, n], sources...)`, with batch dimensions in front, each operand by its own
strides. a, b and out are each a `Side`: elements, and the scale and zero point that say what these stand for. The order
of the sum is `Spec` (numerics.md section 2). Operands of a plan are numbered as `Contraction.operands` names them.
Start at `Contraction`; `fused` builds the usual epilogue.

`out` may overlap no operand, with one exception: a source that is exactly `out` (same address and strides), which
`in_place` declares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, Generic, Literal, TypeVar

from samebits import elements
from samebits.dtypes import DType, float32, float64, int32, int64
from samebits.errors import OptionError, shown
from samebits.frozen import dataclass, replace
from samebits.kernels.expression import Chain, Expression, ExpressionValue
from samebits.kernels.gemm.order import CHAIN, ORDERS
from samebits.layout import Layout

# Each is a step of a plan, and a sum of its own in the workspace.
_MOST_SEGMENTS = 1024


@dataclass(frozen=True, slots=True)
class Spec:
    """The order of a contraction: chunks of `chunk` along K, K cut into `segments` joined by a binary tree, and how a
    chunk is summed: `order`, the name of a row of `order.ORDERS`.

    The default is `sb1` (numerics.md section 2). Sums of floats by another have other bits; integers have the same.
    `chunk` is by default that of the order: 128 of sb1, 512 of pairs32, whose chunks are multiples of 32.

    Raises:  OptionError if chunk is no int of at least 1 or no multiple, segments no power of two up to 1024, or order
             no name of one.
    """

    chunk: int = None  # type: ignore[assignment]  # an int as soon as it is made
    segments: int = 1
    order: str = CHAIN.name

    def __post_init__(self) -> None:
        row = ORDERS.get(self.order) if isinstance(self.order, str) else None
        if row is None:
            expected = " or ".join(map(repr, ORDERS))
            raise OptionError("Spec", "order", "", shown(self.order), expected, "leave it out for sb1")
        given: object = self.chunk
        if given is None:
            object.__setattr__(self, "chunk", row.chunk)
        elif type(given) is not int or given < 1:
            expected, remedy = "an int of at least 1", f"leave it at {row.chunk}, which is {row.name}"
            raise OptionError("Spec", "chunk", "", shown(given), expected, remedy)
        elif row.block and given % row.block:
            expected, remedy = f"a multiple of {row.block} in order {row.name}", f"leave it at {row.chunk}"
            raise OptionError("Spec", "chunk", "", given, expected, remedy)
        if type(self.segments) is not int or not 1 <= self.segments <= _MOST_SEGMENTS or self.segments.bit_count() > 1:
            expected = f"a power of two up to {_MOST_SEGMENTS}"
            raise OptionError("Spec", "segments", "", shown(self.segments), expected, "use 1, 2, 4 or 8")

    def bounds(self, k: int) -> tuple[tuple[int, int], ...]:
        """The half-open ranges of k that the segments cover; the last ones may be empty."""
        size = -(-k // (self.segments * self.chunk)) * self.chunk
        return tuple((min(k, s * size), min(k, (s + 1) * size)) for s in range(self.segments))


SB1 = Spec()


def check_spec(call: str, spec: object) -> Spec:
    """What a call was given as its spec.

    Raises:  OptionError if it is none.
    """
    if not isinstance(spec, Spec):
        raise OptionError(call, "spec", "", shown(spec), "a Spec", "leave it out for sb1")
    return spec


@dataclass(frozen=True, slots=True)
class Matrix:
    """How a matrix operand lies: strides in elements, 0 where it repeats; one batch stride for each batch dimension.

    `packed`: where elements do not lie each in whole bytes, how they do, from the byte of the first. The strides are
    then those of the copy that the plan unpacks first (`unpack`).
    `windows`: of a right operand whose columns are windows of an image, how these lie; it has no other strides then
    than those of the batch.
    """

    row: int
    column: int
    batch: tuple[int, ...] = ()
    dtype: DType = float32
    packed: Layout | None = None
    windows: Windows | None = None

    @property
    def transposed(self) -> Matrix:
        """Rows and columns exchanged."""
        return replace(self, row=self.column, column=self.row)


@dataclass(frozen=True, slots=True)
class Windows:
    """How the columns of a right operand lie that are windows of an image: a row for each channel and place of the
    kernel, in that order; in elements from where the first window looks.

    `across`: windows of a row, which lie side by side.   `rows`: rows of windows along each of several axes, the
    nearest first: how many, and how far apart.   `channel`: from a channel to the next.   `places`: how far on each
    place of the kernel looks.
    `depth`: so many channels of an element of the image lie side by side, as the engine's words have them; all that is
    counted in elements counts words then, and K has a row for each channel of a word after the place.
    """

    across: int
    rows: tuple[tuple[int, int], ...]
    channel: int
    places: tuple[int, ...]
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Panels:
    """A right operand that is already in panels (`packed.PackedMatrix`): elements of `dtype` as words of the engine
    called `engine`, `nr` columns a panel; batches lie `batch` words apart. `block`: elements along K that share one of
    the scales, of dtype `scale`, which were packed with them; 0 where none were."""

    nr: int
    batch: tuple[int, ...] = ()
    dtype: DType = float32
    engine: str = "fma float32"
    block: int = 0
    scale: DType | None = None


TENSOR: Final = "tensor"
LINE: Final = "line"
_Values = TypeVar("_Values", bound=Matrix | Panels, covariant=True)


@dataclass(frozen=True, slots=True)
class Shared:
    """Scales or zero points of a side, each shared by several of its elements.

    `per`: what shares one: `TENSOR`, all elements; `LINE`, a row of a or a column of b or out; or a number, the
    elements of a block, which are consecutive along K in a line.   `lines`: how many consecutive lines a block covers.
    `operand`: how the values lie. Those of blocks are [ceil(M / lines), ceil(K / size)] for a and [ceil(K / size),
    ceil(N / lines)] for b, with its batch dimensions; others are seen as [M, N], where they repeat.
    `in_panels`: whether those of blocks of b lie as kernels read them, float32 [panel][block][column].
    """

    operand: Matrix
    per: Literal["tensor", "line"] | int = TENSOR
    lines: int = 1
    in_panels: bool = False

    @property
    def is_by_block(self) -> bool:
        """Whether blocks along K have one each, and kernels apply them before the sum is finished."""
        return not isinstance(self.per, str)

    @property
    def size(self) -> int:
        """Elements of a block."""
        assert not isinstance(self.per, str)  # only blocks have one
        return self.per


@dataclass(frozen=True, slots=True)
class Side(Generic[_Values]):
    """One side of a product: its elements, and that each stands for global_scale * scale * (element - zero).

    `values`: how the elements lie.   `scale`, `zero`: None is 1, and 0.   `global_scale`: beside scales of blocks, one
    for all elements or for each line.
    `quantised_from`: how floats lie of which a step of the plan makes the elements first, by `scale` and `zero`; the
    elements are int8 or uint8 then, dense, and the plan takes the floats.
    """

    values: _Values
    scale: Shared | None = None
    zero: Shared | None = None
    global_scale: Shared | None = None
    quantised_from: Matrix | None = None

    @property
    def dtype(self) -> DType:
        """The format of the elements."""
        return self.values.dtype

    @property
    def is_bare(self) -> bool:
        """Whether its elements stand for themselves: no scale, no zero point."""
        return self.scale is self.zero is self.global_scale is None

    @property
    def is_shifted(self) -> bool:
        """Whether a zero point leaves the finished sum: those of blocks leave the elements before."""
        return self.zero is not None and not self.zero.is_by_block

    @property
    def is_scaled_by_block(self) -> bool:
        """Whether blocks of it have scales, which multiply the sums of blocks."""
        if self.scale is not None and self.scale.is_by_block:
            return True
        return isinstance(self.values, Panels) and self.values.block > 0


def shared(sides: Iterable[tuple[str, Side[Any]]]) -> dict[str, Shared]:
    """What an epilogue takes of named sides, in its order: their zero points, then their scales, but for blocks'."""
    zeros, scales = dict[str, Shared](), dict[str, Shared]()
    for name, side in sides:
        if side.is_bare:
            continue
        if side.zero is not None and not side.zero.is_by_block:
            zeros[f"{name}_zero"] = side.zero
        if side.scale is not None and not side.scale.is_by_block:
            scales[f"{name}_scale"] = side.scale
        if side.global_scale is not None:
            scales[f"{name}_global_scale"] = side.global_scale
    return zeros | scales


@dataclass(frozen=True, slots=True)
class Immediate:
    """A scalar source whose value is part of the plan: the element's bits."""

    code: int
    dtype: DType = float32

    @classmethod
    def of(cls, value: float, dtype: DType = float32) -> Immediate:
        """value rounded to a float dtype, whatever the caller's rounding mode; infinite where it is too large."""
        return cls(int(elements.rounded(value, dtype).view(f"i{dtype.size_bytes}")), dtype)


Source = Matrix | Immediate


@dataclass(frozen=True, slots=True)
class Contraction:
    """One product and its epilogue.

    `epilogue` takes t, the sum of products without zero points, as input 0; then one input for each of `shared`; then
    `sources`. Of these each is a full matrix, or repeats along rows (`row=0`: a bias over N), along columns
    (`column=0`), or both. It multiplies with the scales; None stores t, which then nothing scales.
    `accumulates`: t begins as what out holds, not with the first chunk (section 5); there is no epilogue then.
    `turned`: a and b have changed places (`transposed`), but not what the epilogue takes of them.
    """

    m: int
    n: int
    k: int
    a: Side[Matrix]
    b: Side[Matrix | Panels]
    out: Side[Matrix]
    batch: tuple[int, ...] = ()
    epilogue: Expression | None = None
    sources: tuple[Source, ...] = ()
    in_place: bool = False
    spec: Spec = SB1
    accumulates: bool = False
    turned: bool = False

    @property
    def by_block(self) -> dict[str, Shared]:
        """What blocks of the operands share, by name."""
        found, a, b = dict[str, Shared](), self.a, self.b
        if a.scale is b.scale is a.zero is b.zero is None:
            return found
        for name, side in (("a", a), ("b", b)):
            if side.scale is not None and side.scale.is_by_block:
                found[f"{name}_scale"] = side.scale
            if side.zero is not None and side.zero.is_by_block:
                found[f"{name}_zero"] = side.zero
        return found

    @property
    def shared(self) -> dict[str, Shared]:
        """What the epilogue takes of the sides, by name and in its order: zero points of a, b and out, then scales."""
        if self.a.is_bare and self.b.is_bare and self.out.is_bare:
            return {}
        operands = ("a", self.a), ("b", self.b)
        return shared((*(operands[::-1] if self.turned else operands), ("out", self.out)))

    @property
    def inputs(self) -> tuple[Source, ...]:
        """What the epilogue takes after t."""
        found = self.shared
        return (*(x.operand for x in found.values()), *self.sources) if found else self.sources

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the plan's operands in order; a source that is a matrix is called by the number of its input."""
        names = [*self.shared]
        names += [f"source {i}" for i, s in enumerate(self.sources, len(names) + 1) if isinstance(s, Matrix)]
        return ("a", "b", *self.by_block, *names, "out")

    @property
    def sums(self) -> Spec:
        """What the sum follows: exact integers, and blocks that have scales (section 4), know no other order than
        sb1's."""
        if self.spec.order == CHAIN.name:
            return self.spec
        exact = self.a.dtype.is_integer and self.b.dtype.is_integer and not self.by_block
        free = exact or self.a.is_scaled_by_block or self.b.is_scaled_by_block
        return replace(self.spec, order=CHAIN.name) if free else self.spec

    @property
    def work(self) -> int:
        """Products of elements; or bytes of a and b where these are more, as where few rows wait for memory."""
        size_bits = self.m * self.a.dtype.width_bits + self.n * self.b.dtype.width_bits
        return math.prod(self.batch) * max(self.k, 1) * max(self.m * self.n, size_bits >> 3)

    @property
    def transposed(self) -> Contraction:
        """out^T = b^T a^T: the same bits, because products commute and NaN is canonical."""
        assert not self.by_block  # whose kernels know them of b alone
        return replace(
            self, m=self.n, n=self.m, a=_transposed(self.b), b=_transposed(self.a), out=_transposed(self.out),
            sources=tuple(s.transposed if isinstance(s, Matrix) else s for s in self.sources), turned=not self.turned,
        )  # fmt: skip

    def __str__(self) -> str:
        batch = f" batch {list(self.batch)}" if self.batch else ""
        right = "packed" if isinstance(self.b.values, Panels) else "b"
        types = "" if self.a.dtype is self.b.dtype is float32 else f" {self.a.dtype.name} x {self.b.dtype.name}"
        floats = self.a.quantised_from
        types = f" {floats.dtype.name} as{types}" if floats else types
        sizes = {name: f"{x.size} x {x.lines}" if x.lines > 1 else x.size for name, x in self.by_block.items()}
        blocks = "".join(f", {name} of {size}" for name, size in sizes.items())
        order = "" if self.spec.order == CHAIN.name else f"{self.spec.order}, "
        what = f"matmul{types} a[{self.m},{self.k}] {right}[{self.k},{self.n}]{batch}"
        return f"{what}, {order}chunk {self.spec.chunk}{blocks}"


def _transposed(x: Side[Matrix | Panels]) -> Side[Matrix]:
    """x with rows and columns exchanged, also of what its lines share."""
    assert isinstance(x.values, Matrix)  # panels hold no other order
    scale, zero = (y and replace(y, operand=y.operand.transposed) for y in (x.scale, x.zero))
    return Side(x.values.transposed, scale, zero)


def fused(
    *,
    total: DType = float32,
    result: DType | None = None,
    a: Side[Any] | None = None,
    b: Side[Any] | None = None,
    alpha: Source | None = None,
    beta: Source | None = None,
    c: Matrix | None = None,
    bias: Matrix | None = None,
    activation: Expression | None = None,
) -> tuple[Expression | None, tuple[Source, ...]]:
    """result(activation(t * s * alpha + beta * c + bias)) as (epilogue, sources), in the order of section 2 step 4.

    Args:    total: the dtype of t; integers become float32 before a scale, a float addend or an activation.
             result: the dtype that is stored, or float32 before it becomes narrower (default: as computed).
             a, b: the operands, whose scales' product s, rounded once, t is multiplied with; a result of integers is
                not scaled. Default: operands that are their elements.
             alpha, beta: of what is computed in; None has the bits of 1.   activation: of one float32 input.
             bias: an int32 one is part of t, which is then int64 (section 3).
    Returns: sources in the order c, bias, alpha, beta.
    """
    chain, sources = Chain(), list[Source]()
    taken = shared((name, side) for name, side in (("a", a), ("b", b)) if side)
    scales = [name for name in taken if name.endswith("_scale") and (result is None or result.is_float)]
    exact = bias is not None and bias.dtype is int32
    kind = int64 if exact else total
    if total.is_integer and (result is None or result.is_float):
        steps = (alpha, c, None if exact else bias, activation, result)
        kind = float32 if scales or any(x is not None for x in steps) else kind

    def source(x: Source, dtype: DType = kind) -> ExpressionValue:
        sources.append(x)
        return chain.input(dtype)

    t = chain.input(total)
    inputs = {name: chain.input(kind if name in scales else x.operand.dtype) for name, x in taken.items()}
    factors, addends = [inputs[name] for name in scales], [source(x) for x in (c,) if x is not None]
    last = source(bias, int32 if exact else kind) if bias is not None else None
    value = t
    if exact and last:
        value = chain.apply("add", *(x if x.dtype is int64 else chain.apply("cast", x, dtype=int64) for x in (t, last)))
    if kind is not value.dtype:
        value = chain.apply("cast", value, dtype=kind)
    if factors:
        value = chain.apply("mul", value, chain.apply("mul", *factors) if factors[1:] else factors[0])
    if alpha is not None:
        value = chain.apply("mul", value, source(alpha))
    for addend in addends:
        if beta is not None:
            addend = chain.apply("mul", source(beta), addend)
        value = chain.apply("add", value, addend)
    if last and not exact:
        value = chain.apply("add", value, last)
    if activation is not None:
        (value,) = chain.include(activation, value)
    if result is not None and result.width_bits >= 32 and result is not value.dtype:
        value = chain.apply("cast", value, dtype=result)
    if value is t and not (taken or sources):
        return None, ()
    return chain.finish(value), tuple(sources)


def requantized(
    *, total: DType, a: Side[Any], b: Side[Any], out: Side[Any], bias: Matrix | None = None, fits: bool = False
) -> tuple[Expression, tuple[Source, ...]]:
    """t + bias times the scales of a and b over that of out, plus out's zero point, as (epilogue, sources): section 3.

    Args:    total: int32 or int64, the dtype of t.   a, b, out: each with a scale, out with a zero point of its dtype,
             int8 or uint8.   bias: int32, added exactly.   fits: whether no sum with it leaves an int32 total.
    Returns: the bias, if there is one, is the source.
    """
    chain, taken = Chain(), shared((("a", a), ("b", b), ("out", out)))
    t = chain.input(total)
    inputs = {name: chain.input(x.operand.dtype) for name, x in taken.items()}
    given = [inputs[name] for name in ("a_scale", "b_scale", "out_scale", "out_zero")]
    addend = chain.input(bias.dtype) if bias else None
    if addend is not None and total is int32 and not fits:
        value = chain.apply("requantize_sum", t, addend, *given)
    else:
        if total is not int32:
            t = chain.apply("cast", t, dtype=float64)  # exact: K is at most engine.LONGEST
        if addend is not None:
            t = chain.apply("add", t, addend if total is int32 else chain.apply("cast", addend, dtype=float64))
        value = chain.apply("requantize", t, *given)
    assert value.dtype is out.dtype
    return chain.finish(value), (bias,) if bias else ()
