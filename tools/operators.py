"""Write docs/operators.md: every ONNX operator, the opsets that are done, the element formats, what is refused and why,
and where ONNX Runtime gives other answers (tests/onnx_differences.py).

    python tools/operators.py

The formats are tried: a case of each operator (tests/onnx_cases.py) is loaded and planned with each element type that
ONNX allows for its first operand. Start at `page`.
"""

from __future__ import annotations

import importlib
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

from samebits import onnx as front_end
from samebits.dtypes import DType
from samebits.errors import SamebitsError
from samebits.onnx import loading, refused
from samebits.onnx.proto import DTYPES
from samebits.onnx.row import LATEST, OnnxRow
from samebits.runtime import cpu

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
_cases: Any = importlib.import_module("onnx_cases")
CASES, EDGES, OPSETS = _cases.CASES, _cases.EDGES, _cases.OPSETS
DIFFERENCES: Any = importlib.import_module("onnx_differences").DIFFERENCES

__all__ = ["PAGE", "page"]

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "operators.md"

_HEAD = """# ONNX operators

Written by `python tools/operators.py` from the rows of `samebits.onnx` and the schemas of onnx {version}. The formats
are those of the first operand that may have several: with which of them, of those that ONNX allows, a case of the
operator loads and plans. What is not done is refused by name when a model is loaded;
[how-to-add-an-op.md](how-to-add-an-op.md) says how to change that. Of the {all} operators of the default domain {done}
have rows.

Extents that are open in a model and must not be, such as the rows and columns of images,
`load(model, bindings={{"H": 224}})` fixes; the command does it by `--set H=224`.

## Done
| operator | opsets | formats | not done |
|---|---|---|---|
"""
_DOMAINS = """
## Of other domains
| operator | domain | versions | formats | not done |
|---|---|---|---|---|
"""
_QUANTISED = """
Models that `onnxruntime.quantization.quantize_static` writes with `QuantFormat.QOperator` multiply integers. With
`QuantFormat.QDQ` they are operators of float32 between DequantizeLinear and QuantizeLinear, and are computed as that:
sums of integers would have other bits. So they take the time of float32, and a model that is to be fast is better
written with `QOperator`.
"""
_REFUSED = """
## Refused
| operator | why |
|---|---|
"""
_DIFFERENCES = """
## Where this differs from ONNX Runtime
| operator | where | here | ONNX Runtime | the standard |
|---|---|---|---|---|
"""
_GROUPS = {
    "integers of 8 to 64 bits": ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    "float8": ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    "integers of 2 and 4 bits": ("int2", "int4", "uint2", "uint4"),
}

# Formats of the first operand, of operators whose schemas the package onnx has not.
_OF_DOMAINS = {"MatMulNBits": "float32, float16, bfloat16"}
_BYTES = "int8, uint8"
# Cases tried with each format.
_MOST = 4
_Trial = tuple[list[Any], dict[str, Any], tuple[int, ...], int]


def page() -> str:
    """The whole page."""
    names = sorted({schema.name for schema in defs.get_all_schemas() if not schema.domain})
    rows: dict[str, list[OnnxRow]] = {}
    for row in loading.ROWS:
        if not row.domain:
            rows.setdefault(row.op, []).append(row)
    text = _HEAD.format(version=onnx.__version__, all=len(names), done=len(rows))
    for op, found in sorted(rows.items()):
        limits = "; ".join(dict.fromkeys(row.limits for row in found if row.limits))
        text += f"| {op} | {_opsets(found)} | {_named(_formats(op, found[-1]))} | {limits} |\n"
    text += _DOMAINS
    for row in sorted(loading.ROWS, key=lambda row: row.op):
        if row.domain:
            text += f"| {row.op} | {row.domain} | {row.since} | {_OF_DOMAINS.get(row.op, _BYTES)} | {row.limits} |\n"
    text += _QUANTISED + _DIFFERENCES
    for each in DIFFERENCES:
        text += f"| {each.op} | {each.when} | {each.ours} | {each.theirs} | {each.standard} |\n"
    return text + _REFUSED + "".join(f"| {op} | {refused.REASONS[op]} |\n" for op in names if op not in rows)


