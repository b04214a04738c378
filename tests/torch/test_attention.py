"""Attention is numerics.md section 8 bit for bit, its gradients section 5; keys a row may not attend are not there."""

from __future__ import annotations

import math
from typing import Any

import gradients as due
import numpy as np
import pytest
import rows as isas
import torch

import samebits as sb
import samebits.torch as st
from samebits import ieee
from samebits.errors import DTypeError, OptionError, ShapeError

F = torch.nn.functional
Array = np.ndarray[Any, Any]
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
attention = st.scaled_dot_product_attention
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def drawn(n: int, h: int, rows: int, keys: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [normal(i, n, h, count, 16, dtype=dtype) for i, count in enumerate((rows, keys, keys))]


def same(x: torch.Tensor, y: torch.Tensor) -> bool:
    return due.bits(x) == due.bits(y)


def near(found: torch.Tensor, known: torch.Tensor) -> bool:
    """Both err by at most a rounding for each of 33 keys and 16 places of a head, of the largest magnitude."""
    return bool((found - known).abs().max() <= (33 + 16) * torch.finfo(found.dtype).eps * known.abs().max())


def total(places: dict[int, Any], kind: Any) -> Any:
    """Section 6 of the elements that are there, by their places."""
    blocks: dict[int, Any] = {}
    for block in {place // 2048 for place in places}:
        lanes: dict[int, Any] = {}
        for place in sorted(p for p in places if p // 2048 == block):
            lane = place % 2048 % 64
            lanes[lane] = lanes[lane] + places[place] if lane in lanes else places[place]
        for half in (32, 16, 8, 4, 2, 1):
            for lane in range(half):
                if lane + half in lanes:
                    lanes[lane] = lanes[lane] + lanes[lane + half] if lane in lanes else lanes[lane + half]
        blocks[block] = lanes[0]
    assert len(blocks) == 1
    return kind(blocks[0])


def by_the_page(q: Array, k: Array, v: Array, allowed: Array, added: Array, scale: float, chunk: int) -> Array:
    """Section 8 of one sequence: q [H, L, E], k and v [H, S, .], allowed and added [H, L, S]."""
    kind = q.dtype.type
    out = np.zeros((*q.shape[:-1], v.shape[-1]), kind)
    first = int(allowed.any((0, 1)).argmax())
    scores = due.contraction(q, k.swapaxes(-1, -2), sb.Spec(chunk)) * kind(scale) + added
    for h, i in np.ndindex(q.shape[:2]):
        seen = np.flatnonzero(allowed[h, i])
        if not len(seen):
            continue
        e = {j - first: due.exp(np.array(scores[h, i, j] - scores[h, i, seen].max()))[()] for j in seen}
        whole = total(e, kind)
        t: Any = None
        for start in range(0, k.shape[1] - first, chunk):
            p: Any = np.zeros(v.shape[-1], kind)
            for j in (j for j in e if start <= j < start + chunk):
                p = ieee.fma(np.full(v.shape[-1], e[j] / whole, kind), v[h, j + first], p)
            t = p if t is None else t + p
        out[h, i] = t + kind(0)
    return out


CASES = {
    "all": {}, "causal": {"is_causal": True}, "scaled": {"scale": 0.3},
    "mask": {"attn_mask": torch.from_numpy(np.random.default_rng(5).random((2, 2, 7, 150)) < 0.4)},
    "padding on the left": {"attn_mask": (torch.arange(150) >= torch.tensor([9, 3])[:, None])[:, None, None, :]},
    "added": {"attn_mask": normal(6, 7, 150).masked_fill(normal(7, 7, 150) > 1, -math.inf)},
    "a row that attends nothing": {"attn_mask": (torch.arange(7) != 3)[:, None].expand(7, 150)},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_attention_is_the_contract(dtype: torch.dtype, case: str) -> None:
    options: dict[str, Any] = CASES[case]
    q, k, v = drawn(2, 2, 7, 150, dtype)
    y = attention(q, k, v, **options)
    mask = options.get("attn_mask", torch.ones(7, 150, dtype=torch.bool).tril(0 if case == "causal" else 150))
    mask = mask.expand(2, 2, 7, 150)
    given = due.numbers(mask.to(dtype)) if mask.dtype is not torch.bool else None
    allowed = mask.numpy() if given is None else given > -np.inf
    added = np.zeros(allowed.shape, due.numbers(q).dtype) if given is None else np.where(allowed, given, 0)
    if given is not None:
        y = attention(q, k, v, mask[0, 0].to(dtype))
    for n in range(2):
        of = [due.numbers(x[n]) for x in (q, k, v)]
        expected = by_the_page(*of, allowed[n], added[n].astype(of[0].dtype), options.get("scale", 0.25), 128)
        assert due.bits(y[n]) == due.bits(due.given(expected, dtype)), n


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gradients_are_those_of_the_parts(dtype: torch.dtype) -> None:
    q, k, v = (x.requires_grad_() for x in drawn(2, 2, 9, 40, dtype))
    dy = normal(4, 2, 2, 9, 16, dtype=dtype)
    y = attention(q, k, v, is_causal=True)
    found = torch.autograd.grad(y, (q, k, v), dy)
    a, b, c, g = (due.numbers(x) for x in (q, k, v, dy))
    turned = [np.ascontiguousarray(x.swapaxes(-1, -2)) for x in (a, b, c, g)]
    quarter, hidden = a.dtype.type(0.25), np.triu(np.ones((9, 40), bool), 1)
    scores = due.contraction(a, turned[1]) * quarter
    scores = np.where(hidden, a.dtype.type(-np.inf), scores)
    e = due.exp(scores - scores.max(-1, keepdims=True))
    p = e / due.total(e)
    slope = np.where(hidden, a.dtype.type(0), due.softmax_gradient(scores, p, due.contraction(g, turned[2])))
    expected = (
        due.contraction(slope, b) * quarter,
        due.contraction(np.ascontiguousarray(slope.swapaxes(-1, -2)), a) * quarter,
        due.contraction(np.ascontiguousarray(p.swapaxes(-1, -2)), g),
    )
    for x, right in zip(found, expected, strict=True):
        assert due.bits(x) == due.bits(due.given(right, dtype))


def test_decoding_with_a_cache_is_prefill() -> None:
    q, k, v = drawn(2, 3, 150, 150)
    whole = attention(q, k, v, is_causal=True)
    for i in (0, 1, 63, 64, 127, 128, 149):
        step = attention(q[:, :, i : i + 1], k[:, :, : i + 1], v[:, :, : i + 1])
        assert same(step, whole[:, :, i : i + 1]), i
    with torch.enable_grad():  # all rows at once
        assert same(attention(q.clone().requires_grad_(), k, v, is_causal=True), whole)


@pytest.mark.parametrize("hole", [math.nan, math.inf])
def test_what_no_row_may_attend_is_not_there(hole: float) -> None:
    """Padding on the left and on the right, of another length in each sequence, whatever it holds."""
    q, k, v = drawn(2, 3, 30, 140)
    due_ = attention(q, k, v)
    left, width = (2, 70), 220
    mask = torch.zeros(2, 1, 1, width, dtype=torch.bool)
    padded = [torch.full((2, 3, width, 16), hole) for _ in range(2)]
    for n, at in enumerate(left):
        mask[n, ..., at : at + 140] = True
        for x, y in zip(padded, (k, v), strict=True):
            x[n, :, at : at + 140] = y[n]
    added = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    for given in (mask, mask.expand(2, 3, 30, width), added):
        assert same(attention(q, *padded, given), due_)


def test_what_a_row_may_not_attend_yet_does_not_reach_it() -> None:
    q, k, v = drawn(1, 2, 40, 40)
    clean = attention(q, k, v, is_causal=True)
    k[:, :, 20], v[:, :, 20, 3] = math.inf, math.nan
    for needs in (False, True):
        found = attention(q.clone().requires_grad_(needs), k, v, is_causal=True)
        assert same(found[:, :, :20], clean[:, :, :20])
        assert found[:, :, 20:, 3].isnan().all()
        v_alone = attention(q.requires_grad_(False), k.nan_to_num(posinf=0.5), v, is_causal=True)
        assert v_alone[:, :, 20:, [0, 1, 2, 4]].isfinite().all()


@pytest.mark.parametrize("shared", [1, 2])
def test_gradients_do_not_see_what_no_row_may_attend(shared: int) -> None:
    """Wherever it lies among the keys."""
    q, k, v = drawn(2, 2, 5, 9)
    q = q.repeat_interleave(shared, 1)
    mask = torch.ones(2, 2 * shared, 5, 9, dtype=torch.bool)
    for at in (0, 4, 8):
        given = mask.clone()
        given[..., at] = False
        found = []
        for hole in (0.5, math.nan, math.inf):
            leaves = [x.clone() for x in (q, k, v)]
            for x in leaves[1:]:
                x[:, :, at] = hole
            leaves = [x.requires_grad_() for x in leaves]
            y = attention(*leaves, given, enable_gqa=shared > 1)
            found.append([due.bits(x) for x in torch.autograd.grad(y.sum(), leaves)])
        assert found[0] == found[1] == found[2], at


@pytest.mark.parametrize("dtype", FLOATS[2:], ids=str)
def test_nan_is_canonical(dtype: torch.dtype) -> None:
    """Of the result and of gradients, of as many elements as registers hold and of few; torch's conversions are not."""
    q, k, v = drawn(1, 2, 40, 40, dtype)
    v[..., 5, :] = math.nan
    code = due.bits(due.given(np.full(1, np.nan, np.float32), dtype))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    y = attention(*leaves)
    for x in (attention(q, k, v), y, *torch.autograd.grad(y, leaves[:2], torch.full_like(y, math.nan))):
        assert x.isnan().all()
        assert due.bits(x) == code * x.numel()


def test_heads_may_be_shared() -> None:
    q, (_, k, v) = normal(8, 2, 6, 20, 16), drawn(2, 3, 20, 33)
    mask = torch.from_numpy(np.random.default_rng(9).random((2, 6, 20, 33)) < 0.5)
    for options in ({}, {"attn_mask": mask}, {"attn_mask": mask[:, :1]}, {"attn_mask": mask[0, 0]}):
        found = attention(q, k, v, **options, enable_gqa=True)
        assert same(found, attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), **options))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    ours = torch.autograd.grad(attention(*leaves, enable_gqa=True).sum(), leaves)
    theirs = torch.autograd.grad(F.scaled_dot_product_attention(*leaves, enable_gqa=True).sum(), leaves)
    assert all(near(x, y) for x, y in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("isa", isas.COMPILED_ROWS, ids=lambda row: row.name)
def test_rows_blocks_and_layouts_change_no_bit(isa: Any) -> None:
    """Of 700 rows several blocks, each with the keys that its rows may attend."""
    q, k, v = drawn(1, 2, 700, 700)
    whole = attention(q.clone().requires_grad_(), k, v, is_causal=True)
    with sb.use_isa(isa):
        turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
        assert same(attention(*turned, is_causal=True), whole)
        assert same(attention(*[x[0] for x in turned], is_causal=True), whole[0])
        assert same(attention(*[x[0, 0] for x in turned], is_causal=True), whole[0, 0])


def test_torch_agrees_nearly() -> None:
    q, k, v = drawn(2, 3, 20, 33)
    mask = torch.from_numpy(np.random.default_rng(1).random((2, 1, 20, 33)) < 0.5)
    for options in ({}, {"is_causal": True}, {"attn_mask": mask}, {"attn_mask": normal(3, 20, 33)}, {"scale": 2.0}):
        found, known = attention(q, k, v, **options), F.scaled_dot_product_attention(q, k, v, **options)
        assert near(found, known)


def test_transforms_compose() -> None:
    q, k, v = drawn(3, 2, 5, 8)
    due_ = attention(q, k, v, is_causal=True)
    causal = lambda *x: attention(*x, is_causal=True)  # noqa: E731
    assert same(torch.func.vmap(causal)(q, k, v), due_)
    assert same(torch.compile(causal, fullgraph=True, backend="aot_eager")(q, k, v), due_)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    expected = torch.autograd.grad(causal(*leaves).sum(), leaves)
    found = torch.func.grad(lambda *x: causal(*x).sum(), (0, 1, 2))(q, k, v)
    assert all(same(x, y) for x, y in zip(found, expected, strict=True))
    assert causal(*[x.to("meta") for x in (q, k, v)]).shape == due_.shape
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = causal(q, k, v)
    assert same(narrow, causal(*[x.bfloat16() for x in (q, k, v)]))
    assert torch.autograd.gradcheck(causal, [x[:1, :1, :, :3].double().requires_grad_() for x in (q, k, v)])


def test_an_added_mask_has_a_gradient() -> None:
    """Its sum over the axes along which it is repeated is that of every addend."""
    q, k, v = drawn(2, 3, 5, 8)
    added = normal(3, 5, 8).requires_grad_()
    (found,) = torch.autograd.grad(attention(q, k, v, added).sum(), added)
    (known,) = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, added).sum(), added)
    assert near(found, known)


def test_nothing_is_attended_where_there_is_nothing() -> None:
    q, k, v = drawn(2, 3, 5, 0)
    assert same(attention(q, k, v), torch.zeros(2, 3, 5, 16))
    assert attention(q[:, :, :0], *drawn(2, 3, 0, 4)[1:]).shape == (2, 3, 0, 16)
    _, k, v = drawn(2, 3, 5, 8)
    assert same(attention(q, k, v, torch.zeros(5, 8, dtype=torch.bool)), torch.zeros(2, 3, 5, 16))


Q, K = torch.ones(2, 4, 5, 6), torch.ones(2, 4, 7, 6)
REFUSED: list[tuple[Any, type[Exception], str]] = [
    (lambda: attention(Q, K, K, dropout_p=0.1), OptionError, "dropout_p is 0.1, must be 0.0; leave it out"),
    (lambda: attention(Q, K, K, K[..., 0], is_causal=True), OptionError,
     "attn_mask is given beside is_causal, must be one of both; put both into the mask"),
    (lambda: attention(Q, K, K.double()), DTypeError,
     "value dtype is float64, must be query's float32; convert it first"),
    (lambda: attention(Q, K[0], K), ShapeError, "key rank is 3, must be query's 4; reshape it"),
    (lambda: attention(Q, K[:1], K), ShapeError,
     "key shape is (1, 4, 7, 6), must be (2, 4, 7, 6); expand or reshape it"),
    (lambda: attention(Q, K, K[:, :, :3]), ShapeError,
     "value shape is (2, 4, 3, 6), must be (2, 4, 7, 6); expand or reshape it"),
    (lambda: attention(Q, K[:, :3], K[:, :3], enable_gqa=True), ShapeError,
     "key head count is 3, must be a divisor of query's 4; pass heads that share evenly"),
    (lambda: attention(Q, K, K, torch.ones(3, 7)), ShapeError,
     "attn_mask shape is (3, 7), must be one that broadcasts to (2, 4, 5, 7); reshape it"),
    (lambda: attention(Q, K, K, torch.ones(5, 7, dtype=torch.int32)), DTypeError, "attn_mask dtype is int32, must be"),
    (lambda: attention(Q[0, 0, 0], K, K), ShapeError, "query rank is 1, must be 2, 3 or 4; reshape it to [N, H, L, E]"),
    (lambda: torch.func.vmap(lambda m: attention(Q, K, K, m))(torch.zeros(3, 5, 7, dtype=torch.bool)), OptionError,
     ("attn_mask is one whose values are not known here, must be one that can be read; "
      "call it outside, or pass is_causal")),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED, ids=[text[:30] for _, _, text in REFUSED])
def test_what_does_not_fit_is_refused(call: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).startswith(f"scaled_dot_product_attention: {text}")


@pytest.mark.parametrize("keys", [0, 6])
def test_gradients_where_no_row_attends_a_key(keys: int) -> None:
    """They are +0, as of any other row that attends nothing."""
    leaves = [torch.ones(1, 2, rows, 4, requires_grad=True) for rows in (3, keys, keys)]
    y = st.scaled_dot_product_attention(*leaves, torch.zeros(3, keys, dtype=torch.bool))
    for found in (y, *torch.autograd.grad(y.sum(), leaves)):
        assert same(found, torch.zeros_like(found))
