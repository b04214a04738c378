"""Files of tensors turned into others part by part: converted to another format, or quantised.

Memory stays bounded by a part of a tensor, or by one tensor where a result depends on where its element is. What is not
converted is copied. Start at `cast_file` and `quantize_file`.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from samebits.checkpoint import parts
from samebits.checkpoint.element_error import ElementError
from samebits.checkpoint.parts import QuantizedNote
from samebits.checkpoint.reading import Checkpoint, with_bits
from samebits.checkpoint.stored import StoredTensor
from samebits.checkpoint.writing import Facts, NewCheckpoint, new_checkpoint
from samebits.dtypes import DType
from samebits.errors import DTypeError, OptionError, SamebitsError, ShapeError
from samebits.frozen import dataclass
from samebits.kernels.quantize import blocks
from samebits.kernels.quantize.dialects import Dialect
from samebits.kernels.quantize.formats import BlockFormat
from samebits.ops.casts import cast
from samebits.ops.quantize import quantize, quantized_part
from samebits.tensor import Tensor

__all__ = ["ConvertedTensor", "cast_file", "quantize_file"]

# Elements of a part: Python's share of the time is small, and memory a few times 8 MiB.
_PART = 1 << 20
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ConvertedTensor:
    """What became of one tensor of a file.

    Attributes:
        name: What it is called.
        shape: Its extents.
        before: Its format.
        after: Its format now.
        reason: Why it is kept as it was; nothing where it is converted.
        bytes_before: What its elements take.
        bytes_after: What they take now, with all that belongs to them.
        difference: How far it is from what it was; None where it is kept.
    """

    name: str
    shape: tuple[int, ...]
    before: str
    after: str
    reason: str
    bytes_before: int
    bytes_after: int
    difference: ElementError | None


class _Way(Protocol):
    """What becomes of one tensor.

    Attributes:
        facts: The tensors that are written of it.
        part: How many elements are taken at a time.
        after: Its format then.
        reason: Why it is kept, or nothing.
        looks: Whether all of it is looked at before anything is converted.
    """

    facts: Mapping[str, Facts]
    part: int
    after: str
    reason: str
    looks: bool

    def look(self, x: Tensor) -> None:
        """Take notice of a part."""

    def first(self) -> Mapping[str, Tensor]:
        """What is written of all of it, once it was looked at."""

    def converted(self, x: Tensor) -> tuple[Mapping[str, Tensor], Tensor | None]:
        """What is written of a part, and its values where they may be others."""


class _CopiedTensor:
    """A tensor that is copied."""

    looks = False

    def __init__(self, stored: StoredTensor, dtype: DType, reason: str, word: str | None = None) -> None:
        self.name, self.part = stored.name, _PART
        self.facts: Mapping[str, Facts] = {stored.name: (dtype, stored.shape, "packed")}
        self.after, self.reason = word or dtype.name, reason

    def look(self, x: Tensor) -> None:
        """Nothing."""

    def first(self) -> Mapping[str, Tensor]:
        return {}

    def converted(self, x: Tensor) -> tuple[Mapping[str, Tensor], Tensor | None]:
        return {self.name: x}, None


class _CastTensor(_CopiedTensor):
    """A tensor that is converted to another format."""

    def __init__(self, stored: StoredTensor, dtype: DType, convert: Callable[[Tensor], Tensor], *, whole: bool) -> None:
        super().__init__(stored, dtype, "")
        self._convert = convert
        if whole:
            self.part = max(math.prod(stored.shape), 1)

    def converted(self, x: Tensor) -> tuple[Mapping[str, Tensor], Tensor | None]:
        y = self._convert(x)
        return {self.name: y}, y


class _QuantizedTensor:
    """A tensor that is quantised in blocks along its last axis."""

    reason = ""

    def __init__(self, stored: StoredTensor, dtype: DType, row: BlockFormat, dialect: Dialect) -> None:
        self._row, self._dialect, self._dtype, self._shape = row, dialect, dtype, stored.shape
        self.after, self.looks = row.name, row.global_scale is not None
        self._largest = 0.0
        self._special: set[float] = set()  # Inf, and the one object math.nan
        self._global: Tensor | None = None
        due = {"elements": row.element, "scales": row.scale}
        due |= {"global_scale": row.global_scale} if row.global_scale else {}
        due |= {"zero_points": row.zero_point} if row.zero_point else {}
        self._names = parts.names(stored.name, due)
        shapes: dict[str, tuple[int, ...]] = {"elements": stored.shape, "global_scale": ()}
        scales = blocks.scales_shape(row, stored.shape, -1)
        self.facts: Mapping[str, Facts] = {
            self._names[part]: (x, shapes.get(part, scales), "packed") for part, x in due.items()
        }
        self.note = QuantizedNote(row.name, dialect.name, -1, self._names)
        self.part = self._part()

    def _part(self) -> int:
        """Elements of as many lines as fit: whole blocks of one matrix, which end at whole bytes of every part."""
        size, columns = math.prod(self._shape), self._shape[-1]
        across = blocks.extents(self._row, self._shape, -1)[-2] if len(self._shape) > 1 else 1
        if not size:
            return 1
        lines = max(_PART // (columns * across), 1) * across
        if across == 1:
            lines = lines // 8 * 8 or lines
        else:
            # A part ends where a matrix does, and only its last block may be short.
            rows = self._shape[-2]
            fitting = [n for n in range(across, min(lines, rows) + 1, across) if rows % n == 0]
            lines = max(fitting, default=rows)
        scales = math.prod(blocks.scales_shape(self._row, (lines, columns), -1))
        counts = {"elements": lines * columns, "global_scale": 8}
        bits = [counts.get(part, scales) * self.facts[name][0].width_bits for part, name in self._names.items()]
        return lines * columns if not any(n % 8 for n in bits) else size

    def look(self, x: Tensor) -> None:
        """Keep what the largest magnitude of all depends on: a part's own, and whether an Inf or a NaN is there."""
        values = _numbers(x)
        largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
        if not math.isfinite(largest):
            self._special |= {math.inf} if np.isinf(values).any() else set()
            self._special |= {math.nan} if np.isnan(values).any() else set()
            largest = float(abs(values[np.isfinite(values)]).max(initial=0.0))
        self._largest = max(self._largest, largest)

    def first(self) -> Mapping[str, Tensor]:
        """The global scale, as the dialect finds it for a block that has the extremes of all."""
        if not self.looks:
            return {}
        across, along = (n or 1 for n in self._row.block)
        extremes = [self._largest, *self._special]
        block = np.zeros((across, max(along, len(extremes))), self._dtype.numpy)
        block[0, : len(extremes)] = extremes
        self._global = quantize(block, self._row, dialect=self._dialect).global_scale
        assert self._global is not None
        return {self._names["global_scale"]: self._global}

    def converted(self, x: Tensor) -> tuple[Mapping[str, Tensor], Tensor | None]:
        shape = self._shape if x.size == math.prod(self._shape) else (-1, self._shape[-1])
        q = quantized_part(x.reshape(shape), self._row, self._dialect, self._global)
        made = {self._names[part]: y for part, y in q.parts.items() if part != "global_scale"}
        return made, q.dequantize()


