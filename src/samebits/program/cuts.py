"""Why a program's kernels are as many as they are: of each two, one of which reads what the other makes, the reason.

Start at `cuts`.
"""

from __future__ import annotations

from collections.abc import Iterator

from samebits.program.graph import Node, Program
from samebits.program.groups import refusal

__all__ = ["cuts"]


def cuts(program: Program) -> Iterator[str]:
    """For each two kernels of a transformed program, one of which reads what the other makes, why they are two."""
    seen: set[tuple[str, str]] = set()
    for second in program.nodes:
        if second.row.plan is None:
            continue
        for name in second.inputs:
            first, views = _maker(program, name)
            if first is None or (first.outputs[0], second.outputs[0]) in seen:
                continue
            seen.add((first.outputs[0], second.outputs[0]))
            why = f"{' and '.join(views)} between them" if views else refusal(program, first, second)
            yield f"{first.label} | {second.label}: {why}"


def _maker(program: Program, name: str) -> tuple[Node | None, list[str]]:
    """The kernel that makes a value, and the views between it and the value."""
    views: list[str] = []
    while (node := program.producers.get(name)) is not None and node.row.plan is None:
        if node.row.view is None:
            return None, []
        views.append(node.operation)
        (name,) = node.inputs
    return node, views[::-1]
