"""A program's products follow the spec that is asked for, in a session, by the references and in a second process."""

from __future__ import annotations

import pathlib

import models
import numpy as np
import pytest

import samebits as sb
from samebits import dtypes, onnx
from samebits.errors import OptionError
from samebits.kernels.gemm import reference
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program
from samebits.program.spec import by_spec
from samebits.runtime import cpu

SPEC = sb.Spec(64, order="pairs32")
X, W = (np.random.default_rng(i).standard_normal(shape).astype("f4") for i, shape in enumerate(((4, 100), (100, 7))))


def product() -> Program:
    p = ProgramBuilder("product")
    y = p.contract(p.input("x", dtypes.float32, (4, 100)), p.constant(W, "w"))
    return p.build({"y": y})


def test_products_have_the_bits_of_the_spec() -> None:
    program = by_spec(product(), SPEC)
    found = cpu.prepare(program).run({"x": X})["y"]
    assert np.array_equal(found.view("u4"), reference(X, W, spec=SPEC).view("u4"))
    assert not np.array_equal(found, cpu.prepare(product()).run({"x": X})["y"])


def test_the_digest_says_the_order() -> None:
    program = product()
    assert by_spec(program, sb.Spec()) is program
    digests = {by_spec(program, spec).digest() for spec in (sb.Spec(), SPEC, sb.Spec(64), sb.Spec(order="pairs32"))}
    assert len(digests) == 4
    assert by_spec(program, SPEC).transforms == ("by_spec Spec(chunk=64, segments=1, order='pairs32')",)


def test_models_take_it_everywhere(tmp_path: pathlib.Path) -> None:
    path = models.classifier(tmp_path / "model.onnx")
    program = onnx.load(path, spec=SPEC)
    (name,) = program.inputs
    given = {name: np.random.default_rng(5).standard_normal((3, 70)).astype("f4")}
    found = sb.load(path, spec=SPEC).run(given)
    assert all(np.array_equal(x, found[key]) for key, x in cpu.prepare(program).run(given).items())
    report = sb.verify(path, spec=SPEC, most_elements=1 << 14)
    assert report.exit_code != 1  # which says that bits differ
    assert any(row.axis == "process" for row in report.configurations)


@pytest.mark.parametrize("function", [onnx.load, sb.load, sb.verify])
def test_what_is_no_spec_is_refused(function: object) -> None:
    with pytest.raises(OptionError) as caught:
        function(b"", spec="pairs32")  # type: ignore[operator]
    assert str(caught.value).endswith("spec is 'pairs32', must be a Spec; leave it out for sb1")
