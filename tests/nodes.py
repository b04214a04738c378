"""Every public function that computes as nodes of a program: the same arguments, values by name in place of arrays.

`NODES` says for each function how a front end would build it. Start there; a function that is no node is in `EAGER`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from samebits import dtypes
from samebits.conversions import PRESETS, Conversion
from samebits.kernels import activations, arithmetic, composites
from samebits.kernels.expression import Expression
from samebits.kernels.gemm.contraction import SB1
from samebits.kernels.random import Distribution, Random
from samebits.operations import picks
from samebits.operations.moves import AxisGather, Concat
from samebits.operations.picks import SortedPlaces
from samebits.operations.product import Options
from samebits.operations.random import Drawn
from samebits.operations.scans import Along
from samebits.program import blocks
from samebits.program.builder import ProgramBuilder

# The row of `functions.ROWS` behind each function of one element each.
ELEMENTS = {
    "abs": "abs", "add": "add", "bitwise_and": "bit_and", "bitwise_invert": "bit_not",
    "bitwise_left_shift": "shift_left", "bitwise_or": "bit_or", "bitwise_right_shift": "shift_right",
    "bitwise_xor": "bit_xor", "ceil": "ceil", "cos": "cos", "divide": "div", "equal": "equal", "erf": "erf",
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "floor": "floor", "fma": "fma", "fmod": "fmod", "gcd": "gcd",
    "greater": "greater", "greater_equal": "greater_equal", "isfinite": "is_finite", "isinf": "is_infinite",
    "isnan": "is_nan", "less": "less", "less_equal": "less_equal", "log": "log", "log10": "log10", "log1p": "log1p",
    "log2": "log2", "logical_and": "logical_and", "logical_not": "logical_not", "logical_or": "logical_or",
    "logical_xor": "logical_xor", "maximum": "maximum", "minimum": "minimum", "multiply": "mul", "negative": "neg",
    "nextafter": "next_after", "not_equal": "not_equal", "pow": "pow", "quotient": "quotient",
    "reciprocal": "reciprocal", "remainder": "mod", "round": "rint", "sigmoid": "sigmoid", "sign": "sign",
    "signbit": "sign_bit", "sin": "sin", "sqrt": "sqrt", "subtract": "sub", "tanh": "tanh", "trunc": "trunc",
}  # fmt: skip
# The expression behind each that is several rows.
COMPOSED = {
    name: getattr(arithmetic, name)
    for name in ("addcmul", "clip", "floor_divide", "frac", "lerp", "rsqrt", "square", "threshold")
}
# What a program has no node for, and why.
EAGER = {
    "block_formats": "names block formats",
    "compile_exchange": "sets up code for exchange",
    "decode_gguf": "takes bytes of a file",
    "dequantize": "takes a Quantized; tests/program/test_blocks.py has what a program does",
    "dialects": "names dialects",
    "dtype": "names an element format",
    "from_awq": "makes a Quantized",
    "from_gptq": "makes a Quantized",
    "hadamard": "is a product with a constant matrix, as a program has it",
    "isas": "names Isa rows",
    "load": "makes a session",
    "normal": "has no array among its operands; tests/ops/test_random.py has its node",
    "prepare": "makes a session",
    "quantize": "makes a Quantized; tests/program/test_blocks.py has its row",
    "report": "compares a Quantized with what it was made of",
    "scales_from_tiles": "takes bytes of another layout",
    "uniform": "has no array among its operands; tests/ops/test_random.py has its node",
    "use_isa": "chooses an Isa row",
    "verify": "tries a program",
}
Value = str
Shape = tuple[int, ...]


def _shape(p: ProgramBuilder, x: Value) -> Shape:
    return p.facts[x].shape  # type: ignore[return-value]  # these programs have no symbols


def _number(p: ProgramBuilder, x: Any, dtype: dtypes.DType) -> Value:
    """A value, or a number as one."""
    return x if isinstance(x, str) else p.scalar(x, dtype)


def _element(op: str) -> Callable[..., Value]:
    return lambda p, *operands: p.apply(op, *_alike(p, operands))


def _alike(p: ProgramBuilder, operands: Sequence[Any]) -> list[Value]:
    """Numbers as values of the dtype of the others."""
    dtype = next(p.facts[x].dtype for x in operands if isinstance(x, str))
    return [_number(p, x, dtype) for x in operands]


def _where(p: ProgramBuilder, condition: Value, x: Any, y: Any) -> Value:
    return p.apply("where", condition, *_alike(p, (x, y)))


def _cast(p: ProgramBuilder, x: Value, dtype: Any, **options: Any) -> Value:
    to, preset, seed = dtypes.of(dtype), options.pop("preset", None), options.pop("seed", None)
    conversion = Conversion(**options)
    if preset is not None:
        found = next(row for row in PRESETS if row.name == preset).conversion(p.facts[x].dtype, to)
        assert found is not None
        conversion = found
    return p.cast(x, to, conversion, None if seed is None else p.constant(np.asarray(seed, np.uint64)))


def _composite(make: Callable[[dtypes.DType], Expression]) -> Callable[..., Value]:
    def node(p: ProgramBuilder, *operands: Any) -> Value:
        values = _alike(p, operands)
        return p.map(make(p.facts[values[0]].dtype), *values)[0]

    return node


# -- rows -----------------------------------------------------------------------------------------------------------
def _axes(rank: int, axis: Any) -> Shape:
    """Counted from the end, ascending."""
    given = range(rank) if axis is None else axis if isinstance(axis, Sequence) else [axis]
    return tuple(sorted((a % rank) - rank for a in given))


def _reduced(name: str) -> Callable[..., Value]:
    def node(p: ProgramBuilder, x: Value, axis: Any = None, keepdims: bool = False) -> Value:
        dtype, shape = p.facts[x].dtype, _shape(p, x)
        make = composites.mean if name == "mean" else functools.partial(composites.reduction, f"row_{name}")
        axes = _axes(len(shape), axis)
        (made,) = p.rows(make(dtype), x, axes=axes)
        left = tuple(extent for a, extent in enumerate(shape) if a - len(shape) not in axes)
        return made if keepdims else p.reshape(made, left)

    return node


def _var(p: ProgramBuilder, x: Value, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Value:
    dtype, shape = p.facts[x].dtype, _shape(p, x)
    rounded = correction if dtype is dtypes.float64 else float(np.float32(correction))
    axes = _axes(len(shape), axis)
    (made,) = p.rows(composites.var(rounded, dtype), x, axes=axes)
    left = tuple(extent for a, extent in enumerate(shape) if a - len(shape) not in axes)
    return made if keepdims else p.reshape(made, left)


def _scan(kind: str) -> Callable[..., Value]:
    return lambda p, x, axis=-1: p.add("scan", (x,), Along(kind, axis % len(_shape(p, x))))[0]  # type: ignore[arg-type]


def _argsort(p: ProgramBuilder, x: Value, axis: int = -1, descending: bool = False) -> Value:
    return p.add("order", (x,), SortedPlaces(axis % len(_shape(p, x)), descending))[0]


def _sort(p: ProgramBuilder, x: Value, axis: int = -1, descending: bool = False) -> Value:
    return _take_along(p, x, _argsort(p, x, axis, descending), axis)


def _topk(p: ProgramBuilder, x: Value, k: int, axis: int = -1, largest: bool = True) -> Value:
    """The elements; their places are a value beside."""
    return _take_along(p, x, p.add("order", (x,), SortedPlaces(axis % len(_shape(p, x)), largest, k))[0], axis)


def _take_along(p: ProgramBuilder, x: Value, indices: Value, axis: int = -1) -> Value:
    return p.add("gather_along", (x, indices), picks.PickAlong(axis % len(_shape(p, x))))[0]


def _scatter(p: ProgramBuilder, x: Value, indices: Value, updates: Value, axis: int = -1) -> Value:
    return p.add("scatter_along", (x, indices, updates), picks.PickAlong(axis % len(_shape(p, x))))[0]


def _softmax(p: ProgramBuilder, x: Value, axis: int = -1) -> Value:
    return p.rows(composites.softmax(p.facts[x].dtype), x, axes=_axes(len(_shape(p, x)), axis))[0]


def _log_softmax(p: ProgramBuilder, x: Value, axis: int = -1) -> Value:
    return p.rows(composites.log_softmax(p.facts[x].dtype), x, axes=_axes(len(_shape(p, x)), axis))[0]


def _layer_norm(
    p: ProgramBuilder, x: Value, weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5
) -> Value:
    dtype = p.facts[x].dtype
    rounded = eps if dtype is dtypes.float64 else float(np.float32(eps))
    scale = [operand for operand in (weight, bias) if operand is not None]
    return p.rows(composites.layer_norm(weight is not None, bias is not None, rounded, dtype), x, *scale)[0]


def _rms_norm(p: ProgramBuilder, x: Value, weight: Value | None = None, eps: float = 1e-5) -> Value:
    dtype = p.facts[x].dtype
    rounded = eps if dtype is dtypes.float64 else float(np.float32(eps))
    scale = [] if weight is None else [weight]
    return p.rows(composites.rms_norm(weight is not None, rounded, dtype), x, *scale)[0]


def _gelu(p: ProgramBuilder, x: Value, approximate: str = "none") -> Value:
    return _composite(composites.gelu_tanh if approximate == "tanh" else composites.gelu)(p, x)


# -- products -------------------------------------------------------------------------------------------------------
def _matmul(p: ProgramBuilder, a: Value, b: Value, **given: Any) -> Value:
    """The names of arguments are those of operands, or else of options; numbers become constants."""
    block, dialect = given.pop("a_format", None), given.pop("a_dialect", None)
    if block is not None:
        q = blocks.quantized(p, a, block, dialect, given.pop("a_global_scale", None))
        a, given = (
            q.elements,
            {**given, "a_scale": q.scales, "a_group": q.format.block, "a_global_scale": q.global_scale},
        )
    x, y = _shape(p, a), _shape(p, b)
    options = Options(
        given.pop("spec", SB1), given.pop("activation", None), given.pop("a_group", None),
        given.pop("b_group", None),
        *[None if given.get(name) is None else dtypes.of(given[name]) for name in ("a_dtype", "out_dtype")],
    )  # fmt: skip
    left, right = p.facts[a].dtype, p.facts[b].dtype
    of_a = dtypes.of(given["a_dtype"]) if given.get("a_dtype") else left
    kinds = {"a_zero_point": of_a, "b_zero_point": right, "out_zero_point": options.out_dtype or dtypes.int8}
    scale = dtypes.float64 if dtypes.float64 in (left, right) else dtypes.float32
    operands = {name: value for name, value in given.items() if value is not None and not name.endswith("_dtype")}
    operands = {name: _number(p, value, kinds.get(name, scale)) for name, value in operands.items()}
    shape = _without_vectors(p, x, y, operands)
    a, b = p.reshape(a, x if x[1:] else (1, *x)), p.reshape(b, y if y[1:] else (*y, 1))
    made = p.contract(a, b, options, **operands)
    return p.reshape(made, shape) if shape is not None else made


def _without_vectors(p: ProgramBuilder, x: Shape, y: Shape, operands: dict[str, Value]) -> Shape | None:
    """The shape of a product of vectors, whose addends get the axes that it lacks; None for one of matrices."""
    if x[1:] and y[1:]:
        return None
    for name in ("c", "bias"):
        if name in operands and (own := _shape(p, operands[name])):
            own = own if x[1:] else (*own[:-1], 1, *own[-1:]) if y[1:] else own
            operands[name] = p.reshape(operands[name], own if y[1:] else (*own, 1))
    batch = np.broadcast_shapes(x[:-2], y[:-2])
    return (*batch, *x[-2:-1], *(y[-1:] if y[1:] else ()))


def _linear(
    p: ProgramBuilder, x: Value, weight: Value, bias: Value | None = None, *, weight_scale: Any = None,
    weight_zero_point: Any = None, group: Any = None, weight_global_scale: Any = None, x_scale: Any = None,
    x_group: Any = None, x_global_scale: Any = None, x_format: Any = None, x_dialect: Any = None,
    activation: Any = None, out_dtype: Any = None, spec: Any = SB1,
) -> Value:  # fmt: skip
    def turned(value: Any) -> Any:
        """What lies as the weight does: of its rank."""
        return p.transpose(value, (1, 0)) if isinstance(value, str) and len(_shape(p, value)) == 2 else value

    return _matmul(
        p, x, turned(weight), bias=bias, b_scale=turned(weight_scale), b_zero_point=turned(weight_zero_point),
        b_group=group[::-1] if isinstance(group, tuple) else group, b_global_scale=weight_global_scale,
        a_scale=x_scale, a_group=x_group, a_global_scale=x_global_scale, a_format=x_format, a_dialect=x_dialect,
        activation=activation, out_dtype=out_dtype, spec=spec,
    )  # fmt: skip


def _pack(
    p: ProgramBuilder, b: Value, *, left: Any = None, scale: Any = None, zero_point: Any = None, group: Any = None,
    global_scale: Any = None, spec: Any = SB1,
) -> Value:  # fmt: skip
    """The product of `beside` and b: what b was packed for changes no bit."""
    a = p.constant(beside(_shape(p, b), left or p.facts[b].dtype))
    options = {"b_scale": scale, "b_zero_point": zero_point, "b_group": group, "b_global_scale": global_scale}
    return _matmul(p, a, b, **options)


def beside(shape: Shape, left: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """A left operand for a packed b of that shape: small integers, which every format has but that of powers of two."""
    row = dtypes.of(left)
    low, high = (0, 2) if row.has_zero else (1, 3)
    return np.random.default_rng(5).integers(low, high, (5, shape[-2])).astype(row.numpy)


def _grad_input(p: ProgramBuilder, dy: Value, weight: Value, out_dtype: Any = None, spec: Any = SB1) -> Value:
    return _matmul(p, dy, weight, out_dtype=out_dtype, spec=spec)


def _rows(p: ProgramBuilder, x: Value) -> Value:
    """Leading dimensions as one."""
    *leading, last = _shape(p, x)
    return p.reshape(x, (int(np.prod(leading, dtype=np.int64)), last))


def _grad_weight(p: ProgramBuilder, x: Value, dy: Value, out: Value | None = None, spec: Any = SB1) -> Value:
    return _summed(p, _rows(p, dy), _rows(p, x), out, spec)


def _grad_bias(p: ProgramBuilder, dy: Value, out: Value | None = None, spec: Any = SB1) -> Value:
    rows = _rows(p, dy)
    count, n = _shape(p, rows)
    ones = p.expand(p.scalar(1.0, dtypes.float32), (count, 1))
    return p.reshape(_summed(p, ones, rows, out if out is None else p.reshape(out, (1, n)), spec), (n,))


def _summed(p: ProgramBuilder, left: Value, right: Value, old: Value | None, spec: Any) -> Value:
    """left^T @ right; or added to `old`, one chunk of rows after the other."""
    total = "float64" if dtypes.float64 in (p.facts[left].dtype, p.facts[right].dtype) else "float32"
    if old is None:
        return _matmul(p, p.transpose(left, (1, 0)), right, out_dtype=total, spec=spec)
    (rows, m), (_, n) = _shape(p, left), _shape(p, right)
    for start in range(0, rows, spec.chunk):
        count = min(spec.chunk, rows - start)
        parts = [p.slice(x, (start, 0), (count, size), (1, 1)) for x, size in ((left, m), (right, n))]
        old = p.apply("add", old, _summed(p, *parts, None, spec))
    return p.apply("add", old, p.scalar(0.0, dtypes.of(total))) if rows else p.apply("copy", old)


def _grouped_matmul(
    p: ProgramBuilder, a: Value, b: Value, group_sizes: Sequence[int], *, bias: Value | None = None,
    out_dtype: Any = None, spec: Any = SB1,
) -> Value:  # fmt: skip
    """The product of each group, then rows of zeros."""
    group_sizes = list(map(int, group_sizes))
    (rows, k), (_, _, n), start, parts = _shape(p, a), _shape(p, b), 0, list[Value]()
    for g, size in enumerate(group_sizes):
        part = p.slice(a, (start, 0), (size, k), (1, 1))
        one = p.reshape(p.slice(b, (g, 0, 0), (1, k, n), (1, 1, 1)), (k, n))
        addend = bias
        if bias is not None and len(_shape(p, bias)) == 2:
            addend = p.slice(bias, (g, 0), (1, n), (1, 1))
        parts.append(_matmul(p, part, one, bias=addend, out_dtype=out_dtype, spec=spec))
        start += size
    parts.append(p.expand(p.scalar(0, p.facts[parts[0]].dtype), (rows - start, n)))
    return p.add("concat", parts, Concat(0))[0]


# -- moves ----------------------------------------------------------------------------------------------------------
def _copy(p: ProgramBuilder, x: Value, **options: Any) -> Value:
    """How a copy lies is no fact of its values."""
    return p.apply("copy", x)


def _concat(p: ProgramBuilder, arrays: Sequence[Value], axis: int = 0) -> Value:
    return p.add("concat", arrays, Concat(axis % len(_shape(p, arrays[0]))))[0]


def _take(p: ProgramBuilder, x: Value, indices: Value, axis: int = 0) -> Value:
    return p.add("gather", (x, indices), AxisGather(axis % len(_shape(p, x))))[0]


def _fill(p: ProgramBuilder, out: Value, value: float) -> Value:
    return p.expand(p.scalar(value, p.facts[out].dtype), _shape(p, out))


def _random_like(distribution: Distribution) -> Callable[..., Value]:
    def node(p: ProgramBuilder, x: Value, *, seed: int, offset: int = 0) -> Value:
        dtype = p.facts[x].dtype
        words = [p.constant(np.asarray(word, np.uint64)) for word in (seed, offset)]
        operands = (p.scalar(0.0, dtype), p.scalar(1.0, dtype), *words)
        return p.add("random", operands, Drawn(Random(distribution, dtype), p.facts[x].shape))[0]

    return node


NODES: Mapping[str, Callable[..., Value]] = {
    "rand_like": _random_like("uniform"), "randn_like": _random_like("normal"),
    **{name: _element(op) for name, op in ELEMENTS.items()},
    **{name: _composite(make) for name, make in COMPOSED.items()},
    **{name: _reduced(name) for name in ("sum", "prod", "mean", "max", "min")}, "var": _var,
    **{f"cum{kind}": _scan(kind) for kind in ("sum", "prod", "max", "min")},
    "where": _where, "cast": _cast, "gelu": _gelu, "silu": _composite(activations.silu),
    "relu": _composite(composites.relu),
    "softmax": _softmax, "log_softmax": _log_softmax, "layer_norm": _layer_norm,
    "rms_norm": _rms_norm, "matmul": _matmul, "plan_matmul": _matmul, "pack": _pack,
    "linear": _linear, "grad_input": _grad_input, "grad_weight": _grad_weight, "grad_bias": _grad_bias,
    "grouped_matmul": _grouped_matmul, "copy": _copy, "contiguous": _copy, "to_packed": _copy, "to_padded": _copy,
    "argsort": _argsort, "sort": _sort, "topk": _topk, "take_along_axis": _take_along, "scatter": _scatter,
    "concat": _concat, "take": _take, "fill": _fill,
}  # fmt: skip
