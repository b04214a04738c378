"""Expression: a chain of per-element operations as one frozen value; the form that elementwise kernels, reductions
over rows and matmul epilogues share.

Values are numbered: 0 .. len(inputs)-1 are the inputs, then one value a node. Operations are rows of
`functions.ROWS`; three node kinds are not: `constant` (attribute `(code,)`: the element's bits as an int, so that
-0 and NaN are keys too), `count` (the row length as float32) and the row reductions `row_sum row_max row_min`,
which only `reduce` accepts. Start at `Expression`.
"""

from __future__ import annotations

from dataclasses import dataclass

from samebits.dtypes import DType


@dataclass(frozen=True, slots=True)
class Node:
    """`op` applied to earlier values; `dtype` is the result's; `attribute` holds plain constants of the op."""

    op: str
    arguments: tuple[int, ...]
    dtype: DType
    attribute: tuple[float | int | bool | str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expression:
    """Inputs by dtype, nodes in order, and which values are the outputs."""

    inputs: tuple[DType, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    def dtype(self, value: int) -> DType:
        """The dtype of a value by its number."""
        n = len(self.inputs)
        return self.inputs[value] if value < n else self.nodes[value - n].dtype
