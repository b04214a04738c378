"""Rows and batches: which symbol counts the rows, how rows are joined and found again, and when two have the same bits.

Start at `batch_symbol`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits.operations import dim
from samebits.program.graph import Program

Array = NDArray[np.generic]
Arrays = dict[str, Array]


def batch_symbol(program: Program) -> str | None:
    """The symbol that is the first axis of every input, and no other axis of one; or None."""
    shapes = [fact.shape for fact in program.inputs.values()]
    firsts = {frozenset(dim.symbols(shape[0])) if shape else frozenset[str]() for shape in shapes}
    if len(firsts) != 1 or len({shape[0] for shape in shapes if shape}) != 1:
        return None
    (symbols,) = firsts
    if len(symbols) != 1 or any(not symbols.isdisjoint(dim.symbols(size)) for shape in shapes for size in shape[1:]):
        return None
    return next(iter(symbols))


def batch_axis(shape: Sequence[dim.Size], batch: str | None) -> int | None:
    """The axis whose extent depends on the batch symbol."""
    for axis, size in enumerate(shape):
        if batch is not None and batch in dim.symbols(size):
            return axis
    return None


def stack(program: Program, batch: str | None, rows: Sequence[Arrays]) -> Arrays:
    """Rows side by side along the batch axis of each input."""
    stacked = {}
    for name, fact in program.inputs.items():
        axis = batch_axis(fact.shape, batch)
        parts = [row[name] for row in rows]
        stacked[name] = parts[0] if axis is None else np.concatenate(parts, axis)
    return stacked


def unstack(program: Program, batch: str | None, answer: Arrays, place: int, count: int, like: Arrays | None) -> Arrays:
    """The outputs of the row at `place` among `count`; `like` are its outputs when it is alone."""
    row = {}
    for name, whole in answer.items():
        axis = batch_axis(program.outputs[name].shape, batch)
        row[name] = whole if axis is None else part(whole, axis, place, count, like[name] if like else None)
    return row


def part(whole: Array, axis: int, r: int, count: int, like: Array | None = None) -> Array:
    """Row r's share of an axis that holds `count` rows; all of the axis where it does not divide.

    A batch that was transposed and merged into another axis lies interleaved in it: of the ways that `count` rows can
    lie there, the one that gives the bits of `like` is taken, else one row after another.
    """
    each, rest = divmod(whole.shape[axis], count)
    if rest:
        return whole
    before, after = whole.shape[:axis], whole.shape[axis + 1 :]
    shares = (
        whole.reshape(*before, outer, count, each // outer, *after).take(r, axis + 1).reshape(*before, each, *after)
        for outer in range(1, max(each, 1) + 1)
        if each % outer == 0
    )
    first = next(shares)
    if like is None or like.shape != first.shape or same_bits(first, like):
        return first
    return next((share for share in shares if same_bits(share, like)), first)


def same_bits(x: Array, y: Array) -> bool:
    """Whether formats, shapes and bits are equal: -0 is not 0, and a NaN equals only itself."""
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def same_row(x: Arrays, y: Arrays) -> bool:
    """Whether all outputs of a row have the same bits."""
    return x.keys() == y.keys() and all(same_bits(x[name], y[name]) for name in x)


def different_elements(x: Array, y: Array) -> int:
    """How many elements differ in their bits; all of x where shapes or formats do."""
    if x.shape != y.shape or x.dtype != y.dtype:
        return x.size
    bits = [np.frombuffer(a.tobytes(), np.uint8).reshape(a.size, a.itemsize) for a in (x, y)]
    return int((bits[0] != bits[1]).any(1).sum())


def digest(rows: Sequence[Mapping[str, Array]]) -> str:
    """SHA-256 of every row's outputs: names, formats, shapes and bits."""
    found = hashlib.sha256()
    for row in rows:
        for name in sorted(row):
            x = np.ascontiguousarray(row[name])
            found.update(f"{name}:{x.dtype}:{x.shape}:".encode() + x.tobytes())
    return found.hexdigest()[:16]


def _filled(memory: NDArray[Any], part: list[slice], x: NDArray[Any]) -> NDArray[Any]:
    """A part of memory that holds x; the ellipsis keeps an array without axes an array."""
    where: tuple[Any, ...] = (..., *part)
    view: NDArray[Any] = memory[where]
    view[...] = x
    return view


def _backwards(x: NDArray[Any]) -> NDArray[Any]:
    return _filled(np.empty(x.shape, x.dtype), [slice(None, None, -1)] * x.ndim, x)


def _spread(x: NDArray[Any]) -> NDArray[Any]:
    memory = np.zeros(tuple(2 * extent + 3 for extent in x.shape), x.dtype)
    return _filled(memory, [slice(3, 3 + 2 * extent, 2) for extent in x.shape], x)


def _columns(x: NDArray[Any]) -> NDArray[Any]:
    return np.array(x, order="F")


def _shifted(x: NDArray[Any]) -> NDArray[Any]:
    memory = np.zeros(x.size + 1, x.dtype)
    view = memory[1:].reshape(x.shape)
    view[...] = x
    return view


# Ways that an input of the same values can lie in memory.
LAYOUTS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "every axis reversed": _backwards,
    "every second element of every axis": _spread,
    "the first axis fastest": _columns,
    "one element off": _shifted,
}


def laid(layout: str | None, given: Arrays) -> Arrays:
    """Copies of the inputs in a layout of `LAYOUTS`; for None the inputs themselves."""
    return given if layout is None else {name: LAYOUTS[layout](x) for name, x in given.items()}
