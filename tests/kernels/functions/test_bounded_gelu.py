"""gelu and its gradient rounded to bfloat16 from bounds: the bits of steps in float32, whatever single lanes need."""

import functools

import launch
import ml_dtypes
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen.interpreter import ArrayVector, NumpyBuilder
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec
from samebits.kernels import composites, elementwise, gelu, gradients, values
from samebits.kernels.expression import Chain, Expression, matched
from samebits.kernels.functions import bounded_gelu, exact
from samebits.kernels.plan import Operand, Plan, Step

BFLOAT16 = ml_dtypes.bfloat16
WIDE = tuple(row for row in rows.ALL_ROWS if row.lanes >= 16)
EVERY_ROW = pytest.mark.parametrize("row", WIDE, ids=lambda row: row.name)
ONE, TWO = composites.gelu(dtypes.bfloat16), gradients.gelu(dtypes.bfloat16, dtypes.bfloat16)
BOTH = pytest.mark.parametrize("e", [ONE, TWO], ids=("gelu", "gradient"))
# x and dy: a slope that is nearly 0, one beyond 1, infinities, and products between two bfloat16.
EDGES = ((-0.75, 1.4, np.inf, -np.inf, 0.0, -0.0, 8.0, -8.0), (1.0, 1.0, 1.0, 1.0, 3e38, -0.0, -1e-40, 1.0))
OPERANDS, TASK = ("x", "small", "large", "found"), 1 << 16
BOUNDS = {"share": bounded_gelu.share, "slope": bounded_gelu.slope}


def steps(name: str) -> Expression:
    """What lies between bounds, of x, as numerics.md writes it."""
    chain, whole = Chain(), gelu.patterns()["gelu's gradient"]
    x = chain.input(dtypes.float32)
    # dy * slope, slope = 0.5 * (1 + erf) + x * density
    slope = whole.nodes[-1].arguments[1]
    below = whole.nodes[slope - len(whole.inputs)].arguments[0]
    output = {"share": below, "slope": slope}[name]
    return chain.finish(*chain.include(Expression(whole.inputs, whole.nodes, (output,)), x, x))


@functools.cache
def operands(e: Expression) -> list[np.ndarray]:
    """All x, quick ones among those in doubt; with them dy of common size, then of every kind, but 1 where x is no
    number."""
    random = np.random.default_rng(0)
    x = random.permutation(1 << 16).astype(np.uint16).view(BFLOAT16)
    if e is ONE:
        return [x]
    common = random.standard_normal(x.size).astype(BFLOAT16)
    special = random.choice(np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 1e-38], BFLOAT16), x.size)
    dy = np.where(np.arange(x.size) % 5, common, special)
    dy[x.view(np.uint16) & 0x7F80 == 0x7F80] = 1
    return [x, dy]


def computed(row: Isa, e: Expression, *operands: np.ndarray) -> np.ndarray:
    """The one output by a row's kernel."""
    out = np.empty(operands[0].shape, BFLOAT16)
    launch.run_plan(elementwise.plan(e, launch.layouts(*operands), launch.layouts(out), row), [*operands, out])
    return out


@EVERY_ROW
@BOTH
def test_operands_of_bfloat16(row: Isa, e: Expression) -> None:
    """Beside NumPy; gradients are zeros of both signs, infinities, NaN and subnormal ones too."""
    some = [np.ascontiguousarray(x[::23]) for x in operands(e)]
    if e is TWO:
        some = [np.concatenate([x, np.array(more, BFLOAT16)]) for x, more in zip(some, EDGES, strict=True)]
    launch.assert_bits(computed(row, e, *some), values.reference(e, some)[0], row.name)


@pytest.mark.parametrize("row", [row for row in WIDE if row.compiled], ids=lambda row: row.name)
@BOTH
def test_every_bfloat16(row: Isa, e: Expression) -> None:
    """Each x, beside what the row gives in float32, which no bounds are asked for."""
    given = operands(e)
    wide = [x.astype(np.float32) for x in given]
    out, single = np.empty_like(wide[0]), gelu.patterns()["gelu" if e is ONE else "gelu's gradient"]
    launch.run_plan(elementwise.plan(single, launch.layouts(*wide), launch.layouts(out), row), [*wide, out])
    launch.assert_bits(computed(row, e, *given), exact.cast(dtypes.bfloat16, out), row.name)


