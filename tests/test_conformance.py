"""docs/conformance.json: every row gives the digests that the references wrote."""

import importlib.util
import json
import pathlib

import numpy as np
import pytest
import rows

import samebits as sb
from samebits.codegen.isa import use_isa

ROOT = pathlib.Path(__file__).parent.parent
_spec = importlib.util.spec_from_file_location("conformance", ROOT / "tools" / "conformance.py")
assert _spec is not None
assert _spec.loader is not None
conformance = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(conformance)
WRITTEN = json.loads((ROOT / "docs" / "conformance.json").read_text())["cases"]


def run(case, threads):
    x = conformance.inputs(case)
    function = getattr(sb, case["operation"])
    if case["operation"] == "matmul":
        return function(*x, **case.get("options", {}), spec=sb.Spec(**case["spec"]), threads=threads)
    if case["operation"] in ("sum", "mean", "max"):
        return function(*x, axis=-1, threads=threads)
    return function(*x, threads=threads)


def test_file_lists_the_cases_of_the_tool():
    assert [{k: v for k, v in case.items() if k != "digest"} for case in WRITTEN] == conformance.CASES


@pytest.mark.parametrize(
    "case", WRITTEN, ids=lambda c: f"{c['operation']}-{'x'.join(map(str, c['shape']))}-{c['seed']}"
)
def test_references_give_the_written_digest(case):
    assert conformance.digest(np.asarray(conformance.answer(case))) == case["digest"]


@pytest.mark.parametrize("isa", rows.COMPILED_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("threads", [1, 3])
def test_compiled_rows_give_the_written_digests(isa, threads):
    with use_isa(isa):
        wrong = [case for case in WRITTEN if conformance.digest(run(case, threads)) != case["digest"]]
    assert wrong == []


def test_interpreter_gives_the_written_digests():
    small = [case for case in WRITTEN if np.prod(case["shape"], dtype=np.int64) <= 20000]
    with use_isa("numpy"):
        wrong = [case for case in small if conformance.digest(run(case, 1)) != case["digest"]]
    assert len(small) > 20
    assert wrong == []
