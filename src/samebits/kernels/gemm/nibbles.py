"""Products of few rows with weights of four bits, which are decoded in registers as their panels are read.

Panels are those of `nibble_panels`. Where the fma of float32 is as fast as VDPBF16PS, a lookup each of float32 costs
less than a pair and its halves, and all that is left of shifts is one for two elements, as words are read from every
byte on: 20 operations of vectors for eight elements (Emerald Rapids, 1 x 4096 x 4096 in the second cache: 21 and 28 *
10^9 weights a second). Runs of A whose sums nothing rounds are summed in integers there (`exact_runs`). Few rows of A
take a strip of columns at a time over all of K (numerics.md section 4). Start at `plan`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Function, Index, KernelSpec, Pointer, Vector
from samebits.dtypes import DType, bfloat16, float32, int32, uint8, uint32
from samebits.errors import PlanError
from samebits.frozen import dataclass
from samebits.kernels import convert
from samebits.kernels.gemm import batch as batches
from samebits.kernels.gemm import epilogue, exact_runs, facts, pack
from samebits.kernels.gemm.contraction import Contraction, Matrix, Panels
from samebits.kernels.gemm.engine import FMA32, LOWEST, NIBBLES, PAIRS, Engine, lowest_bit, takes
from samebits.kernels.gemm.epilogue import Epilogue, Finish
from samebits.kernels.gemm.exact_runs import EIGHT, CodeBytes, ExactRuns
from samebits.kernels.gemm.inner import words_of
from samebits.kernels.gemm.machine import Machine
from samebits.kernels.gemm.nibble_panels import kept_as, opened, place
from samebits.kernels.gemm.normal import normal
from samebits.kernels.gemm.order import CHAIN
from samebits.kernels.gemm.packed import scales_at
from samebits.kernels.gemm.words import Words
from samebits.kernels.plan import LINE_BYTES, Argument, Operand, Plan, Step, in_lines

# Up to so many rows each reads the strip again, from the second cache; opening panels costs as much as about these.
# More where integers sum what nothing rounds (Emerald Rapids, 4096 x 4096, GFLOP/s decoded and opened, NVFP4, int4 by
# 128: 17 rows 96 52, 117 68; 32 rows 100 70, 120 89; 48 rows 99 84, 125 102, but of 768 x 3072 98 103, 123 110).
MOST_ROWS, MOST_EXACT_ROWS = 16, 32
# Rows whose sums registers hold at once.
_HIGH = 2
# Tasks of one of several threads: each makes words of A once for all of its panels.
_TASKS = 4
# Runs of up to so many words are one straight text, and where none is summed in integers.
_STRAIGHT, _SHORT = exact_runs.STRAIGHT, 2
# Elements and pairs of them in a word of a panel, and rows of words that are asked for ahead.
_PAIRS, _AHEAD = 4, 16


def _table(dtype: DType) -> tuple[int, ...]:
    """The bfloat16 of each code, twice: an index has five bits, of which the upper is another element's."""
    singles = struct.pack("<16f", *_numbers(dtype))
    return tuple(single >> 16 for single in struct.unpack("<16I", singles)) * 2


def _numbers(dtype: DType) -> tuple[float, ...]:
    """The number of each code."""
    return tuple(float(dtype.decode(code)) for code in range(16))


@dataclass(frozen=True, slots=True)
class Decode:
    """What specialises the kernel of few rows.

    `engine`: PAIRS, or FMA32.   `words`: how elements of A become its words, `a` how they are packed.   `checked`:
    whether A must be looked at, as VDPBF16PS needs.   `b`: the format of b.   `scale`: what its scales are kept as;
    None without.   `chunk`, `run`: words of a panel.   `nr`: columns of a panel.   `exact`: whether runs whose sums are
    exact are summed in integers (`exact_runs`).
    """

    engine: Engine
    words: Words
    a: str
    checked: bool
    b: DType
    scale: DType | None
    chunk: int
    run: int
    nr: int
    exact: bool
    batch_rank: int
    epilogue: Epilogue

    @property
    def by_bytes(self) -> bool:
        """Whether words may be read from any byte on: something lies behind the panels."""
        return self.scale is not None

    @property
    def pointers(self) -> dict[str, DType]:
        """The operands that move with the batch, and what they are read as."""
        return {"a": self.words.pointer, **self.epilogue.operands}

    @property
    def parameters(self) -> tuple[str, ...]:
        """The argument names in order; `group`: panels of a task; `pitch`: words between rows of A."""
        names = (
            "a", "b", "b_scale", "rows", "n", "k", "panels", "group", "pitch", "a_row", "a_column", "scratch_t",
            "scratch_d", "scratch_f",
        )  # fmt: skip
        moving = batches.parameters(self.batch_rank, self.pointers)
        return (*names, *self.epilogue.parameters, *moving)


