"""Plans on operands that are packed within bytes: elements by NumPy's way of reading any layout, before and after."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from launch import run_plan
from rows import ALL_ROWS, PLANNED

from samebits import dtypes, elements
from samebits.codegen.isa import Isa
from samebits.kernels import elementwise, reorder, spread
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.plan import Operand, in_lines
from samebits.layout import Layout

SHAPE = (5, 9)


def negated(width: int) -> Expression:
    """Every bit of a code inverted, a byte an element."""
    chain = Chain()
    return chain.finish(chain.apply("bit_not", chain.input(dtypes.uint8)))


def lying(rng: random.Random, width: int) -> Layout:
    """SHAPE at any bit, the axes in any order, some of the strides negative, from the byte of the first element."""
    outer = 2 * width * SHAPE[1] + rng.randint(0, 7)
    steps = [outer, width * rng.randint(1, 2)]
    shape, strides = list(SHAPE), [step * rng.choice((1, -1)) for step in steps]
    start = sum(-(n - 1) * step for n, step in zip(shape, strides, strict=True) if step < 0)
    found = Layout(shape, strides, start + rng.randint(0, 7), width)
    return found.rebased()[0]


@pytest.mark.parametrize("isa", ALL_ROWS, ids=lambda row: row.name)
def test_operands_are_unpacked_before_and_results_packed_after(isa: Isa) -> None:
    rng = random.Random(1)
    for width in (1, 2, 4, 6):
        dtype = dtypes.of({1: "uint1", 2: "uint2", 4: "uint4", 6: "float6_e2m3fn"}[width])
        x, y = lying(rng, width), lying(rng, width)
        source, target = (np.frombuffer(rng.randbytes(z.required_bytes), np.uint8).copy() for z in (x, y))
        ends = [spread.once(z) for z in (x, y)]
        copies = [(SHAPE, spread.copy_of(z).strides) for z in ends]
        inner = elementwise.plan(negated(width), (copies[0],), (copies[1],), isa)
        plan = spread.on_copies(inner, [(dtype, z) for z in ends], 1)
        due = target.copy()
        elements.write(due, y, elements.read(source, x) ^ ((1 << width) - 1))
        run_plan(plan, [source[x.offset_bits // 8 :], target[y.offset_bits // 8 :]])
        assert np.array_equal(target, due), (width, x, y)


def test_a_plan_of_packed_operands_says_what_it_copies() -> None:
    layout = Layout.dense((3, 5), width_bits=4)
    inner = elementwise.plan(negated(4), (((3, 5), (5, 1)),), (((3, 5), (5, 1)),), PLANNED)
    plan = spread.on_copies(inner, [(dtypes.uint4, layout), (dtypes.uint4, layout)], 1)
    assert len(plan.steps) == 3
    assert plan.workspace_bytes == 128
    said = [f"uint4 within bytes, {how} 15 bytes" for how in ("unpacked to", "packed from")]
    assert plan.facts[-2:] == (("input 0", said[0]), ("output 0", said[1]))
    assert spread.on_copies(inner, [None, None], 1) is inner
    nothing = replace(inner, steps=())
    assert spread.on_copies(nothing, [(dtypes.uint4, layout), None], 1) is nothing


def test_copies_begin_at_cache_lines_behind_the_workspace() -> None:
    layout = Layout.dense((3, 5), width_bits=4)
    inner = elementwise.plan(negated(4), (((3, 5), (5, 1)),), (((3, 5), (5, 1)),), PLANNED)
    plan = spread.on_copies(replace(inner, workspace_bytes=100), [(dtypes.uint4, layout)] * 2, 1)
    read, made = Operand(2, 128), Operand(2, 192)
    assert [{x for x in step.arguments if isinstance(x, Operand)} for step in plan.steps] == [
        {Operand(0), read}, {read, made}, {made, Operand(1)}
    ]  # fmt: skip
    assert plan.workspace_bytes == 256


def test_workspaces_of_what_packs_lie_behind_the_copies() -> None:
    """Many elements between which others lie are packed through a workspace."""
    dense = Layout.dense((64, 130), width_bits=4)
    apart = dense[:, ::2]
    inner = elementwise.plan(negated(4), (((64, 65), (65, 1)),), (((64, 65), (65, 1)),), PLANNED)
    behind = reorder.plan(spread.copy_of(apart), apart, PLANNED).workspace_bytes
    assert behind > 0
    plan = spread.on_copies(inner, [None, (dtypes.uint4, apart)], 1)
    assert plan.workspace_bytes == in_lines(64 * 65) + behind
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 16, (64, 65)).astype(np.uint8), rng.integers(0, 256, 64 * 65).astype(np.uint8)
    due = target.copy()
    elements.write(due, apart, source ^ 15)
    run_plan(plan, [source, target])
    assert np.array_equal(target, due)


def test_what_is_packed() -> None:
    dense = Layout.dense((4,), width_bits=4)
    assert spread.is_packed(dense)
    assert spread.is_packed(dense[::2])  # neighbours share its bytes
    assert spread.is_packed(Layout((4,), (12,), 0, 8))
    assert spread.is_packed(Layout((4,), (8,), 3, 4, "padded"))
    assert not spread.is_packed(Layout.dense((4,), width_bits=4, storage="padded"))
    assert not spread.is_packed(Layout.dense((4,), width_bits=16))
    repeated = dense.reshape((1, 4)).broadcast_to((3, 4))
    assert spread.once(repeated).shape == (1, 4)
    turned = Layout.dense((3, 4), width_bits=4).permute((1, 0))
    assert spread.copy_of(turned) == Layout.dense((4, 3), width_bits=4, order="F", storage="padded")
