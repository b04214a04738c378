"""Write docs/conformance.json: digests that every Isa row and every machine must give.

The answers come from the NumPy references alone. The inputs are a formula, so that another implementation can make
them without NumPy: element i of the stream with seed s is splitmix64(s * 2^32 + i), and its value is the signed upper
24 bits times 2^-20 (exact in float32, within +-8). Where options of matmul are given, b is int8, 16 times that rounded
down. A digest is the SHA-256 of the output bytes, row-major, little-endian.

Run: `python tools/conformance.py` writes the file, `--check` only compares.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits import ieee
from samebits.dtypes import float32
from samebits.kernels import composites, elementwise, reduce
from samebits.kernels.expression import Chain
from samebits.kernels.functions import exact
from samebits.kernels.gemm.contraction import Spec
from samebits.kernels.gemm.reference import integers
from samebits.kernels.gemm.reference import reference as gemm_reference

PATH = pathlib.Path(__file__).parent.parent / "docs" / "conformance.json"
Float32s = NDArray[np.float32]
Numbers = NDArray[Any]

CASES: list[dict[str, Any]] = [
    *(
        {"operation": "matmul", "shape": [m, k, n], "spec": {"chunk": chunk, "segments": segments}, "seed": seed}
        for seed, (m, k, n, chunk, segments) in enumerate(
            [
                (1, 1, 1, 128, 1), (1, 4096, 64, 128, 1), (3, 127, 5, 128, 1), (7, 128, 33, 128, 1),
                (13, 129, 17, 128, 1), (64, 384, 48, 128, 1), (5, 1000, 31, 256, 1), (4, 2048, 9, 128, 8),
                (0, 5, 7, 128, 1), (2, 0, 3, 128, 1), (33, 257, 1, 128, 1),
            ]
        )
    ),
    {
        "operation": "matmul", "shape": [9, 300, 33], "spec": {"chunk": 128, "segments": 1}, "seed": 11,
        "options": {"a_dtype": "int8", "a_scale": 0.07, "a_zero_point": 3, "b_scale": 0.013, "b_zero_point": -9},
    },
    {
        "operation": "matmul", "shape": [9, 300, 33], "spec": {"chunk": 128, "segments": 1}, "seed": 12,
        "options": {
            "a_dtype": "uint8", "a_scale": 0.07, "a_zero_point": 128, "b_scale": 0.013, "out_scale": 1.9,
            "out_zero_point": -5,
        },
    },
    {"operation": "linear", "shape": [6, 200, 40], "seed": 20},
    *(
        {"operation": name, "shape": [n], "seed": seed}
        for seed, (name, n) in enumerate(
            [("exp", 4099), ("erf", 4099), ("gelu", 1031), ("relu", 67), ("sqrt", 515), ("reciprocal", 515)], 30
        )
    ),
    *(
        {"operation": name, "shape": shape, "seed": seed}
        for seed, (name, shape) in enumerate(
            [
                ("sum", [5, 1]), ("sum", [5, 63]), ("sum", [5, 65]), ("sum", [3, 2049]), ("sum", [2, 131073]),
                ("mean", [4, 384]), ("max", [4, 100]), ("softmax", [4, 1]), ("softmax", [4, 128]),
                ("softmax", [2, 4097]), ("layer_norm", [4, 384]), ("layer_norm", [2, 2049]),
            ],
            40,
        )
    ),
]  # fmt: skip


def stream(seed: int, *shape: int) -> Float32s:
    """The inputs of a seed, in this shape."""
    count = int(np.prod(shape, dtype=np.int64))
    with np.errstate(over="ignore"):
        z = (np.uint64(seed) << np.uint64(32)) + np.arange(count, dtype=np.uint64)
        z += np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return ((z.view(np.int64) >> np.int64(40)).astype(np.float64) * 2.0**-20).astype(np.float32).reshape(shape)


def inputs(case: dict[str, Any]) -> list[Numbers]:
    """The operands of a case, in the order of the operation's arguments."""
    seed, shape = 16 * case["seed"], case["shape"]
    if case["operation"] == "matmul":
        m, k, n = shape
        b = stream(seed + 1, k, n)
        return [stream(seed, m, k), np.floor(b * 16).astype(np.int8) if "options" in case else b]
    if case["operation"] == "linear":
        m, k, n = shape
        return [stream(seed, m, k), stream(seed + 1, n, k), stream(seed + 2, n)]
    if case["operation"] == "layer_norm":
        return [stream(seed, *shape), stream(seed + 1, shape[-1]), stream(seed + 2, shape[-1])]
    return [stream(seed, *shape)]


def quantised(a: Numbers, b: Numbers, options: dict[str, Any]) -> Numbers:
    """A product of a, quantised, and b, times their scales or requantised."""
    s_a, s_b = (np.asarray(options[name], np.float32) for name in ("a_scale", "b_scale"))
    q = exact.quantize(a, s_a, np.asarray(options["a_zero_point"], options["a_dtype"]))
    total = integers(q, b, options["a_zero_point"], options.get("b_zero_point", 0))
    if "out_scale" not in options:
        return np.asarray(total.astype(np.float32) * (s_a * s_b))
    zero = np.asarray(options["out_zero_point"], np.int8)
    return exact.requantize(total, s_a, s_b, np.asarray(options["out_scale"], np.float32), zero)


def answer(case: dict[str, Any]) -> Numbers:
    """The output by the references."""
    name, x = case["operation"], inputs(case)
    if "options" in case:
        return quantised(x[0], x[1], case["options"])
    if name == "matmul":
        return gemm_reference(x[0], x[1], spec=Spec(**case["spec"]))
    if name == "linear":
        return gemm_reference(x[0], x[1].T, bias=x[2])
    if name in ("softmax", "layer_norm"):
        expression = composites.softmax() if name == "softmax" else composites.layer_norm(True, True, 1e-5)
        return reduce.reference(expression, *x, axes=(-1,))[0]
    if name in ("gelu", "relu"):
        return elementwise.reference(getattr(composites, name)(), *x)[0]
    chain = Chain()
    value = chain.input(float32)
    if name in ("sum", "mean", "max"):
        value = chain.apply({"max": "row_max"}.get(name, "row_sum"), value)
        expression = chain.finish(chain.apply("div", value, chain.count()) if name == "mean" else value)
        return reduce.reference(expression, *x, axes=(-1,))[0][..., 0]
    return elementwise.reference(chain.finish(chain.apply(name, value)), *x)[0]


def digest(x: Numbers) -> str:
    """SHA-256 of the bytes."""
    return hashlib.sha256(np.ascontiguousarray(x, x.dtype.newbyteorder("<")).tobytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    made: dict[str, Any] = {
        "contract": "sb1",
        "inputs": "element i of seed s: signed upper 24 bits of splitmix64(s * 2^32 + i), times 2^-20; "
        "operand j of a case has seed 16 * seed + j; b beside options is int8, 16 times that rounded down",
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
