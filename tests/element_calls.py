"""Calls of the functions of elements, of rows, and of those that move: every dtype in turn with every layout.

`TAKEN` lists the dtypes that all operands of a function may have.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from called import (
    ANY,
    BOOL,
    FLOATS,
    HALVES,
    INTEGERS,
    NARROW,
    NARROW_FLOATS,
    NARROW_INTEGERS,
    NUMBERS,
    ORDERED,
    POWERS,
    Array,
    Called,
    drawn,
)

from samebits import dtypes

# What all operands of a function may be; `where` and `take` have one more.
TAKEN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "abs", "negative", "sign", "relu", "square", "remainder",
                     "fmod", "pow"), (*NUMBERS, *NARROW_FLOATS)),
    **dict.fromkeys(("maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
                     "clip", "threshold"),
                    (*ORDERED, *NARROW_FLOATS)),
    **dict.fromkeys(("divide", "fma", "sqrt", "reciprocal", "round", "floor", "ceil", "trunc", "frac", "rsqrt", "lerp",
                     "addcmul", "isfinite", "isinf", "signbit", "mean", "var", "layer_norm", "rms_norm", "exp",
                     "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "sigmoid", "sin", "cos", "silu",
                     "erf", "gelu", "softmax", "log_softmax"),
                    (*FLOATS, *NARROW_FLOATS)),
    **dict.fromkeys(("quotient", "floor_divide", "gcd", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert",
                     "bitwise_left_shift", "bitwise_right_shift"), INTEGERS),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor", "logical_not"), BOOL),
    **dict.fromkeys(("nextafter", "rand_like", "randn_like"), ("float64", *HALVES)),
    "isnan": (*FLOATS, *POWERS, *NARROW_FLOATS),
    **dict.fromkeys(("where", "cast", "concat", "take", "max", "min", "copy", "contiguous", "to_packed", "to_padded",
                     "cummax", "cummin", "argsort", "sort", "topk", "take_along_axis", "scatter",
                     "fill"), (*ANY, *NARROW)),
    **dict.fromkeys(("sum", "prod", "cumsum", "cumprod"), (*NUMBERS, *BOOL, *NARROW_FLOATS, *NARROW_INTEGERS)),
}  # fmt: skip

# Shapes of up to four operands, and how they lie.
LAYOUTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "odd": ((37,), (37,), (37,), (1,)),
    "broadcast": ((5, 1), (7,), (1, 7), (5, 1)),
    "turned": ((5, 7), (5, 7), (7,), (5, 7)),
    "one": ((1,), (1, 1), (), (1,)),
    "nothing": ((0, 3), (3,), (1, 3), (3,)),
    "wide": ((2, 131), (131,), (2, 1), (131,)),
}


def laid(kind: str, about: str, place: int, seed: int = 0) -> Array:
    """An operand in a layout; those of `turned` run backwards, every second element, or by columns."""
    shape = LAYOUTS[about][place]
    if about != "turned":
        return drawn(kind, *shape, seed=seed + place)
    if place == 1:
        return drawn(kind, *shape[::-1], seed=seed + place).T
    return drawn(kind, *[2 * extent for extent in shape], seed=seed + place)[(slice(None, None, -2),) * len(shape)]


# -- functions of one element, rows, moves ---------------------------------------------------------------------------
ARITY = {"fma": 3, "where": 2, "clip": 3, "threshold": 3, "lerp": 3, "addcmul": 4, **dict.fromkeys(
    ("abs", "bitwise_invert", "ceil", "cos", "erf", "exp", "exp2", "expm1", "floor", "frac", "isfinite", "isinf",
     "isnan", "log", "log10", "log1p", "log2", "logical_not", "negative", "reciprocal", "round", "rsqrt", "sigmoid",
     "sign", "signbit", "sin", "sqrt", "square", "tanh", "trunc"), 1)}  # fmt: skip
# Between two neighbours of most formats, and nearer to the upper one than a float32 can say.
NUMBER = 1 + 2.0**-4 + 2.0**-40


def elements(name: str) -> Iterator[Called]:
    """All layouts, in turn, of each dtype; a number beside an array."""
    arity = ARITY.get(name, 2)
    condition = (name == "where") * 1
    for number, (kind, about) in enumerate(itertools.product(TAKEN[name], LAYOUTS)):
        if len(TAKEN[name]) > 1 and (number + number // len(LAYOUTS)) % 3:
            continue
        operands = [laid(kind, about, place, seed=7) for place in range(condition, condition + arity)]
        holds = [laid("bool", about, 0)] * condition
        yield Called(name, f"{kind} {about}", (*holds, *operands), {})
    for kind in TAKEN[name]:
        if arity > 1 and kind not in BOOL:
            holds = [drawn("bool", 6)] * condition
            value = NUMBER if dtypes.of(kind).is_float else min(3, int(dtypes.of(kind).max))
            yield Called(name, f"{kind} and a number", (*holds, *[drawn(kind, 6)] * (arity - 1), value), {})


CAST_TO = ("float8_e4m3fn", "float4_e2m1fn", "int8", "float32", "float8_e8m0fnu")
CAST_OPTIONS: tuple[dict[str, Any], ...] = (
    {"rounding": "stochastic", "seed": 11},
    {"rounding": "up", "overflow": "saturate", "nan": 1},
    {"overflow": "saturate", "inf": "nan"},
    {"rounding": "stochastic", "overflow": "saturate", "seed": (1 << 63) + 5},
    {"rounding": "nearest_away"},
    {"rounding": "down", "inf": "ieee"},
)


def casts(name: str) -> Iterator[Called]:
    """Every dtype to every other; of those of less than a byte to each other a third."""
    for number, (kind, to) in enumerate(itertools.product(TAKEN[name], repeat=2)):
        if kind in NARROW and to in NARROW and number % 3:
            continue
        about = list(LAYOUTS)[number % len(LAYOUTS)]
        yield Called(name, f"{kind} to {to} {about}", (laid(kind, about, 0), to), {})
    for number, (kind, to) in enumerate(itertools.product(("float64", "bfloat16", "int64", "float4_e2m1fn"), CAST_TO)):
        about, given = list(LAYOUTS)[number % len(LAYOUTS)], CAST_OPTIONS[number % len(CAST_OPTIONS)]
        yield Called(name, f"{kind} to {to} {about} {given}", (laid(kind, about, 0), to), given)
    yield Called(name, "preset", (laid("float32", "turned", 0), "float8_e5m2"), {"preset": "torch-2.13"})


def random_numbers(name: str) -> Iterator[Called]:
    """Every layout of each dtype, by some seeds and offsets."""
    for number, (kind, about) in enumerate(itertools.product(TAKEN[name], LAYOUTS)):
        given = {"seed": number << 58} | ({"offset": (1 << 63) - number} if number % 2 else {})
        yield Called(name, f"{kind} {about}", (laid(kind, about, 0),), given)


def maps(name: str) -> Iterator[Called]:
    """Compositions of one operand; gelu by tanh too."""
    for number, (kind, about) in enumerate(itertools.product(TAKEN[name], LAYOUTS)):
        given = {"approximate": "tanh"} if name == "gelu" and number % 2 else {}
        yield Called(name, f"{kind} {about} {given}", (laid(kind, about, 0),), given)


ROW_SHAPES = ((3, 1), (4, 0, 3), (0, 5), (2, 3, 131), (1, 65), (2, 2100))
ROW_AXES: tuple[Any, ...] = (None, 0, -1, (0, -1), [-1, 0])


def reductions(name: str) -> Iterator[Called]:
    """Every dtype along axes in turn."""
    for number, (kind, (turn, shape)) in enumerate(itertools.product(TAKEN[name], enumerate(ROW_SHAPES))):
        if (number + number // len(ROW_SHAPES)) % 2:
            continue
        axis = ROW_AXES[(number + turn) % len(ROW_AXES)]
        x = drawn(kind, *shape)
        x = x[::-1] if number % 3 == 0 else x
        if name in ("max", "min") and 0 in shape:
            axis = shape.index(0) - 1 if shape.index(0) else -1
        more = {"correction": (0, 1, 2.5)[number % 3]} if name == "var" else {}
        yield Called(name, f"{kind} {shape} {axis}", (x, axis), {"keepdims": bool(number % 2), **more})


def scans(name: str) -> Iterator[Called]:
    """Along axes in turn, some of them backwards."""
    shapes = ((1,), (37,), (5, 7), (0, 3), (2, 3, 33))
    for number, (kind, shape) in enumerate(itertools.product(TAKEN[name], shapes)):
        if (number // len(shapes) + number % len(shapes)) % 2:
            continue
        x = drawn(kind, *shape)
        yield Called(
            name, f"{kind} {shape}", (x[::-1] if number % 3 else x,), {"axis": number % len(shape) - len(shape)}
        )


def sorts(name: str) -> Iterator[Called]:
    """Along axes in turn, in both directions, of few different elements too."""
    shapes = ((1,), (37,), (5, 7), (0, 3), (2, 3, 33))
    for number, (kind, shape) in enumerate(itertools.product(TAKEN[name], shapes)):
        if (number // len(shapes) + number % len(shapes)) % 2:
            continue
        x, axis = drawn(kind, *shape), number % len(shape) - len(shape)
        x, is_turned = x[::-1] if number % 3 else x, bool(number // 2 % 2)
        options = {"k": (shape[axis] + 1) // 2, "largest": is_turned} if name == "topk" else {"descending": is_turned}
        yield Called(name, f"{kind} {shape}", (x,), {"axis": axis, **options})


def picks(name: str) -> Iterator[Called]:
    """Indices from either end, several of one element, as long as the data or shorter; none."""
    random = np.random.default_rng(8)
    for number, (kind, shape) in enumerate(itertools.product(TAKEN[name], ((7,), (5, 3), (3, 4, 3), (1, 3)))):
        if (number // 4 + number % 4) % 2:
            continue
        axis, cut = number % len(shape), number % 2
        wide = [extent + 2 if a == axis else extent - (cut and extent > 1) for a, extent in enumerate(shape)]
        wide[axis] = 0 if number % 7 == 3 else wide[axis]
        indices = random.integers(-shape[axis], shape[axis], wide)[::-1]
        updates = (drawn(kind, *wide, seed=1),) if name == "scatter" else ()
        yield Called(name, f"{kind} {shape}", (drawn(kind, *shape)[::-1], indices, *updates), {"axis": axis})


def softmaxes(name: str) -> Iterator[Called]:
    """Along the last axis, and another."""
    for kind, shape in itertools.product(TAKEN[name], ((3, 1), (0, 5), (5, 7), (2, 3, 131))):
        yield Called(name, f"{kind} {shape}", (drawn(kind, *shape)[::-1],), {"axis": -1 if shape[1] % 2 else 0})


def layer_norms(name: str) -> Iterator[Called]:
    """Without a weight, with one, with a bias too where the norm has one."""
    for number, (kind, shape) in enumerate(itertools.product(TAKEN[name], ((3, 1), (0, 5), (5, 7), (2, 3, 131)))):
        x, weight, bias = (drawn(kind, *s, seed=i) for i, s in enumerate([shape, shape[-1:], shape[-1:]]))
        shifted = {} if name == "rms_norm" else {"bias": bias}
        given: dict[str, Any] = [{}, {"weight": weight}, {"weight": weight[::-1]} | shifted][number % 3]
        yield Called(name, f"{kind} {shape} {list(given)}", (x,), given | ({"eps": 0.1} if number % 2 else {}))


def copies(name: str) -> Iterator[Called]:
    """Every layout; where copies may lie otherwise, in turn."""
    options: list[dict[str, Any]] = [{}]
    if name == "copy":
        options = [{}, {"order": "F"}, {"order": "K"}, {"storage": "padded"}, {"order": (0, 1), "storage": None}]
    if name == "contiguous":
        options = [{}, {"order": "F"}, {"order": "any"}]
    for number, (kind, about) in enumerate(itertools.product(TAKEN[name], LAYOUTS)):
        x, given = laid(kind, about, 0), options[number % len(options)]
        given = {key: value for key, value in given.items() if not isinstance(value, tuple) or x.ndim == 2}
        if (number + number // len(LAYOUTS)) % 3 == 0:
            yield Called(name, f"{kind} {about} {given}", (x,), given)


def fills(name: str) -> Iterator[Called]:
    """Each layout in turn."""
    for number, kind in enumerate(TAKEN[name]):
        x, row = laid(kind, list(LAYOUTS)[number % len(LAYOUTS)], 0), dtypes.of(kind)
        value = NUMBER if row.is_float else max(int(row.min), -1) if row.is_integer else True
        yield Called(name, kind, (x, value), {})


def concats(name: str) -> Iterator[Called]:
    """Parts of any extent and layout; one alone."""
    for number, kind in enumerate(TAKEN[name]):
        parts = [drawn(kind, 2, 3, 5), drawn(kind, 2, 1, 5, seed=1)[:, :, ::-1], drawn(kind, 2, 0, 5)]
        parts.append(drawn(kind, 5, 2, 2, seed=2).T)
        yield Called(name, kind, (parts,), {"axis": 1 if number % 2 else -2})
        yield Called(name, f"{kind} alone", ([drawn(kind, 3)],), {})


def takes(name: str) -> Iterator[Called]:
    """Indices of several axes, from either end; none."""
    indices = np.array([[2, 0, -1], [-3, 1, 1]])
    for number, kind in enumerate(TAKEN[name]):
        x = drawn(kind, 3, 4, 3)[:, ::-1]
        yield Called(name, kind, (x, indices[:, ::-1] if number % 2 else indices), {"axis": (0, -1, 2)[number % 3]})
        yield Called(name, f"{kind} nothing", (x[:, :1], np.empty((0, 2), np.int64)), {})
