"""What an error advises helps: the call that follows a remedy is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import samebits as sb
from samebits import dtypes

F32 = np.float32
X, W, I8 = np.ones((3, 4), F32), np.ones((5, 4), F32), np.ones((5, 4), np.int8)
T = sb.Tensor
INT4 = np.arange(8).astype(ml_dtypes.int4)
NEEDS_GRADIENT = torch.ones(3, 4, requires_grad=True)
CONJUGATE = torch.ones(3, 4, dtype=torch.complex64).conj()
PACKED = sb.to_packed(INT4)


def traced(call: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: jax.jit(call)(jnp.ones(3))


# A wrong call, the remedy of its error, and a call that follows it.
REMEDIES: list[tuple[Callable[[], Any], str, Callable[[], Any]]] = [
    # libraries that do not share
    (lambda: T.from_any(NEEDS_GRADIENT), "call its detach() first", lambda: T.from_any(NEEDS_GRADIENT.detach())),
    (lambda: T.from_dlpack(NEEDS_GRADIENT), "call its detach() first", lambda: T.from_dlpack(NEEDS_GRADIENT.detach())),
    (lambda: sb.matmul(X, NEEDS_GRADIENT.T), "call its detach() first",
     lambda: sb.matmul(X, NEEDS_GRADIENT.T.detach())),
    (lambda: T.from_any(NEEDS_GRADIENT.clone()), "call its detach() first",
     lambda: T.from_any(NEEDS_GRADIENT.clone().detach())),
    (lambda: T.from_any(torch.eye(3).to_sparse()), "call its to_dense() first",
     lambda: T.from_any(torch.eye(3).to_sparse().to_dense())),
    (lambda: T.from_any(CONJUGATE), "pass torch.view_as_real of its resolve_conj()",
     lambda: T.from_any(torch.view_as_real(CONJUGATE.resolve_conj()))),
    (lambda: T.from_any(CONJUGATE.imag), "call x.resolve_neg() first",
     lambda: T.from_any(CONJUGATE.imag.resolve_neg())),
    (lambda: sb.exp(CONJUGATE.resolve_conj()), "pass its real and imaginary parts apart",
     lambda: (sb.exp(CONJUGATE.resolve_conj().real), sb.exp(CONJUGATE.resolve_conj().imag))),
    (lambda: T.from_any(torch.ones(3, device="meta")), "make it on a device: it has a shape, and no elements",
     lambda: T.from_any(torch.ones(3, device="cpu"))),
    (traced(sb.exp), "call it outside of what JAX traces, such as jit and grad", lambda: sb.exp(jnp.ones(3))),
    (lambda: T.from_any(np.ma.masked_array([1.0], [True])), "fill it first, with x.filled(value)",
     lambda: T.from_any(np.ma.masked_array([1.0], [True]).filled(0))),
    # devices
    (lambda: T.empty((2,), device="cpu"), "write Device('cpu')", lambda: T.empty((2,), device=sb.Device("cpu"))),
    (lambda: T.zeros((2,)).to("cpu:0"), "write Device('cpu', 0)", lambda: T.zeros((2,)).to(sb.Device("cpu", 0))),
    (lambda: T.zeros((2,)).to("cuda:1"), "write Device('cuda', 1)", lambda: sb.Device("cuda", 1)),
    (lambda: T.zeros((2,)).to("bfloat16"), "write Device('cpu'), or call astype for another dtype",
     lambda: (T.zeros((2,)).to(sb.Device("cpu")), T.zeros((2,)).astype("bfloat16"))),
    (lambda: T.zeros((2,)).to(None), "write Device('cpu')", lambda: T.zeros((2,)).to(sb.Device("cpu"))),
    (lambda: sb.Device("cuda:0"), "pass the number of the device apart, as Device('cuda', 0)",
     lambda: sb.Device("cuda", 0)),
    # tensors
    (lambda: T.zeros((2,)).item(), "use tolist()", T.zeros((2,)).tolist),
    (lambda: iter(T.zeros(())), "use item()", T.zeros(()).item),
    (PACKED.numpy, "pass copy=True for one byte an element", lambda: PACKED.numpy(copy=True)),
    (lambda: T.zeros((2,)).equal_bits(X), "pass Tensor.from_any(other)",
     lambda: T.zeros((2,)).equal_bits(T.from_any(X))),
    (lambda: T.empty_like(X), "pass Tensor.from_any(x)", lambda: T.empty_like(T.from_any(X))),
    (lambda: T.from_exported(5), "pass what Tensor.export gave", lambda: T.from_exported(PACKED.export("numpy"))),
    (lambda: T(X, X, X), "use Tensor.from_any or Tensor.from_buffer",
     lambda: (T.from_any(X), T.from_buffer(X, "float32", (3, 4)))),
    (lambda: T.from_bytes(b"abcd", "int8", (2,)), "use from_buffer for a part of it",
     lambda: T.from_buffer(b"abcd", "int8", (2,))),
    (lambda: T.from_any([1.0], copy=False), "leave copy=False out", lambda: T.from_any([1.0])),
    (lambda: T.from_any(np.broadcast_to(F32(1), 3)).torch(),
     "pass copy=True, because torch ignores that memory is read-only",
     lambda: T.from_any(np.broadcast_to(F32(1), 3)).torch(copy=True)),
    (T.from_any(np.ones((2, 4), ml_dtypes.float4_e2m1fn)).torch, "pack it with to_packed, or use Tensor.export",
     sb.to_packed(np.ones((2, 4), ml_dtypes.float4_e2m1fn)).torch),
    (lambda: sb.cast(torch.ones(2, 4), "int4"), "pass Tensor.from_any of the array, for a Tensor",
     lambda: sb.cast(T.from_any(torch.ones(2, 4)), "int4")),
    (lambda: dtypes.of(X), "pass its dtype", lambda: dtypes.of(X.dtype)),
    (lambda: sb.dtype("bf16"), "pass one of its names, such as 'bfloat16'", lambda: sb.dtype("bfloat16")),
    (lambda: dtypes.bfloat16 == "bfloat16", "compare with samebits.dtype('bfloat16')",
     lambda: dtypes.bfloat16 == sb.dtype("bfloat16")),
    (lambda: sb.copy(INT4, storage="packed"), "pass Tensor.from_any(x)",
     lambda: sb.copy(T.from_any(INT4), storage="packed")),
    # products
    (lambda: sb.matmul(I8, X.T), "convert a to float32", lambda: sb.matmul(sb.cast(I8, "float32"), X.T)),
    (lambda: sb.linear(I8, X), "convert x to float32", lambda: sb.linear(sb.cast(I8, "float32"), X)),
    (lambda: sb.matmul(INT4[None], X[:2].repeat(4, 0)), "convert a to float32",
     lambda: sb.matmul(INT4.astype(F32)[None], X[:2].repeat(4, 0))),
    (lambda: sb.matmul(X, W.T, a_dtype="int8", a_scale=0.1), "leave a_dtype out",
     lambda: sb.matmul(X, W.T, a_scale=0.1)),
    (lambda: sb.matmul(F32(2), X), "use multiply for a scalar", lambda: sb.multiply(F32(2), X)),
    (lambda: sb.linear(X, W[None]), "pass a matrix, or use matmul", lambda: sb.matmul(X, W[None].mT)),
    (lambda: sb.linear(X, W[0]), "pass a matrix, or use matmul", lambda: sb.matmul(X, W[0])),
    (lambda: sb.linear(X, sb.pack(W)), "pack weight.T of shape [4, N]", lambda: sb.linear(X, sb.pack(W.T))),
    (lambda: sb.linear(X, sb.pack(I8.T)), "pack it again with left='float32'",
     lambda: sb.linear(X, sb.pack(I8.T, left="float32"))),
    (lambda: sb.linear(I8, I8, np.ones(5, F32)), "pass an int32 bias, or weight_scale=1.0",
     lambda: (sb.linear(I8, I8, np.ones(5, np.int32)), sb.linear(I8, I8, np.ones(5, F32), weight_scale=1.0))),
    (lambda: sb.matmul(I8, I8.T, bias=np.ones(5, F32)), "pass an int32 bias, or out_dtype='float32'",
     lambda: sb.matmul(I8, I8.T, bias=np.ones(5, F32), out_dtype="float32")),
    (lambda: sb.matmul(X, sb.pack(I8.T, left="float32"), b_zero_point=1), "give it to pack, with left=",
     lambda: sb.matmul(X, sb.pack(I8.T, left="float32", zero_point=1))),
    (lambda: sb.linear(X, I8, weight_scale=np.ones((5, 2), F32)),
     "pass group=, the number of elements along K that share one",
     lambda: sb.linear(X, I8, weight_scale=np.ones((5, 2), F32), group=2)),
    (lambda: sb.linear(X, I8, weight_scale=np.ones((1, 5), F32)),
     "exchange its last two axes for one for each row of weight",
     lambda: sb.linear(X, I8, weight_scale=np.ones((1, 5), F32).T)),
    (lambda: sb.linear(X, I8, weight_scale=np.ones((2, 5), F32), group=2), "exchange its last two axes",
     lambda: sb.linear(X, I8, weight_scale=np.ones((2, 5), F32).T, group=2)),
    (lambda: sb.linear(X, I8, weight_scale=np.ones((5, 1), F32), group=2),
     "pass [5] for one for each row of weight", lambda: sb.linear(
         X, I8, weight_scale=np.ones(5, F32), weight_zero_point=np.ones((5, 2), np.int8), group=2)),
    (lambda: sb.linear(X, I8, group=2), "pass scales or zero points [N, K / group] with it",
     lambda: sb.linear(X, I8, group=2, weight_scale=np.ones((5, 2), F32))),
    (lambda: sb.matmul(X, W.T, plan=sb.plan_matmul(X, W.T, alpha=2.0)), "make it with plan_matmul for these operands",
     lambda: sb.matmul(X, W.T, plan=sb.plan_matmul(X, W.T))),
    (lambda: sb.grouped_matmul(X, W.T, [3]), "stack the matrices of the groups",
     lambda: sb.grouped_matmul(X, W.T[None], [3])),
    (lambda: sb.grad_weight(X.reshape(3, 2, 2).transpose(1, 0, 2), X.reshape(3, 2, 2).transpose(1, 0, 2)),
     "copy it first",
     lambda: sb.grad_weight(*[sb.copy(X.reshape(3, 2, 2).transpose(1, 0, 2))] * 2)),
    (lambda: sb.matmul(X, W.T, threads=0), "leave it out for every core", lambda: sb.matmul(X, W.T)),
    # elements
    (lambda: sb.add(I8, 1.5), "cast the array first", lambda: sb.add(sb.cast(I8, "float32"), 1.5)),
    (lambda: sb.add(I8, 1000), "cast the array first", lambda: sb.add(sb.cast(I8, "int32"), 1000)),
    (lambda: sb.add(T.zeros((2,), "int4"), 1), "convert it first",
     lambda: sb.add(sb.cast(T.zeros((2,), "int4"), "int8"), 1)),
    (lambda: sb.sum(X, keepdims=1), "pass one of the two", lambda: sb.sum(X, keepdims=True)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "remedy", "followed"), REMEDIES, ids=[f"{i} {row[1]}" for i, row in enumerate(REMEDIES)]
)
def test_the_call_that_follows_a_remedy_is_taken(
    wrong: Callable[[], Any], remedy: str, followed: Callable[[], Any]
) -> None:
    with pytest.raises(sb.SamebitsError) as caught:
        wrong()
    assert caught.value.remedy == remedy
    assert followed() is not None
    if "samebits.dtype" in remedy:
        assert followed() is True


def test_cast_takes_whatever_array_it_is_advised_for() -> None:
    """A number that an array's dtype cannot stand for is refused with that advice for every dtype that `add` takes."""
    advised = 0
    for row in dtypes.ROWS:
        if row.is_integer and row.width_bits >= 8:
            with pytest.raises(sb.DTypeError) as caught:
                sb.add(T.zeros((2,), row), 1.5)
            assert caught.value.remedy == "cast the array first"
            assert sb.add(sb.cast(T.zeros((2,), row), "float32"), 1.5).tolist() == [1.5, 1.5]
            advised += 1
        elif row.is_float and row.has_zero:
            assert sb.add(T.zeros((2,), row), 1.5).tolist() == [1.5, 1.5]
        else:
            with pytest.raises(sb.DTypeError) as caught:
                sb.add(T.zeros((2,), row) if row.has_zero else T.full((2,), 1, row), 1.5)
            assert "cast" not in caught.value.remedy
    assert advised == 8
