"""One frozen row per per-element operation: its dtypes, its independent NumPy meaning, its kernel text.

An operation not listed here is a composition of rows (`kernels.composites`). Start at `ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import dtypes, ieee
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Vector
from samebits.conversions import SB1, Conversion
from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels import convert
from samebits.kernels.functions import exact

Array = npt.NDArray[Any]

# Bits that are only moved, and numbers that are only converted, may be of any format, an element in whole bytes.
_ANY = frozenset(row.name for row in dtypes.ROWS if row.numpy is not None)
_CODED = frozenset(row.name for row in dtypes.ROWS if row.name in _ANY and row.is_float and convert.is_coded(row))
# Of a format of powers of two alone sums and quotients mean nothing.
_POWERS = frozenset(row.name for row in dtypes.ROWS if not row.has_zero)
_F32 = frozenset({"float32"})
_SINGLES = _F32 | (_CODED - _POWERS)
_FLOATS = _SINGLES | {"float64"}
_INTEGERS = frozenset({"int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"})
_NUMBERS = _FLOATS | _INTEGERS
_BOOL = frozenset({"bool"})
_ORDERED = _NUMBERS | (_CODED & _POWERS)
_INT32 = frozenset({"int32"})
_SUMS = frozenset({"int32", "float64"})
_BYTES = frozenset({"int8", "uint8"})
# How messages call the sets that are too long to be listed.
MEANT = {
    _ANY: "any dtype",
    _SINGLES: "any float with a zero but float64",
    _FLOATS: "any float with a zero",
    _FLOATS | _POWERS: "any float",
    _NUMBERS: "any float with a zero or integer of whole bytes",
    _ORDERED: "any float or integer of whole bytes",
}

_CODES = _ANY - _BOOL
# The floats whose numbers lie in the order of their codes up to an infinity.
_STEPPED = frozenset({"float64", "float32", "float16", "bfloat16"})


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """One operation.

    Attributes:
        name: As nodes say it.
        accepts: For each argument the names of the dtypes it may have; arguments with the same set have one dtype.
        result: `like` (the dtype of the last argument), the name of a dtype, or `any` (the node decides: cast).
        reference: `(result dtype, *arrays, *attribute)` to an array; NaN codes are settled by the caller.
        emit: `(b, result dtype, *vectors, *attribute)` to a vector.
        arithmetic: A NaN result is canonical (numerics.md section 1); otherwise bits are copied from the arguments.
        heavy: Worth keeping rather than computing twice.
        paired: Lanes of a register from which on float32 is computed in pairs of float32; then `emit` itself makes NaN
            canonical, which costs only the few vectors that have one. None: there is no such text.

    `reference` and `emit` of what computes are given no float narrower than float32: `meaning` and `lanes` convert.
    """

    name: str
    accepts: tuple[frozenset[str], ...]
    result: str
    reference: Callable[..., Array]
    emit: Callable[..., Vector]
    arithmetic: bool = True
    heavy: bool = False
    paired: int | None = None

    @property
    def arity(self) -> int:
        """How many arguments it takes."""
        return len(self.accepts)

    def is_paired(self, dtype: DType, isa: Isa) -> bool:
        """Whether a result of this dtype is computed in pairs of float32 on an Isa row."""
        return _is_paired(self.paired, dtype, isa)

    @property
    def computes(self) -> bool:
        """Whether narrower floats are computed in float32, the result rounded to its dtype."""
        return self.arithmetic and self.result != "any"

    def lanes(self, b: Builder, dtype: DType, *vectors: Vector, attribute: tuple[Any, ...] = ()) -> Vector:
        """The operation in kernel text: vectors of the arguments' dtypes to one of `dtype`, the result's.

        Args:    attribute: the node's: a cast may have a conversion; or what `texts.FIRST` computed already.
        """
        if not self.computes:
            return self.emit(b, dtype, *vectors, *attribute)
        found = self.emit(b, convert.computed(dtype), *(convert.number(b, x) for x in vectors), *attribute)
        return convert.cast(b, found, dtype) if convert.is_coded(dtype) else found

    def meaning(self, dtype: DType, *arrays: Array, attribute: tuple[Any, ...] = ()) -> Array:
        """The operation by NumPy: arrays of the arguments' dtypes to one of `dtype`, the result's."""
        if not self.computes:
            return np.asarray(self.reference(dtype, *arrays, *attribute))
        found = np.asarray(self.reference(convert.computed(dtype), *map(exact.widened, arrays)))
        return exact.cast(dtype, found) if convert.is_coded(dtype) else found


def _is_paired(lanes: int | None, dtype: DType, isa: Isa) -> bool:
    return lanes is not None and isa.lanes >= lanes and dtype is dtypes.float32


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


def _emit_not_equal(b: Builder, dtype: DType, x: Vector, y: Vector) -> Vector:
    return b.invert(b.equal(x, y))


def _emit_cast(b: Builder, dtype: DType, x: Vector, conversion: Conversion = SB1) -> Vector:
    return convert.cast(b, x, dtype, conversion)


def _emit_neg(b: Builder, dtype: DType, x: Vector) -> Vector:
    """The sign bit turned; a format without -0 keeps its 0, and its NaN, which has that code."""
    if not convert.is_coded(dtype):
        return b.neg(x)
    code, sign = b.bitcast(x, convert.stored(dtype)), 1 << dtype.width_bits - 1
    turned = b.bit_xor(code, b.like(code, sign))
    if not dtype.has_negative_zero:
        nothing = b.equal(b.bit_and(code, b.like(code, sign - 1)), b.like(code, 0))
        turned = b.select(nothing, code, turned)
    return b.bitcast(turned, dtype)


def _emit_abs(b: Builder, dtype: DType, x: Vector) -> Vector:
    """Without the sign bit; a format without -0 keeps its NaN, which is the sign bit alone."""
    if not convert.is_coded(dtype):
        return b.abs(x)
    code, sign = b.bitcast(x, convert.stored(dtype)), 1 << dtype.width_bits - 1
    found = b.bit_and(code, b.like(code, convert.stored(dtype).max - sign))
    if not dtype.has_negative_zero:
        found = b.select(b.equal(code, b.like(code, sign)), code, found)
    return b.bitcast(found, dtype)


def _emit_copy(b: Builder, dtype: DType, x: Vector) -> Vector:
    return x


def _of_words(name: str, paired: int | None = None) -> Callable[..., Vector]:
    """A text of several words: that of `texts`, which a process that finds its kernels compiled does without."""

    def emit(b: Builder, dtype: DType, *vectors: Vector) -> Vector:
        from samebits.kernels.functions import texts

        if _is_paired(paired, dtype, b.isa):
            return texts.PAIRED[name](b, *vectors)
        return texts.TEXTS[name](b, dtype, *vectors)

    return emit


def _meant(name: str) -> Callable[..., Array]:
    """A meaning that is no function of NumPy's."""

    def meaning(dtype: DType, *arrays: Array) -> Array:
        from samebits.kernels.functions import texts

        return texts.MEANINGS[name](dtype, *arrays)

    return meaning


