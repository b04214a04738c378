"""`scaled_dot_product_attention` by products, a softmax and a product: what numerics.md section 8 says of attention.

A key that a row may not attend takes no part in it, whatever the key and its value hold: its score is replaced before
anything is summed, and so is its probability. Keys are counted from the first one that any row of their sequence may
attend, so that padding on either side, prefill and decoding with a cache have the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from samebits.errors import DTypeError, OptionError, ShapeError, shown
from samebits.shapes import check_flag
from samebits.torch import row_operators as along
from samebits.torch.arguments import check_tensors, number
from samebits.torch.element_operators import converted
from samebits.torch.operator import Gradient, Operator, by_loop, check_tensor, define, is_compiling
from samebits.torch.product_operators import factor_gradients, factors, matmul, wide, wide_product
from samebits.torch.spec import order

__all__ = ["attend", "scaled_dot_product_attention"]

_CALL = "scaled_dot_product_attention"
# Bytes of scores that are computed together where nobody asks for a gradient: as many as stay in the second cache.
_TOGETHER = 1 << 20


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """softmax(query @ key^T * scale) @ value, as `torch.nn.functional.scaled_dot_product_attention`.

    It is computed in float32 (float64) as a whole and rounded once. Sums have the chunks of `use_spec`, in one segment.

    Args:    query: [N, H, L, E], [N, L, E] or [L, E], floats; the first of more than two axes is that of sequences.
             key: [N, H, S, E].   value: [N, H, S, D]; both of query's dtype and rank.
             attn_mask: what broadcasts to [N, H, L, S]: bool, True where a row may attend a key; or floats, which are
                added to the scores, -inf where it may not.   dropout_p: 0.
             is_causal: a row may attend no key behind it; row and key are counted from 0.
             scale: of the scores; None for 1 / sqrt(E).   enable_gqa: key and value may have fewer heads, of which each
                serves as many neighbouring heads of query.
    Returns: [N, H, L, D] of query's dtype; +0 for a row that may attend no key.
    Raises:  DTypeError, ShapeError, LayoutError, DeviceError, OptionError.   Bits: numerics.md section 8; gradients
             section 5.
    """
    check_tensors(_CALL, query=query, key=key, value=value)
    if number(_CALL, "dropout_p", dropout_p) != 0.0:
        raise OptionError(_CALL, "dropout_p", "", shown(dropout_p), "0.0", "leave it out")
    is_causal, enable_gqa = check_flag(_CALL, "is_causal", is_causal), check_flag(_CALL, "enable_gqa", enable_gqa)
    if is_causal and attn_mask is not None:
        raise OptionError(_CALL, "attn_mask", "", "given beside is_causal", "one of both", "put both into the mask")
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        q, k, v = (x.to(kind) if x.is_floating_point() else x for x in (query, key, value))
        with torch.autocast("cpu", enabled=False):
            return scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    _check(query, key, value, enable_gqa)
    by = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else number(_CALL, "scale", scale)
    chunk, _, name = order(_CALL, None)
    q, k, v = (_with_heads(x) for x in (query, key, value))
    mask = _mask(attn_mask, query, key, is_causal)
    shared = q.shape[1] // k.shape[1] if enable_gqa else 1
    if shared > 1:
        q, k, v, mask = q.unflatten(1, (-1, shared)), k.unsqueeze(2), v.unsqueeze(2), mask.of_groups(shared)
    y = _by_sequence(q, k, v, mask, _Sums(by, chunk, name))
    y = y.flatten(1, 2) if shared > 1 else y
    return y.reshape(*query.shape[:-1], value.shape[-1])


class _Sums(NamedTuple):
    """What scores are multiplied by, and how sums over the head and over keys are cut."""

    scale: float
    chunk: int
    order: str

    def scores(self, q: Tensor, k: Tensor, added: Tensor | None) -> Tensor:
        """(q @ k^T) * scale + added, in float32 (float64)."""
        return self._product(q, k.mT, added, self.scale)

    def product(self, p: Tensor, v: Tensor) -> Tensor:
        """p @ v, in float32 (float64)."""
        return self._product(p, v, None, 1.0)

    def _product(self, a: Tensor, b: Tensor, added: Tensor | None, scale: float) -> Tensor:
        found: Tensor = (
            wide_product(a, b, added, scale, self.chunk, self.order)
            if b.dtype is not wide(b.dtype)
            else matmul(a, b, added, scale, 1.0, self.chunk, 1, self.order)
        )
        return found


class _Mask(NamedTuple):
    """Which keys rows may not attend, and what is added to their scores; None where it is none of them, or nothing.

    `seen`: before so many keys none is hidden, and every row may attend one: None where nobody knows.
    """

    hidden: Tensor | None = None
    added: Tensor | None = None
    seen: int | None = None

    def of_groups(self, shared: int) -> _Mask:
        """For heads in groups: an axis more."""
        return _Mask(_grouped(self.hidden, shared), _grouped(self.added, shared), self.seen)

    def at(self, sequences: slice, rows: slice, keys: slice) -> _Mask:
        """Of some sequences, rows and keys."""
        places, seen = (sequences, rows, keys), None if self.seen is None else rows.start or 0
        return _Mask(_part(self.hidden, places), _part(self.added, places), seen)


def _grouped(x: Tensor | None, shared: int) -> Tensor | None:
    return x if x is None else x.unsqueeze(1) if x.shape[1] == 1 else x.unflatten(1, (-1, shared))


def _part(x: Tensor | None, places: tuple[slice, slice, slice]) -> Tensor | None:
    """x [N, ..., L, S] at places of N, L and S, of which it may have one for all."""
    if x is None:
        return x
    n, rows, keys = [
        slice(None) if x.shape[axis] == 1 else place for axis, place in zip((0, -2, -1), places, strict=True)
    ]
    return x[n][..., rows, keys]


def _check(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    """Raise unless the operands fit."""
    check_tensor(_CALL, "query", query)
    if not 2 <= query.ndim <= 4:
        raise ShapeError(_CALL, "query", "rank", query.ndim, "2, 3 or 4", "reshape it to [N, H, L, E]")
    for name, x in (("key", key), ("value", value)):
        check_tensor(_CALL, name, x)
        if x.dtype is not query.dtype:
            actual, expected = (str(dtype).removeprefix("torch.") for dtype in (x.dtype, query.dtype))
            raise DTypeError(_CALL, name, "dtype", actual, f"query's {expected}", "convert it first")
        if x.ndim != query.ndim:
            raise ShapeError(_CALL, name, "rank", x.ndim, f"query's {query.ndim}", "reshape it")
    batch = tuple(query.shape[:-2])
    if enable_gqa:
        if query.ndim != 4:
            raise ShapeError(_CALL, "query", "rank", query.ndim, "4 where heads are shared", "leave enable_gqa away")
        if not key.shape[1] or query.shape[1] % key.shape[1]:
            expected = f"a divisor of query's {query.shape[1]}"
            raise ShapeError(_CALL, "key", "head count", key.shape[1], expected, "pass heads that share evenly")
        batch = (query.shape[0], key.shape[1])
    keys = key.shape[-2]
    for name, x, due in (
        ("key", key, (*batch, keys, query.shape[-1])), ("value", value, (*batch, keys, value.shape[-1])),
    ):  # fmt: skip
        if tuple(x.shape) != due:
            raise ShapeError(_CALL, name, "shape", tuple(x.shape), due, "expand or reshape it")


def _with_heads(x: Tensor) -> Tensor:
    """As [N, H, L, E]."""
    return x if x.ndim == 4 else x.unsqueeze(1) if x.ndim == 3 else x.unsqueeze(0).unsqueeze(0)


def _mask(given: Tensor | None, query: Tensor, key: Tensor, is_causal: bool) -> _Mask:
    """As [N or 1, H or 1, L or 1, S or 1]."""
    rows, keys = query.shape[-2], key.shape[-2]
    if is_causal:
        return _Mask(torch.ones(1, 1, rows, keys, dtype=torch.bool, device=query.device).triu(1), None, 0)
    if given is None:
        return _Mask()
    check_tensors(_CALL, attn_mask=given)
    check_tensor(_CALL, "attn_mask", given, *[torch.bool] * (given.dtype is torch.bool))
    shape = (*query.shape[:-1], keys)
    missing = len(shape) - given.ndim
    if missing < 0 or any(a not in (1, b) for a, b in zip(given.shape, shape[missing:], strict=True)):
        expected = f"one that broadcasts to {tuple(shape)}"
        raise ShapeError(_CALL, "attn_mask", "shape", tuple(given.shape), expected, "reshape it")
    given = _with_heads(given.reshape((1,) * missing + tuple(given.shape)))
    if given.dtype is torch.bool:
        return _Mask(~given)
    hidden = given == -math.inf
    return _Mask(hidden, converted(given, wide(query.dtype)).masked_fill(hidden, 0.0))


def _by_sequence(q: Tensor, k: Tensor, v: Tensor, mask: _Mask, sums: _Sums) -> Tensor:
    """Keys before the first one that a sequence's rows may attend are left away, for each sequence by itself."""
    hidden = mask.hidden
    if hidden is None or mask.seen is not None or not hidden.numel() or hidden.shape[-1] != k.shape[-2]:
        return _by_block(q, k, v, mask, sums)
    first = _first(hidden)
    if first.count(first[0]) == len(first):
        return _behind(q, k, v, mask, sums, first[0], slice(None))
    return torch.cat([_behind(q, k, v, mask, sums, at, slice(n, n + 1)) for n, at in enumerate(first)])


