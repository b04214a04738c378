"""Panels by NumPy are those that the packing kernel writes, on every row and of every engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from called import BYTES, FLOATS, NARROW_FLOATS, drawn
from rows import PRODUCT_ROWS

import samebits as sb
from samebits import dtypes
from samebits.codegen.isa import Isa, use_isa
from samebits.kernels.gemm import kept
from samebits.kernels.gemm.engine import named

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


@pytest.mark.parametrize("isa", PRODUCT_ROWS, ids=lambda row: row.name)
def test_words_and_facts_are_those_of_the_kernel(isa: Isa) -> None:
    with np.errstate(all="ignore"), use_isa(isa):
        for left, right in PAIRS:
            for k, n in ((1, 1), (5, 3), (8, 40), (131, 17)):
                b = operand(right, k, n)
                packed = sb.pack(b, left=left)
                found = kept.panels(b, named(packed.engine), packed.nr)
                due = packed.tensor.numpy()
                assert found.dtype == due.dtype, (left, right)
                assert found.tobytes() == due.tobytes(), (left, right, k, n, packed.engine)
