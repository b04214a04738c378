"""Arguments of every kind and size: each call answers or says what is wrong, with an error of ours."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from samebits.errors import SamebitsError
from samebits.layout import Layout, Swizzle, TiledLayout, coalesce, tma_violations


class Huge:
    """An index that no machine word holds."""

    def __index__(self) -> int:
        return 1 << 70


JUNK = [
    *(None, True, False, 1.5, float("nan"), "C", "K", "packed", b"x", ..., object(), Huge(), {}, {1}, np.float32(2)),
    *(-(2**63), -1, 0, 1, 2, 3, 2**63, 2**64, np.int64(2), np.array(3), np.array([1, 2]), np.array([])),
    *((), (1,), (2, 3), [1, 0], (-1,), (1, -1), (2**40,) * 2, (0, 0), (None,), ((1,),), (True,), (Huge(),), (1,) * 70),
    *(slice(None), slice(np.array([1, 2]), None), slice(None, None, 0), slice("a"), range(3), ((4, 2),), ((8, 1),)),
    *(Layout.dense((2, 3), width_bits=4), (Layout.dense((2,), width_bits=4),) * 2),
]
LAYOUTS = [
    Layout.dense((2, 3, 4), width_bits=4),
    Layout.dense((), width_bits=6),
    Layout.dense((0, 3), width_bits=8),
    Layout.from_strides((4, 5), (-1, 7), 9, width_bits=16),
    Layout.dense((4,), width_bits=4, storage="padded"),
    TiledLayout.scales_128x4(130, 5),
]
# Methods by how many positional arguments they take.
METHODS = {
    1: "permute reshape __getitem__ broadcast_to squeeze unsqueeze flip max_vector_bits to_dense is_contiguous"
    " is_byte_aligned",
    2: "flatten unflatten sliding_window repack fits overlaps bit element",
    3: "diagonal",
}
CALLS: dict[str, Callable[..., Any]] = {
    "Layout": lambda a, b, c, d, e: Layout(a, b, c, d, e),
    "dense": lambda a, b, c, d, _: Layout.dense(a, width_bits=b, order=c, storage=d),
    "dense_like": lambda a, *_: Layout.dense_like(LAYOUTS[0], a),
    "from_strides": lambda a, b, c, d, _: Layout.from_strides(a, b, c, width_bits=d),
    "from_byte_strides": lambda a, b, c, d, _: Layout.from_byte_strides(a, b, c, width_bits=d),
    "TiledLayout": lambda a, b, c, d, e: TiledLayout(a, b, c, d, e),
    "scales": lambda a, b, c, *_: TiledLayout.scales_128x4(a, b, block=c),
    "grouped": lambda a, b, *_: TiledLayout.grouped_scales_128x4(a, b),
    "blocks": lambda a, b, c, *_: TiledLayout.blocks(a, b, width_bits=c),
    "block_scales": lambda a, b, c, *_: TiledLayout.block_scales(a, b, width_bits=c),
    "Swizzle": lambda a, b, c, d, _: Swizzle(a, b, c)(d),
    "coalesce": lambda a, b, *_: coalesce(a, lead=b),
    "tma": lambda a, b, c, d, e: tma_violations(LAYOUTS[0], a, address=b, steps=c, swizzle=d, interleave=e),
}


def refusal(call: Callable[..., Any], arguments: list[object]) -> str | None:
    """What an error of ours says; any other is raised."""
    try:
        call(*arguments)
    except SamebitsError as error:
        return str(error)
    return None


def check(call: Callable[..., Any], arguments: list[object]) -> None:
    """It answers, or says what is wrong in one sentence."""
    said = refusal(call, arguments)
    assert said is None or said.count(", must be ") == 1


@pytest.mark.parametrize("name", CALLS)
def test_constructors_and_functions_refuse_in_our_words(name: str) -> None:
    rng = random.Random(name)
    for _ in range(1500):
        check(CALLS[name], rng.choices(JUNK, k=5))


@pytest.mark.parametrize(("count", "name"), [(n, name) for n, names in METHODS.items() for name in names.split()])
def test_methods_refuse_in_our_words(count: int, name: str) -> None:
    rng = random.Random(name)
    for layout in LAYOUTS:
        if hasattr(layout, name):
            for junk in JUNK:
                for _ in range(1 if count == 1 else 4):
                    check(getattr(layout, name), [junk, *rng.choices(JUNK, k=count - 1)])
