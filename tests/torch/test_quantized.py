"""`QuantLinear`: values are those of the packages that made the weight, products and gradients of the contract."""

from __future__ import annotations

import copy
import gc
import io
from typing import Any

import gradients as due
import numpy as np
import pytest
import torch
from torch import nn
from torch.func import grad, vmap

import samebits as sb
import samebits.torch as st
from samebits.errors import DTypeError, OptionError, SamebitsError, ShapeError
from samebits.torch import quantized_operators
from samebits.torch.operator import OPERATORS

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
N, K, GROUP = 48, 256, 64
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def whole(seed: int, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int8) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(low, high, shape)).to(dtype)


def scales(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).uniform(0.001, 0.1, shape)).to(dtype)


def same(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Of one value everywhere; 0 and -0 are one, as packages subtract a zero point from what is equal to it."""
    return x.dtype == y.dtype and torch.equal(x, y)


# Values, by the packages' own dequantisation


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [GROUP, None])
@pytest.mark.parametrize("zero", [False, True])
def test_values_are_those_of_torchao_affine(bits: int, group: int | None, zero: bool, dtype: torch.dtype) -> None:
    primitives = pytest.importorskip("torchao.quantization.quant_primitives")
    low, high = -(1 << (bits - 1)), 1 << (bits - 1)
    groups = 1 if group is None else K // group
    codes, factors = whole(0, low, high, N, K), scales(1, N, groups, dtype=dtype)
    points = whole(2, low, high, N, groups) if zero else None
    made = st.QuantLinear.from_affine(codes, factors, points, bits=bits)
    expected = primitives.dequantize_affine(
        codes, (1, K // groups), factors, points, torch.int8, low, high - 1, output_dtype=dtype
    )
    assert same(made.dequantize(dtype), expected)


@pytest.mark.parametrize(("bits", "low", "high"), [(4, -8, 7), (8, -128, 127)])
def test_signed_codes_that_are_all_positive_are_signed_by_their_zero_points(bits: int, low: int, high: int) -> None:
    codes, points = whole(0, 0, high + 1, 3, 64), torch.tensor([[low], [-1], [3]])
    made = st.QuantLinear.from_affine(codes, scales(1, 3, 1), points, bits=bits)
    assert torch.equal(made.dequantize(), (codes - points) * scales(1, 3, 1))


@pytest.mark.parametrize("name", ["int4-group32", "int8-row", "mxfp6-e2m3", "uint4-group32-zero"])
def test_a_weight_without_rows_gives_answers_without_columns(name: str) -> None:
    made = st.QuantLinear(sb.quantize(torch.ones(0, 64), name))
    assert made(torch.ones(2, 64)).shape == (2, 0)
    assert made.dequantize().shape == (0, 64)


@pytest.mark.parametrize("kind", ["Int8WeightOnlyConfig", "IntxWeightOnlyConfig"])
def test_layers_that_torchao_quantised_are_taken_by_their_parts(kind: str) -> None:
    torchao = pytest.importorskip("torchao.quantization")
    if not hasattr(torchao, kind):
        pytest.skip(f"torchao has no {kind}")
    options = {"weight_dtype": torch.int4, "granularity": torchao.PerGroup(GROUP)} if kind.startswith("Intx") else {}
    layer = nn.Sequential(nn.Linear(K, N))
    torchao.quantize_(layer, getattr(torchao, kind)(**options))
    weight = layer[0].weight
    points = getattr(weight, "zero_point", None)
    bits = 4 if options else 8
    made = st.QuantLinear.from_affine(weight.qdata, weight.scale, points, bits=bits, bias=layer[0].bias)
    assert same(made.dequantize(), weight.dequantize().detach())
    x = normal(3, 5, K)
    assert torch.allclose(made(x), layer(x), 1e-4, 1e-4)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_values_are_those_of_torchao_tinygemm(dtype: torch.dtype) -> None:
    primitives = pytest.importorskip("torchao.quantization.quant_primitives")
    codes, factors = whole(0, 0, 16, N, K, dtype=torch.int32), scales(1, N, K // GROUP, dtype=dtype)
    zeros = normal(2, N, K // GROUP, dtype=dtype)
    made = st.QuantLinear.from_tinygemm(codes, torch.stack([factors.T, zeros.T], -1))
    expected = primitives._dequantize_affine_tinygemm(
        codes, (1, GROUP), factors, zeros, torch.int32, 0, 15, output_dtype=dtype
    )
    assert same(made.dequantize(dtype), expected)
    x, dy = normal(3, 5, K, dtype=dtype).requires_grad_(), normal(4, 5, N, dtype=dtype)
    y = made(x)
    (dx,) = torch.autograd.grad(y, x, dy)
    values = due.numbers(expected)
    assert due.bits(y) == due.bits(due.given(due.contraction(due.numbers(x), values.T), dtype))
    assert due.bits(dx) == due.bits(due.given(due.contraction(due.numbers(dy), values), dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("groups", "zero", "ordered"), [(4, True, False), (4, False, True), (1, False, False)])
def test_values_are_those_of_compressed_tensors(
    bits: int, groups: int, zero: bool, ordered: bool, dtype: torch.dtype
) -> None:
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    low, high = -(1 << (bits - 1)), 1 << (bits - 1)
    codes, factors = whole(0, low, high, N, K), scales(1, N, groups, dtype=dtype)
    points = whole(2, low, high, N, groups) if zero else None
    g_idx = torch.arange(K) // (K // groups)
    if ordered:
        g_idx = g_idx[torch.randperm(K, generator=torch.Generator().manual_seed(3))]
    made = st.QuantLinear.from_compressed_tensors(
        pack_to_int32(codes, bits), factors, torch.tensor([N, K]), bits=bits,
        weight_zero_point=None if points is None else pack_to_int32(points, bits, packed_dim=0).contiguous(),
        weight_g_idx=g_idx.int() if ordered else None,
    )  # fmt: skip
    strategy = {"strategy": "group", "group_size": K // groups} if groups > 1 else {"strategy": "channel"}
    arguments = QuantizationArgs(num_bits=bits, symmetric=not zero, **strategy)
    order = g_idx.argsort(stable=True)
    expected = dequantize(codes[:, order], factors, points, arguments, dtype=dtype)[:, order.argsort()]
    assert same(made.dequantize(dtype), expected)


def words(x: torch.Tensor, places: Any = range(8)) -> torch.Tensor:
    """Eight elements of the last axis in an int32, element i in nibble places[i]."""
    eights = x.numpy().reshape(*x.shape[:-1], -1, 8).astype(np.uint32)
    return torch.from_numpy(
        np.sum([eights[..., i] << 4 * p for i, p in enumerate(places)], 0, np.uint32).view(np.int32)
    )


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_gptq_is_the_formula_of_autogptq(ordered: bool, symmetric: bool) -> None:
    codes, factors = whole(0, 0, 16, K, N), scales(1, K // GROUP, N, dtype=torch.float16)
    points = torch.full((K // GROUP, N), 7) if symmetric else whole(2, 0, 16, K // GROUP, N)
    g_idx = torch.arange(K) // GROUP
    if ordered:
        g_idx = g_idx[torch.randperm(K, generator=torch.Generator().manual_seed(3))]
    made = st.QuantLinear.from_gptq(
        words(codes.T.contiguous()).T.contiguous(), words(points), factors, GROUP, g_idx=g_idx.int(), zero_offset=1
    )
    # qlinear_cuda_old.py: weight = scales[g_idx] * (weight - (zeros + 1)[g_idx]), in float16
    expected = (factors[g_idx] * (codes.short() - (points.short() + 1)[g_idx]).half()).T
    assert made.format == ("int4-group64" if symmetric else "uint4-group64-zero")
    assert same(made.dequantize(torch.float16), expected)
    x, dy = normal(4, 5, K, dtype=torch.float16).requires_grad_(), normal(5, 5, N, dtype=torch.float16)
    y = made(x)
    (dx,) = torch.autograd.grad(y, x, dy)
    theirs = nn.functional.linear(x.float(), made.dequantize())
    assert torch.allclose(y.float(), theirs, 1e-3, 1e-3)
    exact = due.numbers(made.dequantize())
    assert due.bits(dx) == due.bits(due.given(due.contraction(due.numbers(dy), exact), torch.float16))


def test_awq_is_what_the_converter_of_compressed_tensors_reads() -> None:
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter

    codes, points = whole(0, 0, 16, K, N), whole(1, 0, 16, K // GROUP, N)
    factors = scales(2, K // GROUP, N, dtype=torch.float16)
    qweight, qzeros = (words(x, (0, 4, 1, 5, 2, 6, 3, 7)) for x in (codes, points))
    read = AutoAWQConverter.unpack_awq(qweight, qzeros, 4)
    found, zeros = (x & 15 for x in AutoAWQConverter.reverse_awq_order(*read, 4))
    expected = (found.short() - zeros.short().repeat_interleave(GROUP, 0)).half() * factors.repeat_interleave(GROUP, 0)
    made = st.QuantLinear.from_awq(qweight, qzeros, factors, GROUP)
    assert same(made.dequantize(torch.float16), expected.T)


# Products and gradients

LAYER = nn.Linear(K, N)
FORMATS = ("int4-group64", "nvfp4", "mxfp8-e4m3", "int8-row", "uint4-group64-zero", "mxfp6-e2m3")


@pytest.mark.parametrize("name", FORMATS)
def test_products_are_those_of_quantised_operands(name: str) -> None:
    made, q = st.QuantLinear.from_torch(LAYER, name), sb.quantize(LAYER.weight.detach(), name)
    for dtype in FLOATS[:2]:
        x = normal(0, 2, 3, K, dtype=dtype).requires_grad_()
        dy = normal(1, 2, 3, N, dtype=dtype)
        y = made(x)
        (dx,) = torch.autograd.grad(y, x, dy)
        expected = due.numbers(torch.as_tensor(sb.linear(x.detach(), q, LAYER.bias.detach())))
        assert due.bits(y) == due.bits(due.given(expected, dtype))
        values = q.dequantize().numpy()
        assert due.bits(dx) == due.bits(due.given(due.contraction(due.numbers(dy), values), dtype))
        assert torch.allclose(y.float(), nn.functional.linear(x.float(), made.dequantize(), LAYER.bias), 0.01, 0.02)


def blocks(x: np.ndarray, codes: np.ndarray, factors: np.ndarray, group: int) -> np.ndarray:
    """Section 4 in NumPy, blocks that divide a chunk of 128: sums of codes, which are exact, times scales, by fma."""
    from samebits import ieee

    made: np.ndarray | None = None
    for start in range(0, x.shape[1], 128):
        chunk = np.zeros((len(x), len(codes)), np.float32)
        for low in range(start, start + 128, group):
            part = np.zeros_like(chunk)
            for k in range(low, low + group):
                part = ieee.fma(x[:, k : k + 1], codes[None, :, k], part)
            chunk = ieee.fma(part, np.broadcast_to(factors[None, :, low // group], part.shape), chunk)
        made = chunk if made is None else made + chunk
    assert made is not None
    return made + np.float32(0)


def test_a_product_is_the_contract_of_blocks() -> None:
    codes, factors = whole(0, -8, 8, N, K), scales(1, N, K // GROUP)
    made = st.QuantLinear.from_affine(codes, factors, bits=4)
    for rows in (1, 5):
        x = normal(2, rows, K, dtype=torch.bfloat16)
        expected = blocks(due.numbers(x), codes.float().numpy(), factors.numpy(), GROUP)
        assert due.bits(made(x)) == due.bits(due.given(expected, torch.bfloat16))


def layer(name: str = "int4-group64") -> st.QuantLinear:
    return st.QuantLinear.from_torch(LAYER, name)


@pytest.mark.parametrize("name", FORMATS[:3])
def test_rows_do_not_depend_on_their_batch_nor_on_neighbours(name: str) -> None:
    made, x = layer(name), normal(0, 9, K)
    y = made(x)
    spoiled = x.clone()
    spoiled[1::2] = torch.nan
    beside = made(spoiled)
    for i in (0, 2, 8):
        assert due.bits(y[i]) == due.bits(made(x[i])) == due.bits(beside[i])


def test_the_operators_pass_torchs_own_check() -> None:
    for name in ("int4-group64", "uint4-group64-zero", "nvfp4"):
        made = layer(name)
        stored = made._stored()
        x = normal(0, 3, K).requires_grad_()
        arguments = (x, made.bias, *stored)
        # Torch's own check of what an operator writes to multiplies operands, which float8 has not.
        utilities = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
        tests = utilities if name == "nvfp4" else ("test_schema", *utilities)
        found = torch.library.opcheck(OPERATORS["quant_linear"], arguments, test_utils=tests)
        assert set(found.values()) == {"SUCCESS"}, found
        found = torch.library.opcheck(OPERATORS["quant_linear_backward"], (normal(1, 3, N), *stored), test_utils=tests)
        assert set(found.values()) == {"SUCCESS"}, found


def test_it_composes() -> None:
    made, x = layer(), normal(0, 4, K)
    whole_ = made(x)
    assert torch.equal(torch.compile(made, fullgraph=True, backend="aot_eager")(x), whole_)
    exported = torch.export.export(made, (x,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    assert torch.equal(exported.module()(x[:3]), whole_[:3])
    assert torch.equal(vmap(made)(x), whole_)
    each = vmap(grad(lambda row: made(row).sum()))(x)
    assert torch.equal(each[1], grad(lambda row: made(row).sum())(x[1]))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(made(x), made(x.bfloat16()))
    assert made.to("meta")(x.to("meta")).shape == (4, N)


def test_copies_and_states_have_the_same_bits() -> None:
    made, x, file = layer("nvfp4"), normal(0, 4, K), io.BytesIO()
    expected = made(x)
    torch.save(made, file)
    file.seek(0)
    other = st.QuantLinear.from_torch(nn.Linear(K, N), "nvfp4")
    assert not torch.equal(other(x), expected)
    other.load_state_dict(made.state_dict())
    for again in (torch.load(file, weights_only=False), copy.deepcopy(made), other):
        assert torch.equal(again(x), expected)
    assert repr(made) == f"QuantLinear(in_features={K}, out_features={N}, bias=True, format=nvfp4)"


@pytest.mark.parametrize("name", ["int4-group64", "int8-group64", "uint8-group64-zero"])
def test_a_packed_weight_is_forgotten_with_its_layer_and_made_again_when_it_changes(name: str) -> None:
    made, x = layer(name), normal(0, 1, K)
    gc.collect()
    before = len(quantized_operators._KEPT)
    first = made(x)
    assert len(quantized_operators._KEPT) == before + 1
    made.scales.mul_(2)
    doubled = layer(name)
    doubled.scales = doubled.scales * 2
    assert torch.equal(made(x), doubled(x))
    assert not torch.equal(made(x), first)
    del doubled
    made.scales = made.scales / 2
    assert torch.equal(made(x), first)
    with torch.inference_mode():
        assert torch.equal(layer(name)(x), first)
    del made
    gc.collect()
    assert len(quantized_operators._KEPT) == before


def test_a_weight_is_packed_again_when_its_scales_are_another_view_of_their_memory() -> None:
    made, x = st.QuantLinear(sb.quantize(normal(2, 4, 128).numpy(), "int8-group32")), normal(0, 3, 128)
    first = made(x)
    made.scales = made.scales.mT  # [4, 4], where they were
    apart = copy.deepcopy(made)
    apart.scales = made.scales.contiguous()
    assert torch.equal(made(x), apart(x))
    assert not torch.equal(made(x), first)
    made.scales = made.scales.mT
    assert torch.equal(made(x), first)


CODES, FACTORS = whole(0, -8, 8, N, K), scales(1, N, K // GROUP)
LAYERS = "pass the dequantised weight to Linear"
REFUSED: list[tuple[Any, type[SamebitsError], str]] = [
    (lambda: st.QuantLinear(torch.ones(3, 4)), OptionError,
     "QuantLinear: weight type is Tensor, must be Quantized; pass what samebits.quantize gave"),
    (lambda: st.QuantLinear(sb.quantize(LAYER.weight.detach(), "nf4")), OptionError,
     f"QuantLinear: weight format is nf4, must be one whose elements are numbers; {LAYERS}"),
    (lambda: st.QuantLinear(sb.quantize(torch.ones(1, 33), "int4-row")), ShapeError,
     ("QuantLinear: weight column count is 33, must be whole bytes of int4 in each row; pad it, and the input, with "
     "columns of 0")),
    (lambda: layer()(normal(0, 3, K + 1)), ShapeError,
     f"QuantLinear: input column count is {K + 1}, must be {K}; pass [..., in_features]"),
    (lambda: layer()(normal(0, 3, K).double()), DTypeError,
     "QuantLinear: input dtype is float64, must be float32 or bfloat16 or float16; convert it first"),
    (lambda: layer()(None), DTypeError,
     "QuantLinear: input type is NoneType, must be a torch.Tensor; convert it first"),
    (lambda: st.QuantLinear.from_affine(CODES, FACTORS, bits=torch.ones(2)), OptionError,
     f"QuantLinear.from_affine: bits is tensor([1., 1.]), must be 4 or 8; {LAYERS}"),
    (lambda: st.QuantLinear.from_compressed_tensors(CODES.int(), FACTORS, (N, K), bits=torch.ones(2)), OptionError,
     f"QuantLinear.from_compressed_tensors: bits is tensor([1., 1.]), must be 4 or 8; {LAYERS}"),
    (lambda: st.QuantLinear.from_affine(CODES, FACTORS, bits=3), OptionError,
     f"QuantLinear.from_affine: bits is 3, must be 4 or 8; {LAYERS}"),
    (lambda: st.QuantLinear.from_affine(CODES, FACTORS[:, :3], bits=4), ShapeError,
     (f"QuantLinear.from_affine: scales shape is ({N}, 3), must be one for all, for each of {N} rows, or for each 32, "
     f"64 or 128 of {K} columns; {LAYERS}")),
    (lambda: st.QuantLinear.from_affine(CODES[:, :96], FACTORS[:, :2], bits=4), ShapeError,
     (f"QuantLinear.from_affine: scales shape is ({N}, 2), must be one for all, for each of {N} rows, or for each 32, "
     f"64 or 128 of 96 columns; {LAYERS}")),
    (lambda: st.QuantLinear.from_affine(CODES + 3, FACTORS, bits=4), OptionError,
     ("QuantLinear.from_affine: codes values is from -5 to 10, must be those of int4, from -8 to 7; "
     "pass the bits that they have")),
    (lambda: st.QuantLinear.from_affine(CODES, FACTORS, torch.full((N, K // GROUP), 13), bits=4), OptionError,
     ("QuantLinear.from_affine: zero_points values is from 13 to 13, must be those of int4, from -8 to 7; "
     "pass the bits that they have")),
    (lambda: st.QuantLinear.from_affine(CODES, FACTORS, CODES[:, :1], bits=4), ShapeError,
     (f"QuantLinear.from_affine: zero_points shape is ({N}, 1), must be that of scales, ({N}, 4); "
     "pass one for each scale")),
    (lambda: st.QuantLinear.from_tinygemm(CODES, FACTORS), ShapeError,
     (f"QuantLinear.from_tinygemm: scale_and_zero shape is ({N}, 4), must be [K / group, N, 2]; "
     "stack scales and zeros")),
    (lambda: st.QuantLinear.from_compressed_tensors(CODES.int(), FACTORS, (N, K)), ShapeError,
     (f"QuantLinear.from_compressed_tensors: weight_packed shape is ({N}, {K}), must be ({N}, {K // 8}); "
     "pass the shape of the weight")),
    (lambda: st.QuantLinear.from_compressed_tensors(CODES[:, ::8].int(), FACTORS, (N, K), bits=2), OptionError,
     f"QuantLinear.from_compressed_tensors: bits is 2, must be 4 or 8; {LAYERS}"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), REFUSED, ids=[text for *_, text in REFUSED])
def test_what_does_not_fit_is_refused_in_a_sentence(call: Any, error: type[SamebitsError], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == text
