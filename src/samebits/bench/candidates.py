"""Which kernels can run a product: the tiles that fit an Isa row's registers, sizes of cache blocks, forms, engines.

`tiles` and `sizes` are what `tune` tries; `first` and `second` are the two rounds of a ranking, of which `second`
varies the sizes of what was fastest in the first. Plans that come out alike are one candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from samebits import tuning
from samebits.bench.trial import Candidate, Problem, Workbench, label
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.codegen.rules import TILE_LANES
from samebits.errors import DTypeError, OptionError, PlanError
from samebits.frozen import replace
from samebits.kernels.gemm import selection
from samebits.kernels.gemm.engine import Engine, named
from samebits.kernels.gemm.form import FORMS
from samebits.kernels.gemm.pack import DECODED, PACKED, WIDENED
from samebits.kernels.gemm.tiles import Tile, of_tiles, tile_for
from samebits.kernels.gemm.tuned import OF_TILES, SHIPPED, Sizes

_HIGHEST, _WIDEST = 16, 4
_A_BYTES = tuple(kib * 1024 for kib in (384, 192, 768))
_A_BYTES_OF_TILES = tuple(kib * 1024 for kib in (1024, 512, 1536))
_KC = (2048, 256, 512, 1024)


def tiles(isa: Isa, engine: Engine, quick: bool = False) -> list[Tile]:
    """The shipped tile, then for each width those with the most rows that stay in registers. Of an engine that
    multiplies tiles of the machine they are as high as the shipped one, and as wide as whole tiles.

    `quick`: one a width.
    """
    if engine.takes_tiles:
        shipped = of_tiles(isa)
        widths = [nv for nv in range(1, _WIDEST + 1) if nv * engine.lanes(isa) % TILE_LANES == 0]
        return list(dict.fromkeys([shipped, *(replace(shipped, nv=nv) for nv in widths)]))
    found = [tile_for(isa)]
    for nv in range(1, _WIDEST + 1):
        fitting = [Tile(mr, nv) for mr in range(_HIGHEST, 0, -1) if Tile(mr, nv).fits(isa)]
        found += fitting[: 1 if quick else 3]
    return list(dict.fromkeys(found))


def sizes(engine: Engine, quick: bool = False) -> list[Sizes]:
    """Sizes of cache blocks, the shipped ones first; `quick`: one thing other than shipped in each."""
    shipped, every = (OF_TILES, _A_BYTES_OF_TILES) if engine.takes_tiles else (SHIPPED, _A_BYTES)
    found = [replace(shipped, a_bytes=a, kc=kc, kc_few_rows=2 * kc) for a in every for kc in _KC]
    if quick:
        found = [x for x in found if shipped.a_bytes == x.a_bytes or shipped.kc == x.kc]
    return found


def alike(isa: Isa) -> tuple[object, ...]:
    """What makes the kernels of a product on one row those of another."""
    return isa.lanes, isa.registers, isa.targets[0].arch


def forms(problem: Problem) -> tuple[str | None, ...]:
    """Where B's panels may come from."""
    return (None,) if problem.packed else tuple(form for form in FORMS if form not in (PACKED, DECODED, WIDENED))


def first(problem: Problem, isa: Isa, every: bool = False) -> Iterator[Candidate]:
    """Each form with each tile on this row; each form with the shipped choice of each other engine, and of each other
    row of at least half as many lanes. `every`: each form, tile and size."""
    machine = tuning.machine(isa)
    engine = selection.engine_for(problem.a, problem.b, isa, machine)
    base = machine.row(engine, isa)
    for form in forms(problem):
        yield Candidate(isa, base, form)
        for tile in tiles(isa, engine):
            for size in sizes(engine) if every else [base.sizes]:
                yield Candidate(isa, replace(base, tile=tile, sizes=size), form)
        for other in selection.candidates(problem.a, problem.b, isa):
            if other is not engine:
                yield Candidate(isa, machine.shipped(other, isa), form)
        for row in _rows(isa):
            there = tuning.shipped(row)
            best = selection.engine_for(problem.a, problem.b, row, there)
            yield Candidate(row, there.shipped(best, row), form)


def second(fastest: Iterable[Candidate]) -> Iterator[Candidate]:
    """Each of these with each size of blocks."""
    for candidate in fastest:
        for size in sizes(named(candidate.row.engine)):
            yield replace(candidate, row=replace(candidate.row, sizes=size))


def distinct(
    bench: Workbench, problem: Problem, isa: Isa, found: Iterable[Candidate], known: set[object] | None = None
) -> dict[str, Candidate]:
    """Candidates by the label of their plans, without those that cannot be planned, or whose label or kernels are
    `known`, to which all are added."""
    made: dict[str, Candidate] = {}
    seen = set() if known is None else known
    for candidate in found:
        try:
            plan = bench.plan(problem, isa, candidate)
        except (DTypeError, OptionError, PlanError):
            continue
        facts = {label(plan), plan.steps}
        if not facts & seen:
            made[label(plan)] = candidate
        seen |= facts
    return made


def _rows(isa: Isa) -> list[Isa]:
    """The last of the other rows that run here, for each kind of register."""
    found = {alike(row): row for row in isas.ROWS if row.compiled and row.available and 2 * row.lanes >= isa.lanes}
    return [row for key, row in found.items() if key != alike(isa)]
