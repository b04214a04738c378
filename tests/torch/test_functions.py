"""Functions of `samebits.torch`: gradients are numerics.md section 5, bit for bit, and compose; torch agrees nearly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradients as due
import numpy as np
import pytest
import rows as isas
import torch
from torch.func import grad, vmap

import samebits as sb
import samebits.torch as st
from samebits.errors import OptionError, OutOfRangeError, ShapeError
from samebits.ops import training

F = torch.nn.functional
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float32, needs: bool = False) -> torch.Tensor:
    values = np.random.default_rng(seed).standard_normal(shape)
    return torch.from_numpy(np.asarray(values)).to(dtype).requires_grad_(needs)


ELEMENTS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "exp": (st.exp, torch.exp, due.exp_gradient), "log": (st.log, torch.log, due.log_gradient),
    "erf": (st.erf, torch.erf, due.erf_gradient), "relu": (st.relu, torch.relu, due.relu_gradient),
    "gelu": (st.gelu, F.gelu, due.gelu_gradient), "sigmoid": (st.sigmoid, torch.sigmoid, due.sigmoid_gradient),
    "gelu_tanh": (lambda x: st.gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh"),
                  due.gelu_tanh_gradient),
    "tanh": (st.tanh, torch.tanh, due.tanh_gradient), "silu": (st.silu, F.silu, due.silu_gradient),
}  # fmt: skip
ROWS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "softmax": (st.softmax, torch.softmax, due.softmax_gradient),
    "log_softmax": (st.log_softmax, torch.log_softmax, due.log_softmax_gradient),
}


@isas.in_turn("row, name", tuple(ELEMENTS), 0, among=isas.COMPILED_ROWS)
def test_gradients_of_elements_are_the_contract(row: Any, name: str) -> None:
    ours, _, formula = ELEMENTS[name]
    for dtype in FLOATS:
        x, dy = normal(0, 7, 45, dtype=dtype), normal(1, 7, 45, dtype=dtype)
        x = (x.abs() + 0.125 if name == "log" else x).requires_grad_()
        with sb.use_isa(row):
            y = ours(x)
            (dx,) = torch.autograd.grad(y, x, dy)
        expected = formula(*(due.numbers(t) for t in (x, y, dy)))
        assert due.bits(dx) == due.bits(due.given(expected, dtype))


def test_relu_has_a_gradient_where_the_operand_is_nan_and_takes_float64() -> None:
    x = torch.tensor([-1.0, -0.0, 0.0, 2.0, torch.nan], dtype=torch.float64, requires_grad=True)
    (dx,) = torch.autograd.grad(st.relu(x), x, torch.full((5,), -3.0, dtype=torch.float64))
    assert dx.tolist() == [0, 0, 0, -3, -3]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("shape", [(5, 70), (3, 2100)])
def test_gradients_of_rows_are_the_contract(name: str, shape: tuple[int, ...]) -> None:
    ours, _, formula = ROWS[name]
    for dtype in FLOATS:
        x, dy = normal(0, *shape, dtype=dtype, needs=True), normal(1, *shape, dtype=dtype)
        y = ours(x, -1)
        (dx,) = torch.autograd.grad(y, x, dy)
        expected = formula(*(due.numbers(t) for t in (x, y, dy)))
        assert due.bits(dx) == due.bits(due.given(expected, dtype))
        turned = x.detach().T.contiguous().requires_grad_()
        (other,) = torch.autograd.grad(ours(turned, 0), turned, dy.T)
        assert due.bits(other.T) == due.bits(dx)


@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
def test_log_softmax_is_the_contract(dtype: torch.dtype) -> None:
    x = normal(0, 4, 90, dtype=dtype)
    assert due.bits(st.log_softmax(x)) == due.bits(due.log_softmax(due.numbers(x)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("spec", [sb.Spec(), sb.Spec(chunk=32, segments=2)], ids=["sb1", "chunk 32, segments 2"])
def test_gradients_of_layer_norm_are_the_contract(dtype: torch.dtype, spec: sb.Spec) -> None:
    x, weight, bias = (normal(i, *s, dtype=dtype, needs=True) for i, s in enumerate([(3, 50, 70), (70,), (70,)]))
    dy = normal(3, 3, 50, 70, dtype=dtype)
    y = st.layer_norm(x, (70,), weight, bias, 1e-5, spec=spec)
    dx, dw, db = torch.autograd.grad(y, (x, weight, bias), dy)
    a, w, g = (due.numbers(t).reshape(-1, 70) for t in (x, weight, dy))
    h, _ = due.normalised(a, 1e-5)
    assert due.bits(dx) == due.bits(due.given(due.layer_norm_gradient(a, g, w, 1e-5), dtype))
    assert due.bits(dw) == due.bits(due.given(due.sum_of_rows(g * h, spec), dtype))
    assert due.bits(db) == due.bits(due.given(due.sum_of_rows(g, spec), dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("spec", [sb.Spec(), sb.Spec(chunk=32, segments=2)], ids=["sb1", "chunk 32, segments 2"])
def test_rms_norm_and_its_gradients_are_the_contract(dtype: torch.dtype, spec: sb.Spec) -> None:
    x, weight = normal(0, 3, 150, 70, dtype=dtype, needs=True), normal(1, 70, dtype=dtype, needs=True)
    dy = normal(3, 3, 150, 70, dtype=dtype)
    y = st.rms_norm(x, (70,), weight, 1e-5, spec=spec)
    dx, dw = torch.autograd.grad(y, (x, weight), dy)
    a, w, g = (due.numbers(t).reshape(-1, 70) for t in (x, weight, dy))
    h, _ = due.normalised(a, 1e-5, False)
    assert due.bits(y) == due.bits(due.given(h * w, dtype))
    assert due.bits(dx) == due.bits(due.given(due.rms_norm_gradient(a, g, w, 1e-5), dtype))
    assert due.bits(dw) == due.bits(due.given(due.sum_of_rows(g * h, spec), dtype))
    (alone,) = torch.autograd.grad(st.rms_norm(x, (70,)), x, dy)
    least = float(np.finfo(a.dtype).eps)
    assert due.bits(alone) == due.bits(due.given(due.rms_norm_gradient(a, g, np.ones_like(w), least), dtype))


def test_rms_norm_is_nearly_torchs() -> None:
    for dtype in FLOATS:
        x, weight = normal(0, 5, 300, dtype=dtype) * 1e-3, normal(1, 300, dtype=dtype)
        for eps in (None, 1e-6):
            ours, theirs = st.rms_norm(x, (300,), weight, eps), F.rms_norm(x, (300,), weight, eps)
            torch.testing.assert_close(ours, theirs, rtol=4 * torch.finfo(dtype).eps, atol=0)


def test_norms_of_several_axes_are_those_of_one() -> None:
    x, weight = normal(0, 4, 6, 7), normal(1, 6, 7)
    for norm in (st.layer_norm, st.rms_norm):
        whole = norm(x, (6, 7), weight)
        assert due.bits(whole) == due.bits(norm(x.flatten(1), (42,), weight.flatten()))


@pytest.mark.parametrize("dtype", FLOATS[2:], ids=str)
def test_nan_is_canonical_where_narrow_floats_are_computed_wide(dtype: torch.dtype) -> None:
    """Torch's conversions have other codes for NaN."""
    x, weight = normal(0, 4, 40, dtype=dtype), normal(1, 40)
    x[1, 3] = torch.nan
    x.requires_grad_()
    for y in (st.layer_norm(x, (40,), weight, weight), st.rms_norm(x, (40,), weight)):
        (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
        for made in (y, dx):
            assert due.bits(made[1]) == due.bits(due.given(np.full(40, np.nan, np.float32), dtype))


def test_layer_norm_of_narrow_floats_beside_wide_weights_rounds_once() -> None:
    x, weight, bias = normal(0, 4, 40, dtype=torch.bfloat16), normal(1, 40), normal(2, 40)
    y = st.layer_norm(x, (40,), weight, bias)
    assert due.bits(y) == due.bits(st.layer_norm(x.float(), (40,), weight, bias).bfloat16())
    y = st.rms_norm(x, (40,), weight)
    assert due.bits(y) == due.bits(st.rms_norm(x.float(), (40,), weight).bfloat16())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2)])
