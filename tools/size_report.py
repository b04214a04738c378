"""Print the longest modules and functions of the package: style.md's "one sitting" and "one screen"; circles of modules
that import each other; and class names that mean two things. Never fails.

python tools/size_report.py [--rows 10]
"""

from __future__ import annotations

import argparse
import ast
import collections
import functools
import pathlib
from collections.abc import Collection, Iterator, Mapping

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "samebits"
MODULE_LINES, FUNCTION_LINES = 400, 60


@functools.cache
def parsed(path: pathlib.Path) -> ast.Module:
    """A module's statements."""
    return ast.parse(path.read_text())


def functions(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Lines and place of each function, docstring left out: a long contract is no fault."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            stated = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            doc = (first.end_lineno or 0) - first.lineno + 1 if stated else 0
            yield (node.end_lineno or 0) - node.lineno + 1 - doc, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def modules() -> dict[str, pathlib.Path]:
    """Every module but the front door and `__main__`: dotted name below samebits -> file."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: path for name, path in found.items() if name not in ("", "__main__")}


def imported(tree: ast.AST, known: Collection[str], types: bool = True) -> Iterator[tuple[str, int]]:
    """Modules of ours that a text imports, wherever the statement stands, with line numbers; "" is the front door.

    Without `types` those are left out that only type checkers read.
    """
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "samebits":
                    yield alias.name.removeprefix("samebits").removeprefix("."), node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            if (node.module or "").partition(".")[0] == "samebits":
                for alias in node.names:
                    full = f"{node.module}.{alias.name}".removeprefix("samebits.")
                    yield full if full in known else full.rpartition(".")[0], node.lineno
        is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            if types or part != "body" or not is_for_types:
                left += getattr(node, part, ())


def reached(graph: Mapping[str, Collection[str]], name: str) -> set[str]:
    """What can be reached from a name along the arrows of a graph; itself, if it is in a circle."""
    found, left = set[str](), [name]
    while left:
        new = set(graph[left.pop()]) - found
        found |= new
        left += new
    return found


def circles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The names of each circle: what can be reached from each other."""
    beyond = {name: reached(graph, name) for name in graph}
    turned = [name for name in graph if name in beyond[name]]
    groups = {frozenset(x for x in turned if name in beyond[x] and x in beyond[name]) for name in turned}
    return sorted(map(sorted, groups))


def imports() -> dict[str, set[str]]:
    """For each module what it imports when it is loaded or later, within a function."""
    known = modules()
    found = {name: {x for x, _ in imported(parsed(path), known, types=False)} for name, path in known.items()}
    return {name: targets & known.keys() - {name} for name, targets in found.items()}


def named_twice() -> list[str]:
    """Class names that more than one class has, with or without an underscore before it."""
    names = collections.Counter(
        node.name.lstrip("_")
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    )
    return [name for name, count in names.items() if count > 1]


def show(title: str, sizes: list[tuple[int, str]], limit: int, rows: int) -> None:
    """The longest few, those past the aim marked."""
    sizes.sort(reverse=True)
    past = sum(size > limit for size, _ in sizes)
    print(f"{title}: {len(sizes)}, {sum(size for size, _ in sizes)} lines; past {limit} lines: {past}")
    for size, place in sizes[:rows]:
        print(f"  {'*' if size > limit else ' '} {size:5} {place}")


def main() -> None:
    """Report on src/samebits."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--rows", type=int, default=6)
    rows = parser.parse_args().rows
    paths = sorted(PACKAGE.rglob("*.py"))
    lines = [(len(path.read_text().splitlines()), str(path.relative_to(ROOT))) for path in paths]
    show("modules", lines, MODULE_LINES, rows)
    show("functions", [size for path in paths for size in functions(path)], FUNCTION_LINES, rows)
    print("import circles:", "; ".join(map(", ".join, circles(imports()))) or "none")
    print("class names that mean two things:", ", ".join(named_twice()) or "none")


if __name__ == "__main__":
    main()
