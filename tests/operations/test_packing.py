"""Rows on packed operands: views of any lie, the plan between its copies, and copies alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from launch import run_plan
from narrow import codes_of, packed
from rows import COMPILED_ROWS, PLANNED

from samebits import dtypes, elements, tuning
from samebits.dtypes import DType
from samebits.errors import LayoutError
from samebits.layout import Layout, Storage
from samebits.operations import packing, registry
from samebits.operations.elementwise import Map, single
from samebits.operations.moves import AxisGather, Concat, GatherND
from samebits.operations.operation import PlanTarget
from samebits.operations.packing import AnyView

TARGET = PlanTarget(PLANNED, 1, tuning.machine(PLANNED))


def test_views_count_elements_of_bytes_and_bits_of_packed_ones() -> None:
    assert packing.view(dtypes.int8, Layout.dense((2, 3), width_bits=8)) == (dtypes.int8, (2, 3), (3, 1))
    apart = Layout.dense((2, 3), width_bits=4, storage="padded")
    assert packing.view(dtypes.int4, apart) == (dtypes.int4, (2, 3), (3, 1))
    dense = Layout.dense((2, 3), width_bits=6)
    assert packing.view(dtypes.float6_e2m3fn, dense[:, 1:]) == (dtypes.float6_e2m3fn, (2, 2), (18, 6), 6)
    assert packing.unpacked(packing.view(dtypes.int4, Layout.dense((2, 3), width_bits=4).permute((1, 0)))) == (
        dtypes.int4, (3, 2), (1, 3)
    )  # fmt: skip
    repeated = Layout.dense((1, 3), width_bits=4).broadcast_to((2, 3))
    assert packing.unpacked(packing.view(dtypes.int4, repeated)) == (dtypes.int4, (2, 3), (0, 1))
    with pytest.raises(LayoutError, match=r"strides_bits is \(24,\), must be multiples of the 16 bits of int16"):
        packing.view(dtypes.int16, Layout((2,), (24,), 0, 16))


def test_a_plan_without_packed_operands_is_the_rows_own() -> None:
    views = (dtypes.float32, (3, 4), (4, 1)), (dtypes.float32, (3, 4), (4, 1))
    negative = Map(single("neg", dtypes.float32))
    planner = registry.ROWS["map"].plan
    assert planner is not None
    assert packing.plan("map", negative, views, 1, TARGET) == planner(negative, views, TARGET)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_rows_that_move_take_and_make_packed_elements(isa: Any) -> None:
    """Joined and picked: what indices set where they are out of range stands before the packed result."""
    codes, target = codes_of(dtypes.int4, 3, 5), PlanTarget(isa, 1, tuning.machine(isa))
    x = packed(codes, dtypes.int4)
    lie = packing.view(x.dtype, x.layout)
    made = np.zeros(15, np.uint8)
    out = Layout.dense((6, 5), width_bits=4)
    joined = packing.plan("concat", Concat(0), (lie, lie, packing.view(x.dtype, out)), 1, target)
    run_plan(joined, [x.buffer.array(), x.buffer.array(), made])
    assert np.array_equal(elements.read(made, out), np.concatenate([codes, codes]))
    ids, status, few = np.array([2, -3, 7]), np.zeros(2, np.int64), Layout.dense((3, 5), width_bits=4)
    views: tuple[AnyView, ...] = lie, (dtypes.int64, (3,), (1,)), packing.view(x.dtype, few)
    picked = packing.plan("gather", AxisGather(0), views, 1, target)
    run_plan(picked, [x.buffer.array(), ids, status, made])
    assert np.array_equal(elements.read(made, few), codes[[2, 0, 0]])
    assert status.tolist() == [1, 7]


@pytest.mark.parametrize("storage", ["packed", "padded"])
@pytest.mark.parametrize("dtype", [dtypes.uint1, dtypes.int4, dtypes.float6_e2m3fn], ids=str)
def test_rows_of_whole_bytes_are_picked_where_they_lie(dtype: DType, storage: Storage) -> None:
    """Along each axis, by one index and two; no copy of the table is made, whose rows are of whole bytes or not."""
    codes = codes_of(dtype, 3, 4, 8)
    x, width = packed(codes, dtype), dtype.width_bits
    lie = packing.view(dtype, x.layout)
    ids = np.array([[1, -2], [0, -1]])
    cases: list[tuple[str, Any, np.ndarray[Any, Any], bool]] = [
        ("gather", AxisGather(0), codes[ids], True),
        ("gather", AxisGather(1), codes[:, ids], True),
        ("gather", AxisGather(2), codes[:, :, ids], False),
        ("gather_nd", GatherND(), codes[ids[:, 0], ids[:, 1]], True),
    ]
    for operation, attributes, due, whole in cases:
        out = Layout.dense(due.shape, width_bits=width, storage=storage)
        made, status = np.zeros(out.required_bytes, np.uint8), np.zeros(2, np.int64)
        views = lie, (dtypes.int64, ids.shape, (2, 1)), packing.view(dtype, out)
        plan = packing.plan(operation, attributes, views, 1, TARGET)
        run_plan(plan, [x.buffer.array(), ids, status, made])
        assert np.array_equal(elements.read(made, out), due), (operation, attributes)
        assert any("unpacked" in how for _, how in plan.facts) != whole
        assert bool(plan.workspace_bytes) == (storage == "padded" or not whole)


@pytest.mark.parametrize("dtype", [dtypes.uint1, dtypes.int4, dtypes.float6_e2m3fn], ids=str)
def test_rows_that_begin_within_bytes_are_picked_of_a_copy(dtype: DType) -> None:
    codes, ids = codes_of(dtype, 25), np.array([2, 0])
    x = packed(codes, dtype)[1:].reshape((3, 8))
    out = Layout.dense((2, 8), width_bits=dtype.width_bits)
    made = np.zeros(out.required_bytes, np.uint8)
    views = packing.view(dtype, x.layout), (dtypes.int64, (2,), (1,)), packing.view(dtype, out)
    plan = packing.plan("gather", AxisGather(0), views, 1, TARGET)
    run_plan(plan, [x.buffer.array()[x.layout.offset_bits // 8 :], ids, np.zeros(2, np.int64), made])
    assert np.array_equal(elements.read(made, out), codes[1:].reshape(3, 8)[ids])


@pytest.mark.parametrize("dtype", [dtypes.uint1, dtypes.int4, dtypes.float6_e2m3fn], ids=str)
def test_rows_are_picked_into_any_layout(dtype: DType) -> None:
    codes, ids = codes_of(dtype, 3, 8), np.array([2, 0])
    x = packed(codes, dtype)
    for storage in ("packed", "padded"):
        out = Layout.dense((2, 8), width_bits=dtype.width_bits, order="F", storage=storage)  # type: ignore[arg-type]
        made = np.zeros(out.required_bytes, np.uint8)
        views = packing.view(dtype, x.layout), (dtypes.int64, (2,), (1,)), packing.view(dtype, out)
        plan = packing.plan("gather", AxisGather(0), views, 1, TARGET)
        run_plan(plan, [x.buffer.array(), ids, np.zeros(2, np.int64), made])
        assert np.array_equal(elements.read(made, out), codes[ids])


@pytest.mark.parametrize("width", [1, 2, 4, 6])
def test_copies_between_packed_and_padded_elements(width: int) -> None:
    dtype = dtypes.of({1: "uint1", 2: "int2", 4: "int4", 6: "float6_e3m2fn"}[width])
    codes = codes_of(dtype, 7, 11)
    source = Layout.dense((7, 11), width_bits=width)[::-1, 2:]
    data = np.concatenate([packed(codes, dtype).buffer.array(), np.zeros(1, np.uint8)])
    for order, storage in itertools.product(("C", "F"), ("packed", "padded")):
        goal = Layout.dense((7, 9), width_bits=width, order=order, storage=storage)  # type: ignore[arg-type]
        made = np.zeros(goal.required_bytes, np.uint8)
        views = packing.view(dtype, source), packing.view(dtype, goal)
        run_plan(packing.moved(views, TARGET), [data[source.offset_bits // 8 :], made])
        assert np.array_equal(elements.read(made, goal), codes[::-1, 2:])


@pytest.mark.parametrize(("in_program", "enough"), [(False, 1024), (True, 128)])
def test_threads_share_a_gather_by_its_size(in_program: bool, enough: int) -> None:
    target = PlanTarget(PLANNED, 2, tuning.machine(PLANNED), in_program)

    def threads(rows: int) -> int:
        views = (dtypes.float32, (9, 64), (64, 1)), (dtypes.int64, (rows,), (1,)), (dtypes.float32, (rows, 64), (64, 1))
        planner = registry.ROWS["gather"].plan
        assert planner is not None
        return planner(AxisGather(0), views, target).threads

    assert [threads(rows) for rows in (1, enough - 1, enough)] == [1, 1, 2]
