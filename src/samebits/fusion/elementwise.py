"""Operations with one value an element: how `fd.ops` defines them, and what of our rows each becomes.

Start at `ROWS`; `define` is the call, `lower` the way to nodes of a program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import FusionError
from samebits.frozen import dataclass
from samebits.fusion import datatypes, promotion
from samebits.fusion.datatypes import DataType
from samebits.fusion.graph import Expr, Fusion, Scalar, TensorAxis, TensorView, Val
from samebits.kernels import activations, arithmetic, composites
from samebits.kernels.expression import Expression
from samebits.program.builder import ProgramBuilder

if TYPE_CHECKING:
    from samebits.fusion.lowering import Lowering

__all__ = ["LOWERED", "ROWS", "FusedFunction", "define", "joined"]

Built = Callable[..., str]


@dataclass(frozen=True, slots=True)
class FusedFunction:
    """One operation.

    Attributes:
        lower: `(builder, dtype, *names)` to the name of its value; the names are of values of that dtype.
        to_float: Whether integers and truths are computed in Float.
        full: Whether formats narrower than Float are; else they are computed as `numerics.md` says.
        is_truth: Whether it gives truths.
        takes: What operands may be: `any`, `bits` (integers and truths), `integers`, `floats` (Float and Double, once
            promoted), `truths` (what is none is cast).
    """

    lower: Built
    to_float: bool = False
    full: bool = True
    is_truth: bool = False
    takes: str = "any"


def _op(name: str) -> Built:
    """One of our functions."""
    return lambda b, dtype, *names: b.apply(name, *names)


def _by_kind(floats: str | Built, integers: str | Built, truths: str | Built | None = None) -> Built:
    """Another function for floats, integers and truths."""
    chosen = [_op(each) if isinstance(each, str) else each for each in (floats, integers, truths or integers)]
    return lambda b, dtype, *names: chosen[0 if dtype.is_float else 2 if dtype.kind == "bool" else 1](b, dtype, *names)


def _same(b: ProgramBuilder, dtype: DType, x: str) -> str:
    return x


def _truth(value: bool) -> Built:
    """The same truth for every element."""

    def lower(b: ProgramBuilder, dtype: DType, x: str) -> str:
        zero = b.apply("bit_xor", b.cast(x, dtypes.uint8), b.cast(x, dtypes.uint8))
        return b.apply("equal" if value else "not_equal", zero, b.scalar(0, dtypes.uint8))

    return lower


def _expression(of: Callable[[DType], Expression]) -> Built:
    return lambda b, dtype, *names: b.map(of(dtype), *names)[0]


def _below_zero(b: ProgramBuilder, dtype: DType, x: str) -> str:
    return b.apply("less", x, b.scalar(0, dtype))


def _equals(number: float) -> Built:
    """Whether x is a number."""
    return lambda b, dtype, x: b.apply("equal", x, b.scalar(number, dtype))


def _compared(op: str) -> Built:
    """A comparison, of truths as 0 and 1."""

    def lower(b: ProgramBuilder, dtype: DType, *names: str) -> str:
        if dtype.kind == "bool":
            names = tuple(b.cast(name, dtypes.uint8) for name in names)
        return b.apply(op, *names)

    return lower


_INFINITY = float("inf")

UNARY: dict[str, FusedFunction] = {
    "abs": FusedFunction(_by_kind("abs", "abs", _same), full=False),
    "ceil": FusedFunction(_by_kind("ceil", _same), full=False),
    "floor": FusedFunction(_by_kind("floor", _same), full=False),
    "round": FusedFunction(_by_kind("rint", _same), full=False),
    "trunc": FusedFunction(_by_kind("trunc", _same), full=False),
    "frac": FusedFunction(_by_kind(_expression(arithmetic.frac), lambda b, dtype, x: b.apply("sub", x, x)), full=False),
    "relu": FusedFunction(_by_kind(_expression(composites.relu), _expression(composites.relu), _same), full=False),
    "silu": FusedFunction(_expression(activations.silu), to_float=True, full=False),
    "neg": FusedFunction(_by_kind("neg", "neg", _same)),
    "sign": FusedFunction(_by_kind("sign", "sign", _same), full=False),
    "logical_not": FusedFunction(_op("logical_not"), takes="truths"),
    "bitwise_not": FusedFunction(_by_kind("bit_not", "bit_not", "logical_not"), takes="bits"),
    "set": FusedFunction(_op("copy"), full=False),
    "segment_set": FusedFunction(_op("copy"), full=False),
    "reciprocal": FusedFunction(_op("reciprocal"), to_float=True),
    "rsqrt": FusedFunction(_expression(arithmetic.rsqrt), to_float=True),
    "signbit": FusedFunction(_by_kind("sign_bit", _below_zero, _truth(False)), is_truth=True),
    "isfinite": FusedFunction(_by_kind("is_finite", _truth(True)), is_truth=True),
    "isinf": FusedFunction(_by_kind("is_infinite", _truth(False)), is_truth=True),
    "isnan": FusedFunction(_by_kind("is_nan", _truth(False)), is_truth=True),
    "isneginf": FusedFunction(_by_kind(_equals(-_INFINITY), _truth(False)), is_truth=True),
    "isposinf": FusedFunction(_by_kind(_equals(_INFINITY), _truth(False)), is_truth=True),
    "isreal": FusedFunction(_truth(True), is_truth=True),
    **{
        name: FusedFunction(_op(name), to_float=True)
        for name in ("exp", "exp2", "expm1", "erf", "log", "log2", "log10", "log1p", "sqrt", "sigmoid", "sin", "cos")
    },
    "tanh": FusedFunction(_op("tanh"), to_float=True),
}

BINARY: dict[str, FusedFunction] = {
    "add": FusedFunction(_by_kind("add", "add", "logical_or")),
    "sub": FusedFunction(_by_kind("sub", "sub", "logical_xor")),
    "mul": FusedFunction(_by_kind("mul", "mul", "logical_and")),
    "div": FusedFunction(_by_kind("div", "quotient", "logical_and")),
    "truediv": FusedFunction(_op("div"), to_float=True),
    "gcd": FusedFunction(_op("gcd"), takes="integers"),
    "nextafter": FusedFunction(_op("next_after"), full=False, takes="floats"),
    "pow": FusedFunction(_op("pow")),
    "mod": FusedFunction(_op("fmod"), takes="integers"),
    "fmod": FusedFunction(_op("fmod")),
    "remainder": FusedFunction(_op("mod")),
    "minimum": FusedFunction(_by_kind("minimum", "minimum", "logical_and")),
    "maximum": FusedFunction(_by_kind("maximum", "maximum", "logical_or")),
    "eq": FusedFunction(_compared("equal"), is_truth=True),
    "ne": FusedFunction(_compared("not_equal"), is_truth=True),
    "lt": FusedFunction(_compared("less"), is_truth=True),
    "le": FusedFunction(_compared("less_equal"), is_truth=True),
    "gt": FusedFunction(_compared("greater"), is_truth=True),
    "ge": FusedFunction(_compared("greater_equal"), is_truth=True),
    "logical_and": FusedFunction(_op("logical_and"), takes="truths"),
    "logical_or": FusedFunction(_op("logical_or"), takes="truths"),
    "bitwise_and": FusedFunction(_by_kind("bit_and", "bit_and", "logical_and"), takes="bits"),
    "bitwise_or": FusedFunction(_by_kind("bit_or", "bit_or", "logical_or"), takes="bits"),
    "bitwise_xor": FusedFunction(_by_kind("bit_xor", "bit_xor", "logical_xor"), takes="bits"),
    "bitwise_left_shift": FusedFunction(_op("shift_left"), takes="integers"),
    "bitwise_right_shift": FusedFunction(_op("shift_right"), takes="integers"),
    "logical_right_shift": FusedFunction(_expression(arithmetic.logical_right_shift), takes="integers"),
}

ROWS: dict[str, FusedFunction] = {**UNARY, **BINARY}
_TAKEN = {"bits": "integers or truths", "integers": "integers", "floats": "Float or Double"}


def joined(call: str, tensors: Sequence[TensorView]) -> list[TensorAxis]:
    """The axes that tensors broadcast to, aligned at the last; axes that meet have one extent from now on.

    Raises:  FusionError if extents that are known differ.
    """
    fusion, rank = tensors[0].fusion, max(x.ndim for x in tensors)
    made: list[TensorAxis] = []
    for place in range(-rank, 0):
        axes = [x.axes[place] for x in tensors if -place <= x.ndim]
        wide = [axis.length for axis in axes if not axis.is_broadcast or axis.expanded is not None]
        if not wide:
            made.append(fusion.new_axis(axes[0].size))
            continue
        size = functools.reduce(lambda x, y: matched(call, fusion, place, x, y), wide)
        if all(axis.is_broadcast for axis in axes):
            made.append(fusion.new_axis(fusion.constant(1), expanded=size))
        else:
            made.append(fusion.new_axis(size))
    return made


def matched(call: str, fusion: Fusion, place: int, x: Scalar, y: Scalar) -> Scalar:
    """The extent that two axes have.

    Raises:  FusionError if they are known to differ.
    """
    a, b = fusion.root(x).value, fusion.root(y).value
    if a is not None and b is not None and a != b:
        expected, remedy = "equal, or one of them a broadcast axis", "broadcast one of the operands"
        raise FusionError(call, f"operands' extents of axis {place}", "", f"{a} and {b}", expected, remedy)
    return fusion.same(x, y)


def define(name: str, *operands: object) -> Val:
    """An operation of `ROWS` applied to tensors, scalars and Python numbers: a tensor if one operand is.

    Raises:  FusionError if operands do not fit each other or the operation.
    """
    row, fusion = ROWS[name], promotion.fusion_of(name, *operands)
    given = [promotion.as_val(name, fusion, x) for x in operands]
    if row.takes == "truths":
        given = [promotion.cast(x, DataType.Bool) for x in given]
    _check(name, row.takes, given)
    dtype = promotion.common(given, to_float=row.to_float, full=row.full)
    taken = promotion.promote(given, dtype)
    return value(fusion.record(name, taken), DataType.Bool if row.is_truth else dtype)


def value(made: Expr, dtype: DataType) -> Val:
    """The output of an operation over operands that broadcast: a tensor if one of them is."""
    tensors = made.tensors
    if tensors:
        return tensors[0].fusion.tensor(made, dtype, joined(made.op, tensors))
    return next(made.inputs).fusion.scalar(made, dtype)


def _check(name: str, takes: str, operands: Sequence[Val]) -> None:
    """Raise FusionError unless operands have formats that the operation takes."""
    if takes not in _TAKEN:
        return
    for x in operands:
        if takes == "floats":
            is_taken = datatypes.is_float(x.dtype) and not datatypes.needs_float(x.dtype)
        else:
            is_taken = datatypes.is_integer(x.dtype) or (takes == "bits" and x.dtype is DataType.Bool)
        if not is_taken:
            raise FusionError(name, "operand", "dtype", x.dtype, _TAKEN[takes], "cast it first")


def _lower(low: Lowering, expr: Expr) -> list[str]:
    """The node, or the nodes, of an operation of `ROWS`."""
    row, operands = ROWS[expr.op], [*expr.inputs]
    dtype = datatypes.row_of(expr.op, "operand", promotion.common(operands, to_float=row.to_float, full=row.full))
    return [row.lower(low.b, dtype, *[low.operand(x, dtype) for x in operands])]


LOWERED = dict.fromkeys(ROWS, _lower)
