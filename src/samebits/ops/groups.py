"""What elements of b share: which scales and zero points belong to blocks along K, and how long those are.

Values for each block along K have the rank of b, [..., blocks, N]; those for each column have one less. Start at
`taken`.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import OptionError, ShapeError, message
from samebits.kernels.gemm.contraction import Matrix, Panels
from samebits.ops.call import Call
from samebits.tensor import Tensor

# Scales that convert exactly to float32.
SCALES = (dtypes.float32, *(row for row in dtypes.ROWS if row.is_float and row.width_bits in (8, 16)))


def taken(
    call: Call, given: Mapping[str, Any], group: int | None, a: Matrix, b: Matrix | Panels, rank: int, k: int
) -> dict[str, tuple[Tensor, int]]:
    """Those of scales and zero points that belong to blocks, [..., blocks, N] each with the size of a block.

    A zero point of weights (integers b beside floats a, or in scaled blocks) always does: one block may be all of K.

    Args:    given: by their names, the zero point last.   rank: that of b as it was given.
    Raises:  DTypeError, OptionError, ShapeError (the size is not known or does not fit).
    """
    found: dict[str, tuple[Tensor, int]] = {}
    option = "b_group" if "b_scale" in given else "group"
    for name, value in given.items():
        if value is None or isinstance(value, numbers.Real):
            continue
        x = call.operand(name, value)
        if x.ndim == rank > 1:
            x = x if name.endswith("zero_point") else call.operand(name, value, *SCALES)
            found[name] = x, size(call, name, x.shape[-2], k, group, option)
    if group is not None and not found:
        remedy = "pass scales or zero points [..., K / group, N] with it"
        raise OptionError(message(call.name, option, "", f"{group} without blocks", "left out", remedy))
    name = list(given)[-1]
    if given[name] is not None and b.dtype.is_integer and (a.dtype.is_float or found):
        if isinstance(b, Panels):
            remedy = "pack b with pack(b, left=..., zero_point=...)"
            raise OptionError(message(call.name, name, "", "given beside packed weights", "left out", remedy))
        x = zero_point(call, name, given[name], b.dtype, dtypes.int8 if b.dtype.kind == "int" else dtypes.uint8)
        length = found[name][1] if name in found else max(k, 1)
        if name not in found:
            x = x.unsqueeze(x.ndim - 1) if x.ndim else x.reshape((1, 1))
        found[name] = x, length
    return found


def size(call: Call, name: str, rows: int, k: int, group: int | None, option: str) -> int:
    """Elements of a block along K where `rows` of them are given.

    Without `group` they are K / rows, if that is whole and a power of two: no other power of two gives as many.
    """
    if group is None:
        length = k // rows if rows and k % rows == 0 else 0
        if rows == 1 or (length and length & (length - 1) == 0):
            return max(length, 1)
        expected = "as many as blocks of a power of two that divides K"
        actual, remedy = f"{rows} for K = {k}", f"pass {option}="
        raise ShapeError(message(call.name, name, "row count", actual, expected, remedy))
    if not isinstance(group, int | np.integer) or isinstance(group, bool) or group < 1:
        remedy = "count the elements along K that share a scale"
        raise OptionError(message(call.name, option, "", repr(group), "an integer of at least 1", remedy))
    if rows != -(-k // group):
        expected = f"{-(-k // group)}, as K = {k} has blocks of {group}"
        raise ShapeError(message(call.name, name, "row count", rows, expected, "pass one row for each block"))
    return int(group)


def zero_point(call: Call, name: str, value: Any, dtype: DType, kept: DType) -> Tensor:
    """A zero point of integers of `dtype`, each in whole bytes; a number is `kept` so.

    Raises:  DTypeError; OptionError if the format does not hold a number.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not dtype.min <= value <= dtype.max:
            expected = f"within [{dtype.min}, {dtype.max}], as for {dtype.name}"
            raise OptionError(message(call.name, name, "", value, expected, "pass one that the format holds"))
        return call.constant(np.asarray(value, kept.numpy))
    x = call.operand(name, value, dtype)
    return x if dtype.width_bits == 8 else call.operand(name, x.values())
