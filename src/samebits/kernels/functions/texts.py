"""Rows of functions whose text has several words: their texts, and the meanings that are no functions of NumPy's.

They are apart from `rows` because a process that finds its kernels compiled needs none of them, and they take a tenth
of the package's import. Start at `TEXTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.dtypes import DType
from samebits.kernels.functions import (
    bounded_gelu,
    decimals,
    doubles,
    error_function,
    exponentials,
    logarithms,
    neighbours,
    paired_error,
    paired_exponential,
    paired_logarithm,
    paired_quotients,
    power,
    quantized,
    remainders,
    requantized,
    rounded,
    sequences,
    trigonometric,
    whole,
)
from samebits.kernels.functions.rounded import CorrectlyRounded

Array = npt.NDArray[Any]

# The correctly rounded functions, each with its independent meaning.
ROUNDED: tuple[tuple[CorrectlyRounded, Callable[[Array], Array]], ...] = (
    (exponentials.EXP, decimals.exp),
    (error_function.ERF, decimals.erf),
    (logarithms.LOG, decimals.log),
    (logarithms.LOG2, decimals.log2),
    (logarithms.LOG10, decimals.log10),
    (logarithms.LOG1P, decimals.log1p),
    (exponentials.EXP2, decimals.exp2),
    (exponentials.EXPM1, decimals.expm1),
    (exponentials.TANH, decimals.tanh),
    (exponentials.SIGMOID, decimals.sigmoid),
    (trigonometric.SIN, decimals.sin),
    (trigonometric.COS, decimals.cos),
)
# Those in pairs of float32, NaN canonical, for registers of as many lanes as their rows say.
PAIRED: Mapping[str, Callable[[Builder, Vector], Vector]] = {
    "exp": paired_exponential.emit,
    "exp2": paired_exponential.emit_exp2,
    "erf": paired_error.emit,
    "log": paired_logarithm.log,
    "log2": paired_logarithm.log2,
    "log10": paired_logarithm.log10,
    "log1p": paired_logarithm.log1p,
    "sigmoid": paired_quotients.sigmoid,
    "tanh": paired_quotients.tanh,
}
# Of those, what there is a text of 1 + f(x) for.
ONE_MORE: Mapping[str, Callable[[Builder, Vector], Vector]] = {
    "erf": paired_error.one_more,
    "tanh": paired_quotients.one_more_tanh,
}
# What a row's text computes of some arguments alone, by their places, and takes after all arguments: once for all
# vectors that share these.
FIRST: Mapping[str, tuple[tuple[int, ...], Callable[..., tuple[Vector, ...]]]] = {
    "requantize": ((2, 3, 4), requantized.first),
    "requantize_sum": ((3, 4, 5), requantized.first),
}
# By the names of `kernels.gelu.patterns`: a result as bfloat16, of its steps in float32 and of the operands.
BOUNDED: Mapping[str, Callable[..., Vector]] = {
    "gelu": bounded_gelu.gelu,
    "gelu's gradient": bounded_gelu.gradient,
}


def _rounded(row: CorrectlyRounded) -> Callable[..., Vector]:
    """The text of float32 by way of float64, or of float64."""

    def emit(b: Builder, dtype: DType, x: Vector) -> Vector:
        return doubles.TEXTS[row.name](b, x) if dtype is dtypes.float64 else rounded.computed(b, row, x)

    return emit


def _by_kind(floats: Callable[..., Vector], integers: Callable[..., Vector]) -> Callable[..., Vector]:
    return lambda b, dtype, x, y: (floats if dtype.is_float else integers)(b, dtype, x, y)


def _meaning(name: str, single: Callable[[Array], Array]) -> Callable[..., Array]:
    """The function of float32, or of float64."""
    return lambda dtype, x: sequences.MEANINGS[name](x) if dtype is dtypes.float64 else single(x)


def _power(dtype: DType, x: Array, y: Array) -> Array:
    if not dtype.is_float:
        return whole.powers(x, y)
    return sequences.pow(x, y) if dtype is dtypes.float64 else decimals.pow(x, y)


TEXTS: Mapping[str, Callable[..., Vector]] = {
    **{row.name: _rounded(row) for row, _ in ROUNDED},
    "is_finite": neighbours.is_finite,
    "is_infinite": neighbours.is_infinite,
    "sign_bit": neighbours.sign_bit,
    "next_after": neighbours.next_after,
    "quantize": quantized.emit,
    "requantize": requantized.emit,
    "requantize_sum": requantized.emit_sum,
    "pow": _by_kind(power.emit, whole.power),
    "floor": whole.floor,
    "ceil": whole.ceil,
    "trunc": whole.trunc,
    "sign": whole.sign,
    "quotient": whole.quotient,
    "mod": _by_kind(remainders.mod, whole.mod),
    "fmod": _by_kind(remainders.fmod, whole.fmod),
    "gcd": whole.gcd,
    "bit_not": whole.bit_not,
    "shift_left": whole.shift_left,
    "shift_right": whole.shift_right,
}
"""By row, `(b, result dtype, *vectors)` to a vector."""

MEANINGS: Mapping[str, Callable[..., Array]] = {
    **{row.name: _meaning(row.name, meaning) for row, meaning in ROUNDED},
    "next_after": neighbours.next_by_order,
    "pow": _power,
    "quotient": lambda dtype, x, y: whole.truncated(x, y),
}
"""By row, `(result dtype, *arrays)` to an array."""
