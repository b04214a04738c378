"""Packages that only some calls need: found by their whole names, and missed in one sentence."""

import ast
import importlib
import importlib.machinery
import json
import pathlib
import subprocess
import sys
import tomllib

import pytest
import size_report

import samebits as sb
from samebits import optional
from samebits.bench import peers
from samebits.doctor import frameworks, report

ROOT = pathlib.Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "samebits").rglob("*.py"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder whose packages can be imported; what the test imports of it is forgotten."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder, path, text="raise SystemExit('run')"):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)


def test_a_part_of_a_namespace_is_not_the_whole(folder):
    write(folder, "shared_space/bindings/__init__.py")
    write(folder, "shared_space/bindings/driver.py")
    (folder / "shared_space" / "left_over").mkdir()
    assert optional.is_installed("shared_space.bindings.driver")
    assert optional.is_installed("shared_space.left_over")
    for name in (
        "shared_space.core",
        "shared_space.core.utils",
        "shared_space.bindings.none",
        "shared_space.left_over.utils",
        "no_such_space.core",
    ):
        assert not optional.is_installed(name), name


def test_nothing_is_run_to_find_a_module(folder):
    write(folder, "explosive/__init__.py")
    write(folder, "explosive/inner/__init__.py")
    write(folder, "explosive/inner/module.py")
    assert optional.is_installed("explosive")
    assert optional.is_installed("explosive.inner.module")
    assert not optional.is_installed("explosive.inner.module.more")
    assert not {name for name in sys.modules if name.startswith("explosive")}


def test_finders_of_others_are_asked_as_python_asks_them(monkeypatch):
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            return importlib.machinery.ModuleSpec(name, loader=Finder) if name == "made_by_a_finder" else None

    monkeypatch.setattr(sys, "meta_path", [object(), *sys.meta_path, Finder])
    assert optional.is_installed("made_by_a_finder")
    assert not optional.is_installed("made_by_no_finder")


def test_a_module_that_is_barred_is_not_installed(monkeypatch):
    assert optional.is_installed("json.decoder")
    monkeypatch.setitem(sys.modules, "json.decoder", None)
    assert not optional.is_installed("json.decoder")
    assert optional.is_installed("json")
    assert not optional.is_installed("json.decoder.more")


@pytest.mark.parametrize("row", frameworks.ROWS, ids=lambda row: row.name)
def test_a_framework_is_installed_if_and_only_if_its_module_can_be_imported(row):
    done = subprocess.run([sys.executable, "-c", f"import {row.module}"], capture_output=True, check=False)
    assert (report.installed_version(row) is not None) == (done.returncode == 0)


def test_the_bindings_of_cuda_alone_are_not_its_core(folder):
    write(folder, "cuda/bindings/__init__.py", "")
    write(folder, "cuda/bindings/driver.py", "raise RuntimeError('no driver')")
    write(
        folder, "cuda_bindings-13.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: cuda-bindings\nVersion: 13.0\n"
    )
    write(folder, "cuda_bindings-13.0.dist-info/top_level.txt", "cuda\n")
    importlib.invalidate_caches()
    core = frameworks.named("cuda.core")
    if not optional.is_installed("cuda.core"):
        assert report.installed_version(core) is None
    # What is found without metadata of its own has no version, rather than its neighbour's.
    write(folder, "cuda/core/__init__.py")
    write(folder, "cuda/core/utils.py")
    importlib.invalidate_caches()
    assert report.installed_version(core) != "13.0"
    assert report.installed_version(core) is not None


def test_rows_name_extras_that_bring_the_package():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for module, asked in optional.ROWS.items():
        if not asked.startswith("samebits["):
            assert asked == module
            continue
        brought = extras[asked.removeprefix("samebits[").removesuffix("]")]
        assert any(x.startswith((module, module.replace(".", "-"))) for x in brought), module


def test_a_requirement_can_be_pasted_into_a_shell():
    assert optional.requirement("torch") == "'samebits[torch]'"
    assert optional.requirement("onnxruntime") == "onnxruntime"


def test_what_is_broken_is_not_said_to_be_missing():
    error = optional.missing("export", "torch", ImportError("libtorch.so: cannot open", name="torch._C"))
    assert str(error) == (
        "export: package torch is not importable (libtorch.so: cannot open), must be installed;"
        " pip install 'samebits[torch]'"
    )
    needs = optional.missing("export", "torch", ModuleNotFoundError("No module named 'sympy'", name="sympy"))
    assert "is not importable (No module named 'sympy')" in str(needs)


BARRED = """
import json, sys
sys.modules[{barred!r}] = None
import numpy as np
import samebits as sb
try:
    {statement}
except Exception as error:
    print(json.dumps([type(error).__name__, isinstance(error, sb.SamebitsError), isinstance(error, ImportError),
                      str(error)]))
"""


@pytest.mark.parametrize(
    ("module", "statement", "call"),
    [
        ("torch", "sb.Tensor.from_any([1.0]).torch()", "Tensor.torch"),
        ("torch", "sb.Tensor.from_any([1.0]).export('torch')", "Tensor.torch"),
        ("jax", "sb.Tensor.from_any([1.0]).jax()", "Tensor.jax"),
        ("jax", "sb.Tensor.from_any([1.0]).export('jax')", "Tensor.jax"),
        ("matplotlib", "from samebits.bench import chart; chart.check()", "bench"),
        ("matplotlib", "from samebits.bench import chart; chart.draw([], 'x.png')", "bench"),
        (
            "onnxruntime",
            "from samebits.verification import compare; compare.against_onnxruntime(None, None, {}, 0)",
            "against_onnxruntime",
        ),
        ("torch", "import samebits.torch", "samebits.torch"),
        ("torch", "from samebits.torch.accumulate import accumulate", "samebits.torch"),
    ],
)
def test_a_call_without_its_package_raises_one_sentence(module, statement, call):
    text = BARRED.format(barred=module, statement=statement)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    kind, ours, pythons, said = json.loads(done.stdout)
    assert (kind, ours, pythons) == ("MissingPackageError", True, True)
    remedy = f"pip install {optional.requirement(module)}"
    assert said == f"{call}: package {module} is not installed, must be installed; {remedy}"


def test_an_absent_cuda_is_a_fact():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.modules['cuda'] = None\nfrom samebits import driver; print(driver.cuda())",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "None\n"


def test_the_error_is_both_a_samebits_error_and_pythons():
    assert issubclass(sb.MissingPackageError, ModuleNotFoundError)
    assert issubclass(sb.MissingPackageError, sb.SamebitsError)


# Functions that are only reached where the package was found before.
REACHED_LATER = {
    "bench/peers.py": "a row is asked whether it is `installed` first",
    "exchange/incoming.py": "the array that came in is JAX's",
    "doctor": "a row is handed its module",
    "cli": "process.main looks for them first",
    "torch": "samebits.torch looks for it before it imports the others",
}


def foreign(node):
    """Whether a statement imports a package of `optional.ROWS`."""
    roots = {name.partition(".")[0] for name in optional.ROWS}
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return any(name.partition(".")[0] in roots for name in names)


def is_answered(node):
    """Whether it is a `try` around such an import that says what to do without it."""
    return (
        isinstance(node, ast.Try)
        and any("ImportError" in ast.unparse(handler.type) for handler in node.handlers if handler.type is not None)
        and any(map(foreign, node.body))
    )


def parts(path):
    """The statements of a module, at all depths."""
    return list(ast.walk(size_report.parsed(path)))


def test_every_module_that_imports_such_a_package_answers_where_it_is_missing():
    importing = []
    for path in SOURCES:
        here = str(path.relative_to(ROOT / "src" / "samebits"))
        nodes = parts(path)
        if not any(map(foreign, nodes)) or any(here.startswith(name) for name in REACHED_LATER):
            continue
        importing.append(here)
        # Later functions of a module are reached through the one that public calls enter by, and modules of a package
        # through its own file.
        assert any(map(is_answered, nodes + parts(path.with_name("__init__.py")))), here
    assert set(importing) >= {"exchange/outgoing.py", "bench/chart.py", "driver.py"}


def test_peers_are_looked_for_before_they_are_imported():
    for peer in peers.ROWS:
        assert peer.installed == all(map(optional.is_installed, peer.modules))
