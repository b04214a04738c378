"""Each attribute of the rows by theme at its edges: (op, operands, attributes, fixed operands, outputs, opset)."""

from typing import Any

import numpy as np

Edge = tuple[str, list[Any], dict[str, Any], tuple[int, ...], int, int]

R = np.random.default_rng(11)
X = R.standard_normal((2, 3, 4)).astype(np.float32)
I = R.integers(-50, 50, (2, 3, 4))  # noqa: E741 - integers
# Batch, channels, rows, columns; the second channel of each is negative.
IMAGE = R.standard_normal((2, 4, 6, 5)).astype(np.float32)
BYTES = (IMAGE * 40 + 128).clip(0, 255).astype(np.uint8)
SIGNED = (BYTES.astype(int) - 128).astype(np.int8)
# A number for each two along the last axis of X; and nothing but channels.
PAIRS = np.abs(X[:, :, ::2])
DEEP = R.standard_normal((2, 18, 2, 3)).astype(np.float32)
# Batch, heads, sequence and places of a head; and where in a cache of 7 each of the sequence is.
TURNED = R.standard_normal((2, 3, 5, 8)).astype(np.float32)
AT = R.integers(0, 7, (2, 5))
TIES = np.array([[1, 3, 3, 0, 0], [2, 2, 2, 2, 2], [-1, np.nan, 4, np.nan, 0]], np.float32)
FAR = np.array([[-np.inf, np.inf, np.nan, 0.0, -1.0, 300.5]], np.float32)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


LOGIC: list[Edge] = [
    *[
        ("IsInf", [FAR], {"detect_positive": positive, "detect_negative": negative}, (), 1, opset)
        for positive in (0, 1)
        for negative in (0, 1)
        for opset in (10, 20)
    ],
    *[
        ("BitShift", [np.abs(I).astype(kind), (np.abs(I) % 20).astype(kind)], {"direction": way}, (), 1, 11)
        for kind in (np.uint8, np.uint32, np.uint64)
        for way in ("LEFT", "RIGHT")
    ],
    *[("BitCast", [X], {"to": to}, (), 1, 26) for to in (6, 12)],
    *[("BitCast", [I], {"to": to}, (), 1, 26) for to in (11, 13)],
    *[
        ("Trilu", [x, *k], {"upper": upper}, (), 1, 14)
        for x in (X, I)
        for upper in (0, 1)
        for k in ([], [np.array(-1)])
    ],
    ("Trilu", [X, np.array(2)], {"upper": 1}, (), 1, 14),
    *[("EyeLike", [X[0]], {"k": k, "dtype": kind}, (), 1, 9) for k in (-1, 0, 2) for kind in (1, 7, 9)],
    *[
        ("OneHot", [np.array([[0, 3], [-1, 9]]), np.array(4), values], {"axis": axis}, (1,), 1, 11)
        for axis in (0, 1, -1)
        for values in (np.array([0, 1]), np.array([-0.5, 2], np.float32))
    ],
]

