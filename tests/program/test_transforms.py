"""Every transform, alone and in the table's order, keeps every bit of every output."""

import numpy as np
import pytest
from drawing import examples
from graphs import floats, programs
from hypothesis import given

from samebits import dtypes
from samebits.errors import PlanError
from samebits.kernels import composites
from samebits.kernels.expression import Chain
from samebits.operations import dim
from samebits.operations.operation import Array
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program
from samebits.program.transform import ROWS, UNFUSED, optimise
from samebits.runtime import cpu, reference


def bits(x: Array) -> bytes:
    """Shape, format and bits."""
    return str((x.shape, x.dtype)).encode() + np.ascontiguousarray(x).tobytes()


def same(one: dict[str, Array], other: dict[str, Array]) -> bool:
    """Whether two answers agree in every bit."""
    return {name: bits(x) for name, x in one.items()} == {name: bits(x) for name, x in other.items()}


def inputs(n: int) -> dict[str, Array]:
    """Inputs of a random program."""
    return {"x": floats((n, 4, 3), 5), "y": floats((n, 1, 3), 6)}


@examples(60)
@given(programs())
def test_transforms_keep_bits(program: Program) -> None:
    feed = inputs(2)
    expected = reference.run(program, feed)
    step = program
    for row in ROWS:
        step = row.run(step)
        step.check()
        assert same(reference.run(step, feed), expected), row.name


@examples(40)
@given(programs())
def test_sessions_give_the_bits_of_the_reference(program: Program) -> None:
    for n in (1, 2):
        expected = reference.run(program, inputs(n))
        assert same(cpu.prepare(program, threads=1).run(inputs(n)), expected)
        assert same(cpu.prepare(program, threads=2, fuse=False).run(inputs(n)), expected)


def attention() -> Program:
    """Softmax(q k^T + mask), NaN replaced, times v: the shape of a layer."""
    b = ProgramBuilder("attention")
    s = dim.symbol("s")
    x, mask = b.input("x", dtypes.float32, (2, s, 8)), b.input("mask", dtypes.bool_, (2, 1, 1, s))
    heads = []
    for seed in range(3):
        y = b.apply(
            "add", b.contract(x, b.constant(floats((8, 8), seed, odd=False))), b.constant(floats((8,), seed + 9))
        )
        heads.append(b.transpose(b.reshape(y, (2, s, 2, 4)), (0, 2, 1, 3)))
    q, k, v = heads
    half = b.scalar(0.5, dtypes.float32)
    k = b.reshape(b.transpose(b.reshape(k, (4, s, 4)), (0, 2, 1)), (2, 2, 4, s))
    scores = b.contract(b.apply("mul", q, half), b.apply("mul", k, half))
    added = b.apply("where", mask, b.scalar(0.0, dtypes.float32), b.scalar(-np.inf, dtypes.float32))
    (weights,) = b.rows(composites.softmax(), b.apply("add", scores, added))
    weights = b.apply("where", b.apply("is_nan", weights), b.scalar(0.0, dtypes.float32), weights)
    y = b.reshape(b.transpose(b.contract(weights, v), (0, 2, 1, 3)), (2, s, 8))
    return b.build({"y": b.contract(y, b.constant(floats((8, 8), 20, odd=False)))})


def test_attention_is_nine_kernels_and_no_copy() -> None:
    program = attention()
    session = cpu.prepare(program, threads=1)
    made = [node.operation for node in session.program.nodes if node.operation in ("map", "rows", "contract")]
    # q, k, v, the mask, scores with the mask added, softmax with NaN replaced, times v, and the last product.
    assert sorted(made) == ["contract"] * 6 + ["map", "rows"]
    assert not [text for text in session.plans({"s": 5}) if "elementwise copy" in text]


@pytest.mark.parametrize("s", [1, 2, 7])
def test_attention_bits(s: int) -> None:
    mask = np.ones((2, 1, 1, s), bool)
    mask[1] = False
    feed = {"x": floats((2, s, 8), 30, odd=False), "mask": mask}
    expected = reference.run(attention(), feed)
    assert same(cpu.prepare(attention(), threads=1).run(feed), expected)
    assert same(reference.run(optimise(attention()), feed), expected)
    assert same(reference.run(optimise(attention(), UNFUSED), feed), expected)