def test_sums_and_means_spread_their_gradient(dtype: torch.dtype, dim: Any) -> None:
    x = normal(0, 3, 5, 7, dtype=dtype, needs=True)
    for keepdim in (False, True):
        for ours, theirs in ((st.sum, torch.sum), (st.mean, torch.mean)):
            y, like = ours(x, dim, keepdim), theirs(x, dim, keepdim)
            assert y.shape == like.shape
            dy = normal(1, *y.shape, dtype=dtype)
            (dx,) = torch.autograd.grad(y, x, dy)
            count = x.numel() // max(y.numel(), 1)
            each = due.numbers(dy) / due.numbers(dy).dtype.type(count if ours is st.mean else 1)
            kept = tuple(torch.sum(x, dim, keepdim=True).shape)
            assert due.bits(dx) == due.bits(due.given(np.broadcast_to(each.reshape(kept), x.shape), dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("spec", [sb.Spec(), sb.Spec(chunk=16, segments=4)], ids=["sb1", "chunk 16, segments 4"])
def test_gradients_of_embedding_are_the_contract(dtype: torch.dtype, spec: sb.Spec) -> None:
    weight, dy = normal(0, 9, 21, dtype=dtype, needs=True), normal(1, 4, 75, 21, dtype=dtype)
    indices = torch.from_numpy(np.random.default_rng(2).integers(0, 7, (4, 75)))
    y = st.embedding(indices, weight, spec=spec)
    assert torch.equal(y, weight[indices])
    (dw,) = torch.autograd.grad(y, weight, dy)
    flat = due.numbers(dy).reshape(-1, 21)
    expected = due.embedding_gradient(flat, indices.numpy().ravel(), 9, spec)
    assert due.bits(dw) == due.bits(due.given(expected, dtype))
    (padded,) = torch.autograd.grad(st.embedding(indices.int(), weight, 3, spec=spec), weight, dy)
    assert not padded[3].any()
    assert torch.equal(padded[:3], dw[:3])


def test_a_big_table_has_the_gradient_of_a_small_one() -> None:
    dy, indices = normal(1, 6, 1024), torch.tensor([5, 1, 5, 0, 16_500, 5])
    for threads in (1, 2):  # one clears it as bytes
        found = training.embedding_gradient(dy, indices, 16_600, 1, 128, 1, "sb1", threads=threads)
        expected = due.embedding_gradient(dy.numpy(), np.where(indices == 1, -1, indices), 16_600)
        assert due.bits(found) == due.bits(expected)


def test_calls_of_embedding_that_are_remembered_look_at_their_own_indices() -> None:
    weight, dy = normal(0, 40, 21, needs=True), normal(1, 30, 21)
    for seed in range(5):  # each with another number of rows that are asked for
        indices = torch.from_numpy(np.random.default_rng(seed).integers(0, 8 * (seed + 1), 30))
        y = st.embedding(indices, weight)
        assert torch.equal(y, weight[indices])
        (dw,) = torch.autograd.grad(y, weight, dy)
        assert due.bits(dw) == due.bits(due.embedding_gradient(due.numbers(dy), indices.numpy(), 40))
    for wrong in (40, -1):
        with pytest.raises(OutOfRangeError) as caught:
            st.embedding(torch.full((30,), wrong), weight)
        assert str(caught.value) == f"embedding: input is {wrong}, must be in [0, 40); give indices that exist"


@pytest.mark.parametrize("wrong", [5, -1, 2**40])
def test_the_gradient_of_embedding_refuses_indices_that_are_no_rows(wrong: int) -> None:
    text = f"embedding: input is {wrong}, must be in [0, 5); give indices that exist"
    weight, indices = normal(0, 5, 3, needs=True), torch.tensor([1, 4, 1])
    y = st.embedding(indices, weight)
    indices.numpy()[1] = wrong  # which autograd does not know of
    for call in (
        lambda: torch.autograd.grad(y, weight, torch.ones(3, 3)),
        lambda: torch.ops.samebits.embedding_backward(torch.ones(3, 3), indices, 5, -1, 128, 1, "sb1"),
        lambda: torch.ops.samebits.add_embedding_(torch.ones(1, 5, 3), torch.ones(3, 3), indices, -1, 128, 1, "sb1"),
    ):
        with pytest.raises(OutOfRangeError) as caught:
            call()
        assert str(caught.value) == text


@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (4, 3), (3, 4)])
def test_the_gradient_of_embedding_refuses_what_is_not_a_row_for_each_index(rows: int, columns: int) -> None:
    dy, indices, total = torch.ones(rows, columns), torch.tensor([1, 4, 1]), torch.ones(1, 5, 3)
    with pytest.raises(ShapeError) as caught:
        torch.ops.samebits.add_embedding_(total, dy, indices, -1, 128, 1, "sb1")
    text = f"dy shape is ({rows}, {columns}), must be (3, {{}}); give a row for each index"
    assert str(caught.value) == f"add_embedding_: {text.format(3)}"
    assert torch.equal(total, torch.ones(1, 5, 3))
    if rows != 3:
        with pytest.raises(ShapeError) as caught:
            torch.ops.samebits.embedding_backward(dy, indices, 5, -1, 128, 1, "sb1")
        assert str(caught.value) == f"embedding_backward: {text.format(columns)}"


