"""verify: does a model's answer depend on anything but its input?

The same rows are run alone, in batches, at other positions, beside other neighbours, with other thread counts, on
every Isa row of this machine and in a second process. Each configuration gives one digest of all rows' outputs; all
must be equal. Where one is not, the first node whose bits differ is searched by running both configurations with
every value kept. Start at `verify`.
"""

from __future__ import annotations

import hashlib
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from samebits import errors, samples
from samebits.codegen import isa as isas
from samebits.program import dim
from samebits.program.graph import Program
from samebits.runtime import cpu

Arrays = dict[str, NDArray[np.generic]]
ROWS = 17
BATCHES = (2, 3, 8, 17)
THREADS = (2, 3)
DEFAULT_EXTENT = 16


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to run the rows: which axis it varies, its name, the digest of the answer, and whether it agrees."""

    axis: str
    name: str
    digest: str
    agrees: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """The first node whose bits differ between the baseline and a configuration."""

    axis: str
    name: str
    node: str
    value: str
    elements: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The largest difference of any output element from another runtime's answer."""

    runtime: str
    output: str
    absolute: float
    ulp: int


@dataclass(frozen=True, slots=True)
class Report:
    """What `verify` found; `exit_code` is 0 if all agree, 1 if not, 2 if an axis could not be varied."""

    configurations: tuple[Configuration, ...]
    difference: Difference | None
    unvaried: tuple[tuple[str, str], ...]
    bindings: tuple[tuple[str, int], ...]

    @property
    def exit_code(self) -> int:
        """0, 1 or 2."""
        if not all(c.agrees for c in self.configurations):
            return 1
        return 2 if self.unvaried else 0

    @property
    def verdict(self) -> str:
        """One sentence."""
        n = len(self.configurations)
        if self.exit_code == 1:
            d = self.difference
            where = f"; first at node {d.node} (value {d.value}), moved by {d.axis}" if d else ""
            wrong = sum(not c.agrees for c in self.configurations)
            return f"NOT the same bits: {wrong} of {n} configurations differ{where}"
        tail = "".join(f"; {axis} could not be varied: {why}" for axis, why in self.unvaried)
        return f"all {n} configurations gave the same bits{tail}"


def batch_axis(shape: Sequence[dim.Size], batch: str | None) -> int | None:
    """The axis whose extent depends on the batch symbol."""
    for axis, size in enumerate(shape):
        if batch is not None and batch in dim.symbols(size):
            return axis
    return None


def part(whole: NDArray[np.generic], axis: int, r: int, count: int) -> NDArray[np.generic]:
    """Row r's share of an axis that holds `count` rows one after another."""
    each = whole.shape[axis] // count
    return whole.take(range(r * each, (r + 1) * each), axis)


def digest(rows: Sequence[Mapping[str, NDArray[np.generic]]]) -> str:
    """SHA-256 of every row's outputs: names, formats, shapes and bits."""
    found = hashlib.sha256()
    for row in rows:
        for name in sorted(row):
            x = np.ascontiguousarray(row[name])
            found.update(f"{name}:{x.dtype}:{x.shape}:".encode() + x.tobytes())
    return found.hexdigest()[:16]


def batch_symbol(program: Program) -> str | None:
    """The symbol that is the first axis of every input, or None."""
    firsts = {fact.shape[0] if fact.shape else 1 for fact in program.inputs.values()}
    names = {frozenset(dim.symbols(size)) for size in firsts}
    if len(firsts) != 1 or len(names) != 1:
        return None
    (symbols,) = names
    return next(iter(symbols)) if len(symbols) == 1 else None


@dataclass(frozen=True)
class _Run:
    """Rows that are run together, and where in them the rows of the test are: (place, number)."""

    rows: tuple[Arrays, ...]
    wanted: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Variant:
    """A configuration to run; `process` runs it in another process."""

    axis: str
    name: str
    runs: tuple[_Run, ...]
    isa: str
    threads: int = 1
    process: bool = False