def test_gelu_written_out_joins_the_product() -> None:
    b = ProgramBuilder("gelu")
    x = b.input("x", dtypes.float32, (dim.symbol("n"), 4))
    t = b.apply("add", b.contract(x, b.constant(floats((4, 4), 1, odd=False))), b.constant(floats((4,), 2)))
    e = b.apply("erf", b.apply("div", t, b.scalar(1.4142135, dtypes.float32)))
    half = b.apply("mul", b.scalar(0.5, dtypes.float32), b.apply("add", e, b.scalar(1.0, dtypes.float32)))
    program = b.build({"y": b.apply("mul", t, half)})
    (node,) = optimise(program).nodes
    assert str(node.attributes) == "t2 = add(x0, x1); mul(t2, mul(0.5, add(erf(div(t2, 1.4142135381698608)), 1.0)))"
    feed = {"x": floats((3, 4), 3)}
    assert same(cpu.prepare(program).run(feed), reference.run(program, feed))


def test_a_value_read_twice_is_computed_once() -> None:
    b = ProgramBuilder("twice")
    x = b.input("x", dtypes.float32, (4,))
    e = b.apply("exp", x)
    program = b.build({"y": b.apply("add", e, x), "z": b.apply("mul", e, x)})
    (node,) = optimise(program).nodes
    assert str(node.attributes) == "t1 = exp(x0); add(t1, x0), mul(t1, x0)"


def test_equal_nodes_become_one() -> None:
    b = ProgramBuilder("equal")
    x = b.input("x", dtypes.float32, (4,))
    program = b.build({"y": b.apply("add", b.apply("exp", x), b.apply("exp", x))})
    (node,) = optimise(program).nodes
    assert str(node.attributes) == "t1 = exp(x0); add(t1, t1)"


def test_large_tables_are_gathered_before_they_are_dequantised() -> None:
    b = ProgramBuilder("table")
    codes = np.random.default_rng(0).integers(-128, 128, (4096, 16)).astype(np.int8)
    scale = floats((4096, 1), 1, odd=False)
    table = b.apply("mul", b.apply("cast", b.constant(codes), cast_to=dtypes.float32), b.constant(scale))
    ids = b.input("ids", dtypes.int64, (dim.symbol("n"),))
    from samebits.operations.moves import AxisGather

    program = b.build({"y": b.add("gather", (table, ids), AxisGather(0))[0]})
    better = optimise(program)
    assert [node.operation for node in better.nodes] == ["gather", "gather", "map"]
    feed = {"ids": np.array([0, 4095, -1, 7])}
    assert same(reference.run(better, feed), reference.run(program, feed))
    assert same(cpu.prepare(program).run(feed), reference.run(program, feed))


@pytest.mark.parametrize(("n", "m"), [(1, 2), (2, 1), (3, 5), (1, 1)])
@pytest.mark.parametrize("shape", [(1, 4), (4,), ("m", 1)])
def test_an_operand_that_repeats_along_some_of_the_reduced_axes(n: int, m: int, shape: tuple[str | int, ...]) -> None:
    b = ProgramBuilder("partly")
    x = b.input("x", dtypes.float32, (dim.symbol("n"), dim.symbol("m"), 4))
    z = b.input("z", dtypes.float32, tuple(dim.symbol(size) if isinstance(size, str) else size for size in shape))
    chain = Chain()
    total = chain.finish(chain.apply("row_sum", chain.input(dtypes.float32)))
    program = b.build({"y": b.rows(total, b.apply("mul", z, x), axes=(-2, -1))[0]})
    feed = {"x": floats((n, m, 4), 1), "z": floats(tuple(m if size == "m" else int(size) for size in shape), 2)}
    assert same(cpu.prepare(program).run(feed), reference.run(program, feed))


def test_rows_of_nothing() -> None:
    b = ProgramBuilder("nothing")
    x = b.input("x", dtypes.float32, (dim.symbol("n"), dim.symbol("m")))
    program = b.build({"y": b.rows(composites.softmax(), x)[0]})
    feed = {"x": np.zeros((3, 0), np.float32)}
    assert same(cpu.prepare(program).run(feed), reference.run(program, feed))
    chain = Chain()
    largest = chain.finish(chain.apply("row_max", chain.input(dtypes.float32)))
    b = ProgramBuilder("largest")
    x = b.input("x", dtypes.float32, (dim.symbol("n"), dim.symbol("m")))
    program = b.build({"y": b.rows(largest, x)[0]})
    for runner in (cpu.prepare(program).run, lambda given: reference.run(program, given)):
        with pytest.raises(PlanError, match="row_max of nothing has no value"):
            runner(feed)
