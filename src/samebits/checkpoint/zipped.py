"""The frame of a zip archive whose members are stored as they are (PKWARE's APPNOTE.TXT, with zip64 throughout).

Sizes are known before anything is written, so every member has its place, and parts of several may come in any order;
only the checksums come last. zipfile, which writes members one after another, has no such way. Start at `ZipFrame`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["ZipFrame"]

_LOCAL, _CENTRAL = struct.Struct("<IHHHHHIIIHH"), struct.Struct("<IHHHHHHIIIHHHHHII")
_EXTRA, _LONG_EXTRA = struct.Struct("<HHQQ"), struct.Struct("<HHQQQ")
_END64, _LOCATOR, _END = struct.Struct("<IQHHIIQQQQ"), struct.Struct("<IIQI"), struct.Struct("<IHHHHIIH")
# Version 4.5 has zip64; names are UTF-8; the day is the first that there is, so that equal tensors make equal files.
_VERSION, _UTF8, _DAY = 45, 1 << 11, 0x21
_UNIX, _MODE = 3 << 8, 0o100644 << 16
_IN_EXTRA, _IN_EXTRA_SHORT = 0xFFFFFFFF, 0xFFFF


class ZipFrame:
    """Where the members of an archive lie, and what stands around them.

    Attributes:
        places: Where each member's bytes begin, by name.
        size_bytes: Of the whole archive.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        """The frame of members of so many bytes, in this order."""
        self._sizes = dict(sizes)
        self._names = {name: name.encode() for name in sizes}
        self._sums = dict.fromkeys(sizes, 0)
        self.places: dict[str, int] = {}
        at = 0
        for name, size in sizes.items():
            self.places[name] = at + _LOCAL.size + len(self._names[name]) + _EXTRA.size
            at = self.places[name] + size
        self._end = at
        entries = sum(_CENTRAL.size + len(raw) + _LONG_EXTRA.size for raw in self._names.values())
        self.size_bytes = at + entries + _END64.size + _LOCATOR.size + _END.size

    def add(self, name: str, data: Any) -> None:
        """Take the next bytes of a member into its checksum."""
        self._sums[name] = zlib.crc32(data, self._sums[name])

    def parts(self) -> Iterator[tuple[int, bytes]]:
        """What stands around the members, with its place; asked for when they are whole."""
        entries = []
        for name, size in self._sizes.items():
            raw, crc = self._names[name], self._sums[name]
            start = self.places[name] - _LOCAL.size - len(raw) - _EXTRA.size
            about = _VERSION, _UTF8, 0, 0, _DAY, crc, _IN_EXTRA, _IN_EXTRA, len(raw)
            yield start, _LOCAL.pack(0x04034B50, *about, _EXTRA.size) + raw + _EXTRA.pack(1, 16, size, size)
            rest = _LONG_EXTRA.size, 0, 0, 0, _MODE, _IN_EXTRA
            entries.append(_CENTRAL.pack(0x02014B50, _UNIX | _VERSION, *about, *rest) + raw)
            entries.append(_LONG_EXTRA.pack(1, 24, size, size, start))
        directory, count = b"".join(entries), len(self._sizes)
        at = self._end + len(directory)
        few = min(count, _IN_EXTRA_SHORT)
        ends = _END64.pack(0x06064B50, 44, _UNIX | _VERSION, _VERSION, 0, 0, count, count, len(directory), self._end)
        ends += _LOCATOR.pack(0x07064B50, 0, at, 1)
        yield self._end, directory + ends + _END.pack(0x06054B50, 0, 0, few, few, _IN_EXTRA, _IN_EXTRA, 0)
