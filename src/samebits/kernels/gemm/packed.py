"""PackedMatrix: a right operand kept in panels, as a value that can be pickled and reused.

The bytes are [batch][panel][step][nr] words of an engine, columns beyond N zero, then one int32 a column of facts where
the engine has them; or codes, of floats of 16 bits (`engine.HALVES`) or of weights (`WEIGHTS`, `NIBBLES`), behind which
the scales of their blocks may lie, [panel][block][nr]. They depend on the engine and the width `nr` of a panel alone,
so rows of one width share them; a product on a row of another width, or with elements that the engine does not take,
refuses them (`plan` raises), but codes are read wherever a panel is whole vectors. Start at `PackedMatrix`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from samebits.dtypes import DType, bfloat16, float32
from samebits.errors import ExchangeError, PlanError, ShapeError, shown
from samebits.frozen import dataclass
from samebits.kernels.gemm.contraction import Panels
from samebits.kernels.gemm.engine import FMA32, HALVES, NIBBLES, ROWS, WEIGHTS, Engine, named, takes
from samebits.kernels.gemm.inner import size_words
from samebits.kernels.plan import in_lines
from samebits.tensor import Tensor

FORMAT = "samebits-panels-2"
# Whose panels there are.
_ENGINES = (*ROWS, *WEIGHTS, *HALVES, *NIBBLES)
# No memory holds so many, and layouts count no further where an extent is 0.
_MOST_ELEMENTS = 1 << 57


def size_elements(k: int, n: int, nr: int, engine: Engine) -> int:
    """Words of one packed matrix."""
    return size_words(engine, k, -(-n // nr) * nr)


def scales_at(k: int, n: int, nr: int, engine: Engine) -> int:
    """Bytes of panels, behind which the scales are."""
    size_bytes = size_elements(k, n, nr, engine) * engine.word.size_bytes
    return size_bytes if engine in NIBBLES else in_lines(size_bytes)


def size_scaled(k: int, n: int, nr: int, engine: Engine, block: int, scale: DType | None) -> int:
    """Words of one packed matrix with the scales of its blocks, if it has any."""
    if scale is None:
        return size_elements(k, n, nr, engine)
    scales = -(-k // block) * -(-n // nr) * nr * scale.size_bytes
    return (scales_at(k, n, nr, engine) + scales) // engine.word.size_bytes


@dataclass(frozen=True, slots=True)
class PackedFacts:
    """A right operand in panels as a product sees it; the fields are those of `PackedMatrix`."""

    shape: tuple[int, ...]
    nr: int
    dtype: DType
    engine: str
    block: int = 0
    scale: DType | None = None
    global_scale: float | None = None

    def panels(self, batch: tuple[int, ...]) -> Panels:
        """The operand description, its batch dimensions broadcast to `batch`.

        Raises:  ShapeError if they do not broadcast.
        """
        own, strides = self.shape[:-2], list[int]()
        engine = named(self.engine)
        size = size_elements(self.shape[-2], self.shape[-1], self.nr, engine)
        padded = (1,) * (len(batch) - len(own)) + own
        if len(own) > len(batch) or any(x not in (1, y) for x, y in zip(padded, batch, strict=True)):
            expected = f"dimensions that broadcast to {batch}"
            raise ShapeError("matmul", "b", "batch dimensions", own, expected, "pack a matrix that broadcasts")
        for extent in reversed(padded):
            strides.append(0 if extent == 1 else size)
            size *= extent
        dtype = engine.b if engine in WEIGHTS else self.dtype
        return Panels(self.nr, tuple(reversed(strides)), dtype, self.engine, self.block, self.scale)


@dataclass(frozen=True, slots=True, eq=False)
class PackedMatrix:
    """b[..., K, N] in panels, as `pack` makes it and products take it in the place of b.

    Attributes:
        tensor: words [elements], contiguous.
        shape: (..., K, N) of the matrix that was packed.
        dtype: Format of its elements, as they were before their zero points left them.
        nr: Columns of a panel.
        isa: The Isa row that it was packed for; any row with panels of `nr` columns takes it.
        engine: The name of the engine whose words these are.
        format: The tag of the layout, checked when it is unpickled.
        block: Elements along K that share one of the scales behind the words; 0 where there are none.
        scale: What these are kept as.
        global_scale: What the finished sums are multiplied with beside; None where there is none.
    """

    tensor: Tensor
    shape: tuple[int, ...]
    nr: int
    isa: str
    dtype: DType = float32
    engine: str = FMA32.name
    format: str = FORMAT
    block: int = 0
    scale: DType | None = None
    global_scale: float | None = None

    def __post_init__(self) -> None:
        """A product reads as far as shape says: refuse fewer words than that, and others; a pickle may hold anything.

        Raises:  PlanError.
        """
        shape = self.shape if type(self.shape) is tuple else ()
        is_shape = len(shape) >= 2 and all(type(x) is int and x >= 0 for x in shape)
        is_shape = is_shape and math.prod(max(x, 1) for x in shape) < _MOST_ELEMENTS
        _check(is_shape, "shape", self.shape, "that of a matrix")
        _check(type(self.nr) is int and self.nr >= 1, "nr", self.nr, "an integer of at least 1")
        _check(type(self.isa) is str, "isa", self.isa, "the name of an Isa row")
        known = type(self.engine) is str and self.engine in [row.name for row in _ENGINES]
        _check(known, "engine", self.engine, "the name of an engine")
        engine, words, (k, n) = named(self.engine), self.tensor, shape[-2:]
        suits = isinstance(self.dtype, DType) and takes(engine.b, self.dtype)
        _check(suits, "dtype", self.dtype, f"one that words of {engine.name} hold")
        if engine in NIBBLES:
            _check(self.dtype is engine.b and len(shape) == 2 and k % 8 == 0, "shape", shape, "[K, N] of K in eights")
        _check(type(self.block) is int and self.block >= 0, "block", self.block, "an integer of at least 0")
        if engine in HALVES or (engine in WEIGHTS and not engine.b.is_integer):
            _check(self.dtype is engine.b, "dtype", self.dtype, engine.b.name)
        kept = (bfloat16, float32) if engine in NIBBLES else (float32,) if engine in WEIGHTS and len(shape) == 2 else ()
        is_kept = self.scale in kept if self.block else self.scale is None
        _check(is_kept, "scale", self.scale, "that of weights of at most 8 bits")
        _check(
            self.global_scale is None or type(self.global_scale) is float, "global_scale", self.global_scale, "a float"
        )
        due = math.prod(self.shape[:-2]) * size_scaled(k, n, self.nr, engine, self.block, self.scale)
        if words.dtype is not engine.word or words.size < due or not words.layout.is_contiguous():
            actual = f"{words.size} of {words.dtype.name}"
            expected = f"{due} of {engine.word.name}, one after the other"
            raise PlanError("PackedMatrix", "words", "count", actual, expected, "pack the matrix again")

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NoReturn:
        """NumPy's protocol, refused: words of panels are no elements of the matrix in any order that NumPy has.

        Raises:  ExchangeError, always.
        """
        actual = f"a packed matrix {list(self.shape)}"
        raise ExchangeError("numpy.asarray", "x", "", actual, "an array", "pass the array that was packed")

    @property
    def fits(self) -> PackedFacts:
        """What it may be multiplied with follows from this: all but where its words lie."""
        return PackedFacts(
            self.shape, self.nr, self.dtype, self.engine, self.block, self.scale, self.global_scale
        )  # fmt: skip

    def __reduce__(self) -> tuple[Callable[..., PackedMatrix], tuple[object, ...]]:
        words = np.array(self.tensor.numpy())
        kept = self.block, self.scale, self.global_scale
        return _restored, (words, self.shape, self.nr, self.isa, self.dtype, self.engine, self.format, *kept)


def _check(is_right: bool, fact: str, actual: object, expected: str) -> None:
    if not is_right:
        raise PlanError("PackedMatrix", fact, "", shown(actual), expected, "pack the matrix again")


def _restored(
    words: npt.NDArray[Any], shape: tuple[int, ...], nr: int, isa: str, dtype: DType, engine: str, format: str,
    *kept: Any,
) -> PackedMatrix:  # fmt: skip
    _check(type(format) is str and format == FORMAT, "format", format, repr(FORMAT))
    is_words = isinstance(words, np.ndarray) and words.dtype in (row.word.numpy for row in _ENGINES)
    _check(is_words, "words", getattr(words, "dtype", type(words)), "an array of an engine's words")
    tensor = Tensor.empty(words.shape, words.dtype)
    tensor.numpy()[...] = words
    return PackedMatrix(tensor, shape, nr, isa, dtype, engine, format, *kept)
