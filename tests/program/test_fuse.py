"""Joining nodes keeps every value that something reads, and every bit: against NumPy and ONNX Runtime."""

import numpy as np
import protos
import pytest
from onnx import helper

from samebits import dtypes, onnx
from samebits.kernels import composites
from samebits.kernels.expression import Chain, Expression
from samebits.operations import dim
from samebits.operations.moves import AxisGather
from samebits.operations.operation import Array
from samebits.program import fuse
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program
from samebits.program.transform import optimise
from samebits.runtime import cpu, reference

F = np.float32
X = np.random.default_rng(0).standard_normal((6, 5)).astype(F)


def sum_and_difference() -> Expression:
    """x + y and x - y."""
    chain = Chain()
    x, y = chain.input(dtypes.float32), chain.input(dtypes.float32)
    return chain.finish(chain.apply("add", x, y), chain.apply("sub", x, y))


def shifted() -> Expression:
    """x - max(x) along the rows, and the maximum."""
    chain = Chain()
    x = chain.input(dtypes.float32)
    largest = chain.apply("row_max", x)
    return chain.finish(chain.apply("sub", x, largest), largest)


def inputs() -> tuple[ProgramBuilder, str, str]:
    b = ProgramBuilder("g")
    shape = (dim.symbol("n"), 5)
    return b, b.input("x", dtypes.float32, shape), b.input("y", dtypes.float32, shape)


def check(program: Program, **due: Array) -> tuple[str, ...]:
    """The values are NumPy's, everywhere; the primitives that are left."""
    feed = {name: {"x": X, "y": X[::-1].copy() * 3}[name] for name in program.inputs}
    better = optimise(program)
    for made in (cpu.prepare(program).run(feed), reference.run(better, feed), reference.run(program, feed)):
        for name, x in due.items():
            assert made[name].tobytes() == np.ascontiguousarray(x).tobytes(), name
    return tuple(node.operation for node in better.nodes)


Y = X[::-1].copy() * 3


def test_both_outputs_go_to_their_only_reader() -> None:
    b, x, y = inputs()
    total, difference = b.map(sum_and_difference(), x, y)
    program = b.build({"z": b.apply("mul", total, difference)})
    assert check(program, z=(X + Y) * (X - Y)) == ("map",)


# What is left where the difference has another reader too.
LEFT = {"neg": ("map", "transpose", "map"), "output": ("map",), "rows": ("rows",), "gather": ("map", "gather")}


@pytest.mark.parametrize("also", LEFT)
def test_an_output_with_another_reader_is_made_once(also: str) -> None:
    b, x, y = inputs()
    total, difference = b.map(sum_and_difference(), x, y)
    outputs = {"z": b.apply("mul", total, difference)}
    due = {"z": (X + Y) * (X - Y)}
    if also == "neg":
        outputs["w"], due["w"] = b.apply("neg", b.transpose(difference, (1, 0))), -(X - Y).T
    elif also == "output":
        outputs["w"], due["w"] = difference, X - Y
    elif also == "rows":
        outputs["w"], due["w"] = b.rows(shifted(), difference)[1], (X - Y).max(1, keepdims=True)
    else:
        places = b.constant(np.array([1, 0]))
        outputs["w"], due["w"] = b.add("gather", (difference, places), AxisGather(0))[0], (X - Y)[[1, 0]]
    assert check(b.build(outputs), **due) == LEFT[also]


@pytest.mark.parametrize("among", ["maps", "rows"])
def test_a_reader_of_one_output_leaves_the_other(among: str) -> None:
    b, x, y = inputs()
    if among == "maps":
        total, difference = b.map(sum_and_difference(), x, y)
        due = {"z": -(X + Y), "w": np.abs(X - Y)}
    else:
        total, difference = b.rows(shifted(), x)
        due = {"z": -(X - X.max(1, keepdims=True)), "w": np.abs(X.max(1, keepdims=True))}
    check(b.build({"z": b.apply("neg", total), "w": b.apply("abs", difference)}), **due)