ARITHMETIC: list[Edge] = [
    *[
        ("Mod", [I.astype(kind), np.where(I == 0, 7, I[::-1]).astype(kind)], {"fmod": fmod}, (), 1, 13)
        for kind in (np.int8, np.int32, np.int64)
        for fmod in (0, 1)
    ],
    ("Mod", [X, np.where(X == 0, np.float32(7), X[::-1])], {"fmod": 1}, (), 1, 13),
    *[("Clip", [X], {"min": low, "max": high}, (), 1, 6) for low, high in ((-0.5, 0.5), (0.0, 3.5))],
    *[("LeakyRelu", [X], {"alpha": alpha}, (), 1, opset) for alpha in (0.01, -2.0) for opset in (6, 16)],
    ("Mish", [X], {}, (), 1, 18),
    *[("Swish", [X], {"alpha": alpha}, (), 1, 24) for alpha in (1.0, 0.3)],
    *[("Elu", [X], {"alpha": alpha}, (), 1, opset) for alpha in (1.0, 0.3) for opset in (6, 22)],
    *[("Celu", [X], {"alpha": alpha}, (), 1, 12) for alpha in (1.0, 2.5)],
    *[
        ("Selu", [X], {"alpha": a, "gamma": g}, (), 1, 6)
        for a, g in ((1.6732631921768188, 1.0507010221481323), (2.0, 3.0))
    ],
    *[("HardSigmoid", [3 * X], {"alpha": a, "beta": b}, (), 1, 6) for a, b in ((0.2, 0.5), (0.5, 0.25))],
    *[("ThresholdedRelu", [X], {"alpha": alpha}, (), 1, 10) for alpha in (1.0, -0.5)],
    *[("Shrink", [X], {"bias": b, "lambd": a}, (), 1, 9) for b, a in ((0.0, 0.5), (0.25, 1.0))],
    *[("Gelu", [3 * X], {"approximate": way}, (), 1, 20) for way in ("none", "tanh")],
    *[("Dropout", [X], {"ratio": ratio}, (), 1, 10) for ratio in (0.5, 0.25)],
    *[("Dropout", [X, np.float32(0.3), np.array(False)], {"seed": seed}, (1, 2), 2, 13) for seed in (1, 7)],
]

REDUCTIONS: list[Edge] = [
    *[
        ("TopK", [x, np.array([2])], {"axis": axis, "largest": largest, "sorted": 1}, (1,), 2, 11)
        for x in (X, TIES[:2])
        for axis, largest in ((-1, 1), (1, 0), (0, 1))
    ],
    ("TopK", [X, np.array([1])], {"axis": 0, "largest": 0, "sorted": 0}, (1,), 2, 11),
    ("TopK", [X, np.array([1])], {"axis": 1}, (1,), 2, 10),
    *[
        (op, [X, np.array([[[1, 0]], [[-1, 0]]]), -X[:, :1, :2]], {"axis": axis}, (), 1, opset)
        for op, opset in (("ScatterElements", 13), ("Scatter", 9))
        for axis in (0, 1, 2)
    ],
    ("ScatterElements", [X, np.array([[[1]]]), -X[:1, :1, :1]], {"axis": 0, "reduction": "none"}, (), 1, 18),
    *[
        (op, [X, np.array(axis)], {"exclusive": exclusive, "reverse": reverse}, (1,), 1, opset)
        for op, opset in (("CumSum", 14), ("CumProd", 26))
        for axis, exclusive, reverse in ((0, 0, 0), (-1, 1, 0), (1, 0, 1), (2, 1, 1))
    ],
    *[
        (op, [X], {"keepdims": keep, **axes}, (), 1, opset)
        for op in ("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")
        for opset in (11, 12)
        for axes in ({}, {"axes": [-3]}, {"axes": [0, 2]})
        for keep in (0, 1)
    ],
    *[
        (op, [X, *axes], {"noop_with_empty_axes": noop, "keepdims": keep}, fixed, 1, 18)
        for op in ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")
        for axes, fixed in (([], ()), ([_ints()], (1,)), ([_ints(2, 0)], (1,)))
        for noop in (0, 1)
        for keep in (0, 1)
    ],
    *[
        ("ReduceLogSum", [np.abs(X), *given], {"keepdims": keep, **named}, fixed, 1, opset)
        for opset, given, named, fixed in (
            (11, [], {}, ()),
            (17, [], {"axes": [0, 2]}, ()),
            (13, [], {"axes": [-3]}, ()),
            (18, [_ints(2, 0)], {"noop_with_empty_axes": 0}, (1,)),
            (18, [], {"noop_with_empty_axes": 1}, ()),
        )
        for keep in (0, 1)
    ],
    # Their exponentials are infinite, or 0.
    ("ReduceLogSumExp", [np.array([[900, 901], [-900, -903]], np.float32)], {"axes": [1]}, (), 1, 13),
    *[
        (op, [x], {"axis": axis, "keepdims": keep, "select_last_index": last}, (), 1, 13)
        for op in ("ArgMax", "ArgMin")
        for x, axes in ((X, (0, -1, 1)), (TIES[:2], (0, 1)), (I.astype(np.int32), (2,)))
        for axis in axes
        for keep in (0, 1)
        for last in (0, 1)
    ],
    *[
        (op, [X], {"axis": axis}, (), 1, opset)
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for axis in (-1, 0, 1)
        for opset in (11, 13)
    ],
    *[
        ("RMSNormalization", [X, scale], {"axis": axis, "epsilon": epsilon, "stash_type": 1}, (), 1, 23)
        for axis, scale in ((-1, X[0, 0]), (1, X[0]), (0, X[:1]))
        for epsilon in (0.5, 1e-5)
    ],
    *[
        (
            "GroupNormalization",
            [IMAGE, IMAGE[0, :, 0, 0], IMAGE[0, :, 1, 1]],
            {"num_groups": groups, "epsilon": epsilon, "stash_type": 1},
            (),
            1,
            21,
        )
        for groups in (1, 2, 4)
        for epsilon in (0.5, 1e-5)
    ],
    *[
        ("InstanceNormalization", [IMAGE, IMAGE[0, :, 0, 0], IMAGE[0, :, 1, 1]], {"epsilon": epsilon}, (), 1, opset)
        for epsilon in (0.5, 1e-5)
        for opset in (6, 22)
    ],
    *[
        (
            "BatchNormalization",
            [IMAGE, *[IMAGE[0, :, i, i] for i in range(3)], np.abs(IMAGE[0, :, 3, 3])],
            {"epsilon": epsilon, "momentum": momentum, **more},
            (),
            1,
            opset,
        )
        for epsilon, momentum in ((1e-5, 0.9), (0.5, 0.1))
        for opset, more in ((9, {}), (15, {"training_mode": 0}))
    ],
    *[("LpNormalization", [X], {"axis": axis, "p": p}, (), 1, 1) for axis in (-1, 0, 1) for p in (1, 2)],
]

