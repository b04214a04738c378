"""Folding gives NumPy's bits, holds no more than it says, and leaves to the run what has no room."""

from typing import Any

import numpy as np
import protos
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import samebits as sb
from samebits import dtypes, onnx
from samebits.codegen import isa as isas
from samebits.errors import ShapeError, UnsupportedModelError
from samebits.kernels.expression import Chain
from samebits.operations import dim
from samebits.operations.elementwise import Map
from samebits.operations.moves import Concat, Range
from samebits.operations.operation import Array
from samebits.program import fold, room
from samebits.program.builder import ProgramBuilder
from samebits.program.constants import Deferred, array_of
from samebits.program.graph import Node, Program
from samebits.program.transform import optimise
from samebits.runtime import cpu, limits, reference

F = np.float32


def sums_and_differences(*shapes: tuple[int, ...]) -> tuple[Node, list[Array]]:
    """Of two operands, in one node."""
    chain = Chain()
    x, y = chain.input(dtypes.float32), chain.input(dtypes.float32)
    expression = chain.finish(chain.apply("add", x, y), chain.apply("sub", x, y))
    r = np.random.default_rng(1)
    return Node("map", ("x", "y"), ("a", "b"), Map(expression)), [r.standard_normal(s).astype(F) for s in shapes]


@pytest.mark.parametrize(
    "shapes",
    [((70000,), (1,)), ((300, 400), (400,)), ((300, 400), (300, 1)), ((1, 400), (300, 1)), ((2, 40000), (2, 40000)),
     ((3, 1, 90000), (1, 5, 1)), ((40000, 1, 1), (1, 2))],
)  # fmt: skip
def test_a_large_map_in_blocks_is_the_whole(shapes: tuple[tuple[int, ...], ...]) -> None:
    node, (x, y) = sums_and_differences(*shapes)
    total, difference = node.computed([x, y])
    assert np.array_equal(total, x + y)
    assert np.array_equal(difference, x - y)


def table(op: str, *operands: Array, **attributes: Any) -> tuple[Program, Array]:
    """A model of one node of constants, and ONNX's own reference of it."""
    names = [f"c{i}" for i in range(len(operands))]
    values = dict(zip(names, operands, strict=True))
    proto = protos.model([helper.make_node(op, names, ["y"], **attributes)], [], [], values, opset=19)
    proto.graph.output.append(helper.make_empty_tensor_value_info("y"))
    (due,) = ReferenceEvaluator(proto).run(None, {})
    proto.graph.output[0].CopyFrom(protos.value("y", due.dtype, due.shape))
    return onnx.load(proto), due


R = np.random.default_rng(3)
X = R.standard_normal((40, 50)).astype(F)


@pytest.mark.parametrize(
    ("op", "operands", "attributes"),
    [
        ("Add", (X, X[0]), {}),
        ("Div", (X, X + 9), {}),
        ("Transpose", (X,), {"perm": [1, 0]}),
        ("Concat", (X, X), {"axis": 0}),
        ("Gather", (X, np.array([3, -1, 39])), {}),
        ("Slice", (X, np.array([3]), np.array([-4]), np.array([1]), np.array([2])), {}),
        ("Reshape", (X, np.array([50, 40])), {}),
        ("Expand", (X[:, :1], np.array([40, 60])), {}),
        ("ReduceMax", (X, np.array([1])), {}),
    ],
)
def test_folded_constants_are_those_of_onnx(op: str, operands: tuple[Array, ...], attributes: dict[str, Any]) -> None:
    program, due = table(op, *operands, **attributes)
    folded = fold.fold_constants(program)
    assert folded.nodes == ()
    assert folded.constants["y"].tobytes() == np.ascontiguousarray(due).tobytes()
    assert cpu.prepare(program).run({})["y"].tobytes() == np.ascontiguousarray(due).tobytes()


def doubled(times: int) -> tuple[ProgramBuilder, str]:
    """2000 numbers joined with themselves again and again."""
    b = ProgramBuilder("g")
    value = b.constant(np.arange(2000, dtype=F))
    for _ in range(times):
        (value,) = b.add("concat", (value, value), Concat(0))
    return b, value