def decode(b: Builder, d: Decode) -> None:
    """out = epilogue(a @ b), one task some panels of columns."""
    lanes, nr = b.isa.lanes, d.nr
    take = pack.PackedBlock(d.words, d.a, pack.COPIED_VECTORS * lanes, lanes, k_is_row=False).emit(b, "pack_a")
    look = facts.emit_block(b) if d.checked else None
    engines = (d.engine, d.engine.safe) if d.checked else (d.engine,)
    gains = [[_gain(b, d, engine, high) for high in (1, _HIGH)] for engine in engines]
    order = sorted(range(EIGHT), key=lambda i: (place(i) % 8, place(i)))
    measures = [exact_runs.emit_measure(b, high, d.run, CodeBytes(d.b), tuple(order)) for high in (1, _HIGH) if d.exact]
    finish = Finish(b, d.epilogue, nr)
    rows, k, panels, pitch = b.index("rows"), b.index("k"), b.index("panels"), b.index("pitch")
    words, fact = b.scratch(d.engine.word), b.local(int32, 1)
    tile = b.scratch(float32, b.index("scratch_t"))
    weights, scales = b.pointer("b", uint32), b.pointer("b_scale", kept_as(d.scale))
    digits, found = (b.scratch(int32, b.index(name)) for name in ("scratch_d", "scratch_f"))
    groups, runs = (panels + b.index("group") - 1) // b.index("group"), exact_runs.runs_of(b, k // EIGHT, d.run)
    for task in b.tasks():
        operands = batches.moved(b, d.batch_rank, task // groups, d.pointers)
        b.call(take, operands["a"], b.index("a_row"), b.index("a_column"), rows, k, words, pitch)
        unsafe: Index = 0
        if look is not None:
            b.store(fact, 0, b.constant(facts.NOTHING, int32, 1))
            b.call(look, words, pitch, rows, k // d.engine.depth, fact)
            lowest = b.load(fact, 0, 1)
            low = b.less(lowest, b.like(lowest, LOWEST - (lowest_bit(d.b) or 0)))
            unsafe = b.choose(b.any(low), 1, 0)
        steps, first = k // EIGHT, task % groups * b.index("group")
        for r in b.loop(0, rows, _HIGH) if measures else ():
            of_rows = b.offset(words, r * pitch), pitch, steps, *_exact(b, r, steps, digits, found, runs)
            b.call(b.choose(rows - r >= _HIGH, *measures[::-1]), *of_rows)
        for j in b.loop(first, b.min(first + b.index("group"), panels)):
            panel = b.offset(weights, j * steps * nr)
            scale = b.offset(scales, j * (steps // d.run) * nr)
            for r in b.loop(0, rows, _HIGH):
                for i, (one, several) in enumerate(gains):
                    for _ in b.when(unsafe == i):
                        function = b.choose(rows - r >= _HIGH, several, one)
                        row, sums = b.offset(words, r * pitch), b.offset(tile, r * nr)
                        exact = _exact(b, r, steps, digits, found, runs)
                        b.call(function, row, pitch, panel, steps, scale, sums, *exact)
            finish.call(operands, tile, nr, 0, j * nr, rows, b.min(nr, b.index("n") - j * nr))


def _exact(
    b: Builder, r: Index, steps: Index, digits: Pointer, found: Pointer, runs: Index
) -> tuple[Pointer, Pointer]:  # fmt: skip
    """Where what is known of row r begins: digits of its words, and facts of its runs."""
    return b.offset(digits, r * steps * exact_runs.SLOTS), b.offset(found, r * runs * exact_runs.FACTS)


def _gain(b: Builder, d: Decode, engine: Engine, high: int) -> Function:
    """A function `(a, pitch, panel, steps, scales, tile, digits, facts)`: the sums of `high` rows over all of K."""
    lanes = b.isa.lanes
    vectors = range(d.nr // lanes)

    def body(
        a: Pointer, pitch: Index, panel: Pointer, steps: Index, scales: Pointer, tile: Pointer, digits: Pointer,
        found: Pointer,
    ) -> None:  # fmt: skip
        zero, of_row = b.constant(0, float32, lanes), steps * exact_runs.SLOTS
        runs = exact_runs.runs_of(b, steps, d.run)
        exact = ExactRuns(CodeBytes(d.b), d.run, d.nr, digits, of_row, found, runs) if d.exact else None
        for i in range(high):
            for v in vectors:
                b.store(tile, i * d.nr + v * lanes, zero)
        for chunk in b.loop(0, steps, d.chunk):
            acc = [[zero for _ in vectors] for _ in range(high)]
            for run in b.loop(chunk, b.min(chunk + d.chunk, steps), d.run, carry=acc):
                _run(b, d, engine, exact, acc, (a, pitch, panel, scales), run, steps)
            for i in range(high):
                for v in vectors:
                    at = i * d.nr + v * lanes
                    b.store(tile, at, b.canonical(b.add(b.load(tile, at, lanes), acc[i][v])))

    parameters = (engine.word, None, uint32, None, kept_as(d.scale), float32, int32, int32)
    return b.function(f"{engine.step.replace(' ', '_')}_{high}", parameters, body)


def _run(
    b: Builder, d: Decode, engine: Engine, exact: ExactRuns | None, acc: list[list[Any]],
    places: tuple[Pointer, Index, Pointer, Pointer], run: Index, steps: Index,
) -> None:  # fmt: skip
    """acc gains the run that begins at word `run`; `places`: rows of A, their pitch, the panel and its scales."""
    a, pitch, panel, scales = places
    zero, of_all = b.constant(0, float32, b.isa.lanes), range(len(acc[0]))
    sums: list[list[Any]] = [[zero for _ in row] for row in acc]
    passing: Index = 0 if exact is None else exact.passing(b, run)

    def scale(found: list[list[Any]], of: Sequence[int]) -> None:
        _scale(b, d, acc, found, scales, run // d.run, of)

    def straight() -> None:
        for s in range(d.run):
            _step(b, d, engine, sums, a, pitch, panel, run + s)

    if d.run > (_SHORT if exact is None else _STRAIGHT):
        if exact is not None:
            for _ in b.when(passing > 0, carry=sums):
                exact.gain(b, sums, panel, run, passing, _AHEAD)
        for s in b.loop(run + passing, b.min(run + d.run, steps), carry=sums):
            _step(b, d, engine, sums, a, pitch, panel, s)
    elif exact is None:
        straight()
    elif len(acc) == 1:  # the run as a whole is summed in integers, or nothing of it
        for _ in b.when(passing >= d.run, carry=sums):
            exact.gain(b, sums, panel, run, d.run, _AHEAD)
        for _ in b.when(passing < d.run, carry=sums):
            straight()
    else:  # the same, but sums are scaled as they are there: registers would not hold those of several rows
        for _ in b.when(passing >= d.run, carry=acc):
            exact.gain(b, [[*row] for row in sums], panel, run, d.run, _AHEAD, scale)
        for _ in b.when(passing < d.run, carry=acc):
            straight()
            scale(sums, of_all)
        return
    scale(sums, of_all)


def _scale(
    b: Builder, d: Decode, acc: list[list[Any]], sums: list[list[Any]], scales: Pointer, q: Index, of: Sequence[int]
) -> None:
    """acc gains the sums of run q times their scales, or without scales is they, in these vectors of columns."""
    lanes = b.isa.lanes
    for v in of:
        if d.scale is None:
            for i, row in enumerate(sums):
                acc[i][v] = row[v]
            continue
        found = b.load(scales, q * d.nr + v * lanes, lanes)
        if d.scale is bfloat16:
            found = b.bitcast(b.shift_left(b.convert(found, uint32), 16), float32)
        for i, row in enumerate(sums):
            acc[i][v] = b.fma(row[v], found, acc[i][v])


def _step(
    b: Builder, d: Decode, engine: Engine, sums: list[list[Vector]], a: Pointer, pitch: Index, panel: Pointer, s: Index
) -> None:
    """Every sum gains the eight products of word s."""
    lanes, vectors = b.isa.lanes, range(d.nr // b.isa.lanes)
    words = [b.load(panel, s * d.nr + v * lanes, lanes) for v in vectors]
    for v in range(0, d.nr, LINE_BYTES // 4):
        b.prefetch(panel, (s + _AHEAD) * d.nr + v)
    for p in range(_PAIRS):
        if engine.depth == 2:
            left = [b.splat(b.load(a, i * pitch + s * _PAIRS + p, 1), lanes) for i in range(len(sums))]
            for v in vectors:
                pair = b.bitcast(b.lookup_halves(_table(d.b), b.shift_right(words[v], 4 * p)), engine.word)
                for i, row in enumerate(sums):
                    row[v] = engine.advance(b, left[i], pair, row[v])
            continue
        for half in (0, 1):
            at = s * EIGHT + 2 * p + half
            left = [b.splat(b.load(a, i * pitch + at, 1), lanes) for i in range(len(sums))]
            for v in vectors:
                value = _value(b, d, words[v], b.offset(panel, s * d.nr + v * lanes), 2 * p + half)
                for i, row in enumerate(sums):
                    row[v] = b.fma(left[i], value, row[v])


def _value(b: Builder, d: Decode, word: Vector, source: Pointer, i: int) -> Vector:
    """Element i of eight of the words at `source` as float32."""
    at = place(i)
    if d.by_bytes and at >= 8:
        # A read from the byte that the element is in takes a port that nothing waits for, a shift one that the sums
        # need: what is read behind the last word of the last panel are scales.
        word = b.load(b.cast(b.offset(b.cast(source, uint8), at // 8), uint32, aligned=False), 0, b.isa.lanes)
        at %= 8
    code = b.bit_and(b.shift_right(word, at), b.like(word, 15))
    if "lookup" in b.isa.instructions:
        return b.lookup(_numbers(d.b), float32, b.bitcast(code, int32))
    return convert.decode(b, code, d.b) if d.b.is_float else b.convert(convert.integer(b, code, d.b), float32)


def plan(c: Contraction, isa: Isa, threads: int, machine: Machine, again: Callable[[Contraction], Plan]) -> Plan:
    """How a product with panels of four bits runs; `again` plans another contraction.

    Few rows decode what they read, if runs of K are whole words; others open the panels first.

    Raises:  PlanError if a is float64, or of integers where no blocks are scaled; if panels are not whole vectors.
    """
    panels = c.b.values
    assert isinstance(panels, Panels)  # the caller looked
    if panels.nr % isa.lanes:
        expected = f"a multiple of {isa.lanes} on Isa row {isa.name}"
        raise PlanError("matmul", "b", "panel width", panels.nr, expected, "pack it again with pack()")
    is_number = c.a.dtype.is_float or c.a.is_scaled_by_block or c.b.is_scaled_by_block
    if not (is_number and takes(FMA32.a, c.a.dtype)):
        remedy = f"pack it again with left={c.a.dtype.name!r}"
        raise PlanError("matmul", "b", "panels", "of four bits", f"ones for {c.a.dtype.name}", remedy)
    found = _decoded(c, isa, threads, machine)
    return opened(c, isa, threads, again) if found is None else found


def _decoded(described: Contraction, isa: Isa, threads: int, machine: Machine) -> Plan | None:
    """The plan of few rows, if this is of few, and of regular runs."""
    c = normal(described)
    panels = c.b.values
    assert isinstance(panels, Panels)  # the caller looked
    scaled = panels.block > 0
    run = panels.block if scaled else c.spec.chunk
    whole = c.k % run == 0 or not (scaled or run <= EIGHT * _STRAIGHT)
    regular = c.spec.chunk % run == 0 and run % EIGHT == 0 and whole
    other = c.spec.segments > 1 or c.sums.order != CHAIN.name or c.accumulates or c.a.is_scaled_by_block
    pairs = takes(PAIRS.a, c.a.dtype) and PAIRS.is_native(isa) and PAIRS.name not in machine.slow
    exact = not pairs and exact_runs.suits(isa, c.a.dtype, run)
    is_few = c.m <= (MOST_EXACT_ROWS if exact else MOST_ROWS) and c.out.values.column == 1
    if not is_few or not regular or other or not (c.m and c.k and c.n and all(c.batch)):
        return None
    engine = PAIRS if pairs else FMA32
    words = words_of(engine, c.a.dtype, panels.dtype)[0]
    lowest = lowest_bit(c.a.dtype)
    checked = pairs and (lowest is None or lowest + (lowest_bit(panels.dtype) or 0) < LOWEST)
    d = Decode(
        engine, words, pack.kind(c.a.values), checked, panels.dtype, panels.scale,
        c.spec.chunk // EIGHT, run // EIGHT, panels.nr, exact, batches.rank(c.batch), Epilogue.of(c, float32),
    )  # fmt: skip
    return _step_of(d, described, c, isa, threads)


def _step_of(d: Decode, described: Contraction, c: Contraction, isa: Isa, threads: int) -> Plan:
    """The plan of one step."""
    first, numbers = 2 + len(c.by_block), list[Operand]()
    for source in c.inputs:
        numbers.append(Operand(first if isinstance(source, Matrix) else 0))
        first += isinstance(source, Matrix)
    left, lanes, count = c.a.values, isa.lanes, -(-c.n // d.nr)
    tasks, width = threads * _TASKS if threads > 1 else 1, pack.COPIED_VECTORS * lanes
    group = max(1, count // tasks)
    pitch = -(-d.engine.steps(c.k) // width) * width
    scratch_t = in_lines(c.m * pitch * d.engine.word.size_bytes) + LINE_BYTES
    scratch_d = scratch_t + in_lines((c.m + _HIGH) * d.nr * float32.size_bytes)
    scratch_f = scratch_d + in_lines(d.exact * c.m * c.k // EIGHT * exact_runs.SLOTS * int32.size_bytes)
    runs = -(-c.k // (EIGHT * d.run))
    scratch_s = scratch_f + in_lines(d.exact * c.m * runs * exact_runs.FACTS * int32.size_bytes)
    values: dict[str, Argument] = {
        "a": Operand(0), "b": Operand(1), "b_scale": Operand(1, scales_at(c.k, c.n, d.nr, NIBBLES[0])), "rows": c.m,
        "n": c.n, "k": c.k, "panels": count, "group": group, "pitch": pitch, "a_row": left.row, "a_column": left.column,
        "scratch_t": scratch_t, "scratch_d": scratch_d, "scratch_f": scratch_f,
    }  # fmt: skip
    values |= epilogue.arguments(c, Operand(first), numbers, scratch_s)
    moving = {f"s{i}": s.batch for i, s in enumerate(c.inputs) if isinstance(s, Matrix)}
    values |= batches.arguments(c.batch, {"a": left.batch, "out": c.out.values.batch, **moving})
    spec = KernelSpec(decode, d, d.parameters, isa)
    step = Step(spec, math.prod(c.batch) * -(-count // group), tuple(values[name] for name in d.parameters))
    said = [("engine", d.engine.name), ("form", "decoded"), ("panels", f"{count} of {d.nr} columns, four bits")]
    if d.exact:
        said.append(("runs", f"{d.run} words, in integers where a's values make sums exact"))
    return Plan(
        what=str(described), isa=isa, threads=threads, steps=(step,), operands=described.operands,
        scratch_bytes=scratch_s + in_lines(epilogue.scratch_bytes(c)), facts=tuple(said),
    )  # fmt: skip
