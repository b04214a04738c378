"""docs/conformance.json: every row gives the digests that the references wrote."""

import importlib.util
import itertools
import json
import pathlib
from fractions import Fraction

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
        options |= {name: case[name] for name in ("out_dtype", "b_group", "a_zero_point") if name in case}
        options |= dict(zip((name.split()[0] for name in case.get("shared", [])), x[2:], strict=False))
        return function(*x[:2], spec=sb.Spec(**case["spec"]), threads=threads, **options)
    if "accumulates" in case:
        return function(*x[:2], out=x[2].copy(), threads=threads)
    if case["operation"] in ("sum", "mean", "max"):
        return function(*x, axis=case.get("axis", -1), threads=threads)
    if case["operation"] == "cast":
        return function(*x, case["to"], threads=threads)
    return function(*x, threads=threads)


def test_file_lists_the_cases_of_the_tool():
    assert [{k: v for k, v in case.items() if k != "digest"} for case in WRITTEN] == conformance.CASES


@pytest.mark.parametrize(
    "case",
    WRITTEN,
    ids=lambda c: "-".join(
        [c["operation"], *c.get("dtypes", [c.get("dtype", "float32")]), "x".join(map(str, c["shape"])), str(c["seed"])]
    ),
)
def test_references_give_the_written_digest(case):
    assert conformance.digest(np.asarray(conformance.answer(case))) == case["digest"]


def nearest(x: Fraction) -> Fraction:
    """x as float32, ties to even: integers of 24 bits times a power of two of at least 2^-149."""
    if x == 0:
        return x
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent -= abs(x) < Fraction(2) ** exponent
    ulp = Fraction(2) ** max(exponent - 23, -149)
    return round(x / ulp) * ulp


def by_the_page(case):
    """numerics.md sections 2 and 4 in fractions, for numbers whose sums are ordinary: nothing of the package."""
    a, b, *shared = conformance.inputs(case)
    given = dict(zip(case.get("shared", []), shared, strict=True))
    (m, k, n), group = case["shape"], case.get("b_group", 0)
    chunk, segments = case["spec"].get("chunk", 128), case["spec"].get("segments", 1)
    part = -(-k // (segments * chunk)) * chunk
    scales, zeros = given.get("b_scale"), given.get("b_zero_point")
    out = np.empty((m, n), np.float32)
    for i, j in itertools.product(range(m), range(n)):
        left, right = ([Fraction(float(v)) for v in x] for x in (a[i], b[:, j]))
        if zeros is not None:
            right = [v - int(zeros[p // group, j]) for p, v in enumerate(right)]
        sums = []
        for s in range(segments):
            total = Fraction(0)
            for low in range(s * part, min((s + 1) * part, k), chunk):
                high = min(low + chunk, (s + 1) * part, k)
                acc = d = Fraction(0)
                for p in range(low, high):
                    d = nearest(left[p] * right[p] + d)
                    if scales is not None and ((p + 1) % group == 0 or p + 1 == high):
                        acc, d = nearest(d * Fraction(float(scales[p // group, j])) + acc), Fraction(0)
                total = nearest(total + (d if scales is None else acc))
            sums.append(total)
        while len(sums) > 1:
            sums = [nearest(x + y) for x, y in zip(sums[::2], sums[1::2], strict=True)]
        if "a_scale" in given:
            sums[0] = nearest(sums[0] * Fraction(float(given["a_scale"][i])))
        if "b_scale by column" in given:
            sums[0] = nearest(sums[0] * Fraction(float(given["b_scale by column"][j])))
        out[i, j] = float(sums[0])
    return out


PRODUCTS = [
    case
    for case in WRITTEN
    if case["operation"] == "matmul"
    and case.get("out_dtype", "float32") == "float32"
    and "options" not in case
    and "int8" not in case.get("dtypes", [])[:1]
    and "float64" not in case.get("dtypes", [])
    and np.prod(case["shape"], dtype=np.int64) < 60000
]  # fmt: skip


@pytest.mark.parametrize("case", PRODUCTS, ids=lambda c: str(c["seed"]))
def test_fractions_give_the_digests_of_products(case):
    assert conformance.digest(by_the_page(case)) == case["digest"]


def test_a_chain_beyond_2_24_units_is_no_exact_sum_rounded_once():
    """The case can tell the two apart: every chunk here is one block, and float64 holds its sum of units of 2^-8."""
    (case,) = (case for case in WRITTEN if case.get("positive"))
    a, b, scale = conformance.inputs(case)
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for i, low in enumerate(range(0, len(b), case["b_group"])):
        block = slice(low, low + case["b_group"])
        exact = a[:, block].astype(np.float64) @ b[block].astype(np.float64)
        assert (exact * 2.0**8 % 1 == 0).all()
        assert i or exact.min() * 2.0**8 > 1 << 24
        total = total + exact.astype(np.float32) * scale[i]
    assert (total != conformance.answer(case)).any()


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
