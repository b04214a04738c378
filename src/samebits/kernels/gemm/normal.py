"""Equal forms of a contraction: fewer batch dimensions, more rows, strides of extents of one made plain.

`normal` is exact: it changes which loop an element belongs to, never its arithmetic. Start there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from samebits.frozen import replace
from samebits.kernels.gemm.contraction import Contraction, Matrix, Panels, Shared, Side

A_SCALE = "a_scale"
_Strided = Matrix | Panels
_Operand = TypeVar("_Operand", bound=Matrix | Panels)


def normal(c: Contraction) -> Contraction:
    """c with batch extents of 1 dropped, neighbours merged, the last batch dimension folded into M where it can be."""
    if 1 in c.batch:
        c = _keep(c, [d for d, extent in enumerate(c.batch) if extent != 1])
    while c.batch and _rows_continue(c):
        extent, m = c.batch[-1], c.m
        if m == 1:
            c = _changed(c, lambda x: replace(x, row=x.batch[-1]), lambda x: x)
        c = replace(_keep(c, range(len(c.batch) - 1)), m=m * extent)
    d = len(c.batch) - 2
    while d >= 0:
        if all(x.batch[d] == c.batch[d + 1] * x.batch[d + 1] for x in _strided(c)):
            merged = c.batch[d] * c.batch[d + 1]
            batch = (*c.batch[:d], 1, merged, *c.batch[d + 2 :])
            c = _keep(replace(c, batch=batch), [i for i in range(len(batch)) if i != d])
        d -= 1
    return _plain(c)


def _rows(c: Contraction) -> list[Matrix]:
    """The operands that have the rows of out."""
    blocks = [x.operand for name, x in c.by_block.items() if name == A_SCALE]
    return [c.a.values, *blocks, c.out.values, *(s for s in c.inputs if isinstance(s, Matrix))]


def _right(c: Contraction) -> list[_Strided]:
    """The operands that have the columns of b, and no rows of out."""
    return [c.b.values, *(x.operand for name, x in c.by_block.items() if name != A_SCALE)]


def _strided(c: Contraction) -> list[_Strided]:
    return [*_right(c), *_rows(c)]


def _changed(c: Contraction, rows: Callable[[Matrix], Matrix], right: Callable[[Any], Any]) -> Contraction:
    """c with the operands of `_rows` and of `_right` replaced by what these make of them."""

    def side(x: Side[Any], values: Callable[[Any], Any]) -> Side[Any]:
        def shared(y: Shared | None) -> Shared | None:
            return y and replace(y, operand=(values if y.is_by_block else rows)(y.operand))

        if x.is_bare:
            return Side(values(x.values), quantised_from=x.quantised_from)
        scale, zero, both = shared(x.scale), shared(x.zero), shared(x.global_scale)
        return Side(values(x.values), scale, zero, both, x.quantised_from)

    sources = tuple([rows(s) if isinstance(s, Matrix) else s for s in c.sources])
    return replace(c, a=side(c.a, rows), b=side(c.b, right), out=side(c.out, rows), sources=sources)


def _keep(c: Contraction, dimensions: Sequence[int]) -> Contraction:
    """Only these batch dimensions."""
    if len(dimensions) == len(c.batch):
        return c

    def some(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([values[d] for d in dimensions]) if dimensions else ()

    def kept(x: _Operand) -> _Operand:
        return replace(x, batch=some(x.batch))

    return _changed(replace(c, batch=some(c.batch)), kept, kept)


def _rows_continue(c: Contraction) -> bool:
    """Whether the last batch dimension only adds rows: b repeats, and everything else steps on as its rows do."""
    if c.a.scale is not None and c.a.scale.lines > 1:
        return False  # blocks of rows end with the batch
    repeats = all(x.batch[-1] == 0 for x in _right(c))
    return repeats and all(c.m == 1 or x.batch[-1] == c.m * x.row for x in _rows(c))


def _plain(c: Contraction) -> Contraction:
    """A stride that is never taken becomes the one that reads best."""

    def side(x: Side[Any]) -> Side[Any]:
        return replace(x, values=replace(x.values, column=1)) if isinstance(x.values, Matrix) else x

    def shared(x: Shared | None) -> Shared | None:
        return replace(x, operand=replace(x.operand, column=1)) if x and x.is_by_block else x

    if c.k == 1:
        c = replace(c, a=side(c.a))
    if c.n == 1:
        b = replace(side(c.b), scale=shared(c.b.scale), zero=shared(c.b.zero))
        c = replace(c, b=b, out=side(c.out))
    return c
