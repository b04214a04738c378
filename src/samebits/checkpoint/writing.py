"""Files of tensors, written: start at `save`, and at `create` for what does not fit into memory at once.

A new file takes its place when every tensor is whole (`files.Replacement`).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, SupportsIndex

from samebits import dtypes, elements, files
from samebits.checkpoint import header, npy, parts
from samebits.checkpoint.parts import QuantizedNote
from samebits.checkpoint.stored import MEMBER
from samebits.checkpoint.zipped import ZipFrame
from samebits.dtypes import DType
from samebits.errors import ClosedError, DTypeError, LayoutError, OptionError, SamebitsError, ShapeError, shown
from samebits.exchange.incoming import check_torch
from samebits.frozen import dataclass
from samebits.kinds import kind_of
from samebits.layout.checks import Storage
from samebits.memory import CPU
from samebits.shapes import check_extents
from samebits.tensor import Tensor

__all__ = ["KINDS", "NewCheckpoint", "create", "save"]

KINDS = ("safetensors", "npz", "npy")
"""Kinds of files, by what their names end with."""


@dataclass(frozen=True, slots=True)
class _PlaceInFile:
    """Where the bytes of one tensor go, and how its elements lie there."""

    offset: int
    dtype: DType
    shape: tuple[int, ...]
    storage: Storage

    @property
    def pitch_bits(self) -> int:
        return self.dtype.width_bits if self.storage == "packed" else 8 * self.dtype.element_bytes

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class NewCheckpoint:
    """A file that is being written: `write` takes the tensors, whole or part by part, and `close` puts it in place.

    Used by `with`, it is put in place where the block ends, and taken away where an exception ends it: there is never
    a part of a file at its path.

    Attributes:
        path: Where it will be.
    """

    def __init__(self, call: str, path: str, described: _Described) -> None:
        self.path = path
        self._call = call
        self._places, self._frame = described.places, described.frame
        self._rest = dict(described.starts)
        self._done = dict.fromkeys(self._places, 0)
        self._file: files.Replacement | None = files.Replacement(call, path)
        try:
            self._file.resize(described.size_bytes)
            for place, data in described.parts:
                self._file.write(data, place)
        except BaseException:
            self._file.discard()
            raise

    def __repr__(self) -> str:
        done = sum(self._done[name] == place.size for name, place in self._places.items())
        state = "" if self._file else ", closed"
        return f"NewCheckpoint({self.path!r}, {done} of {len(self._places)} tensors{state})"

    def write(self, name: str, x: object) -> None:
        """Write a tensor, or the next elements of it in row-major order; a part ends at a whole byte of the file.

        Args:
            name: One of those that the file was made for.
            x: What `Tensor.from_any` takes, of that format, in any layout.

        Raises:
            OptionError: There is no such tensor, or the file cannot be written.
            DTypeError, ShapeError, LayoutError: x is of another format, has more elements than are left, or ends
                within a byte.
            ClosedError: The file was closed.
        """
        call = "NewCheckpoint.write"
        place, file = self._found(call, name)
        tensor = _taken(call, name, x)
        if tensor.dtype is not place.dtype:
            remedy = "cast it first"
            raise DTypeError(call, f"tensor {name!r}", "dtype", tensor.dtype, f"{place.dtype}, as it was made", remedy)
        left = place.size - self._done[name]
        if tensor.size > left:
            raise ShapeError(call, f"tensor {name!r}", "size", tensor.size, f"at most the {left} left", "write it once")
        first, begin = divmod(self._done[name] * place.pitch_bits, 8)
        if begin and tensor.size:
            actual, expected = f"{self._done[name]} elements so far", "whole bytes before the next part"
            raise LayoutError(call, f"tensor {name!r}", "", actual, expected, "write parts of a multiple of 8 elements")
        data = _bytes(tensor, place.storage)
        file.write(data, place.offset + first)
        if self._frame is not None:  # behind what may fail: a part that is written again counts once in the checksum
            if name in self._rest:
                self._frame.add(f"{name}.npy", self._rest.pop(name))
            self._frame.add(f"{name}.npy", data)
        self._done[name] += tensor.size

    def _found(self, call: str, name: str) -> tuple[_PlaceInFile, files.Replacement]:
        if self._file is None:
            raise ClosedError(call, "file", "", "closed", "open", "write before it is closed")
        place = self._places.get(name) if isinstance(name, str) else None
        if place is None:
            expected = f"one of the {len(self._places)} that the file was made for"
            raise OptionError(call, "name", "", shown(name), expected, "name it to create")
        return place, self._file

    def close(self) -> None:
        """Put the file in place; closing it again does nothing.

        Raises:
            ShapeError: A tensor is not whole; then nothing is put in place.
            OptionError: The file cannot be written.
        """
        file = self._file
        if file is None:
            return
        try:
            for name, place in self._places.items():
                if self._done[name] != place.size:
                    actual, expected = f"{self._done[name]} elements", f"all {place.size}"
                    raise ShapeError(self._call, f"tensor {name!r}", "written part", actual, expected, "write the rest")
            if self._frame is not None:
                for name, start in self._rest.items():  # of tensors without elements
                    self._frame.add(f"{name}.npy", start)
                for at, data in self._frame.parts():
                    file.write(data, at)
            file.commit()
        finally:
            self.discard()

    def discard(self) -> None:
        """Take the new file away: what was at its path stays; nothing happens once it is in place."""
        file, self._file = self._file, None
        if file is not None:
            file.discard()

    def __enter__(self) -> NewCheckpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


@dataclass(frozen=True, slots=True)
class _Described:
    """What a file will be: its size, where its tensors go, and what is written before them.

    Of an archive also its frame, and what each member begins with.
    """

    size_bytes: int
    places: Mapping[str, _PlaceInFile]
    parts: Sequence[tuple[int, bytes]]
    frame: ZipFrame | None
    starts: Mapping[str, bytes]


Facts = tuple[DType, tuple[int, ...], Storage]
Notes = Mapping[str, QuantizedNote]


def create(
    path: str | os.PathLike[str], tensors: Mapping[str, tuple[object, Sequence[SupportsIndex]]], *,
    metadata: Mapping[str, str] | None = None, kind: str | None = None,
) -> NewCheckpoint:  # fmt: skip
    """A new file of tensors whose elements come later, part by part: memory stays bounded by a part.

    Args:
        path: As for `save`.
        tensors: Format (what `samebits.dtype` takes) and shape of each, by name.
        metadata: As for `save`.
        kind: As for `save`.

    Raises:
        OptionError: As for `save`.
        DTypeError, LayoutError: A format or a shape is none.
    """
    call = "checkpoint.create"
    found: dict[str, Facts] = {}
    for name, facts in _named(call, tensors).items():
        try:
            dtype, shape = facts
        except (TypeError, ValueError):
            remedy = "write ('float32', (4, 4))"
            raise OptionError(call, f"tensor {name!r}", "", shown(facts), "a format and a shape", remedy) from None
        row = dtypes.named(call, f"format of tensor {name!r}", dtype)
        found[name] = row, check_extents(call, f"shape of tensor {name!r}", shape), "packed"
    return new_checkpoint(call, path, found, metadata, kind, {})


def save(
    path: str | os.PathLike[str], tensors: Mapping[str, object], *, metadata: Mapping[str, str] | None = None,
    kind: str | None = None,
) -> None:  # fmt: skip
    """Write tensors to a file, as a whole or not at all: what is at the path is replaced when all is on the disk.

    Formats that a file cannot name are kept all the same; docs/checkpoints.md says how, and what other readers see.
    Elements of fewer than 8 bits are packed in safetensors; in .npy and .npz they lie as they do in the tensor.

    Args:
        path: Where to.
        tensors: By name, what `Tensor.from_any` takes, a parameter of torch's, or a Quantized, which is written as its
            parts.
        metadata: Free text by name, which `open` gives back; an .npy has none.
        kind: `safetensors`, `npz`, or `npy`, which takes one tensor and forgets its name; by default what the path
            ends with.

    Raises:
        OptionError: The path says no kind or cannot be written; a name or a text is none.
        DTypeError: Elements are of no row of `dtypes.ROWS`.
    """
    call = "checkpoint.save"
    given: dict[str, Tensor] = {}
    notes: dict[str, QuantizedNote] = {}
    for name, x in _named(call, tensors).items():
        value = parts.as_quantized(x)
        if value is None:
            found = {name: _taken(call, name, x)}
        else:
            stored = parts.names(name, value.parts)
            dialect = None if value.dialect is None else value.dialect.name
            notes[name] = QuantizedNote(value.format.name, dialect, value.axis, stored)
            found = {stored[part]: tensor for part, tensor in value.parts.items()}
        for taken in found.keys() & (given.keys() | tensors.keys() - {name}):
            expected = f"the name of a part of {name!r} alone"
            raise OptionError(call, "tensors", "name", repr(taken), expected, "name the other otherwise")
        given |= found
    facts = {name: (x.dtype, x.shape, x.layout.storage) for name, x in given.items()}
    with new_checkpoint(call, path, facts, metadata, kind, notes) as new:
        for name, x in given.items():
            new.write(name, x)


def _taken(call: str, name: str, x: object) -> Tensor:
    """A tensor that is to be written under a name; a file has no gradients, so that a parameter is one too."""
    try:
        if kind_of(x) == "torch" and x.requires_grad:  # type: ignore[attr-defined]  # a tensor has it
            check_torch(x, "Tensor.from_any")
            x = x.detach()  # type: ignore[attr-defined]
        return Tensor.from_any(x)
    except SamebitsError as error:
        raise error.renamed(call, f"tensor {name!r}") from error


def _named(call: str, tensors: object) -> Mapping[str, Any]:
    """Tensors by names that a file can have."""
    if not isinstance(tensors, Mapping):
        remedy = "write {'name': tensor}"
        raise OptionError(call, "tensors", "type", type(tensors).__name__, "a mapping of names", remedy)
    for name in tensors:
        if not parts.is_text(name) or name == header.METADATA or len(name.encode()) > 1 << 15:
            expected = f"text that UTF-8 has, short, and not {header.METADATA!r}"
            raise OptionError(call, "tensors", "name", shown(name), expected, "name it otherwise")
    return tensors


def new_checkpoint(
    call: str,
    path: object,
    tensors: Mapping[str, Facts],
    metadata: Mapping[str, str] | None,
    kind: object,
    quantized: Mapping[str, QuantizedNote],
    words: Mapping[str, str] = MappingProxyType({}),
) -> NewCheckpoint:
    """As `create`, in the name of a call, of tensors some of which are parts of quantised values.

    Args:    words: what a safetensors file calls the formats of some, which are given as numbers as wide.
    """
    name = files.path_of(call, path)
    if kind is None:
        kind = next((known for known in KINDS if name.endswith(f".{known}")), None)
        if kind is None:
            expected = f"one that ends with .{', .'.join(KINDS)}"
            raise OptionError(call, "path", "", files.readable(name), expected, "name it so, or pass kind=")
    elif not isinstance(kind, str) or kind not in KINDS:
        raise OptionError(call, "kind", "", shown(kind), f"one of {', '.join(KINDS)}", "name one of these")
    texts = {} if metadata is None else metadata
    if (
        not isinstance(texts, Mapping)
        or not all(parts.is_text(x) for x in (*texts, *texts.values()))
        or header.NOTE in texts
    ):
        expected = f"text by name, none of which is {header.NOTE!r}"
        raise OptionError(call, "metadata", "", shown(metadata), expected, "make every value text, with json.dumps")
    if kind == "safetensors":
        return NewCheckpoint(call, name, _safetensors(call, tensors, texts, quantized, words))
    for taken, word in words.items():
        raise OptionError(call, f"tensor {taken!r}", "format", word, f"one that .{kind} has", "write a .safetensors")
    describe = {"npz": _archive, "npy": _array}[kind]
    return NewCheckpoint(call, name, describe(call, tensors, texts, quantized))


def _safetensors(
    call: str, tensors: Mapping[str, Facts], metadata: Mapping[str, str], quantized: Notes, words: Mapping[str, str]
) -> _Described:
    start, stored = header.build(
        {name: (dtype, shape) for name, (dtype, shape, _) in tensors.items()}, metadata, quantized, words
    )
    if len(start) > header.LONGEST:
        remedy = "write several files"
        raise OptionError(call, "tensors", "header", f"{len(start)} bytes", f"at most {header.LONGEST}", remedy)
    places = {
        name: _PlaceInFile(x.offset or 0, tensors[name][0], tensors[name][1], "packed") for name, x in stored.items()
    }
    size = len(start) + sum(x.size_bytes for x in stored.values())
    return _Described(size, places, [(0, start)], None, {})


def _array(call: str, tensors: Mapping[str, Facts], metadata: Mapping[str, str], quantized: Notes) -> _Described:
    if len(tensors) != 1 or metadata:
        actual = f"{len(tensors)} tensors" if len(tensors) != 1 else "text beside it"
        raise OptionError(call, "an .npy file", "content", actual, "one tensor alone", "name the file .npz")
    ((name, (dtype, shape, storage)),) = tensors.items()
    start, storage = npy.build(dtype, shape, storage)
    place = _PlaceInFile(len(start), dtype, shape, storage)
    return _Described(len(start) + _size_bytes(place), {name: place}, [(0, start)], None, {})


def _archive(call: str, tensors: Mapping[str, Facts], metadata: Mapping[str, str], quantized: Notes) -> _Described:
    for name in tensors:
        if "\0" in name:
            expected = "one without a zero character, where readers of .npz files end a name"
            raise OptionError(call, "tensors", "name", shown(name), expected, "name it otherwise")
    starts = {name: npy.build(*facts) for name, facts in tensors.items()}
    lying = {name: _PlaceInFile(0, *tensors[name][:2], storage) for name, (_, storage) in starts.items()}
    sizes = {f"{name}.npy": len(start) + _size_bytes(lying[name]) for name, (start, _) in starts.items()}
    said = {"metadata": dict(metadata)} if metadata else {}
    said |= {"quantized": parts.described(quantized)} if quantized else {}
    note = json.dumps(said).encode() if said else b""
    frame = ZipFrame(sizes | ({MEMBER: len(note)} if note else {}))
    if note:
        frame.add(MEMBER, note)
    begins = {name: frame.places[f"{name}.npy"] for name in tensors}
    places = {
        name: _PlaceInFile(begins[name] + len(starts[name][0]), x.dtype, x.shape, x.storage)
        for name, x in lying.items()
    }
    written = [(begins[name], start) for name, (start, _) in starts.items()]
    written += [(frame.places[MEMBER], note)] if note else []
    return _Described(frame.size_bytes, places, written, frame, {name: start for name, (start, _) in starts.items()})


def _size_bytes(place: _PlaceInFile) -> int:
    return -(-place.size * place.pitch_bits // 8)


def _bytes(tensor: Tensor, storage: Storage) -> Any:
    """The elements in row-major order, unused bits 0: the tensor's own bytes where they lie so."""
    if not tensor.device.is_host:
        tensor = tensor.to(CPU)
    layout = tensor.layout
    is_whole = not (layout.offset_bits | layout.size * layout.pitch_bits) % 8
    if not is_whole or layout.storage != storage or not layout.is_contiguous() or storage == "padded":
        source, tensor = tensor, Tensor.empty(tensor.shape, tensor.dtype, storage=storage)
        elements.copy(source.buffer.array(), layout, tensor.buffer.array(), tensor.layout)
        layout = tensor.layout
    first = layout.offset_bits // 8
    return tensor.buffer.array()[first : first + -(-layout.size * layout.pitch_bits // 8)]
