"""Results that are packed as they are made: the codes of the expression side by side, and no other bit changed."""

from __future__ import annotations

from typing import Any

import guard
import launch
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.conversions import Conversion
from samebits.dtypes import DType
from samebits.kernels import elementwise, packed_result
from samebits.kernels.expression import Chain, Expression

Array = np.ndarray[Any, Any]
EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
TARGETS = (dtypes.float4_e2m1fn, dtypes.int4, dtypes.uint2, dtypes.int1)


def scaled(target: DType) -> Expression:
    """x * y as a narrow format."""
    chain = Chain()
    product = chain.apply("mul", chain.input(dtypes.float32), chain.input(dtypes.float32))
    return chain.finish(chain.apply("cast", product, dtype=target, conversion=Conversion("up", "saturate")))


def side_by_side(codes: Array, width: int) -> Array:
    """Codes in bytes, the first in the low bits; behind the last, ones."""
    bits = (codes.ravel()[:, None] >> np.arange(width)) & 1
    padding = np.ones(-bits.size % 8, np.uint8)
    return np.packbits(np.concatenate([bits.ravel().astype(np.uint8), padding]), bitorder="little")


@EVERY_ROW
@pytest.mark.parametrize("target", TARGETS, ids=lambda dtype: dtype.name)
def test_codes_lie_side_by_side(row: Isa, target: DType) -> None:
    expression = scaled(target)
    for n in (0, 1, 3, 8, 63, 64, 65, 129, 8191, 8193, 20001) if row.compiled else (1, 64, 131):
        x = np.random.default_rng(n).standard_normal(n).astype(np.float32) * 4
        for y in (np.linspace(-1, 2, n).astype(np.float32), np.array([0.7], np.float32)):
            (due,) = elementwise.reference(expression, x, y)
            expected = side_by_side(launch.bits(due), target.width_bits)
            out = np.full(expected.size, 0xFF, np.uint8)
            inputs = tuple((a.shape, tuple(s // 4 for s in a.strides)) for a in (x, y))
            plan = packed_result.plan(expression, inputs, ((n,), (1,)), row, 2)
            assert plan is not None
            launch.run_plan(plan, [x, y, out])
            assert np.array_equal(out, expected), (row.name, target, n)


@EVERY_ROW
def test_one_kernel_takes_every_number(row: Isa) -> None:
    x, kernels = np.random.default_rng(0).standard_normal(131).astype(np.float32) * 4, set()
    for number in (0.7, -0.0, 1e-40, float("inf"), float("nan")):
        chain = Chain()
        product = chain.apply("mul", chain.input(dtypes.float32), chain.number(number, dtypes.float32))
        expression = chain.finish(chain.apply("cast", product, dtype=dtypes.float4_e2m1fn))
        (due,) = elementwise.reference(expression, x)
        expected = side_by_side(launch.bits(due), 4)
        out = np.full(expected.size, 0xFF, np.uint8)
        plan = packed_result.plan(expression, launch.layouts(x), ((x.size,), (1,)), row)
        assert plan is not None
        launch.run_plan(plan, [x, out])
        assert np.array_equal(out, expected), (row.name, number)
        kernels |= {step.spec for step in plan.steps}
    assert len(kernels) == 1


def test_other_layouts_are_not_its_own() -> None:
    row, expression = rows.COMPILED_ROWS[-1], scaled(dtypes.float4_e2m1fn)
    dense, out = ((4, 6), (6, 1)), ((4, 6), (6, 1))
    assert packed_result.plan(expression, (dense, dense), out, row) is not None
    assert packed_result.plan(expression, (dense, ((), ())), out, row) is not None
    for other in (((4, 6), (1, 4)), ((4, 6), (12, 2)), ((6,), (1,)), ((4, 1), (1, 1))):
        assert packed_result.plan(expression, (dense, other), out, row) is None
    assert packed_result.plan(scaled(dtypes.float6_e3m2fn), (dense, dense), out, row) is None


@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: row.name)
def test_nothing_beyond_the_operands_is_touched(row: Isa) -> None:
    expression = scaled(dtypes.float4_e2m1fn)
    for n in (1, 17, 127, 131):
        x, y = (guard.array(np.ones(n, np.float32)) for _ in range(2))
        out = guard.array(np.zeros(-(-n // 2), np.uint8))
        plan = packed_result.plan(expression, (((n,), (1,)),) * 2, ((n,), (1,)), row)
        assert plan is not None
        launch.run_plan(plan, [x, y, out])
        assert out[: n // 2].tolist() == [0x22] * (n // 2)
