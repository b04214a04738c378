"""Imports point one way: a room imports only rooms before it in the order that docs/design.md draws."""

import ast
import pathlib
import re

import pytest
import size_report

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


MODULES = size_report.modules()
ROOMS = rooms()


def room_of(module: str) -> str | None:
    """The longest room that a module is in."""
    parts = module.split(".")
    return next((r for n in range(len(parts), 0, -1) if (r := ".".join(parts[:n])) in ROOMS), None)


def upward(module: str, tree: ast.Module) -> list[str]:
    """Imports of a text, taken as `module`, that point at a later room."""
    here = room_of(module)
    assert here is not None
    found = []
    for target, line in size_report.imported(tree, MODULES):
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
    assert upward(module, size_report.parsed(MODULES[module])) == []


def test_an_upward_import_is_found():
    for module, text, due in (
        ("layout", "def f():\n    from samebits.ops import matmul", ["layout:2 imports ops.matmul"]),
        ("kernels.plan", "from samebits.native import table", ["kernels.plan:1 imports native.table"]),
        ("ops.matmul", "from samebits import layout\nimport samebits.tensor", []),
    ):
        assert upward(module, ast.parse(text)) == due


def test_modules_do_not_import_each_other_in_circles() -> None:
    """Neither when they are loaded nor later, within a function."""
    assert size_report.circles(size_report.imports()) == []


def test_a_circle_is_found() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": [], "e": ["a", "f"], "f": ["e"]}
    assert size_report.circles(graph) == [["b", "c"], ["e", "f"]]
    text = "import samebits.ops\nif TYPE_CHECKING:\n    from samebits import layout\n"
    text += "else:\n    from samebits import dtypes\ndef f():\n    try:\n        from samebits.tensor import Tensor\n"
    text += "    finally:\n        pass"
    found = {types: sorted(size_report.imported(ast.parse(text), MODULES, types)) for types in (True, False)}
    due = [("dtypes", 5), ("layout", 3), ("ops", 1), ("tensor", 8)]
    assert found == {True: due, False: [x for x in due if x != ("layout", 3)]}


def way(of: str) -> list[str]:
    """The modules of a way that design.md draws, of each step the file that it begins with."""
    text = (ROOT / "docs" / "design.md").read_text().partition(f"The way of {of}")[2].partition("\n\n")[0]
    found = re.findall(r"^\d\. `([\w/]+)\.py`: ", text, re.M)
    assert len(found) == len(re.findall(r"^\d", text, re.M))
    return [path.replace("/", ".") for path in found]


@pytest.mark.parametrize(("of", "first"), [("an eager `matmul`", "ops.matmul"), ("a model's run", "runtime.cpu")])
def test_a_way_of_the_data_is_short_and_never_climbs(of: str, first: str) -> None:
    steps, graph = way(of), size_report.imports()
    assert (steps[0], steps[-1]) == (first, "native.pool")
    assert len(steps) <= 8
    for at, step in enumerate(steps):
        assert not size_report.reached(graph, step) & set(steps[: at + 1])
        assert at == 0 or step in size_report.reached(graph, first)


def test_front_door_is_used_for_the_version_alone():
    for name, path in MODULES.items():
        tree = size_report.parsed(path)
        if any(target == "" for target, _ in size_report.imported(tree, MODULES)):
            used = {
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "samebits"
            }
            assert used <= {"__version__", "__file__", "__path__"}, name


def test_foreign_packages_have_one_home():
    found = []
    for name, path in MODULES.items():
        for node in ast.walk(size_report.parsed(path)):
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
    assert size_report.named_twice() == []
