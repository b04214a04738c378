"""What a product multiplies: two operands as facts, made one shape of problem, or refused.

Start at `factors`; `product.describe` goes on from there.
"""

from __future__ import annotations

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import DTypeError, OptionError, ShapeError
from samebits.frozen import dataclass, replace
from samebits.kernels import spread
from samebits.kernels.gemm.contraction import Matrix, Panels
from samebits.kernels.gemm.packed import PackedFacts
from samebits.layout import Shape
from samebits.operations.lying import Lying, check_factor, matrix
from samebits.operations.names import Names
from samebits.operations.sharing import Lines
from samebits.shapes import broadcast_extents

BYTES = (dtypes.int8, dtypes.uint8)
HALVES = (dtypes.float32, dtypes.bfloat16, dtypes.float16)


@dataclass(frozen=True, slots=True)
class Factors:
    """What is multiplied: a[batch..., m, k] and b[batch..., k, n].

    `vectors`: which operand lacks its outer axis.   `ranks`: as they were given.   `floats`: what a is quantised from.
    `in_bytes`: which operand's elements lie within bytes.   `total`: what is summed in; of integers it is known when
    their zero points are.   `by_block`: what blocks share.
    """

    call: str
    names: Names
    m: int
    k: int
    n: int
    batch: Shape
    vectors: tuple[bool, bool]
    ranks: tuple[int, int]
    a: Matrix
    b: Matrix | Panels
    floats: Matrix | None
    in_bytes: tuple[bool, bool]
    total: DType
    by_block: tuple[str, ...] = ()

    @property
    def whole(self) -> Shape:
        """Of the result as [..., M, N]."""
        return (*self.batch, self.m, self.n)

    @property
    def shape(self) -> Shape:
        """Of the result as it is returned."""
        rows, columns = ((extent,) for extent in self.whole[-2:])
        return (*self.batch, *(() if self.vectors[0] else rows), *(() if self.vectors[1] else columns))

    @property
    def is_exact(self) -> bool:
        """Whether both operands are integers, and sums are not of scaled blocks."""
        return self.a.dtype.is_integer and self.b.dtype.is_integer and not self.by_block

    @property
    def given_for(self) -> str:
        """What an option that is for exact sums of integers alone was given for."""
        return f"given for {self.a.dtype.name} and {self.b.dtype.name}{' in blocks' if self.by_block else ''}"

    @property
    def computed(self) -> DType:
        """What the sum is scaled, and addends are added, in."""
        return self.total if self.total.is_float else dtypes.float32

    @property
    def rows(self) -> Lines:
        """a as its scales and zero points see it."""
        return Lines.of_a(self.names, self.m, self.k, self.batch, self.ranks[0])

    @property
    def columns(self) -> Lines:
        """b as its scales and zero points see it."""
        return Lines.of_b(self.names, self.n, self.k, self.batch, self.ranks[1])


def factors(
    call: str, names: Names, a: Lying, b: Lying | PackedFacts, a_dtype: DType | None, has_blocks: bool = False
) -> Factors:
    """What is multiplied, and that it can be; `has_blocks`: of a, whose integers then are numbers like floats.

    Raises:  DTypeError, ShapeError, OptionError.
    """
    check_factor(call, names.a, a.dtype)
    if isinstance(b, Lying):
        check_factor(call, names.b, b.dtype)
    left, right = a.layout, b.shape
    for name, shape in ((names.a, a.shape), (names.b, right)):
        if not shape:
            raise ShapeError(call, name, "rank", 0, "at least 1", "use multiply for a scalar")
    ranks, vectors = (len(a.shape), len(right)), (len(a.shape) == 1, len(right) == 1)
    left = left.unsqueeze(0) if vectors[0] else left
    turned = names.turned and isinstance(b, Lying)
    right = right[::-1] if turned else right
    names.check_rank(call, right)
    right = (*right, 1) if vectors[1] else right
    m, k, n = *left.shape[-2:], right[-1]
    names.check_rows(call, right[-2], k, isinstance(b, PackedFacts))
    batch = _batch(call, names, left.shape[:-2], right[:-2])
    lies = floats = matrix(call, names.a, a.seen(left), (*batch, m, k))
    if a_dtype is not None:
        lies = replace(floats, dtype=_quantised_to(call, floats.dtype, a_dtype))
    if isinstance(b, Lying):
        layout = b.layout.permute(tuple(range(len(b.shape)))[::-1]) if turned else b.layout
        layout = layout.unsqueeze(1) if vectors[1] else layout
        other: Matrix | Panels = matrix(call, names.b, b.seen(layout), (*batch, k, n))
    else:
        other = b.panels(batch)
    if lies.dtype.is_integer and other.dtype.is_float and not has_blocks:
        expected = f"one that multiplies with {lies.dtype.name}"
        remedy = f"convert {names.a} to float32" if a_dtype is None else "leave a_dtype out"
        raise DTypeError(call, names.b, "dtype", other.dtype.name, expected, remedy)
    in_bytes = spread.is_packed(a.layout), isinstance(b, Lying) and spread.is_packed(b.layout)
    quantised = None if a_dtype is None else floats
    total = dtypes.float64 if dtypes.float64 in (lies.dtype, other.dtype) else dtypes.float32
    return Factors(call, names, m, k, n, batch, vectors, ranks, lies, other, quantised, in_bytes, total)


def _batch(call: str, names: Names, x: Shape, y: Shape) -> Shape:
    """The batch dimensions of the product."""
    if x == y:
        return x
    found = broadcast_extents(x, y)
    if found is None:
        expected = f"one that broadcasts with {names.a}'s {x}"
        raise ShapeError(call, names.b, "batch shape", y, expected, "reshape one of them")
    return found


def _quantised_to(call: str, own: DType, dtype: DType) -> DType:
    """What floats a are quantised to."""
    if dtype not in BYTES:
        expected = " or ".join(row.name for row in BYTES)
        raise OptionError(call, "a_dtype", "", dtype.name, expected, "leave it out for another")
    if own not in HALVES:
        expected = " or ".join(row.name for row in HALVES)
        raise DTypeError(call, "a", "dtype", own.name, f"{expected} beside a_dtype", "leave a_dtype out")
    return dtype
