"""What docs/operators.md says of ONNX Runtime: each case is run by it and by us."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import protos
import pytest
from onnx_differences import DIFFERENCES, Difference

from samebits import onnx
from samebits.runtime import cpu, reference

REFUSED = (
    onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument,
    onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented,
    onnxruntime.capi.onnxruntime_pybind11_state.Fail,
)
CASES = pytest.mark.parametrize("case", DIFFERENCES, ids=lambda case: f"{case.op}, {case.when}")


def one(case: Difference) -> tuple[Any, dict[str, Any]]:
    """The node as a model; where several operators are alike, the first."""
    op = case.op.split(",")[0]
    outputs = len(case.here)
    return protos.one(op, case.arrays, case.attributes, case.fixed, outputs, case.opset, False, case.domain)


def check(found: Sequence[Any], due: Sequence[Any]) -> None:
    for x, y in zip(map(np.asarray, found), due, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_array_equal(x, y)


@CASES
def test_ours_is_what_the_page_says(case: Difference) -> None:
    proto, feed = one(case)
    program = onnx.load(proto)
    check(list(cpu.prepare(program, threads=1).run(feed).values()), case.here)
    check(list(reference.run(program, feed).values()), case.here)


@CASES
def test_onnxruntimes_is_what_the_page_says(case: Difference) -> None:
    proto, feed = one(case)

    def run() -> Sequence[Any]:
        made: Sequence[Any] = protos.session(proto).run(None, feed)
        return made

    if case.there is None:
        with pytest.raises(REFUSED):
            run()
    else:
        check(run(), case.there)
