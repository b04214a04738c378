"""Which engine a product runs on: of those that take its operands, the fastest on the machine.

`of_operands` says it for a contraction, and refuses panels that no engine multiplies with the other operand;
`engine_for` for two formats alone, as packing asks. Every engine that takes the operands gives the same bits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from samebits.codegen import permission
from samebits.codegen.isa import Isa
from samebits.codegen.rules import TILE_LANES, TILE_ROWS
from samebits.dtypes import DType, float64, int8, int16
from samebits.errors import DTypeError, OptionError, PlanError
from samebits.frozen import replace
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm.contraction import SB1, Contraction, Matrix, Panels, Spec
from samebits.kernels.gemm.engine import FMA32, FMA64, Engine, named, offset, packs, takes
from samebits.kernels.gemm.form import FUSED, STREAMED, Reasons, has_weights
from samebits.kernels.gemm.inner import run_of
from samebits.kernels.gemm.machine import Machine
from samebits.kernels.gemm.pack import DECODED, WIDENED

# Up to so many rows packed weights are converted in the microkernel rather than before it where a word of the fastest
# engine is a pair of bfloat16 (K = N = 4096, ms, in the microkernel and before: 8 rows 3.2 3.6, 12 rows 4.3 4.3,
# 16 rows 6.0 4.9).
_DECODED_ROWS = 12
# Up to so many elements of B the sums of its columns cost less than a step for those of A's rows (int8, time with the
# step over without at M = 4: K = N = 64: 1.32, K = N = 256: 1.02, K = 256 and N = 1024: 0.90).
_SUMMED = 1 << 16


def engine_for(a: DType, b: DType, isa: Isa, machine: Machine, spec: Spec = SB1) -> Engine:
    """The engine that products of these formats run on, or whose panels it takes, and that packs a right operand for
    them.

    Raises:  DTypeError if none takes them.
    """
    return named(_first(a, b, spec, isa, machine)[0].panels)


def packer_for(a: DType, b: DType, isa: Isa, machine: Machine, spec: Spec = SB1) -> Engine:
    """What packs a right operand of format `b` for products with `a`: the engine that they run on, or the one that
    keeps the codes of 16 bits for it (`engine.packs`).

    Raises:  as `engine_for`.
    """
    return packs(engine_for(a, b, isa, machine, spec), b, isa)


def candidates(a: DType, b: DType, isa: Isa) -> tuple[Engine, ...]:
    """The rows of `engine.ROWS` that take these formats in sb1 and whose step is an instruction of the Isa row."""
    return tuple(row for row in engines.ROWS if _refusal(row, a, b, SB1, isa, ()) is None)


def by_tiles(a: DType, b: DType, isa: Isa, machine: Machine) -> bool:
    """Whether products of these formats that have rows enough multiply tiles."""
    return _of_tiles(a, b, SB1, isa, machine)[0] is not None


def of_operands(
    c: Contraction, isa: Isa, machine: Machine, name: str | None, form: str | None
) -> tuple[Engine, Reasons]:
    """The engine of the panels, else the one called `name`, else the fastest that takes the operands; and why not
    others.

    Raises:  PlanError if b's panels suit no engine that takes a; OptionError if the one called `name` takes no such
             operands; DTypeError if none does.
    """
    right = c.b.dtype
    rejected: Reasons = ()
    # A block that is longer than a chunk ends where a chunk does.
    blocks = tuple([c.spec.chunk if x.size >= c.k else x.size for x in c.by_block.values()])
    if isinstance(c.b.values, Panels):
        right = _values(c)
        _check_panels(c.b.values.engine, c.a.dtype, right, c.sums, blocks)
        packed = named(c.b.values.engine)
        if packed.exact:
            return _reader(packed, c.a.dtype, isa, machine, c.m > 1)
        if packed.sums_blocks and _not_of_blocks(packed, c, right, None) is None:
            tiled, not_tiled = _blocks_by_tiles((packed.of_tiles,), c, right, isa, machine)
            return tiled or packed, not_tiled
        if packed.tile and not packed.sums_blocks and c.sums.order not in packed.orders:
            return _other_reader(packed, c.a.dtype, c.sums, isa, machine)
        is_free = name is form is None
        if not has_weights(c):
            name = c.b.values.engine
        elif form in (DECODED, WIDENED) or (is_free and c.m <= _DECODED_ROWS and not c.a.is_scaled_by_block):
            rejected = ((FUSED, f"{c.m} rows use each weight too seldom to convert it first"),)
            name = FMA32.name
    is_few = c.m <= machine.caches.streamed_always
    many_columns = math.prod(c.batch) * c.k * c.n >= _SUMMED
    few_rows = isinstance(c.b.values, Matrix) and ((is_few and many_columns) or form == STREAMED)
    by_tiles = not (isinstance(c.b.values, Matrix) and (is_few or form == STREAMED))
    if name is not None:
        row = named(name)
        if row.sums_blocks and _not_of_blocks(row, c, right, None) is None:
            return _allowed(row, isa), rejected
        return _named(name, c.a.dtype, right, c.sums, isa, blocks), rejected
    if c.by_block:
        of_blocks, others = _of_blocks(c, right, isa, machine)
        rejected += others
        if of_blocks is not None:
            return of_blocks, rejected
    engine, others = _first(c.a.dtype, right, c.sums, isa, machine, blocks, few_rows, by_tiles)
    return engine, rejected + others


def _of_blocks(c: Contraction, b: DType, isa: Isa, machine: Machine) -> tuple[Engine | None, Reasons]:
    """What sums scaled blocks of integers exactly, by tiles if it may, and why not by others; None where nothing
    does."""
    taking = (row for row in engines.BLOCKS_OF_TILES if takes(row.a, c.a.dtype) and takes(row.b, b))
    suitable = [row for row in taking if not _offsets(row, c.a.dtype, b)]
    tiled, not_tiled = _blocks_by_tiles(suitable, c, b, isa, machine)
    if tiled is not None:
        return tiled, ()
    reasons = {row.name: _not_of_blocks(row, c, b, isa) for row in engines.BLOCKS}
    for row in engines.BLOCKS:
        if reasons[row.name] is None and row.name not in machine.slow:
            return row, not_tiled
    return None, not_tiled + tuple((name, reason) for name, reason in reasons.items() if reason)


def _blocks_by_tiles(
    rows: Sequence[Engine], c: Contraction, b: DType, isa: Isa, machine: Machine
) -> tuple[Engine | None, Reasons]:
    """The first of these engines, if there is one, where it may sum the blocks by tiles, and has rows enough for that;
    else why not, where the Isa row has tiles."""
    if not (isa.has_tiles and rows):
        return None, ()
    row = rows[0]
    reason = _not_of_blocks(row, c, b, isa)
    if reason is None and c.m <= TILE_ROWS:
        reason = f"{c.m} rows are one tile of rows at most, and wait for b"
    if reason is None and row.name in machine.slow:
        reason = f"slow on {machine.name}"
    if reason is None:
        reason = _refused(isa)
    if reason is None:
        return row, ()
    return None, ((row.name, reason),) if reason else ()


def _not_of_blocks(row: Engine, c: Contraction, b: DType, isa: Isa | None) -> str | None:
    """Why the exact sums of scaled blocks are not for an engine that sums them; empty where it is no matter of
    choice."""
    a, run = c.a.dtype, run_of(c)
    scaled = c.a.is_scaled_by_block or c.b.is_scaled_by_block
    if not (row.sums_blocks and scaled and engines.takes(row.a, a) and engines.takes(row.b, b)):
        return ""
    if "b_zero" in c.by_block or c.b.dtype is int16:
        return "zero points of blocks may leave numbers that do not fit its words"
    if offset(row.a, a) or (row.unsigned == "a" and offset(row.b, b)):
        return f"{a.name if offset(row.a, a) else b.name} would need an offset"
    least = row.depth * (TILE_LANES if row.takes_tiles else 1)
    if not run or run % least or c.spec.chunk % least:
        return f"chunks and blocks do not have equal runs of a multiple of {least}"
    if min(run, max(c.k, 1)) * engines.span(a, False) * engines.span(b, False) > engines.EXACT:
        return "sums of a block could leave what float32 holds exactly"
    if isa is not None and not row.is_native(isa):
        return f"Isa row {isa.name} has no {row.step}"
    return None


def _values(c: Contraction) -> DType:
    """The format of b's values: weights of 16 bits are differences of 8 bits, which every float holds."""
    return int8 if has_weights(c) and c.b.dtype is int16 else c.b.dtype


