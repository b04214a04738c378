"""What the run of all tests is told of itself."""

import collections
import pathlib
import types
from typing import Any

import pytest
import rows


def test_the_files_that_are_begun_first_are_there(pytestconfig: pytest.Config) -> None:
    tests = pytestconfig.rootpath / "tests"
    (conftest,) = (x for name, x in pytestconfig.pluginmanager.list_name_plugin() if name == str(tests / "conftest.py"))
    assert [name for name in conftest.LONGEST if not (tests / name).is_file()] == []
    assert len(set(conftest.LONGEST)) == len(conftest.LONGEST)


def items(names: dict[str, Any], *, marked: bool = False, test: str = "test_made") -> list[Any]:
    """A test with each row and each of some names."""
    return [
        types.SimpleNamespace(
            path=pathlib.Path("tests/kernels/test_made.py"), parent=None, originalname=test, row=row, name=name,
            callspec=types.SimpleNamespace(params={"isa": row, "name": name}), get_closest_marker=lambda _: marked,
        )
        for row in rows.ALL_ROWS for name in names.values()
    ]  # fmt: skip


def test_each_row_runs_each_test_and_each_set_of_parameters_runs(pytestconfig: pytest.Config) -> None:
    name = str(pytestconfig.rootpath / "tests" / "conftest.py")
    (conftest,) = (x for found, x in pytestconfig.pluginmanager.list_name_plugin() if found == name)
    given = items({"a": "a", "b": "b", "c": "c"})
    left = conftest.left_to_others(given)
    run = [item for item in given if item not in left]
    widest = max(rows.COMPILED_ROWS, key=lambda row: row.lanes)
    assert {(item.row.name, item.name) for item in run} >= {(row, x) for row in ("numpy", widest.name) for x in "abc"}
    assert {item.row for item in run} == set(rows.ALL_ROWS)
    others = collections.Counter(item.name for item in run if item.row.compiled and item.row is not widest)
    assert min(others[name] for name in "abc") >= (len(rows.COMPILED_ROWS) - 1) // 3
    assert len(left) == 2 * (len(rows.COMPILED_ROWS) - 1)
    # Where a row has two sets it runs one of them.
    left = conftest.left_to_others(items({"a": "a", "b": "b"}))
    assert len(left) == len({item.row for item in left}) == len(rows.COMPILED_ROWS) - 1
    # The sets begin with other rows, and some rows have one set alone.
    first, second, third = rows.COMPILED_ROWS[:3]
    pairs = {(first, "a"), (third, "a"), (second, "a"), (second, "b"), (third, "b")}
    given = [item for item in items({"a": "a", "b": "b", "c": "c"}) if (item.row, item.name) in pairs]
    left = conftest.left_to_others(given)
    assert {item.row for item in given if item not in left} == {first, second, third}
    assert conftest.left_to_others(items({"a": "a", "b": "b"}, marked=True)) == []


def test_tests_of_rows_alone_share_the_rows(pytestconfig: pytest.Config) -> None:
    name = str(pytestconfig.rootpath / "tests" / "conftest.py")
    (conftest,) = (x for found, x in pytestconfig.pluginmanager.list_name_plugin() if found == name)
    given = [item for number in range(3) for item in items({"a": "a"}, test=f"test_made_{number}")]
    left = conftest.left_to_others(given)
    widest = max(rows.COMPILED_ROWS, key=lambda row: row.lanes)
    shared = [row for row in rows.COMPILED_ROWS if row is not widest]
    assert collections.Counter(item.row for item in given if item not in left) == {
        **dict.fromkeys(rows.ALL_ROWS, 3), **dict.fromkeys(shared, 1)
    }  # fmt: skip
