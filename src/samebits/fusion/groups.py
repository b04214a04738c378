"""Where groups of `grouped_mm` end: data, which a run reads before it starts.

Each group's size is a symbol of the program, and its value the extent of an input that nothing reads: other sizes are
other extents, which plan nothing. Start at `values`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from samebits.errors import FusionError
from samebits.fusion.graph import Fusion, Number, Scalar, TensorView, Val
from samebits.tensor import Tensor

__all__ = ["CALL", "counts", "has_groups", "input_name", "values"]

CALL = "grouped_mm"
# What the elements of those inputs all are.
_NOTHING = bytes(1)


def has_groups(fusion: Fusion) -> bool:
    """Whether a run reads where groups end."""
    return any(expr.op == CALL for expr in fusion.sorted_exprs())


def _offsets(fusion: Fusion) -> dict[TensorView, list[Scalar]]:
    """The inputs that say where groups end, and the extents that each cuts."""
    found: dict[TensorView, list[Scalar]] = {}
    for expr in fusion.sorted_exprs():
        if expr.op == CALL:
            a, b, ends = expr.args
            assert isinstance(a, TensorView)
            assert isinstance(b, TensorView)
            assert isinstance(ends, TensorView)
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

    Raises:  FusionError if groups do not end one after the other, within what they cut.
    """
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
