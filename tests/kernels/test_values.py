"""Operations on floats narrower than float32: what float64 gives, rounded once by an oracle of midpoints, on each row.

float64 has more than twice the digits of these formats and two more, so for + - * / and sqrt rounding its result is
rounding the exact one; that float32 in between changes nothing is what is shown here.
"""

from __future__ import annotations

import functools
from typing import Any

import aarch64
import launch
import numpy as np
import pytest
import rows
from formats import FORMATS, every_code, nearest

from samebits import dtypes, ieee
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.errors import DTypeError
from samebits.kernels import convert, elementwise
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.functions.texts import ROUNDED

Array = np.ndarray[Any, Any]
F32, F64 = np.float32, np.float64
ZEROED = tuple(dtype for dtype in FORMATS if dtype.has_zero)
EVERY_FORMAT = pytest.mark.parametrize("dtype", ZEROED, ids=lambda dtype: dtype.name)
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
          "maximum": ieee.maximum, "minimum": ieee.minimum}  # fmt: skip
UNARY = {"sqrt": np.sqrt, "reciprocal": lambda x: 1 / x, "rint": np.rint}
# The correctly rounded functions.
FUNCTIONS = tuple(row.name for row, _ in ROUNDED)
ORDER = {"equal": np.equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
         "greater_equal": np.greater_equal}  # fmt: skip


@functools.cache
def pairs(dtype: DType, few: bool = False) -> tuple[Array, Array]:
    """All pairs of codes of up to 8 bits; of 16 bits all codes with others, near them in magnitude and anywhere."""
    codes = every_code(dtype)
    if codes.size <= 256:
        x, y = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(codes, codes, indexing="ij"))
        return (x[::41].copy(), y[::41].copy()) if few else (x, y)
    random = np.random.default_rng(0)
    near = (np.arange(1 << 16) + random.integers(-3000, 3000, 1 << 16)) & 0xFFFF
    others = [random.permutation(1 << 16), near, near ^ 0x8000, random.integers(0, 64, 1 << 16)]
    x, y = np.tile(codes, len(others)), np.concatenate(others).astype(np.uint16).view(dtype.numpy)
    return (x[::131].copy(), y[::131].copy()) if few else (x, y)


def wide(x: Array) -> Array:
    """x as float64."""
    with np.errstate(invalid="ignore"):
        return np.asarray(x.astype(F64))


def coded(x: Array, dtype: DType) -> Array:
    """Numbers rounded to the nearest value of the format."""
    return nearest(np.asarray(x, F64), dtype).view(dtype.numpy)


def several(inputs: tuple[DType, ...], *ops: str) -> Expression:
    """Some operations of the same inputs."""
    chain = Chain()
    values = [chain.input(dtype) for dtype in inputs]
    return chain.finish(*(chain.apply(op, *values) for op in ops))


def check(expression: Expression, row: Isa, inputs: list[Array], due: list[Array], what: object) -> None:
    """The kernel's and the reference's bits."""
    found = [np.empty(x.shape, x.dtype) for x in due]
    plan = elementwise.plan(expression, launch.layouts(*inputs), launch.layouts(*found), row, 1)
    if row in rows.ALL_ROWS:
        launch.run_plan(plan, [*inputs, *found])
    else:
        aarch64.run_plan(plan, [*inputs, *found])
    for k, (got, want, meant) in enumerate(zip(found, due, elementwise.reference(expression, *inputs), strict=True)):
        launch.assert_bits(got, want, (row.name, what, k))
        launch.assert_bits(meant, want, ("reference", what, k))


@rows.in_turn("row, dtype", ZEROED, 0)
def test_operations_round_the_exact_result_once(row: Isa, dtype: DType) -> None:
    x, y = pairs(dtype, few=not row.compiled)
    with np.errstate(all="ignore"):
        due = [coded(function(wide(x), wide(y)), dtype) for function in BINARY.values()]
        check(several((dtype, dtype), *BINARY), row, [x, y], due, dtype)
        codes = every_code(dtype)
        due = [coded(function(wide(codes)), dtype) for function in UNARY.values()]
        check(several((dtype,), *UNARY), row, [codes], due, dtype)


@EVERY_FORMAT
def test_operations_equal_those_of_ml_dtypes_but_for_nan(dtype: DType) -> None:
    x, y = pairs(dtype)
    expression = several((dtype, dtype), "add", "sub", "mul", "div")
    found = [np.empty(x.shape, x.dtype) for _ in range(4)]
    row = rows.COMPILED_ROWS[-1]
    plan = elementwise.plan(expression, launch.layouts(x, y), launch.layouts(*found), row, 1)
    launch.run_plan(plan, [x, y, *found])
    with np.errstate(all="ignore"):
        theirs = [x + y, x - y, x * y, x / y]
        exact = [wide(x) + wide(y), wide(x) - wide(y), wide(x) * wide(y), wide(x) / wide(y)]
    for got, want, number in zip(found, theirs, exact, strict=True):
        there = ~np.isnan(number) & ~np.isnan(wide(want))
        assert np.array_equal(launch.bits(got)[there], launch.bits(want)[there])


