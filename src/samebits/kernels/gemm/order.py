"""Orders: how the products of one chunk of K become a sum, one frozen row each (numerics.md section 2).

A `contraction.Spec` names a row; chunks and segments are the same in all. Products whose blocks have scales (section 4)
and exact integers know no order. How a row is added: docs/how-to-add-an-order.md. Start at `ORDERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from samebits.frozen import dataclass


@dataclass(frozen=True, slots=True)
class SumOrder:
    """A chunk is `acc := +0`, then `acc := acc + s` for the sum s of each block of it, ascending.

    Attributes:
        name: As `Spec(order=...)` takes it.
        chunk: Elements of a chunk where a `Spec` says nothing.
        block: Elements along K of a block, counted from the chunk's beginning; the last one may be short, and chunks
            are a multiple. 0: the chunk is one block, and acc its sum.
        chains: Fma chains from +0 that a block has, chain i over elements i, i + chains, ... ascending; their sum is s.
    """

    name: str
    chunk: int
    block: int = 0
    chains: int = 1

    def __hash__(self) -> int:
        return hash(self.name)  # a part of the keys that kernels' functions are found by


CHAIN = SumOrder("sb1", 128)
# What TDPBF16PS adds to an element. In chunks of 512 AMX multiplies at 1,900 GFLOP/s a core (128: 1,680, 256: 1,825,
# one chunk: 1,970), and no other chunk errs less on long K (root mean square over sum |a b|, in 2^-24, of normal and of
# positive operands at K = 4096: 128 0.057 1.47, 256 0.051 1.11, 512 0.051 0.91, one 0.091 3.03; sb1 0.095 1.58).
PAIRS32 = SumOrder("pairs32", 512, 32, 2)
ROWS: tuple[SumOrder, ...] = (CHAIN, PAIRS32)
ORDERS: Mapping[str, SumOrder] = MappingProxyType({row.name: row for row in ROWS})
