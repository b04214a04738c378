"""Blocks of NVFP4 whose sums nothing rounds are summed in integers, others as they are: the bits of the sum rule."""

from typing import Any

import guard
import launch
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.kernels import code_tables, exact_blocks, fold, reduce
from samebits.kernels.expression import Chain, Expression

Array = np.ndarray[Any, Any]
F32, F4, F8 = dtypes.float32, dtypes.float4_e2m1fn, dtypes.float8_e4m3fn
WORDS = {"dot4_uint8_int8", "dot2_int16", "lookup_bytes"}
INTERPRETED = rows.ALL_ROWS[0]
ROWS = (INTERPRETED, *rows.without_dots(row for row in rows.PRODUCT_ROWS if WORDS.issubset(row.instructions)))
EVERY_ROW = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
ROW_BLOCKS = 257  # 4112 elements: two blocks of 2048, and one of 16


@pytest.fixture(autouse=True)
def tables_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few elements are looked up too."""
    monkeypatch.setattr(code_tables, "WORTH", 1)


def summed(op: str = "", more: str = "") -> Expression:
    """The sum of element * scale * number."""
    c = Chain()
    x, s, number = c.input(F4), c.input(F8), c.input(F32)
    value = c.apply("mul", c.apply("mul", c.apply("cast", x, dtype=F32), c.apply("cast", s, dtype=F32)), number)
    value = c.apply(op, value) if op else value
    return c.finish(c.apply("row_sum", value), *([c.apply(more, value)] if more else []))


def scales(count: int, low: float, high: float) -> Array:
    """Codes of scales, of which one of each block of 2048 is `low` and one is `high`."""
    x = np.random.default_rng(count).uniform(low, high, (count, ROW_BLOCKS, 1)).astype(np.float32)
    x[:, ::128], x[:, 1::128] = low, high
    return x.astype(F8.numpy).view(np.uint8)


def run(row: Isa, elements: Array, codes: Array, number: float, e: Expression | None = None) -> tuple[Array, Any]:
    """The sums of rows, which must be the reference's; and their plan."""
    e = e or summed()
    typed = [elements.view(F4.numpy), codes.view(F8.numpy), np.array(number, np.float32)]
    due = reduce.reference(e, *typed, axes=(1, 2))
    outputs = [np.full_like(x, 99) for x in due]
    question = e, launch.layouts(*typed), launch.layouts(*outputs), (1, 2), row, 1
    assert reduce.takes_packed(*question, (0,))
    plan = reduce.plan(*question, (0,))
    launch.run_plan(plan, [(elements[..., ::2] | elements[..., 1::2] << 4).copy(), *typed[1:], *outputs])
    for made, wanted in zip(outputs, due, strict=True):
        launch.assert_bits(made, wanted, row.name)
    return outputs[0], plan


CASES = {
    "the largest spread": (1.0, 80.0, 1.0),
    "beyond it": (1.0, 88.0, 1.0),
    "the least normal scales": (2.0**-6, 1.0, 0.5),
    "the largest scales": (7.5, 448.0, -(2.0**70)),
    "scales that are subnormal": (2.0**-9, 2.0**-6, 1.0),
    "scales of 0": (0.0, 1.0, 1.0),
    "negative scales": (-2.0, 1.0, 1.0),
    "a number that rounds": (0.1, 1.0, 0.37),
    "a number of few digits": (0.1, 1.0, 1.5),
    "sums that are subnormal": (0.1, 1.0, 2.0**-140),
    "sums that are infinite": (100.0, 448.0, 2.0**120),
    "a number that is 0": (0.1, 1.0, 0.0),
    "a number that is none": (0.1, 1.0, float("nan")),
}


@EVERY_ROW
@pytest.mark.parametrize(("low", "high", "number"), CASES.values(), ids=list(CASES))
def test_bits_are_those_of_the_rule_whatever_the_scales_are(row: Isa, low: float, high: float, number: float) -> None:
    elements = np.random.default_rng(7).integers(0, 16, (3, ROW_BLOCKS, 16)).astype(np.uint8)
    elements[0] = 7  # the largest sums that there are
    _, plan = run(row, elements, scales(3, low, high), number)
    assert dict(plan.facts)["summed in integers"] == "blocks of 2048 whose sums nothing rounds"


@EVERY_ROW
def test_blocks_of_the_largest_spread_have_their_exact_sums(row: Isa) -> None:
    """In float64 no sum of them is rounded."""
    elements = np.random.default_rng(6).integers(0, 16, (3, 128, 16)).astype(np.uint8)
    elements[0] = 7
    codes = scales(3, 1.0, 80.0)[:, :128].copy()
    made, _ = run(row, elements, codes, 0.25)
    wide = elements.view(F4.numpy).astype(np.float64) * codes.view(F8.numpy).astype(np.float64)
    assert made.ravel().tolist() == (wide.sum(axis=(1, 2)) / 4).tolist()