def _first(hidden: Tensor) -> list[int]:
    """For each sequence the first key that any of its rows may attend, or the number of keys; one for all alike."""
    if _known(hidden[..., 0].flatten(1).all(1).any()) is False:
        return [0]
    if _known(hidden.any()) is None:
        actual, remedy = "one whose values are not known here", "call it outside, or pass is_causal"
        raise OptionError(_CALL, "attn_mask", "", actual, "one that can be read", remedy)
    attended = ~hidden.flatten(1, -2).all(1)
    found: list[int] = torch.where(attended.any(1), attended.int().argmax(1), hidden.shape[-1]).tolist()
    return found


def _known(truth: Tensor) -> bool | None:
    """A truth; None for one of a batch of `vmap`, or of a device without values."""
    try:
        return bool(truth)
    except RuntimeError:
        return None


def _behind(q: Tensor, k: Tensor, v: Tensor, mask: _Mask, sums: _Sums, first: int, sequences: slice) -> Tensor:
    """Of some sequences, whose keys begin with the first."""
    keys = slice(first, None)
    k, v = (x[sequences][..., keys, :] for x in (k, v))
    return _by_block(q[sequences], k, v, mask.at(sequences, slice(None), keys), sums)


def _by_block(q: Tensor, k: Tensor, v: Tensor, mask: _Mask, sums: _Sums) -> Tensor:
    """As many rows at once as their scores stay in cache; where a gradient is asked for all of them, and of narrower
    floats float32, which products have gradients in."""
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, mask.added) if x is not None):
        a, b, c = (converted(x, wide(x.dtype)) for x in (q, k, v))
        return converted(_attention(a, _seen_keys(b, mask), c, mask, sums, False), q.dtype)
    is_finite = mask.hidden is not None and not is_compiling() and _known(v.isfinite().all()) is True
    made = q.new_empty(*q.shape[:-1], v.shape[-1])
    for n, rows in _blocks(q, k):
        keys = slice(None, rows.stop if mask.seen is not None else None)
        part = q[n][..., rows, :], k[n][..., keys, :], v[n][..., keys, :]
        made[n][..., rows, :] = converted(_attention(*part, mask.at(n, rows, keys), sums, is_finite), q.dtype)
    return made


