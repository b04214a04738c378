"""Running a plan on NumPy arrays, and comparing arrays by their bits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits.kernels.plan import Plan
from samebits.kernels.walk import AxisSteps
from samebits.native.table import Table

Array = npt.NDArray[Any]


def layout(a: Array) -> AxisSteps:
    """An array's shape and its strides in elements."""
    return a.shape, tuple(s // a.itemsize for s in a.strides)


def layouts(*arrays: Array) -> tuple[AxisSteps, ...]:
    """The layouts of several arrays."""
    return tuple(layout(a) for a in arrays)


def run_plan(plan: Plan, arrays: Sequence[Array], threads: int = 1) -> None:
    """Perform a plan on its operands; the workspace is made here and starts as 0xA5."""
    workspace = np.full(plan.workspace_bytes + 64, 0xA5, np.uint8)
    addresses = [a.ctypes.data for a in arrays]
    if plan.workspace_bytes:
        addresses.append(-(-workspace.ctypes.data // 64) * 64)
    slots = tuple(range(len(addresses)))
    Table([(plan, slots)], len(slots), threads).run(addresses)


def bits(a: Array) -> Array:
    """The codes of an array's elements."""
    return np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}")


def assert_bits(got: Array, due: Array, what: object = "") -> None:
    """Equal shapes, dtypes and bits."""
    assert (got.shape, got.dtype) == (due.shape, due.dtype), what
    wrong = np.argwhere(bits(got) != bits(due))
    if len(wrong):
        at = tuple(wrong[0])
        detail = f"{len(wrong)} differ, first at {at}: {got[at]!r} ({bits(got)[at]:x}), {due[at]!r} ({bits(due)[at]:x})"
        raise AssertionError(f"{what}: {detail}")


@contextlib.contextmanager
def flushing() -> Iterator[None]:
    """The calling thread treats subnormals as zero meanwhile, as a host program may."""
    import torch

    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
