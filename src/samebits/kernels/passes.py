"""Passes over a row: which reductions share one, what each needs, and what is worth keeping for a later one.

A value's depth is how many reductions lie one behind the other below it; reductions of one depth share a pass. Start
at `passes`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from samebits.frozen import dataclass
from samebits.kernels import functions
from samebits.kernels.expression import CONSTANTS, LEAVES, REDUCTIONS, TABLE, Expression


@dataclass(frozen=True, slots=True)
class Pass:
    """One walk along the row.

    Attributes:
        reductions: The nodes that it reduces; empty for the last pass, which stores.
        uniforms: Values it needs that are one a row, constants excepted.
        keeps: Values it computes and keeps for later passes.
        is_heavy: Whether it computes a heavy function of elements.
    """

    reductions: tuple[int, ...]
    uniforms: tuple[int, ...]
    keeps: tuple[int, ...]
    is_heavy: bool


@functools.lru_cache(maxsize=1024)
def uniform(e: Expression, classes: tuple[str, ...]) -> tuple[bool, ...]:
    """For every value whether it is one a row: it depends on nothing that varies along the row but by a reduction."""
    found = [classes[k] == "same" for k in range(len(e.inputs))]
    for node in e.nodes:
        found.append(node.op in REDUCTIONS or all(found[k] for k in node.arguments))
    return tuple(found)


@functools.lru_cache(maxsize=1024)
def passes(e: Expression, is_uniform: tuple[bool, ...], most: int | None = None) -> tuple[Pass, ...]:
    """Reductions by depth, then the pass that stores the outputs that vary along the row, if there are any.

    There is always one pass: outputs that are one a row are stored with the last, whatever it is for. What is heavy is
    kept for later passes, and so is what takes more than `most` operations from operands, from what is one a row and
    from what is kept; None where only heavy values are.
    """
    depth = [0] * len(e.inputs)
    for node in e.nodes:
        depth.append(max([depth[k] for k in node.arguments], default=0) + (node.op in REDUCTIONS))
    reductions = [k for k in range(len(e.inputs), len(depth)) if e.nodes[k - len(e.inputs)].op in REDUCTIONS]
    groups = [tuple(k for k in reductions if depth[k] == level) for level in sorted({depth[k] for k in reductions})]
    targets = [[e.nodes[k - len(e.inputs)].arguments[0] for k in group] for group in groups]
    varying = [k for k in e.outputs if not is_uniform[k]]
    if varying or not groups:
        groups.append(())
        targets.append(varying)
    needs = [set(needed(e, is_uniform, target)) for target in targets]
    found, kept = [], set[int]()
    for j, (group, target) in enumerate(zip(groups, targets, strict=True)):
        mine = set(needed(e, is_uniform, target, kept))
        is_heavy = any(_heavy(e, k) and not is_uniform[k] for k in mine - kept)
        later = set().union(*needs[j + 1 :])
        shared = {k for k in mine & later if not is_uniform[k]} - kept
        keeps = {k for k in shared if _heavy(e, k)}
        if most is not None:
            for k in sorted(shared - keeps):
                below = needed(e, is_uniform, [k], kept | keeps)
                if sum(e.node(x) is not None and not is_uniform[x] and x not in kept | keeps for x in below) > most:
                    keeps.add(k)
        uniforms = {k for k in mine if is_uniform[k] and not _constant(e, k)}
        found.append(Pass(group, tuple(sorted(uniforms)), tuple(sorted(keeps)), is_heavy))
        kept |= keeps
    return tuple(found)


def needed(
    e: Expression, is_uniform: Sequence[bool], targets: Sequence[int], stop: set[int] | None = None
) -> Iterator[int]:
    """Values that computing the targets along the row touches; below uniform and stopped ones nothing is."""
    pending, seen = list(targets), set[int]()
    while pending:
        k = pending.pop()
        if k in seen:
            continue
        seen.add(k)
        yield k
        node = e.node(k)
        if node is not None and not is_uniform[k] and k not in (stop or ()):
            pending += node.arguments


def _heavy(e: Expression, k: int) -> bool:
    node = e.node(k)
    return node is not None and node.op not in (*REDUCTIONS, *LEAVES, TABLE) and functions.row(node.op).heavy


def _constant(e: Expression, k: int) -> bool:
    node = e.node(k)
    return node is not None and node.op in CONSTANTS
