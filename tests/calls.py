"""Calls of every public function that computes: its dtypes, its options, odd sizes, layouts.

What is listed is what is tried, and tests/ops/test_public_functions.py holds that it is what the functions take: see
`element_calls` and `product_calls`. Start at `calls`.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator
from typing import Any

import element_calls
import nodes
import numpy as np
import product_calls
from called import NARROW, NARROW_FLOATS, Called
from product_calls import BLOCKS, GROUP, K, M, N, factor, scales

import samebits as sb


# -- elements within bytes -------------------------------------------------------------------------------------------
def packed(kind: str, *shape: int) -> sb.Tensor:
    """Elements side by side within bytes."""
    return sb.to_packed(sb.Tensor.from_any(factor(kind, *shape)))


def within_bytes() -> Iterator[Called]:
    """Packed operands, each of a product among them."""
    for kind in NARROW:
        yield Called("matmul", f"packed b {kind}", (factor("float32", M, K), packed(kind, K, N)), {})
        yield Called("copy", f"packed {kind}", (packed(kind, 3, 8),), {})
        yield Called("to_padded", f"packed {kind}", (packed(kind, 3, 8),), {})
        yield Called("cast", f"packed {kind}", (packed(kind, 3, 7)[1:, ::-2], "float32"), {})
        yield Called("take", f"packed {kind}", (packed(kind, 3, 8), np.array([2, -3])), {})
        yield Called("concat", f"packed {kind}", ([packed(kind, 3, 5), packed(kind, 2, 5)],), {})
        yield Called("max", f"packed {kind}", (packed(kind, 3, 5)[:, 1:], 0), {})
    for kind in NARROW_FLOATS:
        for name in ("add", "maximum", "equal", "divide"):
            yield Called(name, f"packed {kind}", (packed(kind, 5, 7), packed(kind, 7)), {})
        yield Called("softmax", f"packed {kind}", (packed(kind, 5, 7),), {})
    blocks = {"b_scale": scales(BLOCKS, N), "b_group": GROUP}
    fours = packed("float4_e2m1fn", M, K), packed("float4_e2m1fn", K, N)
    yield Called("matmul", "packed float4 in blocks", fours, blocks)
    bytes_ = packed("int4", M, K), packed("uint4", K, N)
    points = {"a_zero_point": packed("int4", M), "b_zero_point": packed("uint4", N)}
    yield Called("matmul", "packed integers with packed zero points", bytes_, points)
    weights = {"weight_scale": scales(N, BLOCKS), "weight_zero_point": packed("int4", N, BLOCKS), "group": GROUP}
    yield Called("linear", "packed weights in blocks", (factor("bfloat16", M, K), packed("int4", N, K)), weights)


CALLS: dict[str, Callable[[str], Iterator[Called]]] = {
    **dict.fromkeys((*nodes.ELEMENTS, *nodes.COMPOSED, "where"), element_calls.elements),
    **dict.fromkeys(("sum", "prod", "mean", "var", "max", "min"), element_calls.reductions),
    **dict.fromkeys(("gelu", "relu", "silu"), element_calls.maps),
    **dict.fromkeys(("copy", "contiguous", "to_packed", "to_padded"), element_calls.copies),
    **dict.fromkeys(("matmul", "plan_matmul"), product_calls.products),
    **dict.fromkeys(("grad_input", "grad_weight", "grad_bias"), product_calls.gradients),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), element_calls.scans),
    **dict.fromkeys(("argsort", "sort", "topk"), element_calls.sorts),
    **dict.fromkeys(("take_along_axis", "scatter"), element_calls.picks),
    **dict.fromkeys(("rand_like", "randn_like"), element_calls.random_numbers),
    "cast": element_calls.casts,
    **dict.fromkeys(("softmax", "log_softmax"), element_calls.softmaxes),
    **dict.fromkeys(("layer_norm", "rms_norm"), element_calls.layer_norms),
    "fill": element_calls.fills, "concat": element_calls.concats, "take": element_calls.takes,
    "linear": product_calls.linears, "pack": product_calls.packs, "grouped_matmul": product_calls.groups,
}  # fmt: skip


@functools.cache
def calls(name: str) -> tuple[Called, ...]:
    """Those of one function."""
    more = [call for call in within_bytes() if call.name == name]
    return (*CALLS[name](name), *product_calls.parts(name), *more)


# Of these every call is made but those of `product_calls.late`: what they are called with decides the kernel together,
# not each argument by itself.
_PRODUCTS = ("matmul", "plan_matmul", "linear", "pack", "grouped_matmul", "grad_input", "grad_weight", "grad_bias")


@functools.cache
def few(name: str) -> list[int]:
    """Which calls the default run makes: the first with a dtype, a layout or an option that an argument had not yet."""
    found, seen = list[int](), set[object]()
    for number, call in enumerate(calls(name)):
        if name in _PRODUCTS:
            if (name, call.about) not in product_calls.late():
                found.append(number)
            continue
        given = set(_facts([*call.arguments, dict(call.options)]))
        if not given <= seen:
            found.append(number)
            seen |= given
    return found


# One in so many of those calls is compiled, for which a kernel takes longer than to be interpreted: of the calls of a
# product with one dtype in one place, which has other operands each time, and of its other calls; and of those of a
# function of elements or rows, among which one is of the usual format.
_OF_PRODUCTS, _OF_ELEMENTS = 4, 4
_USUAL = "float32"
# Their nodes are made of those of other functions, which are compiled there.
MADE_OF_OTHERS = ("pack", "grouped_matmul", "grad_input", "grad_weight", "grad_bias")


@functools.cache
def row_of_each(name: str, rows: tuple[str, ...]) -> dict[int, str]:
    """Which row makes each of the few calls: `numpy` those that are interpreted, the others in turn the rest.

    So each function meets every row, and each dtype does in some function.
    """
    if name == "plan_matmul":  # what matmul compiled
        by_about = {calls("matmul")[number].about: row for number, row in row_of_each("matmul", rows).items()}
        return {number: by_about[calls(name)[number].about] for number in few(name)}
    return {number: _compiling(rows).get((name, number), "numpy") for number in few(name)}


@functools.cache
def _compiling(rows: tuple[str, ...]) -> dict[tuple[str, int], str]:
    """The row of each call that is compiled: one that its dtype has not met, or else its function least often.

    A function takes for its dtypes what it meets already only while it has calls to spare for the rest.
    """
    compiled = [row for row in rows if row != "numpy"]
    made, met = dict[tuple[str, int], str](), collections.Counter[tuple[str, str]]()
    for turn, name in enumerate(sorted(CALLS)):
        numbers = _compiled(name, turn, len(compiled))
        spare = len(numbers) - len(compiled)
        for number in numbers:
            own = kind(calls(name)[number])
            new = [row for row in compiled if not met[own, row]]
            row = min(new if new and spare > 0 else compiled, key=lambda x: (met[name, x], met[own, x]))
            spare -= met[name, row] > 0
            met.update([(name, row), (own, row)])
            made[name, number] = row
    return made


def kind(call: Called) -> str:
    """The dtype that a call is about: the first operand's, but a condition's."""
    parts = [x if isinstance(x, list) else [x] for x in (*call.arguments, *call.options.values())]
    kinds = [str(x.dtype) for part in parts for x in part if isinstance(x, np.ndarray | sb.Tensor)]
    return next((found for found in kinds if found != "bool"), "bool")


def _compiled(name: str, turn: int, count: int) -> list[int]:
    """The few calls of a function that are compiled, on so many rows."""
    numbers = few(name)
    if name not in _PRODUCTS:
        every = max(1, min(_OF_ELEMENTS, len(numbers) // count))
        in_turn = numbers[turn % every :: every]
        usual = [number for number in numbers if kind(calls(name)[number]) == _USUAL]
        return in_turn if not usual or set(in_turn) & set(usual) else sorted({usual[0], *in_turn[1:]})
    chosen, places = list[int](), collections.Counter[str]()
    for number in numbers:
        place = product_calls.place_of(name, calls(name)[number].about)
        at, places[place] = places[place], places[place] + 1
        if at % _OF_PRODUCTS == 0:
            chosen.append(number)
    return chosen


def _facts(x: Any, place: tuple[object, ...] = ()) -> Iterator[object]:
    """What a call gives in each place."""
    if isinstance(x, np.ndarray):
        yield place, str(x.dtype)
        yield place, x.shape, tuple(step // x.itemsize for step in x.strides)
    elif isinstance(x, dict | list | tuple):
        for key, part in x.items() if isinstance(x, dict) else enumerate(x):
            yield from _facts(part, (*place, key))
    else:
        yield place, str(x.dtype) if isinstance(x, sb.Tensor) else repr(x)
