"""Models to try the ONNX front end with: a case of each row, and a model with a little of everything."""

from typing import Any

import numpy as np
import onnx_edges
from onnx import helper, numpy_helper
from protos import model, value

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
    **{op: (op, [X], {}, (), 1) for op in ("Tanh", "Sigmoid", "Sin", "Cos", "Softplus")},
    "Log": ("Log", [P], {}, (), 1),
    "Pow of numbers": ("Pow", [P, Y], {}, (), 1),
    "Pow of integers": ("Pow", [X, I[0] % 4], {}, (), 1),
    **{op: (op, [I, I[::-1].copy()], {}, (), 1) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{op: (op, [3 * X], {}, (), 1) for op in ("Floor", "Ceil", "Round", "Sign", "HardSwish", "Softsign", "Size")},
    **{op: (op, [X, Y, X[:1]], {}, (), 1) for op in ("Sum", "Mean")},
    **{op: (op, [X], {}, (), 1) for op in ("GlobalAveragePool", "GlobalMaxPool")},
    "BitwiseNot": ("BitwiseNot", [I.astype(np.int16)], {}, (), 1),
    "Div integers": ("Div", [I, np.where(I[::-1] == 0, 3, I[::-1])], {}, (), 1),
    "Clip": ("Clip", [X, np.float32(-0.5), np.float32(0.5)], {}, (), 1),
    "Clip integers": ("Clip", [I, np.array(-2), np.array(2)], {}, (1,), 1),
    "PRelu": ("PRelu", [X, Y], {}, (), 1),
    "Tile": ("Tile", [X, ints(2, 1, 3)], {}, (1,), 1),
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
    "MatMulInteger": (
        "MatMulInteger",
        [I.astype(np.uint8), I.transpose(0, 2, 1).copy().astype(np.int8), np.array(7, np.uint8), np.int8(-3)],
        {},
        (),
        1,
    ),
    "MatMulInteger without zero points": ("MatMulInteger", [I[0].astype(np.int8), I[1].T.astype(np.int8)], {}, (), 1),
    "QLinearMatMul": (
        "QLinearMatMul",
        [
            I[0].astype(np.uint8),
            np.float32(0.5),
            np.array(3, np.uint8),
            I[1].T.astype(np.uint8),
            np.float32(0.25),
            np.array(5, np.uint8),
            np.float32(1.5),
            np.array(100, np.uint8),
        ],
        {},
        (1, 2, 4, 5, 6, 7),
        1,
    ),
    "Softmax": ("Softmax", [X], {}, (), 1),
    "Softmax axis": ("Softmax", [X], {"axis": 1}, (), 1),
    "LogSoftmax": ("LogSoftmax", [3 * X], {}, (), 1),
    "LayerNormalization": ("LayerNormalization", [X, X[0, 0], X[0, 1]], {"epsilon": 1e-3}, (1, 2), 1),
    "LayerNormalization axes": ("LayerNormalization", [X, X[0], X[1]], {"axis": 1}, (), 3),
    "LayerNormalization no bias": ("LayerNormalization", [X, X[0, 0]], {}, (1,), 1),
    **{
        f"{op} axes": (op, [X], {"axes": [0, 2]}, (), 1)
        for op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
    },
    **{
        f"{op} operand": (op, [X, ints(-2)], {}, (1,), 1)
        for op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
    },
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
    "Pad constant": ("Pad", [X, ints(0, 1, 2, 1, 0, 3), np.float32(2.5)], {}, (1, 2), 1),
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
# Each attribute of each row at its edges: (op, operands, attributes, which operands are initializers, outputs, opset).
EDGES: list[tuple[str, list[Any], dict[str, Any], tuple[int, ...], int, int]] = [
    *[("Cast", [X * 3], {"to": to}, (), 1, 19) for to in (1, 3, 5, 6, 9, 11)],
    *[("Cast", [X * 3], {"to": 7, "saturate": saturate}, (), 1, 23) for saturate in (0, 1)],
    *[("Cast", [X * 3], {"to": 7, "round_mode": mode}, (), 1, 24) for mode in ("up", "down", "nearest")],
    *[
        ("Gemm", [a, b, X[0, :1, :3]], {"transA": i, "transB": j, "alpha": alpha, "beta": beta}, (), 1, 17)
        for i, a in ((0, X[0]), (1, X[0].T.copy()))
        for j, b in ((0, X[1].T.copy()), (1, X[1]))
        for alpha, beta in ((1.0, 1.0), (0.0, -1.5), (-2.0, 0.0), (1.0, 0.5), (0.5, 1.0))
    ],
    *[("Softmax", [X], {"axis": axis}, (), 1, 17) for axis in (-3, -1, 0, 2)],
    *[
        ("LayerNormalization", [X, x, x], {"axis": axis, "epsilon": epsilon, "stash_type": 1}, (), 3, 17)
        for axis, x in ((-3, X), (0, X), (2, X[0, 0]), (-2, X[0]))
        for epsilon in (0.0, 0.5)
    ],
    *[
        ("ReduceSum", [X, *axes], {"noop_with_empty_axes": noop, "keepdims": keep}, fixed, 1, opset)
        for opset in (13, 19)
        for axes, fixed in (([], ()), ([ints()], (1,)), ([ints(-3)], (1,)), ([ints(2, 0)], (1,)))
        for noop in (0, 1)
        for keep in (0, 1)
    ],
    *[
        (op, [X, *axes], {"noop_with_empty_axes": noop, "keepdims": keep}, fixed, 1, 18)
        for op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
        for axes, fixed in (([], ()), ([ints()], (1,)), ([ints(-3)], (1,)), ([ints(2, 0)], (1,)))
        for noop in (0, 1)
        for keep in (0, 1)
    ],
    *[
        (op, [X], {"keepdims": keep, **axes}, (), 1, opset)
        for op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
        for opset in (11, 17)
        for axes in ({}, {"axes": [-3]}, {"axes": [0, 2]}, {"axes": [2, -2, 0]})
        for keep in (0, 1)
    ],
    *[
        ("DequantizeLinear", [I.astype(np.uint8), np.float32(0.3), np.array(3, np.uint8)], attributes, (1, 2), 1, opset)
        for attributes, opset in (
            ({"axis": 0}, 19),
            ({"axis": -3}, 19),
            ({"axis": 2}, 19),
            ({"block_size": 0}, 21),
            ({"output_dtype": 0}, 23),
            ({"output_dtype": 1}, 23),
        )
    ],
    *[
        ("Constant", [], attributes, (), 1, 17)
        for attributes in (
            {"value": numpy_helper.from_array(I)},
            {"value": numpy_helper.from_array(np.float32(2))},
            {"value_float": -0.0},
            {"value_floats": [1.5, -2.5]},
            {"value_int": -(2**63)},
            {"value_ints": [2**62, -1]},
        )
    ],
    *[
        ("Shape", [X], attributes, (), 1, 15)
        for attributes in (
            {"start": -3},
            {"start": -99, "end": 99},
            {"start": 3},
            {"start": 2, "end": 1},
            {"end": -1},
            {"end": -99},
            {"start": -1, "end": 3},
            {"start": 1, "end": 0},
        )
    ],
    ("Reshape", [X[:, :0], ints(0, 7)], {"allowzero": 1}, (1,), 1, 14),
    ("Reshape", [X[:, :0], ints(3, 0, 2)], {"allowzero": 1}, (1,), 1, 19),
    ("Reshape", [X[:, :0], ints(0, 0, 9)], {"allowzero": 0}, (1,), 1, 14),
    ("Reshape", [X, ints(0, -1, 1)], {"allowzero": 0}, (1,), 1, 19),
    ("Reshape", [X, ints(-1, 4)], {"allowzero": 1}, (1,), 1, 19),
    *[("Transpose", [X], {"perm": perm}, (), 1, 17) for perm in ([0, 1, 2], [2, 1, 0], [1, 2, 0])],
    *[
        ("Pad", [X, ints(*pads), np.float32(-0.0)], {"mode": "constant"}, (1, 2), 1, opset)
        for opset in (11, 19)
        for pads in ((0, 0, 0, 0, 0, 0), (1, 0, 2, 0, 3, 0))
    ],
    *[("Flatten", [X], {"axis": axis}, (), 1, 17) for axis in (0, 1, 3, -1, -3)],
    *[("Concat", [X, X + 1], {"axis": axis}, (), 1, 17) for axis in (-3, 0, 2, -1)],
    *[("Gather", [X, np.array([[1, 0]])], {"axis": axis}, (), 1, 17) for axis in (-3, 0, 2, -1)],
    ("GatherND", [X, np.array([[0, 2], [-2, -3]])], {"batch_dims": 0}, (), 1, 17),
    *[
        ("Range", [np.array(bound, kind) for bound in bounds], {"stash_type": 1}, (0, 1, 2), 1, 27)
        for kind, bounds in ((np.float32, (0.1, 5, 0.1)), (np.float16, (0.1, 5, 0.1)), (np.int64, (9, -9, -4)))
    ],
    *[
        ("ConstantOfShape", [shape], {"value": numpy_helper.from_array(value)}, (0,), 1, 17)
        for shape in (ints(), ints(0), ints(2, 3))
        for value in (np.array([-3]), np.array([True]), np.array([-0.0], np.float32))
    ],
    *onnx_edges.ALL,
]

# Bounds at and beyond both ends, forwards and backwards: (start, end, step) of an axis of 4 elements or fewer.
SLICES = [
    (start, end, step)
    for step in (1, 2, -1, -3)
    for start in (-9, -5, -4, -1, 0, 3, 4, 9)
    for end in (-9, -5, -4, -3, 0, 3, 4, 2**63 - 1, -(2**63) + 1)
    # ONNX Runtime reads this end as the first element's side, ONNX as the last one's.
    if step > 0 or end < 2**62
]

# The other cases are of opset 19; axes were an attribute before 18.
OPSETS = {f"{op} axes": 17 for op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")}
# Cases whose shapes must be known when the model is loaded.
FIXED_SHAPES = {
    "Squeeze", "Slice", "Slice backwards", "GatherND", "GatherND scalars", "Pad", "MaxPool", "AveragePool", "LpPool",
    "Conv", "ConvInteger", "QLinearConv", "Split", "RotaryEmbedding", "TopK", "Scatter", "ScatterElements",
    "ScatterND", "Resize", "Upsample", "Einsum", "ConvTranspose", "RNN", "GRU", "LSTM",
}  # fmt: skip


def attention() -> bytes:
    """A little of everything that a model like MiniLM has."""
    weights = np.random.default_rng(0)
    nodes = [
        helper.make_node("Shape", ["ids"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Range", ["zero", "length", "one"], ["positions"]),
        helper.make_node("Gather", ["places", "positions"], ["place"]),
        helper.make_node("Cast", ["codes"], ["floats"], to=1),
        helper.make_node("Mul", ["floats", "scale"], ["table"]),
        helper.make_node("Gather", ["table", "ids"], ["word"]),
        helper.make_node("Add", ["word", "place"], ["e"]),
        helper.make_node("LayerNormalization", ["e", "gamma", "beta"], ["n"], axis=-1),
        helper.make_node("MatMul", ["n", "w"], ["k0"]),
        helper.make_node("Add", ["k0", "beta"], ["k1"]),
        helper.make_node("Reshape", ["k1", "heads"], ["k2"]),
        helper.make_node("Transpose", ["k2"], ["k"], perm=[0, 2, 1, 3]),
        helper.make_node("Transpose", ["k2"], ["kt"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["k", "kt"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "k"], ["c"]),
        helper.make_node("Transpose", ["c"], ["ct"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["ct", "whole"], ["o"]),
        helper.make_node("Erf", ["o"], ["g"]),
        helper.make_node("Slice", ["g", "begin", "end", "axes"], ["part"]),
        helper.make_node("Concat", ["part", "part"], ["both"], axis=2),
        helper.make_node("ReduceMean", ["both", "axes"], ["y"], keepdims=0),
    ]
    constants = {
        "zero": np.array(0), "one": np.array(1), "heads": np.array([0, 0, 2, 4]), "whole": np.array([0, 0, 8]),
        "begin": np.array([0]), "end": np.array([2]), "axes": np.array([-1]), "scale": np.array(0.1, np.float32),
        "places": weights.standard_normal((16, 8)).astype(np.float32),
        "codes": weights.integers(-9, 9, (20, 8)).astype(np.int8),
        "gamma": np.ones(8, np.float32), "beta": np.zeros(8, np.float32),
        "w": weights.standard_normal((8, 8)).astype(np.float32),
    }  # fmt: skip
    made: bytes = model(
        nodes, [value("ids", np.int64, ["n", "m"])], [value("y", np.float32, ["n", "m"])], constants, opset=19
    ).SerializeToString()
    return made
