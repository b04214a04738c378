"""Elementwise on codes of four bits as they lie, and on scales of their blocks: the bits of a byte an element."""

from typing import Any

import launch
import ml_dtypes
import numpy as np
import pytest
import rows

import samebits as sb
from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.fusion import DataType, FusionDefinition
from samebits.kernels import coded, composites, elementwise
from samebits.kernels.expression import Chain, Expression
from samebits.operations import dim
from samebits.program.builder import ProgramBuilder
from samebits.program.transform import optimise
from samebits.runtime import cpu, reference

Array = np.ndarray[Any, Any]
EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
F32, F4, F8 = dtypes.float32, dtypes.of("float4_e2m1fn"), dtypes.of("float8_e4m3fn")


def dequantised(out: dtypes.DType = F32, element: dtypes.DType = F4, scale: dtypes.DType = F8) -> Expression:
    """element * scale * a number, in a format, and that plus another operand."""
    c = Chain()
    x, s, number, other = c.input(element), c.input(scale), c.input(F32), c.input(F32)
    made = c.apply("mul", c.apply("cast", x, dtype=F32), c.apply("cast", s, dtype=F32))
    made = c.apply("mul", made, number)
    return c.finish(made if out is F32 else c.apply("cast", made, dtype=out), c.apply("add", made, other))


def operands(shape: tuple[int, int], size: int, e: Expression) -> list[Array]:
    """Elements, every code of a scale in turn, a number, and floats."""
    random = np.random.default_rng(size)
    elements = random.integers(0, 16, (*shape, size)).astype(np.uint8).view(e.inputs[0].numpy)
    scales = np.arange(shape[0] * shape[1]).astype(np.uint8).reshape(*shape, 1).view(e.inputs[1].numpy)
    return [elements, scales, np.array(0.37, np.float32), random.standard_normal((*shape, size)).astype(np.float32)]


def check(row: Isa, e: Expression, inputs: list[Array]) -> dict[str, str]:
    """The reference's bits, of elements two to a byte where a row's vectors are of whole bytes, and of a byte each; the
    facts of the last plan."""
    due = elementwise.reference(e, *inputs)
    pairs = inputs[0].view(np.uint8).reshape(-1, 2)
    for packed in ((0,), ()):
        outputs = [np.full_like(x, 99) for x in due]
        plan = coded.plan(e, launch.layouts(*inputs), launch.layouts(*outputs), row, 1, packed)
        if packed and row.lanes % 2:
            assert plan is None
            continue
        assert plan is not None
        first = (pairs[:, 0] | pairs[:, 1] << 4) if packed else inputs[0]
        launch.run_plan(plan, [first, *inputs[1:], *outputs])
        for made, wanted in zip(outputs, due, strict=True):
            launch.assert_bits(made, wanted, (row.name, packed))
    return dict(plan.facts)  # type: ignore[union-attr]


@EVERY_ROW
@pytest.mark.parametrize(("shape", "size"), [((3, 43), 16), ((2, 5), 32), ((5, 2), 2), ((1, 3), 256)])
def test_few_elements_are_computed_each(row: Isa, shape: tuple[int, int], size: int) -> None:
    e = dequantised()
    facts = check(row, e, operands(shape, size, e))
    assert facts["along the row"] == f"unit blocks of {size} same unit unit unit"
    assert "looked up" not in facts


@EVERY_ROW
@pytest.mark.parametrize("out", ["float32", "bfloat16", "float8_e5m2"])
def test_many_are_looked_up_whatever_they_become(row: Isa, out: str) -> None:
    """The second result is made of what comes before the conversion: that is the table, or both are."""
    e = dequantised(dtypes.of(out))
    facts = check(row, e, operands((65, 127), 16, e))
    assert facts["looked up"] == "4096 float32 of the codes of inputs 0 and 1"
    alone = Expression(e.inputs, e.nodes, e.outputs[:1])
    facts = check(row, alone, operands((65, 127), 16, alone))
    assert facts["looked up"] == f"4096 {out} of the codes of inputs 0 and 1"


@EVERY_ROW
def test_integers_less_a_zero_point_are_looked_up(row: Isa) -> None:
    c = Chain()
    x, zero = c.input(dtypes.of("int4")), c.input(dtypes.int32)
    whole = c.apply("sub", c.apply("cast", x, dtype=dtypes.int32), zero)
    e = c.finish(c.apply("cast", whole, dtype=dtypes.int8))
    elements = np.random.default_rng(0).integers(0, 16, (1 << 17) + 66).astype(np.uint8).view(dtypes.of("int4").numpy)
    (due,) = elementwise.reference(e, elements, np.array(3, np.int32))
    pairs = elements.view(np.uint8).reshape(-1, 2)
    found = np.full_like(due, 99)
    plan = coded.plan(e, (((due.size,), (1,)), ((), ())), launch.layouts(found), row, 1, (0,))
    assert (plan is None) == bool(row.lanes % 2)
    if plan is not None:
        assert dict(plan.facts)["looked up"] == "16 int8 of the codes of input 0"
        launch.run_plan(plan, [pairs[:, 0] | pairs[:, 1] << 4, np.array(3, np.int32), found])
        launch.assert_bits(found, due, row.name)


DENSE, SCALES = ((4, 6, 16), (96, 16, 1)), ((4, 6, 1), (6, 1, 0))


