"""One framework, tried: every format in and out, by doing it, in a process that may die without taking us along.

Start at `incoming` and `outgoing`, each one cell of the matrix; `attempt` runs all of a framework's in a child process.
`python -m samebits.doctor.trial NAME` is that child: a line of JSON before each cell and one after, so that the parent
knows in which cell it died.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, Literal, Protocol, TextIO

import numpy as np

from samebits import driver, dtypes
from samebits.doctor import frameworks
from samebits.doctor.framework import CannotHold, Framework, Held, shared
from samebits.doctor.witness import Codes, aligned, codes_for, pack, unpack, unsigned
from samebits.dtypes import DType
from samebits.frozen import dataclass, replace
from samebits.layout import Storage
from samebits.tensor import Tensor

__all__ = [
    "KEPT",
    "Cell",
    "Children",
    "Direction",
    "Outcome",
    "attempt",
    "codes_of",
    "incoming",
    "made",
    "outgoing",
    "said",
    "sent",
    "taken",
    "tensor_of",
]

Direction = Literal["in", "out"]
Outcome = Literal["zero-copy", "copy", "bytes", "refused", "relabelled", "wrong", "crashed", "cannot hold"]
Way = Literal["direct", "row"]
KEPT: tuple[Outcome, ...] = ("zero-copy", "copy")
_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Cell:
    """What happened to a format on its way.

    Attributes:
        framework: A name of `frameworks.ROWS`.
        dtype: A name of `dtypes.ROWS`.
        direction: `in` from the framework to samebits, `out` to it.
        outcome: `zero-copy` and `copy` keep the format and every bit; `bytes` crosses as uint8 with its name beside it.
        reason: Why it was not kept, in the words of whoever refused.
        way: `direct` (`from_any` in; what a user would call first out) or `row`, the way that the framework's row has.
    """

    framework: str
    dtype: str
    direction: Direction
    outcome: Outcome
    reason: str = ""
    way: Way = "direct"


def tensor_of(dtype: DType, codes: Codes, storage: Storage = "packed") -> Tensor:
    """Ours, dense and aligned."""
    raw = aligned(pack(codes, dtype.width_bits) if storage == "packed" else codes)
    return shared(raw.ctypes.data, dtype, codes.shape, raw, storage)


def codes_of(tensor: Tensor) -> Codes:
    """Ours, read through its bytes rather than through its own methods: dense tensors alone."""
    layout, dtype = tensor.layout, tensor.dtype
    width = layout.pitch_bits
    raw = tensor.buffer.array()[layout.offset_bytes :]
    codes = unpack(raw, width, tensor.shape)
    kept: Codes = codes & codes.dtype.type((1 << dtype.width_bits) - 1)
    return kept.astype(unsigned(dtype.width_bits))


def incoming(row: Framework, module: Any, dtype: DType) -> Cell:
    """Framework to samebits: `Tensor.from_any`, then `give` where the row has one."""
    try:
        theirs, held = made(row, module, dtype, codes_for(dtype))
    except CannotHold as error:
        return _as_bytes(row, module, dtype, "in", str(error))
    first = _received(row, dtype, held, lambda: Tensor.from_any(theirs))
    if first.outcome in KEPT or row.give is None:
        return first
    give = row.give
    second = _received(row, dtype, held, lambda: give(module, theirs))
    return replace(second, way="row", reason=first.reason) if second.outcome in KEPT else first


def _received(row: Framework, dtype: DType, held: Held, get: Callable[[], Tensor]) -> Cell:
    """One way in."""
    try:
        ours = get()
    except Exception as error:
        return Cell(row.name, dtype.name, "in", "refused", said(error))
    if ours.dtype is not dtype:
        return Cell(row.name, dtype.name, "in", "relabelled", f"{held.called} came in as {ours.dtype}")
    if ours.shape != held.shape or not np.array_equal(codes_of(ours), held.codes):
        return Cell(row.name, dtype.name, "in", "wrong", f"other elements, or {ours.shape} instead of {held.shape}")
    return Cell(row.name, dtype.name, "in", "zero-copy" if ours.address == held.address else "copy")


def outgoing(row: Framework, module: Any, dtype: DType) -> Cell:
    """Samebits to the framework: `take` without a copy, `take` with one, then `put` where the row has one.

    Elements of fewer than 8 bits are tried packed and padded.
    """
    codes = codes_for(dtype)
    try:
        made(row, module, dtype, codes)
    except CannotHold as error:
        return _as_bytes(row, module, dtype, "out", str(error))
    storages: tuple[Storage, ...] = ("packed", "padded") if dtype.width_bits < 8 else ("packed",)
    cells = [
        sent(row, module, partial(taken, row, module, copy), tensor_of(dtype, codes, storage))
        for copy in (False, True)
        for storage in storages
    ]
    first, best = cells[0], min(cells, key=_rank)
    if best.outcome in KEPT or row.put is None:
        return best
    puts = [sent(row, module, partial(row.put, module), tensor_of(dtype, codes, storage)) for storage in storages]
    best = min(puts, key=_rank)
    return replace(best, way="row", reason=first.reason) if best.outcome in KEPT else first


def taken(row: Framework, module: Any, copy: bool, ours: Tensor) -> Any:
    """Ours as the framework takes it."""
    return row.take(module, ours, copy)


def _rank(cell: Cell) -> int:
    """0 for the best; what is wrong comes before what was refused, so that it is seen."""
    return ("zero-copy", "wrong", "relabelled", "copy", "refused").index(cell.outcome)


def sent(row: Framework, module: Any, send: Callable[[Tensor], Any], ours: Tensor) -> Cell:
    """One way out."""
    name, dtype = row.name, ours.dtype.name
    codes = codes_of(ours)
    try:
        held = row.read(module, send(ours))
    except Exception as error:
        return Cell(name, dtype, "out", "refused", said(error))
    if held.dtype is not ours.dtype:
        return Cell(name, dtype, "out", "relabelled", f"arrived as {held.called}")
    if held.shape != codes.shape or not np.array_equal(held.codes, codes):
        return Cell(name, dtype, "out", "wrong", f"other elements, or {held.shape}")
    return Cell(name, dtype, "out", "zero-copy" if held.address == ours.address else "copy")


def _as_bytes(row: Framework, module: Any, dtype: DType, direction: Direction, why: str) -> Cell:
    """A format that the framework lacks: its bytes go there as uint8 and come back whole."""
    codes = codes_for(dtype)
    try:
        exported = tensor_of(dtype, codes).export("tensor")
        theirs = row.take(module, exported.bytes, False)
        back = Tensor.from_exported(replace(exported, bytes=theirs))
    except Exception as error:
        return Cell(row.name, dtype.name, direction, "cannot hold", f"{why}; as bytes: {said(error)}")
    if back.dtype is not dtype or not np.array_equal(codes_of(back), codes):
        return Cell(row.name, dtype.name, direction, "wrong", "its bytes came back as others")
    return Cell(row.name, dtype.name, direction, "bytes", why)


def made(row: Framework, module: Any, dtype: DType, codes: Codes) -> tuple[Any, Held]:
    """The framework's own tensor of the codes, and what it says itself that it holds."""
    try:
        theirs = row.make(module, dtype, codes)
    except CannotHold:
        raise
    except Exception as error:
        raise CannotHold(said(error)) from error
    held = row.read(module, theirs)
    if held.dtype is not dtype or held.shape != codes.shape or not np.array_equal(held.codes, codes):
        raise CannotHold(f"{row.name} made {held.called} {held.shape} of it")
    return theirs, held