FORMATS: list[Edge] = [
    *[("CastLike", [9 * X, I[:1, :1, :1]], {"saturate": saturate}, (), 1, 23) for saturate in (0, 1)],
    *[
        ("QuantizeLinear", [9 * IMAGE, scale, zero], {"axis": axis}, (1, 2), 1, 13)
        for axis, count in ((1, 4), (0, 2), (-1, 5))
        for kind in (np.int8, np.uint8)
        for scale, zero in ((np.linspace(0.1, 2, count).astype(np.float32), np.arange(count).astype(kind)),)
    ],
    *[
        ("QuantizeLinear", [9 * X, np.float32(0.3), np.array(-3, np.int8)], {"saturate": saturate}, (1, 2), 1, 19)
        for saturate in (0, 1)
    ],
    *[("QuantizeLinear", [9 * X, np.float32(0.3)], {"output_dtype": kind}, (), 1, 21) for kind in (0, 2, 3, 4, 5)],
    *[
        ("QuantizeLinear", [900 * X, np.float32(0.03), np.array(77, kind)], {}, (), 1, 21)
        for kind in (np.int16, np.uint16)
    ],
    *[("QuantizeLinear", [9 * X, np.float32(0.3)], {"precision": number}, (), 1, 23) for number in (0, 1)],
    *[
        (
            "QuantizeLinear",
            [9 * X, np.abs(X[:, :, ::2]) + 1, I[:, :, ::2].astype(np.int8)],
            {"axis": 2, "block_size": 2},
            (),
            1,
            21,
        ),
        ("QuantizeLinear", [9 * X, np.abs(X[:, :1]) + 1], {"axis": 1, "block_size": 3}, (), 1, 21),
    ],
    *[
        ("DequantizeLinear", [IMAGE.astype(np.int8), scale, zero], {"axis": axis}, (1, 2), 1, 19)
        for axis, count in ((1, 4), (0, 2), (-1, 5))
        for scale, zero in ((np.linspace(0.1, 2, count).astype(np.float32), np.arange(count).astype(np.int8)),)
    ],
    *[
        (
            "DequantizeLinear",
            [I.astype(kind), np.abs(X[:, :, ::2]), I[:, :, ::2].astype(kind)],
            {"axis": 2, "block_size": 2},
            (),
            1,
            21,
        )
        for kind in (np.int8, np.uint8)
    ],
]

