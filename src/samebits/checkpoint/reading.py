"""Files of tensors, read: start at `open`, which looks at nothing but the header, and `load`."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np

from samebits import files
from samebits.checkpoint import header, npy, parts
from samebits.checkpoint.parts import QuantizedNote
from samebits.checkpoint.sources import FileSource
from samebits.checkpoint.stored import Refuse, StoredTensor, refusing
from samebits.dtypes import float64
from samebits.errors import ClosedError, ExchangeError, ModelError, OptionError, near, shown
from samebits.frozen import replace
from samebits.layout import Layout
from samebits.memory import Buffer, allocate
from samebits.shapes import check_flag, check_integers
from samebits.tensor import Tensor

if TYPE_CHECKING:
    from samebits.checkpoint.archive import ArchiveSource
    from samebits.ops.quantized import Quantized

__all__ = ["Checkpoint", "load", "open"]

_REMEDY = "get the whole file again, or write it again"


class Checkpoint:
    """A file of tensors by name: `checkpoint[name]` is a tensor, and nothing else of the file is read for it.

    Attributes:
        path: Of the file.
        tensors: What the file says of each, without reading it.
        metadata: The free text that the file keeps beside them.
        quantized: Which tensors are the parts of a quantised value, by its name: `checkpoint[name]` is the value.
    """

    def __init__(
        self, path: str, source: FileSource | ArchiveSource | None, found: header.Header, copy: bool | None
    ) -> None:  # fmt: skip
        self.path = path
        self.tensors: Mapping[str, StoredTensor] = MappingProxyType(found.tensors)
        self.metadata: Mapping[str, str] = MappingProxyType(found.metadata)
        self.quantized: Mapping[str, QuantizedNote] = MappingProxyType(found.quantized)
        taken = {stored for note in found.quantized.values() for stored in note.parts.values()}
        self._names = (*(name for name in found.tensors if name not in taken), *found.quantized)
        self._source: FileSource | ArchiveSource | None = source
        self._copy = copy

    def __repr__(self) -> str:
        state = ", closed" if self._source is None else ""
        return f"Checkpoint({self.path!r}, {len(self._names)} tensors{state})"

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self.quantized or name in self.tensors

    def keys(self) -> Iterator[str]:
        """The names of tensors and of quantised values, whose parts are left out."""
        return iter(self._names)

    def __getitem__(self, name: str) -> Tensor | Quantized:
        """The tensor of that name, on the file's own memory, read-only, or a copy, as `open` was asked.

        A quantised value is a Quantized of such tensors.

        Raises:
            OptionError: There is none of that name, or no format or dialect that the file names.
            ClosedError: The checkpoint was closed.
            DTypeError: Its format is no row of `dtypes.ROWS`.
            ModelError: The file was changed since it was opened, or has no such tensor in it; or its elements have a
                byte each, and one has bits there that are none of its own.
            ExchangeError: Only a copy is possible, and there is to be none.
        """
        call = "Checkpoint[...]"
        note = self.quantized.get(name) if isinstance(name, str) else None
        if note is not None:
            return parts.value(call, name, note, functools.partial(self._tensor, call))
        return self._tensor(call, name)

    def _tensor(self, call: str, name: str) -> Tensor:
        """One tensor that is stored."""
        stored, source = self._found(call, name)
        dtype, layout = stored.format(call), stored.layout(call)
        if self._copy is not True:
            unit = layout.pitch_bits
            try:
                buffer = source.view(stored)
                if buffer is not None and (unit % 8 or not buffer.address % (unit // 8) or not layout.size):
                    _check_bits(call, stored, buffer)
                    return Tensor(buffer, layout, dtype)
            except ClosedError:  # another thread closed it meanwhile
                raise _closed(call) from None
            if self._copy is False:
                actual = "compressed" if buffer is None else f"at an address that is no multiple of {unit // 8}"
                raise ExchangeError(call, f"tensor {name!r}", "", actual, "shared", "leave copy=False out")
        buffer = allocate(stored.size_bytes)
        source.read(stored, 0, buffer.array())
        _check_bits(call, stored, buffer)
        return Tensor(buffer, layout, dtype)

    def read(self, name: str, start: SupportsIndex = 0, stop: SupportsIndex | None = None) -> Tensor:
        """Elements [start, stop) of a tensor in row-major order, along one axis, in memory of their own.

        They are read, never mapped: memory stays bounded by the part, whatever the size of the file.

        Raises:
            OptionError: There is no tensor of that name, or it has not so many elements.
            ClosedError, DTypeError, ModelError: As for `checkpoint[name]`.
        """
        call = "Checkpoint.read"
        stored, source = self._found(call, name)
        dtype, whole = stored.format(call), stored.layout(call)
        first, end = check_integers(call, "(start, stop)", (start, whole.size if stop is None else stop))
        if not 0 <= first <= end <= whole.size:
            expected = f"a part of {whole.size} elements"
            raise OptionError(call, "(start, stop)", "", f"({first}, {end})", expected, "count from the first")
        if not whole.is_contiguous():
            buffer = allocate(stored.size_bytes)
            source.read(stored, 0, buffer.array())
            _check_bits(call, stored, buffer)
            return Tensor(buffer, whole, dtype).copy().reshape((-1,))[first:end]
        pitch = whole.pitch_bits
        begin = first * pitch // 8
        buffer = allocate(-(-end * pitch // 8) - begin)
        source.read(stored, begin, buffer.array())
        _check_bits(call, stored, buffer)
        offset = first * pitch - begin * 8
        return Tensor(buffer, Layout((end - first,), (pitch,), offset, dtype.width_bits, whole.storage), dtype)

    def _found(self, call: str, name: str) -> tuple[StoredTensor, FileSource | ArchiveSource]:
        stored = self.tensors.get(name) if isinstance(name, str) else None
        if stored is None:
            known = near(str(name), self.tensors) or list(self.tensors)[:3]
            expected = f"a tensor of {files.readable(self.path)}, such as {', '.join(map(repr, known)) or 'none'}"
            raise OptionError(call, "name", "", shown(name), expected, "see its tensors")
        source = self._source
        if source is None:
            raise _closed(call)
        return stored, source

    def close(self) -> None:
        """Let go of the file: tensors on its memory are closed, arrays made from them live on. Twice is allowed.

        What another thread is reading meanwhile it reads to the end.
        """
        source, self._source = self._source, None
        if source is not None:
            source.close_views()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _closed(call: str) -> ClosedError:
    return ClosedError(call, "checkpoint", "", "closed", "open", "close it after its last use")


def with_bits(checkpoint: Checkpoint) -> tuple[Checkpoint, dict[str, str]]:
    """The same file, in which complex numbers are taken for numbers as wide; what it calls their format, by name."""
    words = {name: x.stored for name, x in checkpoint.tensors.items() if x.stored == "C64"}
    tensors = {name: replace(x, dtype=float64) if name in words else x for name, x in checkpoint.tensors.items()}
    said = header.Header(tensors, dict(checkpoint.metadata), dict(checkpoint.quantized))
    return Checkpoint(checkpoint.path, checkpoint._source, said, checkpoint._copy), words


def _check_bits(call: str, stored: StoredTensor, buffer: Buffer) -> None:
    """Raise ModelError if an element of fewer than 8 bits in a byte of its own has anything above them.

    Libraries differ in whether they look at those bits, so such an element would be another number to each.
    """
    width = 8 if stored.dtype is None or stored.storage != "padded" else stored.dtype.width_bits
    if width < 8 and (buffer.array() >> np.uint8(width)).any():
        actual = f"with bits above the lowest {width} of a byte"
        raise ModelError(call, f"tensor {stored.name!r}", "elements", actual, "0 there", "write them without")


def open(path: str | os.PathLike[str], *, copy: bool | None = None) -> Checkpoint:
    """The tensors of a safetensors, .npy or .npz file, by name; what it is, its first bytes say.

    Tensors of a safetensors or .npy file lie on the file's own memory (mmap), read-only, and nothing is read before
    it is used. The only tensor of an .npy file has the name of the file without its ending. Nothing is ever unpickled.

    Args:
        path: Of a regular file, whose bytes nobody changes while it is open; one that is replaced, as `save` does it,
            stays what it was for whoever has it open.
        copy: True copies always: safe where another process may write into the file. None where nothing else is
            possible: members of an .npz, elements at an address that is no multiple of their size. False never.

    Raises:
        ModelError: It is no such file, or a damaged one.
        OptionError: path is no path.
    """
    return opened("checkpoint.open", path, copy)


def load(path: str | os.PathLike[str], *, copy: bool | None = None) -> dict[str, Tensor | Quantized]:
    """All tensors of a file, as `open` gives them; they keep the file's memory for as long as they live.

    Raises:
        ModelError: It is no such file, or a damaged one.
        DTypeError: A format is no row of `dtypes.ROWS`; `open` gives the others.
    """
    checkpoint = opened("checkpoint.load", path, copy)
    return {name: checkpoint[name] for name in checkpoint}


def opened(call: str, path: object, copy: bool | None) -> Checkpoint:
    """As `open`, in the name of a call."""
    if copy is not None:
        copy = check_flag(call, "copy", copy)
    name = files.path_of(call, path)
    what = files.readable(name)
    refuse = refusing(call, what, _REMEDY)
    try:
        descriptor = files.opened(name)
    except files.NoFileError as error:
        raise ModelError(call, what, "", error, "a regular file", "copy the tensors into one") from None
    except (OSError, UnicodeEncodeError) as error:
        actual = f"unreadable ({files.reason(error)})"
        raise ModelError(call, what, "", actual, "a readable file", "check the path") from error
    source = FileSource(descriptor, refuse)
    start = source.bytes_at(0, 8)
    # A length that begins with these letters is over the limit, or has zeros behind them.
    if start[:2] == b"PK" and (start[2:4] == b"\5\6" or any(start[4:])):
        from samebits.checkpoint.archive import ArchiveSource

        archive = ArchiveSource(os.dup(descriptor), refuse)
        said = header.Header(archive.tensors, archive.metadata, archive.quantized)
        return Checkpoint(name, archive, said, copy)
    found = _npy(name, source, refuse) if start[:6] == npy.MAGIC else _safetensors(source, refuse)
    return Checkpoint(name, source, found, copy)


def _safetensors(source: FileSource, refuse: Refuse) -> header.Header:
    """What the header of a safetensors file says."""
    start = source.bytes_at(0, header.LENGTH_BYTES)
    if len(start) < header.LENGTH_BYTES:
        raise refuse("size", f"{len(start)} bytes", "a safetensors, .npy or .npz file")
    length = int.from_bytes(start, "little")
    rest = source.size_bytes - header.LENGTH_BYTES
    if length > rest and source.bytes_at(header.LENGTH_BYTES, min(rest, 1)) != b"{":
        raise refuse("content", f"of another kind (it begins with {start!r})", "a safetensors, .npy or .npz file")
    if length > min(header.LONGEST, rest):
        raise refuse("header length", length, f"at most {min(header.LONGEST, rest)}")
    return header.read(source.bytes_at(header.LENGTH_BYTES, length), rest - length, refuse)


def _npy(path: str, source: FileSource, refuse: Refuse) -> header.Header:
    """What the header of an .npy file says."""
    begin, length = npy.length_of(source.bytes_at(0, 12), refuse)
    name = os.path.basename(path).removesuffix(".npy")
    stored = npy.read(source.bytes_at(begin, length), name, begin + length, refuse)
    expected = begin + length + stored.size_bytes
    if stored.dtype is not None and source.size_bytes != expected:
        raise refuse("size", f"{source.size_bytes} bytes", f"{expected}, as its header says")
    return header.Header({name: stored}, {}, {})