def cast_file(
    call: str, source: Checkpoint, path: str, dtype: DType, convert: Callable[[Tensor], Tensor], *,
    include: Sequence[str] = (), exclude: Sequence[str] = (), whole: bool = False,
    progress: Progress = lambda _: None,
) -> list[ConvertedTensor]:  # fmt: skip
    """Write a file whose tensors of floats are converted to a format.

    Args:
        call: The public name of what is done, for messages.
        source: The file to read.
        path: The file to write.
        dtype: The format.
        convert: What makes elements of it.
        include: Patterns of names, by which tensors of integers are converted too; by default all tensors of floats.
        exclude: Patterns of names that are left as they are.
        whole: Whether a tensor is converted at once, because its elements' places matter.
        progress: Takes what is being done.

    Raises:
        OptionError, DTypeError: As `convert` raises them; a pattern matches nothing; the file cannot be written.
        ModelError: The file is damaged.
    """
    _check_patterns(call, source, include, exclude)
    source, words = with_bits(source)
    taken = {part for note in source.quantized.values() for part in note.parts.values()}
    turns: dict[str, _Way] = {}
    for name, stored in source.tensors.items():
        before, reason = stored.format(call), ""
        if name in taken:
            reason = "part of a quantised value"
        elif not _is_named(name, include, exclude):
            reason = "not chosen"
        elif not before.is_float and not include:
            reason = "no floats"
        elif before is dtype:
            reason = "of this format"
        reason = _strange(call, name, words, reason, include)
        if reason:
            turns[name] = _CopiedTensor(stored, before, reason, words.get(name))
        else:
            turns[name] = _CastTensor(stored, dtype, convert, whole=whole)
    return _written(call, source, path, turns, source.quantized, words, progress, pictured=False)


