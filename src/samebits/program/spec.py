"""Another order of sums for every product of a program: it changes bits, is asked for by name, and is in the digest.

requires: nothing.   ensures: every product of floats follows the spec. Start at `by_spec`.
"""

from __future__ import annotations

from samebits.frozen import replace
from samebits.kernels.gemm.contraction import SB1, Spec
from samebits.operations.convolution import Convolution
from samebits.operations.matmul import MatrixProduct
from samebits.program.graph import Node, Program

__all__ = ["by_spec"]


def by_spec(program: Program, spec: Spec) -> Program:
    """The program with its products summed by the spec."""
    if spec == SB1:
        return program
    nodes = tuple([_summed(node, spec) for node in program.nodes])
    return replace(program, nodes=nodes, transforms=(*program.transforms, f"by_spec {spec}"), _digests={})


def _summed(node: Node, spec: Spec) -> Node:
    if isinstance(node.attributes, Convolution):
        return replace(node, attributes=replace(node.attributes, spec=spec))
    if not isinstance(node.attributes, MatrixProduct):
        return node
    options = replace(node.attributes.options, spec=spec)
    return replace(node, attributes=replace(node.attributes, options=options))
