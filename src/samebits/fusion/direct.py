"""Runs like one before: arrays that lie as they did go straight to their table.

What a call is like is its key: formats, extents and strides of arrays, and the numbers that sizes depend on. Tensors,
NumPy's arrays and torch's have keys; others take the way of `Session.run`. Start at `key_of`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np

from samebits import hot
from samebits.errors import FusionError
from samebits.frozen import dataclass
from samebits.fusion.datatypes import DataType
from samebits.fusion.graph import TensorView, Val
from samebits.fusion.promotion import element
from samebits.kernels import spread
from samebits.kinds import UNTRACED, ArrayKind, is_traced, kind_of
from samebits.layout import Layout
from samebits.memory import CPU, address_of
from samebits.memory.address import LEAST_ADDRESS
from samebits.memory.pages import MAPPED
from samebits.native import scratch
from samebits.ops import move
from samebits.program.graph import Program
from samebits.runtime.specialised import Specialised
from samebits.tensor import Tensor, in_new_memory

__all__ = ["Direct", "check_traced", "is_scripted", "key_of", "learn", "made_for", "modes", "number_key"]

# How many modes torch asks before its own functions, some of which trace, and whether a script is traced: none and no
# before there was a tensor of torch's.
modes: Callable[[], int] = int
is_scripted: Callable[[], bool] = bool


def _numpy(x: Any) -> Hashable:
    flags = x.flags
    return np.ndarray, x.dtype, x.shape, x.strides, flags.aligned, flags.writeable


def _torch(x: Any) -> Hashable:
    """With whether elements have memory: where there is none, as the storage was given up, the long way refuses it."""
    return None, x.dtype, x.shape, x.stride(), x.is_cpu, x.is_neg(), x.data_ptr() < LEAST_ADDRESS


def _tensor(x: Tensor) -> Hashable:
    """With whether its memory is there, is the host's and may be written: where it is not, the long way says so."""
    buffer = x.buffer
    return Tensor, x.dtype, x.layout, buffer.device is CPU, buffer.is_closed, buffer.read_only


# How an array of each type is described: exact types alone, as a subclass may mean something else.
_DESCRIBED: dict[type, Callable[[Any], Hashable]] = {np.ndarray: _numpy, Tensor: _tensor}
# The byte in which the elements of an array begin.
_ADDRESS: dict[ArrayKind, Callable[[Any], int]] = {
    "numpy": address_of,
    "tensor": lambda x: x.buffer.address + (x.layout.offset_bits >> 3),
    "torch": lambda x: int(x.data_ptr()),
}
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
    """Let calls with torch's tensors have keys, and ask whether torch traces, once there are such tensors."""
    global modes, is_scripted
    for x in given:
        if type(x).__name__ == "Tensor" and kind_of(x) == "torch" and type(x) not in _DESCRIBED:
            _DESCRIBED[type(x)] = _torch
            torch: Any = sys.modules["torch"]
            modes, is_scripted = torch._C._len_torch_function_stack, torch._C._is_tracing
            check_traced()


def check_traced() -> None:
    """Raise FusionError where torch records what a call computes."""
    if is_traced():
        raise FusionError("execute", "call", "", "within what torch traces", "outside of it", UNTRACED)


@dataclass(frozen=True, slots=True, eq=False)
class Repacking:
    """How packed elements that are not dense are packed anew before a run.

    Attributes:
        run: Takes the address of the byte in which they begin, and that of memory of its own.
        size_bytes: How much memory that is.
    """

    run: Callable[[int, int], None]
    size_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class OutputArray:
    """How an output is made.

    Attributes:
        shape: That of the array of its library; of torch's float4 it counts pairs.
        dtype: Its library's.
        make: Makes it as a Tensor.
        is_ours: Whether it is made so: of Tensors, and of arrays so big that fresh memory would cost more than it is;
            else its library makes it.
    """

    shape: tuple[int, ...]
    dtype: Any
    make: Callable[[], Tensor]
    is_ours: bool


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """How an output is written into an input.

    Attributes:
        run: Takes the addresses of the output and of the input; None without elements.
        output: The place of the output.
        input: The place of the input.
    """

    run: Callable[[int, int], None] | None
    output: int
    input: int


@dataclass(frozen=True, slots=True, eq=False)
class Direct:
    """A table, and how its operands are had.

    Attributes:
        bound: The table.
        program: What it runs.
        scalars: For each input None of a tensor, the format of a number, `Null` of one that sizes depend on.
        first: The place of the first tensor.
        outputs: How each output is made.
        kind: That of all tensors.
        packings: For each input what its elements are packed by first, None where they are taken as they lie.
        writes: What is written into inputs once everything is computed.
    """

    bound: Specialised
    program: Program
    scalars: tuple[DataType | None, ...]
    first: int
    outputs: tuple[OutputArray, ...]
    kind: ArrayKind
    packings: tuple[Repacking | None, ...]
    writes: tuple[Write, ...]

    def run(self, given: Sequence[Any], seed: int | None) -> list[Any]:
        """The outputs; of a run that draws numbers its seed is the last operand."""
        made: list[Any]
        if self.kind == "torch":
            made = [_as_torch(x.make()) if x.is_ours else _of_torch(given[self.first], x) for x in self.outputs]
        elif self.kind == "tensor":
            made = [x.make() for x in self.outputs]
        else:
            made = [x.make().numpy() if x.is_ours else np.empty(x.shape, x.dtype) for x in self.outputs]
        address = _ADDRESS[self.kind]
        held: list[Any] = []
        blocks: list[scratch.PageBlock] = []
        addresses: list[int] = []
        for x, kind, packing in zip(given, self.scalars, self.packings, strict=True):
            if self.kind == "tensor" and kind is None:  # whose buffer another thread may close meanwhile
                held.append(x.buffer.owner)
            if packing is not None:
                blocks.append(scratch.take(packing.size_bytes))
                packing.run(address(x), blocks[-1].address)
                addresses.append(blocks[-1].address)
            elif kind is None:
                addresses.append(address(x))
            elif kind is not DataType.Null:
                held.append(element("execute", x, kind))
                addresses.append(address_of(held[-1]))
        if seed is not None:
            held.append(np.asarray(seed, np.uint64))
            addresses.append(address_of(held[-1]))
        addresses += map(address, made)
        self.bound.run_on(addresses)
        for block in blocks:
            scratch.give(block)
        for write in self.writes:
            if write.run is not None:
                write.run(address(made[write.output]), address(given[write.input]))
        return made


