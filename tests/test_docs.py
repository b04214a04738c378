"""The pages are true of this repository: links resolve, files that are named exist, nothing points outside."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# Folders below which a page may name a file.
ROOTS = (ROOT, ROOT / "docs", ROOT / "src" / "samebits", ROOT / "tests")
MACHINE = re.compile(r"(?<![\w.~])/(?:work|tmp|root|home|Users|opt|mnt)/[\w.]")
NAMED = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:md|json|toml|txt))`")
# Left out: a page may draw a path that is the reader's own.
OURS = re.compile(
    r"^(?:src|docs|tests|tools|benches|examples|codegen|native|kernels|ops|program|runtime|onnx|cli)/|^[\w-]+\."
)


def tracked() -> list[pathlib.Path]:
    """Every text file under version control; those of the working tree where there is no git."""
    run = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = run.stdout.split("\n") if run.returncode == 0 else []
    paths = [ROOT / name for name in names if name] or [*ROOT.glob("src/**/*.py"), *PAGES]
    return [path for path in paths if path.suffix in (".py", ".md", ".toml", ".yml", ".txt", ".json") and path.exists()]


def text_of(path: pathlib.Path) -> str:
    """A page without its fenced blocks, where brackets are code."""
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)


def missing_links(text: str, folder: pathlib.Path) -> list[str]:
    """Relative link targets that are not there."""
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    return [x for x in targets if not re.match(r"[a-z]+:", x) and not (folder / x).exists()]


def missing_files(text: str) -> list[str]:
    """Files named in backticks that are in no folder of ours."""
    return [x for x in NAMED.findall(text) if OURS.match(x) and not any((folder / x).exists() for folder in ROOTS)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path):
    assert missing_links(text_of(path), path.parent) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist(path):
    assert missing_files(text_of(path)) == []


def test_missing_targets_are_found():
    assert missing_links("[a](docs/none.md) [b](README.md#x) [c](https://x.org/y)", ROOT) == ["docs/none.md"]
    assert missing_files("`docs/none.md` `docs/design.md` `layout.py` `none.py` `codegen/isa.py` `a/b`") == [
        "docs/none.md"
    ]


def test_no_path_of_a_machine():
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MACHINE.search(line) and not line.startswith("MACHINE = ")
    ]
    assert found == []


def test_every_page_is_reached_from_the_readme():
    seen: set[pathlib.Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for target in re.findall(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)", text_of(path)):
            if not re.match(r"[a-z]+:", target):
                todo.append((path.parent / target).resolve())
    assert [str(path.relative_to(ROOT)) for path in PAGES if path not in seen] == []
