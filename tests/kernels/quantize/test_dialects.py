"""Dialects that copy a tool against the tool itself: no code of an element and no scale may differ."""

from __future__ import annotations

import importlib.util
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from samebits import dtypes, elements
from samebits.kernels.quantize import dialects, formats, reference

pytest.importorskip("torch")
pytest.importorskip("gguf")

import quantize_samples
import quantizers

PACKAGES = ("torchao", "modelopt", "compressed_tensors")
pytestmark = pytest.mark.skipif(not all(map(importlib.util.find_spec, PACKAGES)), reason="needs all of the tools")

Array = npt.NDArray[Any]

# Of few rows and columns, and of many: for blocks of as many, and where all is tried.
FEW, MANY = (dict(quantize_samples.samples(*shape)) for shape in ((64, 128), (128, 256)))
# The exponent of a tiny block wraps around in gguf-py, by a conversion of floats that C does not define.
UNDEFINED = ("mx/gguf", "subnormal")
SETS = [(*case, name) for case in quantizers.TOOLS for name in FEW if (case[0], name) != UNDEFINED]
KINDS = (np.float32, ml_dtypes.bfloat16)
# Each sample is of one kind of numbers by default, of the other one for the next dialect; what is no number, which
# tools store by its kind, is of both.
CASES = [
    pytest.param(
        *case,
        kind,
        id="-".join([*case, np.dtype(kind).name]),
        marks=pytest.mark.exhaustive if turn % 2 and np.isfinite(FEW[case[-1]]).all() else (),
    )
    for number, case in enumerate(SETS)
    for turn, kind in enumerate(KINDS, number + list(quantizers.TOOLS).index(case[:2]))
]
# Beside a NaN, what Inf / Inf becomes has a sign that NumPy and torch do not share, and each tool another.
MIXED = "nan and inf"


def differing(ours: Array, theirs: Array, dtype: dtypes.DType) -> int:
    """Code points that are not the same; the NaNs of a format are one."""
    same = ours == theirs
    if dtype.canonical_nan is not None:
        same |= np.isnan(elements.decode(ours, dtype)) & np.isnan(elements.decode(theirs, dtype))
    return int(np.size(same) - np.count_nonzero(same))


@pytest.mark.parametrize(("dialect", "format", "sample", "kind"), CASES)
def test_a_dialect_stores_what_its_tool_stores(dialect: str, format: str, sample: str, kind: Any) -> None:
    check_stored(dialect, format, (MANY if "128" in format else FEW)[sample], kind, sample == MIXED)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("dialect", "format", "sample"), SETS)
def test_a_dialect_stores_what_its_tool_stores_of_much(dialect: str, format: str, sample: str) -> None:
    for kind in KINDS:
        check_stored(dialect, format, MANY[sample], kind, sample == MIXED)


def check_stored(dialect: str, format: str, numbers: Array, kind: Any, is_mixed: bool) -> None:
    """No code differs, but for one NaN where infinities are beside it."""
    row = formats.of(format)
    with np.errstate(all="ignore"):
        x = numbers.astype(np.float32).astype(kind)
    stored = quantizers.TOOLS[dialect, format](x)
    parts = reference.quantize(x, row, dialects.of(dialect))
    scales = parts.scales.view(f"u{parts.scales.itemsize}")
    assert differing(scales, stored.scales, row.scale) == 0
    assert differing(parts.elements, stored.elements, row.element) <= is_mixed
    if stored.global_scale is not None:
        assert parts.global_scale is not None
        np.testing.assert_array_equal(parts.global_scale.reshape(()), stored.global_scale.reshape(()))


def test_every_dialect_of_a_tool_that_is_here_is_compared_for_every_format_that_it_makes() -> None:
    copied = ("torchao", "modelopt", "compressed-tensors")
    due = {(d.name, f) for d in dialects.ROWS if any(tool in d.name for tool in copied) for f in d.formats}
    assert due - set(quantizers.TOOLS) == {("fp8/compressed-tensors-0.20", "fp8-column")}
