"""What scales and zero points belong to. One rule for all of them: shape and `group=` say it, and nothing is guessed.

An operand of a product is a number of lines along K: rows of a, columns of b, rows of a weight [N, K]. Its scales (and
its zero points) are, with M or N for the number of lines:

- one for all: [], or every extent 1;
- one for each line: [..., N], or with the axis of K, which is then of extent 1: [..., 1, N] for b [..., K, N], and
  [N, 1] for a weight [N, K];
- with `group=`, one for each line and each block of so many elements along K, where the operand has its elements:
  [..., K / group, N] for b, [N, K / group] for a weight. The last block may be shorter, and there may be one alone.

A shape that says none of these is refused. The dimensions in front are those of the batch, and broadcast. Start at
`Lines.read`, which one operand's values go through, and `by_block`, which says what kernels are to do by blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import OptionError, ShapeError
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

    def read(self, call: str, name: str, x: Lying, group: int | None = None) -> tuple[Lying, bool]:
        """x as [] or [..., lines]; or with `group` and an axis of K as [..., blocks, lines], and that it is so.

        Raises:  ShapeError if x's shape says nothing.
        """
        shape, layout = x.shape, x.layout
        if len(shape) <= self.rank:
            if group is not None and len(shape) > 1:
                along, batch = (-(-self.k // group), self.extent), shape[:-2]
                if self._in_order(shape) == along and self._repeats(batch):
                    return x.seen(_turned(layout)) if self.first else x, True
            elif all(extent == 1 for extent in shape):
                return x.seen(layout.reshape(())), False
            elif len(shape) < self.rank:
                if shape[-1] == self.extent and self._repeats(shape[:-1]):
                    return x, False
            elif self._in_order(shape) == (1, self.extent) and self._repeats(shape[:-2]):
                return x.seen(layout.squeeze(-1 if self.first else -2)), False
        raise self._refused(call, name, shape, group)

    def of_blocks(self, call: str, name: str, x: Lying | Number | int | None, group: int) -> Lying | None:
        """x as [..., blocks, lines], if it belongs to blocks."""
        if not isinstance(x, Lying):
            return None
        found, has_blocks = self.read(call, name, x, group)
        return found if has_blocks else None

    def shared(self, call: str, name: str, x: Lying, size: int) -> Shared:
        """x, which is [..., blocks, lines], as the gemm room knows it."""
        return Shared(matrix(call, name, x, (*self.batch, x.shape[-2], self.extent)), size)

    def _in_order(self, shape: Shape) -> tuple[int, int]:
        """The last two extents: along K, and of lines."""
        return (shape[-1], shape[-2]) if self.first else (shape[-2], shape[-1])

    def _repeats(self, batch: Shape) -> bool:
        """Whether these dimensions broadcast to those of the product."""
        own = self.batch[len(self.batch) - len(batch) :]
        return len(batch) <= len(self.batch) and all(x in (1, y) for x, y in zip(batch, own, strict=True))

    def _refused(self, call: str, name: str, shape: Shape, group: int | None) -> ShapeError:
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


class Parameter(NamedTuple):
    """A scale or a zero point of a product: where the plan has it from, and what its values belong to."""

    operand: ProductOperand
    shared: Shared


def by_block(
    call: str, names: Names, lines: Lines, scale: Lying | Number | None, zero_point: Lying | int | None,
    group: int | None, a: DType, b: Matrix | Panels,
) -> dict[str, Parameter]:  # fmt: skip
    """What belongs to blocks: `b_scale`, `b_zero`.

    A zero point of weights (integers b beside floats a, or in scaled blocks) always does: one block may be all of K.

    Raises:  DTypeError, OptionError, ShapeError.
    """
    found = dict[str, Parameter]()
    scales = None if group is None else lines.of_blocks(call, names.b_scale, scale, group)
    zeros = None
    if group is not None and b.dtype.is_integer:
        zeros = lines.of_blocks(call, names.b_zero_point, zero_point, group)
    if scales and group:
        check_dtype(call, names.b_scale, scales.dtype, *SCALES)
        found["b_scale"] = Parameter(ProductOperand("b_scale"), lines.shared(call, names.b_scale, scales, group))
    if group is not None and not (scales or zeros):
        lying = f"[N, K / {names.b_group}]" if names.turned else f"[..., K / {names.b_group}, N]"
        remedy = f"pass scales or zero points {lying} with it"
        raise OptionError(call, names.b_group, "", f"{group} without blocks", "left out", remedy)
    if zero_point is not None and b.dtype.is_integer and (a.is_float or scales or zeros):
        name = names.b_zero_point
        if isinstance(b, Panels):
            remedy = "give it to pack, with left="
            raise OptionError(call, name, "", "given beside packed weights", "left out", remedy)
        kept = dtypes.int8 if b.dtype.kind == "int" else dtypes.uint8
        operand, x = integers(call, name, "b_zero_point", zero_point, b.dtype, kept)
        x, has_blocks = lines.read(call, name, x, group)
        if not has_blocks:
            layout = x.layout.unsqueeze(x.layout.ndim - 1) if x.shape else x.layout.reshape((1, 1))
            x, group = x.seen(layout), max(lines.k, 1)
        assert group is not None  # blocks have a size
        found["b_zero"] = Parameter(operand, lines.shared(call, name, x, group))
    return found


def integers(
    call: str, name: str, argument: str, value: Lying | int, dtype: DType, kept: DType
) -> tuple[ProductOperand, Lying]:
    """A zero point of integers of `dtype`, each in whole bytes; a number is `kept` so.

    Raises:  DTypeError; OptionError if the format does not hold a number.
    """
    if isinstance(value, int):
        if not dtype.min <= value <= dtype.max:
            expected = f"within [{dtype.min}, {dtype.max}], as for {dtype.name}"
            raise OptionError(call, name, "", value, expected, "pass one that the format holds")
        return ProductOperand(argument, constant=Immediate(value, kept)), Lying.dense(kept)
    check_dtype(call, name, value.dtype, dtype)
    if dtype.width_bits == 8:
        return ProductOperand(argument), value
    wide = dtypes.int8 if dtype.kind == "int" else dtypes.uint8
    return ProductOperand(argument, VALUES), Lying.dense(wide, value.shape)