def test_rows_of_other_indices_do_not_matter() -> None:
    weight, dy = normal(0, 4, 5, needs=True), normal(1, 6, 5)
    indices = torch.tensor([0, 1, 0, 2, 1, 0])
    (dw,) = torch.autograd.grad(st.embedding(indices, weight), weight, dy)
    spoiled = dy.clone()
    spoiled[indices == 1] = torch.nan
    (beside,) = torch.autograd.grad(st.embedding(indices, weight), weight, spoiled)
    assert torch.equal(beside[[0, 2, 3]], dw[[0, 2, 3]])
    assert beside[1].isnan().all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_cross_entropy_and_its_gradient_are_the_contract(dtype: torch.dtype) -> None:
    x, target = normal(0, 6, 33, dtype=dtype, needs=True), torch.tensor([0, 32, 7, -100, 7, 8])
    a, known = due.numbers(x), target.numpy()
    picked = -due.log_softmax(a)[np.arange(6), np.maximum(known, 0)]
    each = np.where(known < 0, a.dtype.type(0), picked)
    total = due.total(each[None])[0, 0]
    for reduction, count in (("none", None), ("sum", None), ("mean", None), ("mean", 64)):
        y = st.cross_entropy(x, target, reduction=reduction, count=count)
        scale = a.dtype.type(1 if reduction != "mean" else count or 5)
        assert due.bits(y) == due.bits(each if reduction == "none" else np.asarray(total / scale))
        assert y.dtype == (torch.float64 if dtype is torch.float64 else torch.float32)
        dy = normal(1, *y.shape, dtype=y.dtype)
        (dx,) = torch.autograd.grad(y, x, dy)
        g = np.broadcast_to(due.numbers(dy) / scale, (6,))
        assert due.bits(dx) == due.bits(due.given(due.cross_entropy_gradient(a, known, g), dtype))


