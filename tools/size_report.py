"""Print the longest modules and functions of the package: style.md's "one sitting" and "one screen". Never fails.

python tools/size_report.py [--rows 10]
"""

from __future__ import annotations

import argparse
import ast
import pathlib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parent.parent
MODULE_LINES, FUNCTION_LINES = 400, 60


def functions(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Lines and place of each function, docstring left out: a long contract is no fault."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            stated = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            doc = (first.end_lineno or 0) - first.lineno + 1 if stated else 0
            yield (node.end_lineno or 0) - node.lineno + 1 - doc, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def show(title: str, sizes: list[tuple[int, str]], limit: int, rows: int) -> None:
    """The longest few, those past the aim marked."""
    sizes.sort(reverse=True)
    past = sum(size > limit for size, _ in sizes)
    print(f"{title}: {len(sizes)}, {sum(size for size, _ in sizes)} lines; past {limit} lines: {past}")
    for size, place in sizes[:rows]:
        print(f"  {'*' if size > limit else ' '} {size:5} {place}")


def main() -> None:
    """Report on src/samebits."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=6)
    rows = parser.parse_args().rows
    paths = sorted((ROOT / "src" / "samebits").rglob("*.py"))
    modules = [(len(path.read_text().splitlines()), str(path.relative_to(ROOT))) for path in paths]
    show("modules", modules, MODULE_LINES, rows)
    show("functions", [size for path in paths for size in functions(path)], FUNCTION_LINES, rows)


if __name__ == "__main__":
    main()
