"""Correctly rounded functions and fused chains beside NumPy and torch: one process, interleaved, one thread, medians.

Prints Gelem/s and ratios as Markdown (tools/run_benches.py). `python benches/functions.py`
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from _rows import compiled_rows
from _turns import Call, medians

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.kernels import activations, composites, elementwise
from samebits.kernels.expression import Chain, Expression
from samebits.native.table import Table
from samebits.tensor import Tensor

Array = np.ndarray[Any, Any]
ROUNDS = 60
OTHERS = ("tanh", "sigmoid", "sin", "cos", "exp2", "expm1")


def aligned(shape: tuple[int, ...], seed: int, dtype: DType = dtypes.float32) -> Array:
    """Normal values in the memory of a Tensor, which starts at a cache line."""
    found = Tensor.empty(shape, dtype).numpy()
    found[...] = np.random.default_rng(seed).normal(size=shape)
    return found


def unary(name: str) -> Expression:
    """One function of one input."""
    chain = Chain()
    return chain.finish(chain.apply(name, chain.input(dtypes.float32)))


def ours(expression: Expression, row: Isa, x: Array, out: Array) -> Call:
    """A call of the expression's kernel."""
    layout = ((x.size,), (1,))
    table = Table([(elementwise.plan(expression, (layout,), (layout,), row), (0, 1))], 2, 1)
    addresses = (x.ctypes.data, out.ctypes.data)
    return lambda: table.run(addresses)


def torch_call(function: Callable[..., Any], x: Array, out: Array) -> Call:
    """torch's function on the same memory."""
    tensor, target = (Tensor.from_any(each).torch() for each in (x, out))
    return lambda: function(tensor, target)


def _of_torch(name: str, x: torch.Tensor, out: torch.Tensor) -> Any:
    return getattr(torch, name)(x, out=out)


def _gelu_of_torch(x: torch.Tensor, out: torch.Tensor) -> Any:
    return torch.ops.aten.gelu.out(x, out=out)


def logarithm() -> Expression:
    """log(|x|)."""
    chain = Chain()
    return chain.finish(chain.apply("log", chain.apply("abs", chain.input(dtypes.float32))))


def power() -> Expression:
    """|x| to the x."""
    chain = Chain()
    x = chain.input(dtypes.float32)
    return chain.finish(chain.apply("pow", chain.apply("abs", x), x))


def main() -> list[dict[str, object]]:
    """Measure, print, return the rows."""
    torch.set_num_threads(1)
    compiled = compiled_rows()
    cases: Sequence[tuple[str, Expression, Callable[..., Any], Any]] = (
        ("exp", unary("exp"), lambda x, out: torch.exp(x, out=out), np.exp),
        ("erf", unary("erf"), lambda x, out: torch.erf(x, out=out), None),
        ("log(abs(x))", logarithm(), lambda x, out: torch.log(x.abs(), out=out), None),
        *((name, unary(name), functools.partial(_of_torch, name), None) for name in OTHERS),
        ("gelu", composites.gelu(), _gelu_of_torch, None),
        ("gelu of bfloat16", composites.gelu(dtypes.bfloat16), _gelu_of_torch, None),
        ("silu", activations.silu(), lambda x, out: torch.ops.aten.silu.out(x, out=out), None),
        ("pow(abs(x), x)", power(), lambda x, out: torch.pow(x.abs(), x, out=out), None),
    )
    found: list[dict[str, object]] = []
    print("## Functions\n\nGelem/s on float32, or as named, one thread; correctly rounded, but for gelu and silu.\n")
    print("| function | elements | row | ours | torch | NumPy | ours / torch |\n|---|---|---|---|---|---|---|")
    for n in (1 << 14, 1 << 22):
        for name, expression, of_torch, of_numpy in cases:
            x, out, theirs = (aligned((n,), seed, expression.inputs[0]) for seed in (0, 1, 1))
            calls = {row.name: ours(expression, row, x, out) for row in compiled}
            calls["torch"] = torch_call(of_torch, x, theirs)
            if of_numpy is not None:
                calls["numpy"] = functools.partial(of_numpy, x, out=theirs)
            speed = {key: n / value / 1e9 for key, value in medians(calls, ROUNDS).items()}
            peer, numpy_text = speed["torch"], f"{speed['numpy']:.2f}" if "numpy" in speed else "-"
            for row in compiled:
                mine = speed[row.name]
                found.append({"function": name, "elements": n, "row": row.name, "gelem_s": mine, "torch": peer})
                print(f"| {name} | {n} | {row.name} | {mine:.2f} | {peer:.2f} | {numpy_text} | {mine / peer:.2f} |")
    for case in found:
        if case["row"] == compiled[-1].name and case["elements"] == 1 << 22:
            mine, peer = float(str(case["gelem_s"])), float(str(case["torch"]))
            function, _, kind = str(case["function"]).partition(" of ")
            what = f"{function}, 4M {kind or 'float32'}, {case['row']}"
            print(f"figure: {what} | {mine:.2f} Gelem/s | torch {peer:.2f} Gelem/s | {mine / peer:.2f}")
    return found


if __name__ == "__main__":
    main()
