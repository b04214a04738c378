"""Zero points of integers, exactly (numerics.md section 3), after the product of the elements as they are in the words.

    sum (a - za)(b - zb) = sum a b - zb * sum a - za * sum b + K za zb

where an offset that packing added is a zero point too. An offset of a is taken away where
sums start (`specialised.Macrokernel`), the rest by `corrected`, an epilogue; `row_sums` is the kernel that sums the
rows of a; the sums of b's columns are the facts of its panels.
"""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Index, Pointer
from samebits.dtypes import int32
from samebits.frozen import dataclass
from samebits.kernels.expression import Chain, Expression, ExpressionValue
from samebits.kernels.gemm import batch
from samebits.kernels.gemm.contraction import Contraction
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.words import Words


def corrected(c: Contraction, engine: Engine, words: tuple[Words, Words], summed: tuple[bool, bool]) -> Expression:
    """c's epilogue of the corrected t, with inputs for the sums of a and of b (where `summed`) and for K after its
    own."""
    chain, total = Chain(), engine.total
    own = c.epilogue.inputs[1:] if c.epilogue else ()
    t, *sources = (chain.input(dtype) for dtype in (total, *own))
    points = {name: x for name, x in zip(c.shared, sources, strict=False) if name in ("a_zero", "b_zero")}
    sums = [chain.input(int32) if present else None for present in summed]
    k = chain.input(total)

    def wide(x: ExpressionValue) -> ExpressionValue:
        return x if x.dtype is total else chain.apply("cast", x, dtype=total)

    def zero(side: int) -> ExpressionValue:
        """The zero point of the elements in the words."""
        point, shift = points.get(("a_zero", "b_zero")[side]), chain.constant(words[side].offset, total)
        return shift if point is None else chain.apply("add", wide(point), shift)

    value, (rows, columns) = t, sums
    if rows is not None:
        value = chain.apply("sub", value, chain.apply("mul", zero(1), wide(rows)))
    if columns is not None:
        # Of the offset of a its product is there.
        value = chain.apply("sub", value, chain.apply("mul", wide(points["a_zero"]), wide(columns)))
    if rows is not None and (columns is not None or words[0].offset):
        product = chain.apply("mul", zero(0), zero(1))
        value = chain.apply("add", value, chain.apply("mul", product, k))
    if c.epilogue is not None:
        (value,) = chain.include(c.epilogue, value, *sources)
    return chain.finish(value)


@dataclass(frozen=True, slots=True)
class RowSums:
    """What specialises the text; `kind` is how a is packed."""

    engine: Engine
    words: Words
    kind: str
    batch_rank: int

    @property
    def parameters(self) -> tuple[str, ...]:
        """`row column` strides of a [m, k]; `rows` a task, `blocks` of them a batch."""
        return (
            "x",
            "out",
            "m",
            "k",
            "row",
            "column",
            "rows",
            "blocks",
            *batch.parameters(self.batch_rank, ["x", "out"]),
        )


def row_sums(b: Builder, d: RowSums) -> None:
    """out[batch][m] = sum of x[batch][m, k] over k, of the elements as they are in words; a task is some rows."""
    m, row, column = b.index("m"), b.index("row"), b.index("column")
    lanes, blocks = b.isa.lanes, b.index("blocks")
    for task in b.tasks():
        operands = batch.moved(b, d.batch_rank, task // blocks, {"x": d.words.pointer, "out": int32})
        x, out = operands["x"], operands["out"]
        low = task % blocks * b.index("rows")
        high = b.min(low + b.index("rows"), m)
        if d.kind == "transpose":
            for r in b.loop(low, high, lanes):
                _across(b, d, b.offset(x, r), column, b.offset(out, r), lanes, high - r)
        else:
            for r in b.loop(low, high):
                if d.kind == "copy":
                    _along(b, d, b.offset(x, r * row), b.offset(out, r))
                else:
                    _across(b, d, b.offset(x, r * row), column, b.offset(out, r), 1, None)


def _across(b: Builder, d: RowSums, x: Pointer, step: Index, out: Pointer, width: int, count: Index | None) -> None:
    """The sums of `count` rows side by side."""
    k, depth = b.index("k"), d.words.depth
    total = [b.constant(0, int32, width)]
    whole = k // depth * depth
    for i in b.loop(0, whole, depth, carry=total):
        total[0] = d.engine.sums(b, d.words.across(b, x, i * step, step, width, count), d.engine.a, total[0])
    for _ in b.when(whole < k, carry=total):
        word = d.words.across(b, x, whole * step, step, width, count, k - whole)
        total[0] = d.engine.sums(b, word, d.engine.a, total[0])
    b.store(out, 0, total[0], count)


def _along(b: Builder, d: RowSums, x: Pointer, out: Pointer) -> None:
    """The sum of a row whose elements are side by side."""
    k, depth, lanes = b.index("k"), d.words.depth, b.isa.lanes
    total = [b.constant(0, int32, lanes)]
    steps = k // depth
    whole = steps // lanes * lanes
    for s in b.loop(0, whole, lanes, carry=total):
        total[0] = d.engine.sums(b, d.words.along(b, x, s * depth, lanes), d.engine.a, total[0])
    for _ in b.when(whole < steps, carry=total):
        words = d.words.along(b, x, whole * depth, lanes, steps - whole)
        total[0] = d.engine.sums(b, words, d.engine.a, total[0])
    last = [b.constant(0, int32, 1)]
    if depth > 1:
        for _ in b.when(steps * depth < k, carry=last):
            word = d.words.across(b, x, steps * depth, 1, 1, None, k - steps * depth)
            last[0] = d.engine.sums(b, word, d.engine.a, last[0])
    for lane in range(lanes):
        last[0] = b.add(last[0], b.slice(total[0], lane, 1))
    b.store(out, 0, last[0])
