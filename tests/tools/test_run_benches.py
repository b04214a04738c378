"""The bench runner: what a bench prints becomes a section and rows, and a second run changes nothing else."""

import llvmlite.binding as llvm
import numpy as np
import pytest
import run_benches

OUTPUT = "size  GFLOP/s\nfigure: 1024 cubed, 1 thread | 98 GFLOP/s | 100 GFLOP/s (torch) | 0.98\n1024  98\n"
FIGURE = "1024 cubed, 1 thread | 98 GFLOP/s | 100 GFLOP/s (torch) | 0.98"
README = f"# x\n{run_benches.START}\nold\n{run_benches.END}\ntail\n"


def test_output_splits_into_section_and_figures():
    made = f"Measured {run_benches.today()}; {run_benches.versions()}."
    section = f"## gemm\n\nProducts, medians.\n\n{made}\n\n```text\nsize  GFLOP/s\n1024  98\n```\n"
    printed = run_benches.split("gemm", '"""Products, medians."""', OUTPUT)
    assert printed == (section, [f"{FIGURE} | {llvm.get_host_cpu_name()}, {run_benches.today()}"])


def test_versions_are_of_what_is_installed():
    assert f", numpy {np.__version__}" in run_benches.versions()


def test_figure_with_other_cells_is_refused():
    with pytest.raises(ValueError, match=r"^figure has 2 cells, must have 4: a \| b$"):
        run_benches.split("gemm", "", "figure: a | b\n")


def test_page_and_readme_read_back_what_was_written():
    page = run_benches.page({"gemm": "## GEMM\n", "exp": "## exp\n"})
    assert {name: text.strip() for name, text in run_benches.sections(page).items()} == {
        "exp": "## exp",
        "gemm": "## GEMM",
    }
    readme = run_benches.with_figures(README, {"gemm": [FIGURE]})
    assert run_benches.rows(readme) == {"gemm": [FIGURE]}
    assert run_benches.with_figures(readme, run_benches.rows(readme)) == readme
    assert readme.startswith(f"# x\n{run_benches.START}\n| what |")
    assert readme.endswith(f"{run_benches.END}\ntail\n")


def test_readme_without_markers_is_refused():
    with pytest.raises(ValueError, match=r"^README.md has no <!-- bench:start --> \.\.\. <!-- bench:end -->$"):
        run_benches.with_figures("# x\n", {})
