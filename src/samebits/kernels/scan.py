"""Scan: out[k] = op(out[k - 1], x[k]) along one axis, ascending from the first element: numerics.md section 6.

    plan(scan, x, out, axis, isa, threads) -> Plan
    reference(scan, x, axis) -> array

`x` and `out` are layouts, `(shape, strides in elements)`, of one shape. Operands of the plan: x, out. Lanes lie along
another axis than the scanned one, so that each of them is one chain in order. Start at `text`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from samebits import dtypes, ieee
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Index, KernelSpec, Vector
from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels import convert
from samebits.kernels.composites import summed
from samebits.kernels.functions import exact
from samebits.kernels.plan import Operand, Plan, Step
from samebits.kernels.walk import Axis, AxisSteps, Cursor, broadcast, stretch, walk

__all__ = ["Scan", "ScanKind", "plan", "reference"]

Array = npt.NDArray[Any]
ScanKind = Literal["sum", "prod", "max", "min"]

# Elements of one task, as of elementwise kernels.
_TASK = 8192
_WORDS = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}


@dataclass(frozen=True, slots=True)
class Scan:
    """What is scanned."""

    kind: ScanKind
    source: DType

    @property
    def total(self) -> DType:
        """What it is computed in: of sums and products of integers what a sum is."""
        if self.kind in ("sum", "prod") and not self.source.is_float:
            return summed(self.source)
        return dtypes.uint8 if self.source.kind == "bool" else convert.computed(self.source)

    @property
    def target(self) -> DType:
        """What its results are."""
        return self.source if self.source.is_float or self.kind in ("max", "min") else self.total


@dataclass(frozen=True, slots=True)
class ScanText:
    """What specialises the kernel.

    Attributes:
        scan: What is scanned.
        classes: How x and out lie along the lanes.
        above: Whether axes lie above the stretches.
        width: Lanes of a vector.
    """

    scan: Scan
    classes: tuple[str, ...]
    above: bool
    width: int


def reference(scan: Scan, x: Array, axis: int) -> Array:
    """The results by NumPy, one element after the other."""
    is_float = scan.total.is_float
    steps: dict[str, Callable[..., Array]] = {
        "sum": np.add,
        "prod": np.multiply,
        "max": ieee.maximum if is_float else np.maximum,
        "min": ieee.minimum if is_float else np.minimum,
    }
    step = steps[scan.kind]
    with np.errstate(all="ignore"):
        given = np.moveaxis(exact.widened(x).astype(scan.total.numpy), axis, 0)
        found = np.array(given)
        for k in range(1, len(given)):
            found[k] = step(found[k - 1], given[k])
        found = np.moveaxis(ieee.canonical(found), 0, axis)
        return np.ascontiguousarray(found if scan.target is scan.total else exact.cast(scan.target, found))


@functools.lru_cache(maxsize=1024)
def plan(scan: Scan, x: AxisSteps, out: AxisSteps, axis: int, isa: Isa, threads: int = 1) -> Plan:
    """One kernel over the merged axes that are not scanned."""
    shape = out[0]
    strides = [broadcast("scan.plan", layout, shape) for layout in (x, out)]
    axes = [Axis(extent, (strides[0][a], strides[1][a])) for a, extent in enumerate(shape) if a != axis]
    axes.sort(key=lambda one: -abs(one.strides[1]))
    way = walk(axes) if axes else walk([Axis(1, (0, 0))])
    length, n = shape[axis], way.inner.extent
    width = isa.lanes if n > 1 else 1
    groups = -(-n // width) * way.rows if length else 0
    each = max(1, _TASK // max(1, length * width))
    spec = KernelSpec(
        text,
        ScanText(scan, way.classes, way.above, width),
        ("each", "length", "x0.scan", "x1.scan", "rows", *way.parameters()),
        isa,
    )
    arguments = (each, length, strides[0][axis], strides[1][axis], way.rows)
    return Plan(
        what=f"cumulative {scan.kind} of {scan.source} {shape} along axis {axis}",
        isa=isa,
        threads=threads,
        steps=(Step(spec, -(-groups // each), (*arguments, *way.arguments((Operand(0), Operand(1))))),),
        operands=("x", "out"),
        facts=(("lanes", f"{way.rows} rows of {n}"), ("inner axis", " ".join(way.classes))),
    )


def text(b: Builder, d: ScanText) -> None:
    """A task is some groups of lanes, each of which is scanned from end to end."""
    each, n, extent = b.index("each"), b.index("n"), b.index("stretch")
    groups, types = (n + (d.width - 1)) // d.width, (d.scan.source, d.scan.target)
    for task in b.tasks():
        first = task * each
        for group in b.loop(first, b.min(first + each, groups * b.index("rows"))):
            row, start = group // groups, group % groups * d.width
            number, place = (row // extent, row % extent) if d.above else (0, row)
            cursor = stretch(b, d.classes, types, d.above, number, place, place + 1).row(place)
            for _ in b.when(start + d.width <= n):
                _chain(b, d, cursor, start, None)
            for _ in b.when(start + d.width > n):
                _chain(b, d, cursor, start, n - start)


def _chain(b: Builder, d: ScanText, cursor: Cursor, start: Index, count: Index | None) -> None:
    """Some lanes along the scanned axis."""
    scan, word = d.scan, _WORDS[d.scan.kind]

    def load(k: Index) -> Vector:
        return _as(b, cursor.on("scan", k).load(0, start, d.width, count), scan.total)

    def store(k: Index, found: Vector) -> None:
        cursor.on("scan", k).store(1, start, _as(b, b.canonical(found), scan.target), count)

    total = [load(0)]
    store(0, total[0])
    for k in b.loop(1, b.index("length"), carry=total):
        total[0] = getattr(b, word)(total[0], load(k))
        store(k, total[0])


def _as(b: Builder, x: Vector, dtype: DType) -> Vector:
    """x cast to a format, if it is of another."""
    return x if x.dtype is dtype else convert.cast(b, x, dtype)