def first_of(b: ProgramBuilder, value: str, count: int = 3) -> Program:
    """The first elements of a vector, plus an input that makes them depend on data."""
    x = b.input("x", dtypes.float32, (count,))
    return b.build({"y": b.apply("add", x, b.slice(value, (0,), (count,), (1,)))})


def test_what_is_folded_has_a_bound() -> None:
    folded = fold.fold_constants(first_of(*doubled(40)))
    held = sum(array.nbytes for array in folded.constants.values())
    assert held <= room.BYTES + room.GROWTH * 8000
    left = [node for node in folded.nodes if node.operation == "concat"]
    assert 20 < len(left) < 40
    with pytest.raises(ShapeError, match=r"size in bytes is .*, must be at most"):
        cpu.prepare(folded).run({"x": np.zeros(3, F)})


@pytest.mark.parametrize("size_bytes", [0, 5000, 100_000])
def test_what_has_no_room_is_computed_by_the_run(monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    monkeypatch.setattr(fold, "BYTES", size_bytes)
    monkeypatch.setattr(fold, "GROWTH", 0)
    b, value = doubled(4)
    program = b.build({"y": b.apply("neg", value)})
    folded = fold.fold_constants(program)
    assert folded.nodes != ()
    for made in (cpu.prepare(program).run({}), cpu.prepare(program, fuse=False).run({}), reference.run(program, {})):
        assert made["y"].tobytes() == np.tile(-np.arange(2000, dtype=F), 16).tobytes()


def test_results_that_nothing_reads_any_more_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "BYTES", 17_000)
    monkeypatch.setattr(fold, "GROWTH", 0)
    b = ProgramBuilder("g")
    value = b.constant(np.arange(2000, dtype=F))
    for _ in range(50):
        value = b.apply("neg", value)
    folded = fold.fold_constants(b.build({"y": value}))
    assert folded.nodes == ()
    assert folded.constants["y"].tolist() == list(range(2000))


def test_a_folded_part_does_not_hold_the_whole() -> None:
    b = ProgramBuilder("g")
    part = b.slice(b.apply("neg", b.constant(np.arange(100_000, dtype=F))), (5,), (3,), (1,))
    folded = fold.fold_constants(b.build({"y": part}))
    assert folded.constants["y"].base is None
    assert folded.constants["y"].tolist() == [-5, -6, -7]


def dequantised(rows: int = 300, *, output: bool = False, turned: bool = False, left: bool = False) -> Program:
    """A product with a weight of codes and scales."""
    r, b, n = np.random.default_rng(5), ProgramBuilder("g"), dim.symbol("n")
    codes = b.constant(r.integers(-128, 128, (rows, rows)).astype(np.int8), "codes")
    weight = b.apply("mul", b.cast(codes, dtypes.float32), b.constant(r.standard_normal((1, rows)).astype(F), "scale"))
    x = b.input("x", dtypes.float32, (rows, n) if left else (n, rows))
    read = b.transpose(weight, (1, 0)) if turned else weight
    outputs = {"y": b.contract(read, x) if left else b.contract(x, read)}
    return b.build(outputs | ({"weight": weight} if output else {}))


# The larger are packed by kernels. Interpreting a product of many rows takes seconds: once is enough by default.
HELD = [
    pytest.param(rows, left, isa, marks=pytest.mark.exhaustive if (rows, left, isa) == (400, True, "numpy") else ())
    for rows in (300, 400)
    for left in (False, True)
    for isa in (None, "scalar", "numpy")
]


