"""Two checkouts compared: what names a row, which rows both have, and what is printed of given figures."""

import pathlib
import sys

import compare_trees
import pytest

BENCH = """
import marker

def medians(calls):
    raise AssertionError("the tool measures")

def shape(m, k, calls_a_turn):
    ways = {"ours": lambda: sum(range(m)), "ours too": lambda: sum(range(k)), "torch": lambda: 1 / 0}
    for kind in ("float", "int"):
        for _ in range(2):
            pass
        medians(ways)

def main():
    for size in (1, 2):
        shape(size, 7, [])
    medians({marker.NAME: int, ("pair", "both"): float, ("pair", "NumPy"): float})
    marker.missing
"""
MISSING = "AttributeError: module 'marker' has no attribute 'missing'"
ROWS = [f"{size} shape {size} 7 {kind} {call}" for size in (1, 2) for kind in ("float", "int")
        for call in ("ours", "ours too")]  # fmt: skip


@pytest.fixture
def trees(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> tuple[pathlib.Path, pathlib.Path]:
    """A base and a head, which have the same bench and packages that tell them apart."""
    made = tmp_path / "base", tmp_path / "head"
    for tree in made:
        for folder, name, text in (("benches", "tiny.py", BENCH), ("src", "marker.py", f"NAME = {tree.name!r}")):
            (tree / folder).mkdir(parents=True, exist_ok=True)
            (tree / folder / name).write_text(text)
    monkeypatch.setattr(compare_trees, "ROOT", made[1])
    return made


def test_rows_are_those_that_both_name_alike(trees):
    base, head = trees
    path, rows, left = compare_trees.common(base, "tiny", 1)
    assert (path, rows) == (head / "benches" / "tiny.py", [*ROWS, "pair both"])
    assert left == ["head", f"(head: {MISSING})", f"(base: {MISSING})"]


def test_base_runs_its_own_bench_where_it_cannot_run_the_heads(trees):
    base, head = trees
    (head / "benches" / "tiny.py").write_text(BENCH + "\nimport marker\nassert marker.NAME == 'head'\n")
    path, rows, _ = compare_trees.common(base, "tiny", 1)
    assert (path, rows) == (base / "benches" / "tiny.py", [*ROWS, "pair both"])


def test_bench_that_the_base_cannot_run_is_not_comparable(trees):
    base, _ = trees
    (base / "src" / "marker.py").write_text("raise ImportError('nothing here')")
    _, rows, left = compare_trees.common(base, "tiny", 1)
    assert rows == []
    assert left == [*ROWS, "head", "pair both", f"(head: {MISSING})", "(base: ImportError: nothing here)"]


def test_rows_of_other_numbers_of_threads_are_left_out(trees):
    base, _ = trees
    text = "def medians(calls): ...\ndef main():\n    for threads in (1, 2):\n        medians({'ours': int})\n"
    for tree in trees:
        (tree / "benches" / "tiny.py").write_text(text + "    medians({'theirs not': int})\n")
    assert compare_trees.common(base, "tiny", 1)[1] == ["ours", "theirs not"]


def test_each_tree_takes_its_turns_with_its_own_package(trees, monkeypatch, capsys):
    base, _ = trees
    (base / "benches" / "tiny.py").unlink()
    argv = ["compare_trees.py", str(base), "tiny", "--rows", "^1 .* ours$|both", "--repeats", "2"]
    monkeypatch.setattr(sys, "argv", argv)
    compare_trees.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" us  ")[2] for line in lines if " us  " in line] == [
        "tiny: 1 shape 1 7 float ours", "tiny: 1 shape 1 7 int ours", "tiny: pair both"
    ]  # fmt: skip
    assert lines[0] == "not comparable  tiny: head"


def test_report_takes_the_median_of_quotients_and_names_what_is_behind():
    found = {"a": [(2e-6, 1e-6), (3e-6, 1e-6), (8e-6, 1e-6)], "b": [(1e-3, 2e-3)], "c": [(0.95, 1.0)]}
    assert compare_trees.report(found).splitlines() == [
        " 3.000  2.000 .. 8.000          1.00 us  a",
        " 0.500  0.500 .. 0.500       2000.00 us  b",
        " 0.950  0.950 .. 0.950    1000000.00 us  c",
        "3 rows, geometric mean 1.125, under 0.95: 1",
        " 0.500  b",
    ]


def test_report_of_nothing_has_no_mean():
    assert compare_trees.report({}) == "0 rows, geometric mean nan, under 0.95: 0"
