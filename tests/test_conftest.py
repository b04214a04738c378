"""What the run of all tests is told of itself."""

import pytest


def test_the_files_that_are_begun_first_are_there(pytestconfig: pytest.Config) -> None:
    tests = pytestconfig.rootpath / "tests"
    (conftest,) = (x for name, x in pytestconfig.pluginmanager.list_name_plugin() if name == str(tests / "conftest.py"))
    assert [name for name in conftest.LONGEST if not (tests / name).is_file()] == []
    assert len(set(conftest.LONGEST)) == len(conftest.LONGEST)