def said(error: Exception) -> str:
    """Whose error, and its first line."""
    first = (str(error).strip() or "without a word").splitlines()[0]
    return f"{type(error).__name__}: {first[:300]}"


def run(row: Framework) -> Iterator[Cell | tuple[str, Direction]]:
    """Every cell of a framework, each announced by its (dtype, direction)."""
    module = importlib.import_module(row.module)
    row.prepare(module)
    for dtype in dtypes.ROWS:
        yield dtype.name, "in"
        yield incoming(row, module, dtype)
        yield dtype.name, "out"
        yield outgoing(row, module, dtype)


class Process(Protocol):
    """What `driver.start_python` gives."""

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class Children:
    """The processes that some threads wait for, so that another thread can end them all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[Process] = set()
        self._is_over = False

    def start(
        self, module: str, arguments: tuple[str, ...], environment: Mapping[str, str] | None = None, **options: Any
    ) -> Process:
        """A process as `driver.start_python` starts it, killed at once where `end` was called before."""
        with self._lock:
            child = driver.start_python(module, arguments, environment, **options)
            self._running.add(child)
            if self._is_over:
                child.kill()
            return child

    def forget(self, child: Process) -> None:
        """The process has ended."""
        with self._lock:
            self._running.discard(child)

    def end(self) -> None:
        """Kill what runs, and what is still started."""
        with self._lock:
            self._is_over = True
            for child in self._running:
                child.kill()


def attempt(row: Framework, children: Children | None = None, seconds: float = _SECONDS) -> tuple[list[Cell], str]:
    """Every cell of a framework, tried in a child process, which is one of `children` while it runs.

    Returns:
        The cells, and why there are no more of them: empty where all were tried. The cell in which the child died is
        one of them.
    """
    with tempfile.TemporaryFile("w+") as file, tempfile.TemporaryFile("w+") as complaints:
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "JAX_PLATFORMS": "cpu"}
        kept = Children() if children is None else children
        # In a session of its own: who interrupts the command from a terminal does not mean a framework's failure.
        child = kept.start(
            "samebits.doctor.trial", (row.name, str(file.fileno())), quiet,
            stdout=subprocess.DEVNULL, stderr=complaints, pass_fds=(file.fileno(),), start_new_session=True,
        )  # fmt: skip
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
        kept.forget(child)
        file.seek(0)
        complaints.seek(0)
        return _gathered(row, file, code, complaints)


def _gathered(row: Framework, file: TextIO, code: int, complaints: TextIO) -> tuple[list[Cell], str]:
    """What the child wrote until it ended with that code."""
    cells: list[Cell] = []
    begun: list[str] = []
    for line in file:
        said = json.loads(line)
        if isinstance(said, list):
            begun = said
        else:
            begun = []
            cells.append(Cell(**said))
    if code == 0 and len(cells) == 2 * len(dtypes.ROWS):
        # One that makes a tensor of no format at all does not lack thirty formats: its row does not fit it.
        nothing = all(cell.outcome in ("bytes", "cannot hold") for cell in cells)
        return cells, f"made a tensor of no format: {cells[0].reason}" if nothing else ""
    last = ([line.strip() for line in complaints if line.strip()] or ["without a word"])[-1]
    end = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    if begun:
        dtype, direction = begun
        cells.append(Cell(row.name, dtype, "in" if direction == "in" else "out", "crashed", f"{end}: {last[:300]}"))
    return cells, f"{end}: {last[:300]}"


def main(name: str, descriptor: str) -> None:
    """The child: write cells as lines of JSON, each through to the file before the next is begun."""
    with os.fdopen(int(descriptor), "w", buffering=1) as file:
        for item in run(frameworks.named(name)):
            print(json.dumps(asdict(item) if isinstance(item, Cell) else item), file=file, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
