"""Outputs that are inputs under another shape or order of axes: they share the input's memory where its library can.

Start at `returned`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from samebits.errors import FusionError, LayoutError
from samebits.frozen import dataclass
from samebits.fusion import datatypes
from samebits.fusion.graph import Expr, Fusion, Scalar, TensorView

__all__ = ["InputView", "returned"]

# An extent: a number, or an input and the place of its axis.
_Extent = int | tuple[TensorView, int]


@dataclass(frozen=True, slots=True, eq=False)
class InputView:
    """An input, and what is done with it in turn.

    Attributes:
        source: The input.
        steps: Each operation's name with what it needs: a shape, an order, or flags.
    """

    source: TensorView
    steps: tuple[tuple[str, tuple[Any, ...]], ...]

    def of(self, arrays: Mapping[Any, Any]) -> Any:
        """The view of the array that the input was given as."""
        made = arrays[self.source]
        for op, given in self.steps:
            own = tuple(made.shape)
            if op == "permute":
                made = made.transpose(given) if not hasattr(made, "permute") else made.permute(given)
                continue
            if op == "reshape":
                shape = tuple(x if isinstance(x, int) else int(arrays[x[0]].shape[x[1]]) for x in given)
            elif op == "squeeze":
                shape = tuple(size for place, size in enumerate(own) if place not in given)
            else:
                rest = iter(own)
                shape = tuple(1 if flag else next(rest) for flag in given)
            if math.prod(shape) != math.prod(own):
                expected, remedy = f"the {math.prod(own)} of arg", "give another shape, or an input that has it"
                raise FusionError(op, "result", "elements", math.prod(shape), expected, remedy)
            try:
                made = made.reshape(shape)
            except LayoutError:  # a Tensor whose strides have no such view
                made = made.copy().reshape(shape)
        return made


def _view_of(x: TensorView) -> InputView | None:
    """x as a view of an input; None if it is computed, or its elements do not have bytes of their own."""
    steps: list[tuple[str, tuple[Any, ...]]] = []
    while x.definition is not None:
        found = _step(x.definition)
        if found is None or x.stride_order is not None:
            return None
        steps.append(found)
        (x,) = x.definition.tensors
    if datatypes.row_of("view", str(x), x.dtype).width_bits < 8:
        return None
    return InputView(x, tuple(reversed(steps)))


def _step(expr: Expr) -> tuple[str, tuple[Any, ...]] | None:
    if expr.op == "permute":
        return "permute", tuple(expr.option("dims"))
    if expr.op == "broadcast":
        return "broadcast", tuple(expr.option("is_broadcast_dim"))
    if expr.op == "squeeze" and not expr.option("squeeze_expanded"):
        return "squeeze", tuple(expr.option("dims"))
    if expr.op == "reshape":
        extents = [_extent(size) for size in expr.option("new_shape")]
        return None if None in extents else ("reshape", tuple(extents))
    return None


def _extent(size: Scalar) -> _Extent | None:
    """A size as a number, or as an axis of an input; None if it is computed."""
    fusion, root = size.fusion, size.fusion.root(size)
    return fusion.axis_of(root, fusion.inputs) if root.value is None else int(root.value)


def returned(fusion: Fusion) -> dict[TensorView, InputView]:
    """The outputs that a run gives back as views of inputs: neither they nor their inputs are written."""
    targets = {output.alias for output in fusion.outputs}
    written = {output.tensor for output in fusion.outputs if output.alias is not None}
    found = {output.tensor: _view_of(output.tensor) for output in fusion.outputs if output.tensor not in written}
    return {x: view for x, view in found.items() if view is not None and view.source not in targets}
