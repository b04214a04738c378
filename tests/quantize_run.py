"""Plans of quantisation run on arrays beside forbidden pages, and what the reference stores, packed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import guard
import launch
import ml_dtypes
import numpy as np
import numpy.typing as npt

from samebits import dtypes, elements
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.kernels.plan import Plan
from samebits.kernels.quantize import plan as quantize_plan
from samebits.kernels.quantize import reference, values_plan
from samebits.kernels.quantize.blocks import scales_shape
from samebits.kernels.quantize.dialects import Dialect
from samebits.kernels.quantize.formats import BlockFormat

Array = npt.NDArray[Any]
Run = Callable[[Plan, Sequence[Array]], None]
KINDS = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def packed(codes: Array, width: int) -> Array:
    """Codes side by side in bytes, the first in the lowest bits; they fill whole bytes."""
    flat = codes.reshape(-1, 1) >> np.arange(width, dtype=np.uint8) & 1
    return np.packbits(flat.astype(np.uint8), bitorder="little")


@dataclass(frozen=True)
class Case:
    """x quantised to a format by a dialect.

    Attributes:
        given: The global scale, where it is given.
        line: Whether each line has its own.
        seed: Of stochastic rounding; None to nearest.
    """

    row: BlockFormat
    dialect: Dialect
    x: Array
    given: Array | None = None
    line: bool = False
    seed: int | None = None

    def plan(self, isa: Isa, threads: int = 1) -> Plan:
        """The plan of this."""
        found = self.given is not None
        return quantize_plan.plan(
            self.row, self.dialect, dtypes.of(self.x.dtype), launch.layout(self.x), isa, threads,
            given=found, line=self.line, order=None if self.seed is None else quantize_plan.dense(self.x.shape),
        )  # fmt: skip

    def due(self) -> list[Array]:
        """Elements, scales, and the global scale and zero points where the format has them, as they are stored."""
        with np.errstate(all="ignore"):
            found = reference.quantize(self.x, self.row, self.dialect, -1, self.given, line=self.line, seed=self.seed)
        parts = [packed(found.elements, self.row.element.width_bits), found.scales.ravel().view(np.uint8)]
        if found.global_scale is not None:
            parts.append(np.asarray(found.global_scale, np.float32).ravel())
        if found.zero_points is not None:
            parts.append(found.zero_points.ravel().view(np.uint8))
        return parts

    def check(self, isa: Isa, threads: int = 1, run: Run | None = None, *, at_start: bool = False) -> None:
        """The plan stores what is due, to the byte, and leaves x as it was."""
        due, x = self.due(), self.x
        found = [
            guard.array(np.full_like(part, 0xA5 if part.dtype == np.uint8 else -1), at_start=at_start) for part in due
        ]
        if self.given is not None:
            found[2][:] = due[2]
        before = x.copy()
        drawn = [] if self.seed is None else [guard.array(np.array([self.seed], np.uint64))]
        arrays = [x, *found, *drawn]
        (run or (lambda plan, arrays: launch.run_plan(plan, arrays, threads)))(self.plan(isa, threads), arrays)
        for name, got, wanted in zip(("elements", "scales", "last"), found, due, strict=False):
            launch.assert_bits(got, wanted, (isa.name, self.row, self.dialect, x.dtype, x.shape, name))
        launch.assert_bits(x, before)


def guarded(x: Array, *, at_start: bool = False) -> Array:
    """x beside a forbidden page."""
    return guard.array(x, at_start=at_start)


@dataclass(frozen=True)
class Numbers:
    """Parts of random codes, and what they are made."""

    row: BlockFormat
    shape: tuple[int, ...]
    dtype: DType = dtypes.float32
    divides: bool = False
    line: bool = False
    seed: int = 0

    def parts(self) -> reference.StoredParts:
        """Codes of every kind, scales NaN and subnormal ones among them."""
        rng, row = np.random.default_rng(self.seed), self.row
        scales = scales_shape(row, self.shape, -1)
        codes = rng.integers(0, 1 << row.element.width_bits, self.shape).astype(np.uint8)
        found: Array = np.exp2(rng.uniform(-20, 20, scales)).astype(np.float32)
        if row.scale is not dtypes.float32:
            found = rng.integers(0, 256, scales).astype(np.uint8).view(row.scale.numpy)
        zero = None if row.zero_point is None else rng.integers(0, 16, scales).astype(row.zero_point.numpy)
        whole = None
        if row.global_scale is not None:
            whole = np.array(0.37, np.float32)
            if self.line:
                whole = rng.uniform(0.1, 3, (*self.shape[:-1], 1)).astype(np.float32)
        return reference.StoredParts(codes, found, whole, zero)

    def check(self, isa: Isa, threads: int = 1, run: Run | None = None) -> dict[str, str]:
        """The plan makes the numbers that are due, to the byte; its facts."""
        parts, row, out = self.parts(), self.row, guard.empty(self.shape, KINDS[self.dtype.name])
        due = reference.dequantize(parts, row, self.divides, -1)
        if self.dtype is not dtypes.float32:
            due = elements.encode(due.astype(np.float64), self.dtype, "test").view(KINDS[self.dtype.name])
        arrays = [guard.array(packed(parts.elements, row.element.width_bits)), guard.array(parts.scales)]
        known = {"elements": _dense(self.shape, row.element.width_bits), "scales": _dense(parts.scales.shape, 1)}
        for name, part in (("zero_points", parts.zero_points), ("global_scale", parts.global_scale)):
            if part is not None:
                known[name] = _dense(part.shape, 1) if part.ndim else (0,) * len(self.shape)
                arrays.append(guard.array(part.ravel()))
        known["out"] = _dense(self.shape, 1)
        plan = values_plan.plan(row, self.shape, tuple(known.items()), self.dtype, isa, threads, divides=self.divides)
        (run or (lambda plan, arrays: launch.run_plan(plan, arrays, threads)))(plan, [*arrays, out])
        launch.assert_bits(out, due, (isa.name, self))
        return dict(plan.facts)


def _dense(shape: tuple[int, ...], unit: int) -> tuple[int, ...]:
    return tuple(0 if n == 1 and unit == 1 else unit * math.prod(shape[k + 1 :]) for k, n in enumerate(shape))