@functools.lru_cache(maxsize=1024)
def _check_panels(engine: str, a: DType, b: DType, spec: Spec, blocks: tuple[int, ...]) -> None:
    """Whether words of b in panels of this engine can be multiplied with a's elements, in sums of this spec and in
    blocks of these sizes.

    Raises:  PlanError.
    """
    packed, repack = named(engine), "pack it again with left='float32'"

    def refuse(expected: str, remedy: str = repack) -> PlanError:
        return PlanError("matmul", "b", "engine", repr(engine), expected, remedy)

    is_number = a.is_float or (bool(blocks) and not packed.exact)  # integers of scaled blocks are numbers like floats
    taken = is_number != packed.exact and takes(packed.a, a)
    if not taken or (packed is FMA64) != (float64 in (a, b)):
        raise refuse(f"one for {a.name}", f"pack it again with left={a.name!r}")
    if not packed.exact and spec.chunk % packed.depth:
        raise refuse(f"one for chunks of {spec.chunk}")
    if blocks and packed.exact:
        raise refuse("one for scales of blocks", "pass it as it is, not packed")
    if any(block % packed.depth for block in blocks):
        raise refuse(f"one for blocks of {min(blocks)}")


@functools.lru_cache(maxsize=1024)
def _named(name: str, a: DType, b: DType, spec: Spec, isa: Isa, blocks: tuple[int, ...]) -> Engine:
    """The engine called `name`, whether or not the Isa row has its instruction.

    Raises:  OptionError if it takes no such operands, or if its instruction may not be used.
    """
    row = named(name)
    if _refusal(row, a, b, spec, None, blocks) is not None:
        actual = f"{name!r} for {a.name} and {b.name}"
        raise OptionError("plan", "engine", "", actual, "one that takes them", "leave it out")
    return _allowed(row, isa)


