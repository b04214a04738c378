"""Imports point one way: a room imports only rooms before it in the order that docs/design.md draws."""

import ast
import collections
import graphlib
import pathlib
import re
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "samebits"
# Foreign packages that only these modules may import; the rest of the library works without them.
ONLY_HOMES = {
    "click": {"cli"},
    "cuda": {"driver"},
    "jax": {"exchange", "jax"},
    "llvmlite": {"codegen", "native"},
    "matplotlib": {"bench.chart", "checkpoint.chart"},
    "numkong": {"bench.peers"},
    "onnx": {"bench.peers", "onnx.proto"},
    "onnxruntime": {"bench.peers", "verification.compare"},
    "rich": {"cli"},
    "safetensors": {"checkpoint"},
    "torch": {"bench.peers", "exchange", "torch"},
}


def rooms() -> list[str]:
    """The order, from the one block of design.md that is fenced as `order`."""
    block = re.search(r"^```order\n(.*?)^```", (ROOT / "docs" / "design.md").read_text(), re.M | re.S)
    assert block is not None
    return block[1].replace("<", " ").split()


def modules() -> dict[str, pathlib.Path]:
    """Every module but the front door and `__main__`: dotted name below samebits -> file."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: path for name, path in found.items() if name not in ("", "__main__")}


MODULES = modules()
ROOMS = rooms()


def room_of(module: str) -> str | None:
    """The longest room that a module is in."""
    parts = module.split(".")
    return next((r for n in range(len(parts), 0, -1) if (r := ".".join(parts[:n])) in ROOMS), None)


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Modules of ours that a text imports, wherever the statement stands, with line numbers; "" is the front door."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "samebits":
                    yield alias.name.removeprefix("samebits").removeprefix("."), node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            if (node.module or "").partition(".")[0] == "samebits":
                for alias in node.names:
                    full = f"{node.module}.{alias.name}".removeprefix("samebits.")
                    yield full if full in MODULES else full.rpartition(".")[0], node.lineno


def upward(module: str, text: str) -> list[str]:
    """Imports of `text`, taken as `module`, that point at a later room."""
    here = room_of(module)
    assert here is not None
    found = []
    for target, line in imported(ast.parse(text)):
        there = room_of(target) if target else ROOMS[0]  # the front door is its version alone: checked below
        if there is None or (there != here and ROOMS.index(there) > ROOMS.index(here)):
            found.append(f"{module}:{line} imports {target}")
    return found


def test_every_module_is_in_a_room():
    assert [
        name for name in MODULES if room_of(name) is None and not any(r.startswith(f"{name}.") for r in ROOMS)
    ] == []


def test_every_room_exists_and_is_named_once():
    assert [room for room in ROOMS if room not in MODULES] == []
    assert len(set(ROOMS)) == len(ROOMS)


@pytest.mark.parametrize("module", [name for name in MODULES if room_of(name)])
def test_imports_point_to_earlier_rooms(module):
    assert upward(module, MODULES[module].read_text()) == []


def test_an_upward_import_is_found():
    assert upward("layout", "def f():\n    from samebits.ops import matmul") == ["layout:2 imports ops.matmul"]
    assert upward("kernels.plan", "from samebits.native import table") == ["kernels.plan:1 imports native.table"]
    assert upward("ops.matmul", "from samebits import layout\nimport samebits.tensor") == []


def test_modules_import_each_other_without_a_cycle():
    graph = {}
    for name, path in MODULES.items():
        body = ast.Module(
            [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.Import | ast.ImportFrom)], []
        )
        # A package's front only gathers names, so what matters is the modules behind it.
        graph[name] = {target for target, _ in imported(body) if target in MODULES} - {name}
    graphlib.TopologicalSorter(graph).prepare()


def test_front_door_is_used_for_the_version_alone():
    for name, path in MODULES.items():
        tree = ast.parse(path.read_text())
        if any(target == "" for target, _ in imported(tree)):
            used = {
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "samebits"
            }
            assert used <= {"__version__", "__file__", "__path__"}, name


def test_foreign_packages_have_one_home():
    found = []
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            roots = []
            if isinstance(node, ast.Import):
                roots = [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                roots = [(node.module or "").partition(".")[0]]
            for root in roots:
                homes = ONLY_HOMES.get(root)
                if homes is not None and not any(f"{name}.".startswith(f"{home}.") for home in homes):
                    found.append(f"{name} imports {root}")
    assert found == []


def test_a_class_name_means_one_thing() -> None:
    names = collections.Counter(
        node.name.lstrip("_")
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []
