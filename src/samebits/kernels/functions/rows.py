"""One frozen row per per-element operation: its dtypes, its independent NumPy meaning, its kernel text.

An operation not listed here is a composition of rows (`kernels.composites`). Start at `ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import dtypes, ieee
from samebits.codegen.vocabulary import Builder, Vector
from samebits.dtypes import DType
from samebits.kernels.functions import exact, quantized, requantized, rounded, whole

Array = npt.NDArray[Any]

_F32 = frozenset({"float32"})
_FLOATS = frozenset({"float32", "float64"})
_INTEGERS = frozenset({"int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"})
_NUMBERS = _FLOATS | _INTEGERS
_BOOL = frozenset({"bool"})
_SUMS = frozenset({"int32", "float64"})
_HALVES = frozenset({"bfloat16", "float16"})
_BYTES = frozenset({"int8", "uint8"})
# Bits that are only moved may be of any format of whole bytes.
_ANY = frozenset(row.name for row in dtypes.ROWS if row.width_bits in (8, 16, 32, 64) and row.numpy is not None)

_CODES = _ANY - _BOOL


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """One operation.

    Attributes:
        name: As nodes say it.
        accepts: For each argument the names of the dtypes it may have; arguments with the same set have one dtype.
        result: `like` (the dtype of the last argument), the name of a dtype, or `any` (the node decides: cast).
        reference: `(result dtype, *arrays)` to an array; NaN codes are settled by the caller.
        emit: `(b, result dtype, *vectors)` to a vector.
        arithmetic: A NaN result is canonical (numerics.md section 1); otherwise bits are copied from the arguments.
        heavy: Worth keeping rather than computing twice.
    """

    name: str
    accepts: tuple[frozenset[str], ...]
    result: str
    reference: Callable[..., Array]
    emit: Callable[..., Vector]
    arithmetic: bool = True
    heavy: bool = False

    @property
    def arity(self) -> int:
        """How many arguments it takes."""
        return len(self.accepts)


def _word(word: str) -> Callable[..., Vector]:
    """The vocabulary's own word."""
    return lambda b, dtype, *vectors: getattr(b, word)(*vectors)


