"""Narrow against the NumPy reference on every row: any two layouts, beside forbidden pages, by several threads."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Iterable
from typing import Any

import aarch64
import guard
import launch
import numpy as np
import pytest
import rows
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st

from samebits.codegen.isa import ROWS, Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.errors import PlanError, ShapeError
from samebits.kernels import narrow
from samebits.kernels.plan import Operand
from samebits.layout import Layout, Storage
from samebits.native import compile

Array = np.ndarray[Any, Any]
WIDTHS = (1, 2, 4, 6)
STORAGES: tuple[Storage, ...] = ("packed", "padded")
NUMPY = ROWS[0]
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
ISAS = pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)


def random_bytes(layout: Layout, seed: int, *, at_start: bool = False) -> Array:
    """Memory for a layout, next to a forbidden page."""
    data = np.random.default_rng(seed).integers(0, 256, layout.required_bytes, np.uint8)
    return guard.array(data, at_start=at_start)


def check(source: Layout, target: Layout, isa: Isa, threads: int = 1, *, at_start: bool = False) -> None:
    """The plan changes what the reference changes, as it does, and nothing else."""
    x, before = random_bytes(source, 1, at_start=at_start), random_bytes(target, 2)
    due, found = before.copy(), guard.array(before, at_start=at_start)
    narrow.reference(source, x, target, due)
    launch.run_plan(narrow.plan(source, target, isa, threads), [x, found], threads)
    assert np.array_equal(found, due), (isa.name, source, target)


def row_of(n: int, width: int, storage: Storage, skip: int) -> Layout:
    """n elements of a dense row behind `skip` others."""
    return Layout.dense((n + skip,), width_bits=width, storage=storage)[skip:]


@pytest.mark.parametrize("width", WIDTHS)
@ISAS
def test_rows_of_every_length_from_every_element_of_a_byte(isa: Isa, width: int) -> None:
    wide = 8 * isa.lanes
    lengths = sorted({0, 1, 2, 7, 8, 9, 15, 16, 17, wide - 1, wide, wide + 9, 2 * wide + 25})
    for n in lengths:
        for skip in range(8 // math.gcd(width, 8)):
            for from_, to in (("packed", "padded"), ("padded", "packed"), ("padded", "padded")):
                check(row_of(n, width, from_, skip), row_of(n, width, to, skip), isa)  # type: ignore[arg-type]
            for other in (0, 1, skip):
                check(row_of(n, width, "packed", other), row_of(n, width, "packed", skip), isa, at_start=True)


@pytest.mark.parametrize("width", WIDTHS)
@ISAS
def test_one_element_fills_rows(isa: Isa, width: int) -> None:
    one = row_of(1, width, "packed", 1)
    for n in (1, 8, 13, 8 * isa.lanes + 11):
        for storage in STORAGES:
            for skip in (0, 1):
                check(one, row_of(n, width, storage, skip), isa)


@pytest.mark.parametrize("width", [3, 5, 7])
def test_widths_of_no_format_are_copied_too(width: int) -> None:
    for isa in rows.COMPILED_ROWS:
        for from_, to in (("packed", "padded"), ("padded", "packed"), ("packed", "packed"), ("padded", "padded")):
            check(row_of(300, width, from_, 1), row_of(300, width, to, 2), isa)  # type: ignore[arg-type]


@pytest.mark.parametrize("isa", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_narrow_on_aarch64(isa: Isa) -> None:
    for width in WIDTHS:
        for n in (5, 8 * isa.lanes + 11):
            for from_, to in (("packed", "padded"), ("padded", "packed"), ("packed", "packed")):
                source, target = row_of(n, width, from_, 1), row_of(n, width, to, 2)  # type: ignore[arg-type]
                x, found = random_bytes(source, 1), random_bytes(target, 2)
                due = found.copy()
                narrow.reference(source, x, target, due)
                aarch64.run_plan(narrow.plan(source, target, isa), [x, found])
                assert np.array_equal(found, due), (isa.name, source, target)
        plane = Layout.dense((3, 5, 7), width_bits=width)
        source, target = plane.permute((2, 0, 1))[:, ::-1], Layout.dense((7, 3, 5), width_bits=width)
        x, found = random_bytes(plane, 1), random_bytes(target, 2)
        due = found.copy()
        narrow.reference(source, x, target, due)
        aarch64.run_plan(narrow.plan(source, target, isa), [x, found])
        assert np.array_equal(found, due), (isa.name, width)


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, ...], width: int) -> Layout:
    """Views of a dense tensor, or layouts of strides and offsets in any number of bits; no two elements overlap."""
    storage = draw(st.sampled_from(STORAGES))
    if draw(st.integers(0, 3)):
        extents = [n + draw(st.integers(0, 3)) for n in shape]
        layout = Layout.dense(
            extents, width_bits=width, storage=storage, order=draw(st.permutations(range(len(shape))))
        )
        starts = [draw(st.integers(0, m - n)) for n, m in zip(shape, extents, strict=True)]
        layout = layout[tuple(slice(s, s + n) for s, n in zip(starts, shape, strict=True))]
        for axis in range(len(shape)):
            if not draw(st.integers(0, 5)):
                layout = layout.flip(axis)
        return layout
    strides, reach = [0] * len(shape), width
    for axis in draw(st.permutations(range(len(shape)))):
        step = reach + draw(st.integers(0, 9))
        strides[axis] = draw(st.sampled_from([step, -step]))
        reach = step * max(shape[axis], 1)
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True) if n)
    return Layout(shape, tuple(strides), draw(st.integers(0, 20)) - low, width, storage)


@given(st.data())
@examples(100)
def test_any_layout_to_any_layout(data: st.DataObject) -> None:
    width = data.draw(st.sampled_from([*WIDTHS, *WIDTHS, 3, 5, 7, 8]))
    extents = st.sampled_from([0, 1, 2, 3, 7, 8, 9, 17, 33])
    shape = tuple(data.draw(st.lists(extents, max_size=3)))
    source, target = data.draw(views(shape, width)), data.draw(views(shape, width))
    if shape and not data.draw(st.integers(0, 4)):
        source = source[:1] if shape[0] else source
    for isa in rows.ALL_ROWS:
        if isa is not NUMPY or target.size < 100:
            check(source, target, isa, data.draw(st.sampled_from([1, 2, 3])), at_start=data.draw(st.booleans()))


MANY = 200_003
SHARED: dict[str, tuple[Layout, Layout]] = {
    f"{width} bits {name}": (source, target)
    for width in WIDTHS
    for name, source, target in (
        ("unpacked", row_of(MANY, width, "packed", 1), row_of(MANY, width, "padded", 0)),
        ("packed", row_of(MANY, width, "padded", 1), row_of(MANY, width, "packed", 1)),
        ("moved", row_of(MANY, width, "packed", 2), row_of(MANY, width, "packed", 3)),
        (
            "rows that share bytes",
            Layout.dense((401, 499), width_bits=width, storage="padded"),
            Layout.dense((401, 501), width_bits=width)[:, 1:500],
        ),
        (
            "rows of their own bytes",
            Layout.dense((1000, 200), width_bits=width),
            Layout.dense((1000, 208), width_bits=width)[:, 8:],
        ),
        (
            "columns",
            Layout.dense((200, 100), width_bits=width).permute((1, 0)),
            Layout.dense((100, 400), width_bits=width)[:, ::2],
        ),
    )
}


@pytest.mark.parametrize("case", SHARED)
def test_threads_give_the_same_bits(case: str) -> None:
    source, target = SHARED[case]
    for threads in (1, 2, 3):
        check(source, target, rows.COMPILED_ROWS[-2], threads)


@pytest.mark.parametrize("case", [case for case in SHARED if "columns" not in case])
def test_no_two_tasks_write_one_byte(case: str) -> None:
    source, target = SHARED[case]
    ones = np.full(source.required_bytes, 0xFF, np.uint8)
    plan = narrow.plan(source, target, rows.COMPILED_ROWS[-2], 2)
    (step,) = plan.steps
    writers = np.zeros(target.required_bytes, np.int64)
    if case.endswith(("unpacked", " packed", "moved", "own bytes")):
        assert step.tasks > 3
    run = KERNEL(compile.address(step.spec))
    for task in range(step.tasks):
        zeros = np.zeros(target.required_bytes, np.uint8)
        addresses = (ones.ctypes.data, zeros.ctypes.data)
        words = [addresses[x.index] if isinstance(x, Operand) else x for x in step.arguments]
        run((ctypes.c_int64 * len(words))(*words), task, task + 1, None)
        writers += zeros != 0
    assert writers.max() == 1


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_are_tasks_of_their_own_unless_neighbours_meet_in_a_byte(width: int) -> None:
    """Eight elements a row, one row right behind the other, from a byte's first element on and from its second."""
    rows_ = 20_000
    source = Layout.dense((8, rows_), width_bits=width).permute((1, 0))
    for skip, most in ((0, 5), (1, 1)):
        target = Layout.dense((rows_ * 8 + skip,), width_bits=width)[skip:].unflatten(0, (rows_, 8))
        (step,) = narrow.plan(source, target, rows.COMPILED_ROWS[-2], 2).steps
        assert step.tasks == most, skip


