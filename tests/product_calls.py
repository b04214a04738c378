"""Calls of the products: every operand and option in every dtype, scales and zero points of each shape, sizes.

`BASES` are products with many options, `VARIED` what each operand of them, and each option that names a dtype, may be.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from called import BOOL, BYTES, HALVES, INTEGERS, NARROW_FLOATS, POWERS, SINGLES, Array, Called, drawn

import samebits as sb
from samebits import dtypes

M, K, N, GROUP = 5, 40, 9, 16
BLOCKS = -(-K // GROUP)


def scales(*shape: int, kind: str = "float32") -> Array:
    """Positive and near 1: powers of two, so that every format has them."""
    return np.asarray(np.exp2(np.random.default_rng([9, *shape]).integers(-2, 3, shape))).astype(dtypes.of(kind).numpy)


def factor(kind: str, *shape: int, seed: int = 0) -> Array:
    """Elements to multiply: finite floats, any integers."""
    row = dtypes.of(kind)
    if row.is_integer:
        random = np.random.default_rng([seed, *shape])
        low, high = max(int(row.min), -(2**31)), min(int(row.max), 2**31 - 1)
        return np.asarray(random.integers(low, high + 1, shape)).astype(row.numpy)
    x = np.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape))
    with np.errstate(all="ignore"):
        return (x if row.has_zero else np.exp2(np.rint(x))).astype(row.numpy)


# Products that each option is tried with.
BASES: dict[str, dict[str, Any]] = {
    "floats": {
        "a": factor("float32", M, K), "b": factor("float32", K, N), "a_scale": scales(M), "b_scale": scales(N),
        "alpha": 0.3, "c": factor("float32", M, N), "beta": -2.5, "bias": factor("float32", N), "activation": "gelu",
        "out_dtype": "float16",
    },
    "doubles": {
        "a": factor("float64", M, K), "b": factor("float64", K, N), "a_scale": scales(M, 1, kind="float64"),
        "b_scale": scales(1, N, kind="float64"), "alpha": 0.1, "c": factor("float64", M, N), "beta": 0.7,
        "bias": factor("float64", N), "out_dtype": "float32",
    },
    "plain integers": {"a": factor("int8", M, K), "b": factor("int8", K, N), "out_dtype": "int32"},
    "integers": {
        "a": factor("int8", M, K), "b": factor("uint8", K, N), "a_zero_point": factor("int8", M, 1),
        "b_zero_point": factor("uint8", N), "bias": factor("int16", N).astype(np.int32),
    },
    "scaled integers": {
        "a": factor("uint8", M, K), "b": factor("int8", K, N), "a_zero_point": factor("uint8"),
        "b_zero_point": factor("int8", 1, N), "a_scale": scales(M), "b_scale": scales(1, 1),
        "c": factor("float32", M, N), "bias": factor("float16", N), "activation": "relu", "out_dtype": "float32",
    },
    "requantised": {
        "a": factor("uint8", M, K), "b": factor("int8", K, N), "a_zero_point": factor("uint8", M),
        "a_scale": scales(), "b_scale": scales(N), "out_scale": np.float32(300.0) * scales(N),
        "out_zero_point": factor("uint8", N), "bias": factor("int16", N).astype(np.int32), "out_dtype": "uint8",
    },
    "quantised": {
        "a": factor("float32", M, K), "a_dtype": "int8", "a_scale": scales(M), "a_zero_point": factor("int8", M),
        "b": factor("int8", K, N), "b_zero_point": factor("int8", N), "b_scale": scales(N),
        "bias": factor("float32", N), "activation": "sigmoid", "out_dtype": "float32",
    },
    "weights": {
        "a": factor("bfloat16", M, K), "b": factor("int8", K, N), "b_scale": scales(N), "a_scale": scales(M, 1),
        "b_zero_point": factor("int8", N), "bias": factor("bfloat16", N), "activation": "silu",
        "out_dtype": "float32",
    },
    "weights in blocks": {
        "a": factor("float16", M, K), "b": factor("uint8", K, N), "b_scale": scales(BLOCKS, N), "b_group": GROUP,
        "b_zero_point": factor("uint8", BLOCKS, N), "activation": "erf",
    },
    "floats in blocks": {
        "a": factor("float8_e5m2", M, K), "b": factor("float4_e2m1fn", K, N), "b_scale": scales(BLOCKS, N),
        "b_group": GROUP, "activation": "exp",
    },
    "both in blocks": {
        "a": factor("float4_e2m1fn", M, K), "b": factor("float8_e4m3fn", K, N), "a_scale": scales(M, BLOCKS),
        "b_scale": scales(BLOCKS, N), "a_group": GROUP, "b_group": GROUP, "a_global_scale": scales(M),
        "b_global_scale": scales(), "bias": factor("float32", N), "activation": "tanh", "out_dtype": "bfloat16",
    },
    "integers in blocks": {
        "a": factor("int8", M, K), "b": factor("int8", K, N), "a_scale": scales(M, BLOCKS),
        "b_scale": scales(BLOCKS, N), "a_group": GROUP, "b_group": GROUP, "activation": "gelu_tanh",
    },
}  # fmt: skip
_OF_FLOATS = (*SINGLES, *POWERS, *NARROW_FLOATS)
_OF_ANY = (*_OF_FLOATS, *BYTES)
_WEIGHT_SCALES = (*SINGLES, *POWERS)
# What each operand, and each option that names a dtype, may be in these products.
VARIED: dict[tuple[str, str], tuple[str, ...]] = {
    ("floats", "a"): _OF_FLOATS,
    ("floats", "b"): _OF_ANY,
    ("doubles", "a"): ("float64", *_OF_FLOATS),
    ("doubles", "b"): ("float64", *_OF_ANY),
    ("doubles", "out_dtype"): ("float64", "float32"),
    ("plain integers", "a"): BYTES,
    ("plain integers", "b"): BYTES,
    ("plain integers", "out_dtype"): ("int32", "int64", *HALVES),
    ("integers", "a"): BYTES,
    ("integers", "b"): BYTES,
    ("scaled integers", "a"): BYTES,
    ("scaled integers", "b"): BYTES,
    ("requantised", "a"): BYTES,
    ("requantised", "b"): BYTES,
    ("requantised", "out_dtype"): ("int8", "uint8"),
    ("quantised", "a"): HALVES,
    ("quantised", "a_dtype"): ("int8", "uint8"),
    ("quantised", "b"): BYTES,
    ("weights", "a"): _OF_ANY,
    ("weights", "b"): BYTES,
    ("weights", "b_scale"): _WEIGHT_SCALES,
    ("weights in blocks", "a"): _OF_ANY,
    ("weights in blocks", "b"): BYTES,
    ("weights in blocks", "b_scale"): _WEIGHT_SCALES,
    ("floats in blocks", "a"): _OF_FLOATS,
    ("floats in blocks", "b"): _OF_ANY,
    ("floats in blocks", "b_scale"): _WEIGHT_SCALES,
    ("both in blocks", "a"): _OF_ANY,
    ("both in blocks", "b"): _OF_ANY,
    ("integers in blocks", "a"): _OF_ANY,
    ("integers in blocks", "b"): _OF_ANY,
    **{(base, name): _WEIGHT_SCALES for base in ("both in blocks", "integers in blocks")
       for name in ("a_scale", "b_scale")},
    **{(base, name): HALVES for base in BASES for name in ("c", "bias", "out_dtype")
       if name in BASES[base] and base in ("floats", "scaled integers", "quantised", "weights", "both in blocks")},
    ("scaled integers", "bias"): (*HALVES, "int32"),
    ("quantised", "bias"): (*HALVES, "int32"),
}  # fmt: skip
# What follows the dtype of another argument.
_FOLLOWS = {"a": "a_zero_point", "b": "b_zero_point", "out_dtype": "out_zero_point", "a_dtype": "a_zero_point"}


def varied(base: str, argument: str, kind: str) -> dict[str, Any]:
    """The product with this argument of that dtype."""
    given = dict(BASES[base])
    was, follows = given[argument], _FOLLOWS.get(argument, "")
    if follows in given and kind in BYTES and not (argument == "a" and "a_dtype" in given):
        given[follows] = factor(kind, *given[follows].shape)
    if isinstance(was, str):
        return given | {argument: kind}
    if "scale" in argument:
        given[argument] = scales(*was.shape, kind=kind)
    else:
        given[argument] = factor(kind, *was.shape)
    return given


# The shapes that say what a scale or zero point belongs to; of a row of a, of a column of b.
SHAPES_OF_A: tuple[tuple[int, ...], ...] = ((), (1, 1), (M,), (M, 1))
SHAPES_OF_B: tuple[tuple[int, ...], ...] = ((), (1, 1), (N,), (1, N))
SIZES = ((1, 1, 1), (0, 5, 7), (2, 0, 3), (3, 129, 17), (1, 300, 33), (4, 7, 0), (13, 1, 5))


def shared() -> Iterator[tuple[str, dict[str, Any]]]:
    """Scales and zero points of each shape, and as numbers."""
    plain = {"a": BASES["integers"]["a"], "b": BASES["integers"]["b"]}
    for left, right in zip(SHAPES_OF_A, SHAPES_OF_B, strict=True):
        yield f"scales {left} {right}", plain | {"a_scale": scales(*left), "b_scale": scales(*right)}
        points = {"a_zero_point": factor("int8", *left), "b_zero_point": factor("uint8", *right)}
        yield f"zero points {left} {right}", plain | points
        floats = {"a": BASES["floats"]["a"], "b": BASES["floats"]["b"]}
        yield f"scales of floats {left} {right}", floats | {"a_scale": scales(*left), "b_scale": scales(*right)}
    yield "numbers", plain | {"a_scale": 0.07, "b_scale": 1e-45, "a_zero_point": -3, "b_zero_point": 255}
    yield "numbers requantised", plain | {"a_scale": 0.07, "b_scale": 0.2, "out_scale": 90.5, "out_zero_point": -9}
    weights = {"a": BASES["floats"]["a"], "b": factor("int4", K, N)}
    for group in (1, 7, GROUP, K, K + 3):
        blocks = -(-K // group)
        given = {"b_scale": scales(blocks, N), "b_zero_point": factor("int4", blocks, N), "b_group": group}
        yield f"blocks of {group}", weights | given
        yield f"zero points of blocks of {group}", weights | {"b_zero_point": given["b_zero_point"], "b_group": group}
    yield "float8 scales of blocks", weights | {"b_scale": scales(BLOCKS, N, kind="float8_e8m0fnu"), "b_group": GROUP}
    both = {"a": factor("float4_e2m1fn", M, K), "b": factor("float4_e2m1fn", K, N)}
    for left, right in ((1, GROUP), (GROUP, 7), (K, K + 3)):
        given = {"a_scale": scales(M, -(-K // left)), "b_scale": scales(-(-K // right), N)}
        yield f"blocks of {left} and {right}", both | given | {"a_group": left, "b_group": right}
    squares = {"a_scale": scales(-(-M // 2), BLOCKS), "b_scale": scales(BLOCKS, -(-N // 4))}
    eights = {"b": factor("float8_e4m3fn", 64, N), "b_scale": scales(2, N), "b_group": 32}
    yield (
        "quantised to mxfp8",
        eights | {"a": factor("bfloat16", M, 64), "a_format": "mxfp8-e4m3", "a_dialect": "mx/even"},
    )
    fours = {"a": factor("float32", M, 64), "b": factor("float4_e2m1fn", 64, N), "a_format": "nvfp4"}
    yield "quantised to nvfp4", fours | {"b_scale": scales(4, N), "b_group": 16, "a_global_scale": scales(M, 1)}
    yield "blocks of several lines", both | squares | {"a_group": (2, GROUP), "b_group": (GROUP, 4)}


def sized() -> Iterator[tuple[str, dict[str, Any]]]:
    """Sizes, batches, vectors, strides, orders of the sum."""
    kinds = ("float32", "bfloat16", "float64", "int8")
    for number, ((m, k, n), kind) in enumerate(itertools.product(SIZES, kinds)):
        a, b = factor(kind, m, k), factor(kind, k, n)
        if number % 3 == 0:
            a, b = factor(kind, k, m).T, factor(kind, n, k).T
        if number % 3 == 1:
            a, b = factor(kind, 2 * m, k)[::-2], factor(kind, k, n)[:, ::-1]
        yield f"{kind} {m} {k} {n}", {"a": a, "b": b}
    for left, right in (((2, 1), (3,)), ((), (2,)), ((2, 2), ()), ((0,), (1,))):
        yield f"batch {left} {right}", {"a": factor("float32", *left, M, K), "b": factor("float32", *right, K, N)}
        yield f"batch of bytes {left} {right}", {"a": factor("int8", *left, M, K), "b": factor("int8", *right, K, N)}
    for left, right in (((K,), (K, N)), ((M, K), (K,)), ((K,), (K,)), ((2, M, K), (K,)), ((K,), (2, K, N))):
        a, b = factor("float32", *left), factor("float32", *right)
        due = (a @ b).shape
        yield f"vectors {left} {right}", {"a": a, "b": b, "c": factor("float32", *due), "bias": factor("float16")}
    specs = sb.Spec(chunk=100, segments=4), sb.Spec(chunk=16), sb.Spec(order="pairs32"), sb.Spec(96, 2, "pairs32")
    for spec in specs:
        yield f"{spec}", {"a": factor("float32", 3, 700), "b": factor("float32", 700, 5), "spec": spec}


def varied_about(base: str, argument: str, kind: str) -> str:
    """What the call of `varied` is called."""
    return f"{base}, {argument} {kind}"


def place_of(function: str, about: str) -> str:
    """The argument and its dtype, of a call that is of `varied`; nothing of others."""
    places = {varied_about(*key, kind): f"{key[1]} {kind}" for key, kinds in VARIED.items() for kind in kinds}
    return places.get(about, "") if function == "matmul" else ""


def part_about(argument: str, kind: str) -> str:
    """What the call of `part` is called."""
    return f"{argument} {kind}"


# Of the bases that take a dtype in some place every third tries it in the default run, and of the operands of another
# function than matmul every second one; with the next dtype the next ones.
_OF_BASES, _OF_OPERANDS = 3, 2


def _late(taken: Mapping[str, Sequence[str]], every: int) -> set[tuple[str, str]]:
    """(who takes it, dtype) of those left out: never all of a dtype, nor all of who takes it."""
    found = set[tuple[str, str]]()
    for number, kind in enumerate(dict.fromkeys(itertools.chain(*taken.values()))):
        takers = [taker for taker, kinds in taken.items() if kind in kinds]
        if len(takers) >= every:
            found |= {(taker, kind) for turn, taker in enumerate(takers) if (number + turn) % every}
    return found - {
        (taker, kinds[0]) for taker, kinds in taken.items() if all((taker, kind) in found for kind in kinds)
    }


@functools.cache
def late() -> frozenset[tuple[str, str]]:
    """(function, what it is about) of the calls that are left to `make exhaustive`."""
    found = set[tuple[str, str]]()
    for argument in dict.fromkeys(argument for _, argument in VARIED):
        taken = {base: kinds for (base, of), kinds in VARIED.items() if of == argument}
        found |= {("matmul", varied_about(base, argument, kind)) for base, kind in _late(taken, _OF_BASES)}
    for function in dict.fromkeys(function for function, _ in PARTS_TAKEN):
        taken = {argument: kinds for (of, argument), kinds in PARTS_TAKEN.items() if of == function}
        found |= {(function, part_about(argument, kind)) for argument, kind in _late(taken, _OF_OPERANDS)}
    return frozenset(found)


def products(name: str) -> Iterator[Called]:
    """Every base; every argument of it in every dtype; scales, sizes."""
    found = list(BASES.items())
    for (base, argument), kinds in VARIED.items() if name == "matmul" else ():
        found += [(varied_about(base, argument, kind), varied(base, argument, kind)) for kind in kinds]
    for about, given in itertools.chain(found, shared(), sized()):
        rest = dict(given)
        yield Called(name, about, (rest.pop("a"), rest.pop("b")), rest)


def linears(name: str) -> Iterator[Called]:
    """Each base that a weight can have, turned."""
    x, bias = factor("float32", 2, M, K), factor("float32", N)
    for kind in ("float32", "bfloat16", "float8_e4m3fn"):
        yield Called(name, kind, (factor(kind, M, K), factor(kind, N, K)), {"bias": bias})
    for m, k, n in ((0, 5, 3), (1, 1, 1), (2, 0, 3)):
        yield Called(name, f"{m} {k} {n}", (factor("float32", m, k)[:, ::-1], factor("float32", n, k)), {})
    yield Called(name, "vector", (x[0, 0], factor("float32", K, N).T), {})
    ends = {"activation": "relu", "out_dtype": "bfloat16"}
    yield Called(name, "relu, to bfloat16", (x, factor("float32", N, K), bias), ends)
    yield Called(name, "another order", (x, factor("float32", N, K)), {"spec": sb.Spec(chunk=16)})
    for kind in ("int8", "uint4"):
        weight, point = factor(kind, N, K), factor(kind, N)
        given = {"weight_scale": scales(N, 1), "weight_zero_point": point}
        yield Called(name, f"{kind} channels", (x, weight, bias), given)
        yield Called(name, f"{kind} beside bytes", (factor("uint8", M, K), weight), {"weight_zero_point": point})
        blocks = {"weight_scale": scales(N, BLOCKS), "weight_zero_point": factor(kind, N, BLOCKS), "group": GROUP}
        yield Called(name, f"{kind} blocks", (x.astype(np.float16), weight), blocks)
    fours = factor("float4_e2m1fn", M, K), factor("float4_e2m1fn", N, K)
    both = {"x_scale": scales(M, BLOCKS), "x_group": GROUP, "weight_scale": scales(N, BLOCKS), "group": GROUP}
    globals_ = {"x_global_scale": scales(M), "weight_global_scale": scales(N)}
    yield Called(name, "both in blocks", fours, both | globals_)
    quantised = {"x_format": "nvfp4", "x_dialect": "nvfp4/exact-1", "weight_scale": scales(N, 4), "group": 16}
    yield Called(name, "quantised to nvfp4", (factor("bfloat16", M, 64), factor("float4_e2m1fn", N, 64)), quantised)
    squares = {"weight_scale": scales(-(-N // 4), BLOCKS), "group": (4, GROUP)}
    yield Called(name, "blocks of several rows", fours, both | squares)


def packs(name: str) -> Iterator[Called]:
    """What each engine packs."""
    for kind, left in (
        *((kind, kind) for kind in (*_OF_FLOATS, "float64", "int8", "uint8", "int4")),
        ("int8", "uint8"),
        ("uint8", "int8"),
        ("float8_e5m2", "bfloat16"),
        ("float32", "float64"),
    ):
        yield Called(name, f"{kind} for {left}", (factor(kind, K, N),), {"left": left})
    for k, n in ((0, 5), (7, 0), (1, 1), (5, 131)):
        yield Called(name, f"{k} {n}", (factor("float32", k, n)[:, ::-1],), {})
    yield Called(name, "batches turned", (factor("float32", N, K, 3).T,), {})
    yield Called(name, "another order", (factor("bfloat16", K, N),), {"spec": sb.Spec(order="pairs32")})
    for kind, left in (("int8", "float32"), ("uint4", "bfloat16")):
        yield Called(name, f"{kind} weights", (factor(kind, K, N),), {"left": left})
        given = {"left": left, "zero_point": factor(kind, N)}
        yield Called(name, f"{kind} weights with zero points", (factor(kind, K, N),), given)
        given = {"left": left, "zero_point": factor(kind, BLOCKS, N), "group": GROUP}
        yield Called(name, f"{kind} weights in blocks", (factor(kind, K, N),), given)
    for kind in ("float4_e2m1fn", "int4"):
        given = {"left": "float32", "scale": scales(BLOCKS, N), "group": GROUP, "global_scale": 0.25}
        yield Called(name, f"{kind} with scales", (factor(kind, K, N),), given)


def gradients(name: str) -> Iterator[Called]:
    """Rows of several axes, none, one; added to what is there."""
    for kind, rows in itertools.product(("float32", "bfloat16", "float64"), ((131,), (2, 3), (0,), (1,), (300,))):
        x, dy = factor(kind, *rows, 7), factor("float32", *rows, N)
        x = x[:, ::-1] if len(rows) == 1 else x
        total = "float64" if kind == "float64" else "float32"
        order = {"spec": sb.Spec(32, order="pairs32")} if rows == (131,) else {}
        if name == "grad_input":
            given = {"out_dtype": "bfloat16"} if rows == (1,) and kind != "float64" else {}
            yield Called(name, f"{kind} {rows}", (x, factor("float32", 7, N)), given | order)
        else:
            arguments, shape = ((x, dy), (N, 7)) if name == "grad_weight" else ((x,), (7,))
            yield Called(name, f"{kind} {rows}", arguments, order)
            yield Called(name, f"{kind} {rows} added", arguments, order | {"out": drawn(total, *shape)[..., ::-1]})


def groups(name: str) -> Iterator[Called]:
    """Groups of several sizes, of one, of none; rows that are left."""
    for kind, given in (
        ("float32", {"bias": factor("float32", N)}), ("bfloat16", {"bias": factor("float32", 3, N)}),
        ("int8", {"bias": factor("int16", 3, N).astype(np.int32)}), ("float8_e4m3fn", {"out_dtype": "bfloat16"}),
        ("float32", {"spec": sb.Spec(chunk=32, order="pairs32")}),
    ):  # fmt: skip
        for sizes in ([4, 0, 3], [0, 0, 0], [7, 1, 1]):
            about = f"{kind} {sizes} {list(given)}"
            yield Called(name, about, (factor(kind, 9, K), factor(kind, 3, K, N), sizes), given)
    for m, k, n in ((1, 1, 1), (9, 0, 3), (9, 5, 1)):
        yield Called(name, f"{m} {k} {n}", (factor("float32", m, k)[::-1], factor("float32", 2, k, n), [1, 0]), {})


# A call of each other function of which one operand is varied, and what that may be.
PARTS: dict[str, dict[str, Any]] = {
    "where": {"condition": drawn("bool", 4), "x": drawn("float32", 3, 4), "y": drawn("float32", 4)},
    "take": {"x": drawn("float32", 3, 4), "indices": np.array([2, 0, 1])},
    "linear": {"x": factor("float32", M, K), "weight": factor("float32", N, K), "bias": factor("float32", N)},
    "pack": {"b": factor("float32", K, N), "left": "float32"},
    "grad_input": {"dy": factor("float32", M, N), "weight": factor("float32", N, K), "out_dtype": "float32"},
    "grad_weight": {"x": factor("float32", M, K), "dy": factor("float32", M, N)},
    "grad_bias": {"dy": factor("float32", M, N)},
    "grouped_matmul": {
        "a": factor("float32", 9, K), "b": factor("float32", 3, K, N), "group_sizes": np.array([4, 0, 3]),
        "bias": factor("float32", N), "out_dtype": "float32",
    },
}  # fmt: skip
_GRADED = ("float64", *_OF_FLOATS)
PARTS_TAKEN: dict[tuple[str, str], tuple[str, ...]] = {
    ("where", "condition"): BOOL,
    ("take", "indices"): ("int64",),
    ("linear", "x"): _OF_FLOATS,
    ("linear", "weight"): _OF_ANY,
    ("linear", "bias"): HALVES,
    ("pack", "b"): ("float64", *_OF_ANY),
    ("pack", "left"): ("float64", *_OF_FLOATS),
    ("grad_input", "dy"): _GRADED,
    ("grad_input", "weight"): ("float64", *_OF_ANY),
    ("grad_input", "out_dtype"): HALVES,
    **dict.fromkeys((("grad_weight", "x"), ("grad_weight", "dy"), ("grad_bias", "dy")), _GRADED),
    ("grouped_matmul", "a"): _OF_FLOATS,
    ("grouped_matmul", "b"): _OF_ANY,
    ("grouped_matmul", "group_sizes"): INTEGERS,
    ("grouped_matmul", "bias"): HALVES,
    ("grouped_matmul", "out_dtype"): HALVES,
}


def part(name: str, argument: str, kind: str) -> dict[str, Any]:
    """The call of PARTS with this argument of that dtype."""
    given = dict(PARTS[name])
    was = given[argument]
    if not isinstance(was, np.ndarray):
        given[argument] = kind
    elif argument in ("indices", "group_sizes"):
        given[argument] = was.astype(dtypes.of(kind).numpy)
    else:
        given[argument] = factor(kind, *was.shape)
    return given


def parts(name: str) -> Iterator[Called]:
    """One operand in every dtype."""
    for (function, argument), kinds in PARTS_TAKEN.items():
        for kind in kinds if function == name else ():
            yield Called(name, part_about(argument, kind), (), part(name, argument, kind))
