"""Few long rows for many threads: their blocks of 2048 are reduced as rows of their own, then the blocks' results are.

That is the sum rule itself (numerics.md section 6), with a barrier between its levels. Start at `blockwise`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from samebits.dtypes import DType
from samebits.kernels.expression import REDUCTIONS, Chain, Expression, ExpressionValue, Term

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
    found = {k: chain.apply(e.term(k).op, partial) for k, partial in found.items()}
    made, taken = _grown(chain, e, found, e.outputs, (), n)
    return chain.finish(*made), taken


def part(e: Expression, targets: Sequence[int], known: Collection[int], n: int) -> tuple[Expression, list[int]]:
    """An expression of some values of `e`, and what its inputs are: inputs of `e`, or values that are known."""
    chain = Chain()
    made, taken = _grown(chain, e, {}, targets, known, n)
    return chain.finish(*made), taken


def _grown(
    chain: Chain,
    e: Expression,
    found: dict[int, ExpressionValue],
    targets: Sequence[int],
    known: Collection[int],
    n: int,
) -> tuple[list[ExpressionValue], list[int]]:
    """Values of `e` in a chain that has some of them; and what became an input of the chain, in order."""
    taken = list[int]()

    def value(k: int) -> ExpressionValue:
        if k not in found:
            node = e.node(k)
            if node is None or k in known:
                taken.append(k)
                found[k] = chain.input(e.dtype(k))
            else:
                arguments = [value(argument) for argument in node.arguments]
                term = count(n, node.dtype) if node.op == "count" else node
                term = Term(term.op, tuple(range(len(arguments))), term.dtype, term.attribute)
                one = Expression(tuple([x.dtype for x in arguments]), (term,), (len(arguments),))
                (found[k],) = chain.include(one, *arguments)
        return found[k]

    return [value(k) for k in targets], taken


def count(n: int, dtype: DType) -> Term:
    """The number that a count of n is."""
    chain = Chain()
    return chain.finish(chain.number(n, dtype)).nodes[0]