def _seen_keys(k: Tensor, mask: _Mask) -> Tensor:
    """k, with +0 for keys that no row may attend: the gradient of the rows multiplies keys by +0 there."""
    if mask.hidden is None or mask.seen is not None:
        return k
    unseen = mask.hidden.all(-2)
    return k.masked_fill((unseen.all(2, True) if k.ndim == 5 else unseen).unsqueeze(-1), 0.0)


def _blocks(q: Tensor, k: Tensor) -> Iterator[tuple[slice, slice]]:
    """Sequences and rows of each block."""
    count, rows, of_row = q.shape[0], q.shape[-2], math.prod(q.shape[1:-2]) * k.shape[-2]
    of_row = max(of_row * wide(q.dtype).itemsize, 1)
    if 2 * rows * of_row <= _TOGETHER:
        step = _TOGETHER // max(rows * of_row, 1)
        yield from ((slice(n, n + step), slice(None)) for n in range(0, count, step))
        return
    step = max(_TOGETHER // of_row, 16)
    yield from ((slice(n, n + 1), slice(row, row + step)) for n in range(count) for row in range(0, rows, step))


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: _Mask, sums: _Sums, is_finite: bool) -> Tensor:
    """Of rows whose keys count from the first; `is_finite`: v is known to be."""
    v = v if is_finite or mask.hidden is None else converted(v, wide(v.dtype))
    scores = sums.scores(q, k, mask.added)
    if mask.hidden is None:
        return sums.product(along.softmax(scores, -1), v)
    seen = mask.seen or 0
    # Nothing else reads the scores: the gradient of a product needs its factors alone.
    scores[..., seen:].masked_fill_(mask.hidden[..., seen:], -math.inf)
    share = along.softmax(scores, -1)
    if mask.seen is None:  # the shares of a row that may attend no key are NaN
        share = share.masked_fill(mask.hidden, 0.0)
    if is_finite:
        return sums.product(share, v)
    return attend(share, v, mask.hidden.expand(share.shape), sums.chunk, sums.order)  # type: ignore[no-any-return]


