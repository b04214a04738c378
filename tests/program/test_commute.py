"""Exchanging nodes keeps every bit: against NumPy."""

from collections.abc import Sequence

import numpy as np
import pytest

from samebits import dtypes
from samebits.operations import dim
from samebits.operations.moves import AxisGather
from samebits.operations.operation import Array
from samebits.program import commute
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Node, Program
from samebits.program.transform import optimise
from samebits.runtime import cpu, reference

F = np.float32
X = np.random.default_rng(0).standard_normal((3, 4)).astype(F)
N = dim.symbol("n")


def begun() -> tuple[ProgramBuilder, str, str]:
    """A program, its input, and the exponential of it."""
    b = ProgramBuilder("g")
    x = b.input("x", dtypes.float32, (N, 4))
    return b, x, b.apply("abs", x)


def check(program: Program, **due: Array) -> list[str]:
    """The outputs are NumPy's before and after; the primitives after."""
    better = commute.map_before_view(program)
    better.check()
    for made in (reference.run(better, {"x": X}), cpu.prepare(program).run({"x": X})):
        for name, x in due.items():
            assert made[name].tobytes() == np.ascontiguousarray(x).tobytes(), name
    return [node.operation for node in better.nodes]


def test_a_map_moves_before_every_view_in_front_of_it() -> None:
    b, _, e = begun()
    moved = b.reshape(b.transpose(b.reshape(e, (N, 2, 2)), (1, 0, 2)), (2, 2 * N))
    program = b.build({"y": b.transpose(b.apply("neg", moved), (1, 0))})
    due = -np.abs(X).reshape(3, 2, 2).transpose(1, 0, 2).reshape(2, 6).T
    assert check(program, y=due) == ["map", "map", "reshape", "transpose", "reshape", "transpose"]
    assert [node.operation for node in optimise(program).nodes].count("map") == 1


def test_maps_in_a_row_keep_their_order() -> None:
    b, _, e = begun()
    value = b.transpose(e, (1, 0))
    for op in ("neg", "exp", "neg"):
        value = b.apply(op, value)
    program = b.build({"y": b.apply("abs", b.transpose(value, (1, 0)))})
    better = commute.map_before_view(program)
    assert [node.operation for node in better.nodes] == ["map"] * 5 + ["transpose"] * 2
    feed = {"x": X}
    assert reference.run(better, feed)["y"].tobytes() == reference.run(program, feed)["y"].tobytes()


@pytest.mark.parametrize("why", ["an output", "read twice", "an input", "a slice", "two operands"])
def test_a_map_stays_behind_a_view(why: str) -> None:
    b, x, e = begun()
    view = b.transpose(x if why == "an input" else e, (1, 0))
    if why == "a slice":
        view = b.slice(e, (0, 0), (N, 2), (1, 1))
    outputs = {"y": b.apply("mul", view, view) if why == "two operands" else b.apply("neg", view)}
    if why == "an output":
        outputs["v"] = view
    if why == "read twice":
        outputs["z"] = b.apply("exp", e)
    program = b.build(outputs)
    before = [node.operation for node in program.nodes]
    a = np.abs(X)
    due = {"an input": -X.T, "a slice": -a[:, :2], "two operands": (a * a).T}.get(why, -a.T)
    assert check(program, y=due) == before


@pytest.mark.parametrize("count", [3, 17, 200])
def test_a_long_chain_of_views_and_maps(count: int) -> None:
    b, _, value = begun()
    for _ in range(count):
        value = b.apply("neg", b.transpose(value, (1, 0)))
    due = np.abs(X) * (-1) ** count
    check(b.build({"y": value}), y=due.T if count % 2 else due)


# -- tables ---------------------------------------------------------------------------------------------------------

CODES = np.random.default_rng(1).integers(-128, 128, (8192, 16)).astype(np.int8)
SCALE = (np.arange(8192, dtype=F)[:, None] + 1) / 64
ROW = np.arange(16, dtype=F)


def table(b: ProgramBuilder, rows: int, scale: Array) -> str:
    """The first rows of CODES, scaled and shifted."""
    wide = b.apply("cast", b.constant(CODES[:rows]), cast_to=dtypes.float32)
    return b.apply("add", b.apply("mul", wide, b.constant(scale)), b.constant(ROW))


@pytest.mark.parametrize("scale", [SCALE, SCALE[:1], np.tile(SCALE, (1, 16)), ROW], ids=["rows", "one", "all", "row"])
@pytest.mark.parametrize("shape", [(5,), (2, 3), (0,)])
def test_a_large_table_is_gathered_first(scale: Array, shape: tuple[int, ...]) -> None:
    b = ProgramBuilder("g")
    ids = b.input("ids", dtypes.int64, tuple(dim.symbol(f"n{i}") for i in range(len(shape))))
    program = b.build({"y": b.add("gather", (table(b, 8192, scale), ids), AxisGather(0))[0]})
    better = commute.gather_first(program)
    assert [node.operation for node in better.nodes][-1] == "map"
    picked = np.random.default_rng(2).integers(-8192, 8192, shape)
    due = (CODES.astype(F) * scale + ROW)[picked]
    for made in (reference.run(better, {"ids": picked}), cpu.prepare(program).run({"ids": picked})):
        assert made["y"].tobytes() == due.tobytes()


def test_a_table_that_is_gathered_first_is_not_folded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    b = ProgramBuilder("g")
    ids = b.input("ids", dtypes.int64, (N,))
    program = b.build({"y": b.add("gather", (table(b, 8192, SCALE), ids), AxisGather(0))[0]})
    folded = list[str]()
    computed = Node.computed

    def counted(node: Node, arrays: Sequence[Array]) -> tuple[Array, ...]:
        folded.append(node.operation)
        return computed(node, arrays)

    monkeypatch.setattr(Node, "computed", counted)
    optimise(program)
    assert folded == []


@pytest.mark.parametrize("why", ["small", "another axis", "a scalar index"])
def test_a_table_is_computed_whole(why: str) -> None:
    b = ProgramBuilder("g")
    ids = b.input("ids", dtypes.int64, () if why == "a scalar index" else (N,))
    rows = 64 if why == "small" else 8192
    axis = 1 if why == "another axis" else 0
    program = b.build({"y": b.add("gather", (table(b, rows, SCALE[:rows]), ids), AxisGather(axis))[0]})
    assert commute.gather_first(program).nodes == program.nodes
    picked = np.array(3) if why == "a scalar index" else np.array([3, -1])
    due = np.take(CODES[:rows].astype(F) * SCALE[:rows] + ROW, picked, axis)
    assert cpu.prepare(program).run({"ids": picked})["y"].tobytes() == due.tobytes()


@pytest.mark.parametrize("also", ["", "output", "contract"])
def test_what_is_given_is_reshaped_before_it_is_mapped(also: str) -> None:
    b, _, y = begun()
    parts = b.reshape(y, (N, 2, 2))
    outputs = {"z": b.apply("neg", parts)}
    if also == "output":
        outputs["y"] = y
    elif also == "contract":
        outputs["w"] = b.contract(parts, b.constant(np.eye(2, dtype=F)))
    program = b.build(outputs)
    better = commute.reshape_before_map(program)
    better.check()
    assert (better is program) == (also != "")
    for made in (reference.run(better, {"x": X}), cpu.prepare(program).run({"x": X})):
        assert made["z"].tobytes() == (-np.abs(X)).tobytes()
        assert made["z"].shape == (3, 2, 2)
    if not also:
        assert sorted(node.operation for node in optimise(program).nodes) == ["map", "reshape"]
