"""How far another runtime's answers are from ours. Start at `against_onnxruntime`."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from samebits import errors, optional, samples
from samebits.frozen import dataclass
from samebits.program.graph import Program
from samebits.runtime import cpu


@dataclass(frozen=True, slots=True)
class Comparison:
    """The largest difference of any output element from another runtime's answer."""

    runtime: str
    output: str
    absolute: float
    ulp: int


def against_onnxruntime(program: Program, model: pathlib.Path, bindings: Mapping[str, int], seed: int) -> Comparison:
    """Run the same made-up inputs here and in ONNX Runtime; the largest difference of any output element.

    Raises:  MissingPackageError without onnxruntime; OptionError if it cannot run the model.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise optional.missing("against_onnxruntime", "onnxruntime", error) from None
    feeds = samples.feeds(program, bindings, seed)
    ours = cpu.prepare(program).run(feeds)
    try:
        session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        theirs = session.run(list(ours), feeds)
    except Exception as reason:  # its exceptions have no base of their own
        raise errors.OptionError(
            "--against", "onnxruntime", "answer", f"an error ({reason})", "given", "leave it out"
        ) from reason
    return max(
        (compare("onnxruntime", name, ours[name], y) for name, y in zip(ours, theirs, strict=True)),
        key=lambda c: (c.absolute, c.ulp),
    )


def compare(runtime: str, output: str, x: NDArray[np.generic], y: NDArray[np.generic]) -> Comparison:
    """The largest difference of two arrays' elements: infinite where formats, shapes or NaNs differ.

    The ulp are those of floats; -0 is one from +0. Other formats have none.
    """
    if x.shape != y.shape or x.dtype != y.dtype:
        return Comparison(runtime, output, math.inf, 0)
    if x.dtype.kind != "f":
        pairs = zip(x[x != y].tolist(), y[x != y].tolist(), strict=True)
        return Comparison(runtime, output, float(max((abs(int(a) - int(b)) for a, b in pairs), default=0)), 0)
    a, b = x.ravel(), y.ravel()
    wide = [v.astype(np.float64) for v in (a, b)]
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where((wide[0] == wide[1]) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(wide[0] - wide[1]))
    apart = np.where(np.isnan(apart), np.inf, apart)
    first, second = _ordered(a), _ordered(b)
    steps = np.maximum(first, second).view(np.uint64) - np.minimum(first, second).view(np.uint64)
    steps = steps[~(np.isnan(a) & np.isnan(b))]
    return Comparison(runtime, output, float(apart.max(initial=0.0)), int(steps.max(initial=0)))


def _ordered(x: NDArray[np.generic]) -> NDArray[np.int64]:
    """Floats as integers in the same order, one apart where they are one ulp apart."""
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").astype(np.int64)
    largest = (1 << (8 * x.dtype.itemsize - 1)) - 1
    return np.where(bits < 0, ~(bits & largest), bits)
