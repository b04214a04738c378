"""The cases of docs/conformance.json: of what, in which formats, shapes and options, by which seed.

How inputs and answers follow from a case says `conformance`.
"""

from __future__ import annotations

import itertools
from typing import Any

__all__ = ["CASES"]

CASES: list[dict[str, Any]] = [
    *(
        {"operation": "matmul", "shape": [m, k, n], "spec": {"chunk": chunk, "segments": segments}, "seed": seed}
        for seed, (m, k, n, chunk, segments) in enumerate(
            [
                (1, 1, 1, 128, 1), (1, 4096, 64, 128, 1), (3, 127, 5, 128, 1), (7, 128, 33, 128, 1),
                (13, 129, 17, 128, 1), (64, 384, 48, 128, 1), (5, 1000, 31, 256, 1), (4, 2048, 9, 128, 8),
                (0, 5, 7, 128, 1), (2, 0, 3, 128, 1), (33, 257, 1, 128, 1),
            ]
        )
    ),
    {
        "operation": "matmul", "shape": [9, 300, 33], "spec": {"chunk": 128, "segments": 1}, "seed": 11,
        "options": {"a_dtype": "int8", "a_scale": 0.07, "a_zero_point": 3, "b_scale": 0.013, "b_zero_point": -9},
    },
    {
        "operation": "matmul", "shape": [9, 300, 33], "spec": {"chunk": 128, "segments": 1}, "seed": 12,
        "options": {
            "a_dtype": "uint8", "a_scale": 0.07, "a_zero_point": 128, "b_scale": 0.013, "out_scale": 1.9,
            "out_zero_point": -5,
        },
    },
    {"operation": "linear", "shape": [6, 200, 40], "seed": 20},
    *(
        {"operation": name, "shape": [n], "seed": seed}
        for seed, (name, n) in enumerate(
            [("exp", 4099), ("erf", 4099), ("gelu", 1031), ("relu", 67), ("sqrt", 515), ("reciprocal", 515)], 30
        )
    ),
    *(
        {"operation": name, "shape": shape, "seed": seed}
        for seed, (name, shape) in enumerate(
            [
                ("sum", [5, 1]), ("sum", [5, 63]), ("sum", [5, 65]), ("sum", [3, 2049]), ("sum", [2, 131073]),
                ("mean", [4, 384]), ("max", [4, 100]), ("softmax", [4, 1]), ("softmax", [4, 128]),
                ("softmax", [2, 4097]), ("layer_norm", [4, 384]), ("layer_norm", [2, 2049]),
            ],
            40,
        )
    ),
    # Operands of other formats; "zero_points" are operands 2 and 3, one a row of a and one a column of b.
    *(
        {
            "operation": "matmul", "shape": [3, 180, 37], "spec": {}, "dtypes": [a, b], "out_dtype": out, "seed": seed
        }
        for seed, (a, b, out) in enumerate(
            [
                ("float64", "float64", "float64"), ("bfloat16", "bfloat16", "float32"),
                ("bfloat16", "bfloat16", "bfloat16"), ("float16", "float16", "float32"),
                ("float8_e4m3fn", "float8_e4m3fn", "float32"), ("float8_e5m2", "bfloat16", "float32"),
                ("int8", "int8", "int32"),
            ],
            60,
        )
    ),
    *(
        {
            "operation": "matmul", "shape": [3, 180, 37], "spec": {}, "dtypes": [a, b], "out_dtype": "int32",
            "zero_points": True, "seed": seed,
        }
        for seed, (a, b) in enumerate(itertools.product(("int8", "uint8"), repeat=2), 70)
    ),
    # x [rows, K] and dy [rows, N] give [N, K]; "accumulates" adds to operand 2.
    {"operation": "grad_weight", "shape": [180, 37, 3], "dtypes": ["float32", "float32"], "seed": 80},
    {"operation": "grad_weight", "shape": [180, 37, 3], "dtypes": ["bfloat16", "bfloat16"], "seed": 81},
    {
        "operation": "grad_weight", "shape": [180, 37, 3], "dtypes": ["float32", "float32"], "accumulates": True,
        "seed": 82,
    },
    {"operation": "grad_bias", "shape": [300, 37], "seed": 83},
    {"operation": "grad_input", "shape": [3, 150, 37], "seed": 84},
    # A segment begins at a multiple of the chunk, not of 128.
    {"operation": "matmul", "shape": [4, 1000, 9], "spec": {"chunk": 100, "segments": 4}, "seed": 90},
    # Blocks along K: "shared" lists operands 2, 3, ...; a scale a block and column, or a column or row, or zero points.
    *(
        {
            "operation": "matmul", "shape": shape, "spec": spec, "dtypes": kinds, "out_dtype": "float32",
            "b_group": group, "shared": shared, "seed": seed,
        }
        for seed, (shape, spec, kinds, group, shared) in enumerate(
            [
                ([3, 300, 9], {}, ["float32", "int8"], 48, ["b_scale"]),
                ([3, 300, 9], {}, ["bfloat16", "int8"], 48, ["b_scale", "b_zero_point"]),
                ([3, 300, 9], {}, ["float32", "int8"], 48, ["b_scale", "a_scale"]),
                ([3, 300, 9], {}, ["float32", "int8"], 48, ["b_scale by column", "b_zero_point"]),
                ([3, 700, 9], {"segments": 4}, ["float32", "int8"], 48, ["b_scale"]),
                ([3, 700, 9], {"chunk": 72, "segments": 2}, ["bfloat16", "float4_e2m1fn"], 32, ["b_scale"]),
            ],
            91,
        )
    ),
    # Sums of a block beyond 2^24 units: the chain.
    {
        "operation": "matmul", "shape": [2, 8300, 3], "spec": {"chunk": 8192},
        "dtypes": ["float6_e3m2fn", "float6_e3m2fn"], "positive": True, "out_dtype": "float32", "b_group": 8192,
        "shared": ["b_scale"], "seed": 97,
    },
    # A zero point that is given widens the sum, whatever it is.
    {"operation": "matmul", "shape": [1, 66000, 2], "spec": {}, "dtypes": ["int8", "int8"], "seed": 98},
    {
        "operation": "matmul", "shape": [1, 66000, 2], "spec": {}, "dtypes": ["int8", "int8"], "a_zero_point": 0,
        "seed": 98,
    },
    # Scales whose product no float32 holds, over zero.
    {
        "operation": "matmul", "shape": [9, 30, 7], "spec": {}, "seed": 99,
        "options": {
            "a_dtype": "int8", "a_scale": 1e-45, "a_zero_point": 3, "b_scale": 1e-45, "out_scale": 0.0,
            "out_zero_point": -5,
        },
    },
    {"operation": "sum", "shape": [5, 6, 70], "axis": [2, 0], "seed": 100},
    # Other formats: each operation rounds to its own, a composite at its end.
    *(
        {"operation": name, "shape": shape, "dtype": kind, "seed": seed}
        for seed, (name, shape, kind) in enumerate(
            [
                ("add", [4, 515], "bfloat16"), ("multiply", [4, 515], "float16"), ("divide", [4, 515], "bfloat16"),
                ("divide", [4, 515], "float8_e4m3fn"), ("maximum", [4, 515], "float8_e5m2fnuz"),
                ("exp", [1031], "bfloat16"), ("gelu", [1031], "float16"), ("sqrt", [515], "float64"),
                ("sum", [3, 2049], "bfloat16"), ("sum", [3, 2049], "float64"), ("sum", [3, 2049], "int8"),
                ("max", [3, 2049], "uint8"), ("mean", [4, 384], "float16"),
                ("softmax", [4, 128], "bfloat16"), ("layer_norm", [4, 384], "bfloat16"),
                ("layer_norm", [4, 384], "float64"),
            ],
            101,
        )
    ),
    *(
        {"operation": "cast", "shape": [2063], "dtype": source, "to": target, "seed": seed}
        for seed, (source, target) in enumerate(
            [
                ("float32", "bfloat16"), ("float32", "float8_e4m3fn"), ("float64", "float16"),
                ("float64", "float8_e3m4"), ("float16", "float8_e8m0fnu"), ("bfloat16", "int8"),
                ("int8", "float8_e4m3fnuz"),
            ],
            120,
        )
    ),
    # Comparisons, choices, integers; one dtype of all operands, or one of each.
    *(
        {"operation": name, "shape": [4, 515], "dtype": kind, "seed": seed}
        for seed, (name, kind) in enumerate(
            [
                ("equal", "float8_e3m4"), ("not_equal", "int8"), ("less", "bfloat16"), ("less_equal", "uint64"),
                ("greater", "float16"), ("greater_equal", "float64"), ("minimum", "float16"),
                ("subtract", "float8_e5m2"), ("fma", "float16"), ("floor", "bfloat16"), ("ceil", "float64"),
                ("round", "float8_e4m3fn"),
                ("sign", "float16"), ("reciprocal", "float8_e3m4"), ("abs", "float8_e4m3b11fnuz"),
                ("negative", "float8_e4m3fnuz"), ("isnan", "float8_e5m2fnuz"), ("quotient", "int32"),
                ("remainder", "int8"), ("fmod", "int16"), ("bitwise_and", "uint32"), ("bitwise_or", "int64"),
                ("bitwise_xor", "uint16"), ("bitwise_invert", "int16"), ("logical_and", "bool"), ("logical_or", "bool"),
                ("logical_xor", "bool"), ("logical_not", "bool"),
            ],
            130,
        )
    ),
    *(
        {"operation": name, "shape": [4, 515], "dtypes": kinds, "seed": seed}
        for seed, (name, kinds) in enumerate(
            [
                ("where", ["bool", "float8_e5m2", "float8_e5m2"]), ("where", ["bool", "int64", "int64"]),
                ("bitwise_left_shift", ["uint8", "uint8"]), ("bitwise_right_shift", ["int16", "int16"]),
            ],
            160,
        )
    ),
    *(
        {"operation": name, "shape": shape, "dtype": kind, "seed": seed}
        for seed, (name, shape, kind) in enumerate(
            [
                ("sum", [3, 2049], "int64"), ("sum", [3, 2049], "uint64"), ("sum", [3, 2049], "bool"),
                ("sum", [3, 2049], "float8_e5m2"), ("mean", [3, 300], "float64"), ("max", [3, 2049], "float64"),
                ("min", [3, 2049], "int64"), ("min", [3, 300], "float8_e4m3"), ("softmax", [3, 70], "float8_e4m3fn"),
                ("layer_norm", [3, 70], "float16"),
            ],
            170,
        )
    ),
    *(
        {"operation": "cast", "shape": [2063], "dtype": source, "to": target, "seed": seed}
        for seed, (source, target) in enumerate(
            [
                ("float8_e5m2", "float32"), ("int64", "bfloat16"), ("bool", "float16"), ("float64", "uint8"),
                ("float32", "int64"), ("uint64", "float64"), ("bfloat16", "bool"), ("int32", "float8_e5m2fnuz"),
            ],
            180,
        )
    ),
    # Along axis 1: both operands; the elements that indices of int64 name, in [-extent, extent).
    {"operation": "concat", "shape": [5, 70], "dtype": "bfloat16", "axis": 1, "seed": 190},
    {"operation": "take", "shape": [5, 70], "dtypes": ["int16", "int64"], "axis": 1, "seed": 191},
    # Correctly rounded functions; the logarithm of negative numbers too, which is NaN.
    *(
        {"operation": name, "shape": [1031], "dtype": kind, "seed": seed}
        for seed, (name, kind) in enumerate(
            [
                ("log", "float32"), ("log", "float16"), ("tanh", "float32"), ("tanh", "bfloat16"),
                ("sigmoid", "float32"), ("sigmoid", "float8_e4m3fn"), ("sin", "float32"), ("sin", "bfloat16"),
                ("cos", "float32"), ("cos", "float16"), ("silu", "float32"), ("silu", "bfloat16"),
                ("log2", "float32"), ("log10", "float32"), ("log1p", "float32"), ("exp2", "float32"),
                ("expm1", "float32"), ("pow", "float32"), ("pow", "bfloat16"),
            ],
            200,
        )
    ),
    # Casts by other conversions; `draws`: the seed of stochastic rounding.
    *(
        {"operation": "cast", "shape": [11, 187], "dtype": source, "to": target, "how": how, "seed": seed} | draws
        for seed, (source, target, how, draws) in enumerate(
            [
                ("float32", "float8_e4m3fn", {"rounding": "stochastic"}, {"draws": 5}),
                ("float64", "float8_e5m2", {"rounding": "stochastic", "overflow": "saturate"}, {"draws": 1 << 40}),
                ("int32", "bfloat16", {"rounding": "stochastic"}, {"draws": 6}),
                ("float64", "float8_e3m4", {"rounding": "toward_zero"}, {}),
                ("float32", "float8_e4m3", {"rounding": "up", "overflow": "saturate"}, {}),
                ("float64", "float16", {"rounding": "nearest_away"}, {}), ("float32", "int8", {"rounding": "down"}, {}),
                ("int16", "int8", {"overflow": "saturate"}, {}),
                ("float64", "float8_e8m0fnu", {"rounding": "up"}, {}),
            ],
            300,
        )
    ),
    # Codes of elements, a byte each, then scales, zero points and the global scale: what each dialect stores.
    *(
        {"operation": "quantize", "shape": [32, 256], "dtype": kind, "format": row, "dialect": dialect, "seed": seed}
        for seed, (dialect, row, kind) in enumerate(
            [
                ("nvfp4/exact-1", "nvfp4", "float32"), ("nvfp4/torchao-0.18", "nvfp4", "bfloat16"),
                ("nvfp4/te-2", "nvfp4", "float16"), ("nvfp4/flashinfer", "nvfp4", "float32"),
                ("nvfp4/modelopt-0.47", "nvfp4", "bfloat16"), ("nvfp4/compressed-tensors-0.20", "nvfp4", "bfloat16"),
                ("mx/floor", "mxfp6-e2m3", "float32"), ("mx/ceil", "mxfp6-e3m2", "bfloat16"),
                ("mx/even", "mxfp8-e4m3", "float16"), ("mx/rceil", "mxfp8-e5m2", "float32"),
                ("mx/modelopt-0.47", "mxfp4", "bfloat16"), ("mx/compressed-tensors-0.20", "mxfp8-e4m3", "bfloat16"),
                ("mx/gguf", "mxfp4", "float32"), ("fp8/exact-1", "fp8-e5m2-128x128-e8m0", "bfloat16"),
                ("fp8-block/deepseek", "fp8-e5m2-1x128-e8m0", "float16"),
                ("fp8-block/te-2", "fp8-e5m2-128x128", "float32"),
                ("fp8-block/te-2-float32", "fp8-1x128", "bfloat16"),
                ("fp8/torchao-0.18", "fp8-e5m2-column", "bfloat16"), ("fp8/modelopt-0.47", "fp8-1x128", "float32"),
                ("fp8/compressed-tensors-0.20", "fp8-128x128", "bfloat16"),
                ("int/exact-1", "int4-group64", "float16"), ("int/affine-1", "uint4-group32-zero", "float32"),
                ("nf4/qlora", "nf4", "bfloat16"), ("int/affine-1", "uint8-row-float-zero", "float32"),
                ("nvfp4/exact-1", "nvfp4-16x16", "float32"), ("nvfp4/nvfuser-0.2", "nvfp4", "bfloat16"),
            ],
            400,
        )
    ),
    # Remainders and neighbours of floats, divisors of integers, and what is a few operations in a row.
    *(
        {"operation": name, "shape": [4, 515], "dtype": kind, "seed": seed}
        for seed, (name, kind) in enumerate(
            [
                ("fmod", "float32"), ("fmod", "bfloat16"), ("remainder", "float64"), ("nextafter", "float32"),
                ("nextafter", "bfloat16"), ("gcd", "int32"), ("gcd", "uint8"), ("trunc", "float32"),
                ("isfinite", "float16"), ("isinf", "float32"), ("signbit", "float8_e4m3fn"), ("clip", "int16"),
                ("clip", "float32"), ("threshold", "float16"), ("lerp", "float32"), ("lerp", "bfloat16"),
                ("addcmul", "float32"), ("rsqrt", "float32"), ("rsqrt", "float16"), ("frac", "float32"),
                ("square", "uint8"), ("floor_divide", "int32"), ("pow", "int32"), ("pow", "uint16"),
            ],
            500,
        )
    ),
    *(
        {"operation": name, "shape": shape, "dtype": kind, "seed": seed}
        for seed, (name, shape, kind) in enumerate(
            [
                ("prod", [3, 130], "float32"), ("prod", [3, 130], "int32"), ("prod", [3, 2049], "float64"),
                ("var", [4, 384], "float32"), ("var", [3, 2049], "bfloat16"), ("cumsum", [4, 300], "float32"),
                ("cumsum", [4, 300], "bfloat16"), ("cumsum", [3, 65], "int16"), ("cumprod", [4, 70], "float32"),
                ("cummax", [4, 70], "float16"), ("cummin", [4, 70], "int8"), ("argsort", [4, 70], "float8_e5m2"),
                ("argsort", [4, 300], "float32"), ("argsort", [4, 70], "uint64"), ("sort", [4, 300], "int8"),
                ("topk", [4, 300], "bfloat16"),
            ],
            530,
        )
    ),
    # Another order of sums: every remainder of a block's halves, several chunks, segments, other formats.
    *(
        {
            "operation": "matmul", "shape": shape, "spec": spec | {"order": "pairs32"}, "dtypes": [kind, kind],
            "out_dtype": "float64" if kind == "float64" else "float32", "seed": seed,
        }
        for seed, (shape, spec, kind) in enumerate(
            [
                ([13, 1100, 33], {}, "float32"), ([1, 1031, 70], {}, "float32"), ([3, 97, 5], {"chunk": 64}, "float32"),
                ([4, 700, 9], {"chunk": 32, "segments": 4}, "float32"), ([5, 555, 70], {}, "bfloat16"),
                ([5, 200, 40], {"chunk": 128}, "float8_e4m3fn"), ([4, 300, 9], {"chunk": 96}, "float64"),
            ],
            700,
        )
    ),
    # Along axis 1: indices of int64 in [-extent, extent), and updates, operand 2.
    {"operation": "take_along_axis", "shape": [9, 70], "dtypes": ["float16", "int64"], "axis": 1, "seed": 570},
    {"operation": "scatter", "shape": [9, 70], "dtypes": ["int32", "int64", "int32"], "axis": 1, "seed": 571},
    # Random numbers of the seed `draws` and an offset: bounds, or mean and deviation, are `numbers`.
    *(
        {
            "operation": name, "shape": [7, 131], "dtype": kind, "draws": draws, "offset": offset, "seed": seed
        } | ({} if "like" in name else {"numbers": [-1.5, 3.7]})
        for seed, (name, kind, draws, offset) in enumerate(
            [
                ("rand_like", "float32", 5, 0), ("rand_like", "float64", 1 << 40, 7),
                ("rand_like", "bfloat16", 6, 1 << 35), ("randn_like", "float32", (1 << 64) - 1, 3),
                ("randn_like", "float16", 8, (1 << 63) - 1), ("uniform", "float32", 9, 1), ("uniform", "float16", 9, 2),
                ("uniform", "float64", 9, 3), ("normal", "float32", 9, 4), ("normal", "bfloat16", 9, 5),
            ],
            580,
        )
    ),
    # Blocks on both sides: "a_group" along K of rows of a, "b_group" along K, or a pair: along K and of columns. A
    # global scale is operand of rank 0, or has one for each row of a, or column of b.
    *(
        {
            "operation": "matmul", "shape": shape, "spec": spec, "dtypes": kinds, "out_dtype": "float32",
            "a_group": groups[0], "b_group": groups[1], "shared": ["a_scale of blocks", "b_scale", *more], "seed": seed,
        }
        for seed, (shape, spec, kinds, groups, more) in enumerate(
            [
                ([3, 300, 9], {}, ["float4_e2m1fn", "float4_e2m1fn"], (16, 16), ["a_global_scale", "b_global_scale"]),
                ([5, 200, 17], {}, ["float8_e4m3fn", "float8_e5m2"], (32, 32), []),
                ([3, 300, 20], {}, ["float8_e4m3fn", "float8_e4m3fn"], (128, [128, 16]), ["b_global_scale"]),
                ([3, 290, 9], {}, ["int8", "int8"], (64, 32), ["a_global_scale by row"]),
                ([4, 150, 9], {}, ["bfloat16", "float6_e3m2fn"], (24, 40), ["b_global_scale by column"]),
                ([3, 700, 9], {"chunk": 96, "segments": 2}, ["float6_e2m3fn", "float4_e2m1fn"], (32, 48),
                 ["a_global_scale by row", "b_global_scale by column"]),
            ],
            600,
        )
    ),
    # A global scale beside blocks of b alone.
    {
        "operation": "matmul", "shape": [3, 180, 9], "spec": {}, "dtypes": ["bfloat16", "float4_e2m1fn"],
        "out_dtype": "float32", "b_group": 16, "shared": ["b_scale", "b_global_scale"], "seed": 606,
    },
    # float32 a quantised to "a_format" on the way by the format's own dialect, each row by itself.
    *(
        {
            "operation": "matmul", "shape": [3, 192, 9], "spec": {}, "dtypes": ["float32", kind],
            "out_dtype": "float32", "a_format": name, "b_group": group, "shared": ["b_scale"], "seed": seed,
        }
        for seed, (name, kind, group) in enumerate(
            [("nvfp4", "float4_e2m1fn", 16), ("mxfp8-e4m3", "float8_e4m3fn", 32), ("int8-group64", "int8", 64)], 607
        )
    ),
    # The root of a mean of squares, where no mean is subtracted and nothing is added; the logarithm of softmax.
    *(
        {"operation": name, "shape": shape, "dtype": kind, "seed": seed}
        for seed, (name, shape, kind) in enumerate(
            [
                ("rms_norm", [4, 384], "float32"), ("rms_norm", [2, 2049], "float32"),
                ("rms_norm", [4, 384], "bfloat16"), ("rms_norm", [3, 70], "float16"),
                ("log_softmax", [4, 128], "float32"), ("log_softmax", [2, 4097], "float32"),
                ("log_softmax", [4, 128], "bfloat16"), ("log_softmax", [3, 70], "float16"),
            ],
            610,
        )
    ),
    *(
        {"operation": "gelu", "shape": [1031], "dtype": kind, "approximate": "tanh", "seed": seed}
        for seed, kind in enumerate(["float32", "bfloat16"], 618)
    ),
]  # fmt: skip
