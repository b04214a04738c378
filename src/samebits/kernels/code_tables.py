"""A chain that depends on codes alone is a table: what it gives for every code is computed once, and then looked up.

An element of four bits, with or without the scale of eight bits that its block has, takes few values: whatever a chain
makes of the two and of what is the same for all elements is one of 16 or of 4,096 numbers, in the first cache. A kernel
that comes before computes them by the text of the chain itself, so the bits are those of computing each where it is
met. Sixteen elements of a scale are then one row of the table, which `Builder.lookup_at` permutes. Start at `split`,
which cuts an expression; `text` is the kernel that fills a table, `looked_up` what other kernels make of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Index, KernelSpec, Vector
from samebits.dtypes import DType, float32, uint8, uint32
from samebits.frozen import dataclass
from samebits.kernels import convert, values
from samebits.kernels.expression import LEAVES, REDUCTIONS, TABLE, Expression, Term
from samebits.kernels.passes import needed
from samebits.kernels.plan import Operand, Step
from samebits.kernels.walk import NIBBLES, Cursor, block_of

# Codes of an element, which one scale has a row for, and of a scale.
ENTRIES, SCALES = 16, 256
# Elements from which on a table is filled: in the time that it takes, so many are computed where they are met.
WORTH = 1 << 17
# Tables of one kernel: more would fill the first cache.
_TABLES = 2
# Rows of a table that a task fills.
_ROWS = 32


@dataclass(frozen=True, slots=True)
class CodeTable:
    """What a chain gives for every code.

    Attributes:
        expression: The chain; its inputs are numbered as those of the expression that it was cut out of.
        codes: The input of four bits.
        scales: The input of eight bits that has an element a block; None where the chain reads none.
        fixed: Inputs that are one number, which the chain reads too.
    """

    expression: Expression
    codes: int
    scales: int | None
    fixed: tuple[int, ...]

    @property
    def value(self) -> int:
        """The number of the value that is looked up, in the expression that the chain was cut out of."""
        (value,) = self.expression.outputs
        return value

    @property
    def dtype(self) -> DType:
        """That of the value."""
        return self.expression.dtype(self.value)

    @property
    def rows(self) -> int:
        """One for each code of the scale."""
        return 1 if self.scales is None else SCALES

    @property
    def size_bytes(self) -> int:
        """Bytes of the table."""
        return self.rows * ENTRIES * held(self.dtype).size_bytes

    def __str__(self) -> str:
        inputs = f"input {self.codes}" if self.scales is None else f"inputs {self.codes} and {self.scales}"
        return f"{self.rows * ENTRIES} {self.dtype.name} of the codes of {inputs}"


def split(
    e: Expression, classes: Sequence[str], fixed: Sequence[int], elements: int
) -> tuple[Expression, tuple[CodeTable, ...]]:
    """The expression with nodes `table` in place of chains that depend on codes alone, and those chains.

    Args:    classes: how operands lie along a row (walk.Walk.classes).   fixed: inputs that are one number.
             elements: how many the expression is computed for.
    """
    found: list[CodeTable] = []
    inputs = [k for k, dtype in enumerate(e.inputs) if dtype.width_bits == 4 and k not in fixed]
    for k in inputs if elements >= WORTH else ():
        table = _table(e, k, classes, fixed)
        if table is not None and len(found) < _TABLES:
            found.append(table)
    nodes, first = list(e.nodes), len(e.inputs)
    for table in found:
        read = (table.codes,) if table.scales is None else (table.codes, table.scales)
        nodes[table.value - first] = Term(TABLE, read, table.dtype)
    return (Expression(e.inputs, tuple(nodes), e.outputs) if found else e), tuple(found)


def _table(e: Expression, codes: int, classes: Sequence[str], fixed: Sequence[int]) -> CodeTable | None:
    """The last value that is one of a table, and by which everything else is made of these codes; None if computing it
    is no more than a conversion."""
    first = len(e.inputs)
    read = [frozenset[int]() if k in fixed else frozenset({k}) for k in range(first)]
    known = [True] * first
    for node in e.nodes:
        read.append(frozenset().union(*(read[k] for k in node.arguments)))
        known.append(node.op not in (*REDUCTIONS, "count") and all(known[k] for k in node.arguments))
    targets = [*e.outputs, *(e.nodes[k].arguments[0] for k, node in enumerate(e.nodes) if node.op in REDUCTIONS)]
    none_uniform = [False] * len(read)
    for k in reversed(range(first, len(read))):
        if not known[k] or codes not in read[k] or not _fits(e, k, read[k] - {codes}, classes):
            continue
        if codes in needed(e, none_uniform, targets, {k}):
            continue
        chain = Expression(e.inputs, e.nodes[: k - first + 1], (k,))
        used = set(needed(chain, none_uniform, (k,)))
        if sum(x >= first and e.nodes[x - first].op not in LEAVES for x in used) < 2:
            return None
        (scales,) = read[k] - {codes} or (None,)
        return CodeTable(chain, codes, scales, tuple(sorted(used & set(fixed))))
    return None


def _fits(e: Expression, k: int, others: frozenset[int], classes: Sequence[str]) -> bool:
    """Whether a value has at most 32 bits, in whole bytes, and is made of no input, or a scale, beside the codes."""
    dtype = e.dtype(k)
    if dtype.kind == "bool" or dtype.width_bits not in (8, 16, 32) or len(others) > 1:
        return False
    return all(e.inputs[x].width_bits == 8 and is_row_of(classes[x]) for x in others)


def is_row_of(lies: str) -> bool:
    """Whether an input of that class has one element for all that a row of a table is for."""
    return block_of(lies) >= ENTRIES


def step(table: CodeTable, numbers: Mapping[str, int], places: Sequence[Operand], room: Operand, isa: Isa) -> Step:
    """The step that fills a table.

    Args:    numbers: arguments that the chain reads, by name.   places: the inputs.   room: where the table lies.
    """
    names = [f"x{k}" for k in table.fixed]
    spec = KernelSpec(text, table, ("table", *names, *numbers), isa)
    return Step(spec, -(-table.rows // _ROWS), (room, *(places[k] for k in table.fixed), *numbers.values()))


def text(b: Builder, d: CodeTable) -> None:
    """A task is some rows."""
    e = d.expression
    start = b.pointer("table", held(d.dtype))
    element = b.bitcast(b.iota(uint8, ENTRIES), e.inputs[d.codes])
    given = {k: b.splat(b.load(b.pointer(f"x{k}", e.inputs[k]), 0, 1), ENTRIES) for k in d.fixed}
    for task in b.tasks():
        for r in b.loop(task * _ROWS, b.min((task + 1) * _ROWS, d.rows)):

            def load(k: int, r: object = r) -> Vector:
                if k in given:
                    return given[k]
                if k == d.codes:
                    return element
                code = b.convert(b.from_index(r, uint32), uint8)
                return b.bitcast(b.splat(code, ENTRIES), e.inputs[k])

            found = values.Values(b, e, ENTRIES, load).stored(d.value)
            if held(d.dtype) is not d.dtype:
                found = b.convert(b.bitcast(found, convert.stored(d.dtype)), uint32)
            b.store(start, r * ENTRIES, found)


def held(dtype: DType) -> DType:
    """What values are in a table: themselves if they have 32 bits, else their codes with zeros above."""
    return dtype if dtype.width_bits == uint32.width_bits else uint32


def looked_up(
    cursor: Cursor, e: Expression, k: int, i: Index, width: int, count: Index | None, paired: bool = False
) -> Vector:
    """Node k, a `table`, at positions i .. i+width-1 of a row (the first `count` of them), in the order of
    `walk.PAIRED` if `paired`: by the codes of elements, sixteen at a time, and of their blocks."""
    node, b = e.node(k), cursor.b
    assert node is not None  # it is a table
    codes, *scales = node.arguments
    table = b.pointer(f"table{k}", held(node.dtype))
    if cursor.classes[codes] == NIBBLES and count is None and width % 8 == 0:
        index = cursor.load_nibbles(codes, i, width, paired)
    else:
        index = b.convert(b.bitcast(cursor.load(codes, i, width, count), uint8), uint32)
    # Where neither vectors divide rows of a table nor rows vectors, each lane has its own.
    step, parts = math.gcd(width, ENTRIES), []
    for lane in range(0, width, step):
        row = 0
        for scale in scales:
            row = cursor.block_code(scale, i + lane, count)
        parts.append(b.lookup_at(table, row * ENTRIES, b.slice(index, lane, step)))
    found = b.concat(parts)
    if held(node.dtype) is node.dtype:
        return found
    return b.bitcast(b.convert(found, convert.stored(node.dtype)), node.dtype)


def tables(e: Expression) -> tuple[int, ...]:
    """The nodes that are looked up by codes."""
    return tuple([len(e.inputs) + j for j, node in enumerate(e.nodes) if node.op == TABLE])


def decoded(e: Expression, classes: Sequence[str]) -> dict[int, int]:
    """Casts to float32 of elements of 8 bits that blocks have, and the inputs: one is looked up once for its block."""
    found = {}
    for k, node in enumerate(e.nodes, len(e.inputs)):
        if node.op == "cast" and node.dtype is float32 and not node.attribute and node.arguments[0] < len(e.inputs):
            (of,) = node.arguments
            if block_of(classes[of]) and e.inputs[of].is_float and e.inputs[of].width_bits == 8:
                found[k] = of
    return found
