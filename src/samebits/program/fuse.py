"""Join per-element work with what is before or after it: maps with maps, with row expressions, with products.

requires: scalars are in expressions, no two nodes are equal.   ensures: maps are maximal: none reads a map that nothing
else reads, of its own shape, unless both together are too large. Every value keeps the rounding it had alone
(numerics.md section 11); a value is never computed twice, so only one that has a single reader and the reader's shape
moves, or scales of blocks, of which rows decode each once. Start at `fuse_maps`.
"""

from __future__ import annotations

from collections.abc import Callable

from samebits import dtypes
from samebits.frozen import replace
from samebits.kernels.walk import BLOCKS
from samebits.operations import dim
from samebits.operations.convolution import Convolution
from samebits.operations.dim import SymbolicShape
from samebits.operations.elementwise import Map
from samebits.operations.matmul import MatrixProduct
from samebits.operations.rows import RowWise, row_extents
from samebits.program.compose import Applied, itself, join
from samebits.program.fold import static_values
from samebits.program.graph import Node, Program

__all__ = [
    "LARGEST", "MOST_READ", "excess", "expression_size",
    "fuse_after_products", "fuse_after_rows", "fuse_before_rows", "fuse_constant_maps",
    "fuse_maps", "joined_origin",
]  # fmt: skip

_PRODUCT = ""
# Nodes of a joined expression: beyond it nothing is left to gain, and kernels take ever longer to compile.
LARGEST = 96
# Operands of a joined expression, for the same reason: a text with 32 steps of gathered lanes takes LLVM a second, one
# with 100 takes it six.
MOST_READ = 32
# Extents of a last axis that is a block of which a kernel of codes reads one scale.
_BLOCKS = [(size,) for size in BLOCKS]


def fuse_maps(program: Program) -> Program:
    """A map joins the map that reads it."""
    return _fuse(program, "map", "map", _joined_maps)


def fuse_constant_maps(program: Program) -> Program:
    """A map of constants joins the map that reads it: folding then needs no array between the two."""
    static = static_values(program)
    if static == program.constants.keys():
        return program

    def joined(program: Program, first: Node, second: Node) -> Node | None:
        return _joined_maps(program, first, second) if static.issuperset(second.outputs) else None

    return _fuse(program, "map", "map", joined)


def fuse_after_rows(program: Program) -> Program:
    """A map joins the row expression that it reads."""
    return _fuse(program, "rows", "map", _joined_rows)


def fuse_before_rows(program: Program) -> Program:
    """A map joins the row expression that reads it."""
    return _fuse(program, "map", "rows", _joined_rows)


def fuse_after_products(program: Program) -> Program:
    """A float32 map joins the epilogue of the product, or convolution, that it reads."""
    return _fuse(_fuse(program, "contract", "map", _joined_product), "convolve", "map", _joined_product)


def _fuse(program: Program, first: str, second: str, joined: Callable[[Program, Node, Node], Node | None]) -> Program:
    """Join every `second` with the `first` nodes that it alone reads, as long as that leaves every shape as it is."""
    if not {first, second} <= {node.operation for node in program.nodes}:
        return program
    static = static_values(program)
    alone = {name for name, users in program.users.items() if len(users) == 1} - set(program.outputs)
    current = {output: node for node in program.nodes for output in node.outputs}
    gone: set[str] = set()
    for node in program.nodes:
        while node.operation == second:
            for name in node.inputs:
                producer = current.get(name)
                if producer is None or producer.operation != first or not alone.issuperset(producer.outputs):
                    continue
                if static.issuperset(producer.outputs) and not static.issuperset(node.outputs):
                    continue
                # With several outputs all of them must go to this reader.
                if not set(node.inputs).issuperset(producer.outputs):
                    continue
                if excess(producer, node):
                    continue
                made = joined(program, producer, node)
                if made is not None and _keeps_shapes(program, made):
                    gone.update(producer.outputs)
                    current.update(dict.fromkeys(made.outputs, made))
                    node = made
                    break
            else:
                break
    nodes: list[Node] = []
    seen: set[str] = set()
    for node in program.nodes:
        kept = current[node.outputs[0]]
        if node.outputs[0] not in gone and node.outputs[0] not in seen:
            nodes.append(kept)
            seen.update(kept.outputs)
    return program.replace(nodes)


def excess(first: Node, second: Node) -> str:
    """Why a kernel of both would take too long to compile; nothing where it would not."""
    if expression_size(first) + expression_size(second) > LARGEST:
        return f"together they are more than {LARGEST} operations"
    if len({*first.inputs, *second.inputs} - {*first.outputs}) > MOST_READ:
        return f"together they read more than {MOST_READ} operands"
    return ""


def expression_size(node: Node) -> int:
    """How many nodes its expression has."""
    attributes = node.attributes
    expression = (
        attributes.epilogue
        if isinstance(attributes, MatrixProduct | Convolution)
        else getattr(attributes, "expression", None)
    )
    return len(expression.nodes) if expression is not None else 0


def _keeps_shapes(program: Program, node: Node) -> bool:
    """Whether the joined node gives the shapes and formats that its second part gave; maps always do."""
    if node.operation == "map":
        return True
    return all(
        fact.shape == program.facts[name].shape and fact.dtype is program.facts[name].dtype
        for fact, name in zip(node.inferred(program.facts), node.outputs, strict=True)
    )


