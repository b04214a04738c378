"""What is under us: children of this process import what it imports, and nothing that lies about; the default float
environment is in force inside its block, and the caller's own again after."""

from __future__ import annotations

import ast
import gc
import os
import pathlib
import subprocess
import sys

import floating
import models
import numpy as np
import pytest
import size_report

import samebits
from samebits import driver
from samebits.doctor import frameworks, trial

SOURCES = pathlib.Path(samebits.__file__).parent
# Names of modules that the children import, ours and the standard library's.
PLANTED = ("samebits", "zipfile", "json", "numpy", "sitecustomize", "usercustomize")
# Whatever starts a process.
STARTS = {
    "subprocess": {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "os": {"system", "popen", "fork", "forkpty", "startfile"},
    "pty": {"spawn", "fork"},
    "futures": {"ProcessPoolExecutor"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
}
FAMILIES = ("exec", "spawn", "posix_spawn")


@pytest.fixture
def planted(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The current directory, full of modules that leave a mark when they are imported."""
    for name in PLANTED:
        text = f"open({str(tmp_path / (name + '.mark'))!r}, 'w').close()\n"
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def marks(folder: pathlib.Path) -> list[str]:
    return [path.name for path in folder.glob("*.mark")]


def test_a_planted_module_is_seen_to_be_imported(planted: pathlib.Path) -> None:
    done = subprocess.run([sys.executable, "-c", "import zipfile"], check=False)
    assert done.returncode == 0
    assert "zipfile.mark" in marks(planted)


def test_verify_imports_nothing_that_lies_beside_the_model(planted: pathlib.Path) -> None:
    model = models.classifier(planted / "classifier.onnx")
    for path in (model, pathlib.Path(model.name)):
        report = samebits.verify(path)
        assert marks(planted) == []
        assert "process" in {configuration.axis for configuration in report.configurations}


def test_doctor_imports_nothing_of_the_current_directory(planted: pathlib.Path) -> None:
    cells, end = trial.attempt(frameworks.named("numpy"))
    assert marks(planted) == []
    assert end == ""
    assert cells


def listed(said: str) -> list[str]:
    """The places that `python -m site` prints."""
    lines = said.split("sys.path = [\n")[1].split("\n]")[0].splitlines()
    return [ast.literal_eval(line.strip().rstrip(",")) for line in lines]


def places(monkeypatch: pytest.MonkeyPatch, path: list[str]) -> list[str]:
    """Where a child looks for modules first, if this process looks in `path`; not where any Python looks."""
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-P", "-m", "site"]
    always = listed(subprocess.run(command, env=bare, capture_output=True, text=True, check=True).stdout)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", path)
        with driver.start_python("site", (), stdout=subprocess.PIPE) as child:
            found = listed(child.communicate()[0])
    # Python's own places begin with its library; one that was said already is not said again behind it.
    first = found.index(always[0])
    assert set(always) <= set(found)
    assert set(found[first:]) <= set(always)
    return found[:first]


def test_a_child_looks_where_its_parent_does_but_for_the_current_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, other, linked = tmp_path / "here", tmp_path / "other", tmp_path / "linked"
    here.mkdir()
    other.mkdir()
    (tmp_path / "a").mkdir()
    linked.symlink_to(here)
    monkeypatch.chdir(here)
    with_separator = f"{tmp_path}/a{os.pathsep}here"  # two places, one of them relative, where it is read back
    path = ["", ".", str(here), str(linked), f"{here}/../here/", with_separator, str(other), str(tmp_path / "gone")]
    assert places(monkeypatch, path) == [str(other), str(tmp_path / "gone")]
    monkeypatch.chdir(other)
    assert places(monkeypatch, path[2:-2]) == [str(here), str(linked)]


def test_a_child_finds_the_package_where_it_lies_in_the_current_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    home = str(SOURCES.parent)
    monkeypatch.chdir(home)
    assert places(monkeypatch, [home]) == [home]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="what the system keeps of a child is read there")
def test_a_child_that_ended_is_forgotten_by_the_system_at_a_collection() -> None:
    child = driver.start_python("site", (), stdout=subprocess.DEVNULL)
    place = f"/proc/{child.pid}/stat"
    gc.disable()  # a collection of its own would be one too early
    try:
        driver.let_end(child)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # until it has ended; the system keeps it
        assert pathlib.Path(place).read_text().rpartition(")")[2].split()[0] == "Z"
        gc.collect()
    finally:
        gc.enable()
    assert not os.path.exists(place)
    assert child.wait() == 0


def test_a_child_gets_variables_of_its_own() -> None:
    with driver.start_python("site", (), {"PYTHONUSERBASE": "/of/the/child"}, stdout=subprocess.PIPE) as child:
        assert "USER_BASE: '/of/the/child'" in child.communicate()[0]
    assert "PYTHONUSERBASE" not in os.environ


@pytest.mark.parametrize(
    ("executable", "expected"),
    [
        ("bin/python3.12", True), ("python", True), ("Contents/MacOS/Python", True),
        ("python/editor", False), ("", False), (None, False),
    ],
)  # fmt: skip
def test_a_program_that_embeds_python_is_not_started_as_one(
    executable: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert driver.can_start_python() is expected
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert not driver.can_start_python()


def starts(tree: ast.AST) -> list[str]:
    """What in a module starts a process."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module, name = node.value.id, node.attr
            if name in STARTS.get(module, ()) or (module == "os" and name.startswith(FAMILIES)):
                found.append(f"{module}.{name}")
        elif isinstance(node, ast.ImportFrom) and node.module:
            names, last = [x.name for x in node.names], node.module.rpartition(".")[2]
            found += [f"{last}.{name}" for name in names if name in STARTS.get(last, ()) or last == "multiprocessing"]
        elif isinstance(node, ast.Import):
            found += [x.name for x in node.names if x.name == "multiprocessing" or (x.asname and x.name in STARTS)]
    return found


def test_every_process_is_started_by_the_driver() -> None:
    found = {
        path.relative_to(SOURCES).as_posix(): set(what)
        for path in sorted(SOURCES.rglob("*.py"))
        if (what := starts(size_report.parsed(path)))
    }
    assert found == {"driver.py": {"subprocess.Popen"}}


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess\nsubprocess.run(['x'])", "from subprocess import run", "import subprocess as s",
        "import os\nos.execv('x', [])", "import os\nos.posix_spawn('x', [], {})", "import multiprocessing",
        "from concurrent.futures import ProcessPoolExecutor",
    ],
)  # fmt: skip
def test_other_ways_to_start_a_process_would_be_found(text: str) -> None:
    assert starts(ast.parse(text))


TINY = np.float32(2.0**-126)


def computed() -> tuple[float, ...]:
    """What tells the modes apart: quotients that are rounded down and up, and a product that is subnormal."""
    one = np.float64(1)
    return float(one / 3), float(one / 10), float(TINY * np.float32(0.5)) * 2.0**20


@pytest.mark.parametrize("mode", floating.MODES)
def test_the_default_environment_ends_with_its_block(mode: str) -> None:
    due = computed()
    with floating.environment(mode):
        before = computed()
        with driver.default_float_environment():
            inside = computed()
            with driver.default_float_environment():
                nested = computed()
            again = computed()
        after = computed()
        with pytest.raises(KeyError), driver.default_float_environment():
            raise KeyError
        raised = computed()
    assert due == inside == nested == again == computed()
    assert before == after == raised != due


@pytest.mark.parametrize("mode", floating.MODES)
def test_a_function_in_the_default_environment(mode: str) -> None:
    @driver.default_float_environment()
    def inner(deep: int) -> list[tuple[float, ...]]:
        return [computed(), *(inner(deep - 1) if deep else []), computed()]

    due = computed()
    with floating.environment(mode):
        before, made, after = computed(), inner(2), computed()
    assert set(made) == {due}
    assert before == after != due


def test_a_system_without_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "libc", object)
    driver._float_calls.cache_clear()
    try:
        with driver.default_float_environment():
            assert driver._float_calls() is None
    finally:
        driver._float_calls.cache_clear()
