"""Products of `samebits.torch`: values and gradients are numerics.md sections 2 and 5, bit for bit, and compose."""

from __future__ import annotations

import threading
from typing import Any

import gradients as due
import numpy as np
import pytest
import rows as isas
import torch
from torch.func import grad, hessian, jacrev, jvp, vmap

import samebits as sb
import samebits.torch as st
from samebits.errors import OptionError

# torch's own, within its compiler and its forward mode.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
NAMES = "float64 or float32 or bfloat16 or float16"
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
F = torch.nn.functional


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float32, needs: bool = False) -> torch.Tensor:
    values = np.random.default_rng(seed).standard_normal(shape)
    return torch.from_numpy(np.asarray(values)).to(dtype).requires_grad_(needs)


def gradients_of(y: torch.Tensor, dy: torch.Tensor, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(y, operands, dy)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(7,), (0, 7), (5, 7), (300, 150), (2, 3, 130)])
@pytest.mark.parametrize("spec", [sb.Spec(), sb.Spec(chunk=32, segments=4)], ids=["sb1", "chunk 32, segments 4"])
def test_linear_and_its_gradients_are_the_contract(dtype: torch.dtype, shape: tuple[int, ...], spec: sb.Spec) -> None:
    x, weight = normal(0, *shape, dtype=dtype, needs=True), normal(1, 9, shape[-1], dtype=dtype, needs=True)
    bias, dy = normal(2, 9, dtype=dtype, needs=True), normal(3, *shape[:-1], 9, dtype=dtype)
    y = st.linear(x, weight, bias, spec=spec)
    dx, dw, db = gradients_of(y, dy, x, weight, bias)
    a, w, g = (due.numbers(t).reshape(-1, t.shape[-1]) if t.numel() else due.numbers(t) for t in (x, weight, dy))
    assert due.bits(y) == due.bits(due.given(due.contraction(a, w.T, spec) + due.numbers(bias), dtype))
    assert due.bits(dx) == due.bits(due.given(due.contraction(g, w, spec), dtype))
    assert due.bits(dw) == due.bits(due.given(due.contraction(g.T, a, spec), dtype))
    assert due.bits(db) == due.bits(due.given(due.sum_of_rows(g, spec), dtype))
    assert (y.dtype, dx.dtype, dw.dtype, db.dtype) == (dtype,) * 4


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_products_are_the_contract(dtype: torch.dtype) -> None:
    a, b, c = normal(0, 5, 140, dtype=dtype), normal(1, 140, 6, dtype=dtype), normal(2, 6, dtype=dtype)
    left, right = due.numbers(a), due.numbers(b)
    plain = due.contraction(left, right)
    kind = plain.dtype.type
    added = plain * kind(0.3) + kind(1.7) * due.numbers(c)
    for y in (st.mm(a, b), st.matmul(a, b), st.bmm(a[None], b[None])[0], a.mT.contiguous().mT @ b * 0 + st.mm(a, b)):
        assert due.bits(y) == due.bits(due.given(plain, dtype))
    assert due.bits(st.addmm(c, a, b, alpha=0.3, beta=1.7)) == due.bits(due.given(added, dtype))
    stacked = st.baddbmm(c, a[None], b[None], alpha=0.3, beta=1.7)
    assert due.bits(stacked[0]) == due.bits(due.given(added, dtype))
    nothing = torch.full_like(c, torch.nan)
    assert torch.equal(st.addmm(nothing, a, b, beta=0), st.mm(a, b))


def test_gradients_of_repeated_operands_sum_batch_axes_before_rows() -> None:
    a, b = normal(0, 4, 1, 3, 70, needs=True), normal(1, 2, 70, 5, needs=True)
    dy = normal(2, 4, 2, 3, 5)
    da, db = gradients_of(st.matmul(a, b), dy, a, b)
    x, w, g = due.numbers(a), due.numbers(b), due.numbers(dy)
    left = g.transpose(0, 2, 1, 3).reshape(4, 3, 10)
    assert due.bits(da) == due.bits(due.contraction(left, w.transpose(0, 2, 1).reshape(10, 70))[:, None])
    rows = np.broadcast_to(x, (4, 2, 3, 70)).transpose(1, 0, 2, 3).reshape(2, 12, 70)
    over = g.transpose(1, 0, 2, 3).reshape(2, 12, 5)
    assert due.bits(db) == due.bits(due.contraction(rows.transpose(0, 2, 1), over))


