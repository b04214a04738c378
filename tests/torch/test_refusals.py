"""What `samebits.torch` cannot take is refused in one sentence: tested in full text."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import samebits as sb
import samebits.torch as st
from samebits.errors import (
    DeviceError,
    DTypeError,
    ExchangeError,
    LayoutError,
    OptionError,
    OutOfRangeError,
    SamebitsError,
    ShapeError,
)
from samebits.ops.call import WITHIN_FLOAT64

NAMES = "float64 or float32 or bfloat16 or float16"
TENSOR = "must be a torch.Tensor; convert it first"
MOVED = "as the first operand's; move one of them"
GRADIENT = "Can't export tensors that require gradient, use tensor.detach()"
X, WEIGHT, BIAS, CODES = torch.ones(4, 7), torch.ones(3, 7), torch.ones(3), torch.tensor([1, 0, 2, 1])
META = WEIGHT.to("meta")


def operand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def entered(manager: Any) -> None:
    with manager:
        pass


PRODUCTS: list[tuple[Any, type[SamebitsError], str]] = [
    (lambda: st.mm(operand(5, 7).to_sparse(), operand(7, 3)), LayoutError,
     "mm: input layout is torch.sparse_coo, must be torch.strided; call its to_dense() first"),
    (lambda: st.linear(operand(5, 7), operand(3, 7).to_sparse()), LayoutError,
     "linear: weight layout is torch.sparse_coo, must be torch.strided; call its to_dense() first"),
    (lambda: st.mm(operand(5, 7, dtype=torch.complex64), operand(7, 3, dtype=torch.complex64)), DTypeError,
     f"mm: input dtype is complex64, must be {NAMES}; pass its real and imaginary parts apart"),
    (lambda: st.matmul(operand(5, 7, dtype=torch.int8), operand(7, 3, dtype=torch.int8)), DTypeError,
     f"matmul: input dtype is int8, must be {NAMES}; convert it first"),
    (lambda: st.matmul(operand(5, 7), operand(7, 3).double()), DTypeError,
     "matmul: other dtype is float64, must be float32, as the left operand's; convert one of them"),
    (lambda: st.linear(operand(5, 7), operand(3, 7).half()), DTypeError,
     "linear: weight dtype is float16, must be float32, as the left operand's; convert one of them"),
    (lambda: st.linear(operand(5, 7).double(), operand(3, 7).double(), operand(3)), DTypeError,
     "linear: bias dtype is float32, must be float64; convert it first"),
    (lambda: st.linear(operand(5, 7), operand(7, 3)), ShapeError,
     "linear: input column count is 7, must be 3, weight's column count; pass [..., K] and a weight [N, K]"),
    (lambda: st.linear(operand(5, 7), operand(3, 7), operand(4)), ShapeError,
     "linear: bias shape is (4,), must be one that broadcasts to (5, 3); reshape it"),
    (lambda: st.linear(operand(5, 7), operand(7)), ShapeError,
     "linear: weight rank is 1, must be 2; reshape it to [N, K]"),
    (lambda: st.linear(operand(), operand(3, 7)), ShapeError,
     "linear: input rank is 0, must be at least 1; reshape it to [1, K]"),
    (lambda: st.mm(operand(5, 7), operand(3, 7)), ShapeError,
     "mm: mat2 row count is 3, must be 7, the left operand's column count; transpose one of them"),
    (lambda: st.mm(operand(2, 5, 7), operand(7, 3)), ShapeError,
     "mm: input rank is 3, must be 2; call matmul, which takes any"),
    (lambda: st.bmm(operand(2, 5, 7), operand(3, 7, 3)), ShapeError,
     "bmm: mat2 batch size is 3, must be that of the other, 2; call matmul, which broadcasts"),
    (lambda: st.matmul(operand(2, 5, 7), operand(3, 7, 3)), ShapeError,
     "matmul: other batch shape is (3,), must be one that broadcasts with (2,); reshape it"),
    (lambda: st.matmul(operand(), operand(7, 3)), ShapeError,
     "matmul: input rank is 0, must be at least 1; multiply by it instead"),
    (lambda: st.addmm(operand(4), operand(5, 7), operand(7, 3)), ShapeError,
     "addmm: input shape is (4,), must be one that broadcasts to (5, 3); reshape it"),
    (lambda: st.mm(operand(5, 7), operand(7, 3), spec=128), OptionError,  # type: ignore[arg-type]
     "mm: spec is 128, must be a Spec; leave it out for sb1"),
    (lambda: st.use_spec(128).__enter__(), OptionError,  # type: ignore[arg-type]
     "use_spec: spec is 128, must be a Spec; leave it out for sb1"),
]  # fmt: skip
FUNCTIONS: list[tuple[Any, type[SamebitsError], str]] = [
    (lambda: st.exp(torch.ones(3, dtype=torch.int64)), DTypeError,
     f"exp: input dtype is int64, must be {NAMES}; convert it first"),
    (lambda: st.relu(torch.ones(3, dtype=torch.int32)), DTypeError,
     "relu: input dtype is int32, must be float64 or float32 or bfloat16 or float16; convert it first"),
    (lambda: st.gelu(torch.ones(3).to_sparse()), LayoutError,
     "gelu: input layout is torch.sparse_coo, must be torch.strided; call its to_dense() first"),
    (lambda: st.softmax(torch.ones(3), 1), OutOfRangeError,
     "softmax: dim is 1, must be in [-1, 1); use an existing one"),
    (lambda: st.sum(torch.ones(3, 2), (0, -2)), ShapeError,
     "sum: dim is (0, -2), must be each axis once; leave out the repeated one"),
    (lambda: st.layer_norm(torch.ones(3, 2), (3,)), ShapeError,
     "layer_norm: normalized_shape is (3,), must be input's last extents, of (3, 2); pass input.shape[-1:]"),
    (lambda: st.layer_norm(torch.ones(3, 2), (2,), None, torch.ones(2)), ShapeError,
     "layer_norm: bias is given, must be given together with weight; pass weight too"),
    (lambda: st.layer_norm(torch.ones(3, 2), (2,), torch.ones(3)), ShapeError,
     "layer_norm: weight shape is (3,), must be input's last extent (2,); pass one for each column"),
    (lambda: st.layer_norm(torch.ones(2, 3, 4), (3, 4), torch.ones(4, 3)), ShapeError,
     "layer_norm: weight shape is (4, 3), must be (3, 4); pass one for each place of normalized_shape"),
    (lambda: st.layer_norm(torch.ones(2, 3, 4), (3, 4), torch.ones(3, 4), torch.tensor(1.0)), ShapeError,
     "layer_norm: bias shape is (), must be (3, 4); pass one for each place of normalized_shape"),
    (lambda: st.layer_norm(torch.ones(3, 2).to(torch.float8_e4m3fn), (2,)), DTypeError,
     f"layer_norm: input dtype is float8_e4m3fn, must be {NAMES}; convert it first"),
    (lambda: st.layer_norm(torch.ones(3, 2), (2,), torch.ones(2).double()), DTypeError,
     "layer_norm: weight dtype is float64, must be input's float32; convert it first"),
    (lambda: st.embedding(torch.tensor([4]), torch.ones(4, 2)), OutOfRangeError,
     "embedding: input is 4, must be in [0, 4); give indices that exist"),
    (lambda: st.embedding(torch.ones(3), torch.ones(4, 2)), DTypeError,
     "embedding: input dtype is float32, must be int64 or int32; convert it first"),
    (lambda: st.embedding(torch.tensor([1]), torch.ones(4)), ShapeError,
     "embedding: weight rank is 1, must be 2; reshape it to [V, D]"),
    (lambda: st.cross_entropy(torch.ones(3, 4), torch.tensor([0, 4, 1])), OutOfRangeError,
     "cross_entropy: target is 4, must be in [0, 4); give classes that exist, or pass it as ignore_index"),
    (lambda: st.cross_entropy(torch.ones(2, 0), torch.tensor([-100, -100])), ShapeError,
     "cross_entropy: input class count is 0, must be at least 1; give each row a class"),
    (lambda: st.cross_entropy(torch.ones(3, 4), torch.tensor([0, 1])), ShapeError,
     "cross_entropy: target shape is (2,), must be (3,), one for each row of input; give each row a class"),
    (lambda: st.cross_entropy(torch.ones(2, 3, 4), torch.ones(4, 2).long()), ShapeError,
     "cross_entropy: target shape is (4, 2), must be (2, 4); leave out input's axis of classes, the second"),
    (lambda: st.cross_entropy(torch.ones(3), torch.ones(1).long()), ShapeError,
     "cross_entropy: target shape is (1,), must be (); pass one class"),
    (lambda: st.cross_entropy(torch.tensor(1.0), torch.tensor(0)), ShapeError,
     "cross_entropy: input rank is 0, must be at least 1; give each row a class"),
    (lambda: st.cross_entropy(torch.ones(3, 4), torch.ones(3)), DTypeError,
     "cross_entropy: target dtype is float32, must be int64; convert it first"),
    (lambda: st.cross_entropy(torch.ones(3, 4), torch.tensor([0, 1, 2]), reduction="all"), OptionError,
     "cross_entropy: reduction is 'all', must be none, sum or mean; leave it out for mean"),
    (lambda: st.grouped_mm(torch.ones(3, 4), torch.ones(2, 4, 5), offs=torch.tensor([3])), ShapeError,
     "grouped_mm: offs shape is (1,), must be (2,), one for each matrix; give where each group ends"),
    (lambda: st.grouped_mm(torch.ones(3, 4), torch.ones(2, 5, 4), offs=torch.tensor([1, 3])), ShapeError,
     "grouped_mm: mat2 row count is 5, must be 4, the left operand's column count; transpose each matrix"),
    (lambda: st.grouped_mm(torch.ones(3, 4), torch.ones(4, 5), offs=torch.tensor([3])), ShapeError,
     "grouped_mm: mat2 rank is 2, must be 3; pass [T, K], [G, K, N] and [G]"),
]  # fmt: skip
# Arguments of a kind that no overload of torch's has.
ARGUMENTS: list[tuple[Any, type[SamebitsError], str]] = [
    (lambda: st.linear(None, WEIGHT), DTypeError, f"linear: input type is NoneType, {TENSOR}"),
    (lambda: st.linear(X.numpy(), WEIGHT), DTypeError, f"linear: input type is ndarray, {TENSOR}"),
    (lambda: st.linear(X, WEIGHT, 1.0), DTypeError, f"linear: bias type is float, {TENSOR}"),
    (lambda: st.matmul(X, WEIGHT.numpy()), DTypeError, f"matmul: other type is ndarray, {TENSOR}"),
    (lambda: st.mm([1.0], WEIGHT), DTypeError, f"mm: input type is list, {TENSOR}"),
    (lambda: st.addmm(None, X, WEIGHT.T), DTypeError, f"addmm: input type is NoneType, {TENSOR}"),
    (lambda: st.addmm(BIAS, X, WEIGHT.T, alpha="2"), OptionError,
     "addmm: alpha is '2', must be a number; pass a float"),
    (lambda: st.relu("a"), DTypeError, f"relu: input type is str, {TENSOR}"),
    (lambda: st.softmax(3), DTypeError, f"softmax: input type is int, {TENSOR}"),
    (lambda: st.sum(X, 1.0), LayoutError, "sum: dim is 1.0, must be a tuple of integers; write it as a tuple"),
    (lambda: st.mean(X.int()), DTypeError, f"mean: input dtype is int32, must be {NAMES}; convert it first"),
    (lambda: st.gelu(X, approximate="fast"), OptionError,
     "gelu: approximate is 'fast', must be none or tanh; leave it out for the one by erf"),
    (lambda: st.layer_norm(X, 7), ShapeError,
     "layer_norm: normalized_shape is 7, must be a tuple of extents; pass input.shape[-1:]"),
    (lambda: st.layer_norm(X, [7.0]), ShapeError,
     "layer_norm: normalized_shape is [7.0], must be a tuple of extents; pass input.shape[-1:]"),
    (lambda: st.layer_norm(X, (7,), X[0].numpy()), DTypeError, f"layer_norm: weight type is ndarray, {TENSOR}"),
    (lambda: st.layer_norm(X, (7,), eps=None), OptionError,
     "layer_norm: eps is None, must be a number; pass a float"),
    (lambda: st.embedding([0], WEIGHT), DTypeError, f"embedding: input type is list, {TENSOR}"),
    (lambda: st.cross_entropy(X, CODES, ignore_index="no"), OptionError,
     "cross_entropy: ignore_index is 'no', must be an integer of 64 bits; leave it out for -100"),
    (lambda: st.cross_entropy(X, CODES, reduction=torch.ones(2)), OptionError,
     "cross_entropy: reduction is tensor([1., 1.]), must be none, sum or mean; leave it out for mean"),
    (lambda: st.cross_entropy(operand(2, 3, 4).to_sparse(), operand(2, 4).long()), LayoutError,
     "cross_entropy: input layout is torch.sparse_coo, must be torch.strided; call its to_dense() first"),
    (lambda: st.cross_entropy(X, CODES, ignore_index=2**64), OptionError,
     f"cross_entropy: ignore_index is {2**64}, must be an integer of 64 bits; leave it out for -100"),
    (lambda: st.cross_entropy(X, CODES, count=10**400), OptionError,
     f"cross_entropy: count is beyond float64, must be {WITHIN_FLOAT64}; pass float('inf') for more"),
    (lambda: st.sum(X, 0, torch.ones(2)), OptionError,
     "sum: keepdim is tensor([1., 1.]), must be True or False; pass one of the two"),
    (lambda: st.mean(X, keepdim=1), OptionError, "mean: keepdim is 1, must be True or False; pass one of the two"),
    (lambda: st.embedding(CODES, torch.tensor(1.0), 0), ShapeError,
     "embedding: weight rank is 0, must be 2; reshape it to [V, D]"),
    (lambda: st.cross_entropy(X, CODES, count="all"), OptionError,
     "cross_entropy: count is 'all', must be a number; pass a float"),
    (lambda: st.grouped_mm(X, operand(2, 7, 3), offs=torch.tensor([3, 9])), OptionError,
     ("grouped_mm: offs is [3, 9], must be ascending, from 0 to at most input's row count 4; "
     "give where each group ends")),
    (lambda: st.grouped_mm(X, operand(2, 7, 3), offs=[2, 4]), DTypeError, f"grouped_mm: offs type is list, {TENSOR}"),
    (lambda: st.QuantLinear.from_torch(nn.Linear(64, 3).double(), "int4-group32"), DTypeError,
     ("QuantLinear.from_torch: weight dtype is float64, must be float32 or bfloat16 or float16 for int/exact-1; "
      "convert it first")),
    (lambda: st.QuantLinear.from_torch(nn.Linear(64, 3), "int4-group32", dialect="no"), OptionError,
     "QuantLinear.from_torch: dialect is 'no', must be one that makes int4-group32: int/exact-1; choose one of these"),
    (lambda: st.Linear.from_torch(nn.ReLU()), OptionError,
     "Linear.from_torch: module type is ReLU, must be Linear; pass a torch.nn.Linear"),
    (lambda: entered(st.accumulate(WEIGHT)), DTypeError,
     "accumulate: parameters type is Tensor, must be several tensors; put it into a list"),
    (lambda: entered(st.accumulate([3])), DTypeError, f"accumulate: parameters[0] type is int, {TENSOR}"),
    (lambda: st.SGD([WEIGHT], lr="fast"), OptionError, "SGD: lr is 'fast', must be a number; pass a float"),
    (lambda: st.AdamW([WEIGHT], betas=0.9), OptionError,
     "AdamW: betas is 0.9, must be two numbers in [0, 1); leave them out"),
    (lambda: st.clip_grad_norm_(3, 1.0), DTypeError,
     "clip_grad_norm_: parameters type is int, must be several tensors; put it into a list"),
    (lambda: st.ordered_all_reduce([X]), OptionError,
     "ordered_all_reduce: group is none, must be one of torch.distributed; call its init_process_group first"),
]  # fmt: skip
# Memory that is not there, or not as it looks.
MEMORY: list[tuple[Any, type[SamebitsError], str]] = [
    (lambda: st.linear(X.to("meta"), WEIGHT), DeviceError, f"linear: weight device is cpu, must be meta, {MOVED}"),
    (lambda: st.linear(X, META), DeviceError, f"linear: weight device is meta, must be cpu, {MOVED}"),
    (lambda: st.linear(X, WEIGHT, META[:, 0]), DeviceError, f"linear: bias device is meta, must be cpu, {MOVED}"),
    (lambda: st.mm(X, META.T), DeviceError, f"mm: mat2 device is meta, must be cpu, {MOVED}"),
    (lambda: st.layer_norm(X, (7,), META[0]), DeviceError,
     f"layer_norm: weight device is meta, must be cpu, {MOVED}"),
    (lambda: st.embedding(CODES, META), DeviceError, f"embedding: weight device is meta, must be cpu, {MOVED}"),
    (lambda: st.linear(torch.nested.nested_tensor([X, X], layout=torch.jagged), WEIGHT), LayoutError,
     "linear: input layout is that of a nested tensor, must be torch.strided; call its to_padded_tensor(0.0) first"),
    (lambda: st.softmax(torch.nested.nested_tensor([X, X[:1]], layout=torch.jagged)), LayoutError,
     "softmax: input layout is that of a nested tensor, must be torch.strided; call its to_padded_tensor(0.0) first"),
    (lambda: st.linear(torch.nested.nested_tensor([X, X]), WEIGHT), LayoutError,
     "linear: input layout is that of a nested tensor, must be torch.strided; call its to_padded_tensor(0.0) first"),
    (lambda: st.layer_norm(torch.nested.nested_tensor([X, X]), X.shape[-1:]), LayoutError,
     ("layer_norm: input layout is that of a nested tensor, "
     "must be torch.strided; call its to_padded_tensor(0.0) first")),
    (lambda: st.embedding(torch.tensor([0]), torch.nested.nested_tensor([X, X])), LayoutError,
     ("embedding: weight layout is that of a nested tensor, "
     "must be torch.strided; call its to_padded_tensor(0.0) first")),
    (lambda: st.bmm(torch.nested.nested_tensor([X, X]), torch.stack([X, X])), LayoutError,
     "bmm: input layout is that of a nested tensor, must be torch.strided; call its to_padded_tensor(0.0) first"),
    (lambda: st.baddbmm(X, torch.stack([X, X]), torch.nested.nested_tensor([X, X])), LayoutError,
     ("baddbmm: batch2 layout is that of a nested tensor, "
     "must be torch.strided; call its to_padded_tensor(0.0) first")),
    (lambda: st.sum(X.to_sparse_csr()), LayoutError,
     "sum: input layout is torch.sparse_csr, must be torch.strided; call its to_dense() first"),
    (lambda: st.linear(X.to_mkldnn(), WEIGHT), LayoutError,
     "linear: input layout is torch._mkldnn, must be torch.strided; call its to_dense() first"),
    (lambda: st.softmax(X.to(torch.complex64)), DTypeError,
     (f"softmax: input dtype is complex64, must be {NAMES}; "
     "pass its real and imaginary parts apart")),
    (lambda: st.mm(torch.ones(4, 7, dtype=torch.complex64).conj().imag, WEIGHT.T), ExchangeError,
     "mm: input memory is still to be negated, must be what the values are; call x.resolve_neg() first"),
    (lambda: sb.matmul(X, WEIGHT.T, out=torch.ones(4, 3, requires_grad=True)), ExchangeError,
     (f"matmul: out is not shared by its library ({GRADIENT}), must be memory that can be shared; "
     "call its detach() first")),
    (lambda: sb.matmul(X.clone().requires_grad_(), WEIGHT.T), ExchangeError,
     (f"matmul: a is not shared by its library ({GRADIENT}), must be memory that can be shared; "
     "call its detach() first")),
]  # fmt: skip
REFUSED = PRODUCTS + FUNCTIONS + ARGUMENTS + MEMORY


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize(("call", "error", "text"), REFUSED, ids=[text for *_, text in REFUSED])
def test_what_does_not_fit_is_refused_in_a_sentence(call: Any, error: type[SamebitsError], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == text


DEVICES = {
    "mm": lambda x, w: st.mm(x, w.T),
    "linear": st.linear,
    "exp": lambda x, w: st.exp(x),
    "softmax": lambda x, w: st.softmax(x),
    "layer_norm": lambda x, w: st.layer_norm(x, (7,)),
    "sum": lambda x, w: st.sum(x),
    "cross_entropy": lambda x, w: st.cross_entropy(x, torch.zeros(4, dtype=torch.int64, device=x.device)),
}


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("kind", ["cuda", "mps", "xpu"])
def test_devices_are_refused_in_a_sentence(name: str, kind: str) -> None:
    with torch._subclasses.FakeTensorMode(), pytest.raises(DeviceError) as caught:
        DEVICES[name](torch.empty(4, 7, device=kind), torch.empty(3, 7, device=kind))
    assert str(caught.value) == f"{name}: input device is {kind}:0, must be cpu; call its cpu() first"
