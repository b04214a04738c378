"""From an ONNX model to a Program; what cannot be done is said at once, for every node.

Start at `load`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samebits import driver
from samebits.collecting import without_collections
from samebits.errors import DTypeError, ModelError, OptionError, PlanError, ShapeError, UnsupportedModelError, shown
from samebits.kernels.gemm.contraction import SB1, Spec, check_spec
from samebits.onnx import (
    proto,
    refused,
    rows_compute,
    rows_convolve,
    rows_einsum,
    rows_layer,
    rows_logic,
    rows_move,
    rows_product,
    rows_qlinear,
    rows_quantize,
    rows_recurrent,
    rows_reduce,
    rows_resize,
    rows_shape,
    rows_transposed,
    rows_weights,
    rows_window,
)
from samebits.onnx.row import REQUIRED, NodeCall, OnnxRow, OpenExtent, Unsupported
from samebits.operations import dim
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program
from samebits.program.spec import by_spec
from samebits.shapes import check_size

__all__ = ["ROWS", "load", "load_bound"]

ROWS: tuple[OnnxRow, ...] = (
    *rows_compute.ROWS,
    *rows_product.ROWS,
    *rows_einsum.ROWS,
    *rows_logic.ROWS,
    *rows_reduce.ROWS,
    *rows_quantize.ROWS,
    *rows_shape.ROWS,
    *rows_move.ROWS,
    *rows_window.ROWS,
    *rows_convolve.ROWS,
    *rows_transposed.ROWS,
    *rows_resize.ROWS,
    *rows_recurrent.ROWS,
    *rows_layer.ROWS,
    *rows_weights.ROWS,
    *rows_qlinear.ROWS,
)


@without_collections
@driver.default_float_environment()
def load(source: object, *, bindings: Mapping[str, int] | None = None, spec: Spec = SB1) -> Program:
    """The program of an ONNX model, typed, shape arithmetic folded.

    Args:
        source: A path, bytes, a binary file or an `onnx.ModelProto`.
        bindings: Sizes of symbols in the shapes of inputs; they are fixed in the program.
        spec: The order of every sum of products of floats; the program's digest has it, where it is not sb1.

    Raises:
        UnsupportedModelError: Nodes ask for what is not there; the text lists every one with its reason.
        ModelError: It is no model, or a malformed one.
        OptionError: `spec` is no Spec; a symbol that is bound is none of the inputs', or bound to what is no size.
    """
    check_spec("load", spec)
    model = proto.read(source)
    if "" not in model.opsets:
        what, found = f"model {model.name!r}", dict(model.opsets)
        raise UnsupportedModelError("load", what, "opsets", found, "one of ai.onnx", "use its operators")
    b = ProgramBuilder(model.name)
    values: dict[str, str | None] = {"": None}
    bound = _bound(model, bindings)
    for value in model.inputs:
        if value.shape is None:
            raise ModelError(
                "load", f"input {value.name!r}", "rank", "unknown", "given in the model", "export it with a shape"
            )
        shape = tuple(dim.bind(size, bound) if dim.symbols(size) <= bound.keys() else size for size in value.shape)
        values[value.name] = b.input(value.name, value.dtype, shape)
    for name, array in model.initializers.items():
        values[name] = b.constant(array, name)
    _lower(model, b, values)
    outputs: dict[str, str] = {}
    for value in model.outputs:
        made = values.get(value.name)
        if made is None:  # nothing, or the empty name of what is left out
            raise ModelError("load", f"output {value.name!r}", "", "made by no node", "made by one", "export it again")
        dtype = b.facts[made].dtype
        if dtype is not value.dtype:
            what = f"output {value.name!r}"
            raise ModelError("load", what, "dtype", dtype.name, value.dtype.name, "export it again")
        outputs[value.name] = made
    return by_spec(b.build(outputs, {name: made for name, made in values.items() if made is not None}), spec)


def load_bound(source: object, bindings: Mapping[str, int], *, spec: Spec = SB1) -> tuple[Program, bool]:
    """The program, and whether bindings are fixed in it: they are where it cannot be without them.

    Args:    source: as `load`, but no file that is read once.
    Raises:  as `load`.
    """
    try:
        return load(source, spec=spec), False
    except UnsupportedModelError:
        if not bindings:
            raise
    return load(source, bindings=bindings, spec=spec), True


def _bound(model: proto.Model, bindings: object) -> dict[str, int]:
    """The sizes of symbols that are given."""
    if bindings is None:
        return {}
    remedy = "write {'H': 224} for a symbol H"
    if not isinstance(bindings, Mapping):
        actual, expected = type(bindings).__name__, "a mapping from symbols to sizes"
        raise OptionError("load", "bindings", "", actual, expected, remedy)
    known = [name for value in model.inputs for size in value.shape or () for name in sorted(dim.symbols(size))]
    for name in bindings:
        if name not in known:
            expected = f"one of {list(dict.fromkeys(known))}" if known else "left out: the model has no symbol"
            raise OptionError("load", "bindings", "symbol", shown(name), expected, "remove or rename it")
    return {name: check_size("load", f"symbol {name!r}", size, remedy) for name, size in bindings.items()}


def _lower(model: proto.Model, b: ProgramBuilder, values: dict[str, str | None]) -> None:
    """Add every node; collect what is not supported."""
    problems: list[str] = []
    failed: set[str] = set()
    open_symbols: dict[str, None] = {}
    rows: dict[tuple[str, str], list[OnnxRow]] = {}
    for each in ROWS:
        rows.setdefault((each.domain, each.op), []).append(each)
    for node in model.nodes:
        opset = model.opsets.get(node.domain, 0)
        reason = None
        try:
            row = _row(node, opset, rows.get((node.domain, node.op), []))
            attributes = _attributes(node, row, opset)
            if len(node.inputs) > row.inputs:
                raise Unsupported(f"{len(node.inputs)} inputs are given, it takes at most {row.inputs}")
            if failed.isdisjoint(node.inputs):
                _add(b, NodeCall(b, node, opset, _operands(node, values), attributes), row, values)
                continue
        except (Unsupported, DTypeError, OptionError, PlanError, ShapeError) as error:
            reason = str(error)
            if isinstance(error, OpenExtent):
                open_symbols |= dict.fromkeys(error.symbols)
        failed.update(node.outputs)
        if reason is not None:
            op = f"{node.domain}.{node.op}" if node.domain else node.op
            problems.append(f"node {node.name!r}, {op if op.isprintable() else repr(op)} of opset {opset}: {reason}")
    if problems:
        nodes = "node" if len(problems) == 1 else "nodes"
        what, expected = f"unsupported in {len(problems)} {nodes}", "made of rows of samebits.onnx"
        remedy = "replace it (docs/operators.md lists what is done), or add a row (docs/how-to-add-an-op.md)"
        if open_symbols:
            given = ", ".join(f"{name!r}: size" for name in open_symbols)
            remedy = f"pass bindings={{{given}}} (--set {next(iter(open_symbols))}=SIZE), or {remedy}"
        raise UnsupportedModelError("load", f"model {model.name!r}", "", what, expected, remedy, tuple(problems))


def _row(node: proto.ModelNode, opset: int, rows: Sequence[OnnxRow]) -> OnnxRow:
    """The row of a node, among those of its operator."""
    if not rows:
        raise Unsupported(refused.reason(node.op, node.domain))
    for row in rows:
        if row.since <= opset <= row.until:
            return row
    ranges = " and ".join(f"{row.since} to {row.until}" for row in rows)
    raise Unsupported(f"opset {opset} is outside {ranges}")


def _attributes(node: proto.ModelNode, row: OnnxRow, opset: int) -> dict[str, object]:
    """The row's attributes with their values in this node."""
    if not row.attributes and not node.attributes:
        return {}
    known = {a.name: a for a in row.attributes if a.since <= opset <= a.until}
    values = {a.name: a.default for a in row.attributes}
    for name, (kind, value) in node.attributes.items():
        if name not in known:
            raise Unsupported(f"attribute {name!r} is unknown")
        if kind != known[name].kind:
            raise Unsupported(f"attribute {name!r} is of {kind}, must be of {known[name].kind}")
        allowed = known[name].allowed
        if allowed is not None and value not in allowed:
            raise Unsupported(f"attribute {name!r} is {value!r}, must be one of {list(allowed)}")
        values[name] = value
    for name, value in values.items():
        if value is REQUIRED:
            raise Unsupported(f"attribute {name!r} is missing")
    return values


def _operands(node: proto.ModelNode, values: dict[str, str | None]) -> tuple[str | None, ...]:
    for name in node.inputs:
        if name not in values:
            what, remedy = f"input {name!r} of node {node.name!r}", "sort the nodes of the model"
            raise ModelError("load", what, "", "made by no earlier node", "made by one", remedy)
    return tuple(values[name] for name in node.inputs)


def _add(b: ProgramBuilder, call: NodeCall, row: OnnxRow, values: dict[str, str | None]) -> None:
    b.origin = (call.node.name,)
    made = row.lower(call)
    wanted = [name for name in call.node.outputs if name]
    if len(call.node.outputs) > len(made):
        raise Unsupported(f"output {len(made)} ({call.node.outputs[len(made)]!r}) is not done")
    for name, value in zip(call.node.outputs, made, strict=False):
        if name in values and name in wanted:
            raise ModelError("load", f"value {name!r}", "", "made twice", "made once", "rename one")
        if name:
            values[name] = value
