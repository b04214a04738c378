"""The kernels of every room on emulated AArch64: the bits of this machine's best row, beside unmapped pages."""

from __future__ import annotations

import contextlib
from typing import Any

import aarch64
import gemm_run
import launch
import numpy as np
import pytest
import rows
import unicorn
from gemm_run import contraction

from samebits import dtypes
from samebits.codegen.isa import Isa, best
from samebits.codegen.vocabulary import Builder, KernelSpec
from samebits.errors import DTypeError, OptionError
from samebits.kernels import composites, elementwise, functions, gemm, reduce
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.functions.texts import ROUNDED
from samebits.kernels.gemm.contraction import Matrix

Array = np.ndarray[Any, Any]
ROWS = pytest.mark.parametrize("isa", rows.AARCH64_ROWS, ids=lambda row: row.name)
HERE = best()
F32 = dtypes.float32


def both(plan_for: Any, isa: Isa, inputs: list[Array], out: Array) -> None:
    """Equal bits of the plan on this machine and on `isa` emulated."""
    due, found = np.full_like(out, 7), np.full_like(out, 9)
    launch.run_plan(plan_for(HERE), [*inputs, due])
    aarch64.run_plan(plan_for(isa), [*inputs, found])
    launch.assert_bits(found, due, isa.name)


def floats(n: int) -> Array:
    """Specials, every exponent, and random bits, both signs."""
    rng = np.random.default_rng(n)
    codes = [
        np.array([0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001], np.uint32),
        np.arange(255, dtype=np.uint32) << 23 | 0x3504F3,
        rng.integers(0, 1 << 31, n, dtype=np.uint32),
        (rng.standard_normal(n) * 4).astype(np.float32).view(np.uint32) & 0x7FFFFFFF,
    ]
    half = np.concatenate(codes)
    return np.concatenate([half, half | 0x80000000]).view(np.float32)


def unary(name: str) -> Expression:
    """One function of one input."""
    chain = Chain()
    return chain.finish(chain.apply(name, chain.input(F32)))


def float_functions() -> list[str]:
    """Operations that take one float32."""
    found = []
    for row in functions.ROWS:
        with contextlib.suppress(DTypeError, OptionError, TypeError, ValueError):
            functions.result_dtype(row.name, (F32,))
            found.append(row.name)
    return found


@ROWS
def test_elements_whose_lines_are_asked_for(isa: Isa) -> None:
    chain = Chain()
    negated = chain.finish(chain.apply("neg", chain.input(dtypes.int8)))
    x, out = np.arange(1030).astype(np.int8)[None], np.empty((2100, 1030), np.int8)
    both(lambda row: elementwise.plan(negated, launch.layouts(x), launch.layouts(out), row), isa, [x], out)


@pytest.mark.parametrize("name", float_functions())
@ROWS
def test_functions(isa: Isa, name: str) -> None:
    x = floats(300)
    out = np.empty(x.shape, functions.result_dtype(name, (F32,)).numpy)
    shape = launch.layouts(x)
    both(lambda row: elementwise.plan(unary(name), shape, launch.layouts(out), row), isa, [x], out)


def test_the_correctly_rounded_functions_are_among_them() -> None:
    assert {row.name for row, _ in ROUNDED} <= set(float_functions())


@ROWS
def test_a_fused_chain_over_strides(isa: Isa) -> None:
    chain = Chain()
    x, y = chain.input(F32), chain.input(F32)
    half = chain.apply("mul", x, chain.constant(0.5, F32))
    gelu = chain.apply(
        "mul", half, chain.apply("add", chain.constant(1.0, F32), chain.apply("erf", chain.apply("mul", x, y)))
    )
    expression = chain.finish(gelu)
    wide = floats(20)[:600].reshape(20, 30)
    left, right, out = wide[:, ::-2], np.repeat(wide[:1, :15], 20, axis=0), np.empty((20, 15), np.float32)
    layouts = launch.layouts(left, right)
    both(lambda row: elementwise.plan(expression, layouts, launch.layouts(out), row), isa, [left, right], out)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 37, 300), (13, 5, 129), (17, 70, 257), (3, 4, 0)])
@ROWS
def test_matmul(isa: Isa, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(m)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    out = np.empty((m, n), np.float32)
    described = contraction(m, n, k, Matrix(k, 1), Matrix(n, 1), Matrix(n, 1))
    due = gemm.reference(a, b)
    aarch64.run_plan(gemm.plan(described, isa, 2), [a, b, out])
    launch.assert_bits(out, due, isa.name)
    launch.assert_bits(gemm_run.product(a, b, HERE), due, HERE.name)


@pytest.mark.parametrize("n", [1, 65, 384])
@ROWS
def test_softmax_and_layer_norm(isa: Isa, n: int) -> None:
    rng = np.random.default_rng(n)
    x, out = rng.standard_normal((3, n)).astype(np.float32) * 5, np.empty((3, n), np.float32)
    x[2] = -np.inf
    shape = launch.layouts(x)
    both(lambda row: reduce.plan(composites.softmax(), shape, launch.layouts(out), (1,), row), isa, [x], out)
    gamma, beta = rng.standard_normal((2, 1, n)).astype(np.float32)
    expression, layouts = composites.layer_norm(True, True, 1e-12), launch.layouts(x, gamma, beta)
    plan = lambda row: reduce.plan(expression, layouts, launch.layouts(out), (1,), row)  # noqa: E731
    both(plan, isa, [x, gamma, beta], out)


# -- the harness itself -------------------------------------------------------------------------------------------


def write_at(b: Builder, description: None) -> None:
    """x[at] = 1."""
    b.store(b.pointer("x", F32), b.index("at"), b.constant(1.0, F32, 1))


@pytest.mark.parametrize("at", [-5000, 6, 2000])
def test_an_access_outside_is_caught(at: int) -> None:
    x = np.zeros(6, np.float32)
    spec = KernelSpec(write_at, None, ("x", "at"), rows.AARCH64_ROWS[0])
    with pytest.raises(unicorn.UcError, match="Invalid memory write"):
        aarch64.run_kernel(spec, [x, at], 0, 1)
    aarch64.run_kernel(spec, [x, 5], 0, 1)
    assert x.tolist() == [0, 0, 0, 0, 0, 1]


def test_a_write_to_a_read_only_operand_is_caught() -> None:
    x = np.zeros(6, np.float32)
    x.flags.writeable = False
    with pytest.raises(AssertionError, match="read-only"):
        aarch64.run_kernel(KernelSpec(write_at, None, ("x", "at"), rows.AARCH64_ROWS[0]), [x, 5], 0, 1)


def test_overlapping_operands_stay_overlapping() -> None:
    chain = Chain()
    expression = chain.finish(chain.apply("neg", chain.input(F32)))
    x = np.arange(8, dtype=np.float32)
    plan = elementwise.plan(expression, launch.layouts(x), launch.layouts(x), rows.AARCH64_ROWS[0])
    aarch64.run_plan(plan, [x, x])
    assert x.tolist() == [-0.0, -1, -2, -3, -4, -5, -6, -7]
