"""Each ONNX row against onnxruntime, and the session against the reference in every bit."""

import numpy as np
import onnxruntime
import protos
import pytest
from onnx import helper
from onnx_cases import CASES, FIXED_SHAPES, OPSETS, X

from samebits import onnx
from samebits.runtime import cpu, reference

EPS = np.finfo(np.float32).eps


@pytest.mark.parametrize("name", CASES)
def test_row_agrees_with_onnxruntime(name: str) -> None:
    op, arrays, attributes, fixed, outputs = CASES[name]
    operands = [np.asarray(array) for array in arrays]
    proto, feed = protos.one(op, operands, attributes, fixed, outputs, OPSETS.get(name, 19), name not in FIXED_SHAPES)
    program = onnx.load(proto)
    ours = cpu.prepare(program, threads=1).run(feed)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for (output, x), theirs in zip(ours.items(), session.run(None, feed), strict=True):
        assert x.dtype == theirs.dtype
        assert x.shape == theirs.shape
        np.testing.assert_allclose(x, theirs, rtol=16 * EPS, atol=8 * EPS, err_msg=output)
    meaning = reference.run(program, feed)
    for output, x in ours.items():
        assert x.tobytes() == np.ascontiguousarray(meaning[output]).tobytes()


def test_shapes_of_symbolic_inputs_stay_symbolic() -> None:
    proto, _ = protos.one("Shape", [X])
    assert str(onnx.load(proto)).splitlines()[-2:] == ["  y0: int64[3] = dims([x0_0, x0_1, x0_2])", "  output y0"]


def test_pads_below_zero_cut() -> None:
    node = helper.make_node("Pad", ["x", "pads"], ["y"])
    values = [protos.value("x", np.float32, X.shape)], [protos.value("y", np.float32, [3, 2, 1])]
    proto = protos.model([node], *values, {"pads": ints(-1, 1, 0, 2, -2, -3)})
    made = cpu.load(proto).run({"x": X})["y"]
    (theirs,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": X})
    assert made.tobytes() == theirs.tobytes()
