"""Runs like one before: arrays that lie as they did go straight to their table.

What a call is like is its key: formats, extents and strides of arrays, and the numbers that sizes depend on. Arrays of
NumPy and torch have keys; others take the way of `Session.run`. Start at `key_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.fusion.datatypes import DataType
from samebits.fusion.graph import TensorView, Val
from samebits.fusion.promotion import element
from samebits.kinds import kind_of
from samebits.memory import address_of
from samebits.memory.pages import MAPPED
from samebits.native import scratch
from samebits.ops import move
from samebits.program.graph import Program
from samebits.runtime.specialised import Specialised
from samebits.tensor import Tensor

__all__ = ["Direct", "key_of", "learn", "made_for", "number_key"]


def _numpy(x: Any) -> Hashable:
    return np.ndarray, x.dtype, x.shape, x.strides, x.flags.aligned


def _torch(x: Any) -> Hashable:
    """With whether elements have memory: where there is none, as the storage was given up, the long way refuses it."""
    return None, x.dtype, x.shape, x.stride(), x.is_cpu, x.is_neg(), not x.data_ptr()


# How an array of each type is described: exact types alone, as a subclass may mean something else.
_DESCRIBED: dict[type, Callable[[Any], Hashable]] = {np.ndarray: _numpy}
_NUMBERS = frozenset((bool, int, float))


def key_of(sizes: frozenset[int], given: Sequence[Any]) -> Hashable:
    """What a call is like; None where it has no key.

    Args:
        sizes: The places of the inputs that sizes depend on.
        given: What is given.
    """
    parts: list[Any] = []
    for place, value in enumerate(given):
        kind = type(value)
        described = _DESCRIBED.get(kind)
        if described is not None:
            try:
                parts.append(described(value))
            except RuntimeError:  # a tensor of torch that has no strides, no shape or no memory
                return None
        elif kind in _NUMBERS:
            parts.append(number_key(value) if place in sizes else kind)
        else:
            return None
    return tuple(parts)


def number_key(value: bool | int | float) -> Hashable:
    """What tells numbers apart: kinds, the signs of zeros; and NaN is NaN."""
    return type(value), repr(value)


def learn(given: Sequence[Any]) -> None:
    """Let calls with torch's tensors have keys, once there are such tensors."""
    for x in given:
        if type(x).__name__ == "Tensor" and kind_of(x) == "torch":
            _DESCRIBED[type(x)] = _torch


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """How packed elements of torch that are not dense are packed anew before a run.

    Attributes:
        run: Takes the address where they are, and that of memory of its own.
        size_bytes: How much memory that is.
    """

    run: Callable[[int, int], None]
    size_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Direct:
    """A table, and how its operands are had.

    Attributes:
        bound: The table.
        program: What it runs.
        scalars: For each input None of a tensor, the format of a number, `Null` of one that sizes depend on.
        first: The place of the first tensor.
        outputs: Of each output its shape, its library's dtype, and ours where it takes memory that was used before.
        of_torch: Whether tensors are torch's.
        packings: For each input what its elements are packed by first, None where they are taken as they lie.
    """

    bound: Specialised
    program: Program
    scalars: tuple[DataType | None, ...]
    first: int
    outputs: tuple[tuple[tuple[int, ...], Any, DType | None], ...]
    of_torch: bool
    packings: tuple[Packing | None, ...]

    def run(self, given: Sequence[Any], seed: int | None) -> list[Any]:
        """The outputs; of a run that draws numbers its seed is the last operand."""
        made: list[Any]
        if self.of_torch:
            new = given[self.first].new_empty
            made = [Tensor.empty(shape, own).torch() if own else new(shape, dtype=dtype)
                    for shape, dtype, own in self.outputs]  # fmt: skip
        else:
            made = [Tensor.empty(shape, own).numpy() if own else np.empty(shape, dtype)
                    for shape, dtype, own in self.outputs]  # fmt: skip
        held: list[Any] = []
        blocks: list[scratch.PageBlock] = []
        addresses: list[int] = []
        for x, kind, packing in zip(given, self.scalars, self.packings, strict=True):
            if packing is not None:
                blocks.append(scratch.take(packing.size_bytes))
                packing.run(x.data_ptr(), blocks[-1].address)
                addresses.append(blocks[-1].address)
            elif kind is None:
                addresses.append(x.data_ptr() if self.of_torch else address_of(x))
            elif kind is not DataType.Null:
                held.append(element("execute", x, kind))
                addresses.append(address_of(held[-1]))
        if seed is not None:
            held.append(np.asarray(seed, np.uint64))
            addresses.append(address_of(held[-1]))
        addresses += [x.data_ptr() for x in made] if self.of_torch else map(address_of, made)
        self.bound.run_on(addresses)
        for block in blocks:
            scratch.give(block)
        return made


def made_for(
    inputs: Sequence[Val], sizes: frozenset[int], given: Sequence[Any], program: Program, bound: Specialised,
    results: dict[str, Any],
) -> Direct | None:  # fmt: skip
    """What runs such a call the next time; None if it has to take the long way.

    Args:
        inputs: The inputs as they are defined.
        sizes: The places of those that sizes depend on, which the table has in it.
        given: The call.
        program: What runs.
        bound: Its table.
        results: What it gave.
    """
    arrays = [value for x, value in zip(inputs, given, strict=True) if isinstance(x, TensorView)]
    kinds = {kind_of(x) for x in arrays}
    if not arrays or len(kinds) != 1 or not kinds <= {"numpy", "torch"} or any(not _is_plain(x) for x in arrays):
        return None
    of_torch = kinds == {"torch"}
    if any(type(x).__name__ not in ("ndarray", "Tensor") for x in (*arrays, *results.values())):
        return None
    if any(tuple(results[name].shape) != shape for name, shape, _ in bound.outputs):
        return None  # packed elements
    outputs = tuple([(shape, results[name].dtype, _own(results[name])) for name, shape, _ in bound.outputs])
    scalars = tuple(
        [None if isinstance(x, TensorView) else DataType.Null if i in sizes else x.dtype for i, x in enumerate(inputs)]
    )
    packings = tuple(
        [_packing(value) if isinstance(x, TensorView) else None for x, value in zip(inputs, given, strict=True)]
    )
    return Direct(bound, program, scalars, scalars.index(None), outputs, of_torch, packings)


def _own(x: Any) -> DType | None:
    """Our dtype of an array so big that fresh memory would cost more than it is."""
    return Tensor.from_any(x).dtype if x.nbytes >= MAPPED else None


def _packing(x: Any) -> Packing | None:
    """What packs a tensor anew whose address alone does not say where its elements are; None of others."""
    if isinstance(x, np.ndarray) or not str(x.dtype).endswith("_x2"):
        return None
    tensor = Tensor.from_any(x)
    run = move.packing(tensor)
    return None if run is None else Packing(run, (tensor.size * tensor.dtype.width_bits + 7) // 8)


def _is_plain(x: Any) -> bool:
    """Whether its address and strides say where its elements are, or where those are that are packed anew."""
    if isinstance(x, np.ndarray):
        return x.flags.aligned and not any(step % x.itemsize for step in x.strides)
    return bool(x.is_cpu) and not x.is_neg()