@EVERY_ROW
@pytest.mark.parametrize("count", [3 * 128 + 3, 4 * 128])
def test_blocks_beside_others_that_are_not_exact(row: Isa, count: int) -> None:
    """One row for each set of blocks of 2048 that have a scale which is too large."""
    rng = np.random.default_rng(4)
    elements = rng.integers(0, 16, (8, count, 16)).astype(np.uint8)
    sizes = rng.uniform(0.5, 2.0, (8, count, 1)).astype(np.float32)
    for wide in range(8):
        sizes[wide, [128 * k for k in range(3) if wide >> k & 1]] = 448
    run(row, elements, sizes.astype(F8.numpy).view(np.uint8), 0.5)


@EVERY_ROW
@pytest.mark.parametrize("step", [-1, 2])
def test_scales_that_do_not_follow_each_other_are_read_where_they_lie(row: Isa, step: int) -> None:
    elements = np.random.default_rng(5).integers(0, 16, (2, ROW_BLOCKS, 16)).astype(np.uint8)
    codes = scales(2, 1.0, 80.0)
    beside = guard.array(np.repeat(codes, abs(step), axis=1)[:, :: 1 if step > 0 else -1])
    run(row, elements, beside[:, ::step], 0.5)


@EVERY_ROW
@pytest.mark.parametrize("number", [1.0, -1.0])
def test_a_sum_of_zeros_has_their_sign(row: Isa, number: float) -> None:
    elements = np.full((3, ROW_BLOCKS, 16), 8, np.uint8)
    elements[1, 5, 3] = 0
    elements[2, :, ::2], elements[2, :, 1::2] = 3, 11
    made, _ = run(row, elements, scales(3, 0.5, 2.0), number)
    # Every element is -0 in the first row; one is +0 in the second; in the third, each and its negative.
    assert np.signbit(made.ravel()[:3]).tolist() == ([True, False, False] if number > 0 else [False, False, False])


@EVERY_ROW
def test_a_scale_that_is_no_number_is_met(row: Isa) -> None:
    elements = np.random.default_rng(8).integers(0, 16, (3, ROW_BLOCKS, 16)).astype(np.uint8)
    codes = scales(3, 0.5, 2.0)
    codes[0, 200], codes[1, 3] = 0x7F, 0xFF
    made, _ = run(row, elements, codes, 2.0)
    assert np.isnan(made.ravel()).tolist() == [True, True, False]


@EVERY_ROW
@pytest.mark.parametrize("op", ["exp", "abs", "sign"])
def test_a_chain_that_is_no_product_is_summed_by_the_rule(row: Isa, op: str) -> None:
    elements = np.random.default_rng(9).integers(0, 16, (3, ROW_BLOCKS, 16)).astype(np.uint8)
    run(row, elements, scales(3, 0.5, 2.0), 1.0, summed(op))


def test_a_block_that_is_exact_is_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreted text runs no fold on whole blocks that are exact, and one on every other block."""
    row, folded = INTERPRETED, list[tuple[int, int]]()
    found, of_pairs = fold._folded, fold._folded_pair

    def counted(b: Any, kinds: Any, start: Any, stop: Any, *rest: Any) -> Any:
        folded.append((start, stop))
        return found(b, kinds, start, stop, *rest)

    def counted_pair(b: Any, kinds: Any, start: Any, *rest: Any) -> Any:
        folded.extend((start + k * fold.BLOCK, start + (k + 1) * fold.BLOCK) for k in range(2))
        return of_pairs(b, kinds, start, *rest)

    monkeypatch.setattr(fold, "_folded", counted)
    monkeypatch.setattr(fold, "_folded_pair", counted_pair)
    elements = np.random.default_rng(9).integers(1, 8, (2, ROW_BLOCKS, 16)).astype(np.uint8)
    codes = scales(2, 0.5, 2.0)
    run(row, elements, codes, 1.0)
    assert [x for x in folded if x[1] > 3] == [(4096, 4112)] * 2
    folded.clear()
    run(row, elements, codes, 1.1)
    assert [x for x in folded if x[1] > 3] == [(0, 2048), (2048, 4096), (4096, 4112)] * 2


def test_short_rows_and_rows_without_the_words_are_summed_by_the_rule() -> None:
    assert all(exact_blocks.chosen(summed(), (), (), (), n, INTERPRETED) is None for n in (16, 2047, 2048))
    plain = next(row for row in rows.COMPILED_ROWS if row.lanes % 2 == 0 and not WORDS.issubset(row.instructions))
    elements = np.random.default_rng(9).integers(0, 16, (3, ROW_BLOCKS, 16)).astype(np.uint8)
    _, plan = run(plain, elements, scales(3, 0.5, 2.0), 1.0)
    assert "summed in integers" not in dict(plan.facts)
