"""The matrix's tool: a crossing between frameworks of the test extra, and what the page says of them."""

import pathlib
import re

import exchange_matrix
import pytest

from samebits.doctor import frameworks

PAGE = (pathlib.Path(__file__).parent.parent.parent / "docs" / "exchange-matrix.md").read_text()


@pytest.fixture(scope="module")
def crossings():
    modules = exchange_matrix.loaded(["numpy", "ml_dtypes", "torch", "onnxruntime"])
    found = [item for name in modules for item in exchange_matrix.crossings(name, modules, [["float32", "torch"]])]
    return {(one.dtype, one.producer, one.consumer): one for one in found if not isinstance(one, list)}


@pytest.mark.parametrize(
    ("dtype", "producer", "consumer", "outcome", "alone"),
    [
        ("int16", "numpy", "onnxruntime", "zero-copy", "zero-copy"),
        ("bfloat16", "torch", "ml_dtypes", "zero-copy", None),
        ("bfloat16", "torch", "numpy", "bytes", None),
        ("float8_e8m0fnu", "ml_dtypes", "onnxruntime", "zero-copy", "refused"),
        ("float4_e2m1fn", "torch", "torch", "zero-copy", "zero-copy"),
        ("float4_e2m1fn", "onnxruntime", "torch", "zero-copy", "refused"),
        ("float4_e2m1fn", "ml_dtypes", "torch", "copy", "refused"),
        ("bool", "onnxruntime", "numpy", "zero-copy", "relabelled"),
        ("int4", "torch", "ml_dtypes", "zero-copy", "relabelled"),
        ("float6_e2m3fn", "torch", "numpy", "none", "none"),
        ("float32", "numpy", "torch", "zero-copy", "crashed"),
    ],
)
def test_crossings(crossings, dtype, producer, consumer, outcome, alone):
    one = crossings[dtype, producer, consumer]
    assert one.outcome == outcome, one.reason
    assert alone is None or one.alone == alone


def test_every_crossing_between_holders_keeps_the_format(crossings):
    lost = [one for one in crossings.values() if one.outcome in ("refused", "relabelled", "wrong")]
    assert lost == []


def test_the_page_has_every_framework_and_lost_nothing():
    sections = re.findall(r"<!-- matrix:(\S+):start -->(.*?)<!-- matrix:\1:end -->", PAGE, re.S)
    assert [name for name, _ in sections] == ["numpy-2.4", "numpy-2.5"]
    for row in frameworks.ROWS:
        assert f"{row.name} " in sections[0][1]
        assert f"({exchange_matrix.LETTERS[row.name]})" in sections[0][1]
    for _, text in sections:
        kept, of = re.search(r"Through samebits, where both hold the format: (\d+) of (\d+) kept", text).groups()
        assert kept == of
        assert "not kept:" not in text
