"""What elements of b share: which scales and zero points belong to blocks along K, and how long those are.

Values for each block along K have the rank of b, [..., blocks, N]; those for each column have one less. Start at
`taken`.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import OptionError, ShapeError, shown
from samebits.kernels.gemm.contraction import Matrix, Panels, PerBlock
from samebits.ops.call import Call
from samebits.ops.names import Names
from samebits.ops.operands import check_shape, matrix
from samebits.tensor import Tensor

# Scales that convert exactly to float32.
SCALES = (dtypes.float32, *(row for row in dtypes.ROWS if row.is_float and row.width_bits in (8, 16)))


@dataclass(frozen=True, slots=True)
class BlockShare:
    """What blocks of b share: as it was given, as values [..., blocks, N], and how long a block is along K."""

    given: Tensor
    values: Tensor
    size: int


def taken(
    call: Call, names: Names, scale: Any, zero_point: Any, group: int | None, a: DType, b: Matrix | Panels, rank: int,
    k: int,
) -> tuple[BlockShare | None, BlockShare | None]:  # fmt: skip
    """What belongs to blocks: scales, and zero points.

    A zero point of weights (integers b beside floats a, or in scaled blocks) always does: one block may be all of K.

    Args:    rank: that of b as it was given.
    Raises:  DTypeError, OptionError, ShapeError (the size is not known or does not fit), PlanError.
    """
    found = list[BlockShare | None]()
    for name, value in ((names.b_scale, scale), (names.b_zero_point, zero_point)):
        found.append(None)
        if value is None or isinstance(value, numbers.Real):
            continue
        x = call.operand(name, value)
        if x.ndim == rank > 1:
            x = x if value is zero_point else call.operand(name, value, *SCALES)
            values = x.T if names.turned else x
            found[-1] = BlockShare(x, values, _size(call, name, values.shape[-2], k, group, names))
    of_scales, of_zeros = found
    if group is not None and not (of_scales or of_zeros):
        lying = f"[N, K / {names.b_group}]" if names.turned else f"[..., K / {names.b_group}, N]"
        remedy = f"pass scales or zero points {lying} with it"
        raise OptionError(call.name, names.b_group, "", f"{shown(group)} without blocks", "left out", remedy)
    if zero_point is not None and b.dtype.is_integer and (a.is_float or of_scales or of_zeros):
        name = names.b_zero_point
        if isinstance(b, Panels):
            remedy = "give it to pack, with left="
            raise OptionError(call.name, name, "", "given beside packed weights", "left out", remedy)
        x = integers(call, name, zero_point, b.dtype, dtypes.int8 if b.dtype.kind == "int" else dtypes.uint8)
        if of_zeros:
            of_zeros = BlockShare(x, x.T if names.turned else x, of_zeros.size)
        else:
            of_zeros = BlockShare(x, x.unsqueeze(x.ndim - 1) if x.ndim else x.reshape((1, 1)), max(k, 1))
    return of_scales, of_zeros


def _size(call: Call, name: str, blocks: int, k: int, group: int | None, names: Names) -> int:
    """Elements of a block along K where there are so many `blocks`.

    Without `group` they are K / blocks, if that is whole and a power of two: no other power of two gives as many.
    """
    line = "column" if names.turned else "row"
    if group is None:
        length = k // blocks if blocks and k % blocks == 0 else 0
        if blocks == 1 or (length and length & (length - 1) == 0):
            return max(length, 1)
        expected = "as many as blocks of a power of two that divides K"
        actual, remedy = f"{blocks} for K = {k}", f"pass {names.b_group}="
        raise ShapeError(call.name, name, f"{line} count", actual, expected, remedy)
    if not isinstance(group, int | np.integer) or isinstance(group, bool) or group < 1:
        remedy = "count the elements along K that share a scale"
        raise OptionError(call.name, names.b_group, "", shown(group), "an integer of at least 1", remedy)
    if blocks != -(-k // group):
        expected = f"{-(-k // group)}, as K = {k} has blocks of {shown(group)}"
        remedy = f"pass one {line} for each block"
        raise ShapeError(call.name, name, f"{line} count", blocks, expected, remedy)
    return int(group)


def per_block(call: Call, names: Names, name: str, x: BlockShare, batch: tuple[int, ...], n: int) -> PerBlock:
    """What blocks of b[batch..., K, n] share.

    Raises:  ShapeError if it has another shape.
    """
    blocks = x.values.shape[-2]
    due = *batch, blocks, n
    if x.given.ndim < x.values.ndim:
        check_shape(call, name, x.given, (*batch, n))
    else:
        check_shape(call, name, x.given, (n, blocks) if names.turned else due)
    return PerBlock(x.size, matrix(call, name, x.values, due))


def integers(call: Call, name: str, value: Any, dtype: DType, kept: DType) -> Tensor:
    """A zero point of integers of `dtype`, each in whole bytes; a number is `kept` so.

    Raises:  DTypeError; OptionError if the format does not hold a number, or it is a bool.
    """
    if isinstance(value, bool | np.bool_):
        raise OptionError(call.name, name, "", shown(value), "an integer", "pass an int")
    if isinstance(value, int | np.integer):
        if not dtype.min <= value <= dtype.max:
            expected = f"within [{dtype.min}, {dtype.max}], as for {dtype.name}"
            raise OptionError(call.name, name, "", value, expected, "pass one that the format holds")
        return call.constant(np.asarray(value, kept.numpy))
    x = call.operand(name, value, dtype)
    return x if dtype.width_bits == 8 else call.operand(name, x.values())
