"""What scales and zero points belong to. One rule for all of them: shape and `group=` say it, and nothing is guessed.

An operand of a product is a number of lines along K: rows of a, columns of b, rows of a weight [N, K]. Its scales (and
its zero points) are, with M or N for the number of lines:

- one for all: [], or every extent 1;
- one for each line: [..., N], or with the axis of K, which is then of extent 1: [..., 1, N] for b [..., K, N], and
  [N, 1] for a weight [N, K];
- with `group=`, one for each line and each block of so many elements along K, where the operand has its elements:
  [..., K / group, N] for b, [N, K / group] for a weight. The last block may be shorter, and there may be one alone.

A shape that says none of these is refused. The dimensions in front are those of the batch, and broadcast. Start at
`Lines.read`, which one operand's values go through, and `taken`, which says what kernels are to do by blocks.
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
from samebits.layout import Shape
from samebits.ops.call import Call
from samebits.ops.names import Names
from samebits.ops.operands import matrix
from samebits.tensor import Tensor

# Scales that convert exactly to float32.
SCALES = (dtypes.float32, *(row for row in dtypes.ROWS if row.is_float and row.width_bits in (8, 16)))


@dataclass(frozen=True, slots=True)
class Lines:
    """An operand as its scales and zero points see it.

    `whose`: one line in words, `row of a`.   `extent`: how many lines one matrix has.   `rank`: that of the operand, 2
    for a vector.   `first`: lines are the axis before that of K, as in a and in a weight [N, K].
    `option`: what `group=` is called here; None where there are no blocks.
    """

    whose: str
    extent: int
    k: int
    batch: Shape
    rank: int
    first: bool
    option: str | None = None

    @classmethod
    def of_b(cls, names: Names, n: int, k: int, batch: Shape, rank: int) -> Lines:
        """Those of b: its columns, or rows of a weight [N, K]."""
        whose = f"{'row' if names.turned else 'column'} of {names.b}"
        return cls(whose, n, k, batch, max(rank, 2), names.turned, names.b_group)

    def read(self, call: Call, name: str, x: Tensor, group: int | None = None) -> tuple[Tensor, bool]:
        """x as [] or [..., lines]; or with `group` and an axis of K as [..., blocks, lines], and that it is so.

        Raises:  ShapeError if x's shape says nothing.
        """
        shape = x.shape
        if len(shape) <= self.rank:
            if group is not None and len(shape) > 1:
                along, batch = (-(-self.k // group), self.extent), shape[:-2]
                if self._in_order(shape) == along and self._repeats(batch):
                    return x.transpose() if self.first else x, True
            elif all(extent == 1 for extent in shape):
                return x.reshape(()), False
            elif len(shape) < self.rank:
                if shape[-1] == self.extent and self._repeats(shape[:-1]):
                    return x, False
            elif self._in_order(shape) == (1, self.extent) and self._repeats(shape[:-2]):
                return x.squeeze(-1 if self.first else -2), False
        raise self._refused(call, name, shape, group)

    def _in_order(self, shape: Shape) -> tuple[int, int]:
        """The last two extents: along K, and of lines."""
        return (shape[-1], shape[-2]) if self.first else (shape[-2], shape[-1])

    def _repeats(self, batch: Shape) -> bool:
        """Whether these dimensions broadcast to those of the product."""
        own = self.batch[len(self.batch) - len(batch) :]
        return len(batch) <= len(self.batch) and all(x in (1, y) for x, y in zip(batch, own, strict=True))

    def _refused(self, call: Call, name: str, shape: Shape, group: int | None) -> ShapeError:
        """What the shape should have been; the remedy is the meaning that comes nearest to what was given."""
        front = "..., " if self.rank > 2 else ""

        def written(along: object) -> str:
            lines, blocks = str(self.extent), str(along)
            return f"[{front}{', '.join((lines, blocks) if self.first else (blocks, lines))}]"

        meant = self._in_order(shape) if 1 < len(shape) <= self.rank else (0, 0)
        if group is not None and len(shape) > 1:
            blocks = -(-self.k // group)
            expected = f"{written(blocks)}, as K = {self.k} has blocks of {group}"
            remedy = f"pass one for each {self.whose} and each block"
            if meant == (self.extent, blocks):
                remedy = "exchange its last two axes"
            elif meant == (1, self.extent):
                remedy = f"pass [{front}{self.extent}] for one for each {self.whose}"
            return ShapeError(call.name, name, "shape", shape, expected, remedy)
        expected = f"[], [{front}{self.extent}] or {written(1)}"
        remedy = f"pass one for all, or one for each {self.whose}"
        if self.option:
            expected += f", or {written('blocks')} with {self.option}="
            along, lines = meant
            if along > 1 and lines == self.extent and -(-self.k // -(-self.k // along)) == along:
                remedy = f"pass {self.option}=, the number of elements along K that share one"
        if meant == (self.extent, 1):
            remedy = f"exchange its last two axes for one for each {self.whose}"
        return ShapeError(call.name, name, "shape", shape, expected, remedy)


@dataclass(frozen=True, slots=True)
class BlockShare:
    """What blocks of b share: values [..., blocks, N], and how long a block is along K."""

    values: Tensor
    size: int

    def described(self, call: Call, name: str, lines: Lines) -> PerBlock:
        """The same as the gemm room knows it."""
        due = *lines.batch, self.values.shape[-2], lines.extent
        return PerBlock(self.size, matrix(call, name, self.values, due))


def taken(
    call: Call, names: Names, lines: Lines, scale: Any, zero_point: Any, group: int | None, a: DType, b: Matrix | Panels
) -> tuple[BlockShare | None, BlockShare | None]:
    """What belongs to blocks: scales, and zero points.

    A zero point of weights (integers b beside floats a, or in scaled blocks) always does: one block may be all of K.

    Raises:  DTypeError, OptionError, ShapeError.
    """
    size = None if group is None else _checked(call, names, group)
    of_scales = _by_blocks(call, names.b_scale, lines, scale, size)
    of_zeros = _by_blocks(call, names.b_zero_point, lines, zero_point, size) if b.dtype.is_integer else None
    if of_scales:
        call.operand(names.b_scale, scale, *SCALES)
    if size is not None and not (of_scales or of_zeros):
        lying = f"[N, K / {names.b_group}]" if names.turned else f"[..., K / {names.b_group}, N]"
        remedy = f"pass scales or zero points {lying} with it"
        raise OptionError(call.name, names.b_group, "", f"{size} without blocks", "left out", remedy)
    if zero_point is not None and b.dtype.is_integer and (a.is_float or of_scales or of_zeros):
        name = names.b_zero_point
        if isinstance(b, Panels):
            remedy = "give it to pack, with left="
            raise OptionError(call.name, name, "", "given beside packed weights", "left out", remedy)
        x = integers(call, name, zero_point, b.dtype, dtypes.int8 if b.dtype.kind == "int" else dtypes.uint8)
        x, has_blocks = lines.read(call, name, x, size)
        if not has_blocks:
            x, size = (x.unsqueeze(x.ndim - 1) if x.ndim else x.reshape((1, 1))), max(lines.k, 1)
        assert size is not None  # blocks have one
        of_zeros = BlockShare(x, size)
    return of_scales, of_zeros


def _by_blocks(call: Call, name: str, lines: Lines, value: Any, size: int | None) -> BlockShare | None:
    """What belongs to blocks of that size, if value does."""
    if value is None or size is None or isinstance(value, numbers.Real | np.bool_):
        return None
    x, has_blocks = lines.read(call, name, call.operand(name, value), size)
    return BlockShare(x, size) if has_blocks else None


def _checked(call: Call, names: Names, group: Any) -> int:
    """The number of elements along K in a block."""
    if not isinstance(group, int | np.integer) or isinstance(group, bool) or group < 1:
        remedy = "count the elements along K that share a scale"
        raise OptionError(call.name, names.b_group, "", shown(group), "an integer of at least 1", remedy)
    return int(group)


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
