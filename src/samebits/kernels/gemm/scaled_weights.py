"""Weights of a byte or two each packed with the scales of their blocks: `engine.WEIGHTS`, and scales behind.

The scales lie where kernels read them, float32 [panel][block][column], so a product has no step for them: it is that of
the panels alone with an operand more, whose memory is part of b's. Start at `plan`; `panels.plan_pack` makes them.
"""

from __future__ import annotations

from collections.abc import Callable

from samebits.frozen import replace
from samebits.kernels.gemm.contraction import Contraction, Matrix, Panels, Shared
from samebits.kernels.gemm.engine import WEIGHT_NAMES, named
from samebits.kernels.gemm.packed import scales_at
from samebits.kernels.plan import Operand, Plan


def holds(panels: Panels | Matrix) -> bool:
    """Whether these are such panels."""
    return isinstance(panels, Panels) and panels.block > 0 and panels.engine in WEIGHT_NAMES


def plan(c: Contraction, again: Callable[[Contraction], Plan]) -> Plan:
    """How a product with such panels runs; `again` plans another contraction."""
    panels = c.b.values
    assert isinstance(panels, Panels)  # the caller looked
    scale = Shared(Matrix(panels.nr, 1, (0,) * len(c.batch)), panels.block, in_panels=True)
    values = replace(panels, block=0, scale=None)
    inner = again(replace(c, b=replace(c.b, values=values, scale=scale)))
    places = {name: Operand(i) for i, name in enumerate(c.operands)}
    places["b_scale"] = Operand(1, scales_at(c.k, c.n, panels.nr, named(panels.engine)))
    moved = [*(places[name] for name in inner.operands), Operand(len(c.operands))]
    steps = tuple(step.on(*moved) for step in inner.steps)
    return replace(inner, what=str(c), steps=steps, operands=c.operands)
