"""Maps and rows over the same elements become one node: which do, which do not and why, and every bit of them."""

import numpy as np

from samebits import dtypes
from samebits.kernels import composites
from samebits.kernels.random import Random
from samebits.operations import dim
from samebits.operations.dim import SymbolicShape
from samebits.operations.operation import Array
from samebits.operations.random import Drawn
from samebits.program.broadcasts import keep_row_axes, read_before_expand
from samebits.program.builder import ProgramBuilder
from samebits.program.fuse import LARGEST, MOST_READ
from samebits.program.graph import Program
from samebits.program.groups import join_groups, refusal
from samebits.program.transform import optimise
from samebits.runtime import cpu, reference

N, M = dim.symbol("n"), dim.symbol("m")
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((6, 70)).astype(np.float32)


def builder() -> tuple[ProgramBuilder, str]:
    b = ProgramBuilder("g")
    return b, b.input("x", dtypes.float32, (N, M))


def summed(b: ProgramBuilder, x: str, axes: tuple[int, ...] = (-1,)) -> str:
    return b.rows(composites.reduction("row_sum"), x, axes=axes)[0]


def operations(program: Program, **feed: Array) -> tuple[str, ...]:
    """The operations that are left; the bits are those of the program, alone and in a session."""
    feed = feed or {"x": X}
    better = optimise(program)
    better.check()
    due = reference.run(program, feed)
    for made in (reference.run(better, feed), *(cpu.prepare(program, threads=k).run(feed) for k in (1, 2))):
        for name, x in due.items():
            assert made[name].shape == x.shape
            assert made[name].tobytes() == x.tobytes(), name
    return tuple(node.operation for node in better.nodes)


def test_softmax_of_steps_is_the_kernel_of_softmax() -> None:
    b, x = builder()
    e = b.apply("exp", b.apply("sub", x, b.rows(composites.reduction("row_max"), x)[0]))
    program = b.build({"y": b.apply("div", e, summed(b, e))})
    assert operations(program) == ("rows",)
    (node,) = optimise(program).nodes
    assert node.attributes.expression == composites.softmax()  # type: ignore[attr-defined]


def test_a_value_that_is_an_output_too_is_stored_by_the_same_kernel() -> None:
    b, x = builder()
    e = b.apply("exp", x)
    s = summed(b, e)
    assert operations(b.build({"y": b.apply("div", e, s), "e": e, "s": s})) == ("rows",)


def test_axes_that_a_front_end_drops_and_puts_back_cut_nothing() -> None:
    b, x = builder()
    mean = b.apply("mul", b.reshape(summed(b, x), (N,)), b.reshape(summed(b, b.apply("abs", x)), (N,)))
    back = b.expand(b.reshape(b.apply("neg", mean), (N, 1)), (N, M))
    program = b.build({"y": b.apply("sub", x, back), "mean": mean})
    assert [op for op in operations(program) if op != "reshape"] == ["rows"]


def test_an_expansion_of_what_decides_a_shape_is_read() -> None:
    b, x = builder()
    wide = b.expand(summed(b, x), (N, M))
    program = b.build({"y": summed(b, wide), "z": b.apply("neg", wide)})
    assert "expand" in operations(program)


def test_an_expansion_that_makes_the_axis_that_is_reduced_is_read() -> None:
    """What it repeats has no such axis."""
    b, x = builder()
    repeated = b.expand(x, (3, N, M))
    program = b.build({"y": summed(b, repeated, (-3,)), "z": summed(b, repeated, (-1,))})
    assert "expand" in operations(program)


def test_rows_along_other_axes_stay_apart() -> None:
    b, x = builder()
    program = b.build({"y": summed(b, b.apply("sub", x, summed(b, x)), axes=(-2,))})
    assert operations(program) == ("rows", "rows")
    better = optimise(program)
    assert refusal(better, *better.nodes) == "one reduces axes [-1], the other [-2]"


def test_what_is_one_for_several_rows_is_not_computed_for_each() -> None:
    b, x = builder()
    w = b.input("w", dtypes.float32, (M,))
    program = b.build({"y": b.apply("mul", b.rows(composites.softmax(), x)[0], b.apply("exp", w))})
    assert operations(program, x=X, w=X[0].copy()) == ("map", "rows")
    better = optimise(program)
    words = "one has rows of [n, m] along axes [-1], the other makes [m]"
    assert refusal(better, *better.nodes) == words


def test_what_lies_between_two_nodes_keeps_them_apart() -> None:
    b, x = builder()
    e = b.apply("exp", x)
    turned = b.transpose(summed(b, b.transpose(e, (1, 0)), axes=(-1,)), (1, 0))
    program = b.build({"y": b.apply("div", e, turned)})
    better = optimise(program)
    assert operations(program).count("map") == 2
    maps = [node for node in better.nodes if node.operation == "map"]
    assert refusal(better, maps[0], maps[1]) == "other kernels lie between them"


def test_other_operations_are_no_work_on_elements() -> None:
    b, x = builder()
    w = b.input("w", dtypes.float32, (M, 4))
    program = b.build({"y": b.rows(composites.softmax(), b.contract(x, w))[0]})
    assert operations(program, x=X, w=RANDOM.standard_normal((70, 4)).astype(np.float32)) == ("contract", "rows")
    better = optimise(program)
    assert refusal(better, *better.nodes) == "contract is no work on elements or rows"


