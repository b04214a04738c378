"""Let a value lie in memory the way its readers want it.

requires: every node is needed.   ensures: a computed value that is only read through one transposition lies in the
transposed order, so that the reshape behind it is a view too. Start at `choose_orders`.
"""

from __future__ import annotations

from samebits.frozen import replace
from samebits.operations.views import Transpose
from samebits.program.graph import Program

__all__ = ["choose_orders"]


def choose_orders(program: Program) -> Program:
    """Every computed value in its readers' order where they agree on one."""
    facts = dict(program.facts)
    for node in program.nodes:
        if node.row.view:
            (facts[node.outputs[0]],) = node.inferred(facts)
            continue
        for name in node.outputs if node.row.any_order else ():
            readers = program.users[name]
            orders = {reader.attributes for reader in readers}
            if len(orders) != 1 or name in program.outputs:
                continue
            (wanted,) = orders
            if isinstance(wanted, Transpose):
                # Row-major after the transposition: the first axis of the result varies slowest.
                facts[name] = replace(facts[name], stride_order=wanted.order)
    return program.replace(program.nodes, facts)