def test_cross_entropy_takes_classes_on_the_second_axis_and_a_row_alone() -> None:
    x, target = normal(0, 2, 9, 5), torch.arange(10).reshape(2, 5) % 9
    losses = st.cross_entropy(x, target, reduction="none")
    assert losses.shape == (2, 5)
    assert losses[1, 3] == st.cross_entropy(x[1, :, 3], target[1, 3])


def test_grouped_mm_is_a_product_a_group() -> None:
    a, b = normal(0, 9, 40, needs=True), normal(1, 3, 40, 6, needs=True)
    ends, dy = torch.tensor([2, 2, 7], dtype=torch.int32), normal(2, 9, 6)
    y = st.grouped_mm(a, b, offs=ends)
    da, db = torch.autograd.grad(y, (a, b), dy)
    for g, (low, high) in enumerate([(0, 2), (2, 2), (2, 7)]):
        assert due.bits(y[low:high]) == due.bits(st.mm(a[low:high], b[g]))
        assert due.bits(da[low:high]) == due.bits(st.mm(dy[low:high], b[g].T))
        assert due.bits(db[g]) == due.bits(st.mm(a[low:high].T, dy[low:high]))
    assert not y[7:].any()
    assert not da[7:].any()


INDICES = torch.tensor([[0, 2], [1, 2]])
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]] = {
    **{name: (ours, theirs, [(4, 3)]) for name, (ours, theirs, _) in ELEMENTS.items()},
    "softmax": (lambda x: st.softmax(x, 0), lambda x: torch.softmax(x, 0), [(4, 3)]),
    "log_softmax": (lambda x: st.log_softmax(x, 0), lambda x: torch.log_softmax(x, 0), [(4, 3)]),
    "layer_norm": (lambda x, w, b: st.layer_norm(x, (3,), w, b), lambda x, w, b: F.layer_norm(x, (3,), w, b),
                   [(4, 3), (3,), (3,)]),
    "rms_norm": (lambda x, w: st.rms_norm(x, (3,), w), lambda x, w: F.rms_norm(x, (3,), w), [(4, 3), (3,)]),
    "sum": (lambda x: st.sum(x, 0), lambda x: torch.sum(x, 0), [(4, 3)]),
    "mean": (lambda x: st.mean(x, (0, 1)), lambda x: torch.mean(x, (0, 1)), [(4, 3)]),
    "embedding": (lambda w: st.embedding(INDICES, w), lambda w: F.embedding(INDICES, w), [(5, 3)]),
    "cross_entropy": (lambda x: st.cross_entropy(x, INDICES[0]), lambda x: F.cross_entropy(x, INDICES[0]), [(2, 3)]),
    "grouped_mm": (lambda a, b: st.grouped_mm(a, b, offs=INDICES[0] + 2),
                   lambda a, b: torch.cat([a[:2] @ b[0], a[2:] @ b[1]]), [(4, 3), (2, 3, 5)]),
}  # fmt: skip
CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def operands_of(shapes: list[tuple[int, ...]]) -> tuple[torch.Tensor, ...]:
    return tuple(normal(i, *shape).abs() + 0.5 for i, shape in enumerate(shapes))


