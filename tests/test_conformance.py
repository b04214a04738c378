"""docs/conformance.json: every row gives the digests that the references wrote."""

import importlib.util
import json
import pathlib

import numpy as np
import pytest
import rows

import samebits as sb
from samebits import dtypes
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
        options = dict(case.get("options", {}))
        options |= {"a_zero_point": x[2], "b_zero_point": x[3]} if "zero_points" in case else {}
        options |= {"out_dtype": case["out_dtype"]} if "out_dtype" in case else {}
        return function(*x[:2], spec=sb.Spec(**case["spec"]), threads=threads, **options)
    if "accumulates" in case:
        return function(*x[:2], out=x[2].copy(), threads=threads)
    if case["operation"] in ("sum", "mean", "max"):
        return function(*x, axis=-1, threads=threads)
    return function(*x, threads=threads)


def test_file_lists_the_cases_of_the_tool():
    assert [{k: v for k, v in case.items() if k != "digest"} for case in WRITTEN] == conformance.CASES


@pytest.mark.parametrize(
    "case",
    WRITTEN,
    ids=lambda c: "-".join([c["operation"], *c.get("dtypes", []), "x".join(map(str, c["shape"])), str(c["seed"])]),
)
def test_references_give_the_written_digest(case):
    assert conformance.digest(np.asarray(conformance.answer(case))) == case["digest"]


def engines(case, isa):
    """Whether a row has another engine for the case's operands than the rows of its width before it."""
    return "dtypes" in case and isa in rows.rows_of_engines(*map(dtypes.of, case["dtypes"]))


@pytest.mark.parametrize("isa", rows.PRODUCT_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("threads", [1, 3])
def test_compiled_rows_give_the_written_digests(isa, threads):
    cases = [case for case in WRITTEN if isa in rows.COMPILED_ROWS or engines(case, isa)]
    with use_isa(isa):
        wrong = [case for case in cases if conformance.digest(run(case, threads)) != case["digest"]]
    assert wrong == []


def test_interpreter_gives_the_written_digests():
    small = [case for case in WRITTEN if np.prod(case["shape"], dtype=np.int64) <= 20000]
    with use_isa("numpy"):
        wrong = [case for case in small if conformance.digest(run(case, 1)) != case["digest"]]
    assert len(small) > 20
    assert wrong == []
