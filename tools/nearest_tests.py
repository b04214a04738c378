"""Which test modules look at a source file: those named like it, those of its room, and all others, the nearest first.

Only paths and imports are read: tests mirror the package, and what imports a file by a short way uses it most.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

__all__ = ["STAGES", "NearestTests", "inner"]

PACKAGE = PurePosixPath("src/samebits")
STAGES = ("mirror", "room", "all")


def inner(path: str) -> PurePosixPath:
    """The path of a source file within the package."""
    return PurePosixPath(path).relative_to(PACKAGE)


class NearestTests:
    """The test modules of a checkout, whose files are given by their paths."""

    def __init__(self, texts: Mapping[str, bytes]) -> None:
        files = [PurePosixPath(path) for path in texts]
        self._tests = [file for file in files if file.is_relative_to("tests") and file.match("test_*.py")]
        self._readers = _readers({path: text for path, text in texts.items() if path.endswith(".py")})

    def stages(self, path: str, stages: Sequence[str]) -> dict[str, list[str]]:
        """The test modules of each of these stages for a source file; none is in two."""
        own = PurePosixPath("tests") / inner(path).parent
        folder = next(
            (x for x in (own, *own.parents) if any(test.parent == x for test in self._tests)), PurePosixPath("tests")
        )
        beside = [test for test in self._tests if test.parent == folder]
        mirror = _named(inner(path).stem, beside) if folder == own else []
        far, taken, found = self._distances(path), set[str](), dict[str, list[str]]()
        for stage, tests in zip(STAGES, (mirror or beside, beside, self._tests), strict=True):
            if stage in stages:
                left = {str(test) for test in tests} - taken
                found[stage] = sorted(left, key=lambda test: (far.get(test, len(far)), test))
                taken |= left
        return found

    def _distances(self, path: str) -> dict[str, int]:
        """By how many imports each file comes to the one at `path`, if it does."""
        found, now = {path: 0}, [path]
        while now:
            now = sorted({reader for file in now for reader in self._readers[file]} - found.keys())
            found.update(dict.fromkeys(now, max(found.values()) + 1))
        return found


def _named(stem: str, tests: Sequence[PurePosixPath]) -> list[PurePosixPath]:
    """The test modules whose names begin with that of a source, or of what it is a part of: `a_b` is one of `a`."""
    found = [test for test in tests if re.fullmatch(rf"test_{re.escape(stem)}(_\w+)?\.py", test.name)]
    whole = stem.rpartition("_")[0]
    return found if found or not whole else _named(whole, tests)


def _readers(texts: Mapping[str, bytes]) -> dict[str, list[str]]:
    """The files that import each file, anywhere in them."""
    paths = {}
    for path in texts:
        file = PurePosixPath(path)
        name = PurePosixPath(*file.parts[1:]).with_suffix("")  # src, tests and tools are where imports begin
        paths[".".join(name.parent.parts if name.name == "__init__" else name.parts)] = path
    found: dict[str, list[str]] = {path: [] for path in texts}
    for path, text in texts.items():
        asked = set[str]()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                asked.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                asked.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
        for module in asked & paths.keys():
            found[paths[module]].append(path)
    return found
