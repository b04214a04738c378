"""Lowering: which values share memory, which never may, and where an output lies."""

from typing import Any

import numpy as np
import pytest
from lowered import lower

from samebits import dtypes
from samebits.codegen import isa
from samebits.dtypes import DType
from samebits.kernels import composites
from samebits.kernels.expression import Chain
from samebits.operations import dim
from samebits.operations.moves import Concat
from samebits.operations.operation import Array
from samebits.operations.strided import dense_strides
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program
from samebits.program.transform import UNFUSED, optimise
from samebits.runtime import cpu, reference
from samebits.runtime.blueprint import ARENA, Lowered

F = np.float32
SIZE = 40 * 40 * 4


def lowered(program: Program, reuse: bool = True) -> Lowered:
    """The program as it is, on one thread."""
    strides = {name: dense_strides(fact.bind({}).shape) for name, fact in program.inputs.items()}  # type: ignore[arg-type]
    return lower(program, isa.current(), 1, {}, strides, {}, reuse)


def check_bits(program: Program, **inputs: Array) -> None:
    """The session's bits, fused or not, are the reference's."""
    due = reference.run(program, inputs)
    for fuse in (True, False):
        for name, x in cpu.prepare(program, threads=1, fuse=fuse).run(inputs).items():
            assert x.tobytes() == np.ascontiguousarray(due[name]).tobytes(), name