def _allowed(row: Engine, isa: Isa) -> Engine:
    """An engine that was asked for.

    Raises:  OptionError if its instruction may not be used.
    """
    refused = _refused(isa) if row.takes_tiles else None
    if refused is not None:
        raise OptionError("plan", "engine", "", repr(row.name), f"one without tiles: {refused}", "leave it out")
    return row


@functools.lru_cache(maxsize=1024)
def _first(
    a: DType, b: DType, spec: Spec, isa: Isa, machine: Machine, blocks: tuple[int, ...] = (), few_rows: bool = False,
    by_tiles: bool = True,
) -> tuple[Engine, Reasons]:  # fmt: skip
    """The first engine in the machine's order that takes elements of these dtypes on this Isa row, and why not others.

    `blocks`: sizes of what shares a value along K (`Contraction.by_block`); then sums are floats, of integers too.
    `few_rows`: of A, so that its sums cost less than those of B's columns, which an offset needs.
    `by_tiles`: whether there are rows enough for panels, which tiles are of.

    Raises:  DTypeError if none takes them.
    """
    tiled, not_tiled = _of_tiles(a, b, spec, isa, machine, blocks)
    if tiled is not None and by_tiles:
        return tiled, ()
    if tiled is not None:
        not_tiled = ((tiled.name, "few rows use each element of B: packing it would cost more"),)
    reasons, found = dict[str, str](), None
    for row in machine.engines(a, b):
        reason = _refusal(row, a, b, spec, isa, blocks)
        if reason is None and row.unsigned:
            reason = _shifted(row, a, b, few_rows)
        if reason is None and found is not None:
            reason = f"slower than {found.name} on {machine.name}"
        if reason is None:
            found = row
        elif reason:
            reasons[row.name] = reason
    if found is None:
        remedy = "convert a to float32"
        raise DTypeError("matmul", "b", "dtype", b.name, f"one that multiplies with {a.name}", remedy)
    # Of those that come after it in every machine's order there is nothing to say.
    before = engines.ROWS[: engines.ROWS.index(found)]
    return found, not_tiled + tuple((row.name, reasons[row.name]) for row in before if row.name in reasons)


