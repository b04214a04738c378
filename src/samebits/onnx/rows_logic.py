"""ONNX operators that compare, choose, join truth values or treat integers as bits. Start at `ROWS`."""

from __future__ import annotations

from collections.abc import Sequence

from samebits import dtypes
from samebits.kernels.expression import Chain
from samebits.onnx.row import Attribute, NodeCall, OnnxRow, Unsupported, applied

__all__ = ["ROWS"]


def _is_infinite(call: NodeCall) -> Sequence[str]:
    """x == inf, x == -inf, either or neither."""
    chain = Chain()
    x = chain.input(call.fact(0).dtype)
    signs = [sign for name, sign in _SIGNS.items() if call.attributes[name]]
    magnitude = chain.apply("abs", x) if len(signs) != 1 else x
    limit = (signs[0] if len(signs) == 1 else 1) * float("inf")
    # A magnitude is never -inf: where neither sign is asked for, nothing is found.
    found = chain.apply("equal", magnitude, chain.constant(limit if signs else float("-inf"), x.dtype))
    return call.b.map(chain.finish(found), call[0])


_SIGNS = {"detect_positive": 1.0, "detect_negative": -1.0}


def _shift(call: NodeCall) -> Sequence[str]:
    """The direction is an attribute."""
    direction = "shift_left" if call.attributes["direction"] == "LEFT" else "shift_right"
    return (call.b.apply(direction, call[0], call[1]),)


def _bit_cast(call: NodeCall) -> Sequence[str]:
    """The same bits as another format of the same width."""
    target, dtype = call.element_type("to"), call.fact(0).dtype
    if target.width_bits != dtype.width_bits:
        widths = f"{dtype.width_bits} bits of {dtype.name} are not the {target.width_bits} of {target.name}"
        raise Unsupported(widths)
    if "bool" in (target.kind, dtype.kind) and target is not dtype:
        raise Unsupported("a truth value has no bits of its own")
    return (call[0] if target is dtype else call.b.apply("bitcast", call[0], cast_to=target),)


def _trilu(call: NodeCall) -> Sequence[str]:
    """Zero below the k-th diagonal of each matrix, or above it."""
    b, fact = call.b, call.fact(0)
    if fact.rank < 2:
        raise Unsupported(f"input 0 has {fact.rank} axes, must be matrices")
    k = call.single(1, dtypes.int64) if call.optional(1) is not None else b.scalar(0, dtypes.int64)
    rows, columns = (call.numbered(size) for size in fact.shape[-2:])
    diagonal = b.apply("sub", columns, b.reshape(rows, (fact.shape[-2], 1)))
    inside = b.apply("greater_equal" if call.attributes["upper"] else "less_equal", diagonal, k)
    return (b.apply("where", inside, call[0], b.scalar(0, fact.dtype)),)


def _eye(call: NodeCall) -> Sequence[str]:
    """1 on the k-th diagonal, 0 elsewhere, in the shape of input 0."""
    b, fact = call.b, call.fact(0)
    if fact.rank != 2:
        raise Unsupported(f"input 0 has {fact.rank} axes, not 2")
    target = fact.dtype if call.attributes["dtype"] is None else call.element_type("dtype")
    rows, columns = (call.numbered(size) for size in fact.shape)
    diagonal = b.apply("sub", columns, b.reshape(rows, (fact.shape[0], 1)))
    inside = b.apply("equal", diagonal, b.scalar(call.attributes["k"], dtypes.int64))
    return (b.apply("where", inside, b.scalar(1, target), b.scalar(0, target)),)


def _one_hot(call: NodeCall) -> Sequence[str]:
    """values[1] where a place on the new axis is the index, values[0] elsewhere; indices count from the end too."""
    b, fact, depth = call.b, call.fact(0), call.integer(1)
    if fact.dtype not in (dtypes.int32, dtypes.int64):
        raise Unsupported(f"indices are {fact.dtype.name}, must be int32 or int64")
    axis = call.check_axis(call.attributes["axis"], fact.rank + 1)
    shape = (*fact.shape[:axis], 1, *fact.shape[axis:])
    indices = b.reshape(call.converted(call[0], dtypes.int64), shape)
    places = b.reshape(call.numbered(depth), (depth, *[1] * (fact.rank - axis)))
    # What is outside [-depth, depth) is no place, from whichever end it is counted.
    behind = b.apply("equal", b.apply("add", indices, b.dims((depth,), scalar=True)), places)
    found = b.apply("logical_or", b.apply("equal", indices, places), behind)
    off, on = (b.reshape(b.slice(call[2], (i,), (1,), (1,)), ()) for i in range(2))
    return (b.apply("where", found, on, off),)


_FLAG = (0, 1)

ROWS: tuple[OnnxRow, ...] = (
    *(
        OnnxRow(op, since, applied(name), inputs=2)
        for op, name, since in (
            ("Equal", "equal", 7),
            ("Less", "less", 7),
            ("Greater", "greater", 7),
            ("LessOrEqual", "less_equal", 12),
            ("GreaterOrEqual", "greater_equal", 12),
            ("And", "logical_and", 7),
            ("Or", "logical_or", 7),
            ("Xor", "logical_xor", 7),
            ("BitwiseAnd", "bit_and", 18),
            ("BitwiseOr", "bit_or", 18),
            ("BitwiseXor", "bit_xor", 18),
        )
    ),
    OnnxRow("Not", 1, applied("logical_not")),
    OnnxRow("BitwiseNot", 18, applied("bit_not")),
    OnnxRow("IsNaN", 9, applied("is_nan")),
    OnnxRow("Where", 9, applied("where"), inputs=3),
    OnnxRow("IsInf", 10, _is_infinite, tuple(Attribute(name, 1, allowed=_FLAG) for name in _SIGNS)),
    OnnxRow("BitShift", 11, _shift, (Attribute("direction", kind="string", allowed=("LEFT", "RIGHT")),), 2),
    OnnxRow("BitCast", 26, _bit_cast, (Attribute("to"),), limits="truth values; formats of less than a byte"),
    OnnxRow("Trilu", 14, _trilu, (Attribute("upper", 1, allowed=_FLAG),), 2),
    OnnxRow("EyeLike", 9, _eye, (Attribute("dtype", None), Attribute("k", 0))),
    OnnxRow("OneHot", 9, _one_hot, (Attribute("axis", -1),), 3, limits="a depth that depends on data"),
)