SHAPES: list[Edge] = [
    *[("Squeeze", [X[:1, :, :1]], {"axes": axes}, (), 1, opset) for axes in ([0], [-1, 0]) for opset in (1, 11)],
    *[("Unsqueeze", [X], {"axes": axes}, (), 1, opset) for axes in ([0], [1, 3]) for opset in (1, 11)],
    *[
        ("Slice", [X], {"axes": [1, 2], "starts": starts, "ends": ends}, (), 1, 9)
        for starts, ends in (([0, 1], [2, 3]), ([-2, 0], [9, -1]))
    ],
    ("Slice", [X], {"axes": [0], "starts": [1], "ends": [2]}, (), 1, 1),
    *[("Split", [X[:, :, :3]], {"axis": axis}, (), 3, opset) for axis in (1, -1) for opset in (2, 13)],
    *[("Split", [X], {"axis": 2, "split": split}, (), 2, 11) for split in ([1, 3], [4, 0])],
    *[("Split", [X], {"axis": 1, "num_outputs": n}, (), n, 18) for n in (1, 2, 3)],
    *[("Split", [X, _ints(1, 0, 3)], {"axis": 2}, (1,), 3, opset) for opset in (13, 18)],
    *[
        (
            "DepthToSpace",
            [R.standard_normal((2, 18, 2, 3)).astype(np.float32)],
            {"blocksize": block, "mode": mode},
            (),
            1,
            13,
        )
        for block in (1, 3)
        for mode in ("DCR", "CRD")
    ],
    *[("SpaceToDepth", [IMAGE[..., :4]], {"blocksize": block}, (), 1, 13) for block in (1, 2)],
    *[("SpaceToDepth", [IMAGE[..., :4]], {"blocksize": 2, "mode": mode}, (), 1, 28) for mode in ("DCR", "CRD")],
    *[
        ("Pad", [X], {"mode": mode, "pads": pads, "value": value}, (), 1, 2)
        for mode in ("constant", "reflect", "edge")
        for pads, value in (([0, 1, 2, 0, 2, 1], 0.0), ([0, 0, 0, 0, 1, 3], -1.5))
    ],
    *[
        ("Pad", [X, _ints(0, 1, 2, 1, 2, 0)], {"mode": mode}, (1,), 1, opset)
        for mode, opsets in (
            ("constant", (11, 18, 19)),
            ("reflect", (11, 18, 19)),
            ("edge", (11, 18, 19)),
            ("wrap", (19,)),
        )
        for opset in opsets
    ],
    *[
        ("GatherND", [X, np.array([[[0], [2]], [[-1], [1]]])], {"batch_dims": 1}, (), 1, 12),
        ("GatherND", [X, np.array([[3, 0, 1], [-1, 2, 0]])[..., None]], {"batch_dims": 2}, (), 1, 13),
    ],
    *[
        ("GatherElements", [X, R.integers(-2, 2, shape)], {"axis": axis}, (), 1, 11)
        for axis, shape in ((0, (3, 3, 4)), (1, (2, 1, 4)), (2, (2, 3, 5)))
    ],
    ("GatherElements", [X[0, 0], np.array([3, -1, 0])], {}, (), 1, 13),
    *[
        ("ReverseSequence", [x, _ints(1, 3, 2)], {"batch_axis": batch, "time_axis": 1 - batch}, (), 1, 10)
        for batch, x in ((0, np.moveaxis(X, 1, 0)[:, :, :3].repeat(2, 1)), (1, IMAGE[0, :, :3]))
    ],
]


