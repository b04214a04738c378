"""Rows with sums over them: every Isa row gives the bits of the NumPy reference and of a contraction with ones."""

from __future__ import annotations

import itertools
from typing import Any

import launch
import numpy as np
import pytest
import rows

import samebits as sb
from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.kernels import gradients, reduce, row_totals
from samebits.kernels.gemm.contraction import Spec

# Rows around a chunk of 16, columns around vectors of every width and around the blocks of the sum rule.
SHAPES = ((1, 1), (15, 1), (16, 7), (17, 33), (33, 64), (48, 100), (2, 2050))
KINDS = (dtypes.float32, dtypes.bfloat16, dtypes.float64)
CASES = [(row, *case) for row, case in zip(itertools.cycle(rows.COMPILED_ROWS), itertools.product(SHAPES, KINDS))]


def operands(shape: tuple[int, int], kind: Any) -> list[Any]:
    r = np.random.default_rng(shape[0])
    made = [r.standard_normal(size).astype(kind.numpy) for size in (shape, shape, shape[1])]
    made[1][0, 0] = -0.0
    if shape[0] > 20:
        made[1][20, 3] = np.nan
    return made


def layouts(*arrays: Any) -> tuple[Any, ...]:
    return tuple((x.shape, tuple(step // x.itemsize for step in x.strides)) for x in arrays)


@pytest.mark.parametrize(("row", "shape", "kind"), CASES, ids=lambda x: getattr(x, "name", str(x)))
def test_the_bits_of_the_reference(row: Isa, shape: tuple[int, int], kind: Any) -> None:
    x, dy, gamma = operands(shape, kind)
    expression = gradients.layer_norm_totals(kind, True, 1e-5)
    dx, dw, db = (np.full(size, 7, kind.numpy) for size in (shape, shape[1], shape[1]))
    plan = row_totals.plan(expression, layouts(x, dy, gamma), layouts(dx), (kind, kind), 16, row, 3)
    launch.run_plan(plan, [x, dy, gamma, dx, dw, db])
    due = row_totals.reference(expression, x, dy, gamma, totals=2, chunk=16)
    assert dx.tobytes() == due[0].tobytes()
    # What is summed, by its own kernel, and the sum, by that of products.
    summed = reduce.reference(gradients.layer_norm_weight(kind, 1e-5), x, dy, axes=(1,))[0]
    for made, expected, terms in ((dw, due[1], summed), (db, due[2], dy.astype(summed.dtype))):
        assert made.tobytes() == expected.astype(kind.numpy).tobytes()
        product = sb.matmul(np.ones(shape[0], terms.dtype), terms, spec=Spec(16), out_dtype=kind)
        assert made.tobytes() == product.tobytes()


def test_operands_may_lie_anyhow() -> None:
    shape, kind, row = (19, 12), dtypes.float32, rows.COMPILED_ROWS[-1]
    x, dy, gamma = operands(shape, kind)
    spread = [np.asfortranarray(x), np.broadcast_to(dy[:1, :1], shape), np.repeat(gamma, 2)[::2]]
    expression = gradients.layer_norm_totals(kind, False, 1e-5)
    dx, dw = np.zeros(shape, np.float32), np.zeros(shape[1], np.float32)
    plan = row_totals.plan(expression, layouts(*spread), layouts(dx), (kind,), 16, row)
    launch.run_plan(plan, [*spread, dx, dw])
    due = row_totals.reference(expression, *spread, totals=1, chunk=16)
    assert [dx.tobytes(), dw.tobytes()] == [made.tobytes() for made in due]


def test_a_plan_says_what_it_sums() -> None:
    row, shape = ((40, 8), (8, 1)), ((8,), (1,))
    expression = gradients.layer_norm_totals(dtypes.float32, True, 1e-5)
    kinds = (dtypes.float32, dtypes.float32)
    plan = row_totals.plan(expression, (row, row, shape), (row,), kinds, 16, rows.COMPILED_ROWS[0])
    assert plan.facts == (("rows", "40 of 8"), ("sums over rows", "2, in chunks of 16"))
    assert plan.operands == ("input 0", "input 1", "input 2", "output 0", "total 0", "total 1")
