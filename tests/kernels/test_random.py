"""Random numbers: the bits of numerics.md section 13 on every row, in any layout; half-open, spread as they say."""

from __future__ import annotations

from typing import Any

import launch
import numpy as np
import pytest
import random_numbers
import rows

from samebits import dtypes, philox
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.kernels import elementwise, random
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.random import Distribution, Random

Array = np.ndarray[Any, Any]
EVERY_FORMAT = pytest.mark.parametrize("dtype", random.FORMATS, ids=lambda dtype: dtype.name)
BOTH = pytest.mark.parametrize("distribution", ["uniform", "normal"])
KINDS = [Random(distribution, dtype) for distribution in ("uniform", "normal") for dtype in random.FORMATS]
SEED, OFFSET = (3 << 40) + 12345, (5 << 33) + 7
FIRST, SECOND = -1.5, 3.7


def drawn(kind: Random, out: Array, row: Isa, seed: int = SEED, offset: int = OFFSET, threads: int = 1) -> Array:
    """Numbers in out, by the kernel."""
    given = [np.array(x, kind.dtype.numpy) for x in (FIRST, SECOND)]
    plan = random.plan(kind, launch.layout(out), row, threads)
    launch.run_plan(plan, [*given, np.array(seed, np.uint64), np.array(offset, np.uint64), out])
    return out


def meant(kind: Random, shape: tuple[int, ...], seed: int = SEED, offset: int = OFFSET) -> Array:
    """By NumPy."""
    given = [np.array(x, kind.dtype.numpy) for x in (FIRST, SECOND)]
    return random.reference(kind, shape, *given, seed, offset)