def _f(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


NOTHING = _f()
MOVED: list[Edge] = [
    *[
        ("ScatterND", [X, indices, R.standard_normal(shape).astype(np.float32)], {}, (), 1, 13)
        for indices, shape in (
            (np.array([[1], [-2]]), (2, 3, 4)),
            (np.array([[0, 1], [-1, -3], [1, 2]]), (3, 4)),
            (np.array([[[0, 1, -1], [1, 2, 0]]]), (1, 2)),
            (np.zeros((0, 2), np.int64), (0, 4)),
        )
    ],
    ("ScatterND", [I, np.array([[0, 2]]), I[0, :1]], {"reduction": "none"}, (), 1, 18),
    *[
        ("Einsum", operands, {"equation": equation}, (), 1, 12)
        for equation, operands in (
            ("ij,jk->ik", [X[0], X[1].T.copy()]),
            ("b...ij, b...kj -> b...ik", [X[:, None], X[:, None, :2]]),
            ("...ij,...jk", [X, X.transpose(0, 2, 1).copy()]),
            ("...ij,...jk->k...i", [X[:, None], X.transpose(0, 2, 1)[:, None].copy()]),
            ("bij,bij->b", [X, -X]),
            ("i,j,k->kji", [X[0, 0], X[0, 1], X[0, :, 1]]),
            ("abc,cd,de->ae", [X, X[0].T.copy(), X[0, :, :2].copy()]),
            ("i,ij->", [X[0, :, 0], X[0]]),
            ("iij->ij", [IMAGE[0, :, :4]]),
            ("aab,b", [IMAGE[0, :, :4], IMAGE[0, 0, 0]]),
            ("bca", [X]),
            ("ij->", [X[0]]),
            ("ij,kl->ijkl", [I[0], I[1]]),
        )
    ],
    *[
        (
            "Resize",
            [IMAGE, NOTHING, _f(1, 1, *scales)],
            {"mode": mode, "coordinate_transformation_mode": at},
            (1, 2),
            1,
            13,
        )
        for mode, scales in (("linear", (1.7, 0.6)), ("cubic", (0.7, 2.5)))
        for at in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    ],
    *[
        (
            "Resize",
            [IMAGE, NOTHING, NOTHING, _ints(2, 4, 9, 2)],
            {"mode": "nearest", "nearest_mode": way, **at},
            (1, 2, 3),
            1,
            11,
        )
        for way in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        for at in ({}, {"coordinate_transformation_mode": "asymmetric"})
    ],
    ("Resize", [I, NOTHING, _f(2, 1, 0.5)], {"coordinate_transformation_mode": "half_pixel_symmetric"}, (1, 2), 1, 19),
    *[
        (
            "Resize",
            [IMAGE, NOTHING, _f(1, 1, 0.55, 0.4)],
            {"mode": mode, "antialias": smooth, "exclude_outside": out},
            (1, 2),
            1,
            18,
        )
        for mode, smooth, out in (("linear", 1, 0), ("cubic", 1, 1), ("cubic", 0, 1))
    ],
    *[
        (
            "Resize",
            [IMAGE, NOTHING, _f(1, 1, 2, 2)],
            {"mode": "cubic", "cubic_coeff_a": a, "extrapolation_value": value},
            (1, 2),
            1,
            13,
        )
        for a, value in ((-0.75, 0.0), (-0.5, 1.5))
    ],
    *[
        (
            "Resize",
            [IMAGE, NOTHING, NOTHING, _ints(9, 8)],
            {"axes": axes, "keep_aspect_ratio_policy": way, "mode": "linear"},
            (1, 2, 3),
            1,
            18,
        )
        for axes, way in (([2, 3], "not_larger"), ([3, 2], "not_smaller"), ([2, 3], "stretch"))
    ],
    *[("Resize", [IMAGE, _f(1, 1, 2, 0.5)], {"mode": mode}, (1,), 1, 10) for mode in ("nearest", "linear")],
    *[("Upsample", [IMAGE, _f(1, 1, 2, 3)], {"mode": mode}, (1,), 1, 9) for mode in ("nearest", "linear")],
    *[
        ("Upsample", [IMAGE], {"mode": mode, "scales": scales}, (), 1, 7)
        for mode, scales in (("nearest", [1.0, 1.0, 2.0, 3.0]), ("linear", [1.0, 1.0, 1.0, 1.5]))
    ],
]

# How windows of convolutions slide.
_CONVOLVED: list[dict[str, Any]] = [
    {"strides": [1, 2], "pads": [1, 0, 2, 1]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER", "dilations": [1, 1]},
    {"auto_pad": "VALID", "dilations": [2, 3]},
    {"auto_pad": "NOTSET", "pads": [0, 0, 0, 0]},
]
_POOLED = [
    {"kernel_shape": [3, 2], "auto_pad": "NOTSET"},
    {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [2, 2], "strides": [1, 3], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [2, 1], "strides": [3, 2], "auto_pad": "VALID"},
]
_RAISED = [
    {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1], "dilations": [1, 2]},
    {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 0, "dilations": [2, 1]},
]

WINDOWS: list[Edge] = [
    *[("MaxPool", [IMAGE], {**attributes, "storage_order": i % 2}, (), 1, 8) for i, attributes in enumerate(_POOLED)],
    *[("MaxPool", [IMAGE], attributes, (), 1, 12) for attributes in (*_POOLED, *_RAISED)],
    ("MaxPool", [(50 * IMAGE).astype(np.int8)], _POOLED[1], (), 1, 12),
    ("MaxPool", [X], {"kernel_shape": [3], "strides": [2]}, (), 1, 1),
    ("MaxPool", [X], {"kernel_shape": [1], "strides": [2]}, (), 1, 1),
    # Windows whose largest is that of two halves, again and again.
    (
        "MaxPool",
        [np.random.default_rng(1).standard_normal((1, 2, 60)).astype(np.float32)],
        {"kernel_shape": [19], "strides": [3], "dilations": [2], "pads": [4, 7]},
        (),
        1,
        12,
    ),
    *[
        ("AveragePool", [IMAGE], {**attributes, "count_include_pad": i % 2}, (), 1, opset)
        for i, attributes in enumerate([_POOLED[1], _POOLED[1], *_POOLED])
        for opset in (7, 11)
    ],
    *[
        ("AveragePool", [IMAGE], {**attributes, "count_include_pad": count}, (), 1, 22)
        for attributes in _RAISED
        for count in (0, 1)
    ],
    *[("GlobalLpPool", [IMAGE], {"p": p}, (), 1, 2) for p in (1, 2)],
    *[("LpPool", [IMAGE], {**attributes, "p": p}, (), 1, 2) for attributes in _POOLED[:2] for p in (1, 2)],
    *[("LpPool", [IMAGE], {**attributes, "p": p}, (), 1, 18) for attributes in (*_POOLED, *_RAISED) for p in (1, 2)],
    *[
        ("Conv", [IMAGE, w, *bias], {"kernel_shape": [3, 2], "group": group, **attributes}, (), 1, 11)
        for group, w in (
            (1, IMAGE.reshape(2, 4, 30)[:, :, :6].reshape(2, 4, 3, 2)),
            (2, IMAGE.reshape(10, 2, 3, 4)[:, :, :, :2]),
        )
        for bias in ([], [R.standard_normal(len(w)).astype(np.float32)])
        for attributes in _CONVOLVED
    ],
    *[
        (op, [BYTES, *more[0], w, *more[1]], {"kernel_shape": w.shape[2:], "group": group, **attributes}, (), 1, 11)
        for group, w in ((1, SIGNED.reshape(10, 4, 3, 2)), (2, SIGNED.reshape(20, 2, 3, 2)[:, :, :2].copy()))
        for op, more in (
            ("ConvInteger", ((), (np.array(7, np.uint8), np.array(0, np.int8)))),
            (
                "QLinearConv",
                (
                    (np.float32(0.5), np.array(7, np.uint8)),
                    (np.float32(0.25), np.array(0, np.int8), np.float32(16), np.array(99, np.uint8)),
                ),
            ),
        )
        for attributes in _CONVOLVED
    ],
    *[
        ("ConvTranspose", [IMAGE, w, *bias], {"group": group, **attributes}, (), 1, 11)
        for group, w in ((1, IMAGE.reshape(4, 2, 10, 3)[:, :, :2]), (2, IMAGE.reshape(4, 2, 10, 3)[:, :, 2:4]))
        for bias in ([], [R.standard_normal(2 * group).astype(np.float32)])
        for attributes in (
            {"kernel_shape": [2, 3], "auto_pad": "NOTSET"},
            {"strides": [3, 2], "pads": [1, 0, 0, 1], "output_padding": [0, 1]},
            {"strides": [2, 3], "dilations": [3, 2], "pads": [1, 1, 2, 0]},
            {"strides": [2, 2], "output_shape": [12, 10]},
        )
    ],
    *[
        (
            "ConvTranspose",
            [IMAGE, IMAGE.reshape(4, 2, 10, 3)[:, :, :4]],
            {"auto_pad": mode, "strides": [2, 1]},
            (),
            1,
            11,
        )
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ],
    *[
        ("ConvTranspose", [X, X.reshape(3, 2, 4)[:, :, :2]], {"strides": [3], "dilations": [2], **more}, (), 1, 11)
        for more in ({"kernel_shape": [2], "output_padding": [1]}, {"output_shape": [13]})
    ],
    ("Conv", [IMAGE, IMAGE.reshape(2, 4, 5, 6)], {"kernel_shape": [5, 6], "pads": [1, 1, 1, 1]}, (), 1, 11),
    ("Conv", [X, X], {}, (), 1, 11),
]

# Steps, batch, inputs: those of a layer of 3 units, with biases, lengths and first states where they are asked for.
TIMES = R.standard_normal((5, 2, 4)).astype(np.float32)
LENGTHS = np.array([3, 5], np.int32)


def recurrent(op: str, directions: int = 1, *, full: bool = True, peepholes: bool = False, units: int = 3) -> list[Any]:
    """The operands of a recurrent layer."""
    gates, random = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], np.random.default_rng([len(op), directions])
    shapes = [(directions, units * gates, 4), (directions, units * gates, units), (directions, 2 * units * gates)]
    made = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    if not full:
        return [TIMES, *made[:2]]
    states = [random.standard_normal((directions, 2, 3)).astype(np.float32) for _ in range(1 + (op == "LSTM"))]
    more = [random.standard_normal((directions, 9)).astype(np.float32)] * peepholes
    return [TIMES, *made, LENGTHS, *states, *more]


