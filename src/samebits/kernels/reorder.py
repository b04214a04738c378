"""Reorder: elements of fewer than 8 bits into another order of axes, by way of bytes where that is faster.

    plan(source, target, isa, threads) -> Plan

Operands, meaning and reference are those of `narrow`, which does it directly where rows are dense on both sides. Else,
slab by slab: `narrow` widens the source to a byte an element in the source's own order, `elementwise` turns those bytes
to the target's order, and `narrow` packs them. A slab fits a cache, and is a step of its own, so none is written by two
threads at once.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.kernels import elementwise, narrow
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.plan import Operand, Plan, Step, in_lines
from samebits.layout import Layout

# Elements of fewer than which three kernels cost more than they save.
_FEW = 1 << 12
# Elements of a slab: its two copies fit a second-level cache. A plan has at most this many slabs of a larger size.
_SLAB = 1 << 18
_SLABS = 256


@functools.lru_cache(maxsize=1024)
def plan(source: Layout, target: Layout, isa: Isa, threads: int = 1) -> Plan:
    """One kernel, or up to three a slab.

    Args:
        source, target: As for `narrow.plan`.

    Raises:
        PlanError, ShapeError: As `narrow.plan`.
    """
    direct = narrow.plan(source, target, isa, threads)
    if target.size < _FEW or narrow.is_fast(source, target):
        return direct
    source = source.broadcast_to(target.shape)
    if target.storage == "padded" and _in_order_of(source) == _in_order_of(target):
        return direct  # elements come out one by one either way, and need not be packed
    extents = _slab(target)
    size_bytes = in_lines(math.prod(extents))
    steps: list[Step] = []
    for part in _parts(target.shape, extents):
        steps += _moved(source[part], target[part], size_bytes, isa, threads)
    return Plan(
        what=f"reorder {target.width_bits} bits {target.shape}",
        isa=isa,
        threads=threads,
        steps=tuple(steps),
        operands=("source", "target"),
        workspace_bytes=2 * size_bytes,
        facts=(("slabs", f"{extents}, widened, turned and packed"),),
        rejected=(("narrow alone", "it moves element by element where a row is not dense on both sides"),),
    )


def _moved(source: Layout, target: Layout, size_bytes: int, isa: Isa, threads: int) -> list[Step]:
    """The steps of one slab: widened at the start of the workspace, turned behind it, packed."""
    wide, turned = _in_order_of(source), _in_order_of(target)
    work, behind = Operand(2), Operand(2, size_bytes)
    first = narrow.plan(source, wide, isa, threads)
    if wide == turned:
        last = narrow.plan(wide, target, isa, threads)
        return [*_on(first, Operand(0), work), *_on(last, work, Operand(1))]
    second = elementwise.plan(_copy(), ((wide.shape, wide.strides),), ((turned.shape, turned.strides),), isa, threads)
    third = narrow.plan(turned, target, isa, threads)
    return [*_on(first, Operand(0), work), *_on(second, work, behind), *_on(third, behind, Operand(1))]


def _on(plan: Plan, *operands: Operand) -> list[Step]:
    """The plan's steps with other operands."""
    return [step.on(*operands) for step in plan.steps]


def _in_order_of(layout: Layout) -> Layout:
    """A byte an element, dense, the axes from the largest stride to the smallest."""
    return Layout.dense(layout.shape, width_bits=layout.width_bits, order=layout.stride_order, storage="padded")


def _slab(target: Layout) -> tuple[int, ...]:
    """Extents of a slab: the target's slow axes cut, to whole eights where there are so many."""
    limit = max(_SLAB, -(-target.size // _SLABS))
    extents = list(target.shape)
    for axis in target.stride_order:
        rest = math.prod(extents) // extents[axis]
        if rest * extents[axis] <= limit:
            break
        most = max(1, limit // rest)
        extents[axis] = min(extents[axis], most // 8 * 8 or most)
    return tuple(extents)


def _parts(shape: Sequence[int], extents: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """The slabs' places."""
    starts = [range(0, whole, part) for whole, part in zip(shape, extents, strict=True)]
    for place in itertools.product(*starts):
        yield tuple(slice(start, start + part) for start, part in zip(place, extents, strict=True))


@functools.cache
def _copy() -> Expression:
    """The copy of bytes."""
    chain = Chain()
    return chain.finish(chain.apply("copy", chain.input(dtypes.uint8)))