def _of_tiles(
    a: DType, b: DType, spec: Spec, isa: Isa, machine: Machine, blocks: Sequence[int] = ()
) -> tuple[Engine | None, Reasons]:
    """The engine that multiplies tiles of elements of these dtypes, if there is one that may; else why not, where the
    Isa row has one."""
    if not isa.has_tiles or blocks:
        return None, ()
    exact = a.is_integer and b.is_integer
    of_kind = (x for x in engines.OF_TILES if x.exact == exact and takes(x.a, a) and takes(x.b, b))
    found = next((x for x in of_kind if x.is_native(isa) and not _offsets(x, a, b)), None)
    if found is None:
        return None, ()
    if not exact and spec.order not in found.orders:
        return None, ((found.name, f"its sums are those of {found.orders[0]}, which would be faster"),)
    if found.name in machine.slow:
        return None, ((found.name, f"slow on {machine.name}"),)
    refused = _refused(isa)
    return (found, ()) if refused is None else (None, ((found.name, refused),))


def _refused(isa: Isa) -> str | None:
    """Why the row's tiles may not be used; of a row that this machine does not have nobody can be asked."""
    return permission.refusal() if isa.has_tiles and isa.available else None


def _offsets(row: Engine, a: DType, b: DType) -> bool:
    """Whether elements of either dtype must be shifted to fit the row's words."""
    return offset(row.a, a) != 0 or offset(row.b, b) != 0


@functools.lru_cache(maxsize=1024)
def _reader(packed: Engine, a: DType, isa: Isa, machine: Machine, by_tiles: bool = True) -> tuple[Engine, Reasons]:
    """The engine that multiplies elements of `a` with panels of integers, and why not others: words of B are the same
    for every sign of A. `by_tiles`: whether there is more than one row, which waits for memory alone (K = N = 4096: 22
    GOP/s by vectors and 19 by tiles)."""
    if packed.takes_tiles and not isa.has_tiles:
        return packed, ()
    words = named(packed.panels)
    tiled, reasons = _of_tiles(a, words.b, SB1, isa, machine) if words.tile else (None, ())
    if tiled is not None:
        if by_tiles:
            return tiled, ()
        reasons = ((tiled.name, "one row waits for memory alone"),)
    same = (x for x in engines.ROWS if x.b is words.b and x.depth == words.depth and takes(x.a, a))
    return next((x for x in (words, *same) if x.is_native(isa)), words), reasons


@functools.lru_cache(maxsize=1024)
def _other_reader(packed: Engine, a: DType, spec: Spec, isa: Isa, machine: Machine) -> tuple[Engine, Reasons]:
    """The engine that multiplies elements of `a` with panels of pairs in an order that tiles have, and why not by them:
    then vectors take the chains of both halves of a word."""
    tiled, reasons = _of_tiles(a, packed.b, spec, isa, machine)
    return tiled or replace(packed.safe, orders=(spec.order,)), reasons


def _refusal(row: Engine, a: DType, b: DType, spec: Spec, isa: Isa | None, blocks: Sequence[int]) -> str | None:
    """Why a product does not run on the row; empty where its dtypes are no matter of choice."""
    exact = a.is_integer and b.is_integer and not blocks
    if row.exact != exact or not (takes(row.a, a) and takes(row.b, b)):
        return "" if exact or not row.is_guarded else f"{a.name} x {b.name} do not fit its words"
    if (row is FMA64) != (float64 in (a, b)):
        return ""
    if not row.exact and spec.order not in row.orders:
        return f"its sums are not those of {spec.order}"
    if not row.exact and spec.chunk % row.depth:
        return f"chunks of {spec.chunk} would split its pairs"
    for block in blocks:
        if block % row.depth:
            return f"blocks of {block} would split its pairs"
    if isa is not None and not row.is_native(isa):
        return f"Isa row {isa.name} has no {row.step}"
    return None


def _shifted(row: Engine, a: DType, b: DType, few_rows: bool) -> str | None:
    """Why the other signs suit the operands better: an offset of A is in what sums start from and costs nothing where
    the sums of B's columns exist, but with few rows those of A cost less."""
    (other,) = (x for x in engines.ROWS if x.step == row.step and x is not row)
    here, there = ((offset(x.b, b) != 0, offset(x.a, a) != 0)[:: -1 if few_rows else 1] for x in (row, other))
    if here <= there:
        return None
    return f"{b.name if offset(row.b, b) else a.name} would need an offset"