RECURRENT: list[Edge] = [
    # Functions without parameters ignore them.
    *[
        (op, recurrent(op, full=False, units=2), {name: values, "hidden_size": 2}, (), 2, 14)
        for op in ("RNN", "GRU", "LSTM")
        for name in ("activation_alpha", "activation_beta")
        for values in ([0.5], [0.25])
    ],
    *[("LSTM", recurrent("LSTM"), {"clip": clip, "hidden_size": 3}, (), 3, 14) for clip in (0.5, 2.0)],
    *[
        (
            op,
            recurrent(op, 2 if way == "bidirectional" else 1, full=full),
            {"direction": way, "hidden_size": 3},
            (),
            2,
            14,
        )
        for op in ("RNN", "GRU", "LSTM")
        for way in ("forward", "reverse", "bidirectional")
        for full in (False, True)
    ],
    ("RNN", recurrent("RNN"), {"activations": ["Relu"], "clip": 1.5, "hidden_size": 3}, (), 2, 7),
    ("RNN", recurrent("RNN"), {"activations": ["Tanh"], "clip": 0.5, "hidden_size": 3}, (), 2, 22),
    *[
        ("GRU", recurrent("GRU"), {"linear_before_reset": first, "clip": clip, "hidden_size": 3}, (), 2, 14)
        for first, clip in ((0, 0.5), (1, 2.0))
    ],
    *[
        ("GRU", recurrent("GRU"), {"activations": names, "hidden_size": 3}, (), 2, 14)
        for names in (["Sigmoid", "Relu"], ["Relu", "Tanh"])
    ],
    ("LSTM", recurrent("LSTM", peepholes=True), {"input_forget": 0, "hidden_size": 3}, (), 3, 14),
    *[
        ("LSTM", recurrent("LSTM"), {"activations": names, "hidden_size": 3}, (), 3, 7)
        for names in (["Sigmoid", "Relu", "Tanh"], ["Sigmoid", "Tanh", "Relu"])
    ],
    *[
        (op, recurrent(op, full=False), {"layout": layout, "hidden_size": 3}, (), 2, 14)
        for op in ("RNN", "GRU", "LSTM")
        for layout in (0, 1)
    ],
]