def near(ours: Any, theirs: Any) -> bool:
    pairs = zip(torch.utils._pytree.tree_leaves(ours), torch.utils._pytree.tree_leaves(theirs), strict=True)
    return all(torch.allclose(x, y, 1e-4, 1e-5) for x, y in pairs)


@CASE
def test_transforms_of_torch_func_compose(case: Any) -> None:
    ours, theirs, shapes = case
    operands, places = operands_of(shapes), tuple(range(len(shapes)))

    def cubed(function: Any) -> Any:
        return lambda *arrays: (function(*arrays) * function(*arrays).detach() ** 2).sum()

    assert near(ours(*operands), theirs(*operands))
    assert near(grad(cubed(ours), places)(*operands), grad(cubed(theirs), places)(*operands))
    for one in places:
        axes = tuple(0 if i == one else None for i in places)
        stacked = tuple(torch.stack([x, x + 1]) if i == one else x for i, x in enumerate(operands))
        assert near(vmap(ours, axes)(*stacked), vmap(theirs, axes)(*stacked))
        each, known = vmap(grad(cubed(ours), places), axes), vmap(grad(cubed(theirs), places), axes)
        assert near(each(*stacked), known(*stacked))


@CASE
def test_compiled_calls_have_the_eager_bits(case: Any) -> None:
    ours, _, shapes = case
    operands = [x.requires_grad_() for x in operands_of(shapes)]
    y, again = ours(*operands), torch.compile(ours, fullgraph=True, backend="aot_eager")(*operands)
    dy = torch.ones_like(y)
    assert due.bits(y) == due.bits(again)
    for a, b in zip(torch.autograd.grad(y, operands, dy), torch.autograd.grad(again, operands, dy), strict=True):
        assert due.bits(a) == due.bits(b)


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_float64_agree_with_differences(name: str) -> None:
    ours, _, shapes = CASES[name]
    operands = tuple(x.double().requires_grad_() for x in operands_of(shapes))
    assert torch.autograd.gradcheck(ours, operands)


