"""Each operation of `fd.ops` against torch, its own reference bit for bit, and its text defined again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from samebits.fusion import DataType, FusionDefinition, ops

G = torch.Generator().manual_seed(7)
X, Y = torch.randn(4, 6, generator=G) * 3, torch.randn(4, 6, generator=G)
I, J = torch.randint(-50, 50, (4, 6), generator=G), torch.randint(1, 9, (4, 6), generator=G)  # noqa: E741
B = X > 0
EDGES = torch.tensor([1.5, -0.0, 0.0, -2.5, float("inf"), -float("inf"), float("nan")])
W, BIAS = torch.randn(5, 6, generator=G).bfloat16(), torch.randn(5, generator=G).bfloat16()
PLACES = torch.tensor([3, 0, 2])
SPREAD = torch.tensor([[4, 0, 2], [5, 1, 3]])


def firsts(x: torch.Tensor, count: int, dim: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The first elements of a stable sort, and their places."""
    values, places = x.sort(dim=dim, descending=largest, stable=True)
    return values.narrow(dim, 0, count), places.narrow(dim, 0, count)


Case = tuple[tuple[torch.Tensor, ...], Callable[..., Any], Any]
CASES: dict[str, Case] = {
    "prod": ((X,), lambda o, x: [o.prod(x, 1, True, DataType.Float), o.prod(x, DataType.Float)],
             [X.prod(1, True), X.prod()]),
    "prod of integers": ((J,), lambda o, x: o.prod(x, [0]), J.prod(0)),
    "sum": ((I,), lambda o, x: [o.sum(x, dim=-1), o.sum(x, [0], True, DataType.Int32)],
            [I.sum(-1), I.int().sum(0, True, dtype=torch.int32)]),
    "max and min": ((X,), lambda o, x: [o.max(x, [0]), o.min(x, [0, 1])], [X.amax(0), X.amin()]),
    "var_mean": ((X,), lambda o, x: o.var_mean(x, [0], 1, True), torch.var_mean(X, 0, keepdim=True)),
    "var": ((X,), lambda o, x: o.var(x, [0, 1], 0), X.var(correction=0)),
    "welford": ((X,), lambda o, x: o.welford(x, [1]),
                [X.mean(1), X.var(1, correction=0) * 6, torch.tensor([6, 6, 6, 6])]),
    "cumsum": ((X,), lambda o, x: [o.cumsum(x, 0), o.cumsum(x, -1)], [X.cumsum(0), X.cumsum(1)]),
    "cumprod": ((X,), lambda o, x: o.cumprod(x, 1), X.cumprod(1)),
    "cummin": ((X,), lambda o, x: o.cummin(x, 0), X.cummin(0)[0]),
    "cummax": ((X,), lambda o, x: o.cummax(x, 1), X.cummax(1)[0]),
    "gcd": ((I, J), lambda o, x, y: o.gcd(x, y), torch.gcd(I, J)),
    "nextafter": ((X, Y), lambda o, x, y: o.nextafter(x, y), torch.nextafter(X, Y)),
    "fmod": ((X, Y), lambda o, x, y: o.fmod(x, y), torch.fmod(X, Y)),
    "remainder": ((X, Y), lambda o, x, y: o.remainder(x, y), torch.remainder(X, Y)),
    "integers": ((I, J), lambda o, x, y: [o.div(x, y), o.truediv(x, y), o.mod(x, y), o.remainder(x, y)],
                 [torch.div(I, J, rounding_mode="trunc"), I / J, torch.fmod(I, J), torch.remainder(I, J)]),
    "shifts": ((I.int(), J.int()),
               lambda o, x, y: [o.bitwise_left_shift(x, y), o.bitwise_right_shift(x, y), o.logical_right_shift(x, 3)],
               [I.int() << J.int(), I.int() >> J.int(), ((I & 0xFFFFFFFF) >> 3).int()]),
    "bits": ((I, J), lambda o, x, y: [o.bitwise_and(x, y), o.bitwise_or(x, y), o.bitwise_xor(x, y), o.bitwise_not(x)],
             [I & J, I | J, I ^ J, ~I]),
    "truths": ((B, B.flip(0)), lambda o, x, y: [o.add(x, y), o.mul(x, y), o.bitwise_xor(x, y), o.gt(x, y)],
               [B | B.flip(0), B & B.flip(0), B ^ B.flip(0), B.flip(0) < B]),
    "what a number is": ((EDGES,), lambda o, x: [o.isfinite(x), o.isinf(x), o.isnan(x), o.isneginf(x), o.isposinf(x),
                                                 o.signbit(x), o.isreal(x)],
                         [f(EDGES) for f in (torch.isfinite, torch.isinf, torch.isnan, torch.isneginf,
                                             torch.isposinf, torch.signbit, torch.isreal)]),
    "whole numbers": ((X,), lambda o, x: [o.ceil(x), o.floor(x), o.round(x), o.trunc(x), o.frac(x)],
                      [X.ceil(), X.floor(), X.round(), X.trunc(), X.frac()]),
    "functions": ((X,), lambda o, x: [o.exp(x), o.tanh(x), o.sin(x), o.silu(x), o.rsqrt(o.abs(x))],
                  [X.exp(), X.tanh(), X.sin(), torch.nn.functional.silu(X), X.abs().rsqrt()]),
    "where": ((B, X), lambda o, b, x: [o.where(b, x, 1.5), o.where(b, 3, 4)],
              [torch.where(B, X, 1.5), torch.where(B, 3, 4)]),
    "ternary": ((X, Y), lambda o, x, y: [o.addcmul(x, y, y, 0.3), o.lerp(x, y, y), o.clamp(x, -1.0, 1.0),
                                         o.clamp(x, None, 1.0), o.threshold(x, 0.5, 2.0)],
                [torch.addcmul(X, Y, Y, value=0.3), torch.lerp(X, Y, Y), X.clamp(-1, 1), X.clamp(max=1),
                 torch.threshold(X, 0.5, 2.0)]),
    "moves": ((X,), lambda o, x: [o.add(o.permute(x, [1, 0]), 0.0), o.slice(x, [1, 2], [4, 6]),
                                  o.pad(x, [1, -2, 0, 1], 7.0),
                                  o.cat([x, x], 1), o.expand(o.slice(x, [0, 0], [1, 6]), [3, -1]),
                                  o.neg(o.squeeze(o.broadcast(x, [False, True, False]), [1]))],
              [X.T + 0, X[1:, 2:], torch.nn.functional.pad(X, [1, -2, 0, 1], value=7.0), torch.cat([X, X], 1),
               X[:1].expand(3, 6), -X]),
    "made of nothing": ((X,), lambda o, x: [o.add(x, o.full([4, 6], 0.25, DataType.Float)), o.iota(5, 2, 3),
                                            o.iota(3, 0.5, 0.25, DataType.Double), o.triu(x, 1)],
                        [X + 0.25, torch.arange(2, 17, 3), torch.tensor([0.5, 0.75, 1.0]).double(), X.triu(1)]),
    "picks": ((X, PLACES), lambda o, x, i: [o.index_select(x, i, 0), o.select(x, 2, 1)], [X[PLACES], X[:, 2]]),
    "gather": ((X, J[:3, :4] % 4), lambda o, x, i: [o.gather(x, i, 0), o.gather(x, i, -1)],
               [torch.gather(X, 0, J[:3, :4] % 4), torch.gather(X, 1, J[:3, :4] % 4)]),
    "take_along_axis": ((X, J % 4), lambda o, x, i: o.take_along_axis(x, i, 0), torch.take_along_dim(X, J % 4, 0)),
    "scatter": ((X, SPREAD, Y[:2]),
                lambda o, x, i, y: [o.scatter(x, i, y, 1), o.scatter(x, i, 2.5, -1)],
                [X.scatter(1, SPREAD, Y[:2]),
                 X.scatter(1, SPREAD, 2.5)]),
    "take_along_axis of what broadcasts": (
        (X[:, None], PLACES[:, None, None].expand(3, 5, 1) + torch.zeros(3, 5, 1, dtype=torch.int64)),
        lambda o, x, i: [o.take_along_axis(x, i, 0), o.sum(o.take_along_axis(x, i, -3), [1])],
        [(ALONG := torch.take_along_dim(X[:, None], PLACES[:, None, None].expand(3, 5, 1), 0)), ALONG.sum(1)]),
    "powers of integers": ((I.int(), J.int()), lambda o, x, y: [o.pow(x, y), o.pow(y, 3), o.pow(x, o.neg(y))],
                           [I.int() ** J.int(), J.int() ** 3, torch.pow(I.int(), -J.int())]),
    "argsort of no axes": ((X[0, 0],), lambda o, x: [o.argsort(x, 0), o.argsort(x, -1, True)],
                           [torch.tensor(0), torch.tensor(0)]),
    "argsort": ((J,), lambda o, x: [o.argsort(x, 1), o.argsort(x, 0, True, True)],
                [firsts(J, 6, 1, False)[1], firsts(J, 4, 0, True)[1]]),
    "topk": ((J,), lambda o, x: [*o.topk(x, 2), *o.topk(x, 3, 0, False)],
             [*firsts(J, 2, 1, True), *firsts(J, 3, 0, False)]),
    "embedding": ((PLACES, X), lambda o, i, x: [o.embedding_fwd(i, x), o.embedding_fwd(i, x, max_norm=1.0)],
                  [X[PLACES], torch.nn.functional.embedding(PLACES, X.clone(), max_norm=1.0)]),
    "products": ((X.bfloat16(), W, BIAS), lambda o, x, w, b: [o.linear(x, w, b), o.matmul(x, o.permute(w, [1, 0]))],
                 [torch.nn.functional.linear(X.bfloat16(), W, BIAS), X.bfloat16() @ W.T]),
}  # fmt: skip


def defined_again(fd: FusionDefinition) -> FusionDefinition:
    """The fusion that the text defines."""
    space: dict[str, Any] = {"DataType": DataType, "FusionDefinition": FusionDefinition}
    exec(repr(fd), space)
    with FusionDefinition() as again:
        space["nvfuser_fusion"](again)
    return again


@pytest.mark.parametrize("name", CASES)
def test_operation_is_torchs_within_rounding_and_the_references_bits(name):
    arrays, define, expected = CASES[name]
    expected = list(expected) if isinstance(expected, list | tuple) else [expected]
    with FusionDefinition() as fd:
        made = define(ops, *[fd.from_pytorch(x) for x in arrays])
        for x in made if isinstance(made, list | tuple) else [made]:
            fd.add_output(x)
    found = fd.validate(list(arrays))
    torch.testing.assert_close(list(found), expected, equal_nan=True)
    for x, y in zip(found, defined_again(fd).execute(list(arrays)), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)