@rows.in_turn("row, kind", KINDS, 0)
def test_numbers_belong_to_indices_in_any_layout(row: Isa, kind: Random) -> None:
    dtype, size = kind.dtype, 1 if row.compiled else 9
    for shape in ((0,), (), (1,), (3, 0), (7,), (1300 // size,), (5, 131 // size), (3, 4, 37 // size)):
        due, what = meant(kind, shape), (row.name, shape)
        launch.assert_bits(drawn(kind, np.empty(shape, dtype.numpy), row), due, what)
        if len(shape) < 2:
            continue
        launch.assert_bits(drawn(kind, np.empty(shape[::-1], dtype.numpy).T, row), due, (*what, "turned"))
        apart = np.empty((2 * shape[0], *shape[1:]), dtype.numpy)[::2]
        launch.assert_bits(drawn(kind, apart, row), due, (*what, "apart"))
        launch.assert_bits(drawn(kind, np.empty(shape, dtype.numpy)[::-1, ..., ::-1], row), due, (*what, "backwards"))


def scaled(dtype: DType) -> Expression:
    """number * x + w + 0.1, whether that is below zero, and the number, in float64."""
    chain = Chain()
    number, x, w = chain.input(dtype), chain.input(dtypes.int8), chain.input(dtypes.float64)
    r, wide = (each if each.dtype is w.dtype else chain.apply("cast", each, dtype=w.dtype) for each in (number, x))
    made = chain.apply("add", chain.apply("add", chain.apply("mul", r, wide), w), chain.number(0.1, dtypes.float64))
    return chain.finish(made, chain.apply("less", made, chain.constant(0.0, dtypes.float64)), number)


@rows.in_turn("row, kind", KINDS, 0)
def test_what_becomes_of_numbers_is_computed_as_they_are_drawn(row: Isa, kind: Random) -> None:
    after, size = scaled(kind.dtype), 1 if row.compiled else 9
    for shape in ((0, 3), (1, 1), (5, 131 // size), (3, 4, 37 // size), (2, 1100 // size)):
        x = np.random.default_rng(0).integers(-99, 99, shape[::-1]).astype(np.int8).T
        w = np.linspace(-300, 300, shape[-1])
        made = [
            np.empty((2 * shape[0], *shape[1:]))[::2], np.empty(shape[::-1], bool).T,
            np.empty(shape, kind.dtype.numpy),
        ]  # fmt: skip
        given = [np.array(number, kind.dtype.numpy) for number in (FIRST, SECOND)]
        lie = tuple([launch.layout(each) for each in (x, w, *made[1:])])
        plan = random.plan(kind, launch.layout(made[0]), row, 2, after, lie)
        words = [np.array(word, np.uint64) for word in (SEED, OFFSET)]
        launch.run_plan(plan, [*given, *words, x, w, *made])
        due = elementwise.reference(after, meant(kind, shape), x, w)
        for found, expected in zip(made, due, strict=True):
            launch.assert_bits(found, expected, (row.name, shape))


@EVERY_FORMAT
@BOTH
def test_threads_and_blocks_draw_the_same(dtype: DType, distribution: Distribution) -> None:
    kind, row = Random(distribution, dtype), rows.COMPILED_ROWS[-1]
    due = meant(kind, (1, 20011))
    launch.assert_bits(drawn(kind, np.empty((1, 20011), dtype.numpy), row, threads=3), due, "threads")


@pytest.mark.parametrize(
    ("dtype", "distribution"),
    [*((dtype, "uniform") for dtype in random.FORMATS), *((dtype, "normal") for dtype in random.FORMATS[1:])],
    ids=str,
)
def test_numbers_are_those_of_others(dtype: DType, distribution: Distribution) -> None:
    """Words by Python, functions by MPFR; those of float64 are not correctly rounded: the next test has them."""
    due = random_numbers.numbers(distribution, dtype, (3, 67), FIRST, SECOND, SEED, OFFSET)
    launch.assert_bits(meant(Random(distribution, dtype), (3, 67)), due, dtype.name)


def test_normal_float64_is_what_box_and_muller_say() -> None:
    """Within what log (2 units), its root, cos (3 units and 2^-100) and four roundings err by."""
    index = range(200)
    w = np.array([[random_numbers.word(SEED, OFFSET, i, n) for i in index] for n in range(4)], np.float64)
    v, turn = ((w[k] * 2**21 + (w[k + 1] // 2**11) + (k == 0)) / 2**53 for k in (0, 2))
    z = np.sqrt(-2 * np.log(v)) * np.cos(turn * 2 * np.pi)
    zero, one = np.array(0.0), np.array(1.0)
    found = random.reference(Random("normal", dtypes.float64), (200,), zero, one, SEED, OFFSET)
    # An angle of at most 2 pi errs by 2^-51, and so does its cosine.
    assert np.max(np.abs(found - z)) <= 8 * 2.0**-50


# -- what they are -----------------------------------------------------------------------------------------------------
BOUNDS = (
    (0.0, 1.0), (-1.5, 3.7), (-1.0, 0.0), (0.0, 2.0**-126), (-1e8, 1e-3), (1.0, 1.0), (1.0, 1.0 + 2.0**-7),
    (-3e4, 3e4), (0.1, 0.3), (-0.7, -0.699), (2.0**-24, 2.0**-23),
)  # fmt: skip


@EVERY_FORMAT
def test_uniform_numbers_lie_from_low_to_below_high(dtype: DType) -> None:
    """Where all bits of words are 0, or 1, or few differ from that."""
    edge = np.array([0, 1, 255, 256, 2047, 2048, 1 << 31, *(2**32 - 1 - np.array([0, 255, 256, 2048, 1 << 20]))])
    kind = Random("uniform", dtype)
    words = [x.ravel().astype(np.uint32) for x in np.meshgrid(*[edge] * kind.words)]
    for bounds in BOUNDS:
        with np.errstate(over="ignore"):
            low, high = (np.array(x).astype(dtype.numpy) for x in bounds)
        if not np.isfinite([x.astype(np.float64) for x in (low, high)]).all():
            continue  # float16 ends below 65520
        (found,) = elementwise.reference(random.expression(kind), *words, low, high)
        assert found.dtype == low.dtype
        assert (found.astype(np.float64) >= low.astype(np.float64)).all(), bounds
        assert ((found < high) | (low == high)).all(), bounds
        assert found[0] == low
        if low == high:
            assert (found == high).all()


def test_uniform_numbers_of_the_unit_interval_are_exact() -> None:
    words = np.array([0, 255, 256, 0xFFFFFFFF], np.uint32)
    zero, one = np.float32(0), np.float32(1)
    (found,) = elementwise.reference(random.expression(Random("uniform", dtypes.float32)), words, zero, one)
    assert found.tolist() == [0, 0, 2.0**-24, 1 - 2.0**-24]
    first, second = np.array([0, 0, 0, 0xFFFFFFFF], np.uint32), np.array([0, 2047, 2048, 0xFFFFFFFF], np.uint32)
    (found,) = elementwise.reference(
        random.expression(Random("uniform", dtypes.float64)), first, second, np.float64(0), np.float64(1)
    )
    assert found.tolist() == [0, 0, 2.0**-53, 1 - 2.0**-53]


def test_less_than_a_number_is_as_likely_in_a_narrow_format() -> None:
    low, high = (np.array(x, dtypes.bfloat16.numpy) for x in (0, 1))
    narrow = random.reference(Random("uniform", dtypes.bfloat16), (1 << 12,), low, high, 1, 0)
    wide = random.reference(Random("uniform", dtypes.float32), (1 << 12,), np.float32(0), np.float32(1), 1, 0)
    for x in (0.001, 0.25, 0.5, 0.9):
        limit = np.array(x, dtypes.bfloat16.numpy)
        assert ((narrow < limit) == (wide < limit.astype(np.float32))).all()


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_they_are_spread_as_they_say(dtype: DType) -> None:
    """Kolmogorov and Smirnov find no difference; moments are within five of their deviations."""
    from scipy import stats  # which takes long to import

    n, row = 1 << 18, rows.COMPILED_ROWS[-1]
    for distribution, law in (("uniform", stats.uniform(FIRST, SECOND - FIRST)), ("normal", stats.norm(FIRST, SECOND))):
        x = drawn(Random(distribution, dtype), np.empty(n, dtype.numpy), row).astype(np.float64)  # type: ignore[arg-type]
        assert stats.kstest(x, law.cdf).pvalue > 1e-3
        assert abs(x.mean() - law.mean()) < 5 * law.std() / np.sqrt(n)
        assert abs(x.std() - law.std()) < 5 * law.std() / np.sqrt(n)
        assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 5 / np.sqrt(n)


def test_seeds_and_offsets_have_nothing_to_do_with_each_other() -> None:
    kind = Random("normal", dtypes.float32)
    streams = [meant(kind, (4096,), seed, offset) for seed, offset in ((1, 0), (2, 0), (1, 1), (1, 1 << 32), (1, 2))]
    table = np.corrcoef(np.stack(streams)) - np.eye(len(streams))
    assert np.abs(table).max() < 5 / np.sqrt(4096)


def test_words_are_none_that_a_rounding_draws() -> None:
    index = np.arange(4096)
    rounding = philox.words(SEED, index)
    for number in range(4):
        assert not np.intersect1d(philox.words(SEED, index, 1 << 63, number), rounding).size > 4
    assert philox.words(SEED, [9], OFFSET | 1 << 63, 3).tolist() == [random_numbers.word(SEED, OFFSET, 9, 3)]


def test_a_plan_says_what_it_draws() -> None:
    plan = random.plan(Random("normal", dtypes.float32), ((4, 3), (3, 1)), rows.COMPILED_ROWS[0])
    assert plan.what == "normal float32 (4, 3)"
    assert plan.operands == ("first", "second", "seed", "offset", "out")