@pytest.mark.parametrize("name", ["sum", "mean", "embedding"])
def test_second_gradients_of_what_only_sums_and_scales(name: str) -> None:
    ours, _, shapes = CASES[name]
    assert torch.autograd.gradgradcheck(ours, tuple(x.double().requires_grad_() for x in operands_of(shapes)))


NODES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{name: ours for name, (ours, _, _) in ELEMENTS.items()},
    "softmax": st.softmax,
    "log_softmax": st.log_softmax,
    "layer_norm": lambda x: st.layer_norm(x, (3,)),
    "rms_norm": lambda x: st.rms_norm(x, (3,)),
    "cross_entropy": lambda x: st.cross_entropy(x, torch.tensor([0, 2, 1, 0])),
}


@isas.in_turn("row, dtype", FLOATS, 0, among=isas.COMPILED_ROWS)
def test_rows_and_layouts_change_no_gradient(row: Any, dtype: torch.dtype) -> None:
    x, dy = normal(0, 40, 3).abs().to(dtype) + 0.5, normal(1, 40, 3).to(dtype)
    for name in ("softmax", "log_softmax", "layer_norm", "rms_norm", "gelu", "gelu_tanh", "erf", "silu"):
        y, dense = NODES[name](x), x.clone().requires_grad_()
        (dx,) = torch.autograd.grad(NODES[name](dense), dense, dy)
        for operand in (x.T.contiguous().T, torch.stack([x, x + 1], -1)[..., 0]):
            leaf = operand.detach().requires_grad_()
            with sb.use_isa(row):
                again = NODES[name](leaf)
                (found,) = torch.autograd.grad(again, leaf, dy.T.contiguous().T)
            assert due.bits(again) == due.bits(y), name
            assert due.bits(found) == due.bits(dx), name


@pytest.mark.parametrize("name", NODES)
def test_second_gradients_are_refused_by_name(name: str) -> None:
    x = (normal(0, 4, 3).abs() + 0.5).requires_grad_()
    (dx,) = torch.autograd.grad(NODES[name](x).sum(), x, create_graph=True)
    with pytest.raises(OptionError) as caught:
        torch.autograd.grad(dx.sum(), x)
    assert str(caught.value) == f"{name}: a second gradient is asked for, must be left out; differentiate once"


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "cross_entropy"])
def test_gradients_of_rows_do_not_depend_on_neighbours_that_are_nan(name: str) -> None:
    x, dy = normal(0, 8, 3), normal(1, 8, 3)
    spoiled = x.clone()
    spoiled[1::2] = torch.nan
    target = torch.arange(8) % 3
    calls: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        **NODES, "cross_entropy": lambda x: st.cross_entropy(x, target, reduction="none"),
    }  # fmt: skip

    def gradient(operand: torch.Tensor) -> torch.Tensor:
        operand = operand.clone().requires_grad_()
        y = calls[name](operand)
        return torch.autograd.grad(y, operand, dy if y.ndim == 2 else dy[:, 0])[0]

    assert due.bits(gradient(x)[::2]) == due.bits(gradient(spoiled)[::2])
    assert gradient(spoiled)[1::2].isnan().all()


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_a_number_is_a_row_of_one(name: str) -> None:
    """Its result is 1 or 0 and its gradient 0, for each of a batch too."""
    function = getattr(st, name)
    x, due = torch.tensor([1.0, -2.0, 30.0]), torch.full((3,), 1.0 if name == "softmax" else 0.0)
    assert torch.equal(function(x[0], 0), due[0])
    assert torch.equal(vmap(function)(x), due)
    assert torch.equal(grad(function)(x[0]), torch.tensor(0.0))
    assert torch.equal(vmap(grad(function))(x), torch.zeros(3))