@rows.in_turn("row, dtype", FORMATS, 1)
def test_order_and_bits(row: Isa, dtype: DType) -> None:
    """Comparisons are of values; moves, signs and choices are of codes, NaN payloads with them."""
    x, y = pairs(dtype, few=not row.compiled)
    with np.errstate(invalid="ignore"):
        check(several((dtype, dtype), *ORDER), row, [x, y], [f(wide(x), wide(y)) for f in ORDER.values()], dtype)
        check(several((dtype,), "is_nan"), row, [x], [np.isnan(wide(x))], dtype)
    code, sign = launch.bits(x), 1 << dtype.width_bits - 1
    chain = Chain()
    m, a, b = chain.input(dtypes.bool_), chain.input(dtype), chain.input(dtype)
    moved = chain.finish(chain.apply("where", m, a, b), chain.apply("copy", a))
    mask = np.arange(x.size) % 3 == 0
    check(moved, row, [mask, x, y], [np.where(mask, code, launch.bits(y)).view(x.dtype), x], dtype)
    if dtype.has_zero:
        kept = (code & (sign - 1) == 0) if not dtype.has_negative_zero else np.zeros(x.shape, bool)
        turned, alone = (
            np.where(kept, code, v).astype(code.dtype).view(x.dtype) for v in (code ^ sign, code & sign - 1)
        )
        check(several((dtype,), "neg", "abs"), row, [x], [turned, alone], dtype)


@rows.in_turn("row, dtype", ZEROED, 2)
def test_functions_and_fma_round_what_float32_gives(row: Isa, dtype: DType) -> None:
    codes = every_code(dtype)
    codes = codes if row.compiled or codes.size <= 256 else codes[::17].copy()
    with np.errstate(all="ignore"):
        single = codes.astype(F32)
        due = [elementwise.reference(several((dtypes.float32,), op), single)[0] for op in FUNCTIONS]
    check(several((dtype,), *FUNCTIONS), row, [codes], [coded(v, dtype) for v in due], dtype)
    x, y = pairs(dtype, few=not row.compiled)
    z = np.random.default_rng(1).permutation(y)
    with np.errstate(all="ignore"):
        total = ieee.fma(x.astype(F32), y.astype(F32), z.astype(F32))
    check(several((dtype,) * 3, "fma"), row, [x, y, z], [coded(total, dtype)], dtype)


@rows.in_turn("row, dtype", ZEROED, 3)
def test_every_node_rounds_fused_or_not(row: Isa, dtype: DType) -> None:
    """x * y + z, constants and a function behind it, beside the same operations one by one."""
    chain = Chain()
    x, y = chain.input(dtype), chain.input(dtype)
    third = chain.constant(1 / 3, dtype)
    product = chain.apply("mul", x, y)
    total = chain.apply("add", product, third)
    whole = chain.finish(chain.apply("neg", chain.apply("sqrt", total)), product)
    a, b = pairs(dtype, few=not row.compiled)
    with np.errstate(all="ignore"):
        steps = coded(wide(a) * wide(b), dtype)
        due = coded(np.sqrt(wide(coded(wide(steps) + wide(coded(np.array([1 / 3]), dtype)), dtype))), dtype)
        due = elementwise.reference(several((dtype,), "neg"), due)[0]
    check(whole, row, [a, b], [due, steps], dtype)


def test_fma_of_a_narrow_format_rounds_to_float32_first() -> None:
    """The example of numerics.md section 7, where rounding the exact sum once gives another value."""
    step = 2.0**-10
    x, y, z = (np.array([v], np.float16) for v in ((1 + step) / 32, (1 - step) / 64, 1 + step))
    check(several((dtypes.float16,) * 3, "fma"), rows.COMPILED_ROWS[-1], [x, y, z], [np.float16([1 + 2 * step])], "fma")
    assert coded(wide(x) * wide(y) + wide(z), dtypes.float16) == 1 + step


@pytest.mark.parametrize("row", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_operations_on_aarch64(row: Isa) -> None:
    for dtype in ZEROED:
        x, y = pairs(dtype, few=True)
        with np.errstate(all="ignore"):
            due = [coded(function(wide(x), wide(y)), dtype) for function in BINARY.values()]
        check(several((dtype, dtype), *BINARY), row, [x, y], due, dtype)


def test_what_a_format_has_no_meaning_for_is_refused() -> None:
    for op in ("add", "mul", "neg", "abs", "sqrt", "exp"):
        arity = 2 if op in ("add", "mul") else 1
        with pytest.raises(DTypeError) as refused:
            several((dtypes.float8_e8m0fnu,) * arity, op)
        assert "float8_e8m0fnu" in str(refused.value)
    with pytest.raises(DTypeError) as mixed:
        several((dtypes.bfloat16, dtypes.float32), "add")
    anything = "any float with a zero or integer of whole bytes"
    assert str(mixed.value) == (
        f"add: arguments dtypes is (bfloat16, float32), must be ({anything}, {anything}), alike; convert them first"
    )
    chain = Chain()
    with pytest.raises(DTypeError) as row_sum:
        chain.apply("row_sum", chain.input(dtypes.bfloat16))
    assert str(row_sum.value) == (
        "row_sum: the argument dtype is bfloat16, must be float32, float64 or an integer of whole bytes; cast it first"
    )
    assert not convert.is_coded(dtypes.float32)
