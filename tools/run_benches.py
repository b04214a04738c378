"""Run benches/*.py one after the other; write this processor's page of docs/benchmarks and the README's figures.

A page has LLVM's name of the processor, which tells apart what its vendor names alike.

    python tools/run_benches.py [NAME ...]     names are files of benches/ without .py; default all

A bench is a script whose docstring says what it measures and how, and which prints its figures. A printed line

    figure: WHAT | OURS | PEER | RATIO

is left out of the page and becomes a row of the README's table. A bench states ratios and asserts nothing; it fails
only if it cannot run, and then nothing is written. Each section and row says when it was measured. With names, the
others stay as they are.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import datetime
import pathlib
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from samebits.codegen import isa as isas

ROOT = pathlib.Path(__file__).parent.parent
START, END = "<!-- bench:start -->", "<!-- bench:end -->"
PEERS = ("samebits", "llvmlite", "numpy", "torch", "onnxruntime", "numkong")
HEAD = """# Benchmarks on {}

Written by `make bench`. Ours and the peer run interleaved in one process with the same number of threads; figures are
medians. A ratio above 1 means that ours is faster.
"""


def today() -> str:
    """The date of today."""
    return datetime.date.today().isoformat()


def versions() -> str:
    """The versions of ours and of the packages beside it, as far as they are installed."""
    found = []
    for name in PEERS:
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return ", ".join(found)


def split(name: str, text: str, output: str) -> tuple[str, list[str]]:
    """A bench's output as a section, below what its docstring says and when it was measured, and its README rows."""
    lines = output.splitlines()
    figures = [line.removeprefix("figure:").strip() for line in lines if line.startswith("figure:")]
    wrong = [figure for figure in figures if figure.count("|") != 3]
    if wrong:
        raise ValueError(f"figure has {wrong[0].count('|') + 1} cells, must have 4: {wrong[0]}")
    said = (ast.get_docstring(ast.parse(text)) or "").strip()
    printed = "\n".join(line for line in lines if not line.startswith("figure:")).strip()
    section = f"## {name}\n\n{said}\n\nMeasured {today()}; {versions()}.\n\n```text\n{printed}\n```\n"
    return section, [f"{figure} | {isas.host_cpu()}, {today()}" for figure in figures]


def sections(page: str) -> dict[str, str]:
    """The sections of a page by bench name."""
    return dict(re.findall(r"<!-- bench: (\w+) -->\n(.*?)(?=<!-- bench: |\Z)", page, re.S))


def rows(readme: str) -> dict[str, list[str]]:
    """The README's rows by bench name."""
    found: dict[str, list[str]] = {}
    for row, name in re.findall(r"^\| (.*) \|<!-- (\w+) -->$", readme, re.M):
        found.setdefault(name, []).append(row)
    return found


def page(parts: Mapping[str, str]) -> str:
    """This processor's page."""
    return "\n".join(
        [HEAD.format(isas.host_cpu()), *[f"<!-- bench: {name} -->\n{parts[name].strip()}\n" for name in sorted(parts)]]
    )


def with_figures(readme: str, figures: Mapping[str, Sequence[str]]) -> str:
    """The README with the table between its markers rewritten."""
    before, marker, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    if not marker or not end:
        raise ValueError(f"README.md has no {START} ... {END}")
    lines = ["| what | samebits | peer | ratio | measured |", "|---|---|---|---|---|"]
    lines += [f"| {row} |<!-- {name} -->" for name in sorted(figures) for row in figures[name]]
    return f"{before}{START}\n" + "\n".join(lines) + f"\n{END}{after}"


def main() -> int:
    """Run the benches named, or all."""
    names = sorted(path.stem for path in (ROOT / "benches").glob("*.py") if not path.stem.startswith("_"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    chosen = parser.parse_args().names or names
    if not set(chosen) <= set(names):
        parser.error(f"no bench of {sorted(set(chosen) - set(names))}; there are {names}")
    target, readme_path = ROOT / "docs" / "benchmarks" / f"{isas.host_cpu()}.md", ROOT / "README.md"
    readme = readme_path.read_text()
    parts = {n: s for n, s in sections(target.read_text() if target.exists() else "").items() if n in names}
    figures = {n: r for n, r in rows(readme).items() if n in names}
    for name in chosen:
        print(f"== {name}", flush=True)
        path = ROOT / "benches" / f"{name}.py"
        run = subprocess.run([sys.executable, path], stdout=subprocess.PIPE, text=True, check=False)
        if run.returncode:
            print(f"run_benches: benches/{name}.py exited with {run.returncode}; nothing is written", file=sys.stderr)
            return 1
        print(run.stdout, flush=True)
        parts[name], figures[name] = split(name, path.read_text(), run.stdout)
    target.write_text(page(parts))
    readme_path.write_text(with_figures(readme, figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
