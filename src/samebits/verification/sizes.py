"""Which batches and extents are worth trying: beyond every constant of the model that a size could be compared with.

A size may be compared while it is a size: a slice, `min`, a quotient. Such places are in the program's sizes, and
`changes` finds them by evaluating these. Or it may be compared as a number that the model computes with, with any of
the model's constants: `constants`. Start at `batches` and `extents`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from samebits.errors import ShapeError
from samebits.frozen import dataclass
from samebits.operations import dim
from samebits.operations.dim import Dim
from samebits.program.graph import Program

# Batches that are tried of every model: the smallest, ours of odd numbers, and more rows than any tile has.
LADDER = (2, 3, 8, 17, 64)
# A batch is as large as every position in it can be checked in seconds.
MOST_ROWS = 1 << 16
ODD = 7
# Values of one axis, at most; of more, the largest and some between.
_MOST = 12
# Elements of a constant whose values may be meant as sizes, and not as weights.
_SMALL = 64
# Up to here every extent is looked at.
_DENSE = 1024
# No extent of a model is beyond.
_HORIZON = 1 << 40


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of a program, bounded by the elements that all values of one run may have.

    Attributes:
        program: The model.
        batch: The symbol that counts rows, if there is one.
        most_elements: The bound.
    """

    program: Program
    batch: str | None
    most_elements: int

    @cached_property
    def _shapes(self) -> tuple[dim.SymbolicShape, ...]:
        """Of every value that takes memory as sizes say."""
        views = {name for node in self.program.nodes if node.row.view for name in node.outputs}
        shapes = (fact.shape for name, fact in self.program.facts.items() if name not in views)
        return tuple(shape for shape in shapes if any(isinstance(size, Dim) for size in shape))

    @cached_property
    def _branching(self) -> tuple[Dim, ...]:
        """Every size of a value or in a node that is not one polynomial for all extents."""
        ones = dict.fromkeys(self.program.symbols, 1)
        found = {size for fact in self.program.facts.values() for size in fact.shape if isinstance(size, Dim)}
        for node in self.program.nodes:
            found.update(_sizes_in(node.attributes, set()))
        return tuple(size for size in found if dim.symbols(size) and self._ways((size,), ones) != ((),))

    @cached_property
    def constants(self) -> tuple[int, ...]:
        """Whole numbers from 2 on among the model's constants and fills, ascending.

        Of many integers it is the largest, of many floats none: those are weights.
        """
        numbers: set[int] = set()
        arrays = [constant for constant in self.program.constants.values() if isinstance(constant, np.ndarray)]
        for array in arrays:
            if array.dtype.kind in "iuf" and 0 < array.size <= (_SMALL if array.dtype.kind == "f" else array.size):
                values = np.unique(array.astype(np.float64))
                values = values[np.isfinite(values) & (values >= 2) & (values < _HORIZON)]
                numbers.update(int(x) for x in (values if array.size <= _SMALL else values[-1:]))
        return tuple(sorted(numbers))

    def elements(self, bindings: Mapping[str, int]) -> int:
        """Elements of all values whose size depends on a symbol; 0 for sizes that the model refuses."""
        try:
            return sum(math.prod(max(0, x) for x in dim.bind_shape(shape, bindings)) for shape in self._shapes)
        except ShapeError:
            return 0

    def most(self, symbol: str, bindings: Mapping[str, int]) -> int:
        """The largest value of a symbol up to MOST_ROWS that stays within the bound, the others being as given."""
        low, high = 1, MOST_ROWS
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.elements({**bindings, symbol: middle}) <= self.most_elements
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def changes(self, symbol: str, most: int, bindings: Mapping[str, int]) -> tuple[tuple[int, ...], int | None]:
        """Where a size changes its form: the values of `symbol` in 2 .. most, and the first found beyond, if any.

        Every value is looked at up to _DENSE, from there on doubles; where these differ the place is narrowed down.
        """
        sizes = tuple(size for size in self._branching if symbol in dim.symbols(size))
        if not sizes:
            return (), None

        def ways(n: int) -> tuple[tuple[int, ...] | None, ...]:
            return self._ways(sizes, {**bindings, symbol: n})

        found: list[int] = []
        last, low, high = ways(1), 1, 2
        while low < _HORIZON:
            now = ways(high)
            if _differ(last, now):
                while low + 1 < high:
                    middle = (low + high) // 2
                    low, high = (low, middle) if _differ(last, ways(middle)) else (middle, high)
                if high > most:
                    return tuple(found), high
                found.append(high)
                now = ways(high)
            last = _merged(last, now)
            low, high = high, high + 1 if high < _DENSE else 2 * high
        return tuple(found), None

    def _ways(self, sizes: Iterable[Dim], bindings: Mapping[str, int]) -> tuple[tuple[int, ...] | None, ...]:
        """Which way each size goes; None where it cannot be."""
        found: list[tuple[int, ...] | None] = []
        for size in sizes:
            try:
                found.append(dim.branches(size, bindings))
            except ShapeError:
                found.append(None)
        return tuple(found)

    def batches(self, bindings: Mapping[str, int]) -> tuple[tuple[int, ...], int | None]:
        """Batches to try, ascending, and the first that would have another form but is beyond the bound."""
        if self.batch is None:
            return (), None
        most = max(LADDER[-2], self.most(self.batch, bindings))
        found, beyond = self.changes(self.batch, most, bindings)
        near = {n for constant in self.constants for n in (constant, constant + 1) if 1 < n <= most}
        wanted = {*(n for n in LADDER if n <= most), *_some(found), *_some(sorted(near), 6)}
        return tuple(sorted(wanted)), beyond

    def extents(self, symbol: str, rows: int, bindings: Mapping[str, int]) -> tuple[tuple[int, ...], int | None]:
        """Values of another symbol to try with so many rows, and the first of another form beyond the bound."""
        bound = dict(bindings) if self.batch is None else {**bindings, self.batch: rows}
        most = max(ODD, self.most(symbol, bound))
        found, beyond = self.changes(symbol, most, bound)
        near = {n for constant in self.constants for n in (constant, constant + 1) if n <= most}
        return tuple(sorted({*_some(found), *_some(sorted(near), 4)} - {1, ODD, bindings[symbol]})), beyond


