"""What the key of a call says: extents and strides of its arrays, and everything else.

`native.argument_text` writes keys. Calls whose keys differ in extents and strides alone are a class of calls. Start at
`taken_apart`, which needs of the arguments only their types: what it says is what the key says, whatever another thread
does to an array meanwhile.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from samebits.frozen import dataclass
from samebits.native.argument_text import ADDRESS_BITS, SMALL
from samebits.tensor import Tensor

__all__ = ["ArrayWords", "KeyParts", "taken_apart"]

# Words of a key before the arguments.
_HEADER = 3
# The classes of torch's tensors that have keys.
_TORCH = (("torch", "Tensor"), ("torch.nn.parameter", "Parameter"))


@dataclass(frozen=True, slots=True)
class ArrayWords:
    """Of an array that may have any sizes: its number of axes, and the unit of its strides in bits; 0 where that is an
    element."""

    rank: int
    unit: int


@dataclass(frozen=True, slots=True)
class KeyParts:
    """A key taken apart.

    Attributes:
        others: Its words but for extents, strides and the byte in which a Tensor begins.
        numbers: Those, of each array first all extents and then all strides, array after array.
        arrays: One for each argument; None for those that are no arrays of any size.
    """

    others: tuple[int, ...]
    numbers: tuple[int, ...]
    arrays: tuple[ArrayWords | None, ...]


def taken_apart(
    key: bytes, arguments: tuple[Any, ...], options: dict[str, Any], packed: type, spec: type
) -> KeyParts | None:
    """The parts of a key of a call with such arguments; None where it has an argument whose words are not known here.

    Args:    packed, spec: the classes of packed matrices and of orders of sums.
    """
    words = struct.unpack(f"<{len(key) // 8}q", key)
    torch = [getattr(sys.modules.get(home), name, None) for home, name in _TORCH]
    at, others, numbers, arrays = _HEADER, list(words[:_HEADER]), list[int](), list[ArrayWords | None]()
    for is_name, value in _in_order(arguments, options):
        kind, count, array = type(value), 1, None
        if kind is np.ndarray or kind in torch:
            rank = words[at + 1] & 15
            behind = at + 2 + 2 * rank
            others += words[at : at + 2]
            numbers += words[at + 2 : behind : 2]
            numbers += words[at + 3 : behind : 2]
            array, at, count = ArrayWords(rank, 8 if kind is np.ndarray else 0), behind, 0
        elif kind is Tensor:
            rank = words[at + 2] >> 2
            others += (words[at], words[at + 1] & 7, words[at + 2])  # where it begins but for its byte
            numbers += words[at + 3 : at + 3 + 2 * rank]
            array, at, count = ArrayWords(rank, 1), at + 3 + 2 * rank, 0
        elif kind is str:
            count = _text(words[at])
        elif kind is float:
            count = 2
        elif kind is int:
            count = 1 if words[at] & SMALL else 2
        elif kind is tuple:
            count = 1 + (words[at] >> ADDRESS_BITS)
        elif kind is spec:
            count = 3 + _text(words[at + 3])
        elif kind is packed:
            tensor = at + 9 + words[at + 8]
            count = tensor + 3 + 2 * (words[tensor + 2] >> 2) - at
        elif value is not None and kind is not bool:
            return None
        others += words[at : at + count]
        at += count
        if not is_name:
            arrays.append(array)
    return KeyParts(tuple(others), tuple(numbers), tuple(arrays))


def _in_order(arguments: tuple[Any, ...], options: dict[str, Any]) -> Iterable[tuple[bool, Any]]:
    """What a key tells of, in its order, and whether it is the name of an option."""
    for value in arguments:
        yield False, value
    for name, value in options.items():
        yield True, name
        yield False, value


def _text(word: int) -> int:
    """How many words tell of a text that begins with this one."""
    return 1 if word < 0 else ((word >> ADDRESS_BITS) >> 3) + 2