def drawn(b: ProgramBuilder, shape: SymbolicShape = (N, M), offset: int = 0) -> str:
    unit = [b.scalar(number, dtypes.float32) for number in (0.0, 1.0)]
    words = [b.constant(np.array(word, np.uint64)) for word in (7, offset)]
    return b.add("random", (*unit, *words), Drawn(Random("uniform", dtypes.float32), shape))[0]


def test_random_numbers_are_drawn_where_maps_read_them() -> None:
    b, x = builder()
    w, r = b.input("w", dtypes.float32, (M,)), drawn(b)
    kept = b.apply("less", r, b.scalar(0.75, dtypes.float32))
    y = b.apply("where", kept, b.apply("mul", x, w), b.scalar(0.0, dtypes.float32))
    program = b.build({"y": y, "kept": kept, "r": r, "z": b.apply("exp", r)})
    assert operations(program, x=X, w=X[0].copy()) == ("random",)


def test_random_numbers_stay_a_kernel_where_no_map_alone_reads_them() -> None:
    b, x = builder()
    r = drawn(b)
    cases = {
        "numbers are drawn beside work on elements, not beside rows": summed(b, r),
        "one makes [1, m], the other [n, m]": b.apply("mul", drawn(b, (1, M), 1), x),
        "elements of fewer than 8 bits are packed and taken apart by kernels that draw nothing":
            b.cast(r, dtypes.float4_e2m1fn),
        f"together they are more than {LARGEST} operations": deep(b, r),
    }  # fmt: skip
    for words, output in cases.items():
        better = optimise(b.build({"y": output}))
        first, second = (node for node in better.nodes if node.operation in ("random", "map", "rows"))
        assert (first.operation, refusal(better, first, second)) == ("random", words)


def deep(b: ProgramBuilder, r: str) -> str:
    """Numbers of which two maps in turn are made, together of more operations than there may be."""
    x = r
    for _ in range(LARGEST * 2 // 3):
        x = b.apply("sub", b.apply("exp", x), r)
    return x


def test_numbers_of_two_draws_are_two_kernels() -> None:
    b, x = builder()
    program = b.build({"y": b.apply("add", x, b.apply("mul", drawn(b), drawn(b, offset=1)))})
    assert operations(program) == ("random", "random")
    better = optimise(program)
    assert refusal(better, *better.nodes) == "a kernel draws one sequence of numbers"


def test_a_map_that_others_read_joins_before_numbers_do() -> None:
    b, x = builder()
    e = b.apply("exp", x)
    program = b.build({"y": b.apply("mul", drawn(b), e), "z": b.apply("neg", e)})
    assert operations(program) == ("random",)


def test_readers_of_the_same_elements_are_one_kernel() -> None:
    b, x = builder()
    outputs = {"sum": summed(b, x), "max": b.rows(composites.reduction("row_max"), x)[0], "y": b.apply("exp", x)}
    assert operations(b.build(outputs)) == ("rows",)


def test_groups_end_where_expressions_are_large() -> None:
    b, x = builder()
    for _ in range(LARGEST):
        x = b.apply("sub", b.apply("exp", x), x)
    program = b.build({"y": x})
    better = optimise(program)
    assert operations(program).count("map") == len(better.nodes) > 1
    assert refusal(better, *better.nodes[:2]) == f"together they are more than {LARGEST} operations"


def test_groups_end_where_they_would_read_many_operands() -> None:
    b, x = builder()
    each = [b.slice(x, (0, place), (N, 1), (1, 1)) for place in range(2 * MOST_READ)]
    total = each[0]
    for one in each[1:]:
        total = b.apply("add", total, one)
    better = optimise(b.build({"y": total}))
    maps = [node for node in better.nodes if node.operation == "map"]
    assert [len(node.inputs) for node in maps] == [MOST_READ, MOST_READ, 2]
    assert refusal(better, *maps[:2]) == f"together they read more than {MOST_READ} operands"


def test_nodes_run_after_what_they_read_when_groups_hold_nodes_from_afar() -> None:
    b, x = builder()
    e = b.apply("exp", x)
    early = b.contract(e, b.constant(RANDOM.standard_normal((70, 70)).astype(np.float32)))
    late = b.apply("mul", e, b.apply("abs", x))
    program = b.build({"a": early, "b": late, "c": b.transpose(late, (1, 0))})
    assert operations(program, x=X).count("map") == 1


def test_nothing_of_a_program_without_rows_or_maps_changes() -> None:
    b, x = builder()
    program = b.build({"y": b.transpose(x, (1, 0))})
    assert join_groups(program) is program
    assert keep_row_axes(program) is program
    assert read_before_expand(program) is program


def test_elements_of_four_bits_are_made_by_a_kernel_of_their_own() -> None:
    b, x = builder()
    y = b.apply("sub", x, summed(b, x))
    narrow = b.apply("cast", y, cast_to=dtypes.of("float4_e2m1fn"))
    program = b.build({"y": y, "narrow": narrow})
    better = optimise(program)
    words = "elements of fewer than 8 bits are packed as they are made by a kernel of nothing else"
    assert operations(program) == ("rows", "map")
    assert refusal(better, *better.nodes) == words