def test_the_plan_says_what_it_does() -> None:
    plan = narrow.plan(row_of(9, 4, "packed", 0), row_of(9, 4, "padded", 0), NUMPY)
    assert str(plan).splitlines()[:5] == [
        "narrow 4 bits (9,)",
        "  isa numpy, threads 1",
        "  rows: 1 of 9",
        "  inner axis: packed to bytes",
        "  tasks: 1, of which none shares a byte of the target with another",
    ]


def test_what_cannot_be_repacked_is_refused() -> None:
    four, wide = Layout.dense((4,), width_bits=4), Layout.dense((4,), width_bits=16)
    with pytest.raises(PlanError, match="widths is 4 and 16 bits, must be equal and at most 8 bits"):
        narrow.plan(four, wide, NUMPY)
    with pytest.raises(PlanError, match="widths is 16 and 16 bits"):
        narrow.plan(wide, wide, NUMPY)
    with pytest.raises(PlanError, match=r"first bit is -12, must be at least 0; use Layout\.rebased"):
        narrow.plan(Layout((4,), (-4,), 0, 4), four, NUMPY)
    with pytest.raises(ShapeError, match=r"source shape is \(4,\), must be one that broadcasts to \(3,\)"):
        narrow.plan(four, Layout.dense((3,), width_bits=4), NUMPY)


def kernels(extents: Iterable[int]) -> set[KernelSpec]:
    """What packing, unpacking, slices and turned axes need for elements of four bits."""
    found, isa = set[KernelSpec](), rows.PLANNED
    for m, n in itertools.product(extents, repeat=2):
        tight, loose = (Layout.dense((3, m, n), width_bits=4, storage=storage) for storage in STORAGES)
        wide = Layout.dense((3, m, n + 2), width_bits=4)[..., :n]
        turned = Layout.dense((n, m, 3), width_bits=4).permute((2, 1, 0))
        for source, target in ((tight, loose), (loose, tight), (wide, tight), (turned, tight), (turned, loose)):
            found |= {step.spec for step in narrow.plan(source, target, isa).steps if step.tasks}
    return found


def test_new_extents_need_no_new_kernels() -> None:
    """The first ones: 0, 1, and around what is cut into blocks."""
    known = kernels((0, 1, 2, 3, 7, 8, 9, 65535, 65536, 65537))
    assert len(known) <= 7
    assert kernels((4, 5, 15, 16, 17, 100, 1000, 1 << 17)) <= known
