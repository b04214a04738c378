"""Transforms: from a program to one that gives the same bits and runs faster.

Each is a function in a file of its own, listed here with what it needs and what it leaves. All of them keep every bit
(numerics.md section 11). Start at `optimise`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from samebits.collecting import without_collections
from samebits.frozen import dataclass, replace
from samebits.program import broadcasts, commute, consecutive, dead, fold, fuse, groups, order, scalars
from samebits.program.graph import Program

__all__ = ["ALIKE", "ROWS", "UNFUSED", "Transform", "optimise"]


@dataclass(frozen=True, slots=True)
class Transform:
    """One rewrite: `requires` and `ensures` are names of properties that the rows before it must have ensured."""

    name: str
    run: Callable[[Program], Program]
    requires: tuple[str, ...] = ()
    ensures: tuple[str, ...] = ()


_CLEAN = Transform("remove_dead", dead.remove_dead, ensures=("every node is needed",))
_FOLD = Transform("fold_constants", fold.fold_constants, ("every node is needed",), ("no node reads constants alone",))

ROWS: tuple[Transform, ...] = (
    _CLEAN,
    Transform("gather_as_view", consecutive.gather_as_view),
    Transform("gather_first", commute.gather_first, ensures=("tables are gathered before they are computed with",)),
    _CLEAN,  # of large tables that nobody reads now: they would be folded
    Transform("fuse_constant_maps", fuse.fuse_constant_maps),
    _FOLD,
    Transform(
        "absorb_scalars", scalars.absorb_scalars, ("no node reads constants alone",), ("scalars are in expressions",)
    ),
    Transform("keep_row_axes", broadcasts.keep_row_axes, ("scalars are in expressions",)),
    Transform("read_before_expand", broadcasts.read_before_expand),
    _CLEAN,
    Transform("merge_equal", dead.merge_equal, ("scalars are in expressions",), ("no two nodes are equal",)),
    Transform("map_before_view", commute.map_before_view, ("scalars are in expressions",)),
    Transform("reshape_before_map", commute.reshape_before_map),
    Transform("fuse_maps", fuse.fuse_maps, ("no two nodes are equal",), ("maps are maximal",)),
    Transform("fuse_after_rows", fuse.fuse_after_rows, ("maps are maximal",)),
    Transform("fuse_after_products", fuse.fuse_after_products, ("maps are maximal",)),
    Transform("fuse_before_rows", fuse.fuse_before_rows, ("maps are maximal",)),
    Transform("join_groups", groups.join_groups, ("maps are maximal",), ("groups are maximal",)),
    _CLEAN,
    Transform("choose_orders", order.choose_orders, ("every node is needed",)),
)

# Of many programs that differ in their numbers alone each kernel is compiled once.
ALIKE: tuple[Transform, ...] = tuple(
    replace(row, run=scalars.absorb_scalars_as_arguments) if row.name == "absorb_scalars" else row for row in ROWS
)

# Every node of the model stays a kernel of its own.
UNFUSED: tuple[Transform, ...] = (_CLEAN, _FOLD)


@without_collections
def optimise(program: Program, rows: Sequence[Transform] = ROWS) -> Program:
    """The program after the rows, in their order."""
    ensured: set[str] = set()
    for row in rows:
        missing = [need for need in row.requires if need not in ensured]
        assert not missing, f"{row.name} needs {missing}"  # the table is wrong, not the caller
        program = row.run(program)
        ensured.update(row.ensures)
    return program