def test_a_reader_of_one_output_leaves_the_other_to_a_node_that_cannot_join() -> None:
    b, x, y = inputs()
    total, difference = b.map(sum_and_difference(), x, y)
    check(b.build({"z": b.apply("neg", total), "w": b.transpose(difference, (1, 0))}), z=-(X + Y), w=(X - Y).T)


def test_a_map_of_another_shape_is_not_joined() -> None:
    b, x, y = inputs()
    part = b.apply("neg", b.slice(x, (0, 0), (1, 5), (1, 1)))
    program = b.build({"z": b.apply("add", part, y)})
    assert check(program, z=-X[:1] + Y).count("map") == 2


@pytest.mark.parametrize(("dtype", "kinds"), [("float8_e4m3fn", ["rows"]), ("float16", ["map", "rows"])])
def test_scales_of_eight_bits_are_decoded_by_the_rows_that_read_them(dtype: str, kinds: list[str]) -> None:
    """Wider ones, which no table has, are cast before: they would be cast for each element of their block."""
    b = ProgramBuilder("g")
    x = b.input("x", dtypes.float32, (dim.symbol("n"), 4, 16))
    scale = b.input("scale", dtypes.of(dtype), (dim.symbol("n"), 4, 1))
    product = b.apply("mul", x, b.cast(scale, dtypes.float32))
    program = b.build({"y": b.rows(composites.reduction("row_sum"), product, axes=(-2, -1))[0]})
    better = optimise(program)
    assert [node.operation for node in better.nodes] == kinds
    feed = {"x": np.random.default_rng(1).standard_normal((3, 4, 16)).astype(F)}
    feed["scale"] = np.linspace(-3, 5, 12).reshape(3, 4, 1).astype(dtypes.of(dtype).numpy)
    (due,) = reference.run(program, feed).values()
    assert cpu.prepare(program).run(feed)["y"].tobytes() == due.tobytes()


def test_a_map_joins_the_rows_that_read_it_and_the_map_that_reads_those() -> None:
    b, x, y = inputs()
    (p, largest) = b.rows(shifted(), b.apply("mul", x, y))
    program = b.build({"z": b.apply("neg", p)})
    due = -(X * Y - (X * Y).max(1, keepdims=True))
    assert check(program, z=due) == ("rows",)
    assert largest not in optimise(program).facts


def test_an_expression_does_not_grow_without_end() -> None:
    b, x, _ = inputs()
    value = x
    for _ in range(500):
        value = b.apply("neg", value)
    program = b.build({"z": value})
    better = fuse.fuse_maps(program)
    assert 5 <= len(better.nodes) <= 7
    check(program, z=X)


def test_rows_that_follow_rows_along_the_same_axes_are_one_kernel() -> None:
    b, x, _ = inputs()
    program = b.build({"z": b.rows(composites.softmax(), b.rows(shifted(), x)[0])[0]})
    assert len(optimise(program).nodes) == 1


@pytest.mark.parametrize("shape", [(4, 3), (1, 1)])
def test_a_zero_point_used_twice(shape: tuple[int, ...]) -> None:
    """DynamicQuantizeLinear's point is read by what quantises, and by what the model computes with it."""
    node = helper.make_node
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("Cast", ["z"], ["point"], to=1),
        node("Cast", ["q"], ["code"], to=1),
        node("Sub", ["code", "point"], ["centred"]),
        node("Mul", ["point", "s"], ["low"]),
        node("DequantizeLinear", ["q", "s", "z"], ["back"]),
        node("Add", ["back", "low"], ["y"]),
    ]
    names = ("centred", "y", "low", "z", "s")
    types = {"z": np.uint8}
    outputs = [
        protos.value(name, types.get(name, F), [] if name in ("low", "z", "s") else ["a", "b"]) for name in names
    ]
    proto = protos.model(nodes, [protos.value("x", F, ["n", "m"])], outputs)
    x = np.random.default_rng(3).integers(-40, 99, shape).astype(F)
    theirs = protos.session(proto).run(list(names), {"x": x})
    for prepared in (cpu.load(proto), cpu.prepare(onnx.load(proto), fuse=False)):
        made = prepared.run({"x": x})
        for name, due in zip(names, theirs, strict=True):
            assert made[name].tobytes() == due.tobytes(), name