def _composed(
    name: str, accepts: tuple[frozenset[str], ...], reference: Callable[..., Array] | None = None, **facts: Any
) -> FunctionRow:
    """A row whose text has several words; a reference that is not given is in `texts` too."""
    means = _meant(name) if reference is None else _numpy(reference)
    return FunctionRow(name, accepts, facts.pop("result", "like"), means, _of_words(name, facts.get("paired")), **facts)


def _emit_bitcast(b: Builder, dtype: DType, x: Vector) -> Vector:
    return b.bitcast(x, dtype)


def _reinterpreted(dtype: DType, x: Array) -> Array:
    """The same codes as elements of another format, as wide."""
    assert dtype.numpy is not None  # every format that kernels know has one
    return x.view(dtype.numpy)


def _reciprocal(x: Array) -> Array:
    return np.asarray(x.dtype.type(1) / x)


_PAIR = (_NUMBERS, _NUMBERS)
_ORDERED_PAIR = (_ORDERED, _ORDERED)
_FLOAT_PAIR = (_FLOATS, _FLOATS)
_INTEGER_PAIR = (_INTEGERS, _INTEGERS)
_TRUTHS = (_BOOL, _BOOL)

# Correctly rounded in float32, and from how many lanes of a register on pairs of float32 are faster than float64: as
# many as its table has entries, or half of them. None: there is no text of pairs.
ROUNDED: Mapping[str, int | None] = {
    "exp": 8, "erf": 8, "log": 16, "log2": 16, "log10": 16, "log1p": 16, "exp2": 8, "expm1": None, "tanh": 8,
    "sigmoid": 8, "sin": None, "cos": None,
}  # fmt: skip