def _attend(p: Tensor, v: Tensor, hidden: Tensor, chunk: int, order: str, threads: int) -> Any:
    """p @ v, of the keys that each row may attend. p is +0 elsewhere, which adds nothing to a sum unless v is infinite
    or NaN there: rows that may attend such a key are computed without the others, one by one."""
    is_bad = ~v.isfinite()
    if not is_bad.any():
        return matmul(p, v, None, 1.0, 1.0, chunk, 1, order)
    y = matmul(p, v.masked_fill(is_bad, 0.0), None, 1.0, 1.0, chunk, 1, order)
    values = v.expand(*y.shape[:-2], *v.shape[-2:])
    meets = (is_bad.any(-1).unsqueeze(-2) & ~hidden).any(-1)
    for *at, row in meets.nonzero().tolist():
        place = tuple(at)
        own = values[place].masked_fill(hidden[place][row].unsqueeze(-1), 0.0)
        y[place][row] = matmul(p[place][row : row + 1], own, None, 1.0, 1.0, chunk, 1, order)[0]
    return y


def _attend_shapes(p: Tensor, v: Tensor, hidden: Tensor, chunk: int, order: str) -> Tensor:
    return p.new_empty(*p.shape[:-1], v.shape[-1])


def _attend_backward(inputs: tuple[Any, ...], kept: tuple[Tensor, ...], needs: tuple[bool, ...], dy: Tensor) -> Any:
    p, v, _, chunk, order = inputs
    dp, dv = factor_gradients((p, v, None, 1.0, 1.0, chunk, 1, order), kept, needs, dy)
    return dp, dv, None, None, None


attend = define(Operator(
    "attend(Tensor p, Tensor v, Tensor hidden, int chunk, str order) -> Tensor",
    _attend, _attend_shapes, by_loop, Gradient(factors, _attend_backward, formed=(0, 1)),
))  # fmt: skip