@pytest.mark.parametrize(("rows", "left", "isa"), HELD)
def test_a_weight_that_is_packed_is_held_as_codes_and_panels(rows: int, left: bool, isa: str | None) -> None:
    program = dequantised(rows, left=left)
    folded = optimise(program)
    (weight,) = (x for name, x in folded.constants.items() if name not in ("codes", "scale"))
    assert isinstance(weight, Deferred)
    assert [node.operation for node in folded.nodes] == ["contract"]
    due = program.constants["codes"].astype(F) * program.constants["scale"]
    assert (weight.shape, weight.dtype, weight.size, weight.nbytes) == (due.shape, due.dtype, due.size, due.nbytes)
    assert array_of(weight).tobytes() == due.tobytes()
    assert not array_of(weight).flags.writeable
    x = {"x": np.random.default_rng(6).standard_normal((rows, 4) if left else (4, rows)).astype(F)}
    with sb.use_isa(isa or isas.current()):
        made = cpu.prepare(program).run(x)["y"]
        assert made.tobytes() == reference.run(program, x)["y"].tobytes() == reference.run(folded, x)["y"].tobytes()
        assert made.tobytes() == cpu.prepare(program, fuse=False).run(x)["y"].tobytes()
    held = folded.replace(folded.nodes, constants={name: array_of(each) for name, each in folded.constants.items()})
    assert folded.digest() == held.digest()


@pytest.mark.parametrize("options", [{"rows": 100}, {"output": True}, {"turned": True}])
def test_what_is_small_or_read_as_it_is_is_held(options: dict[str, Any]) -> None:
    folded = optimise(dequantised(**options))
    assert all(isinstance(x, np.ndarray) for x in folded.constants.values())


def test_a_part_of_something_endless() -> None:
    """A view of one element takes no memory, however large it is."""
    b = ProgramBuilder("g")
    program = first_of(b, b.expand(b.constant(np.full(1, 7, F)), (2**40,)))
    for fuse in (True, False):
        assert cpu.prepare(program, fuse=fuse).run({"x": np.ones(3, F)})["y"].tolist() == [8, 8, 8]


def test_an_endless_output_is_refused() -> None:
    b = ProgramBuilder("g")
    program = b.build({"y": b.expand(b.constant(np.ones(1, F)), (2**50,))})
    for run in (cpu.prepare(program).run, lambda feed: reference.run(program, feed)):
        with pytest.raises(ShapeError, match=r"run: value 'y' of node '.*' size in bytes is 4503599627370496, must be"):
            run({})


def test_memory_that_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_memory_bytes", lambda: 2**60)
    b = ProgramBuilder("g")
    program = b.build({"y": b.expand(b.constant(np.ones(1, F)), (2**50,))})
    with pytest.raises(MemoryError) as error:
        cpu.prepare(program).run({})
    assert str(error.value) == (
        "run: memory for its outputs is more, must be what the system has left; "
        "give smaller inputs, or a part at a time"
    )


def test_values_that_only_fit_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_memory_bytes", lambda: 5000)
    b = ProgramBuilder("g")
    x = b.input("x", dtypes.float32, (1000,))
    program = b.build({"y": b.apply("neg", x), "z": b.apply("abs", x)})
    for run in (cpu.prepare(program).run, lambda feed: reference.run(program, feed)):
        with pytest.raises(ShapeError) as error:
            run({"x": np.zeros(1000, F)})
        assert str(error.value) == (
            "run: memory of all values size in bytes is 8000, must be at most 5000; give smaller inputs"
        )


def test_a_range_that_must_be_known_and_has_no_room() -> None:
    b = ProgramBuilder("g")
    b.origin = ("r",)
    (value,) = b.add("range", (), Range(0, 2**26, 1))
    program = b.build({"y": b.slice(value, (0,), (3,), (1,))})
    with pytest.raises(ShapeError) as error:
        cpu.prepare(program).run({})
    assert str(error.value) == (
        "run: node 'r': range: its result is 67108864 int64, "
        "must be within the 64 MiB of what is computed before a run; give smaller inputs"
    )


def test_ranges_of_a_model_have_one_room() -> None:
    nodes = [helper.make_node("Range", ["a", "b", "c"], [f"y{i}"]) for i in range(3)]
    bounds = {"a": np.float64(0), "b": np.float64(4e6), "c": np.float64(1)}
    proto = protos.model(nodes, [], [protos.value("y2", np.float64, ["n"])], bounds)
    with pytest.raises(UnsupportedModelError, match="more than are computed when a model is"):
        onnx.load(proto)
