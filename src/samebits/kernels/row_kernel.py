"""The steps of one kernel along rows: tables that are filled before it, groups of rows, and its rooms in scratch.

Rows of a group are reduced before any of them is stored, so a group is as many rows as the first-level cache holds, or
the second where rows are long and share an input. Start at `plan`; the text is `reduce_text`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.dtypes import float32
from samebits.frozen import dataclass
from samebits.kernels import code_tables, convert, exact_blocks, fold
from samebits.kernels.expression import REDUCTIONS, Expression, with_arguments
from samebits.kernels.passes import Pass, passes, uniform
from samebits.kernels.plan import Operand, Step, in_lines
from samebits.kernels.reduce_text import ReduceText, text
from samebits.kernels.walk import Walk

# Elements of one task, in whole rows: microseconds of work, so that threads can share it.
TASK = 8192
# Vectors are stored to scratch whole, so a kept row has room for one more of the widest.
_PADDING = 64
# Most rows of a group, and elements of each that are stored in turn, where rows are long and share an input: a group
# lies in the second cache.
_SPANNED, _SPAN = 16, 1024
# Bytes that the rows of a group may take of the first-level data cache (32 KB on the smallest machines), where the rows
# of the next group are being brought meanwhile.
_CACHE = 16384


@dataclass(frozen=True, slots=True)
class WalkedRows:
    """What one kernel does.

    Attributes:
        expression: What to compute.
        way: The walk over rows, and along them.
        fixed: Inputs of one element, which all of the whole shape repeats.
        across: Of each input whether its shape says an extent for an axis that stays, even if it is 1.
        isa: The instruction set.
        threads: How many share the rows.
    """

    expression: Expression
    way: Walk
    fixed: tuple[int, ...]
    across: tuple[bool, ...]
    isa: Isa
    threads: int

    @property
    def n(self) -> int:
        """Elements of a row."""
        return self.way.inner.extent


@dataclass(frozen=True, slots=True)
class RowSteps:
    """Steps, the bytes of scratch and of workspace that they need, and what there is to say of tables that they look
    values up in."""

    steps: tuple[Step, ...]
    scratch_bytes: int
    workspace_bytes: int
    facts: tuple[tuple[str, str], ...]


def plan(rows: WalkedRows, places: Sequence[Operand], workspace: Operand) -> RowSteps:
    """The steps on operands at `places`; `workspace`: where what the kernel is prepared with may lie."""
    way, isa, n = rows.way, rows.isa, rows.n
    e, numbers = with_arguments(rows.expression)
    e, tables = code_tables.split(e, way.classes, rows.fixed, way.rows * n)
    filled, looked_up, used = list[Step](), dict[str, Operand](), 0
    for table in tables:
        place = looked_up[f"table{table.value}"] = workspace.behind(used)
        used += in_lines(table.size_bytes)
        filled.append(code_tables.step(table, numbers, places, place, isa))
    found, said = passes(e, uniform(e, way.classes)), [("looked up", str(table)) for table in tables]
    exact = exact_blocks.chosen(e, tables, found, way.classes, n, isa)
    if exact is not None:
        unit = looked_up[exact_blocks.UNIT] = workspace.behind(used)
        used += in_lines(float32.size_bytes)
        filled.append(exact_blocks.probe(looked_up[f"table{exact}"], unit, isa))
        said.append(("summed in integers", "blocks of 2048 whose sums nothing rounds"))
    repeated = _repeated(rows, found)
    spanned = bool(repeated) and n > _SPAN
    ordered = any(fold.exact(node).ordered for node in e.nodes if node.op in REDUCTIONS)
    applied = levels(n) if ordered else 1
    description = ReduceText(e, way.classes, way.above, applied, repeated, spanned, exact)
    group = _spanned_group(rows) if spanned else max(_group(way, found), len(repeated) and 2)
    offsets, size = dict[str, int](), 0
    for name, room in rooms(e, found, n, group):
        offsets[name], size = size, size + in_lines(room)
    rows_per_task = max(1, TASK // max(n, 1) // group) * group
    sizes = {
        "rows_per_task": rows_per_task,
        "rows": way.rows,
        "group": group,
        "near": max(1, _CACHE // (4 * max(n, 1))),
        "span": _SPAN,
        "keep_elements": keep_elements(n),
        **numbers,
    }
    spec = KernelSpec(text, description, (*sizes, *offsets, *looked_up, *way.parameters()), isa)
    given = (*sizes.values(), *offsets.values(), *looked_up.values(), *way.arguments(places))
    return RowSteps((*filled, Step(spec, -(-way.rows // rows_per_task), given)), size, used, tuple(said))


def _repeated(rows: WalkedRows, found: Sequence[Pass]) -> tuple[int, ...]:
    """Inputs that vary along the row and are the same for every row, if the last pass stores several rows.

    A weight and a bias are half of what layer norm loads; those of 4096 are 32 KB, more than the first cache holds.
    """
    way = rows.way
    if found[-1].reductions:
        return ()
    # Of one row nothing can be seen to repeat: an input that has no outer axes does, where there are more.
    moves = [across if way.rows == 1 else any(a.strides[k] for a in way.outer) for k, across in enumerate(rows.across)]
    return tuple(k for k, moving in enumerate(moves) if way.inner.strides[k] and not moving)


def _spanned_group(rows: WalkedRows) -> int:
    """As many rows as take turns with a shared input, while every thread has a few groups."""
    fitting = rows.way.rows // (2 * rows.threads) if rows.threads > 1 else _SPANNED
    return max(g for g in (2, 4, 8, _SPANNED) if g == 2 or g <= fitting)


def _group(way: Walk, found: Sequence[Pass]) -> int:
    """As many rows as stay in the first-level cache from one pass to the next; two at least of several passes, so that
    the end of a sum overlaps with the next."""
    if len(found) == 1:
        return 1
    n = way.inner.extent
    own = [k for k, stride in enumerate(way.inner.strides) if stride and any(a.strides[k] for a in way.outer)]
    streams = len(own) + sum(len(a_pass.keeps) for a_pass in found)
    fitting = _CACHE // (4 * max(n, 1) * max(streams, 1))
    return max(g for g in (1, 2, 4, 8, 16) if g == 1 or g <= fitting or (g == 2 and n <= _SPAN))


def keep_elements(n: int) -> int:
    """The room, in elements, of a row of n that is kept in scratch."""
    return -(-(n + _PADDING) // _PADDING) * _PADDING


def rooms(e: Expression, found: Sequence[Pass], n: int, group: int) -> Iterator[tuple[str, int]]:
    """The rooms in scratch that passes over groups of rows of n ask for by name, and their bytes."""
    for k in sorted({k for a_pass in found for k in a_pass.keeps}):
        yield f"keep{k}", group * keep_elements(n) * convert.stored(e.dtype(k)).size_bytes
    for k in sorted({k for a_pass in found for k in a_pass.reductions}):
        yield f"result{k}", group * e.dtype(k).size_bytes
    # A maximum or minimum has two accumulators.
    for j in range(max([2 * len(a_pass.reductions) for a_pass in found], default=0)):
        yield f"partial{j}", -(-n // fold.BLOCK) * 8


def levels(n: int) -> int:
    """How often the sum rule is applied to n elements."""
    return 1 if n <= fold.BLOCK else 1 + levels(-(-n // fold.BLOCK))
