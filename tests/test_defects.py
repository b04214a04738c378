"""A defect of ours reaches the caller as itself: nothing between a model and its answer takes it for bad input."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import protos
import pytest
from onnx import helper

from samebits import files, onnx
from samebits.onnx import loading, proto
from samebits.operations import registry
from samebits.ops import call
from samebits.program import builder, transform
from samebits.runtime import cpu, inputs, lowering, specialised

KINDS = [KeyError, ValueError, TypeError, IndexError, AttributeError, ZeroDivisionError, OverflowError, AssertionError]
X = np.ones((2, 3), np.float32)


def proto_of_two() -> Any:
    """y = reshape(relu(x @ w), [-1])."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("Reshape", ["r", "s"], ["y"]),
    ]
    constants = {"w": np.ones((3, 2), np.float32), "s": np.array([-1])}
    ends = protos.value("x", np.float32, ["n", 3]), protos.value("y", np.float32, ["m"])
    return protos.model(nodes, [ends[0]], [ends[1]], constants)


def replace_row(monkeypatch: pytest.MonkeyPatch, name: str, **changes: Any) -> None:
    """One primitive with another meaning."""
    monkeypatch.setitem(registry.ROWS, name, dataclasses.replace(registry.ROWS[name], **changes))


def onnx_row(monkeypatch: pytest.MonkeyPatch, fail: Callable[..., Any]) -> None:
    rows = tuple(dataclasses.replace(row, lower=fail) if row.op == "Relu" else row for row in loading.ROWS)
    monkeypatch.setattr(loading, "ROWS", rows)


# Where the defect is put, by the stage that meets it.
LOAD: dict[str, Callable[[pytest.MonkeyPatch, Callable[..., Any]], None]] = {
    "a tensor's elements": lambda m, fail: m.setattr(proto, "_check_size", fail),
    "a value's type": lambda m, fail: m.setattr(proto, "_dtype", fail),
    "a node": lambda m, fail: m.setattr(proto, "_attributes", fail),
    "a row's lowering": onnx_row,
    "a row's attributes": lambda m, fail: m.setattr(loading, "_attributes", fail),
    "operands": lambda m, fail: m.setattr(loading, "_operands", fail),
    "inference": lambda m, fail: replace_row(m, "contract", infer=fail),
    "known integers": lambda m, fail: m.setattr(builder.integers, "propagate", fail),
    "the end": lambda m, fail: m.setattr(builder.ProgramBuilder, "build", fail),
}
PREPARE: dict[str, Callable[[pytest.MonkeyPatch, Callable[..., Any]], None]] = {
    "a transform": lambda m, fail: m.setattr(
        cpu, "ROWS", (dataclasses.replace(transform.ROWS[0], run=fail), *transform.ROWS[1:])
    ),
}
RUN: dict[str, Callable[[pytest.MonkeyPatch, Callable[..., Any]], None]] = {
    "names": lambda m, fail: m.setattr(inputs, "check_names", fail),
    "an input": lambda m, fail: m.setattr(call, "as_tensor", fail),
    "symbols": lambda m, fail: m.setattr(inputs, "bind_symbols", fail),
    "inference": lambda m, fail: replace_row(m, "contract", infer=fail),
    "planning": lambda m, fail: replace_row(m, "contract", plan=fail),
    "places": lambda m, fail: m.setattr(lowering.Lowerer, "finish", fail),
    "the table": lambda m, fail: m.setattr(specialised, "Table", fail),
    "what runs": lambda m, fail: m.setattr(specialised.Specialised, "_run", fail),
}


def failing(kind: type[Exception]) -> tuple[Exception, Callable[..., Any]]:
    """An exception, and what raises it."""
    defect = kind("a defect of ours")

    def fail(*_: object, **__: object) -> Any:
        raise defect

    return defect, fail


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", LOAD)
def test_a_defect_in_loading(where: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    model = proto_of_two().SerializeToString()
    defect, fail = failing(kind)
    LOAD[where](monkeypatch, fail)
    with pytest.raises(kind) as error:
        cpu.load(model)
    assert error.value is defect


@pytest.mark.parametrize("kind", KINDS)
def test_a_defect_in_reading_a_file(kind: type[Exception], monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    defect, fail = failing(kind)
    monkeypatch.setattr(files, "check_kind", fail)
    with pytest.raises(kind) as error:
        cpu.load(tmp_path / "m.onnx")
    assert error.value is defect


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", PREPARE)
def test_a_defect_in_preparing(where: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    program = onnx.load(proto_of_two())
    defect, fail = failing(kind)
    PREPARE[where](monkeypatch, fail)
    with pytest.raises(kind) as error:
        cpu.prepare(program)
    assert error.value is defect


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", RUN)
def test_a_defect_in_running(where: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    session = cpu.prepare(onnx.load(proto_of_two()))
    defect, fail = failing(kind)
    RUN[where](monkeypatch, fail)
    given = {} if where == "names" else {"x": X.tolist()} if where == "an input" else {"x": X}
    with pytest.raises(kind) as error:
        session.run(given)
    assert error.value is defect
