"""Run benches/*.py one after the other; write docs/benchmarks.md and the README's figures.

    python tools/run_benches.py [NAME ...]     names are files of benches/ without .py; default all

A bench is a script whose docstring says what it measures and how, and which prints its figures. A printed line

    figure: WHAT | OURS | PEER | RATIO

is left out of the page and becomes a row of the README's table. A bench states ratios and asserts nothing; it fails
only if it cannot run, and then nothing is written. With names, the other sections stay as they are.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import os
import pathlib
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

ROOT = pathlib.Path(__file__).parent.parent
START, END = "<!-- bench:start -->", "<!-- bench:end -->"
PEERS = ("samebits", "llvmlite", "numpy", "torch", "onnxruntime", "numkong")
HEAD = """# Benchmarks

Written by `make bench`. Ours and the peer run interleaved in one process with the same number of threads; figures are
medians. A ratio above 1 means that ours is faster.
"""


def machine() -> str:
    """The processor, its cores and the versions measured."""
    model = platform.processor() or platform.machine()
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model = next((x.split(":")[1].strip() for x in cpuinfo.read_text().splitlines() if "model name" in x), model)
    versions = []
    for name in PEERS:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{datetime.date.today().isoformat()}, {model}, {cores} cores; {', '.join(versions)}."


def split(name: str, text: str, output: str) -> tuple[str, list[str]]:
    """A bench's output as a section, below what its docstring says, and its rows for the README."""
    lines = output.splitlines()
    figures = [line.removeprefix("figure:").strip() for line in lines if line.startswith("figure:")]
    wrong = [figure for figure in figures if figure.count("|") != 3]
    if wrong:
        raise ValueError(f"figure has {wrong[0].count('|') + 1} cells, must have 4: {wrong[0]}")
    said = (ast.get_docstring(ast.parse(text)) or "").strip()
    printed = "\n".join(line for line in lines if not line.startswith("figure:")).strip()
    return f"## {name}\n\n{said}\n\n```text\n{printed}\n```\n", figures


def sections(page: str) -> dict[str, str]:
    """The sections of a page by bench name."""
    return dict(re.findall(r"<!-- bench: (\w+) -->\n(.*?)(?=<!-- bench: |\Z)", page, re.S))


def rows(readme: str) -> dict[str, list[str]]:
    """The README's rows by bench name."""
    found: dict[str, list[str]] = {}
    for row, name in re.findall(r"^\| (.*) \|<!-- (\w+) -->$", readme, re.M):
        found.setdefault(name, []).append(row)
    return found


def page(parts: Mapping[str, str], made_on: str) -> str:
    """docs/benchmarks.md."""
    return (
        "\n".join([HEAD, made_on, *[f"\n<!-- bench: {name} -->\n{parts[name].strip()}" for name in sorted(parts)]])
        + "\n"
    )


def with_figures(readme: str, figures: Mapping[str, Sequence[str]], made_on: str) -> str:
    """The README with the table between its markers rewritten."""
    before, marker, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    if not marker or not end:
        raise ValueError(f"README.md has no {START} ... {END}")
    lines = [
        f"{made_on} All of them: [benchmarks](docs/benchmarks.md).",
        "",
        "| what | samebits | peer | ratio |",
        "|---|---|---|---|",
    ]
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
    target, readme_path = ROOT / "docs" / "benchmarks.md", ROOT / "README.md"
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
    made_on = machine()
    target.write_text(page(parts, made_on))
    readme_path.write_text(with_figures(readme, figures, made_on))
    return 0


if __name__ == "__main__":
    sys.exit(main())