def _opsets(rows: Sequence[OnnxRow]) -> str:
    """The opsets of all rows, and the first that ONNX has if it is another."""
    first, last = min(row.since for row in rows), max(row.until for row in rows)
    known = min(s.since_version for s in defs.get_all_schemas_with_history() if s.name == rows[0].op and not s.domain)
    ends = f"{first} on" if last == LATEST else f"{first} to {last}"
    return ends + (f" (ONNX: {known} on)" if known < first else "")


def _formats(op: str, row: OnnxRow) -> list[DType]:
    """The formats with which the newest row of an operator is planned."""
    schema = defs.get_schema(op, min(row.until, defs.onnx_opset_version()))
    if not schema.inputs:
        return list(DTYPES.values())
    kinds = list(dict.fromkeys(each.type_str for each in schema.inputs))
    kind = next((each for each in kinds if len(_allowed(schema, each)) > 1), kinds[0])
    trials = list(_trials(op, row))[:_MOST]
    return [
        dtype
        for dtype in _allowed(schema, kind)
        if any(_is_planned(op, schema, trial, kind, dtype) for trial in trials)
    ]


def _trials(op: str, row: OnnxRow) -> Iterator[_Trial]:
    """Operands, attributes, fixed operands and the number of outputs of cases that are the row's."""
    for arrays, attributes, fixed, outputs, opset in [
        *[(*case[1:], OPSETS.get(name, 19)) for name, case in CASES.items() if case[0] == op],
        *[edge[1:] for edge in EDGES if edge[0] == op],
    ]:
        if row.since <= opset <= row.until:
            yield [np.asarray(x) for x in arrays], attributes, fixed, outputs


def _allowed(schema: defs.OpSchema, kind: str) -> list[DType]:
    """The formats of a type variable of the schema that have rows here, in their own order."""
    texts = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == kind), [kind])
    numbers = {TensorProto.DataType.Value(x[7:-1].upper()) for x in texts if x.startswith("tensor(") and "_" not in x}
    return [dtype for number, dtype in DTYPES.items() if number in numbers]


def _is_planned(op: str, schema: defs.OpSchema, trial: _Trial, kind: str, dtype: DType) -> bool:
    """Whether the case loads and plans with this format where the schema says `kind`."""
    arrays, attributes, fixed, outputs = trial
    kinds = [schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i in range(len(arrays))]
    given = [x.astype(dtype.numpy) if own == kind else x for x, own in zip(arrays, kinds, strict=True)]
    names = [f"x{i}" for i in range(len(given))]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for i, (name, x) in enumerate(zip(names, given, strict=True))
        if i not in fixed
    ]
    made = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, made, **attributes)],
        op,
        inputs,
        [helper.make_empty_tensor_value_info(name) for name in made],
        [numpy_helper.from_array(given[i], names[i]) for i in fixed],
    )
    opset = helper.make_opsetid("", min(LATEST, defs.onnx_opset_version()))
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[opset]))
    for value in model.graph.output:  # inference does not look into all functions
        if not value.type.tensor_type.elem_type:
            value.type.tensor_type.elem_type = dtype.onnx
    try:
        list(cpu.prepare(front_end.load(model), threads=1).plans({}))
    except SamebitsError:
        return False
    return True


def _named(formats: Sequence[DType]) -> str:
    """Their names; of groups that are taken whole the name of the group."""
    names = [dtype.name for dtype in formats]
    if len(names) == len(DTYPES):
        return "all"
    for group, members in _GROUPS.items():
        if set(members) <= set(names):
            names = [group if name == members[0] else name for name in names if name not in members[1:]]
    return ", ".join(names)


def main() -> int:
    """Write the page."""
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
