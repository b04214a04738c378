"""Few long rows for many threads: their blocks of 2048 are reduced as rows of their own, then the blocks' results are.

That is the sum rule itself (numerics.md section 6), with a barrier between its levels. Start at `blockwise`.
"""

from __future__ import annotations

from samebits.dtypes import DType
from samebits.kernels import functions
from samebits.kernels.expression import LEAVES, REDUCTIONS, Chain, Expression, ExpressionValue, Term

# Elements below which a row is not worth a second step, and rows a thread that keep it busy without.
_LONG = 1 << 17
_ROWS_A_THREAD = 2


def worth(rows: int, n: int, threads: int) -> bool:
    """Whether blocks of rows are to be shared, not rows."""
    return threads > 1 and n >= _LONG and rows < _ROWS_A_THREAD * threads


def blockwise(e: Expression, n: int) -> Expression:
    """What a block is reduced to: one output for each reduction, of the same inputs."""
    first = len(e.inputs)
    nodes = tuple(count(n, node.dtype) if node.op == "count" else node for node in e.nodes)
    return Expression(e.inputs, nodes, tuple(first + j for j, node in enumerate(nodes) if node.op in REDUCTIONS))


def of_results(e: Expression, n: int) -> tuple[Expression, list[int]]:
    """The outputs from the blocks' results, one input a reduction; and which inputs of `e` follow those."""
    chain, found = Chain(), dict[int, ExpressionValue]()
    for j, node in enumerate(e.nodes):
        if node.op in REDUCTIONS:
            found[len(e.inputs) + j] = chain.input(node.dtype)
    found = {k: chain.apply(_node(e, k).op, partial) for k, partial in found.items()}
    taken = list[int]()

    def value(k: int) -> ExpressionValue:
        if k not in found:
            node = e.node(k)
            if node is None:
                taken.append(k)
                found[k] = chain.input(e.inputs[k])
            elif node.op in LEAVES:
                found[k] = chain.leaf(count(n, node.dtype) if node.op == "count" else node)
            else:
                cast = node.dtype if functions.row(node.op).result == "any" else None
                found[k] = chain.apply(node.op, *map(value, node.arguments), dtype=cast)
        return found[k]

    return chain.finish(*[value(k) for k in e.outputs]), taken


def count(n: int, dtype: DType) -> Term:
    """The constant that a count of n is."""
    chain = Chain()
    return chain.finish(chain.constant(n, dtype)).nodes[0]


def _node(e: Expression, k: int) -> Term:
    node = e.node(k)
    assert node is not None  # k is the number of a node
    return node
