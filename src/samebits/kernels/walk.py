"""Walk: how a kernel visits operands of any strides together: outer axes by row number, one inner axis by vectors.

The axes of all operands are merged jointly where every operand allows it, so that contiguous operands of any rank are
one row. Start at `walk`; `Cursor` is the same walk inside a kernel text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.dtypes import DType
from samebits.errors import ShapeError
from samebits.kernels.plan import Operand

AxisSteps = tuple[tuple[int, ...], tuple[int, ...]]
"""An operand's shape and its strides in elements."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its extent and each operand's stride along it."""

    extent: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Walk:
    """Outer axes, slowest first, and the inner axis."""

    outer: tuple[Axis, ...]
    inner: Axis

    @property
    def rows(self) -> int:
        """How many times the inner axis is walked."""
        return math.prod(axis.extent for axis in self.outer)

    @property
    def classes(self) -> tuple[str, ...]:
        """Per operand how it lies along the inner axis: `unit`, `same` (stride 0) or `strided`."""
        names = {0: "same", 1: "unit"}
        return tuple(names.get(s, "strided") for s in self.inner.strides)

    def parameters(self) -> tuple[str, ...]:
        """Names of the kernel arguments that `Cursor` reads, in the order of `arguments`."""
        operands = range(len(self.inner.strides))
        names = ["n", *(f"x{k}" for k in operands), *(f"x{k}.inner" for k in operands)]
        for a in range(len(self.outer)):
            names += [f"extent{a}", *(f"x{k}.{a}" for k in operands)]
        return tuple(names)

    def arguments(self, addresses: Sequence[Operand]) -> tuple[int | Operand, ...]:
        """Their values, `addresses` being the operands'."""
        values: list[int | Operand] = [self.inner.extent, *addresses, *self.inner.strides]
        for axis in self.outer:
            values += [axis.extent, *axis.strides]
        return tuple(values)


def broadcast(call: str, layout: AxisSteps, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides that make an operand have `shape`: 0 along the axes it is repeated on.

    Raises:  ShapeError if its shape does not broadcast to `shape`.
    """
    given, strides = layout
    missing = len(shape) - len(given)
    if missing < 0 or any(g not in (1, s) for g, s in zip(given, shape[missing:], strict=True)):
        raise ShapeError(call, "an operand", "shape", given, f"one that broadcasts to {shape}", "reshape it")
    own = tuple(0 if g == 1 else s for g, s in zip(given, strides, strict=True))
    return (0,) * missing + own


def walk(axes: Sequence[Axis]) -> Walk:
    """Axes, slowest first, merged jointly; the last is walked by vectors."""
    merged: list[Axis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        if merged and merged[-1].strides == tuple(s * axis.extent for s in axis.strides):
            axis = Axis(axis.extent * merged.pop().extent, axis.strides)
        merged.append(axis)
    if not merged:
        return Walk((), Axis(1, tuple(1 for _ in axes[0].strides) if axes else ()))
    return Walk(tuple(merged[:-1]), merged[-1])


class Cursor:
    """A walk's operands inside a kernel text: addresses of one row, and vectors along it."""

    def __init__(self, b: Builder, classes: Sequence[str], types: Sequence[DType], outer: int) -> None:
        self._b, self._classes, self._types, self._outer = b, classes, types, outer
        self.n = b.index("n")
        self._bases = [b.pointer(f"x{k}", dtype) for k, dtype in enumerate(types)]
        self._inner = [b.index(f"x{k}.inner") if c in ("strided", "turned") else None for k, c in enumerate(classes)]
        self._rows: list[Pointer] = []

    def row_count(self) -> Index:
        """The product of the outer extents."""
        count: Index = 1
        for a in range(self._outer):
            count = self._b.index(f"extent{a}") * count
        return count

    def enter(self, row: Index, further: Sequence[Index] | None = None) -> None:
        """Make `row` the current row, each operand `further` elements on."""
        places: list[Index] = []
        rest = row
        for a in reversed(range(self._outer)):
            extent = self._b.index(f"extent{a}")
            places.insert(0, rest % extent if a else rest)
            rest = rest // extent if a else rest
        self._rows = []
        for k, base in enumerate(self._bases):
            at: Index = further[k] if further else 0
            for a, place in enumerate(places):
                at = place * self._b.index(f"x{k}.{a}") + at
            self._rows.append(self._b.offset(base, at))

    def load(self, k: int, i: Index, width: int, count: Index | None = None) -> Vector:
        """Operand k at positions i .. i+width-1 of the row (the first `count` of them)."""
        stride = self._inner[k]
        if stride is not None:
            return self._b.load_strided(self._rows[k], i * stride, stride, width, count)
        if self._classes[k] == "same":
            return self._b.splat(self.load_one(k), width)
        return self._b.load(self._rows[k], i, width, count)

    def prefetch(self, k: int, i: Index) -> None:
        """Have position i of operand k, which is dense along the row, in the first cache soon."""
        self._b.prefetch(self._rows[k], i)

    def load_across(self, k: int, i: Index, width: int) -> Vector:
        """Operand k, turned, at position i of `width` rows: it is dense along the last outer axis."""
        stride = self._inner[k]
        assert stride is not None  # it is strided along the row
        return self._b.load(self._rows[k], i * stride, width)

    def load_one(self, k: int) -> Vector:
        """The one element of an operand that is the same along the row."""
        return self._b.load(self._rows[k], 0, 1)

    def store(self, k: int, i: Index, v: Vector, count: Index | None = None) -> None:
        """Write operand k at positions i .. of the row."""
        stride = self._inner[k]
        if stride is not None:
            self._b.store_strided(self._rows[k], i * stride, stride, v, count)
        else:
            self._b.store(self._rows[k], i, v, count)
