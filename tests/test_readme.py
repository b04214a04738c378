"""What a reader would try: the README's blocks, those of docs/, the examples, and the commands that are named."""

import __future__

import contextlib
import io
import pathlib
import re
import subprocess
import sys
import tomllib

import launch
import models
import numpy as np
import pytest
import rows

from samebits import dtypes, samples
from samebits.codegen.vocabulary import KernelSpec
from samebits.kernels.gemm.reference import reference
from samebits.kernels.gemm.tiles import Tile
from samebits.kernels.plan import Operand, Plan, Step

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path: pathlib.Path, language: str) -> list[tuple[int, str]]:
    """Fenced blocks of one language, with the line on which each begins."""
    text = path.read_text()
    found = re.finditer(rf"^```{language}\n(.*?)^```", text, re.M | re.S)
    return [(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in found]


PYTHON = [pytest.param(path, id=str(path.relative_to(ROOT))) for path in PAGES if blocks(path, "python")]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# By itself the one that trains takes a minute; by default it takes a tenth of its steps.
TRAINING = ROOT / "examples" / "train_bits.py"
STEPS = "STEPS = 512, 8, 128, 4, 200\n", "STEPS = 512, 8, 128, 4, 20\n"


def run_block(text: str, name: str, line: int, space: dict[str, object]) -> str:
    """What a block prints. Annotations stay text, so that a signature may stand without its imports."""
    code = compile("\n" * (line - 1) + text, name, "exec", flags=__future__.annotations.compiler_flag)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, space)
    return printed.getvalue()


@pytest.mark.parametrize("path", PYTHON)
def test_python_blocks_run_from_the_top_of_the_page(path, tmp_path, monkeypatch):
    # Where a page names files they are here: its model is this one.
    models.classifier(tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    space = {"__name__": "__main__"}
    for line, text in blocks(path, "python"):
        printed = run_block(text, str(path), line, space)
        # A comment after a print says what it prints.
        said = re.findall(r"^print\(.*\)  # (.*)$", text, re.M)
        assert [*printed.splitlines()][: len(said)] == said, line


def test_a_block_that_is_wrong_fails():
    with pytest.raises(AttributeError):
        run_block("import samebits as sb\nsb.nonesuch()", "page", 1, {})


def test_readme_shows_a_short_example():
    first = blocks(ROOT / "README.md", "python")[0][1]
    assert "import samebits as sb" in first
    assert len(first.splitlines()) <= 20


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)
def test_kernel_of_the_style_page_runs_on_every_row(isa):
    text = next(text for _, text in blocks(ROOT / "docs" / "style.md", "python") if "emit_microtile" in text)
    space = {"__name__": __name__, "dtypes": dtypes}
    exec(compile(text, "style.md", "exec", flags=__future__.annotations.compiler_flag), space)
    tile, kc = Tile(3, 1), 7
    spec = KernelSpec(space["emit_microtile"], tile, ("a", "b", "c", "kc"), isa)
    plan = Plan("style", isa, 1, (Step(spec, 1, (Operand(0), Operand(1), Operand(2), kc)),), ("a", "b", "c"))
    r = np.random.default_rng(0)
    a, b = r.standard_normal((kc, tile.mr), np.float32), r.standard_normal((kc, tile.nr(isa)), np.float32)
    c = np.empty((tile.mr, tile.nr(isa)), np.float32)
    launch.run_plan(plan, [a, b, c])
    launch.assert_bits(c, reference(np.ascontiguousarray(a.T), b))


def printed(path, *words):
    """What an example prints that is started with these words."""
    run = subprocess.run([sys.executable, path, *words], capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert run.stdout
    assert "Warning" not in run.stderr
    return run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in EXAMPLES if path != TRAINING], ids=lambda path: path.name)
def test_example_runs(path):
    # For sequences of 16 the one that has a real model takes half as long again.
    printed(path, *["4"] * (path.name == "minilm.py"))


@pytest.mark.slow
@pytest.mark.parametrize("steps", [STEPS[1], pytest.param(STEPS[0], marks=pytest.mark.exhaustive)], ids=["few", "all"])
def test_training_has_one_digest(steps, tmp_path):
    text = TRAINING.read_text()
    assert text.count(STEPS[0]) == 1
    path = tmp_path / TRAINING.name
    path.write_text(text.replace(STEPS[0], steps))
    # Whoever ran it, and its digest.
    found = [line.split()[:2] for line in printed(path).splitlines()]
    ours, theirs = ([digest for who, digest in found if who == name] for name in ("samebits", "torch"))
    assert len(ours) >= len(theirs) == 7
    assert len(set(ours)) == 1
    assert len(set(theirs)) > 1


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.name != "minilm.py"], ids=lambda path: path.name)
def test_example_is_short(path):
    # A model, its training and every way to run it.
    assert len(path.read_text().splitlines()) < (60 if path.name == "train_bits.py" else 41)


def test_make_targets_that_are_named_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.M))
    named = {x for path in PAGES for x in re.findall(r"\bmake ([a-z]+)(?=`|$| )", path.read_text(), re.M)}
    in_code = {x for path in PAGES for x in re.findall(r"`make ([a-z]+)`", path.read_text())}
    assert {"demo", "test"} <= named & targets
    assert in_code <= targets


def test_ci_runs_the_readmes_test_command():
    commands = [
        line.split("#")[0].strip() for _, text in blocks(ROOT / "README.md", "sh") for line in text.splitlines()
    ]
    assert commands[:2] == ["make demo", "make test"]
    assert re.search(rf"^{commands[1]} ", (ROOT / ".ci" / "run").read_text(), re.M)


def test_install_lines_name_extras_that_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {
        x
        for path in PAGES
        for found in re.findall(r"samebits\[([a-z,]+)\]", path.read_text())
        for x in found.split(",")
    }
    assert {"cli", "torch"} <= asked <= set(extras)


def test_the_file_of_bfloat16_that_the_page_writes_is_read_as_such(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ((line, text),) = blocks(ROOT / "docs" / "command.md", "python")
    space = {"__name__": "__main__"}
    run_block(text, "command.md", line, space)
    read = samples.read(tmp_path / "x.npz")["x"]
    assert (read.dtype, read.tobytes()) == (space["x"].dtype, space["x"].tobytes())


def test_subcommands_that_are_named_exist():
    from samebits.cli.command import command

    named = {x for path in PAGES for _, text in blocks(path, "sh") for x in re.findall(r"^samebits (\w+)", text, re.M)}
    assert named
    assert named <= set(command.commands)