@EVERY_ROW
def test_operands_of_float32_and_what_only_looks_alike(row: Isa) -> None:
    """In a longer expression x is no bfloat16; with another constant or operand it is another function."""
    x = (np.random.default_rng(2).standard_normal(5000) * 2).astype(np.float32)
    y = np.roll(x, 1)

    def built(root: float, other: bool) -> Expression:
        chain = Chain()
        a, c = chain.input(dtypes.float32), chain.input(dtypes.float32)
        grown = chain.apply("erf", chain.apply("mul", c if other else a, chain.constant(root, dtypes.float32)))
        half = chain.apply("mul", chain.constant(0.5, dtypes.float32), a)
        product = chain.apply("mul", half, chain.apply("add", chain.constant(1.0, dtypes.float32), grown))
        return chain.finish(chain.apply("cast", product, dtype=dtypes.bfloat16))

    pattern = gelu.patterns()["gelu"]
    for root, other in ((0.5**0.5, False), (0.75, False), (0.5**0.5, True)):
        e = built(root, other)
        assert (matched(e, e.outputs[0] - 1, pattern) is not None) == (root != 0.75 and not other)
        launch.assert_bits(computed(row, e, x, y), values.reference(e, [x, y])[0], (row.name, root, other))


@pytest.mark.parametrize("name", BOUNDS)
def test_steps_lie_within_bounds(name: str) -> None:
    """On both sides of each quarter and its middles, and between; the smaller magnitude comes first."""
    edges = np.arange(0, 8, 0.125, dtype=np.float32)
    x = np.concatenate([edges, np.nextafter(edges, np.float32(-1)), np.nextafter(edges, np.float32(9))])
    some = np.random.default_rng(3).uniform(0, 9, 60_000)
    x = np.concatenate([x, some, some * 1e-3, [1e-40, 1e30, 12.0]]).astype(np.float32)
    x = np.concatenate([x, -x])
    builder = NumpyBuilder(KernelSpec(elementwise.text, (), (), rows.ALL_ROWS[0]), [], 0, 0, 0)
    small, large = (v.lanes for v in BOUNDS[name](builder, ArrayVector(dtypes.float32, x)))
    (found,) = values.reference(steps(name), [x])
    assert np.all(np.minimum(small, large) <= found)
    assert np.all(found <= np.maximum(small, large))
    assert np.all(np.abs(small) <= np.abs(large))


def text(b: Builder, name: str) -> None:
    """Both bounds and what the steps give."""
    x, *results = (b.pointer(argument, dtypes.float32) for argument in OPERANDS)
    for task in b.tasks():
        for i in b.loop(task * TASK, task * TASK + TASK, b.isa.lanes):
            given = b.load(x, i, b.isa.lanes)
            found = (*BOUNDS[name](b, given), *values.emit(b, steps(name), [given], b.isa.lanes))
            for place, result in zip(results, found, strict=True):
                b.store(place, i, result)


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("name", BOUNDS)
def test_steps_of_every_float32_lie_within_bounds(row: Isa, name: str) -> None:
    """2**32 inputs on the row with the widest registers; on the others every 61st."""
    block, widest = 1 << 22, max(rows.COMPILED_ROWS, key=lambda row: row.lanes)
    step = Step(KernelSpec(text, name, OPERANDS, row), block // TASK, tuple(Operand(k) for k in range(4)))
    plan = Plan("bounds", row, 1, (step,), OPERANDS, 0, 0)
    small, large, found = (np.empty(block, np.float32) for _ in range(3))
    stride = 1 if row is widest else 61
    for start in range(0, 1 << 32, stride * block):
        x = (start + stride * np.arange(block)).astype(np.uint32).view(np.float32)
        launch.run_plan(plan, [x, small, large, found])
        within = (np.minimum(small, large) <= found) & (found <= np.maximum(small, large))
        assert np.all(within | ~np.isfinite(x)), hex(start)
        assert np.all((np.abs(small) <= np.abs(large)) | np.isnan(x)), hex(start)
