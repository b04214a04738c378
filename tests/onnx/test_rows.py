"""Each ONNX row against onnxruntime, and the session against the reference in every bit."""

from typing import Any

import numpy as np
import onnxruntime
import protos
import pytest
from onnx import helper

from samebits import onnx
from samebits.runtime import cpu, reference

EPS = np.finfo(np.float32).eps
R = np.random.default_rng(7)
X = R.standard_normal((2, 3, 4)).astype(np.float32)
Y = R.standard_normal((3, 1)).astype(np.float32)
P = np.abs(X) + np.float32(0.1)
I = R.integers(-5, 6, (2, 3, 4))  # noqa: E741 - integers
M = I > 0


def ints(*values: int) -> np.ndarray:
    """A vector of int64."""
    return np.array(values, np.int64)


# (op, operands, attributes, which operands are initializers, outputs)
CASES: dict[str, tuple[str, list[Any], dict[str, Any], tuple[int, ...], int]] = {
    **{op: (op, [X, Y], {}, (), 1) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Less", "Greater")},
    **{op: (op, [X, Y], {}, (), 1) for op in ("LessOrEqual", "GreaterOrEqual")},
    **{f"{op} int64": (op, [I, I[:, ::-1].copy()], {}, (), 1) for op in ("Add", "Sub", "Mul", "Max", "Equal", "Less")},
    **{op: (op, [M, ~M], {}, (), 1) for op in ("And", "Or", "Xor")},
    **{op: (op, [X], {}, (), 1) for op in ("Neg", "Abs", "Exp", "Reciprocal", "Erf", "Relu", "Identity")},
    "Not": ("Not", [M], {}, (), 1),
    "Sqrt": ("Sqrt", [P], {}, (), 1),
    "IsNaN": ("IsNaN", [np.where(M, np.nan, X).astype(np.float32)], {}, (), 1),
    "Where": ("Where", [M, X, Y], {}, (), 1),
    "Pow": ("Pow", [X, np.array(2.0, np.float32)], {}, (1,), 1),
    "Cast to bool": ("Cast", [I], {"to": 9}, (), 1),
    "Cast to float": ("Cast", [I], {"to": 1}, (), 1),
    "Cast to int": ("Cast", [X * 3], {"to": 7}, (), 1),
    "MatMul": ("MatMul", [X, R.standard_normal((4, 5)).astype(np.float32)], {}, (1,), 1),
    "MatMul batch": ("MatMul", [X, X.transpose(0, 2, 1).copy()], {}, (), 1),
    "MatMul vector": ("MatMul", [X, X[0, 0]], {}, (), 1),
    "vector MatMul": ("MatMul", [X[0, 0], X[0].T.copy()], {}, (), 1),
    "Gemm": ("Gemm", [X[0], X[1], Y.T.copy()], {"transB": 1, "alpha": 0.5, "beta": 2.0}, (1,), 1),
    "Softmax": ("Softmax", [X], {}, (), 1),
    "Softmax axis": ("Softmax", [X], {"axis": 1}, (), 1),
    "LayerNormalization": ("LayerNormalization", [X, X[0, 0], X[0, 1]], {"epsilon": 1e-3}, (1, 2), 1),
    "LayerNormalization axes": ("LayerNormalization", [X, X[0], X[1]], {"axis": 1}, (), 3),
    "LayerNormalization no bias": ("LayerNormalization", [X, X[0, 0]], {}, (1,), 1),
    **{f"{op} axes": (op, [X], {"axes": [0, 2]}, (), 1) for op in ("ReduceMean", "ReduceMax", "ReduceMin")},
    **{f"{op} operand": (op, [X, ints(-2)], {}, (1,), 1) for op in ("ReduceMean", "ReduceMax", "ReduceMin")},
    "ReduceSum": ("ReduceSum", [X, ints(0, -1)], {"keepdims": 0}, (1,), 1),
    "ReduceSum all": ("ReduceSum", [X], {}, (), 1),
    "ReduceSum none": ("ReduceSum", [X], {"noop_with_empty_axes": 1}, (), 1),
    "Reshape": ("Reshape", [X, ints(0, -1)], {}, (1,), 1),
    "Reshape allowzero": ("Reshape", [X[:0], ints(0, 5)], {"allowzero": 1}, (1,), 1),
    "Flatten": ("Flatten", [X], {"axis": 2}, (), 1),
    "Transpose": ("Transpose", [X], {"perm": [2, 0, 1]}, (), 1),
    "Transpose reversed": ("Transpose", [X], {}, (), 1),
    "Squeeze": ("Squeeze", [X[:1]], {}, (), 1),
    "Unsqueeze": ("Unsqueeze", [X, ints(0, -1)], {}, (1,), 1),
    "Expand": ("Expand", [Y, ints(2, 1, 4)], {}, (1,), 1),
    "Concat": ("Concat", [X, X[:, :1]], {"axis": 1}, (), 1),
    "Slice": ("Slice", [X, ints(1, -3), ints(9, -1), ints(1, 2)], {}, (1, 2, 3), 1),
    "Slice backwards": ("Slice", [X, ints(-1), ints(-99), ints(2), ints(-2)], {}, (1, 2, 3, 4), 1),
    "Slice symbolic": ("Slice", [X, ints(1, -3), ints(9, -1), ints(1, 2)], {}, (1, 2, 3), 1),
    "Slice of nothing": ("Slice", [X, ints(5), ints(9), ints(1)], {}, (1, 2, 3), 1),
    "Pad": ("Pad", [X, ints(0, 1, 2, 1, 0, 3), np.float32(2.5)], {}, (1, 2), 1),
    "Pad axes": ("Pad", [I, ints(2, 0, 0, 1), np.array(-7), ints(2, -3)], {}, (1, 2, 3), 1),
    "Gather": ("Gather", [X, np.array([[0, -1], [2, 1]])], {"axis": 1}, (), 1),
    "Gather rows": ("Gather", [X, np.array(1)], {}, (), 1),
    "GatherND": ("GatherND", [X, np.array([[0, 2], [-1, 0]])], {}, (), 1),
    "GatherND scalars": ("GatherND", [M, np.array([[0, 2, 3], [1, 0, -1]])], {}, (), 1),
    "Shape": ("Shape", [X], {"start": 1}, (), 1),
    "Range": ("Range", [np.array(2), np.array(11), np.array(4)], {}, (0, 1, 2), 1),
    "Range float": ("Range", [np.float32(1), np.float32(-1), np.float32(-0.5)], {}, (0, 1, 2), 1),
    "ConstantOfShape": ("ConstantOfShape", [ints(2, 3)], {}, (0,), 1),
    "DynamicQuantizeLinear": ("DynamicQuantizeLinear", [X], {}, (), 3),
    "DynamicQuantizeLinear positive": ("DynamicQuantizeLinear", [P], {}, (), 3),
    "DequantizeLinear": (
        "DequantizeLinear",
        [I.astype(np.int8), np.float32(0.3), np.array(-3, np.int8)],
        {},
        (1, 2),
        1,
    ),
}
# The other cases are of opset 19; axes were an attribute before 18.
OPSETS = {f"{op} axes": 17 for op in ("ReduceMean", "ReduceMax", "ReduceMin")}
# Cases whose shapes must be known when the model is loaded.
FIXED_SHAPES = {"Squeeze", "Slice", "Slice backwards", "GatherND", "GatherND scalars"}


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
