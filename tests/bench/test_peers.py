"""Peers multiply what they say they do; where they are not installed nothing of theirs is imported."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.bench import peers
from samebits.bench.trial import operand
from samebits.dtypes import DType, bfloat16, float8_e4m3fn, float32, float64, int8, uint8
from samebits.tensor import Tensor


def numbers(x: Tensor) -> np.ndarray:
    return x.numpy().astype(np.float64)


def in_seven_bits(x: Tensor) -> Tensor:
    """int8 of which two products with uint8 fit int16; ONNX Runtime saturates others on processors without VNNI."""
    return Tensor.from_any(x.numpy() // np.int8(2))


@pytest.mark.parametrize("peer", peers.ROWS, ids=lambda peer: peer.name)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("left", "right"),
    [(float32, float32), (float64, float64), (bfloat16, bfloat16), (float8_e4m3fn, float8_e4m3fn), (int8, int8),
     (uint8, int8), (float32, bfloat16), (float32, int8), (float8_e4m3fn, float32)],
    ids=lambda row: row.name,
)  # fmt: skip
def test_peers_multiply_or_say_why_not(peer: peers.Peer, left: DType, right: DType, packed: bool) -> None:
    if not peer.installed:
        pytest.skip(f"{peer.name} is not installed")
    a, b = operand(left, (20, 64), 0), operand(right, (64, 24), 1)
    if (left, right) == (uint8, int8):
        b = in_seven_bits(b)
    call = peer.call(a, b, packed, 1)
    if isinstance(call, str):
        assert call
        assert (peer.name, left, right) not in {("torch", float32, float32), ("numpy", float64, float64)}
        return
    found = call()
    found = found[0] if isinstance(found, list) else found
    if hasattr(found, "double"):
        found = found.double().numpy()
    expected = numbers(a) @ numbers(b)
    # bfloat16 results have 8 bits of the largest sum; float32 ones are made of the operands as they are.
    assert np.abs(np.asarray(found, np.float64) - expected).max() <= np.abs(expected).max() * (
        2.0**-20 if float32 in (left, right) else 2.0**-7
    )


def test_rows_are_found_by_name_in_order() -> None:
    assert [row.name for row in peers.named(["onnxruntime", "torch"])] == ["torch", "onnxruntime"]
    assert peers.named([]) == ()


def test_what_is_missing_is_not_installed() -> None:
    row = peers.Peer("none", ("no_such_module",), "none", lambda *_: "why")
    assert not row.installed
    assert row.shown == "none"
    assert peers.Peer("both", ("numpy", "no_such_module"), "none", lambda *_: "why").installed is False
    assert peers.named(["numpy"])[0].shown.startswith("numpy ")
