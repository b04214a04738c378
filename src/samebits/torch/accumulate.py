"""Gradients of a batch that comes in parts: `accumulate`. Whole or in parts, they have the same bits.

A batch is cut into segments. Each has a sum of its own for every parameter, in float32 whatever the parameter's dtype,
which backward adds to in the order of the rows; at the end a tree joins them (numerics.md section 2).
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from samebits.errors import OptionError, ShapeError, shown
from samebits.kernels.gemm.contraction import Spec
from samebits.ops import elementwise
from samebits.torch.arguments import check_tensors, listed
from samebits.torch.spec import DEFAULT, Sums, order

__all__ = ["Accumulation", "accumulate", "joined", "total_of"]


class _Accumulating(threading.local):
    """Whether this thread's calls add up, by which spec, and how many rows a part must be a multiple of."""

    def __init__(self) -> None:
        self.is_active = False
        self.rows = 1
        self.sums = DEFAULT


current = _Accumulating()


class Accumulation:
    """A batch whose gradients are being added up.

    Attributes:
        segments: How many sums each parameter has.
        chunk: What the rows of a micro-batch are a multiple of, for each segment that it spans.
        gradients: The parameters' `main_grad`, once the batch is through.
    """

    def __init__(self, parameters: Sequence[Tensor], segments: int, chunk: int) -> None:
        self.segments, self.chunk = segments, chunk
        self.gradients: list[Tensor] = []
        self._is_open = True
        self._parameters = parameters
        self._sums = [torch.zeros((segments, *p.shape), dtype=_wide(p)) for p in parameters]
        self._show(0, segments)

    def micro_batches(self, count: int) -> Iterator[int]:
        """0 .. count - 1: what is run backward in each turn is that part of the batch, all parts of one size.

        Args:    count: a multiple of the segments, or a divisor. A part's rows must be a multiple of `chunk` for
                 each segment that it spans; the last of all may have fewer.
        Raises:  OptionError, also in a turn that is asked for after the block of `accumulate`.
        """
        if type(count) is not int or count < 1 or (count % self.segments and self.segments % count):
            expected = f"a multiple or a divisor of {self.segments} segments"
            raise OptionError("micro_batches", "count", "", shown(count), expected, "cut the batch otherwise")
        for i in range(count):
            self._check_open()
            first = i * self.segments // count
            last = max(first + 1, (i + 1) * self.segments // count)
            self._show(first, last)
            current.rows = 1 if i == count - 1 and count >= self.segments else self.chunk * (last - first)
            yield i
        self._check_open()
        self._show(0, self.segments)
        current.rows = 1

    def _check_open(self) -> None:
        if not self._is_open:
            raise OptionError("micro_batches", "batch", "", "over", "one that accumulates", "take every turn within it")

    def _show(self, first: int, last: int) -> None:
        """Let each parameter's `main_grad` be its sums for some segments."""
        for p, sums in zip(self._parameters, self._sums, strict=True):
            p.main_grad = p.samebits_sums = sums[first:last]  # type: ignore[attr-defined]

    def _close(self) -> None:
        """Let later calls find no sums: a `main_grad` that is left is the caller's."""
        self._is_open = False
        for p in self._parameters:
            vars(p).pop("samebits_sums", None)

    def _join(self) -> None:
        """Let it be their sum."""
        for p, sums in zip(self._parameters, self._sums, strict=True):
            p.main_grad = joined(list(sums))  # type: ignore[attr-defined]
            self.gradients.append(p.main_grad)  # type: ignore[attr-defined]


@contextlib.contextmanager
def accumulate(parameters: Iterable[Tensor], *, segments: int = 1) -> Iterator[Accumulation]:
    """Gradients of parameters go to their `main_grad`, float32 (float64 beside float64); `.grad` stays as it was.

    Within, `main_grad` holds a sum for each segment of what is run now; afterwards their join by a tree. Calls of
    `linear`, `layer_norm` and `embedding`, and modules made of them, add to it in backward, which must be run within.
    Hooks on parameters do not run: autograd has no gradient of theirs.

    Args:    parameters: leaves that need gradients; others are left out, and autograd gives them theirs.
             segments: how many sums; a power of two.
    Raises:  OptionError.   Bits: numerics.md section 5; those of the spec of `use_spec`, which calls within must have,
             with so many segments, over the rows of the batch.
    """
    chunk, _, name = order("accumulate", None)
    Spec(chunk, segments, name)
    given = listed("accumulate", "parameters", parameters)
    chosen = [p for p in dict.fromkeys(given) if p.is_leaf and p.requires_grad]
    if current.is_active:
        raise OptionError("accumulate", "this thread", "", "in another one", "in none", "leave that first")
    batch = Accumulation(chosen, segments, chunk)
    current.is_active, current.sums = True, (chunk, 1, name)
    try:
        yield batch
    except BaseException:
        for p in chosen:
            p.main_grad = None  # type: ignore[attr-defined]
        raise
    finally:
        batch._close()
        current.is_active, current.rows, current.sums = False, 1, DEFAULT
    batch._join()


def total_of(call: str, parameter: Tensor | None, input: Tensor, sums: Sums, axes: int = 1) -> Tensor | None:
    """What a call's backward adds the gradient of a parameter to; None where autograd is given it.

    Args:    input: what rows are counted of, its last `axes` being no rows.   sums: what its spec says.
    Raises:  OptionError, ShapeError.
    """
    if not current.is_active or parameter is None:
        return None
    check_tensors(call, input=input)
    total: Tensor | None = getattr(parameter, "samebits_sums", None)
    if total is not None and sums != current.sums:
        expected = "sb1" if current.sums == DEFAULT else f"{Spec(*current.sums)}"
        raise OptionError(call, "spec", "", Spec(*sums), f"{expected} while gradients accumulate", "leave it out")
    rows = math.prod(input.shape[: input.ndim - axes])
    if total is not None and rows % current.rows:
        expected = f"a multiple of {current.rows}, {current.sums[0]} for each segment of a micro-batch"
        raise ShapeError(call, "input", "row count", rows, expected, "cut the batch otherwise")
    return total


def joined(parts: list[Tensor]) -> Tensor:
    """Sums of neighbouring segments joined by the binary tree of numerics.md section 2."""
    while len(parts) > 1:
        parts = [elementwise.add(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _wide(x: Any) -> torch.dtype:
    return torch.float64 if x.dtype is torch.float64 else torch.float32