@dataclass
class _Bench:
    """The program under test, its rows, and the sessions made so far."""

    program: Program
    batch: str | None
    rows: list[Arrays]
    model: pathlib.Path | None
    sessions: dict[tuple[str, int], cpu.Session] = field(default_factory=dict)

    def session(self, isa: str, threads: int) -> cpu.Session:
        """The session for a row and a thread count, prepared once."""
        if (isa, threads) not in self.sessions:
            self.sessions[isa, threads] = cpu.prepare(self.program, isa=isa, threads=threads)
        return self.sessions[isa, threads]

    def stack(self, rows: Sequence[Arrays]) -> Arrays:
        """Rows side by side along the batch axis of each input."""
        stacked = {}
        for name, fact in self.program.inputs.items():
            axis = batch_axis(fact.shape, self.batch)
            parts = [row[name] for row in rows]
            stacked[name] = parts[0] if axis is None else np.concatenate(parts, axis)
        return stacked

    def unstack(self, answer: Arrays, place: int, count: int) -> Arrays:
        """The outputs of the row at `place` among `count`."""
        row = {}
        for name, whole in answer.items():
            axis = batch_axis(self.program.outputs[name].shape, self.batch)
            row[name] = whole if axis is None else part(whole, axis, place, count)
        return row

    def answer(self, variant: _Variant) -> dict[int, Arrays]:
        """The outputs of the rows that the variant runs, in their order."""
        found: dict[int, Arrays] = {}
        for run in variant.runs:
            stacked = self.stack(run.rows)
            if variant.process:
                answer = _in_another_process(self.model, stacked)
            else:
                answer = self.session(variant.isa, variant.threads).run(stacked)
            for place, number in run.wanted:
                found[number] = self.unstack(answer, place, len(run.rows))
        return dict(sorted(found.items()))


def verify(
    program: Program,
    *,
    bindings: Mapping[str, int] | None = None,
    model: pathlib.Path | None = None,
    seed: int = 0,
    interpreter: bool = False,
    progress: Callable[[str], None] = lambda name: None,
) -> Report:
    """Run the same rows in every configuration this machine offers and compare the bits.

    Args:    program: the model.   bindings: extents of its symbols (the batch symbol is varied; others default to
             16).   model: its file, for the second process.   interpreter: also the Isa row `numpy`, for the
             first row alone (it is a thousand times slower).   progress: called with each configuration's name.
    Returns: a Report; `exit_code` 0 all agree, 1 some differ, 2 an axis could not be varied.
    """
    batch = batch_symbol(program)
    bound = dict.fromkeys(program.symbols, DEFAULT_EXTENT) | dict(bindings or {})
    if batch is not None:
        bound[batch] = 1
    rows = [samples.feeds(program, bound, seed + r) for r in range(ROWS if batch is not None else 1)]
    others = [samples.feeds(program, bound, seed + ROWS + r) for r in range(2)]
    samples.poison(others[1])
    bench = _Bench(program, batch, rows, model)
    baseline: dict[int, Arrays] = {}
    found: list[Configuration] = []
    difference: Difference | None = None
    variants = list(_variants(bench, others, interpreter))
    for variant in variants:
        progress(variant.name)
        answer = bench.answer(variant)
        baseline = baseline or answer
        wrong = [r for r in answer if digest([answer[r]]) != digest([baseline[r]])]
        found.append(Configuration(variant.axis, variant.name, digest(list(answer.values())), not wrong))
        if wrong and difference is None:
            difference = _locate(bench, variants[0], variant, wrong[0])
    return Report(tuple(found), difference, tuple(_unvaried(batch, model)), tuple(sorted(bound.items())))


def _variants(bench: _Bench, others: Sequence[Arrays], interpreter: bool) -> Iterator[_Variant]:
    best, rows, numbers = isas.current().name, bench.rows, range(len(bench.rows))

    def together(*groups: Sequence[int]) -> tuple[_Run, ...]:
        return tuple(_Run(tuple(rows[r] for r in g), tuple(enumerate(g))) for g in groups)

    yield _Variant("baseline", f"each row alone, {best}, 1 thread", together(*([r] for r in numbers)), best)
    if bench.batch is not None:
        for n in BATCHES:
            groups = [[(at + i) % ROWS for i in range(n)] for at in range(0, ROWS, n)]
            yield _Variant("batch", f"batches of {n}", together(*groups), best)
        yield _Variant("position", "reversed order", together(list(reversed(numbers))), best)
        yield _Variant("position", "rotated by 5", together([(r + 5) % ROWS for r in numbers]), best)
        between = tuple(_Run((others[0], rows[r], others[1]), ((1, r),)) for r in numbers)
        yield _Variant("neighbours", "each between two other rows", between, best)
    whole = together(list(numbers))
    for threads in THREADS:
        yield _Variant("threads", f"{threads} threads", whole, best, threads)
    for row in isas.isas():
        if row.available and row.compiled and row.name != best:
            yield _Variant("isa", row.name, whole, row.name)
    if bench.model is not None:
        yield _Variant("process", "a second process", whole, best, process=True)
    if interpreter:
        yield _Variant("isa", "numpy, the first row alone", together([0]), "numpy")