@pytest.mark.parametrize(("shape", "axes"), [((3,), (0,)), ((1, 3), (0,)), ((5, 1), (1,)), ((), (0, 1)), ((5, 3), ())])
def test_the_gradient_of_what_is_added_sums_where_it_was_repeated(
    shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    c, a, b, dy = normal(0, *shape, needs=True), normal(1, 5, 4), normal(2, 4, 3), normal(3, 5, 3)
    (dc,) = gradients_of(st.addmm(c, a, b, beta=0.7), dy, c)
    g = due.numbers(dy)
    kept = tuple(i for i in range(2) if i not in axes)
    rows = g.transpose(*axes, *kept).reshape(-1, int(np.prod([g.shape[i] for i in kept])))
    expected = (due.sum_of_rows(rows) if axes else g) * np.float32(0.7)
    assert due.bits(dc) == due.bits(expected.reshape(shape))


ARGUMENTS = {
    "linear": (st.linear, F.linear, [(5, 7), (3, 7), (3,)]),
    "linear of a vector": (st.linear, F.linear, [(7,), (3, 7), (3,)]),
    "linear of three axes": (st.linear, F.linear, [(2, 3, 7), (4, 7), (4,)]),
    "mm": (st.mm, torch.mm, [(5, 7), (7, 3)]),
    "bmm": (st.bmm, torch.bmm, [(2, 3, 4), (2, 4, 5)]),
    "matrix by vector": (st.matmul, torch.matmul, [(5, 7), (7,)]),
    "vector by vector": (st.matmul, torch.matmul, [(7,), (7,)]),
    "vector by matrices": (st.matmul, torch.matmul, [(7,), (2, 7, 3)]),
    "batches": (st.matmul, torch.matmul, [(4, 1, 5, 7), (3, 7, 2)]),
    "addmm": (st.addmm, torch.addmm, [(5, 1), (5, 7), (7, 2)]),
    "baddbmm": (st.baddbmm, torch.baddbmm, [(2, 1, 3), (2, 5, 7), (2, 7, 3)]),
}
CASES = pytest.mark.parametrize("case", ARGUMENTS.values(), ids=ARGUMENTS)


def doubles(shapes: list[tuple[int, ...]], needs: bool = False) -> tuple[torch.Tensor, ...]:
    return tuple(normal(i, *shape, dtype=torch.float64, needs=needs) for i, shape in enumerate(shapes))


def squares(function: Any) -> Any:
    return lambda *arrays: function(*arrays).square().sum()


def close(ours: Any, theirs: Any) -> bool:
    pairs = zip(torch.utils._pytree.tree_leaves(ours), torch.utils._pytree.tree_leaves(theirs), strict=True)
    return all(torch.allclose(x, y, 1e-9, 1e-9) for x, y in pairs)


@CASES
def test_gradients_agree_with_differences_and_with_torch(case: Any) -> None:
    ours, theirs, shapes = case
    operands = doubles(shapes, needs=True)
    assert close(ours(*operands), theirs(*operands))
    assert torch.autograd.gradcheck(ours, operands)
    assert torch.autograd.gradgradcheck(ours, operands)


@CASES
def test_transforms_of_torch_func_compose(case: Any) -> None:
    ours, theirs, shapes = case
    operands, places = doubles(shapes), tuple(range(len(shapes)))
    assert close(grad(squares(ours), places)(*operands), grad(squares(theirs), places)(*operands))
    assert close(jacrev(ours, places)(*operands), jacrev(theirs, places)(*operands))
    assert close(jacrev(jacrev(squares(ours)))(*operands), jacrev(jacrev(squares(theirs)))(*operands))
    for one in places:
        axes = tuple(operands[i].ndim if i == one else None for i in places)
        stacked = tuple(torch.stack([x, x + 1], -1) if i == one else x for i, x in enumerate(operands))
        assert close(vmap(ours, axes)(*stacked), vmap(theirs, axes)(*stacked))
        each, known = grad(squares(ours), places), grad(squares(theirs), places)
        assert close(vmap(each, axes)(*stacked), vmap(known, axes)(*stacked))
        every, whole = squares(vmap(ours, axes)), squares(vmap(theirs, axes))
        assert close(grad(every, places)(*stacked), grad(whole, places)(*stacked))


def test_a_batch_of_calls_has_the_bits_of_each() -> None:
    x, weight = normal(0, 3, 5, 200), normal(1, 3, 7, 200)
    together = vmap(st.linear)(x, weight)
    steps = vmap(grad(lambda x, w: st.linear(x, w).sum(), (0, 1)))(x, weight)
    for i in range(3):
        assert due.bits(together[i]) == due.bits(st.linear(x[i], weight[i]))
        alone = grad(lambda x, w: st.linear(x, w).sum(), (0, 1))(x[i], weight[i])
        assert [due.bits(step[i]) for step in steps] == [due.bits(step) for step in alone]


def test_without_rows_weights_get_zeros() -> None:
    x, weight, bias = normal(0, 4, 0, 7, needs=True), normal(1, 3, 7, needs=True), normal(2, 3, needs=True)
    y = st.linear(x, weight, bias)
    dx, dw, db = gradients_of(y, torch.ones_like(y), x, weight, bias)
    assert (y.shape, dx.shape) == ((4, 0, 3), (4, 0, 7))
    assert (due.bits(dw), due.bits(db)) == (bytes(4 * 21), bytes(4 * 3))


def test_forward_mode_is_refused() -> None:
    x, weight = normal(0, 5, 7), normal(1, 3, 7)
    text = (
        r"^linear: forward-mode differentiation is asked for, must be reverse mode; "
        r"use torch\.func\.grad, vjp or jacrev$"
    )
    with pytest.raises(OptionError, match=text):
        jvp(lambda x: st.linear(x, weight), (x,), (x,))
    with pytest.raises(OptionError, match=text):
        hessian(lambda x: st.linear(x, weight).sum())(x)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(OptionError, match=text):
        st.linear(torch.autograd.forward_ad.make_dual(x, x), weight)


def test_rows_do_not_depend_on_their_batch_nor_on_neighbours() -> None:
    x, weight = normal(0, 64, 300, needs=True), normal(1, 33, 300)
    y = st.linear(x, weight)
    (dx,) = gradients_of(y, torch.ones_like(y), x)
    spoiled = x.detach().clone()
    spoiled[1::2] = torch.nan
    beside = st.linear(spoiled.requires_grad_(), weight)
    for i in (0, 2, 62):
        row = x.detach()[i].clone().requires_grad_()
        alone = st.linear(row, weight)
        (step,) = gradients_of(alone, torch.ones_like(alone), row)
        assert due.bits(y[i]) == due.bits(alone) == due.bits(beside[i])
        assert due.bits(dx[i]) == due.bits(step)


@pytest.mark.parametrize("flag", [True, False])
def test_flags_and_threads_of_torch_change_nothing(flag: bool) -> None:
    x, weight = normal(0, 40, 300) * 1e-20, normal(1, 33, 300) * 1e-20
    expected = due.bits(due.contraction(due.numbers(x), due.numbers(weight).T))
    threads = torch.get_num_threads()
    try:
        torch.set_flush_denormal(flag)
        torch.set_num_threads(1 + flag)
        assert due.bits(st.linear(x, weight)) == expected
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


def test_strides_change_nothing() -> None:
    x, weight = normal(0, 6, 40), normal(1, 5, 40)
    expected = due.bits(st.linear(x, weight))
    wide = torch.zeros(6, 3, 80)
    wide[:, 1, ::2] = x
    for operand in (x.T.contiguous().T, wide[:, 1, ::2], x.flip(0).flip(0)):
        assert due.bits(st.linear(operand, weight.T.contiguous().T)) == expected


def laid(x: torch.Tensor, way: int) -> torch.Tensor:
    """A leaf of the same values that lies otherwise: dense, turned, with steps, or repeated."""
    if way == 3 and x.ndim > 1 and x.shape[0]:
        x = x[:1].expand(x.shape)
    elif way == 2:
        x = torch.stack([x, x + 1], -1)[..., 0]
    elif way == 1:
        x = x.mT.contiguous().mT
    return x.detach().requires_grad_()


@pytest.mark.parametrize("row", isas.COMPILED_ROWS, ids=lambda row: row.name)
def test_rows_threads_and_layouts_of_random_shapes_change_nothing(row: Any) -> None:
    random, threads = np.random.default_rng(1), torch.get_num_threads()
    try:
        for _ in range(6):
            m, k, n = (int(extent) for extent in random.integers(0, (70, 200, 50)))
            dtype, ways = FLOATS[random.integers(4)], random.integers(0, 4, 3)
            torch.set_num_threads(int(random.integers(1, 4)))
            x, weight = laid(normal(0, m, k, dtype=dtype), ways[0]), laid(normal(1, n, k, dtype=dtype), ways[1])
            bias, dy = normal(2, n, dtype=dtype, needs=True), laid(normal(3, m, n, dtype=dtype), ways[2]).detach()
            with sb.use_isa(row):
                y = st.linear(x, weight, bias)
                found = y, *gradients_of(y, dy, x, weight, bias)
            a, w, g = map(due.numbers, (x, weight, dy))
            exact = due.contraction(a, w.T) + due.numbers(bias), due.contraction(g, w), due.contraction(g.T, a)
            for got, want in zip(found, (*exact, due.sum_of_rows(g)), strict=True):
                assert due.bits(got) == due.bits(due.given(want, dtype)), (m, k, n, dtype, ways)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_its_dtype(dtype: torch.dtype) -> None:
    x, weight, bias = (normal(i, *shape, needs=True) for i, shape in enumerate([(5, 7), (3, 7), (3,)]))
    with torch.autocast("cpu", dtype):
        y = st.linear(x, weight, bias)
        kept = st.mm(x.double(), weight.double().T)
    assert y.dtype == dtype
    assert kept.dtype == torch.float64
    expected = st.linear(x.to(dtype), weight.to(dtype), bias.to(dtype))
    assert torch.equal(y, expected)
    dy = torch.ones_like(y)
    assert [g.dtype for g in gradients_of(y, dy, x, weight, bias)] == [torch.float32] * 3


def test_a_spec_in_force_goes_with_its_call_into_backward() -> None:
    x, weight = normal(0, 600, 999, needs=True), normal(1, 3, 999, needs=True)
    spec = sb.Spec(chunk=64, segments=4)
    with st.use_spec(spec):
        y = st.linear(x, weight)
        with st.use_spec(sb.Spec()):
            assert not torch.equal(st.linear(x, weight), y)
        assert torch.equal(st.linear(x, weight), y)
    dy, found = normal(2, 600, 3), []
    thread = threading.Thread(target=lambda: found.extend(gradients_of(y, dy, x, weight)))
    thread.start()
    thread.join()
    assert due.bits(found[0]) == due.bits(due.contraction(due.numbers(dy), due.numbers(weight), spec))
    assert due.bits(found[1]) == due.bits(due.contraction(due.numbers(dy).T, due.numbers(x), spec))


def test_a_compiled_function_obeys_the_spec_in_force() -> None:
    a, b = normal(0, 3, 999), normal(1, 999, 2)
    compiled = torch.compile(st.mm, fullgraph=True, backend="aot_eager")
    specs = [sb.Spec(), sb.Spec(segments=4), sb.Spec(chunk=64), sb.Spec()]
    for spec in specs:
        with st.use_spec(spec):
            assert torch.equal(compiled(a, b), st.mm(a, b, spec=spec))
    assert not torch.equal(st.mm(a, b, spec=specs[0]), st.mm(a, b, spec=specs[1]))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_gradients_are_the_eager_ones(backend: str) -> None:
    operands = [normal(i, *shape, needs=True) for i, shape in enumerate([(4, 5, 70), (6, 70), (6,)])]
    compiled = torch.compile(lambda *x: st.linear(*x), fullgraph=True, backend=backend)
    y, again = st.linear(*operands), compiled(*operands)
    dy = normal(3, 4, 5, 6)
    assert due.bits(y) == due.bits(again)
    for ours, theirs in zip(gradients_of(y, dy, *operands), gradients_of(again, dy, *operands), strict=True):
        assert due.bits(ours) == due.bits(theirs)


def test_exports_with_any_number_of_rows() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return st.linear(x, weight)

    x, weight = normal(0, 4, 7), normal(1, 3, 7)
    exported = torch.export.export(Module(), (x, weight), dynamic_shapes=({0: torch.export.Dim("rows")}, None))
    for rows in (1, 2, 50):
        more = normal(2, rows, 7)
        assert due.bits(exported.module()(more, weight)) == due.bits(st.linear(more, weight))


def test_meta_tensors_have_shapes_and_dtypes() -> None:
    x, weight = (
        torch.empty(4, 5, 7, device="meta", dtype=torch.bfloat16),
        torch.empty(3, 7, device="meta", dtype=torch.bfloat16),
    )
    y = st.linear(x, weight)
    assert (y.shape, y.dtype, y.device.type) == ((4, 5, 3), torch.bfloat16, "meta")
