"""Sum, maximum, softmax and layer norm over rows beside torch and NumPy: interleaved, one thread, medians.

Prints ns an element and ratios as Markdown (tools/run_benches.py). `python benches/reduce.py`
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from _rows import compiled_rows
from _turns import Call, medians
from functions import ROUNDS, aligned

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.kernels import composites, reduce
from samebits.kernels.expression import Chain, Expression
from samebits.native.table import Table

Array = np.ndarray[Any, Any]


def reduction(op: str) -> Expression:
    """One reduction of one input."""
    chain = Chain()
    return chain.finish(chain.apply(op, chain.input(dtypes.float32)))


def ours(expression: Expression, row: Isa, inputs: list[Array], out: Array) -> Call:
    """A call of the expression's kernel over axis 1."""
    layouts = [(a.shape, tuple(s // a.itemsize for s in a.strides)) for a in (*inputs, out)]
    plan = reduce.plan(expression, tuple(layouts[:-1]), tuple(layouts[-1:]), (1,), row)
    slots = tuple(range(len(layouts)))
    table = Table([(plan, slots)], len(slots), 1)
    addresses = tuple(a.ctypes.data for a in (*inputs, out))
    return lambda: table.run(addresses)


def cases(x: Array, gamma: Array, beta: Array) -> dict[str, tuple[Expression, list[Array], bool, Call, Call | None]]:
    """Name to (expression, inputs, one value a row, torch's call, NumPy's call)."""
    t, g, h = (torch.from_numpy(a) for a in (x, gamma[0], beta[0]))
    n = x.shape[1]
    return {
        "sum": (reduction("row_sum"), [x], True, lambda: t.sum(1), lambda: x.sum(1)),
        "max": (reduction("row_max"), [x], True, lambda: t.amax(1), lambda: x.max(1)),
        "softmax": (composites.softmax(), [x], False, lambda: torch.softmax(t, 1), None),
        "layer_norm": (
            composites.layer_norm(True, True, 1e-5), [x, gamma, beta], False,
            lambda: torch.nn.functional.layer_norm(t, (n,), g, h), None,
        ),
    }  # fmt: skip


def main() -> list[dict[str, object]]:
    """Measure, print, return the rows."""
    torch.set_num_threads(1)
    compiled = compiled_rows()
    found: list[dict[str, object]] = []
    print("## Rows\n\nns an element on float32 rows, one thread.\n")
    print("| operation | rows x n | row | ours | torch | NumPy | torch / ours |\n|---|---|---|---|---|---|---|")
    for n in (128, 384, 768, 4096):
        shape = (max(1, 131072 // n), n)
        x, gamma, beta = aligned(shape, 0), aligned((1, n), 1), aligned((1, n), 2)
        for name, (expression, inputs, narrow, of_torch, of_numpy) in cases(x, gamma, beta).items():
            out = aligned((shape[0], 1) if narrow else shape, 3)
            calls = {row.name: ours(expression, row, inputs, out) for row in compiled}
            calls["torch"] = of_torch
            if of_numpy is not None:
                calls["numpy"] = of_numpy
            each = {key: value / x.size * 1e9 for key, value in medians(calls, ROUNDS).items()}
            peer, numpy_text = each["torch"], f"{each['numpy']:.3f}" if "numpy" in each else "-"
            for row in compiled:
                mine = each[row.name]
                found.append({"operation": name, "shape": shape, "row": row.name, "ns": mine, "torch": peer})
                size = f"{shape[0]} x {n}"
                print(f"| {name} | {size} | {row.name} | {mine:.3f} | {peer:.3f} | {numpy_text} | {peer / mine:.2f} |")
                if row is compiled[-1] and n == 384:
                    what = f"{name}, rows of {n}, {row.name}"
                    print(f"figure: {what} | {mine:.3f} ns an element | torch {peer:.3f} ns | {peer / mine:.2f}")
    return found


if __name__ == "__main__":
    main()