def _numpy(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda dtype, *arrays: function(*arrays)


def _row(
    name: str,
    accepts: tuple[frozenset[str], ...],
    reference: Callable[..., Array],
    word: str | None = None,
    **facts: Any,
) -> FunctionRow:
    """A row whose text is one word and whose reference is one NumPy function."""
    return FunctionRow(name, accepts, facts.pop("result", "like"), _numpy(reference), _word(word or name), **facts)


def _extreme(float_function: Callable[..., Array], integer_function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, y: (float_function if x.dtype.kind == "f" else integer_function)(x, y)


def _emit_reciprocal(b: Builder, dtype: DType, x: Vector) -> Vector:
    return b.div(b.like(x, 1.0), x)


def _emit_greater(b: Builder, dtype: DType, x: Vector, y: Vector) -> Vector:
    return b.less(y, x)


def _emit_greater_equal(b: Builder, dtype: DType, x: Vector, y: Vector) -> Vector:
    return b.less_equal(y, x)


def _emit_cast(b: Builder, dtype: DType, x: Vector) -> Vector:
    return b.convert(x, dtype)


def _emit_copy(b: Builder, dtype: DType, x: Vector) -> Vector:
    return x


def _emit_exp(b: Builder, dtype: DType, x: Vector) -> Vector:
    return rounded.emit(b, rounded.EXP_BY_TABLE if b.isa.lanes >= 16 else rounded.EXP, x)


def _emit_rounded(row: rounded.CorrectlyRounded) -> Callable[..., Vector]:
    return lambda b, dtype, x: rounded.emit(b, row, x)


def _emit_quantize(b: Builder, dtype: DType, x: Vector, scale: Vector, zero: Vector) -> Vector:
    return quantized.emit(b, dtype, x, scale, zero)


def _emit_widen(b: Builder, dtype: DType, x: Vector) -> Vector:
    return quantized.widen(b, b.bitcast(x, dtypes.uint16), x.dtype)


def _emit_requantize(b: Builder, dtype: DType, *vectors: Vector) -> Vector:
    return requantized.emit(b, dtype, *vectors)


def _emit_bitcast(b: Builder, dtype: DType, x: Vector) -> Vector:
    return b.bitcast(x, dtype)


def _reinterpreted(dtype: DType, x: Array) -> Array:
    """The same codes as elements of another format, as wide."""
    assert dtype.numpy is not None  # every format that kernels know has one
    return x.view(dtype.numpy)


def _reciprocal(x: Array) -> Array:
    return np.asarray(x.dtype.type(1) / x)


def _cast(dtype: DType, x: Array) -> Array:
    """By value; float to integer goes toward zero and saturates, NaN gives 0."""
    target = np.dtype(dtype.numpy)
    if x.dtype.kind != "f" or not dtype.is_integer:
        return np.asarray(x != 0) if dtype.kind == "bool" else x.astype(target)
    whole = np.trunc(np.where(np.isnan(x), 0, x))
    above, below = whole >= float(dtype.max) + 1, whole <= float(dtype.min) - 1
    inside = np.where(above | below, 0, whole)
    limits = np.iinfo(target)
    # Next to 2**63 a float steps by more than one, so `inside` may equal the limit as a float and not fit.
    fits = (inside >= float(limits.min)) & (inside < float(limits.max) + 1)
    result = np.where(fits, inside, 0).astype(target)
    result = np.where(above | (~fits & (inside > 0)), target.type(limits.max), result)
    return np.where(below, target.type(limits.min), result)


_PAIR = (_NUMBERS, _NUMBERS)
_FLOAT_PAIR = (_FLOATS, _FLOATS)
_INTEGER_PAIR = (_INTEGERS, _INTEGERS)
_TRUTHS = (_BOOL, _BOOL)

ROWS: tuple[FunctionRow, ...] = (
    _row("add", _PAIR, np.add),
    _row("sub", _PAIR, np.subtract),
    _row("mul", _PAIR, np.multiply),
    _row("div", _FLOAT_PAIR, np.divide, heavy=True),
    _row("fma", (_FLOATS, _FLOATS, _FLOATS), ieee.fma),
    _row("sqrt", (_FLOATS,), np.sqrt, heavy=True),
    FunctionRow("reciprocal", (_FLOATS,), "like", _numpy(_reciprocal), _emit_reciprocal, heavy=True),
    _row("maximum", _PAIR, _extreme(ieee.maximum, np.maximum)),
    _row("minimum", _PAIR, _extreme(ieee.minimum, np.minimum)),
    _row("rint", (_FLOATS,), np.rint),
    _row("neg", (_NUMBERS,), np.negative, arithmetic=False),
    _row("abs", (_NUMBERS,), np.abs, arithmetic=False),
    _row("equal", _PAIR, np.equal, result="bool"),
    _row("less", _PAIR, np.less, result="bool"),
    _row("less_equal", _PAIR, np.less_equal, result="bool"),
    FunctionRow("greater", _PAIR, "bool", _numpy(np.greater), _emit_greater),
    FunctionRow("greater_equal", _PAIR, "bool", _numpy(np.greater_equal), _emit_greater_equal),
    _row("is_nan", (_FLOATS,), np.isnan, result="bool"),
    _row("logical_and", _TRUTHS, np.logical_and, "bit_and"),
    _row("logical_or", _TRUTHS, np.logical_or, "bit_or"),
    _row("logical_xor", _TRUTHS, np.logical_xor, "bit_xor"),
    _row("logical_not", (_BOOL,), np.logical_not, "invert"),
    _row("where", (_BOOL, _ANY, _ANY), np.where, "select", arithmetic=False),
    FunctionRow("copy", (_ANY,), "like", _numpy(np.array), _emit_copy, arithmetic=False),
    FunctionRow("cast", (_NUMBERS | _BOOL,), "any", _cast, _emit_cast),
    FunctionRow("widen", (_HALVES,), "float32", lambda dtype, x: x.astype(np.float32), _emit_widen, arithmetic=False),
    FunctionRow("quantize", (_F32, _F32, _BYTES), "like", _numpy(exact.quantize), _emit_quantize, heavy=True),
    FunctionRow(
        "requantize", (_SUMS, _F32, _F32, _F32, _BYTES), "like", _numpy(exact.requantize), _emit_requantize, heavy=True
    ),
    FunctionRow("exp", (_F32,), "like", _numpy(exact.exp), _emit_exp, heavy=True),
    FunctionRow("erf", (_F32,), "like", _numpy(exact.erf), _emit_rounded(rounded.ERF), heavy=True),
    FunctionRow("floor", (_FLOATS,), "like", _numpy(np.floor), whole.floor),
    FunctionRow("ceil", (_FLOATS,), "like", _numpy(np.ceil), whole.ceil),
    FunctionRow("sign", (_NUMBERS,), "like", _numpy(np.sign), whole.sign),
    FunctionRow("quotient", _INTEGER_PAIR, "like", _numpy(whole.truncated), whole.quotient, heavy=True),
    FunctionRow("mod", _INTEGER_PAIR, "like", _numpy(np.mod), whole.mod, heavy=True),
    FunctionRow("fmod", _INTEGER_PAIR, "like", _numpy(np.fmod), whole.fmod, heavy=True),
    _row("bit_and", _INTEGER_PAIR, np.bitwise_and),
    _row("bit_or", _INTEGER_PAIR, np.bitwise_or),
    _row("bit_xor", _INTEGER_PAIR, np.bitwise_xor),
    FunctionRow("bit_not", (_INTEGERS,), "like", _numpy(np.bitwise_not), whole.bit_not),
    FunctionRow("shift_left", _INTEGER_PAIR, "like", _numpy(np.left_shift), whole.shift_left),
    FunctionRow("bitcast", (_CODES,), "any", _reinterpreted, _emit_bitcast, arithmetic=False),
    FunctionRow("shift_right", _INTEGER_PAIR, "like", _numpy(np.right_shift), whole.shift_right),
)