def square(seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((40, 40)).astype(F)


def begun() -> tuple[ProgramBuilder, str, str]:
    """A program of one input, and the product of it with a weight: a temporary that no map can join."""
    b = ProgramBuilder("g")
    w = b.constant(square(1))
    return b, b.contract(b.input("x", dtypes.float32, (40, 40)), w), w


def place(made: Lowered, name: str) -> tuple[int, int]:
    """The slot of a value, and where in it."""
    slot, offset, _, _ = made.values[name]
    return slot, offset


# -- written in place -----------------------------------------------------------------------------------------------


def test_a_chain_of_maps_takes_the_memory_of_one() -> None:
    b, t, w = begun()
    u = b.apply("neg", b.apply("exp", b.apply("neg", t)))
    program = b.build({"y": b.contract(u, w)})
    assert lowered(program).arena_bytes == SIZE
    assert lowered(program, reuse=False).arena_bytes == 4 * SIZE
    check_bits(program, x=square())


def test_another_view_of_the_source_is_not_written_over() -> None:
    b, t, w = begun()
    difference = b.apply("sub", t, b.transpose(t, (1, 0)))
    program = b.build({"y": b.contract(difference, w)})
    assert lowered(program).arena_bytes == 2 * SIZE
    check_bits(program, x=square())


def test_an_operand_that_is_turned_is_not_written_over() -> None:
    b, t, w = begun()
    turned = b.apply("neg", b.transpose(t, (1, 0)))
    program = b.build({"y": b.contract(turned, w)})
    assert lowered(program).arena_bytes == 2 * SIZE
    check_bits(program, x=square())


def test_a_value_read_later_is_not_written_over() -> None:
    b, t, w = begun()
    u = b.apply("neg", t)
    program = b.build({"y": b.apply("add", b.contract(u, w), b.apply("exp", t))})
    made = lowered(program)
    assert made.arena_bytes == 3 * SIZE
    check_bits(program, x=square())


@pytest.mark.parametrize(("to", "buffers"), [(dtypes.int32, 1), (dtypes.int8, 2), (dtypes.float64, 2)], ids=str)
def test_only_elements_of_one_width_share_memory(to: DType, buffers: int) -> None:
    b, t, _ = begun()
    u = b.apply("neg", b.apply("cast", b.apply("cast", t, cast_to=to), cast_to=dtypes.float32))
    program = b.build({"y": b.contract(u, u)})
    assert (lowered(program).arena_bytes > SIZE) == (buffers == 2)
    check_bits(program, x=square())


def test_a_part_of_the_source_is_not_its_memory() -> None:
    b, t, _ = begun()
    part = b.apply("neg", b.slice(t, (0, 0), (10, 40), (1, 1)))
    program = b.build({"y": b.contract(part, b.constant(square(2)))})
    assert lowered(program).arena_bytes == SIZE + SIZE // 4
    check_bits(program, x=square())


def test_a_part_of_as_many_bytes_is_not_written_over() -> None:
    """A quarter of t's bytes become float32: as much memory, and the same strides."""
    b, t, _ = begun()
    part = b.slice(b.apply("cast", t, cast_to=dtypes.int8), (0, 0), (10, 40), (1, 1))
    wide = b.apply("cast", part, cast_to=dtypes.float32)
    program = b.build({"y": b.contract(wide, b.constant(square(2)))})
    check_bits(program, x=square())


def test_an_operand_that_repeats_is_not_written_over() -> None:
    b, t, w = begun()
    row = b.slice(t, (0, 0), (1, 40), (1, 1))
    both = b.apply("add", t, b.expand(row, (40, 40)))
    program = b.build({"y": b.contract(both, w)})
    assert lowered(program).arena_bytes == 2 * SIZE
    check_bits(program, x=square())


@pytest.mark.parametrize("kind", ["input", "constant", "output"])
def test_memory_of_others_is_not_written_over(kind: str) -> None:
    b, t, w = begun()
    source = {"input": "x", "constant": w, "output": t}[kind]
    u = b.apply("neg", source)
    outputs = {"y": b.contract(u, w), "t": t}
    program = optimise(b.build(outputs), UNFUSED) if kind != "constant" else b.build(outputs)
    x = square()
    before = x.copy()
    check_bits(program, x=x)
    assert x.tobytes() == before.tobytes()


def test_rows_that_go_through_a_workspace() -> None:
    """Rows over axes that do not lie in one stride are copied through the workspace before they are computed."""
    b, t, _ = begun()
    chain = Chain()
    x = chain.input(dtypes.float32)
    shifted = chain.finish(chain.apply("sub", x, chain.apply("row_max", x)))
    cube = b.transpose(b.reshape(t, (8, 5, 40)), (0, 2, 1))
    (y,) = b.rows(shifted, cube, axes=(-3, -1))
    program = b.build({"y": b.contract(b.reshape(y, (40, 40)), b.constant(square(3)))})
    check_bits(program, x=square())


def test_merged_memory_lives_until_its_last_reader() -> None:
    """u lies in t's memory and is read last; what is made meanwhile may not lie there."""
    b, t, w = begun()
    u = b.apply("neg", t)
    other = b.contract("x", b.constant(square(4)))
    for _ in range(3):
        other = b.contract(b.apply("exp", b.apply("neg", other)), w)
    program = b.build({"y": b.contract(b.apply("add", other, u), w)})
    check_bits(program, x=square() / 40)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_of_maps_products_and_views(seed: int) -> None:
    """Values of one square shape, read once or often, straight or turned: every bit as without any sharing."""
    random = np.random.default_rng(seed)
    b, t, w = begun()
    values = ["x", t]

    def any_of() -> str:
        name = values[int(random.integers(max(0, len(values) - 4), len(values)))]
        return b.transpose(name, (1, 0)) if random.random() < 0.3 else name

    for _ in range(12):
        kind = random.choice(["neg", "sub", "maximum", "contract"])
        if kind == "contract":
            values.append(b.contract(any_of(), w))
        else:
            values.append(b.apply(str(kind), *[any_of() for _ in range(1 if kind == "neg" else 2)]))
    check_bits(b.build({"y": values[-1], "z": values[-3]}), x=square(seed) / 40)


# -- outputs --------------------------------------------------------------------------------------------------------


def softmax(b: ProgramBuilder, x: str) -> str:
    return b.rows(composites.softmax(), x)[0]


@pytest.mark.parametrize("count", [1, 40])
def test_an_output_that_is_the_start_of_a_larger_value(count: int) -> None:
    b, t, _ = begun()
    p = softmax(b, t)
    program = b.build({"y": b.reshape(b.slice(p, (0, 0), (count, 40), (1, 1)), (count * 40,))}, {"p": p})
    made = lowered(program, reuse=False)
    assert (place(made, "p")[0] == ARENA) == (count < 40)
    check_bits(program, x=square())


def test_a_part_that_does_not_begin_at_the_start_is_copied() -> None:
    b, t, _ = begun()
    p = softmax(b, t)
    program = b.build({"y": b.slice(p, (1, 0), (39, 40), (1, 1)), "z": b.transpose(p, (1, 0))}, {"p": p})
    assert place(lowered(program, reuse=False), "p")[0] == ARENA
    check_bits(program, x=square())


def test_one_value_given_twice_lies_in_two_outputs() -> None:
    b, t, _ = begun()
    program = b.build({"y": b.apply("neg", t), "z": t, "again": t, "x2": "x"})
    check_bits(program, x=square())


def test_parts_of_a_concat_lie_side_by_side() -> None:
    b, t, w = begun()
    (joined,) = b.add("concat", (t, b.transpose(t, (1, 0)), "x"), Concat(1))
    program = b.build({"y": b.contract(w, joined)})
    check_bits(program, x=square())


# -- the pieces -----------------------------------------------------------------------------------------------------


def test_constants_of_one_address_have_one_slot() -> None:
    b = ProgramBuilder("g")
    table = np.arange(4, dtype=F)
    one, same, other = (b.constant(x) for x in (table, table.reshape(2, 2), table.copy()))
    x, z = b.input("x", dtypes.float32, (4,)), b.input("z", dtypes.float32, (2, 2))
    made = {"y": b.apply("add", x, one), "u": b.apply("mul", z, same), "v": b.apply("sub", x, other)}
    found = [constant.value for constant in lowered(b.build(made)).constants]
    assert len(found) == 2
    assert np.shares_memory(found[0], table)
    assert not np.shares_memory(found[1], table)


def test_what_is_kept_is_made_once_for_all_shapes() -> None:
    kept: dict[Any, Array] = {}
    b = ProgramBuilder("g")
    program = b.build({"y": b.contract(b.input("x", dtypes.float32, (dim.symbol("n"), 40)), b.constant(square(1)))})
    held = [lower(program, isa.current(), 1, {"n": n}, {"x": (40, 1)}, kept).constants for n in (3, 4)]
    (panels,) = kept.values()
    assert all(constant.value is panels for (constant,) in held)


def test_places_of_numbers_stay_where_sizes_of_memory_are_compared_last() -> None:
    b, n = ProgramBuilder("g"), dim.symbol("n")
    x, y = b.input("x", dtypes.float32, (1, 70)), b.input("y", dtypes.float32, (n, 70))
    program = b.build({"z": b.apply("exp", b.apply("add", b.apply("neg", x), y))})
    for rows in (1, 3):
        check_bits(program, x=np.ones((1, 70), F), y=np.full((rows, 70), 2, F))
