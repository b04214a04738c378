"""The epilogue: what happens to t after the last chunk, on a microtile that is still in the first cache.

Sources have one of four classes by their column stride: a full row, a value a row, anything else, or an immediate.
With no expression the function only moves a finished tile out of scratch.
"""

from __future__ import annotations

from typing import Any

from samebits.codegen.vocabulary import Builder, Function, Index, Pointer, Vector
from samebits.dtypes import DType, float32
from samebits.kernels import values
from samebits.kernels.expression import Expression
from samebits.kernels.gemm.contraction import Immediate, Source

ROW, REPEATED, STRIDED, IMMEDIATE = "row", "repeated", "strided", "immediate"


def source_class(source: Source) -> str:
    """How a source is read along N."""
    if isinstance(source, Immediate):
        return IMMEDIATE
    return {0: REPEATED, 1: ROW}.get(source.column, STRIDED)


def emit(
    b: Builder, expression: Expression | None, sources: tuple[str, ...], out: str, out_dtype: DType, nr: int
) -> Function:
    """A function `(t, t_step, out, out_row, out_column, rows, columns, [source, row, column]...)`."""

    def vector(
        t: Pointer, t_step: Index, out_p: Pointer, out_row: Index, out_column: Index, i: Index, j: Index,
        count: Index | None, inputs: tuple[Any, ...],
    ) -> None:  # fmt: skip
        x = b.load(t, i * t_step + j, nr, count)
        if expression is not None:
            vectors = [x]
            for n, kind in enumerate(sources):
                p, row, column = inputs[3 * n : 3 * n + 3]
                vectors.append(_read(b, kind, p, i * row + j * column, column, nr, count))
            (x,) = values.emit(b, expression, vectors, nr)
        if out == ROW:
            b.store(out_p, i * out_row + j, x, count)
        else:
            b.store_strided(out_p, i * out_row + j * out_column, out_column, x, count)

    def body(
        t: Pointer, t_step: Index, out_p: Pointer, out_row: Index, out_column: Index, rows: Index, columns: Index,
        *inputs: Any,
    ) -> None:  # fmt: skip
        whole = columns // nr * nr
        for i in b.loop(0, rows):
            for j in b.loop(0, whole, nr):
                vector(t, t_step, out_p, out_row, out_column, i, j, None, inputs)
            for _ in b.when(whole < columns):
                vector(t, t_step, out_p, out_row, out_column, i, whole, columns - whole, inputs)

    parameters: list[DType | None] = [float32, None, out_dtype, None, None, None, None]
    for i in range(len(sources)):
        assert expression is not None  # sources are its inputs
        parameters += [expression.inputs[i + 1], None, None]
    return b.function("finish", parameters, body)


def _read(b: Builder, kind: str, p: Pointer, at: Index, column: Index, nr: int, count: Index | None) -> Vector:
    if kind == ROW:
        return b.load(p, at, nr, count)
    if kind == STRIDED:
        return b.load_strided(p, at, column, nr, count)
    return b.splat(b.load(p, at, 1), nr)
