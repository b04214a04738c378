"""Products on the AArch64 rows, emulated, have the bits of the reference and stay within their operands."""

from __future__ import annotations

import aarch64
import ml_dtypes
import numpy as np
import pytest
from gemm_run import contraction, product, product_of_codes, same
from rows import AARCH64_ROWS

from samebits.codegen.isa import Isa
from samebits.kernels import gemm
from samebits.kernels.gemm import Matrix, Panels, Spec, fused, reference


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("isa", AARCH64_ROWS, ids=lambda row: row.name)
def test_bits_on_aarch64(isa: Isa) -> None:
    for m, n, k in ((1, 1, 0), (9, 13, 130), (1, 30, 257), (17, 2, 40)):
        a, b, bias = draw(m, k), draw(k, n, seed=1), draw(n, seed=2)
        epilogue, _ = fused(bias=Matrix(0, 1))
        for right in (b, np.asfortranarray(b)):
            for form in ("fused", "staged", "streamed"):
                got = product(a, right, isa, epilogue=epilogue, sources=[bias], form=form, run=aarch64.run_plan)
                assert same(got, reference(a, b, bias=bias)), (m, n, k, form)
    for m, n, k in ((1, 19, 390), (3, 8, 256)):  # two chunks side by side and one, two groups of columns and a part
        a, b = draw(m, k), draw(k, n, seed=1)
        assert same(product(a, np.asfortranarray(b), isa, form="streamed", run=aarch64.run_plan), reference(a, b))
    a, b = draw(5, 300), draw(300, 14, seed=1)
    got = product(a, b, isa, spec=Spec(32, 2), run=aarch64.run_plan)
    assert same(got, reference(a, b, spec=Spec(32, 2)))


@pytest.mark.parametrize("isa", AARCH64_ROWS, ids=lambda row: row.name)
def test_transposed_tiles_on_aarch64(isa: Isa) -> None:
    m, n, k = 13, 21, 30
    a, b, bias, found = draw(m, k), draw(k, n, seed=1), draw(n, seed=2), np.empty((n, m), np.float32)
    panels = np.zeros(gemm.packed_elements(k, n, isa, ()), np.float32)
    aarch64.run_plan(gemm.plan_pack(k, n, Matrix(n, 1), isa, 1, ()), [b, panels])
    epilogue, _ = fused(bias=Matrix(0, 1))
    right = Panels(gemm.panel_columns(isa))
    c = contraction(m, n, k, Matrix(k, 1), right, Matrix(1, m), epilogue=epilogue, sources=[Matrix(0, 1)])
    aarch64.run_plan(gemm.plan(c, isa), [a, panels, bias, found])
    assert same(found.T, reference(a, b, bias=bias))


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("isa", AARCH64_ROWS, ids=lambda row: row.name)
def test_panels_of_codes_on_aarch64(isa: Isa, kind: type) -> None:
    a, b = draw(9, 130).astype(kind), draw(130, 19, seed=1).astype(kind)
    for form in ("decoded", "widened"):
        assert same(product_of_codes(a, b, isa, form, run=aarch64.run_plan), reference(a, b)), form
