"""docs/fusion-opinfo.md has a reason for each test that fails, and none besides; a made-up run shows it."""

from __future__ import annotations

import re

import fusion_opinfo
import pytest

FAILING = {
    "test_correctness_add_complex64": "failure: DTypeError",
    "test_correctness_add_complex128": "failure: DTypeError",
    "test_correctness_tan_float32": "failure: FusionError",
    "test_correctness_scaled_mm_float8_e4m3fn": "failure: ValueError",
    "test_correctness_argsort_int32": "failure: AssertionError",
    "test_correctness_topk_int32": "failure: AssertionError",
    "test_correctness_pow_float32": "failure: AssertionError",
    "test_correctness_linear_bfloat16": "failure: AssertionError",
}
RESULT = {
    **FAILING,
    "test_correctness_add_float32": "passed",
    "test_errors_cat_int32": "passed",
    "test_errors_cat_complex64": "passed",
}


def test_tests_are_counted_by_what_they_are_of_and_failures_have_reasons() -> None:
    page = fusion_opinfo.page(RESULT, "0123abc")
    assert "commit 0123abc," in page
    assert re.findall(r"\| ([^|]+) \| (\d+) \| (\d+) \|", page) == [
        ("correctness of operations that are there, in real formats", "1", "6"),
        ("errors, in real formats", "1", "1"),
        ("correctness of operations that are refused, in real formats", "0", "1"),
        ("correctness, in complex formats", "0", "2"),
        ("errors, in complex formats, which are refused whatever the test asks", "1", "1"),
    ]
    assert "| `add` in complex128, complex64 | complex numbers" in page
    assert "| `argsort topk` in int32 | the test compares" in page
    assert "| `scaled_mm` in float8_e4m3fn |" in page
    assert page.count("| `") == len(fusion_opinfo.REASONS)


def test_a_failure_without_a_reason_and_a_reason_without_a_failure_are_errors() -> None:
    with pytest.raises(ValueError, match=r"^page: no reason is written for test_errors_cat_int32$"):
        fusion_opinfo.page({**RESULT, "test_errors_cat_int32": "failure"}, "0")
    with pytest.raises(ValueError, match=r"^page: 'other' names no operation and element format$"):
        fusion_opinfo.page({**RESULT, "other": "passed"}, "0")
    rest = {name: said for name, said in RESULT.items() if "tan" not in name}
    with pytest.raises(ValueError, match=r"^page: no test fails because 'the operation is refused"):
        fusion_opinfo.page(rest, "0")
