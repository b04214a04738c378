"""Batch dimensions in kernel text: which arguments they take, and where the operands of one batch start.

Two is the least that a kernel knows, so that products without a batch share its kernels: a dimension that is not there
has one element, and costs a division a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from samebits.codegen.vocabulary import Builder, Index, Pointer
from samebits.dtypes import DType
from samebits.kernels.plan import Operand

_LEAST = 2


def rank(extents: Sequence[int]) -> int:
    """Batch dimensions of a kernel for a product with these."""
    return max(_LEAST, len(extents))


def parameters(rank: int, operands: Iterable[str]) -> list[str]:
    """For each dimension its extent `batch0` and each operand's stride `x_batch0`."""
    names = list(operands)
    return [name for d in range(rank) for name in (f"batch{d}", *(f"{x}_batch{d}" for x in names))]


def arguments(extents: Sequence[int], strides: Mapping[str, Sequence[int]]) -> dict[str, int | Operand]:
    """The values of `parameters` of `rank(extents)`."""
    found: dict[str, int | Operand] = {}
    missing = rank(extents) - len(extents)
    for d, extent in enumerate((*[1] * missing, *extents)):
        found[f"batch{d}"] = extent
        found |= {f"{x}_batch{d}": steps[d - missing] if d >= missing else 0 for x, steps in strides.items()}
    return found


def moved(b: Builder, rank: int, number: Index, operands: Mapping[str, DType]) -> dict[str, Pointer]:
    """The operands of batch `number`; batch dimensions count row-major."""
    at: dict[str, Index] = dict.fromkeys(operands, 0)
    for d in reversed(range(rank)):
        extent = b.index(f"batch{d}")
        i, number = number % extent, number // extent
        for x in operands:
            at[x] = at[x] + i * b.index(f"{x}_batch{d}")
    return {x: b.offset(b.pointer(x, dtype), at[x]) for x, dtype in operands.items()}
