"""What a call runs and on what: operands that know their argument, and facts of them that know no address."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import samebits as sb
from samebits import dtypes
from samebits.codegen import isa as isas
from samebits.kernels import elementwise
from samebits.native.table import FIXED
from samebits.operations.elementwise import single
from samebits.operations.lying import Lying
from samebits.ops.call import Call
from samebits.ops.recipe import CallOperand, Prepared
from samebits.tensor import Tensor


def test_a_view_is_of_the_argument_that_it_is_a_view_of() -> None:
    x = CallOperand(Tensor.from_any(np.arange(12, dtype=np.float32).reshape(3, 4)), 5)
    turned = x.seen(x.tensor.T)
    assert (turned.number, turned.shape, turned.dtype) == (5, (4, 3), dtypes.float32)
    call = Call("f", None)
    assert call.constant(np.zeros((), np.float32)).number == FIXED
    assert call.own(x.tensor).number is None
    assert call.operand("x", x.tensor).number is None  # of no call that may be remembered


def test_a_fact_is_the_same_wherever_the_array_lies() -> None:
    whole = Tensor.from_any(np.zeros((9, 6), np.float32))
    rows = [CallOperand(whole[start : start + 3], 0).lying for start in range(6)]
    assert len(set(rows)) == 1
    assert rows[0] == Lying(dtypes.float32, whole[:3].layout)
    packed = sb.to_packed(np.zeros((3, 7), ml_dtypes.int4))
    bits = [CallOperand(packed[row], 0).lying.layout.offset_bits for row in range(3)]
    assert bits == [0, 4, 0]


def test_what_is_prepared_runs_on_any_addresses() -> None:
    plan = elementwise.plan(
        single("sub", dtypes.float32, dtypes.float32), (((4,), (1,)),) * 2, (((4,), (1,)),), isas.current(), 1
    )
    prepared = Prepared(plan)
    for seed in range(3):
        x, y = np.random.default_rng(seed).standard_normal((2, 4)).astype(np.float32)
        out = np.empty(4, np.float32)
        prepared.run([a.ctypes.data for a in (x, y, out)])
        assert out.tobytes() == (x - y).tobytes()