def _in_another_process(model: pathlib.Path | None, given: Arrays) -> Arrays:
    with tempfile.TemporaryDirectory() as folder:
        feeds, answer = pathlib.Path(folder) / "in.npz", pathlib.Path(folder) / "out.npz"
        np.savez(feeds, **given)  # type: ignore[arg-type]  # NumPy types savez's own keywords
        command = [sys.executable, "-m", "samebits", "run", str(model), "--input", str(feeds), "--output", str(answer)]
        subprocess.run([*command, "--threads", "1"], check=True, capture_output=True)
        with np.load(answer) as loaded:
            return {name: loaded[name] for name in loaded.files}


def _unvaried(batch: str | None, model: pathlib.Path | None) -> Iterator[tuple[str, str]]:
    if batch is None:
        yield "batch", "the inputs have no common symbolic first axis"
    if sum(row.available and row.compiled for row in isas.isas()) < 2:
        yield "isa", "this machine runs one compiled row only"
    if model is None:
        yield "process", "the model is not a file"


def _locate(bench: _Bench, baseline: _Variant, variant: _Variant, number: int) -> Difference | None:
    """The first value, in the program's order, whose bits for a row differ between two variants.

    The unfused program shows the node; where only a fused kernel differs, its nodes are named together.
    """
    for fuse in (False, True):
        traces = []
        for v in (baseline, variant):
            place, run = next((p, run) for run in v.runs for p, n in run.wanted if n == number)
            session = cpu.prepare(bench.program, isa=v.isa, threads=v.threads, fuse=fuse)
            traces.append((session.trace(bench.stack(run.rows)), place, len(run.rows)))
        (base, base_place, base_count), (other, place, count) = traces
        for name, expected in base.items():
            got = other.get(name)
            if got is None:
                continue
            axis = batch_axis(expected.fact.shape, bench.batch)
            x, y = expected.array, got.array
            if axis is not None:
                x, y = part(x, axis, base_place, base_count), part(y, axis, place, count)
            if x.shape != y.shape or x.tobytes() != y.tobytes():
                elements = int((x != y).sum()) if x.shape == y.shape else x.size
                return Difference(variant.axis, variant.name, expected.node, name, elements)
    return None


def against_onnxruntime(program: Program, model: pathlib.Path, bindings: Mapping[str, int], seed: int) -> Comparison:
    """Run the same made-up inputs here and in ONNX Runtime; the largest difference of float outputs.

    Raises:  OptionError if onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ImportError:
        raise errors.OptionError(
            errors.message("--against", "onnxruntime", "state", "not installed", "installed", "pip install onnxruntime")
        ) from None
    feeds = samples.feeds(program, bindings, seed)
    ours = cpu.prepare(program).run(feeds)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    theirs = session.run(list(ours), feeds)
    found = Comparison("onnxruntime", "", 0.0, 0)
    for (name, x), y in zip(ours.items(), theirs, strict=True):
        if x.dtype.kind == "f" and x.size:
            apart = float(np.nanmax(np.abs(x.astype(np.float64) - y.astype(np.float64))))
            ulp = int(np.max(np.abs(_ordered(x) - _ordered(y))))
            found = max(found, Comparison("onnxruntime", name, apart, ulp), key=lambda c: c.absolute)
    return found


def _ordered(x: NDArray[np.generic]) -> NDArray[np.int64]:
    """Floats as integers in the same order, one apart where they are one ulp apart."""
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").astype(np.int64)
    lowest = -(1 << (8 * x.dtype.itemsize - 1))
    return np.where(bits < 0, lowest - bits, bits)