def _of_torch(like: Any, output: OutputArray) -> Any:
    """A result that torch makes; what a mode of the user's has it make, without memory or with less, is let go."""
    shape, dtype = output.shape, output.dtype
    x = like.new_empty(shape, dtype=dtype)
    is_right = type(x) is type(like) and x.dtype is dtype and x.shape == shape and x.is_cpu and x.is_contiguous()
    return x if is_right and (x.data_ptr() >= LEAST_ADDRESS or 0 in shape) else _as_torch(output.make())


def _as_torch(x: Tensor) -> Any:
    """The tensor as torch's; after many calls emitted code does it."""
    hot.count_call()
    return x.torch()


def made_for(
    inputs: Sequence[Val], sizes: frozenset[int], given: Sequence[Any], program: Program, bound: Specialised,
    results: dict[str, Any], written: Sequence[tuple[int, int]],
) -> Direct | None:  # fmt: skip
    """What runs such a call the next time; None if it has to take the long way.

    Args:
        inputs: The inputs as they are defined.
        sizes: The places of those that sizes depend on, which the table has in it.
        given: The call.
        program: What runs.
        bound: Its table; outputs that are packed in arrays of that kind are so in it.
        results: What it gave.
        written: Pairs of an output and the input that it is written into, by their places.
    """
    arrays = [value for x, value in zip(inputs, given, strict=True) if isinstance(x, TensorView)]
    kinds = {kind_of(x) for x in arrays}
    if len(kinds) != 1 or any(not _is_plain(x) for x in arrays):
        return None
    (kind,) = kinds
    if any(type(x) not in _DESCRIBED for x in (*arrays, *results.values())):
        return None
    outputs = tuple([_output(results[name], shape) for name, shape, _ in bound.outputs])
    scalars = tuple(
        [None if isinstance(x, TensorView) else DataType.Null if i in sizes else x.dtype for i, x in enumerate(inputs)]
    )
    packings = tuple(
        [_packing(value) if isinstance(x, TensorView) else None for x, value in zip(inputs, given, strict=True)]
    )
    writes: list[Write] = []
    for output, place in written:
        source, target = Tensor.from_any(results[f"O{output}"]), Tensor.from_any(given[place])
        if source.shape != target.shape or target.read_only or not target.layout.is_unique():
            return None  # which the long way refuses
        writes.append(Write(move.moving(source, target.layout), output, place))
    return Direct(bound, program, scalars, scalars.index(None), outputs, kind, packings, tuple(writes))


def _output(x: Any, shape: tuple[int, ...]) -> OutputArray:
    """How results like x are made. NumPy has a byte for what we pack within bytes, which no Tensor of ours is then.

    Args:    x: the result.   shape: in elements.
    """
    own = Tensor.from_any(x).dtype
    is_ours = type(x) is Tensor or (x.nbytes >= MAPPED and (own.width_bits >= 8 or not isinstance(x, np.ndarray)))
    if own.width_bits < 8:
        return OutputArray(tuple(x.shape), x.dtype, partial(Tensor.empty, shape, own), is_ours)
    layout = Layout.dense(shape, width_bits=own.width_bits)
    return OutputArray(tuple(x.shape), x.dtype, partial(in_new_memory, layout.required_bytes, layout, own), is_ours)


def _packing(x: Any) -> Repacking | None:
    """What packs a tensor anew that has packed elements and is not dense; None of others."""
    if not (spread.is_packed(x.layout) if isinstance(x, Tensor) else str(x.dtype).endswith("_x2")):
        return None
    tensor = Tensor.from_any(x)
    run = move.packing(tensor)
    return None if run is None else Repacking(run, (tensor.size * tensor.dtype.width_bits + 7) // 8)


def _is_plain(x: Any) -> bool:
    """Whether its address and strides say where its elements are, or where those are that are packed anew."""
    if isinstance(x, Tensor):
        if x.device is not CPU:
            return False
        if spread.is_packed(x.layout):
            return x.layout.storage == "packed" and x.dtype.width_bits < 8
        taken = x.numpy()
        return address_of(taken) == x.address and _is_plain(taken)
    if isinstance(x, np.ndarray):
        return x.flags.aligned and not any(step % x.itemsize for step in x.strides)
    return bool(x.is_cpu) and not x.is_neg()
