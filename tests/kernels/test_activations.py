"""Activations: near torch's, in the bits of the reference, canonical where they are NaN, -0 where x is."""

from collections.abc import Callable

import launch
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from samebits import dtypes
from samebits.codegen import isa
from samebits.kernels import activations, elementwise
from samebits.kernels.expression import Expression

X = np.concatenate([np.linspace(-9, 9, 1001), [0.0, -0.0, np.inf, -np.inf, np.nan]]).astype(np.float32)

CASES: dict[str, tuple[Expression, Callable[[torch.Tensor], torch.Tensor]]] = {
    "elu": (activations.elu(0.7), lambda x: F.elu(x, 0.7)),
    "celu": (activations.celu(0.7), lambda x: F.celu(x, 0.7)),
    "selu": (activations.selu(1.6732632423543772, 1.0507009873554805), F.selu),
    "hard_sigmoid": (activations.hard_sigmoid(1 / 6, 0.5), F.hardsigmoid),
    "hard_swish": (activations.hard_swish(), F.hardswish),
    "leaky_relu": (activations.leaky_relu(0.2), lambda x: F.leaky_relu(x, 0.2)),
    "thresholded_relu": (activations.thresholded_relu(0.5), lambda x: F.threshold(x, 0.5, 0.0)),
    "shrink": (activations.shrink(0.5, 0.5), lambda x: F.softshrink(x, 0.5)),
    "softsign": (activations.softsign(), F.softsign),
    "silu": (activations.silu(), F.silu),
    "swish": (activations.swish(0.7), lambda x: x * torch.sigmoid(0.7 * x)),
    "softplus": (activations.softplus(), F.softplus),
    "mish": (activations.mish(), F.mish),
}


@pytest.mark.parametrize("name", CASES)
def test_activations_are_those_of_torch(name: str) -> None:
    expression, theirs = CASES[name]
    out = np.empty_like(X)
    launch.run_plan(elementwise.plan(expression, launch.layouts(X), launch.layouts(out), isa.current()), [X, out])
    launch.assert_bits(out, elementwise.reference(expression, X)[0], name)
    finite = np.isfinite(X)
    exact = theirs(torch.from_numpy(X[finite].astype(np.float64))).numpy()
    # At most four roundings, each by half a unit of a step that is no larger than the answer, or than 1.
    unit = np.spacing(np.maximum(1, np.abs(exact)).astype(np.float32))
    assert (np.abs(out[finite] - exact) <= 2 * unit).all()
    nan = out[np.isnan(out)].view(np.uint32)
    assert (nan == dtypes.float32.canonical_nan).all()
