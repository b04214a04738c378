"""verify: does a model's answer depend on anything but its input?

The same rows are run alone, in batches, at other positions, beside other neighbours, with other thread counts, on
every Isa row of this machine and in a second process. Each configuration gives one digest of all rows' outputs; all
must be equal. Where one is not, the first node whose bits differ is searched by running both configurations with
every value kept. Start at `verify`.
"""

from __future__ import annotations

import hashlib
import math
import pathlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from samebits import driver, errors, samples
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
            moved = next(c.axis for c in self.configurations if not c.agrees)
            first = f"first at node {d.node} (value {d.value})" if d else "at no single node when run again"
            wrong = sum(not c.agrees for c in self.configurations)
            return f"NOT the same bits: {wrong} of {n} configurations differ; {first}, moved by {moved}"
        tail = "".join(f"; {axis} could not be varied: {why}" for axis, why in self.unvaried)
        return f"all {n} configurations gave the same bits{tail}"


def batch_axis(shape: Sequence[dim.Size], batch: str | None) -> int | None:
    """The axis whose extent depends on the batch symbol."""
    for axis, size in enumerate(shape):
        if batch is not None and batch in dim.symbols(size):
            return axis
    return None


def part(
    whole: NDArray[np.generic], axis: int, r: int, count: int, like: NDArray[np.generic] | None = None
) -> NDArray[np.generic]:
    """Row r's share of an axis that holds `count` rows; all of the axis where it does not divide.

    A batch that was transposed and merged into another axis lies interleaved in it: of the ways that `count` rows can
    lie there, the one that gives the bits of `like` is taken, else one row after another.
    """
    each, rest = divmod(whole.shape[axis], count)
    if rest:
        return whole
    before, after = whole.shape[:axis], whole.shape[axis + 1 :]
    shares = (
        whole.reshape(*before, outer, count, each // outer, *after).take(r, axis + 1).reshape(*before, each, *after)
        for outer in range(1, max(each, 1) + 1)
        if each % outer == 0
    )
    first = next(shares)
    if like is None or like.shape != first.shape or same_bits(first, like):
        return first
    return next((share for share in shares if same_bits(share, like)), first)


def same_bits(x: NDArray[np.generic], y: NDArray[np.generic]) -> bool:
    """Whether formats, shapes and bits are equal: -0 is not 0, and a NaN equals only itself."""
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def different_elements(x: NDArray[np.generic], y: NDArray[np.generic]) -> int:
    """How many elements differ in their bits; all of x where shapes or formats do."""
    if x.shape != y.shape or x.dtype != y.dtype:
        return x.size
    bits = [np.frombuffer(a.tobytes(), np.uint8).reshape(a.size, a.itemsize) for a in (x, y)]
    return int((bits[0] != bits[1]).any(1).sum())


def digest(rows: Sequence[Mapping[str, NDArray[np.generic]]]) -> str:
    """SHA-256 of every row's outputs: names, formats, shapes and bits."""
    found = hashlib.sha256()
    for row in rows:
        for name in sorted(row):
            x = np.ascontiguousarray(row[name])
            found.update(f"{name}:{x.dtype}:{x.shape}:".encode() + x.tobytes())
    return found.hexdigest()[:16]


def batch_symbol(program: Program) -> str | None:
    """The symbol that is the first axis of every input, and no other axis of one; or None."""
    shapes = [fact.shape for fact in program.inputs.values()]
    firsts = {frozenset(dim.symbols(shape[0])) if shape else frozenset[str]() for shape in shapes}
    if len(firsts) != 1 or len({shape[0] for shape in shapes if shape}) != 1:
        return None
    (symbols,) = firsts
    if len(symbols) != 1 or any(not symbols.isdisjoint(dim.symbols(size)) for shape in shapes for size in shape[1:]):
        return None
    return next(iter(symbols))


@dataclass(frozen=True)
class _Run:
    """Rows that are run together, and where in them the rows of the test are: (place, number), once in all runs."""

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

    def unstack(self, answer: Arrays, place: int, count: int, like: Arrays | None) -> Arrays:
        """The outputs of the row at `place` among `count`; `like` are its outputs when it is alone."""
        row = {}
        for name, whole in answer.items():
            axis = batch_axis(self.program.outputs[name].shape, self.batch)
            row[name] = whole if axis is None else part(whole, axis, place, count, like[name] if like else None)
        return row

    def answer(self, variant: _Variant, baseline: Mapping[int, Arrays]) -> dict[int, Arrays]:
        """The outputs of the rows that the variant runs, in their order."""
        found: dict[int, Arrays] = {}
        for run in variant.runs:
            stacked = self.stack(run.rows)
            if variant.process:
                answer = _in_another_process(self.model, variant.isa, stacked)
            else:
                answer = self.session(variant.isa, variant.threads).run(stacked)
            for place, number in run.wanted:
                found[number] = self.unstack(answer, place, len(run.rows), baseline.get(number))
        return dict(sorted(found.items()))


class _ProcessFailed(Exception):
    """The second process gave no answer; the text says why."""


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

    Args:    program: the model.   bindings: extents of its symbols but the batch symbol, which is varied; default
             16.   model: its file, for the second process.   interpreter: also the Isa row `numpy`, for the
             first row alone (it is a thousand times slower).   progress: called with each configuration's name.
    Returns: a Report; `exit_code` 0 all agree, 1 some differ, 2 an axis could not be varied.
    Raises:  OptionError if `bindings` names the batch symbol or one that the model has not; as Session.run.
    """
    batch = batch_symbol(program)
    for name, extent in (bindings or {}).items():
        if name == batch or name not in program.symbols:
            actual = f"{name!r} ({extent})"
            expected = f"one of {[symbol for symbol in program.symbols if symbol != batch]}"
            remedy = "leave it out, verify varies it" if name == batch else "see samebits dump"
            raise errors.OptionError("verify", "bindings", "symbol", actual, expected, remedy)
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
    unvaried = list(_unvaried(batch, model))
    variants = list(_variants(bench, others, interpreter))
    for variant in variants:
        progress(variant.name)
        try:
            answer = bench.answer(variant, baseline)
        except _ProcessFailed as reason:
            unvaried.append((variant.axis, str(reason)))
            continue
        if not found:
            baseline = answer
            if not any(x.size for row in answer.values() for x in row.values()):
                unvaried.append(("input", "the outputs have no elements"))
        wrong = [r for r in answer if digest([answer[r]]) != digest([baseline[r]])]
        found.append(Configuration(variant.axis, variant.name, digest(list(answer.values())), not wrong))
        if wrong and difference is None:
            difference = _locate(bench, variants[0], variant, wrong[0])
    return Report(tuple(found), difference, tuple(unvaried), tuple(sorted(bound.items())))


def _variants(bench: _Bench, others: Sequence[Arrays], interpreter: bool) -> Iterator[_Variant]:
    best, rows, numbers = isas.current().name, bench.rows, range(len(bench.rows))

    def together(*groups: Sequence[int]) -> tuple[_Run, ...]:
        return tuple(_Run(tuple(rows[r] for r in g), tuple(enumerate(g))) for g in groups)

    yield _Variant("baseline", f"each row alone, {best}, 1 thread", together(*([r] for r in numbers)), best)
    if bench.batch is not None:
        for n in BATCHES:
            # The last batch is filled with rows from the front, whose answers the first batch gives.
            groups = tuple(
                _Run(
                    tuple(rows[(at + i) % ROWS] for i in range(n)), tuple((i, at + i) for i in range(min(n, ROWS - at)))
                )
                for at in range(0, ROWS, n)
            )
            yield _Variant("batch", f"batches of {n}", groups, best)
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


def _in_another_process(model: pathlib.Path | None, isa: str, given: Arrays) -> Arrays:
    """What `samebits run` answers.

    Raises:  _ProcessFailed if it does not.
    """
    with tempfile.TemporaryDirectory() as folder:
        feeds, answer = pathlib.Path(folder) / "in.npz", pathlib.Path(folder) / "out.npz"
        samples.write(feeds, given)
        files = (str(model), "--input", str(feeds), "--output", str(answer))
        asked = ("run", *files, "--threads", "1", "--isa", isa)
        with driver.start_python("samebits", asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                complaints = process.communicate()[1].strip().splitlines() or ["nothing"]
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            raise _ProcessFailed(f"it ended with code {process.returncode} and said: {complaints[-1]}")
        return samples.read(answer)


def _unvaried(batch: str | None, model: pathlib.Path | None) -> Iterator[tuple[str, str]]:
    if batch is None:
        yield "batch", "no symbol is the first axis of every input, and only that"
    if sum(row.available and row.compiled for row in isas.isas()) < 2:
        yield "isa", "this machine runs one compiled row only"
    if model is None:
        yield "process", "the model is not a file"


def _locate(bench: _Bench, baseline: _Variant, variant: _Variant, number: int) -> Difference | None:
    """The first value, in the program's order, whose bits for a row differ between two variants.

    The unfused program shows the node; where only a fused kernel differs, its nodes are named together.
    """
    for fuse in (False, True):
        (base, base_place, base_count), (other, place, count) = (
            _traced(bench, v, number, fuse) for v in (baseline, variant)
        )
        for name, expected in base.items():
            got = other.get(name)
            if got is None:
                continue
            x, y = expected.array, got.array
            axis = batch_axis(expected.fact.shape, bench.batch)
            if axis is None:
                x, y = x.ravel(), y.ravel()
            elif x.ndim == y.ndim == len(expected.fact.shape):
                x = part(x, axis, base_place, base_count)
                y = part(y, axis, place, count, x)
            else:
                continue  # made in the memory of an output of another shape: rows cannot be told apart in it
            if not same_bits(x, y):
                return Difference(variant.axis, variant.name, expected.node, name, different_elements(x, y))
    return None


def _traced(bench: _Bench, variant: _Variant, number: int, fuse: bool) -> tuple[dict[str, cpu.Traced], int, int]:
    """Every value of the run that has a row of that number, the row's place in it, and how many rows it has."""
    place, run = next((p, run) for run in variant.runs for p, n in run.wanted if n == number)
    session = cpu.prepare(bench.program, isa=variant.isa, threads=variant.threads, fuse=fuse)
    return session.trace(bench.stack(run.rows)), place, len(run.rows)


def against_onnxruntime(program: Program, model: pathlib.Path, bindings: Mapping[str, int], seed: int) -> Comparison:
    """Run the same made-up inputs here and in ONNX Runtime; the largest difference of any output element.

    Raises:  OptionError if onnxruntime is not installed, or cannot run the model.
    """
    try:
        import onnxruntime
    except ImportError:
        raise errors.OptionError(
            "--against", "onnxruntime", "state", "not installed", "installed", "pip install onnxruntime"
        ) from None
    feeds = samples.feeds(program, bindings, seed)
    ours = cpu.prepare(program).run(feeds)
    try:
        session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        theirs = session.run(list(ours), feeds)
    except Exception as reason:  # its exceptions have no base of their own
        raise errors.OptionError(
            "--against", "onnxruntime", "answer", f"an error ({reason})", "given", "leave it out"
        ) from reason
    return max(
        (compare("onnxruntime", name, ours[name], y) for name, y in zip(ours, theirs, strict=True)),
        key=lambda c: (c.absolute, c.ulp),
    )


def compare(runtime: str, output: str, x: NDArray[np.generic], y: NDArray[np.generic]) -> Comparison:
    """The largest difference of two arrays' elements: infinite where formats, shapes or NaNs differ.

    The ulp are those of floats; -0 is one from +0. Other formats have none.
    """
    if x.shape != y.shape or x.dtype != y.dtype:
        return Comparison(runtime, output, math.inf, 0)
    if x.dtype.kind != "f":
        pairs = zip(x[x != y].tolist(), y[x != y].tolist(), strict=True)
        return Comparison(runtime, output, float(max((abs(int(a) - int(b)) for a, b in pairs), default=0)), 0)
    a, b = x.ravel(), y.ravel()
    wide = [v.astype(np.float64) for v in (a, b)]
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where((wide[0] == wide[1]) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(wide[0] - wide[1]))
    apart = np.where(np.isnan(apart), np.inf, apart)
    first, second = _ordered(a), _ordered(b)
    steps = np.maximum(first, second).view(np.uint64) - np.minimum(first, second).view(np.uint64)
    steps = steps[~(np.isnan(a) & np.isnan(b))]
    return Comparison(runtime, output, float(apart.max(initial=0.0)), int(steps.max(initial=0)))


def _ordered(x: NDArray[np.generic]) -> NDArray[np.int64]:
    """Floats as integers in the same order, one apart where they are one ulp apart."""
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").astype(np.int64)
    largest = (1 << (8 * x.dtype.itemsize - 1)) - 1
    return np.where(bits < 0, ~(bits & largest), bits)