def _some(values: Iterable[int], most: int = _MOST) -> list[int]:
    """Values, or where they are many the largest and evenly chosen others."""
    ordered = list(values)
    if len(ordered) <= most:
        return ordered
    return [ordered[len(ordered) - 1 - i * len(ordered) // most] for i in range(most)]


def _sizes_in(value: Any, seen: set[int]) -> Iterator[Dim]:
    """Every size with symbols in a description."""
    if isinstance(value, Dim):
        yield value
    elif id(value) in seen:
        return
    elif isinstance(value, tuple):
        seen.add(id(value))
        for item in value:
            yield from _sizes_in(item, seen)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        seen.add(id(value))
        for fact in dataclasses.fields(value):
            if fact.compare:  # what is remembered beside these may not be there yet
                yield from _sizes_in(getattr(value, fact.name), seen)


def _differ(ways: tuple[tuple[int, ...] | None, ...], others: tuple[tuple[int, ...] | None, ...]) -> bool:
    """Whether a sign changed. Where arguments are equal both ways give the same size, so 0 changes nothing."""
    for x, y in zip(ways, others, strict=True):
        if x is None or y is None:
            if x is not y:
                return True
        elif any(a * b < 0 for a, b in zip(x, y, strict=True)):
            return True
    return False


def _merged(
    ways: tuple[tuple[int, ...] | None, ...], now: tuple[tuple[int, ...] | None, ...]
) -> tuple[tuple[int, ...] | None, ...]:
    """The signs of `now`, where one is 0 that of before."""
    return tuple(
        y if x is None or y is None else tuple(b or a for a, b in zip(x, y, strict=True))
        for x, y in zip(ways, now, strict=True)
    )