CLASSES = R.integers(0, 4, (2, 6, 5))
LAYERS: list[Edge] = [
    *[
        ("NegativeLogLikelihoodLoss", [IMAGE, CLASSES, *w], {"reduction": reduction, **ignored}, (), 1, 13)
        for w in ([], [np.abs(IMAGE[0, :, 0, 0])])
        for reduction in ("none", "sum", "mean")
        for ignored in ({}, {"ignore_index": 2}, {"ignore_index": -7})
    ],
    ("NegativeLogLikelihoodLoss", [X[0], np.array([3, 0, -1])], {"ignore_index": -1}, (), 1, 12),
    *[
        ("SoftmaxCrossEntropyLoss", [IMAGE, CLASSES, *w], {"reduction": reduction, **ignored}, (), outputs, 13)
        for w in ([], [np.abs(IMAGE[0, :, 0, 0])])
        for reduction in ("none", "sum", "mean")
        for ignored in ({}, {"ignore_index": 2}, {"ignore_index": -7})
        for outputs in (1, 2)
    ],
    ("SoftmaxCrossEntropyLoss", [X[0], np.array([3, 0, 1])], {}, (), 2, 12),
    *[
        ("RotaryEmbedding", [x, *cache], {"interleaved": pairs, "rotary_embedding_dim": turned, **heads}, (), 1, 23)
        for x, head, heads in (
            (TURNED, 8, {}),
            (TURNED[..., :4], 4, {"num_heads": 3}),
            (TURNED.reshape(2, 5, 24), 8, {"num_heads": 3}),
            (TURNED.reshape(2, 5, 24), 4, {"num_heads": 6}),
        )
        for pairs in (0, 1)
        for turned in (0, 4)
        for half in ((turned or head) // 2,)
        for cache in (
            [IMAGE.ravel()[: 10 * half].reshape(2, 5, half), IMAGE.ravel()[-10 * half :].reshape(2, 5, half)],
            [IMAGE.ravel()[: 7 * half].reshape(7, half), IMAGE.ravel()[-7 * half :].reshape(7, half), AT],
        )
    ],
]

ALL: list[Edge] = [*LOGIC, *ARITHMETIC, *REDUCTIONS, *FORMATS, *SHAPES, *MOVED, *WINDOWS, *RECURRENT, *LAYERS]
