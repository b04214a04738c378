"""Scalar constants move into expressions, bit for bit, and only where the shapes stay."""

import numpy as np
import pytest

from samebits import dtypes
from samebits.kernels.expression import Chain, Expression
from samebits.operations import dim
from samebits.operations.elementwise import Map
from samebits.operations.fact import dense
from samebits.operations.operation import Array
from samebits.program import scalars
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Node, Program
from samebits.program.transform import optimise
from samebits.runtime import cpu, reference

F = np.float32
X = np.random.default_rng(0).standard_normal((3, 4)).astype(F)
N = dim.symbol("n")


def begun() -> tuple[ProgramBuilder, str]:
    b = ProgramBuilder("g")
    return b, b.input("x", dtypes.float32, (N, 4))


def operands(program: Program) -> list[int]:
    """How many operands each node reads after the transform."""
    return [len(node.inputs) for node in scalars.absorb_scalars(program).nodes]


def check(program: Program, due: Array) -> None:
    """Output y is NumPy's before the transform, after it, and in a session."""
    better = scalars.absorb_scalars(program)
    better.check()
    alike = scalars.absorb_scalars_as_arguments(program)
    alike.check()
    assert [node.inputs for node in alike.nodes] == [node.inputs for node in better.nodes]
    found = [reference.run(each, {"x": X})["y"] for each in (better, alike)]
    found += [cpu.prepare(program, alike=alike).run({"x": X})["y"] for alike in (False, True)]
    for y in found:
        assert y.tobytes() == np.ascontiguousarray(due).tobytes()


@pytest.mark.parametrize("code", [0x80000000, 0x7FC00055, 0xFF800000, 1, 0x3DCCCCCD], ids=hex)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_scalar_keeps_its_bits(code: int, shape: tuple[int, ...]) -> None:
    b, x = begun()
    scalar = np.full(shape, code, np.uint32).view(F)
    program = b.build(
        {"y": b.apply("where", b.apply("greater", x, b.scalar(0.0, dtypes.float32)), b.constant(scalar), x)}
    )
    assert operands(program) == [1, 2]
    check(program, np.where(X > 0, scalar.reshape(()), X))


def test_a_constant_of_more_elements_stays() -> None:
    b, x = begun()
    row = np.array([1, 2, 3, 4], F)
    program = b.build({"y": b.apply("add", x, b.constant(row))})
    assert operands(program) == [2]
    check(program, X + row)


def test_a_constant_whose_axes_make_the_result_larger_stays() -> None:
    b, x = begun()
    program = b.build({"y": b.apply("add", x, b.constant(np.full((1, 1, 1), 2, F)))})
    assert operands(program) == [2]
    check(program, (X + 2)[None])


def test_a_map_of_scalars_alone_keeps_them() -> None:
    b, x = begun()
    two = two_of(b)
    chain = Chain()
    total = chain.finish(chain.apply("add", chain.input(dtypes.float32), chain.input(dtypes.float32)))
    node = Node("map", (two, two), ("t",), Map(total))
    program = b.build({"y": b.apply("neg", x)})
    facts = {**program.facts, two: dense(dtypes.float32, ()), "t": dense(dtypes.float32, ())}
    program = program.replace([*program.nodes, node], facts, {two: np.array(2, F)})
    assert scalars.absorb_scalars(program).nodes[-1] == node


def two_of(b: ProgramBuilder) -> str:
    return b.scalar(2.0, dtypes.float32)


def test_rows_keep_the_operand_that_is_reduced() -> None:
    b, x = begun()
    chain = Chain()
    value, scale = chain.input(dtypes.float32), chain.input(dtypes.float32)
    scaled: Expression = chain.finish(chain.apply("row_max", chain.apply("mul", value, scale)))
    program = b.build({"y": b.rows(scaled, x, b.constant(np.full((1, 1), 0.1, F)))[0]})
    assert operands(program) == [1]
    check(program, (X * F(0.1)).max(1, keepdims=True))


def test_the_operands_of_a_product_are_no_scalars() -> None:
    b, x = begun()
    column = b.slice(x, (0, 0), (N, 1), (1, 1))
    program = b.build({"y": b.apply("mul", b.contract(column, b.constant(np.full((1, 1), 3, F))), two_of(b))})
    (*_, node) = optimise(program).nodes
    assert node.operation == "contract"
    assert len(node.inputs) == 2
    check(program, X[:, :1] * 3 * 2)


@pytest.mark.parametrize("dtype", [np.float16, np.bool_, np.uint8, np.int64, np.float64])
def test_scalars_of_other_formats(dtype: type) -> None:
    """A narrow float is only ever moved; the others are constants of expressions."""
    b, x = begun()
    scalar = np.array(1, dtype)
    wide = b.expand(b.constant(scalar), (2000,))
    program = b.build({"y": b.apply("add", x, b.constant(np.array(0, F))), "s": b.apply("copy", wide)})
    assert cpu.prepare(program).run({"x": X})["s"].tobytes() == np.broadcast_to(scalar, (2000,)).tobytes()
