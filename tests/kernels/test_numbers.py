"""Numbers of an expression that callers choose: kernels take them as arguments, so that one kernel does for all."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import launch
import numpy as np
import pytest
import rows

import samebits as sb
from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.kernels import composites, elementwise, gradients, reduce
from samebits.kernels.expression import Chain, Expression, with_arguments
from samebits.native import compile

Array = np.ndarray[Any, Any]
EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
NUMBERS = (1e-5, 0.0, -0.0, 3.0, -2.5, 1e-40, math.inf, math.nan)
F32 = dtypes.float32
WIDE = (dtypes.float32, dtypes.float64)


def two_numbers(number: float, dtype: DType) -> Expression:
    """(x + number) * (number - 1), and x where it is above the number: numbers beside constants and vectors."""
    chain = Chain()
    x, first = chain.input(dtype), chain.number(number, dtype)
    second = chain.apply("sub", chain.number(number, dtype), chain.constant(1.0, dtype))
    grown = chain.apply("mul", chain.apply("add", x, first), second)
    return chain.finish(grown, chain.apply("where", chain.apply("less", first, x), x, first))


def check(plan: Any, inputs: list[Array], due: list[Array], what: object) -> set[object]:
    """The plan gives these bits; its kernels."""
    outputs = [np.full_like(want, 99) for want in due]
    launch.run_plan(plan, [*inputs, *outputs], plan.threads)
    for got, want in zip(outputs, due, strict=True):
        launch.assert_bits(got, want, what)
    return {step.spec for step in plan.steps}


def rowwise(row: Isa, e: Expression, x: Array, axis: int, threads: int = 1) -> set[object]:
    """Check one expression of rows of equal inputs; its kernels."""
    inputs = [x] * len(e.inputs)
    due = reduce.reference(e, *inputs, axes=(axis,))
    made = reduce.plan(e, launch.layouts(*inputs), launch.layouts(*due), (axis,), row, threads)
    return check(made, inputs, due, (row.name, e, x.shape, axis))


@EVERY_ROW
@pytest.mark.parametrize("dtype", WIDE, ids=lambda dtype: dtype.name)
def test_one_kernel_of_rows_takes_every_number(row: Isa, dtype: DType) -> None:
    makes: tuple[Callable[[float], Expression], ...] = (
        lambda number: composites.layer_norm(False, False, number, dtype),
        lambda number: composites.var(number, dtype),
        lambda number: composites.rms_norm(True, number, dtype),
        lambda number: gradients.layer_norm(dtype, True, number, False),
        lambda number: gradients.layer_norm(dtype, False, number),
    )
    # Rows, rows of one element, rows that lie side by side, and, of reductions alone, one that threads share.
    x = np.random.default_rng(0).normal(size=(5, 70)).astype(dtype.numpy)
    for make in makes:
        for given, axis in ((x, 1), (x[:, :1], 1), (x, 0)):
            found = [rowwise(row, make(number), given, axis) for number in NUMBERS]
            assert all(kernels == found[0] for kernels in found)


@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: row.name)
def test_numbers_of_a_long_row_that_threads_share(row: Isa) -> None:
    def scaled(number: float) -> Expression:
        chain = Chain()
        squares = chain.apply("row_sum", chain.apply("mul", chain.input(dtypes.float32), chain.number(number, F32)))
        return chain.finish(chain.apply("sub", squares, chain.number(number, F32)))

    x = np.random.default_rng(1).normal(size=(1, (1 << 17) + 5)).astype(np.float32)
    found = [rowwise(row, scaled(number), x, 1, threads=2) for number in NUMBERS]
    assert len(found[0]) > 1
    assert all(kernels == found[0] for kernels in found)


@EVERY_ROW
@pytest.mark.parametrize("dtype", WIDE, ids=lambda dtype: dtype.name)
def test_one_kernel_of_elements_takes_every_number(row: Isa, dtype: DType) -> None:
    x = np.random.default_rng(2).normal(size=(35, 41)).astype(dtype.numpy)
    for given in (x, x.T, x[:, ::2]):
        found = []
        for number in NUMBERS:
            e = two_numbers(number, dtype)
            due = elementwise.reference(e, given)
            made = elementwise.plan(e, launch.layouts(given), launch.layouts(*due), row)
            found.append(check(made, [given], due, (row.name, number)))
        assert all(kernels == found[0] for kernels in found)


def test_numbers_become_words_in_the_order_of_nodes() -> None:
    chain = Chain()
    values = [chain.number(number, dtype) for number in (0.1, -0.0) for dtype in WIDE]
    e = chain.finish(*values)
    taken, words = with_arguments(e)
    codes = [struct.unpack(*pair) for number in (0.1, -0.0)
             for pair in (("<I", struct.pack("<f", number)), ("<q", struct.pack("<d", number)))]  # fmt: skip
    assert list(words.values()) == [code for (code,) in codes]
    assert [node.op for node in taken.nodes] == ["argument"] * 4
    plain = composites.mean()
    assert with_arguments(plain) == (plain, {})


def test_calls_with_new_numbers_compile_nothing() -> None:
    x = np.random.default_rng(3).normal(size=(6, 40)).astype(np.float32)
    calls: tuple[Callable[[float], Any], ...] = (
        lambda number: sb.layer_norm(x, eps=number), lambda number: sb.layer_norm(x[:, :1], eps=number),
        lambda number: sb.var(x, axis=1, correction=number), lambda number: sb.var(x, correction=number),
        lambda number: sb.var(x, axis=0, correction=number), lambda number: sb.var(x[:1], axis=0, correction=number),
    )  # fmt: skip
    for call in calls:
        call(0.5)
        known = len(compile._addresses)
        for step in range(50):
            call(0.25 + step / 64)
        assert len(compile._addresses) == known
