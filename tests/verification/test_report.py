"""What verify returns says what was tried and what was not, and never more."""

import pytest

from samebits.verification.report import Configuration, Difference, TriedAxis, Verification

BASE = Configuration("baseline", "alone", "sensible", "0", True)
GOOD = Configuration("batch", "batches of 2", "sensible", "0", True)
BAD = Configuration("threads", "3 threads", "wide", "1", False)


def made(*configurations, unvaried=(), difference=None, axes=()):
    return Verification((BASE, *configurations), axes, difference, unvaried, (("n", 16),), 100)


@pytest.mark.parametrize(
    ("found", "same", "ok", "code"),
    [
        (made(GOOD), True, True, 0),
        (made(GOOD, BAD), False, False, 1),
        (made(GOOD, unvaried=(("process", "why"),)), True, False, 2),
        (made(BAD, unvaried=(("process", "why"),)), False, False, 1),
    ],
)
def test_what_differs_weighs_more_than_what_was_not_varied(found, same, ok, code):
    assert (found.same, found.ok, found.exit_code) == (same, ok, code)
    said = found.as_dict()
    assert (said["same"], said["ok"], said["exit_code"], said["verdict"]) == (same, ok, code, found.verdict)


def test_verdict_names_the_axis_where_no_node_differs_again():
    expected = "NOT the same bits: 1 of 3 configurations differ; at no single node when run again, moved by threads"
    assert made(GOOD, BAD).verdict == f"{expected} (3 threads, wide)"


def test_verdict_names_the_node():
    found = made(BAD, difference=Difference("threads", "3 threads", "softmax", "p", 7))
    assert "first at node softmax (value p), moved by threads" in found.verdict


def test_reasons_of_one_axis_are_all_told():
    found = made(unvaried=(("process", "one"), ("process", "two"), ("outputs", "three")))
    assert found.as_dict()["unvaried"] == {"process": "one; two", "outputs": "three"}
    assert found.verdict.endswith("process: one; process: two; outputs: three")


def test_text_counts_what_was_tried_of_each_axis():
    alike = [Configuration("isa", row, "wide", "2", True) for row in ("scalar", "avx2")]
    found = made(GOOD, *alike, BAD, axes=(TriedAxis("isa", ("scalar", "avx2")), TriedAxis("batch", ("2",), "a note")))
    assert str(found).splitlines() == [
        "axis      configuration     inputs    digest  bits",
        "baseline  alone             sensible  0       same",
        "batch     batches of 2      sensible  0       same",
        "isa       2 configurations  wide      2       same",
        "threads   3 threads         wide      1       DIFFERENT",
        "",
        "axis   tried  what",
        "isa    2      scalar, avx2",
        "batch  1      2 (a note)",
        "no sizes were tried for which a run has more than 100 elements in all its values",
        found.verdict,
    ]
