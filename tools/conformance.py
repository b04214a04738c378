"""Write docs/conformance.json: digests that every Isa row and every machine must give.

The answers come from the NumPy references alone. The inputs are a formula, so that another implementation can make
them without NumPy: element i of the stream with seed s is splitmix64(s * 2^32 + i). Its value in float32 is the signed
upper 24 bits times 2^-20 (exact, within +-8); in a narrower float that, rounded to nearest even; in float64 the signed
upper 54 bits times 2^-50; in integers and truths as many of the upper bits as they have; absolute values where the case
is "positive". Where options of matmul are given, b is int8, 16 times the float32 value rounded down. Indices are what
division by twice the extent leaves, less the extent; counts of shifts what division by twice the width leaves. A digest
is the SHA-256 of the output bytes, row-major, little-endian.

The cases are those of `conformance_cases`.

Run: `python tools/conformance.py` writes the file, `--check` only compares.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
from typing import Any

import numpy as np
from conformance_cases import CASES
from numpy.typing import NDArray

from samebits import dtypes, elements, ieee, philox
from samebits.conversions import Conversion
from samebits.kernels import activations, arithmetic, composites, elementwise, order, random, reduce, scan
from samebits.kernels.expression import Chain
from samebits.kernels.functions import exact
from samebits.kernels.gemm.contraction import Spec
from samebits.kernels.gemm.reference import integers
from samebits.kernels.gemm.reference import reference as gemm_reference
from samebits.kernels.quantize import dialects, formats, reference
from samebits.kernels.random import Random

PATH = pathlib.Path(__file__).parent.parent / "docs" / "conformance.json"
Array = NDArray[Any]

# How many operands are alike, where that is not one; and what kernels call functions.
_ARITY = {"fma": 3, "where": 3, "clip": 3, "threshold": 3, "lerp": 3, "addcmul": 4} | dict.fromkeys(
    (
        "add", "multiply", "divide", "maximum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
        "minimum", "subtract", "quotient", "remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor",
        "bitwise_left_shift", "bitwise_right_shift", "logical_and", "pow", "logical_or", "logical_xor", "concat",
        "nextafter", "gcd", "floor_divide",
    ), 2,
)  # fmt: skip
_ROWS = {
    "isfinite": "is_finite", "isinf": "is_infinite", "signbit": "sign_bit", "nextafter": "next_after",
    "multiply": "mul", "divide": "div", "subtract": "sub", "negative": "neg", "round": "rint", "isnan": "is_nan",
    "remainder": "mod", "bitwise_and": "bit_and", "bitwise_or": "bit_or", "bitwise_xor": "bit_xor",
    "bitwise_invert": "bit_not", "bitwise_left_shift": "shift_left", "bitwise_right_shift": "shift_right",
}  # fmt: skip

# Where the expressions of what is several rows are.
_COMPOSED = {"gelu": composites, "relu": composites, "silu": activations} | dict.fromkeys(
    ("addcmul", "clip", "floor_divide", "frac", "lerp", "rsqrt", "square", "threshold"), arithmetic
)


def stream(seed: int, *shape: int, dtype: str = "float32") -> Array:
    """The inputs of a seed, in this shape."""
    count = int(np.prod(shape, dtype=np.int64))
    with np.errstate(over="ignore"):
        z = (np.uint64(seed) << np.uint64(32)) + np.arange(count, dtype=np.uint64)
        z += np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    row = dtypes.of(dtype)
    if not row.is_float:
        bits = 1 if row.kind == "bool" else row.width_bits
        upper = (z >> np.uint64(64 - bits)).astype(f"u{row.size_bytes}")
        return upper.view(np.dtype(dtype)).reshape(shape)
    lower, unit = (10, 2.0**-50) if dtype == "float64" else (40, 2.0**-20)
    values = (z.view(np.int64) >> np.int64(lower)).astype(np.float64) * unit
    return (values if dtype == "float64" else values.astype(np.float32).astype(row.numpy)).reshape(shape)


def inputs(case: dict[str, Any]) -> list[Array]:
    """The operands of a case, in the order of the operation's arguments."""
    name, shape = case["operation"], case["shape"]
    shapes: list[tuple[int, ...]] = [tuple(shape)]
    kinds = [*case.get("dtypes", ["float32"] * 2), "float32"] if "dtype" not in case else [case["dtype"]]
    if name == "matmul":
        m, k, n = shape
        if "options" in case:
            return [stream(16 * case["seed"], m, k), np.floor(stream(16 * case["seed"] + 1, k, n) * 16).astype(np.int8)]
        shapes = [(m, k), (k, n)]
        if "shared" in case:
            group = case["b_group"]
            size, lines = group if isinstance(group, list) else (group, 1)
            lying = {
                "a_scale": (m,), "b_scale by column": (n,), "a_global_scale by row": (m,),
                "b_global_scale by column": (n,), "a_global_scale": (), "b_global_scale": (),
                "a_scale of blocks": (m, -(-k // case.get("a_group", k))),
            }  # fmt: skip
            shapes += [lying.get(name, (-(-k // size), -(-n // lines))) for name in case["shared"]]
            kinds = [*kinds[:2], *(kinds[1] if "zero" in name else "float32" for name in case["shared"])]
        if case.get("zero_points"):
            shapes, kinds = [*shapes, (m,), (n,)], kinds[:2] * 2
    elif name == "linear":
        m, k, n = shape
        shapes = [(m, k), (n, k), (n,)]
    elif name in _ARITY:
        shapes = [tuple(shape)] * _ARITY[name]
    elif name in ("take_along_axis", "scatter"):
        shapes = [tuple(shape)] * (2 + (name == "scatter"))
    elif name == "take":
        shapes = [tuple(shape), (9,)]
    elif name in ("layer_norm", "rms_norm"):
        shapes = [tuple(shape), *[(shape[-1],)] * (2 if name == "layer_norm" else 1)]
    elif name == "grad_weight":
        rows, k, n = shape
        shapes = [(rows, k), (rows, n)]
        if case.get("accumulates"):
            shapes.append((n, k))
    elif name == "grad_input":
        m, n, k = shape
        shapes = [(m, n), (n, k)]
    seed = 16 * case["seed"]
    made = [stream(seed + i, *x, dtype=kinds[min(i, len(kinds) - 1)]) for i, x in enumerate(shapes)]
    if name in ("take", "take_along_axis", "scatter"):
        extent = shape[case["axis"]]
        made[1] = made[1] % (2 * extent) - extent
    if "shift" in name:
        made[1] = made[1] % made[1].dtype.type(2 * dtypes.of(kinds[1]).width_bits)
    return [np.abs(x) for x in made] if case.get("positive") else made


def quantised(a: Array, b: Array, options: dict[str, Any]) -> Array:
    """A product of a, quantised, and b, times their scales or requantised."""
    s_a, s_b = (np.asarray(options[name], np.float32) for name in ("a_scale", "b_scale"))
    q = exact.quantize(a, s_a, np.asarray(options["a_zero_point"], options["a_dtype"]))
    total = integers(q, b, options["a_zero_point"], options.get("b_zero_point", 0))
    if "out_scale" not in options:
        return np.asarray(total.astype(np.float32) * (s_a * s_b))
    zero = np.asarray(options["out_zero_point"], np.int8)
    return exact.requantize(total, s_a, s_b, np.asarray(options["out_scale"], np.float32), zero)


def blockwise(case: dict[str, Any], a: Array, b: Array, *shared: Array) -> Array:
    """A product of b whose blocks along K share what the case says."""
    given, group = dict(zip(case["shared"], shared, strict=True)), case["b_group"]
    values, scale = b.astype(np.float32), None
    if "b_zero_point" in given:
        values = values - np.repeat(given["b_zero_point"].astype(np.float32), group, 0)[: len(b)]
    if "b_scale by column" in given:
        scale = given["b_scale by column"]
    elif "a_scale" in given:
        scale = given["a_scale"][:, None]
    blocks: dict[str, Any] = {"a_scale": given.get("a_scale of blocks"), "a_block": case.get("a_group", 0)}
    if "a_format" in case:
        row = formats.of(case["a_format"])
        parts = reference.quantize(a, row, dialects.default(row), line=True)
        a, scale = reference.element_values(parts.elements, row), parts.global_scale
        blocks = {"a_scale": exact.widened(parts.scales), "a_block": row.block[1]}
    for name, x in given.items():
        if "global_scale" in name:
            own = x[:, None] if "by row" in name else x
            scale = own if scale is None else scale * own
    spec, group = Spec(**case["spec"]), tuple(group) if isinstance(group, list) else group
    return gemm_reference(
        a.astype(np.float32), values, spec=spec, scale=scale, b_scale=given.get("b_scale"), b_block=group, **blocks
    )  # fmt: skip


def accumulated(a: Array, b: Array, old: Array) -> Array:
    """old and the chunks of a @ b, added in order: numerics.md section 5."""
    t = old
    for start in range(0, a.shape[1], 128):
        t = t + gemm_reference(a[:, start : start + 128], b[start : start + 128])
    return t + np.float32(0)


def answer(case: dict[str, Any]) -> Array:
    """The output by the references."""
    name, x = case["operation"], inputs(case)
    if "options" in case:
        return quantised(x[0], x[1], case["options"])
    if "shared" in case:
        return blockwise(case, *x)
    if name == "matmul":
        if "int" in case.get("out_dtype", ""):
            return integers(*x).astype(case["out_dtype"])
        if "int8" in case.get("dtypes", []):  # the largest magnitudes: of an element of a, and without its zero point
            largest = 255 if "a_zero_point" in case else 128
            is_wide = case["shape"][1] * largest * 128 > np.iinfo(np.int32).max
            return integers(*x).astype(np.int64 if is_wide else np.int32)
        return gemm_reference(x[0], x[1], spec=Spec(**case["spec"])).astype(
            dtypes.of(case.get("out_dtype", "float32")).numpy
        )
    if name == "grad_weight":
        return accumulated(x[1].T, x[0], x[2]) if case.get("accumulates") else gemm_reference(x[1].T, x[0])
    if name == "grad_bias":
        return np.asarray(gemm_reference(np.ones((1, len(x[0])), np.float32), x[0])[0])
    if name == "grad_input":
        return gemm_reference(x[0], x[1])
    if name == "linear":
        return gemm_reference(x[0], x[1].T, bias=x[2])
    if name == "quantize":
        row, way = formats.of(case["format"]), dialects.of(case["dialect"])
        return stored(reference.quantize(x[0], row, way))
    kind = dtypes.of(x[0].dtype)
    if name in ("softmax", "log_softmax"):
        return reduce.reference(getattr(composites, name)(kind), *x, axes=(-1,))[0]
    if name == "layer_norm":
        return reduce.reference(composites.layer_norm(True, True, 1e-5, kind), *x, axes=(-1,))[0]
    if name == "rms_norm":
        return reduce.reference(composites.rms_norm(True, 1e-5, kind), *x, axes=(-1,))[0]
    if name == "gelu" and "approximate" in case:
        return elementwise.reference(composites.gelu_tanh(kind), *x)[0]
    if name in _COMPOSED:
        made = getattr(_COMPOSED[name], name)
        return elementwise.reference(made(kind), *x)[0]
    if name == "concat":
        return np.concatenate(x, axis=case["axis"])
    if "offset" in case:
        kind = dtypes.of(case["dtype"])
        first, second = [np.asarray(elements.rounded(number, kind)) for number in case.get("numbers", (0.0, 1.0))]
        what = Random("uniform" if name in ("uniform", "rand_like") else "normal", kind)
        return random.reference(what, tuple(case["shape"]), first, second, case["draws"], case["offset"])
    if name == "take":
        return np.take(x[0], x[1], axis=case["axis"])
    if name in ("sum", "prod", "mean", "var", "max", "min"):
        expression = (
            composites.reduction(f"row_{name}", kind)
            if name not in ("mean", "var")
            else (composites.mean(kind) if name == "mean" else composites.var(0.0, kind))
        )
        axes = tuple(case.get("axis", [-1]))
        return np.squeeze(reduce.reference(expression, *x, axes=axes)[0], axes)
    if name in ("argsort", "sort", "topk"):
        places = order.reference(x[0], 1, name == "topk")
        return places if name == "argsort" else np.take_along_axis(x[0], places, 1)[:, : 7 if name == "topk" else None]
    if name == "take_along_axis":
        return np.take_along_axis(x[0], x[1], 1)
    if name == "scatter":
        found = x[0].copy()
        for i, j in np.ndindex(*x[1].shape):
            found[i, x[1][i, j]] = x[2][i, j]
        return found
    if name.startswith("cum"):
        return scan.reference(scan.Scan(name[3:], kind), x[0], x[0].ndim - 1)
    if name == "cast" and "how" in case:
        words = philox.words(case["draws"], np.arange(x[0].size).reshape(x[0].shape)) if "draws" in case else None
        return exact.cast(dtypes.of(case["to"]), x[0], Conversion(**case["how"]), words)
    chain, target = Chain(), dtypes.of(case["to"]) if name == "cast" else None
    given = [chain.input(dtypes.of(operand.dtype)) for operand in x]
    return elementwise.reference(chain.finish(chain.apply(_ROWS.get(name, name), *given, dtype=target)), *x)[0]


def stored(parts: reference.StoredParts) -> Array:
    """The bytes of what is stored, in the order of the parts."""
    found = (parts.elements, parts.scales, parts.zero_points, parts.global_scale)
    return np.concatenate([np.atleast_1d(x).view(np.uint8).ravel() for x in found if x is not None])


def digest(x: Array) -> str:
    """SHA-256 of the bytes."""
    return hashlib.sha256(np.ascontiguousarray(x.view(f"u{x.itemsize}"), f"<u{x.itemsize}").tobytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    made: dict[str, Any] = {
        "contract": "sb1",
        "inputs": "element i of seed s: signed upper 24 bits of splitmix64(s * 2^32 + i), times 2^-20; "
        "narrower floats round that to nearest even; float64: signed upper 54 bits times 2^-50; "
        "integers and bool: upper bits; absolute values where positive; operand j of a case has seed 16 * seed + j; "
        "b beside options is int8, 16 times the float32 rounded down; indices: modulo twice the extent, less it; "
        "counts of shifts: modulo twice the width",
        "cases": [case | {"digest": digest(ieee.canonical(answer(case)))} for case in CASES],
    }
    cases = ",\n".join("  " + json.dumps(case) for case in made.pop("cases"))
    text = json.dumps(made, indent=1)[:-2] + ',\n "cases": [\n' + cases + "\n ]\n}\n"
    if check and text != PATH.read_text():
        raise SystemExit("docs/conformance.json is not what the references give")
    PATH.write_text(text)
    print(f"{len(CASES)} cases: {PATH.name}")


if __name__ == "__main__":
    main()
