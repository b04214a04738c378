"""Panels by NumPy are those that the packing kernel writes, on every row and of every engine."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from called import BYTES, FLOATS, NARROW_FLOATS, drawn
from launch import run_plan
from rows import PRODUCT_ROWS, in_turn

import samebits as sb
from samebits import dtypes
from samebits.codegen.isa import Isa, best, use_isa
from samebits.kernels import gemm
from samebits.kernels.functions import exact
from samebits.kernels.gemm import kept
from samebits.kernels.gemm.engine import BLOCKS, named
from samebits.kernels.gemm.packed import scales_at

Array = np.ndarray[Any, np.dtype[Any]]
# But float8_e8m0fnu, which has no zero: the kernel's words hold its least value where elements are missing.
PAIRS = [
    *[(kind, kind) for kind in (*FLOATS, *NARROW_FLOATS, *BYTES)],
    *[(left, right) for left in ("int8", "uint8") for right in BYTES],
    *[(left, right) for left in ("float32", "bfloat16") for right in BYTES],
    ("bfloat16", "float8_e4m3fn"), ("float32", "float16"), ("float64", "int8"), ("float64", "float32"),
]  # fmt: skip


def operand(kind: str, k: int, n: int) -> Array:
    """Any codes but NaN, whose bits a conversion may change; a column of zeros, one with a subnormal number."""
    b = drawn(kind, k, n, seed=k)
    if dtypes.of(kind).is_float:
        b = np.where(np.isnan(b.astype(np.float32)), b.dtype.type(1), b)
    if n > 2:
        b[:, 1] = np.zeros(k).astype(b.dtype)
        b[0, 2] = b.dtype.type(1e-40 if kind == "bfloat16" else 0)
    return b


@in_turn("isa, pair", PAIRS, 0, always=[best()], among=PRODUCT_ROWS)
def test_words_and_facts_are_those_of_the_kernel(isa: Isa, pair: tuple[str, str]) -> None:
    left, right = pair
    with np.errstate(all="ignore"), use_isa(isa):
        for k, n in ((1, 1), (5, 3), (8, 40), (131, 17)):
            b = operand(right, k, n)
            packed = sb.pack(b, left=left)
            found = kept.panels(b, named(packed.engine), packed.nr)
            due = packed.tensor.numpy()
            assert found.dtype == due.dtype, (left, right)
            assert found.tobytes() == due.tobytes(), (left, right, k, n, packed.engine)


def test_words_for_sums_of_blocks_are_those_of_the_kernel() -> None:
    """Elements of B that are shifted to fit, integers and floats that are a few units each."""
    isa, k, n = best(), 37, 19
    for right in ("int8", "int4", "uint8", "float4_e2m1fn", "float6_e2m3fn"):
        for row in [x for x in BLOCKS if x.unsigned != "a" or right != "uint8"]:
            b = operand(right, k, n)
            found = kept.panels(b, row, gemm.panel_columns(isa, row))
            due = np.zeros_like(found)
            run_plan(gemm.plan_pack(k, n, gemm.Matrix(n, 1, (), dtypes.of(right)), isa, engine=row), [b, due])
            assert found.tobytes() == due.tobytes(), (right, row.name)


# Elements, scales, a block, whether there are zero points.
SCALED: list[tuple[str, Any, int | tuple[int, int], bool]] = [
    ("int4", np.float16, 32, False), ("uint4", ml_dtypes.bfloat16, 16, True),
    ("float4_e2m1fn", ml_dtypes.float8_e4m3fn, 16, False), ("int8", np.float32, 64, False),
    ("uint8", np.float32, 32, True), ("float8_e4m3fn", np.float32, (128, 16), False),
    ("float6_e3m2fn", ml_dtypes.float8_e8m0fnu, 32, False), ("uint2", np.float16, 16, True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "group", "has_zeros"), SCALED, ids=[row[0] for row in SCALED])
def test_codes_and_scales_are_those_of_the_kernel(name: str, kind: Any, group: Any, has_zeros: bool) -> None:
    """Behind the codes each scale where a column is; what is between them, and beyond the columns, is anything."""
    size, lines = group if isinstance(group, tuple) else (group, 1)
    dtype = dtypes.of(name)
    assert dtype.numpy is not None
    for k, n in ((64, 96), (136, 33), (8, 1)):
        random, blocks = np.random.default_rng([k, n]), (-(-k // size), -(-n // lines))
        b = random.integers(0, 1 << dtype.width_bits, (k, n)).astype(np.uint8).view(dtype.numpy)
        scale = np.exp2(random.integers(-3, 3, blocks)).astype(kind)
        zero = random.integers(0, 1 << dtype.width_bits, blocks).astype(dtype.numpy) if has_zeros else None
        packed = sb.pack(b, left="float32", scale=scale, zero_point=zero, group=group)
        engine, nr, kept_as = named(packed.engine), packed.nr, packed.scale
        assert kept_as is not None
        assert kept_as.numpy is not None
        found = kept.scaled_panels(b, engine, nr, (size, lines), kept_as, scale, zero)
        due = packed.tensor.numpy()
        assert (found.dtype, found.shape) == (due.dtype, due.shape)
        words = engine.steps(k) * -(-n // nr) * nr
        assert found[:words].tobytes() == due[:words].tobytes(), (k, n)
        of_each = np.repeat(exact.widened(scale).astype(np.float32), lines, 1)[:, :n]
        for panels in (found, due):
            behind = panels.view(np.uint8)[scales_at(k, n, nr, engine) :].view(kept_as.numpy)
            rows = behind.reshape(-1, blocks[0], nr).transpose(1, 0, 2).reshape(blocks[0], -1)[:, :n]
            assert np.array_equal(rows.astype(np.float32), of_each), (k, n)


def test_words_are_made_where_they_are_going_to_lie() -> None:
    given = list[Array]()

    def empty(count: int, dtype: np.dtype[Any]) -> Array:
        given.append(np.full(count * np.dtype(dtype).itemsize, 255, np.uint8).view(dtype))
        return given[-1]

    for left, right in (("float32", "float32"), ("uint8", "int8"), ("bfloat16", "bfloat16")):
        packed = sb.pack(operand(right, 9, 5), left=left)
        found = kept.panels(operand(right, 9, 5), named(packed.engine), packed.nr, empty)
        assert found is given[-1]
        assert found.tobytes() == packed.tensor.numpy().tobytes()
