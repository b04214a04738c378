"""The Hadamard transform of runs of 16 elements, which spreads an outlier over its run before it is quantised.

A product like any other, so its bits are those of numerics.md section 2. Start at `hadamard`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import dtypes
from samebits.errors import OptionError, ShapeError, shown
from samebits.ops.call import Call
from samebits.ops.matmul import matmul
from samebits.ops.move import contiguous
from samebits.tensor import Tensor

__all__ = ["hadamard"]

_RUN = 16
# Transformer Engine, get_wgrad_sign_vector: drawn once, and the same in every run.
_SIGNS = (1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1)


def hadamard(x: Any, *, signs: Sequence[int] | None = None, inverse: bool = False, threads: int | None = None) -> Any:
    """y[16 j + i] = sum_k x[16 j + k] * signs[k] * H[k, i] / 4, H being Sylvester's matrix of 1 and -1.

    Of both operands of a product, along K, it leaves the exact product what it was, and an outlier shares its run.

    Args:    x: float32, bfloat16 or float16 [..., K], K a multiple of 16.
             signs: 16 of 1 and -1; default those of Transformer Engine, which makes a random transform reproducible.
             inverse: Undo it: the transposed matrix.   threads: at most so many; default every usable core.
    Returns: an array of x's kind, shape and dtype.
    Raises:  DTypeError, ShapeError, OptionError.   Bits: numerics.md section 2, one conversion at the end.
    """
    call = Call("hadamard", x, threads)
    kinds = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
    given = call.operand("x", x, *kinds).tensor
    if not given.shape or given.shape[-1] % _RUN:
        actual = given.shape[-1] if given.shape else "missing"
        raise ShapeError("hadamard", "x", "last extent", actual, "a multiple of 16", "pad it with zeros first")
    if not isinstance(inverse, bool):
        raise OptionError("hadamard", "inverse", "", shown(inverse), "True or False", "pass one of these")
    rotation = _rotation(_SIGNS if signs is None else _checked(signs))
    runs: Tensor = contiguous(given).reshape((given.size // _RUN, _RUN))
    made: Tensor = matmul(runs, rotation.T if inverse else rotation, out_dtype=given.dtype, threads=threads)
    return call.result(call.own(made.reshape(given.shape)))


def _checked(signs: object) -> tuple[int, ...]:
    if isinstance(signs, list | tuple) and len(signs) == _RUN and all(type(s) is int and s in (1, -1) for s in signs):
        return tuple(signs)
    raise OptionError("hadamard", "signs", "", shown(signs), "16 of 1 and -1", "leave them out for the usual ones")


@functools.lru_cache(maxsize=64)
def _rotation(signs: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """The orthogonal matrix [16, 16]: signs of rows times Sylvester's matrix over 4."""
    made = np.ones((1, 1), np.float32)
    while len(made) < _RUN:
        made = np.block([[made, made], [made, -made]])
    return np.array(signs, np.float32)[:, None] * made / np.float32(4)