def quantize_file(
    call: str, source: Checkpoint, path: str, row: BlockFormat, dialect: Dialect, *,
    include: Sequence[str] = (), exclude: Sequence[str] = (), pictured: bool = False,
    progress: Progress = lambda _: None,
) -> list[ConvertedTensor]:  # fmt: skip
    """Write a file whose matrices of floats are quantised in blocks along their last axis.

    Args:
        call: The public name of what is done, for messages.
        source: The file to read.
        path: The file to write.
        row: The block format.
        dialect: By which formulas.
        include: Patterns of names, each tensor of which must be quantisable; by default all matrices that are.
        exclude: Patterns of names that are left as they are.
        pictured: Whether the differences have cells for a picture.
        progress: Takes what is being done.

    Raises:
        OptionError: A pattern matches nothing; the file cannot be written.
        ShapeError: A tensor that is named cannot be quantised.
        ModelError: The file is damaged.
    """
    _check_patterns(call, source, include, exclude)
    source, words = with_bits(source)
    taken = {part for note in source.quantized.values() for part in note.parts.values()}
    turns: dict[str, _Way] = {}
    notes = dict(source.quantized)
    for name, stored in source.tensors.items():
        before = stored.format(call)
        reason = "not chosen" if not _is_named(name, include, exclude) else _why_not(stored, before, row, dialect)
        reason = "part of a quantised value" if name in taken else reason
        reason = _strange(call, name, words, reason, include)
        if include and reason not in ("", "not chosen"):
            expected = f"a matrix of {' or '.join(dialect.takes)} that blocks of {row} divide"
            raise ShapeError(call, f"tensor {name!r}", "", reason, expected, "leave it out with --exclude")
        if reason:
            turns[name] = _CopiedTensor(stored, before, reason, words.get(name))
        else:
            turn = _QuantizedTensor(stored, before, row, dialect)
            turns[name], notes[name] = turn, turn.note
    return _written(call, source, path, turns, notes, words, progress, pictured=pictured)


def _strange(call: str, name: str, words: Mapping[str, str], reason: str, include: Sequence[str]) -> str:
    """Why a tensor is kept, one of complex numbers always.

    Raises:  DTypeError if such a one is named.
    """
    if name not in words or reason == "not chosen":
        return reason
    if include:
        remedy = "leave it out with --exclude"
        raise DTypeError(call, f"tensor {name!r}", "format", words[name], "an element format", remedy)
    return f"of {words[name]}"


def _why_not(stored: StoredTensor, dtype: DType, row: BlockFormat, dialect: Dialect) -> str:
    """Why a tensor cannot be quantised, or nothing."""
    if dtype.name not in dialect.takes:
        return f"of {dtype}"
    if len(stored.shape) < 2:
        return "no matrix"
    due = blocks.extents(row, stored.shape, -1)
    short = [f"{n} elements along axis {i}" for i, (n, b) in enumerate(zip(stored.shape, due, strict=True)) if n % b]
    return "" if row.partial or not short else f"of {short[0]}"


