"""verify: does a model's answer depend on anything but its input?

The same rows are run alone, in batches, at other positions, beside other neighbours, with other thread counts, on every
Isa row of this machine, from memory of other strides, and in a second process, for inputs of several kinds and extents.
Each kind of input gives one digest of all rows' outputs in every configuration. Where one is not equal, the first node
whose bits differ is searched by running both configurations with every value kept. Start at `verify`.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from samebits import errors, samples
from samebits.codegen import isa as isas
from samebits.kernels.gemm.contraction import SB1, Spec, check_spec
from samebits.onnx.loading import load_bound
from samebits.program.graph import Program
from samebits.program.spec import by_spec
from samebits.shapes import check_size, check_type
from samebits.verification import rows as rows_
from samebits.verification.process import ProcessFailed, SecondProcess
from samebits.verification.proof import prove
from samebits.verification.report import Configuration, Difference, TriedAxis, Verification
from samebits.verification.rows import Arrays
from samebits.verification.sessions import Sessions, Variant
from samebits.verification.sizes import ODD, ModelSizes
from samebits.verification.variants import ROWS, Case, Variants

__all__ = ["AXES", "DEFAULT_EXTENT", "MOST_ELEMENTS", "verify"]

DEFAULT_EXTENT = 16
# Some tenths of a second a run: 75 sentences of 16 tokens for MiniLM.
MOST_ELEMENTS = 1 << 27
# The axes, in the order in which they are told.
AXES = ("inputs", "extents", "batch", "position", "neighbours", "threads", "isa", "strides", "process")
# Magnitudes that integers are kept to, one after the other, until the model does not refuse them (as indices).
_NARROWED = (None, 1 << 16, 1 << 8, 1 << 4, 1)
# Why an axis has no values.
_MISSING = {
    "batch": "no symbol is the first axis of every input, and only that",
    "threads": "no step has enough to do to be shared, within the sizes that were tried",
    "isa": "this machine runs one compiled row only",
    "strides": "the model refuses other strides",
    "process": "a Program has no file that another process could load",
}


def verify(
    model: object,
    *,
    bindings: Mapping[str, int] | None = None,
    seed: int = 0,
    interpreter: bool = False,
    most_elements: int = MOST_ELEMENTS,
    spec: Spec = SB1,
    progress: Callable[[str], None] = lambda name: None,
) -> Verification:
    """Run the same rows in every configuration that this machine offers and compare the bits.

    What is varied: the batch, the position in it, the neighbours (NaN, infinities and huge values among them), the
    threads, the Isa row, the strides of the inputs, the process; for inputs that make sense and for numbers of every
    size, at several extents. Batches and extents go beyond the constants of the model that they could be compared with.
    What was tried is in the result; other inputs, sizes and machines were not. Beside it the result says for which
    outputs it is proved, from the operations alone, that a row's share depends on that row of the inputs and on nothing
    else of the batch.

    Args:
        model: A path, bytes, a binary file or a ModelProto of ONNX, or a Program, which no second process can run.
        bindings: Extents of its symbols but the batch symbol, which is varied; the others are varied too, around 16.
            They are fixed in a model that cannot be loaded without them.
        seed: Of the inputs that are made up.
        interpreter: Also the Isa row `numpy`, for the first row alone: it is a thousand times slower.
        most_elements: How many elements all values of a run may have; bounds the sizes that are tried, and the time.
        spec: The order of the model's sums of products of floats.
        progress: Called with each configuration's name.

    Raises:
        OptionError: `bindings` names the batch symbol or one that the model has not, or a number is out of range.
        ModelError: As `samebits.onnx.load`.
        ShapeError: The model refuses one row of inputs that make sense.
    """
    check_spec("verify", spec)
    given = {} if bindings is None else bindings
    check_type("verify", "bindings", given, Mapping, "write {'H': 224} for a symbol H")
    program, source, is_fixed = _opened(model, given)
    program = by_spec(program, spec)
    batch = rows_.batch_symbol(program)
    fixed = {name: int(size) for name, size in given.items()} if is_fixed else {}
    chosen = {} if is_fixed else _checked(program, batch, given)
    _check_most(most_elements)
    bound = dict.fromkeys(program.symbols, DEFAULT_EXTENT) | chosen
    if batch is not None:
        bound[batch] = 1
    with contextlib.ExitStack() as stack:
        second = None if source is None else stack.enter_context(SecondProcess(source, program.digest(), spec, fixed))
        sessions = Sessions(program, batch, second)
        trial = _Trial(sessions, ModelSizes(program, batch, most_elements), seed, progress)
        free = [name for name in program.symbols if name != batch and name not in chosen]
        try:
            trial.case("sensible", bound, None, interpreter=interpreter)
        except errors.ShapeError as reason:
            if not free:
                raise
            actual = f"{_extents(bound, batch)} unless it is given"
            remedy = f"give others to verify ({reason})"
            raise errors.ShapeError("verify", "bindings", "", actual, "sizes that the model takes", remedy) from reason
        trial.wide_case("wide", bound)
        trial.extents(bound, free)
        return trial.verification(fixed | bound)


def _opened(model: object, bindings: Mapping[str, int]) -> tuple[Program, pathlib.Path | bytes | None, bool]:
    """The program, what a second process can load it from, and whether bindings are fixed in it."""
    if isinstance(model, Program):
        return model, None, False
    if hasattr(model, "read"):
        model = model.read()
        return _opened(io.StringIO(model), bindings) if isinstance(model, str) else _opened(model, bindings)
    program, is_fixed = load_bound(model, bindings)
    if isinstance(model, str | os.PathLike):
        return program, pathlib.Path(model).absolute(), is_fixed
    if isinstance(model, bytes | bytearray | memoryview):
        return program, bytes(model), is_fixed
    return program, model.SerializeToString() if hasattr(model, "SerializeToString") else None, is_fixed


def _checked(program: Program, batch: str | None, bindings: Mapping[str, int]) -> dict[str, int]:
    """The extents of symbols that are not varied."""
    others = [symbol for symbol in program.symbols if symbol != batch]
    for name, extent in bindings.items():
        if name not in others:
            expected = f"one of {others}" if others else "left out: the model has no other symbol"
            remedy = "leave it out, verify varies it" if name == batch else "see samebits dump"
            raise errors.OptionError("verify", "bindings", "symbol", f"{name!r} ({extent})", expected, remedy)
    return {
        name: check_size("verify", "bindings", extent, "give a size", f"extent of {name!r}")
        for name, extent in bindings.items()
    }


def _check_most(most_elements: object) -> None:
    if isinstance(most_elements, bool) or not isinstance(most_elements, int) or most_elements < 1:
        remedy = "leave it out for what takes seconds"
        raise errors.OptionError("verify", "most_elements", "", most_elements, "an integer from 1 on", remedy)


def _by_axis() -> dict[str, dict[str, None]]:
    return {axis: {} for axis in AXES}


@dataclass
class _Trial:
    """A model under test, and what was found so far. The dicts without values are sets that keep their order."""

    sessions: Sessions
    sizes: ModelSizes
    seed: int
    progress: Callable[[str], None]
    found: list[Configuration] = field(default_factory=list)
    values: dict[str, dict[str, None]] = field(default_factory=_by_axis)
    notes: dict[str, dict[str, None]] = field(default_factory=_by_axis)
    unvaried: dict[tuple[str, str], None] = field(default_factory=dict)
    difference: Difference | None = None
    shown: set[str] = field(default_factory=set)
    numbers: set[str] = field(default_factory=set)

    # -- kinds and sizes of inputs ----------------------------------------------------------------------------------
    def case(
        self, name: str, bindings: dict[str, int], most: int | None, *, wide: bool = False, full: bool = True,
        interpreter: bool = False,
    ) -> None:  # fmt: skip
        """Try every configuration on rows of one kind and size; not `full` is one or two values of each axis.

        Raises:  ShapeError if the model refuses a row.
        """
        program = self.sessions.program
        count = ROWS if self.sessions.batch is not None else samples.SPREADS
        seeds = range(self.seed, self.seed + count)
        rows = (
            samples.wide(program, bindings, x, most) if wide else samples.feeds(program, bindings, x) for x in seeds
        )
        others = (samples.feeds(program, bindings, self.seed + count + i) for i in range(2))
        case = Case(name, bindings, tuple(rows), (next(others), next(others)), most, full)
        variants = Variants(self.sessions, self.sizes, case, self.refused, self.too_large)
        alone = variants.alone()
        self.progress(f"{name}: {alone.name}")
        baseline = dict(self.sessions.answers(alone, {}))
        self.values["inputs"][name.partition(",")[0]] = None
        self.values["extents"][_extents(bindings, self.sessions.batch)] = None
        self.attempt(case, alone, alone, baseline)
        for variant in variants.all(interpreter=interpreter):
            self.progress(f"{name}: {variant.name}")
            self.attempt(case, alone, variant, baseline)

    def wide_case(self, name: str, bindings: dict[str, int], *, full: bool = True) -> bool:
        """The case of numbers of every size, its integers kept to what the model takes; False if it takes none."""
        for most in _NARROWED:
            try:
                self.case(name, bindings, most, wide=True, full=full)
            except errors.ShapeError as reason:
                refused = str(reason)
                continue
            if most is not None:
                self.notes["inputs"][f"integers within {most}: the model refuses larger ones"] = None
            return True
        self.refused("inputs", f"{name} ({refused})")
        return False

    def extents(self, bindings: dict[str, int], free: Sequence[str]) -> None:
        """Other extents of the symbols that are free: 1, an odd number, and where the model's sizes change."""
        if not free:
            return
        tried = [dict.fromkeys(free, 1), dict.fromkeys(free, ODD)]
        if len(free) > 1:
            tried.append({name: ODD - 2 + 2 * i for i, name in enumerate(free)})
        for name in free:
            values, beyond = self.sizes.extents(name, ROWS, bindings)
            tried += [{name: value} for value in values]
            if beyond is not None and not self.sessions.refuses({**bindings, name: beyond}):
                self.too_large("extents", name, beyond)
        taken = 0
        for extents in tried:
            said = _extents(extents, None)
            if self.sessions.refuses(bindings | extents):
                self.refused("extents", said)
            else:
                taken += self.wide_case(f"wide, {said}", bindings | extents, full=False)
        if not taken:
            self.unvaried["extents", f"the model takes none but {_extents(bindings, self.sessions.batch)}"] = None

    def refused(self, axis: str, value: str) -> None:
        """Remember what the model refuses."""
        self.notes[axis][f"refused by the model: {value}"] = None

    def too_large(self, axis: str, symbol: str, extent: int) -> None:
        """Remember that a size was left out."""
        bound = f"more than {self.sizes.most_elements} elements allow"
        self.unvaried[axis, f"sizes of the model change where {symbol} is {extent}, {bound}"] = None

    # -- one configuration ------------------------------------------------------------------------------------------
    def attempt(self, case: Case, alone: Variant, variant: Variant, baseline: Mapping[int, Arrays]) -> None:
        """Run one configuration, compare and remember it."""
        kept: dict[int, Arrays] = {}
        wrong: list[int] = []
        try:
            for number, row in self.sessions.answers(variant, baseline):
                self.look(row)
                if not rows_.same_row(row, baseline[number]) and number not in wrong:
                    wrong.append(number)
                    kept[number] = row
                kept.setdefault(number, row)
            digest = rows_.digest([kept[number] for number in sorted(kept)])
        except ProcessFailed as reason:
            self.unvaried["process", str(reason)] = None
            return
        except errors.ShapeError as reason:
            # What is refused for its size alone is loud, and not what this looks for.
            batch, sizes = self.sessions.batch, {len(run.rows) for run in variant.runs}
            if batch is not None and any(self.sessions.refuses({**case.bindings, batch: n}) for n in sizes):
                self.refused(variant.axis, f"{variant.value} ({reason})")
                return
            wrong, digest = [*baseline], "refused"
        if variant.axis != "baseline":
            self.values[variant.axis][variant.value] = None
        if wrong and digest != "refused" and all(c.agrees for c in self.found):
            self.difference = self.sessions.locate(alone, variant, wrong[0])
        self.found.append(Configuration(variant.axis, variant.name, case.name, digest, not wrong))

    def look(self, row: Arrays) -> None:
        """Remember which outputs had elements, and elements that are numbers."""
        for name, x in row.items():
            if name not in self.numbers and x.size:
                self.shown.add(name)
                if (x == x).any():
                    self.numbers.add(name)

    # -- the end ----------------------------------------------------------------------------------------------------
    def verification(self, bindings: Mapping[str, int]) -> Verification:
        """What was tried and found."""
        for axis, value in (("threads", "1"), ("isa", isas.current().name)):
            if self.values[axis]:
                self.values[axis] = {value: None, **self.values[axis]}
        self.values["batch"] = dict.fromkeys(sorted(self.values["batch"], key=int))
        told = {axis for axis, _ in self.unvaried}
        missing = [axis for axis in _MISSING if not self.values[axis] and axis not in told]
        reasons = [(axis, f"not varied: {'; '.join(self.notes[axis]) or _MISSING[axis]}") for axis in missing]
        for name in self.sessions.program.outputs:
            if name not in self.shown:
                self.unvaried["outputs", f"{name!r} is empty at every size that was tried: not shown"] = None
            elif name not in self.numbers:
                self.unvaried["outputs", f"{name!r} is NaN wherever it was tried: not shown"] = None
        axes = tuple(TriedAxis(axis, tuple(self.values[axis]), "; ".join(self.notes[axis])) for axis in AXES)
        bound = tuple(sorted(bindings.items()))
        sessions, most = self.sessions, self.sizes.most_elements
        proofs = () if sessions.batch is None else prove(sessions.program, sessions.batch)
        unvaried = (*reasons, *self.unvaried)
        return Verification(tuple(self.found), axes, self.difference, unvaried, bound, most, proofs)


def _extents(bindings: Mapping[str, int], batch: str | None) -> str:
    """The symbols but the batch's, as they are told."""
    said = ", ".join(f"{name}={extent}" for name, extent in bindings.items() if name != batch)
    return said or "no other symbols"