@pytest.mark.parametrize(
    ("x", "scales", "other", "outs", "packed"),
    [
        (((4, 6, 16), (192, 16, 1)), SCALES, DENSE, DENSE, ()),  # rows that are apart
        (((6, 16), (16, 1)), SCALES, DENSE, DENSE, ()),  # a repeated one
        (DENSE, ((4, 6, 1), (1, 4, 0)), DENSE, DENSE, ()),  # scales in another order
        (DENSE, ((4, 6, 1), (1, 0, 0)), DENSE, DENSE, ()),  # scales that repeat from block to block
        (DENSE, ((4, 6, 1), (0, 1, 0)), DENSE, DENSE, ()),
        (DENSE, SCALES, DENSE, ((4, 6, 16), (1, 4, 24)), ()),
        (((4, 6, 16), (1, 4, 24)), SCALES, DENSE, DENSE, (0,)),
        (DENSE, DENSE, DENSE, DENSE, ()),  # nothing that an elementwise kernel does not read
        (((0, 6, 16), (96, 16, 1)), ((0, 6, 1), (6, 1, 0)), ((), ()), ((0, 6, 16), (96, 16, 1)), ()),
        (((3, 1), (1, 1)), ((), ()), ((), ()), ((3, 1), (1, 1)), (0,)),  # an odd number of them
    ],
)
def test_other_layouts_are_not_its_own(x: Any, scales: Any, other: Any, outs: Any, packed: tuple[int, ...]) -> None:
    row = rows.row_named("avx2")
    assert coded.plan(dequantised(), (x, scales, ((), ()), other), (outs, outs), row, 1, packed) is None


def test_strided_scales_are_read_as_they_lie() -> None:
    row, e = rows.COMPILED_ROWS[-1], dequantised()
    x, s, number, other = operands((4, 6), 16, e)
    apart = np.stack([s, s], axis=2)[:, :, 0]
    due = elementwise.reference(e, x, s, number, other)
    outputs = [np.full_like(y, 99) for y in due]
    plan = coded.plan(e, launch.layouts(x, apart, number, other), launch.layouts(*outputs), row)
    assert plan is not None
    launch.run_plan(plan, [x, apart, number, other, *outputs])
    for made, wanted in zip(outputs, due, strict=True):
        launch.assert_bits(made, wanted)


@pytest.mark.parametrize(
    ("element", "size", "kinds"), [("float4_e2m1fn", 16, 1), ("float8_e4m3fn", 16, 2), ("float4_e2m1fn", 6, 2)]
)
def test_scales_are_decoded_by_the_kernel_that_reads_codes(element: str, size: int, kinds: int) -> None:
    """Elements of other formats, and other extents, have a kernel that would decode a scale for each element."""
    b = ProgramBuilder("g")
    x = b.input("x", dtypes.of(element), (dim.symbol("n"), 4, size))
    s = b.input("s", F8, (dim.symbol("n"), 4, 1))
    program = b.build({"y": b.apply("mul", b.cast(x, F32), b.cast(s, F32))})
    assert [node.operation for node in optimise(program).nodes] == ["map"] * kinds


def test_a_session_computes_few_elements_and_looks_many_up() -> None:
    """What is bound to one size is not bound to another that a comparison tells from it."""
    b = ProgramBuilder("g")
    x, s = (b.input(name, t, (dim.symbol("n"), 4, k)) for name, t, k in (("x", F4, 16), ("s", F8, 1)))
    y = b.apply("mul", b.cast(x, F32), b.cast(s, F32))
    program = b.build({"y": y, "sum": b.rows(composites.reduction("row_sum"), y, axes=(-2, -1))[0]})
    alone = b.build({"y": y})
    for source in (program, alone):
        session = cpu.prepare(source)
        for n in (3, 2049, 3000, 7):
            elements, scales, *_ = operands((n, 4), 16, dequantised())
            feed = {"x": sb.to_packed(elements), "s": scales}
            due = reference.run(source, {"x": elements, "s": scales})
            for name, found in session.run(feed).items():
                launch.assert_bits(np.asarray(found), due[name], n)


@pytest.mark.parametrize("out", [DataType.Float, DataType.BFloat16])
@pytest.mark.parametrize("count", [3, 600])
def test_a_fusion_dequantises_as_ml_dtypes_does(out: DataType, count: int) -> None:
    random = np.random.default_rng(count)
    codes = random.integers(0, 16, (count, 240)).astype(np.uint8).view(ml_dtypes.float4_e2m1fn)
    scales = random.integers(0, 127, (count, 15)).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)
    due = codes.astype(np.float32) * np.repeat(scales.astype(np.float32), 16, axis=1) * np.float32(0.37)
    packed = sb.to_packed(codes)
    with FusionDefinition() as fd:
        x, s, number = fd.from_any(packed), fd.from_any(scales), fd.define_scalar()
        elements = fd.ops.reshape(fd.ops.cast(x, DataType.Float), [count, 15, 16])
        factors = fd.ops.broadcast(fd.ops.cast(s, DataType.Float), [False, False, True])
        fd.add_output(fd.ops.cast(fd.ops.mul(fd.ops.mul(elements, factors), number), out))
    (found,) = fd.execute([packed, scales, 0.37])
    kind = np.float32 if out is DataType.Float else ml_dtypes.bfloat16
    launch.assert_bits(np.asarray(found).view(kind).reshape(count, 240), due.astype(kind))
    assert any("nibbles" in plan for plan in fd.fec.kernels([packed, scales, 0.37]))
