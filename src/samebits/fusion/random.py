"""Operations of `fd.ops` that draw random numbers, by numerics.md section 13.

Numbers with `rng_seed` follow from it and `rng_offset`. Those without follow from one seed a run, `fresh_seed`, and
their place in the fusion's text.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from samebits import dtypes
from samebits.errors import FusionError, FusionTypeError
from samebits.fusion import datatypes, promotion, sizes
from samebits.fusion.datatypes import DataType
from samebits.fusion.graph import Argument, Expr, Fusion, Scalar, TensorView
from samebits.kernels.random import FORMATS, Random
from samebits.operations.random import Drawn

if TYPE_CHECKING:
    from samebits.fusion.lowering import Lowering

__all__ = ["LOWERED", "normal", "rand_like", "randn_like", "uniform"]

# The distribution of each operation.
_DRAWN = {"uniform": "uniform", "rand_like": "uniform", "normal": "normal", "randn_like": "normal"}


def uniform(
    minval: object, maxval: object, shape: Sequence[int | Scalar], *, rng_seed: object = None,
    rng_offset: object = None, dtype: DataType = DataType.Float,
) -> TensorView:  # fmt: skip
    """Numbers of the interval [minval, maxval), each as likely as another.

    Args:
        minval, maxval: Numbers or scalars, rounded once to dtype.
        shape: Extents.
        rng_seed, rng_offset: What the numbers follow from, integers: both, or neither.
        dtype: Double, Float, Half or BFloat16.

    Raises:  FusionError if one of them is something else, a FusionTypeError where its kind or format is.
    """
    return _drawn("uniform", {"minval": minval, "maxval": maxval}, shape, rng_seed, rng_offset, dtype)


def normal(
    mean: object, std: object, shape: Sequence[int | Scalar], *, rng_seed: object = None, rng_offset: object = None,
    dtype: DataType = DataType.Float,
) -> TensorView:  # fmt: skip
    """Normal numbers of a mean and a standard deviation.

    Args:    mean, std: as minval and maxval of `uniform`, and the others too.
    Raises:  FusionError if one of them is something else, a FusionTypeError where its kind or format is.
    """
    return _drawn("normal", {"mean": mean, "std": std}, shape, rng_seed, rng_offset, dtype)


def rand_like(x: TensorView) -> TensorView:
    """Numbers of [0, 1), each as likely as another, of x's extents and format.

    Raises:  FusionTypeError if x is no tensor of Double, Float, Half or BFloat16.
    """
    return _like("rand_like", x)


def randn_like(x: TensorView) -> TensorView:
    """Normal numbers of mean 0 and standard deviation 1, of x's extents and format.

    Raises:  as `rand_like`.
    """
    return _like("randn_like", x)


def fresh_seed() -> int:
    """The seed of a run: 63 bits of torch's default generator where torch is loaded, else 64 bits of the system."""
    torch = sys.modules.get("torch")
    if torch is None:
        return int.from_bytes(os.urandom(8), "little")
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_())


def has_fresh(fusion: Fusion) -> bool:
    """Whether runs of a fusion draw a seed."""
    return bool(_fresh(fusion))


def _fresh(fusion: Fusion) -> list[Expr]:
    """The operations whose numbers follow from the seed of the run."""
    return [expr for expr in fusion.sorted_exprs() if expr.op in _DRAWN and expr.option("rng_seed") is None]


def _drawn(
    call: str, numbers: dict[str, object], shape: Sequence[int | Scalar], seed: object, offset: object, dtype: DataType
) -> TensorView:
    _check_dtype(call, "dtype", "", dtype)
    fusion = promotion.fusion_of(call, *numbers.values(), seed, offset, *(shape if _is_list(shape) else ()))
    wanted = sizes.sequence(call, fusion, shape, least=0)
    given = [_scalar(call, name, fusion, x) for name, x in numbers.items()]
    if (seed is None) != (offset is None):
        missing, there = ("rng_seed", "rng_offset") if seed is None else ("rng_offset", "rng_seed")
        remedy = f"give {missing}=0 too: rng_seed and rng_offset must be provided together!"
        raise FusionError(call, missing, "", None, f"given beside {there}", remedy)
    words: dict[str, Argument] = {}
    for name, x in (("rng_seed", seed), ("rng_offset", offset)):
        if x is not None:
            word = words[name] = _scalar(call, name, fusion, x)
            if not datatypes.is_integer(word.dtype):
                raise FusionTypeError(call, name, "dtype", word.dtype, "an integer format", "cast it first")
    made = fusion.record(call, given, shape=wanted, **words, dtype=dtype)
    return fusion.tensor(made, dtype, [fusion.new_axis(fusion.root(size)) for size in wanted])


def _like(call: str, arg: TensorView) -> TensorView:
    x = sizes.tensor(call, "x", arg)
    _check_dtype(call, "x", "dtype", x.dtype)
    made = x.fusion.record(call, [x])
    return x.fusion.like(made, x)


def _check_dtype(call: str, name: str, fact: str, dtype: DataType) -> None:
    """Raise FusionTypeError unless numbers are made in a format."""
    if not any(dtype is datatypes.data_type_of(row) for row in FORMATS):
        remedy = "draw in Float, and cast: Random distributions only create floating point types!"
        raise FusionTypeError(call, name, fact, dtype, "Double, Float, Half or BFloat16", remedy)


def _scalar(call: str, name: str, fusion: Fusion, x: object) -> Scalar:
    found = promotion.as_val(call, fusion, x)
    if not isinstance(found, Scalar):
        raise FusionTypeError(call, name, "", "a tensor", "a number or a scalar", "draw of 0 and 1, and scale that")
    return found


def _is_list(x: object) -> bool:
    return isinstance(x, list | tuple)


# -- what they become in a program -------------------------------------------------------------------------------------
def _random(low: Lowering, expr: Expr) -> list[str]:
    out = expr.outputs[0]
    dtype = datatypes.row_of(expr.op, "dtype", out.dtype)
    if expr.op in ("uniform", "normal"):
        numbers = [low.operand(x, dtype) for x in expr.args]  # type: ignore[arg-type]  # which are scalars
    else:
        numbers = [low.b.scalar(x, dtype) for x in (0.0, 1.0)]
    if expr.option("rng_seed") is None:
        place = _fresh(low.fusion).index(expr)
        words = [low.seed(), low.b.constant(np.asarray(place, np.uint64))]
    else:
        words = [low.operand(expr.option(name), dtypes.uint64) for name in ("rng_seed", "rng_offset")]
    distribution = Random(_DRAWN[expr.op], dtype)  # type: ignore[arg-type]  # a name that a table has
    return list(low.b.add("random", (*numbers, *words), Drawn(distribution, low.shape(out))))


LOWERED = dict.fromkeys(_DRAWN, _random)