ROWS: tuple[FunctionRow, ...] = (
    _row("add", _PAIR, np.add),
    _row("sub", _PAIR, np.subtract),
    _row("mul", _PAIR, np.multiply),
    _row("div", _FLOAT_PAIR, np.divide, heavy=True),
    _row("fma", (_FLOATS, _FLOATS, _FLOATS), ieee.fma),
    _row("sqrt", (_FLOATS,), np.sqrt, heavy=True),
    FunctionRow("reciprocal", (_FLOATS,), "like", _numpy(_reciprocal), _emit_reciprocal, heavy=True),
    _row("maximum", _ORDERED_PAIR, _extreme(ieee.maximum, np.maximum)),
    _row("minimum", _ORDERED_PAIR, _extreme(ieee.minimum, np.minimum)),
    _row("rint", (_FLOATS,), np.rint),
    FunctionRow("neg", (_NUMBERS,), "like", _numpy(np.negative), _emit_neg, arithmetic=False),
    FunctionRow("abs", (_NUMBERS,), "like", _numpy(np.abs), _emit_abs, arithmetic=False),
    _row("equal", _ORDERED_PAIR, np.equal, result="bool"),
    FunctionRow("not_equal", _ORDERED_PAIR, "bool", _numpy(np.not_equal), _emit_not_equal),
    _row("less", _ORDERED_PAIR, np.less, result="bool"),
    _row("less_equal", _ORDERED_PAIR, np.less_equal, result="bool"),
    FunctionRow("greater", _ORDERED_PAIR, "bool", _numpy(np.greater), _emit_greater),
    FunctionRow("greater_equal", _ORDERED_PAIR, "bool", _numpy(np.greater_equal), _emit_greater_equal),
    _row("is_nan", (_FLOATS | _POWERS,), np.isnan, result="bool"),
    _composed("is_finite", (_FLOATS,), np.isfinite, result="bool"),
    _composed("is_infinite", (_FLOATS,), np.isinf, result="bool"),
    _composed("sign_bit", (_FLOATS,), np.signbit, result="bool", arithmetic=False),
    _composed("next_after", (_STEPPED, _STEPPED), arithmetic=False),
    _row("logical_and", _TRUTHS, np.logical_and, "bit_and"),
    _row("logical_or", _TRUTHS, np.logical_or, "bit_or"),
    _row("logical_xor", _TRUTHS, np.logical_xor, "bit_xor"),
    _row("logical_not", (_BOOL,), np.logical_not, "invert"),
    _row("where", (_BOOL, _ANY, _ANY), np.where, "select", arithmetic=False),
    FunctionRow("copy", (_ANY,), "like", _numpy(np.array), _emit_copy, arithmetic=False),
    FunctionRow("cast", (_ANY,), "any", exact.cast, _emit_cast),
    _composed("quantize", (_F32, _F32, _BYTES), exact.quantize, heavy=True),
    _composed("requantize", (_SUMS, _F32, _F32, _F32, _BYTES), exact.requantize, heavy=True),
    _composed("requantize_sum", (_INT32, _INT32, _F32, _F32, _F32, _BYTES), exact.requantize_sum, heavy=True),
    *[_composed(name, (_FLOATS,), heavy=True, paired=lanes) for name, lanes in ROUNDED.items()],
    _composed("pow", _PAIR, heavy=True),
    _composed("floor", (_FLOATS,), np.floor),
    _composed("ceil", (_FLOATS,), np.ceil),
    _composed("trunc", (_FLOATS,), np.trunc),
    _composed("sign", (_NUMBERS,), np.sign),
    _composed("quotient", _INTEGER_PAIR, heavy=True),
    _composed("mod", _PAIR, np.mod, heavy=True),
    _composed("fmod", _PAIR, np.fmod, heavy=True),
    _composed("gcd", _INTEGER_PAIR, np.gcd, heavy=True),
    _row("bit_and", _INTEGER_PAIR, np.bitwise_and),
    _row("bit_or", _INTEGER_PAIR, np.bitwise_or),
    _row("bit_xor", _INTEGER_PAIR, np.bitwise_xor),
    _composed("bit_not", (_INTEGERS,), np.bitwise_not),
    _composed("shift_left", _INTEGER_PAIR, np.left_shift),
    FunctionRow("bitcast", (_CODES,), "any", _reinterpreted, _emit_bitcast, arithmetic=False),
    _composed("shift_right", _INTEGER_PAIR, np.right_shift),
)
