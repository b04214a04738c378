"""Operands of rows that are neither dense along a row nor the same: a scale a block, and elements two to a byte."""

from typing import Any

import guard
import launch
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.kernels import reduce, row_axes
from samebits.kernels.expression import Chain, Expression

Array = np.ndarray[Any, Any]
EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
F32, F4 = dtypes.float32, dtypes.of("float4_e2m1fn")


def normalised(dtype: dtypes.DType) -> Expression:
    """x * scale less its mean, and that mean."""
    c = Chain()
    x, scale = c.input(dtype), c.input(F32)
    value = c.apply("mul", x if dtype is F32 else c.apply("cast", x, dtype=F32), scale)
    mean = c.apply("div", c.apply("row_sum", value), c.count())
    return c.finish(c.apply("sub", value, mean), mean)


def check(
    row: Isa,
    e: Expression,
    inputs: list[Array],
    axes: tuple[int, ...],
    given: list[Array],
    packed: tuple[int, ...] = (),
) -> dict[str, str]:
    """The reference's bits of the inputs; the kernel is given them in another form. The facts of its plan."""
    due = reduce.reference(e, *inputs, axes=axes)
    outputs = [np.full_like(x, 99) for x in due]
    plan = reduce.plan(e, launch.layouts(*inputs), launch.layouts(*outputs), axes, row, 1, packed)
    launch.run_plan(plan, [*given, *outputs], 1)
    for made, wanted in zip(outputs, due, strict=True):
        launch.assert_bits(made, wanted, row.name)
    return dict(plan.facts)


@EVERY_ROW
@pytest.mark.parametrize("size", [2, 16, 64])
@pytest.mark.parametrize("blocks", [3, 40])
def test_a_scale_of_each_block_is_read_as_it_lies(row: Isa, size: int, blocks: int) -> None:
    random = np.random.default_rng(size)
    x = random.standard_normal((3, blocks, size)).astype(np.float32)
    scale = random.standard_normal((3, blocks, 1)).astype(np.float32)
    inputs = [x, scale]
    facts = check(row, normalised(F32), inputs, (1, 2), inputs)
    assert facts["along the row"].split(" ", 1)[1].startswith(f"blocks of {size} ")
    assert "copied through the workspace" not in facts


@EVERY_ROW
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3b11fnuz"])
def test_scales_of_eight_bits_are_decoded_once_a_block(row: Isa, name: str) -> None:
    """Every code, NaN and infinities too; in one pass and in several; blocks of vectors, within one and of several."""
    dtype = dtypes.of(name)
    for size in (2, 16, 64):
        c = Chain()
        x, code = c.input(F32), c.input(dtype)
        value = c.apply("mul", x, c.apply("cast", code, dtype=F32))
        mean = c.apply("div", c.apply("row_sum", value), c.count())
        scale = np.arange(256, dtype=np.uint8).view(dtype.numpy).reshape(8, 32, 1)
        values = np.random.default_rng(size).standard_normal((8, 32, size)).astype(np.float32)
        check(row, c.finish(c.apply("sub", value, mean), mean), [values, scale], (1, 2), [values, scale])


def test_scales_in_any_stride_are_read() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((5, 7, 16)).astype(np.float32)
    scale = random.standard_normal((7, 5, 1)).astype(np.float32).transpose(1, 0, 2)
    for row in rows.COMPILED_ROWS:
        check(row, normalised(F32), [x, scale], (1, 2), [x, scale])


@pytest.mark.parametrize("one", [(slice(1), slice(1)), (slice(None), slice(1)), (slice(1), slice(None))])
def test_scales_that_repeat_from_block_to_block_are_read_as_they_lie(one: tuple[slice, slice]) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((5, 7, 3, 16)).astype(np.float32)
    scale = random.standard_normal((5, 7, 3, 1)).astype(np.float32)
    repeated = np.broadcast_to(guard.array(scale[:, *one]), scale.shape)
    for row in rows.COMPILED_ROWS:
        check(row, normalised(F32), [x, repeated], (1, 2, 3), [x, repeated])


@pytest.mark.parametrize(
    ("reduced", "own", "size"),
    [((4, 16), (4, 1), 16), ((4, 8, 2), (4, 1, 1), 16), ((4, 6), (4, 1), 0), ((4, 16), (1, 16), 0),
     ((4, 16), (1, 1), 0), ((4, 16), (4, 16), 0), ((4, 2, 8), (4, 1, 8), 0), ((1, 16), (1, 1), 0),
     ((4, 512), (4, 1), 0)],
)  # fmt: skip
def test_what_is_a_block(reduced: tuple[int, ...], own: tuple[int, ...], size: int) -> None:
    assert row_axes.block_size(reduced, own) == size


@EVERY_ROW
@pytest.mark.parametrize("n", [2, 30, 64, 130, 4098])
def test_elements_two_to_a_byte_are_read_as_they_lie(row: Isa, n: int) -> None:
    random = np.random.default_rng(n)
    codes = random.integers(0, 16, (3, n)).astype(np.uint8)
    scale = random.standard_normal((3, 1)).astype(np.float32)
    pairs = (codes[:, ::2] | codes[:, 1::2] << 4).copy()
    x = codes.view(F4.numpy)
    question = normalised(F4), launch.layouts(x, scale), launch.layouts(np.ones((3, n), np.float32), scale)
    takes = reduce.takes_packed(*question, (1,), row, 1, (0,))
    assert takes == (row.lanes % 2 == 0)
    if takes:
        facts = check(row, normalised(F4), [x, scale], (1,), [pairs, scale], (0,))
        assert facts["along the row"].startswith("nibbles")


@pytest.mark.parametrize(("shape", "strides"), [((3, 5), (6, 1)), ((3, 4), (5, 1)), ((3, 4), (1, 4)), ((3, 1), (2, 1))])
def test_rows_of_half_bytes_are_not(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    row = rows.row_named("avx2")
    one = ((shape[0], 1), (1, 1))
    out = (shape, (shape[1], 1))
    assert not reduce.takes_packed(normalised(F4), ((shape, strides), one), (out, one), (1,), row, 1, (0,))