def _joined_maps(program: Program, first: Node, second: Node) -> Node | None:
    assert isinstance(first.attributes, Map) and isinstance(second.attributes, Map)  # the caller chose by operation
    whole = program.facts[second.outputs[0]].shape
    if program.facts[first.outputs[0]].shape != whole:
        reads_codes = any(dtype.width_bits == 4 for dtype in second.attributes.expression.inputs)
        if not reads_codes or whole[-1:] not in _BLOCKS or not _decodes_scales(program, first, whole):
            return None
    both = join(
        Applied(first.attributes.expression, first.inputs, first.outputs),
        Applied(second.attributes.expression, second.inputs, second.outputs),
        keep=(),
    )
    return Node("map", both.inputs, both.outputs, Map(both.expression), joined_origin(first, second))


def _joined_rows(program: Program, first: Node, second: Node) -> Node | None:
    attributes = first.attributes if isinstance(first.attributes, RowWise) else second.attributes
    assert isinstance(attributes, RowWise)  # one of the two is, by operation
    shapes = {program.facts[name].shape for name in (*first.outputs, *second.outputs)}
    if isinstance(first.attributes, RowWise) and len(shapes) != 1:
        return None
    is_before = isinstance(first.attributes, Map)
    if is_before and not _is_whole(program, first, second):
        whole, _ = row_extents([program.facts[name].shape for name in second.inputs], attributes.axes)
        if -1 not in attributes.axes or not _decodes_scales(program, first, whole):
            return None
    expressions = []
    for node in (first, second):
        assert isinstance(node.attributes, Map | RowWise)  # as above
        expressions.append(Applied(node.attributes.expression, node.inputs, node.outputs))
    both = join(expressions[0], expressions[1], keep=())
    return Node(
        "rows", both.inputs, both.outputs, replace(attributes, expression=both.expression), joined_origin(first, second)
    )


def _is_whole(program: Program, first: Node, second: Node) -> bool:
    """Whether the map has one element for each element of the rows: then none of its work is repeated."""
    shape = program.facts[first.outputs[0]].shape
    return all(
        len(program.facts[name].shape) <= len(shape) and _broadcasts_into(program, name, shape)
        for name in second.inputs
    )


def _decodes_scales(program: Program, first: Node, whole: SymbolicShape) -> bool:
    """Whether the map only makes float32 of elements of 8 bits of which each is that of a block along the last axis of
    what another node walks over: that looks one up once a block."""
    assert isinstance(first.attributes, Map)  # the caller chose by operation
    expression, shape = first.attributes.expression, program.facts[first.outputs[0]].shape
    if len(expression.nodes) != 1 or len(expression.inputs) != 1 or not shape or shape[-1] != 1:
        return False
    (node,), (source,) = expression.nodes, expression.inputs
    is_decoding = node.op == "cast" and not node.attribute and node.dtype is dtypes.float32
    return (
        is_decoding and source.is_float and source.width_bits == 8 and len(shape) == len(whole)
        and shape[:-1] == whole[:-1] and whole[-1] != 1
    )  # fmt: skip


def _broadcasts_into(program: Program, name: str, shape: tuple[object, ...]) -> bool:
    """Whether a value broadcasts into `shape`, axis by axis."""
    own = program.facts[name].shape
    return all(size in (1, extent) for size, extent in zip(own, shape[len(shape) - len(own) :], strict=True))


def _joined_product(program: Program, first: Node, second: Node) -> Node | None:
    assert isinstance(first.attributes, MatrixProduct | Convolution) and isinstance(second.attributes, Map)  # as above
    expression = second.attributes.expression
    if isinstance(first.attributes, Convolution) and not _joins_convolution(program, first, second):
        return None
    if len(second.outputs) != 1 or program.facts[second.outputs[0]].shape != program.facts[first.outputs[0]].shape:
        return None
    if {*expression.inputs, expression.dtype(expression.outputs[0])} != {dtypes.float32}:
        return None
    epilogue, count = first.attributes.epilogue or itself(dtypes.float32), len(first.attributes.names)
    both = join(
        Applied(epilogue, (_PRODUCT, *first.inputs[count:]), first.outputs),
        Applied(expression, second.inputs, second.outputs),
        keep=(),
    )
    inputs = (*first.inputs[:count], *both.inputs[1:])
    attributes = replace(first.attributes, epilogue=both.expression)
    return Node(first.operation, inputs, both.outputs, attributes, joined_origin(first, second))


def _joins_convolution(program: Program, first: Node, second: Node) -> bool:
    """Whether what else the map reads has an element for all windows of an image or one for each, and a convolution is
    no map itself."""
    attributes = first.attributes
    assert isinstance(attributes, Convolution)  # the caller looked
    weights, rank = program.facts[first.inputs[1]].shape, len(attributes.out)
    shapes = [program.facts[name].shape[-rank:] for name in second.inputs if name not in first.outputs]
    is_whole = all(shape in ((), (1,) * rank, attributes.out) for shape in shapes)
    return is_whole and not attributes.is_map(dim.bind_shape(weights, {}))


def joined_origin(first: Node, second: Node) -> tuple[str, ...]:
    """The nodes of the model that two nodes stand for, each once."""
    return tuple(dict.fromkeys((*first.origin, *second.origin)))
