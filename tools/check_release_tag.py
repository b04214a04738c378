"""Refuse a release whose git tag, package version and changelog do not agree.

    python tools/check_release_tag.py v0.1.0

The version has one source, `__version__` in src/samebits/__init__.py; the tag must be `v` and that version, and
CHANGELOG.md must have a dated section for it. Exits 1 with one sentence otherwise.
"""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).parent.parent


def package_version(root: pathlib.Path) -> str:
    """The version that the wheel will have."""
    text = (root / "src" / "samebits" / "__init__.py").read_text()
    found = re.findall(r'^__version__ = "([^"]+)"$', text, re.M)
    if len(found) != 1:
        raise ValueError(f"src/samebits/__init__.py sets __version__ {len(found)} times, must set it once")
    return str(found[0])


def fault(tag: str, root: pathlib.Path) -> str | None:
    """What is wrong with releasing `tag` from `root`; None if nothing is."""
    version = package_version(root)
    if tag != f"v{version}":
        return f"tag is {tag}, must be v{version}; tag the commit that sets __version__"
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", (root / "CHANGELOG.md").read_text(), re.M):
        return f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD'; rename its section Unreleased"
    return None


def main(arguments: Sequence[str], root: pathlib.Path = ROOT) -> int:
    """Check the one tag named on the command line."""
    if len(arguments) != 1:
        print("usage: check_release_tag.py TAG", file=sys.stderr)
        return 2
    wrong = fault(arguments[0], root)
    if wrong:
        print(f"check_release_tag: {wrong}", file=sys.stderr)
        return 1
    print(f"{arguments[0]} is the version and is in the changelog")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
