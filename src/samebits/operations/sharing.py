"""What scales and zero points belong to. One rule for all of them: shape and `group=` say it, and nothing is guessed.

An operand of a product is a number of lines along K: rows of a, columns of b, rows of a weight [N, K]. Its scales (and
its zero points) are, with M or N for the number of lines:

- one for all: [], or every extent 1;
- one for each line: [..., N], or with the axis of K, which is then of extent 1: [..., 1, N] for b [..., K, N], and
  [M, 1] or [N, 1] for a and a weight [N, K];
- with `group=`, one for each block, where the operand has its elements: of so many elements along K in each line,
  [..., K / group, N] for b, [M, K / group] for a, [N, K / group] for a weight; or of a pair, an extent for each of the
  operand's last two axes, as (128, 128). The last blocks may be shorter, and there may be one alone.

A shape that says none of these is refused. The dimensions in front are those of the batch, and broadcast. Start at
`Lines.read`, which one operand's values go through, and `by_block`, which says what kernels are to do by blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import OptionError, ShapeError, shown
from samebits.frozen import dataclass, replace
from samebits.kernels.gemm.contraction import Immediate, Matrix, Panels, Shared
from samebits.layout import Layout, Shape
from samebits.operations.lying import Lying, Number, check_dtype, matrix
from samebits.operations.names import Names

# Scales that convert exactly to float32.
SCALES = (dtypes.float32, *(row for row in dtypes.ROWS if row.is_float and row.width_bits in (8, 16)))

# Where the plan has an operand from: the argument where it lies; its first byte, where elements lie within bytes; or a
# copy of its values, dense, of an integer of 8 bits.
AS_IT_LIES, IN_BYTES, VALUES = "as it lies", "in bytes", "values"


@dataclass(frozen=True, slots=True)
class ProductOperand:
    """An operand of a plan by the name of the argument that it comes from, or a number among the arguments."""

    name: str
    form: str = AS_IT_LIES
    constant: Immediate | None = None


class Block(NamedTuple):
    """The extents of what shares a scale: `size` elements along K in each of `lines` lines."""

    size: int
    lines: int = 1

    def __str__(self) -> str:
        return str(self.size) if self.lines == 1 else f"{self.size} along K by {self.lines}"


def block_of(call: str, option: str, group: Any, lines_first: bool) -> Block | None:
    """The extents of a block: elements along K, or a pair for the last two axes of an operand, of which the first are
    its lines or K.

    Raises:  OptionError if it is neither.
    """
    if group is None or isinstance(group, Block):
        return group
    is_pair = isinstance(group, tuple | list)
    both = tuple(group) if is_pair else (1, group) if lines_first else (group, 1)
    counts = [isinstance(x, int | np.integer) and not isinstance(x, bool) and x >= 1 for x in both]
    if len(both) != 2 or not all(counts):
        expected, remedy = "an integer of at least 1", "count the elements along K that share a scale"
        if is_pair:
            expected, remedy = "a pair of integers of at least 1", "pass an extent for each of its last two axes"
        raise OptionError(call, option, "", shown(group), expected, remedy)
    lines, size = both if lines_first else both[::-1]
    return Block(int(size), int(lines))


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
    def of_a(cls, names: Names, m: int, k: int, batch: Shape, rank: int) -> Lines:
        """Those of a: its rows."""
        return cls(f"row of {names.a}", m, k, batch, max(rank, 2), True, names.a_group)

    @classmethod
    def of_b(cls, names: Names, n: int, k: int, batch: Shape, rank: int) -> Lines:
        """Those of b: its columns, or rows of a weight [N, K]."""
        whose = f"{'row' if names.turned else 'column'} of {names.b}"
        return cls(whose, n, k, batch, max(rank, 2), names.turned, names.b_group)

    @property
    def without_blocks(self) -> Lines:
        """The same where nothing belongs to blocks."""
        return replace(self, option=None)

    def read(self, call: str, name: str, x: Lying, group: Block | None = None) -> tuple[Lying, bool]:
        """x as [] or [..., lines]; or with `group` and an axis of K as [..., blocks along K, across lines], and that it
        is so.

        Raises:  ShapeError if x's shape says nothing.
        """
        shape, layout = x.shape, x.layout
        if len(shape) <= self.rank:
            if group is not None and len(shape) > 1:
                if self._in_order(shape) == self.blocks(group) and self._repeats(shape[:-2]):
                    return x.seen(_turned(layout)) if self.first else x, True
            elif all(extent == 1 for extent in shape):
                return x.seen(layout.reshape(())), False
            elif len(shape) < self.rank:
                if shape[-1] == self.extent and self._repeats(shape[:-1]):
                    return x, False
            elif self._in_order(shape) == (1, self.extent) and self._repeats(shape[:-2]):
                return x.seen(layout.squeeze(-1 if self.first else -2)), False
        raise self._refused(call, name, shape, group)

    def blocks(self, group: Block) -> tuple[int, int]:
        """How many there are along K, and across lines."""
        return -(-self.k // group.size), -(-self.extent // group.lines)

    def of_blocks(self, call: str, name: str, x: Lying | Number | int | None, group: Block) -> Lying | None:
        """x as [..., blocks along K, across lines], if it belongs to blocks."""
        if not isinstance(x, Lying):
            return None
        found, has_blocks = self.read(call, name, x, group)
        return found if has_blocks else None

    def shared(self, call: str, name: str, x: Lying, group: Block, of_a: bool = False) -> Shared:
        """x, which is [..., blocks along K, across lines], as the gemm room knows it: of a with lines first."""
        x = x.seen(_turned(x.layout)) if of_a else x
        return Shared(matrix(call, name, x, (*self.batch, *x.shape[-2:])), group.size, group.lines)

    def _in_order(self, shape: Shape) -> tuple[int, int]:
        """The last two extents: along K, and of lines."""
        return (shape[-1], shape[-2]) if self.first else (shape[-2], shape[-1])

    def _repeats(self, batch: Shape) -> bool:
        """Whether these dimensions broadcast to those of the product."""
        own = self.batch[len(self.batch) - len(batch) :]
        return len(batch) <= len(self.batch) and all(x in (1, y) for x, y in zip(batch, own, strict=True))

    def _refused(self, call: str, name: str, shape: Shape, group: Block | None) -> ShapeError:
        """What the shape should have been; the remedy is the meaning that comes nearest to what was given."""
        front = "..., " if self.rank > 2 else ""

        def written(along: object, across: int = self.extent) -> str:
            lines, blocks = str(across), str(along)
            return f"[{front}{', '.join((lines, blocks) if self.first else (blocks, lines))}]"

        meant = self._in_order(shape) if 1 < len(shape) <= self.rank else (0, 0)
        if group is not None and len(shape) > 1:
            blocks, across = self.blocks(group)
            expected = f"{written(blocks, across)}, as K = {self.k} has blocks of {group}"
            remedy = f"pass one for each {self.whose} and each block"
            if group.lines > 1:
                remedy = "pass one for each block"
            if meant == (across, blocks):
                remedy = "exchange its last two axes"
            elif meant == (1, self.extent):
                remedy = f"pass [{front}{self.extent}] for one for each {self.whose}"
            return ShapeError(call, name, "shape", shape, expected, remedy)
        expected = f"[], [{front}{self.extent}] or {written(1)}"
        remedy = f"pass one for all, or one for each {self.whose}"
        if self.option:
            expected += f", or {written('blocks')} with {self.option}="
            along, lines = meant
            if along > 1 and lines == self.extent and -(-self.k // -(-self.k // along)) == along:
                remedy = f"pass {self.option}=, the number of elements along K that share one"
        if meant == (self.extent, 1):
            remedy = f"exchange its last two axes for one for each {self.whose}"
        return ShapeError(call, name, "shape", shape, expected, remedy)


def _turned(layout: Layout) -> Layout:
    """With its last two axes exchanged."""
    *front, rows, columns = range(layout.ndim)
    return layout.permute((*front, columns, rows))


@dataclass(frozen=True, slots=True)
class Parameter:
    """A scale or a zero point of a product: where the plan has it from, and what its values belong to."""

    operand: ProductOperand
    shared: Shared


def by_block(
    call: str, names: Names, columns: Lines, scale: Lying | Number | None, zero_point: Lying | int | None,
    group: Block | None, a: DType, b: Matrix | Panels,
) -> dict[str, Parameter]:  # fmt: skip
    """What belongs to blocks of b: `b_scale`, `b_zero`.

    A zero point of weights (integers b beside floats a, or in scaled blocks) always does: one block may be all of K.

    Raises:  DTypeError, OptionError, ShapeError.
    """
    found = dict[str, Parameter]()
    if isinstance(b, Panels) and b.block and (scale is not None or group is not None):
        name = names.b_scale if scale is not None else names.b_group
        remedy = "leave it out, or pack without scales"
        raise OptionError(call, name, "", "given beside packed scales", "left out", remedy)
    scales = None if group is None else columns.of_blocks(call, names.b_scale, scale, group)
    zeros = None
    if group is not None and b.dtype.is_integer:
        zeros = columns.of_blocks(call, names.b_zero_point, zero_point, group)
    if scales and group:
        found["b_scale"] = _of_blocks(call, names.b_scale, "b_scale", columns, scales, group)
    if group is not None and not (scales or zeros):
        axes = ("N", f"K / {names.b_group}")
        lying = f"[{', '.join(axes)}]" if names.turned else f"[..., {', '.join(axes[::-1])}]"
        raise _without_blocks(call, names.b_group, group, f"scales or zero points {lying}")
    if zero_point is not None and b.dtype.is_integer and (a.is_float or scales or zeros):
        name = names.b_zero_point
        if isinstance(b, Panels):
            remedy = "give it to pack, with left="
            raise OptionError(call, name, "", "given beside packed weights", "left out", remedy)
        kept = dtypes.int8 if b.dtype.kind == "int" else dtypes.uint8
        operand, x = integers(call, name, "b_zero_point", zero_point, b.dtype, kept, in_bytes=True)
        x, has_blocks = columns.read(call, name, x, group)
        if not has_blocks:
            layout = x.layout.unsqueeze(x.layout.ndim - 1) if x.shape else x.layout.reshape((1, 1))
            x, group = x.seen(layout.broadcast_to((*x.shape[:-1], 1, columns.extent))), Block(max(columns.k, 1))
        assert group is not None  # blocks have a size
        found["b_zero"] = Parameter(operand, columns.shared(call, name, x, group))
    return found


def by_block_of_a(
    call: str, names: Names, rows: Lines, scale: Lying | Number | None, group: Block | None
) -> dict[str, Parameter]:
    """What belongs to blocks of a: `a_scale`.

    Raises:  DTypeError, OptionError, ShapeError.
    """
    if group is None:
        return {}
    scales = rows.of_blocks(call, names.a_scale, scale, group)
    if scales is None:
        raise _without_blocks(call, names.a_group, group, f"scales [..., M, K / {names.a_group}]")
    return {"a_scale": _of_blocks(call, names.a_scale, "a_scale", rows, scales, group)}


def _of_blocks(call: str, name: str, argument: str, lines: Lines, x: Lying, group: Block) -> Parameter:
    """Scales of blocks of a, or of b."""
    check_dtype(call, name, x.dtype, *SCALES)
    return Parameter(ProductOperand(argument), lines.shared(call, name, x, group, argument == "a_scale"))


def _without_blocks(call: str, option: str, group: Block, what: str) -> OptionError:
    return OptionError(call, option, "", f"{group} without blocks", "left out", f"pass {what} with it")


def integers(
    call: str, name: str, argument: str, value: Lying | int, dtype: DType, kept: DType, *, in_bytes: bool = False
) -> tuple[ProductOperand, Lying]:
    """A zero point of integers of `dtype`, each in whole bytes; a number is `kept` so.

    Args:    in_bytes: whether it may also be of the format of 8 bits, as those of GPTQ are, which reach 16 of uint4.
    Raises:  DTypeError; OptionError if the format does not hold a number.
    """
    if isinstance(value, int):
        if not dtype.min <= value <= dtype.max:
            expected = f"within [{dtype.min}, {dtype.max}], as for {dtype.name}"
            raise OptionError(call, name, "", value, expected, "pass one that the format holds")
        return ProductOperand(argument, constant=Immediate(value, kept)), Lying.dense(kept)
    wide = dtypes.int8 if dtype.kind == "int" else dtypes.uint8
    check_dtype(call, name, value.dtype, *dict.fromkeys((dtype, wide) if in_bytes else (dtype,)))
    if value.dtype.width_bits == 8:
        return ProductOperand(argument), value
    return ProductOperand(argument, VALUES), Lying.dense(wide, value.shape)
