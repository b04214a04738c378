"""Where groups start or end: data, which a run reads before it starts.

Of `grouped_mm` each group's size is a symbol of the program, and its value the extent of an input that nothing reads:
other sizes are other extents, which plan nothing. Scales in tiles of their group read where it starts as they run; here
it is checked. Start at `values`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from samebits.errors import FusionError, FusionTypeError
from samebits.fusion.datatypes import DataType
from samebits.fusion.graph import Fusion, Number, Scalar, TensorView, Val
from samebits.fusion.tiles import DOWN
from samebits.tensor import Tensor

__all__ = ["CALL", "check", "counts", "has_groups", "input_name", "values"]

CALL = "grouped_mm"
# What puts scales of groups into tiles, each group's into whole ones.
_TILED = ("preprocess_grouped_matmul_input_sf", "nv_grouped_block_quantize")
# What the elements of those inputs all are.
_NOTHING = bytes(1)


def has_groups(fusion: Fusion) -> bool:
    """Whether a run reads where groups end."""
    return any(expr.op == CALL or expr.op in _TILED for expr in fusion.sorted_exprs())


def check(call: str, name: str, offsets: TensorView, reshape: str) -> None:
    """Raise FusionError unless it is an input that holds a number for each group."""
    if offsets.ndim != 1:
        raise FusionError(call, name, "rank", offsets.ndim, 1, reshape)
    if offsets.dtype not in (DataType.Int32, DataType.Int):
        raise FusionTypeError(call, name, "dtype", offsets.dtype, "Int32 or Int", "cast them before the run")
    if offsets not in offsets.fusion.inputs:
        remedy = "compute it before, as a run must know its groups when it starts"
        raise FusionError(call, name, "", "what the fusion computes", "an input", remedy)


def _offsets(fusion: Fusion) -> dict[TensorView, list[Scalar]]:
    """The inputs that say where groups end, and the extents that each cuts."""
    found: dict[TensorView, list[Scalar]] = {}
    for expr in fusion.sorted_exprs():
        if expr.op == CALL:
            a, b, ends = expr.tensors
            cut = a.axes[0] if b.ndim == 3 else b.axes[-1] if a.ndim == 3 else a.axes[-1]
            found.setdefault(ends, []).append(cut.length)
    return found


def counts(fusion: Fusion, given: Mapping[Val, Any]) -> dict[Scalar, Number]:
    """How many groups there are, as the extents of offsets: programs are made for them."""
    found: dict[Scalar, Number] = {}
    for ends in _offsets(fusion):
        shape = Tensor.from_any(given[ends]).shape
        if len(shape) == 1:
            found[fusion.root(ends.axes[0].length)] = shape[0]
    return found


def values(fusion: Fusion, given: Mapping[Val, Any], extents: Mapping[Scalar, int]) -> dict[str, Any]:
    """Inputs of the program whose extents are the sizes of groups, and which take no memory.

    Raises:  FusionError if groups do not start or end one after the other, within what they cut, or their tiles do not.
    """
    _check_tiled(fusion, given, extents)
    found: dict[str, Any] = {}
    for ends, cuts in _offsets(fusion).items():
        listed = [0, *Tensor.from_any(given[ends]).tolist()]
        last = min([extents[root] for cut in cuts if (root := fusion.root(cut)) in extents], default=None)
        if sorted(listed) != listed or (last is not None and listed[-1] > last):
            due = f"ascending from 0 on, at most {'the extent that they cut' if last is None else last}"
            remedy = "give where each group ends"
            raise FusionError("execute", f"input {fusion.inputs.index(ends)}", "", listed[1:], due, remedy)
        for number, (start, end) in enumerate(itertools.pairwise(listed)):
            found[input_name(ends, number)] = np.ndarray((end - start,), bool, _NOTHING, strides=(0,))
    return found


def input_name(ends: TensorView, number: int) -> str:
    """The input whose extent is the size of a group."""
    return f"G{ends.name}.{number}"


def _check_tiled(fusion: Fusion, given: Mapping[Val, Any], extents: Mapping[Scalar, int]) -> None:
    """Raise FusionError unless rows are split into groups, and each has the tiles behind those of the one before."""
    for expr in fusion.sorted_exprs():
        if expr.op not in _TILED:
            continue
        x, starts, places = expr.tensors[:3]
        listed, at = (Tensor.from_any(given[each]).tolist() for each in (starts, places))
        root = fusion.root(x.axes[0].length)
        rows = extents.get(root, root.value)
        if listed[:1] != [0] or sorted(listed) != listed or (rows is not None and listed[-1] > rows):
            due = f"ascending from 0 on, at most {'the rows' if rows is None else rows}"
            name = f"input {fusion.inputs.index(starts)}"
            raise FusionError("execute", name, "", listed, due, "give where each group starts")
        taken = [-(-(end - start) // DOWN) * DOWN for start, end in itertools.pairwise(listed)]
        whole = list(itertools.accumulate(taken, initial=0))
        if at != whole:
            expected = f"{whole}, where groups start that take whole tiles of {DOWN} rows"
            name = f"input {fusion.inputs.index(places)}"
            raise FusionError("execute", name, "", at, expected, "give these")
