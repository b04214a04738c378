"""The public names: one flat sorted list, each defined where the table says, seen by type checkers and at run time."""

import ast
import doctest
import operator
import pathlib
import pkgutil
import subprocess
import sys
import types

import pytest

import samebits as sb

TREE = ast.parse(pathlib.Path(sb.__file__).read_text())


def typed_names() -> dict[str, str]:
    """What the TYPE_CHECKING block imports: name -> module."""
    block = next(node for node in TREE.body if isinstance(node, ast.If))
    assert isinstance(block.test, ast.Name)
    assert block.test.id == "TYPE_CHECKING"
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        found |= {alias.asname or alias.name: node.module for alias in node.names}
    return found


def test_public_names_are_sorted_and_unique():
    assert sb.__all__ == sorted(set(sb.__all__))


def test_public_names_are_those_a_type_checker_sees():
    assert {*sb.__all__, *sb._BESIDE} == {*typed_names(), "__version__"}


def test_dir_lists_the_public_names():
    assert dir(sb) == sb.__all__


def test_table_and_type_checker_agree_on_homes():
    homes = {name: f"samebits.{home}" for name, home in sb._HOME.items()}
    assert homes | dict.fromkeys(sb._MODULES | sb._BESIDE, "samebits") == typed_names()


def test_modules_beside_the_public_names_are_exported_to_type_checkers():
    aliases = [alias for node in ast.walk(TREE) if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert {alias.name for alias in aliases if alias.name == alias.asname} == sb._BESIDE


@pytest.mark.parametrize("name", sb.__all__)
def test_name_is_defined_where_the_table_says(name):
    value = getattr(sb, name)
    assert getattr(sb, name) is value
    if name in sb._MODULES:
        assert isinstance(value, types.ModuleType)
        assert value.__name__ == f"samebits.{name}"
    elif name != "__version__":
        # Functions made from a row call themselves samebits.<name>; all else says where it is written.
        assert value.__module__ in ("samebits", f"samebits.{sb._HOME[name]}")
        assert value.__name__ == name


def test_no_name_hides_a_module():
    modules = {module.name for module in pkgutil.iter_modules(sb.__path__)}
    assert modules & set(sb.__all__) == set(sb._MODULES)


def test_star_import_gives_the_public_names():
    space: dict[str, object] = {}
    exec("from samebits import *", space)
    assert set(space) - {"__builtins__"} == set(sb.__all__)


def test_unknown_name():
    with pytest.raises(AttributeError) as error:
        sb.nonesuch  # noqa: B018
    assert str(error.value) == "module 'samebits' has no attribute 'nonesuch'"


@pytest.mark.parametrize("name", sb._ELSEWHERE)
def test_what_is_called_otherwise_elsewhere_is_told_its_name_here(name):
    with pytest.raises(AttributeError) as error:
        getattr(sb, name)
    called = sb._ELSEWHERE[name]
    assert str(error.value) == f"module 'samebits' has no attribute '{name}'; call samebits.{called}"
    assert callable(operator.attrgetter(called)(sb))


@pytest.mark.parametrize("name", [row.name for row in sb.dtypes.ROWS if row.name != "bool"])
def test_a_format_that_is_looked_for_beside_functions_is_told_its_place(name):
    with pytest.raises(AttributeError) as error:
        getattr(sb, name)
    assert str(error.value) == f"module 'samebits' has no attribute '{name}'; write samebits.dtypes.{name}"
    assert getattr(sb.dtypes, name) is sb.dtype(name)


def test_public_modules_are_imported_when_they_are_asked_for_and_slips_are_told_what_was_meant():
    code = (
        "import samebits as sb; print(*[getattr(sb, name).__name__ for name in ('fusion', 'onnx', 'torch')]); sb.softmx"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["samebits.fusion", "samebits.onnx", "samebits.torch"]
    assert run.stderr.endswith("module 'samebits' has no attribute 'softmx'. Did you mean: 'softmax'?\n")


@pytest.mark.parametrize("name", [name for name in sb.__all__ if name != "__version__"])
def test_public_name_has_a_docstring(name):
    assert getattr(sb, name).__doc__


@pytest.mark.parametrize("name", ["linear", "matmul"])
def test_help_shows_examples_that_are_true(name):
    (found,) = doctest.DocTestFinder(recurse=False).find(getattr(sb, name), name, globs={})
    assert found.examples
    assert doctest.DocTestRunner().run(found).failed == 0


def test_package_says_that_it_is_typed():
    assert pathlib.Path(sb.__file__).with_name("py.typed").exists()