def _is_named(name: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Whether patterns of a shell, such as `*.weight`, choose a name."""
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in exclude):
        return False
    return not include or any(fnmatch.fnmatchcase(name, pattern) for pattern in include)


def _check_patterns(call: str, source: Checkpoint, include: Sequence[str], exclude: Sequence[str]) -> None:
    """Raise OptionError for a pattern that no name matches."""
    for operand, patterns in (("--include", include), ("--exclude", exclude)):
        for pattern in patterns:
            if not any(fnmatch.fnmatchcase(name, pattern) for name in source.tensors):
                some = ", ".join(map(repr, list(source.tensors)[:3])) or "none"
                remedy = "see what the file has, with --json"
                raise OptionError(call, operand, "", repr(pattern), f"a pattern of a name, such as {some}", remedy)


def _written(
    call: str, source: Checkpoint, path: str, turns: Mapping[str, _Way], notes: Mapping[str, QuantizedNote],
    words: Mapping[str, str], progress: Progress, *, pictured: bool,
) -> list[ConvertedTensor]:  # fmt: skip
    """Write what becomes of every tensor of a file."""
    facts: dict[str, Facts] = {}
    for name, turn in turns.items():
        for taken in turn.facts.keys() & (facts.keys() | turns.keys() - {name}):
            expected = f"the name of a part of {name!r} alone"
            raise OptionError(call, "file", "name", repr(taken), expected, f"leave {name!r} out with --exclude")
        facts |= turn.facts
    with new_checkpoint(call, path, facts, source.metadata, None, notes, words) as new:
        return [_turned(call, source, new, name, turn, progress, pictured) for name, turn in turns.items()]


def _turned(
    call: str, source: Checkpoint, new: NewCheckpoint, name: str, turn: _Way, progress: Progress, pictured: bool
) -> ConvertedTensor:
    """Convert one tensor part by part and write it."""
    stored = source.tensors[name]
    difference = None if turn.reason else ElementError(stored.shape, pictured=pictured)
    if turn.looks:
        for x in _parts(source, stored, turn.part, progress, "looked at"):
            turn.look(x)
    for written, y in turn.first().items():
        new.write(written, y)
    for x in _parts(source, stored, turn.part, progress, "written"):
        try:
            made, values = turn.converted(x)
        except SamebitsError as error:
            raise error.renamed(call, f"tensor {name!r}") from None
        for written, y in made.items():
            new.write(written, y)
        if difference is not None and values is not None:
            difference.add(_numbers(x), _numbers(values).reshape(-1))
    before = stored.format(call)
    sizes = [
        _size_bytes(dtype, shape) for dtype, shape in [(before, stored.shape), *[x[:2] for x in turn.facts.values()]]
    ]
    return ConvertedTensor(
        name,
        stored.shape,
        turn.after if turn.reason else before.name,
        turn.after,
        turn.reason,
        sizes[0],
        sum(sizes[1:]),
        difference,
    )


def _numbers(x: Tensor) -> npt.NDArray[Any]:
    """The elements as numbers that NumPy has; kernels make those of the narrow floats, in a fraction of the time."""
    if x.dtype.is_float and x.dtype.width_bits < 32:
        x = cast(x, "float32")
    return x.values() if x.dtype.width_bits < 8 else x.numpy()


def _size_bytes(dtype: DType, shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) * dtype.width_bits // 8)


def _parts(source: Checkpoint, stored: StoredTensor, count: int, progress: Progress, done: str) -> Iterator[Tensor]:
    """The elements of a tensor, so many at a time."""
    size = math.prod(stored.shape)
    if stored.order == "F":  # whose elements do not follow each other in the file
        count = max(size, 1)
    for start in range(0, size, count):
        progress(f"{stored.name}: {start / size:.0%} {done}")
        yield source.read(stored.name, start, min(start + count, size))
