"""Equal forms of a contraction: fewer batch dimensions, more rows, strides of extents of one made plain.

`normal` is exact: it changes which loop an element belongs to, never its arithmetic. Start there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from samebits.kernels.gemm.contraction import Contraction, Matrix, Panels

_Strided = Matrix | Panels
_Operand = TypeVar("_Operand", bound=Matrix | Panels)


def normal(c: Contraction) -> Contraction:
    """c with batch extents of 1 dropped, neighbours merged, the last batch dimension folded into M where it can be."""
    c = _keep(c, [d for d, extent in enumerate(c.batch) if extent != 1])
    while c.batch and _rows_continue(c):
        extent, m = c.batch[-1], c.m
        if m == 1:
            c = _left(c, lambda x: replace(x, row=x.batch[-1]))
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
    return [c.a, c.out, *(s for s in c.sources if isinstance(s, Matrix))]


def _right(c: Contraction) -> list[_Strided]:
    """The operands that have the columns of b, and no rows of out."""
    return [c.b, *(x.matrix for x in c.per_block.values())]


def _strided(c: Contraction) -> list[_Strided]:
    return [*_right(c), *_rows(c)]


def _left(c: Contraction, change: Callable[[Matrix], Matrix]) -> Contraction:
    """Every operand but b with strides replaced."""
    sources = tuple(change(s) if isinstance(s, Matrix) else s for s in c.sources)
    return replace(c, a=change(c.a), out=change(c.out), sources=sources)


def _keep(c: Contraction, dimensions: Sequence[int]) -> Contraction:
    """Only these batch dimensions."""
    if len(dimensions) == len(c.batch):
        return c

    def some(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([values[d] for d in dimensions])

    def kept(x: _Operand) -> _Operand:
        return replace(x, batch=some(x.batch))

    sources = tuple([kept(s) if isinstance(s, Matrix) else s for s in c.sources])
    shared: dict[str, Any] = {name: replace(x, matrix=kept(x.matrix)) for name, x in c.per_block.items()}
    return replace(c, a=kept(c.a), b=kept(c.b), out=kept(c.out), sources=sources, batch=some(c.batch), **shared)


def _rows_continue(c: Contraction) -> bool:
    """Whether the last batch dimension only adds rows: b repeats, and everything else steps on as its rows do."""
    repeats = all(x.batch[-1] == 0 for x in _right(c))
    return repeats and all(c.m == 1 or x.batch[-1] == c.m * x.row for x in _rows(c))


def _plain(c: Contraction) -> Contraction:
    """A stride that is never taken becomes the one that reads best."""
    if c.k == 1:
        c = replace(c, a=replace(c.a, column=1))
    if c.n == 1:
        b = replace(c.b, column=1) if isinstance(c.b, Matrix) else c.b
        shared: dict[str, Any] = {
            name: replace(x, matrix=replace(x.matrix, column=1)) for name, x in c.per_block.items()
        }
        c = replace(c, b=b, out=replace(c.out, column=1), **shared)
    return c
