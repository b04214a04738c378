"""Modules of `samebits.torch` beside torch's own: the same parameters, forward and backward, in turns, medians.

Steps are a forward and a backward to the gradients of all parameters and of the input; `.grad` is dropped before each,
as `zero_grad` does. Small calls are 8 x 64 x 64, where nearly all is torch's dispatcher and ours; `nothing` is the
least that a function of Python can cost there: an operator of `torch.library`, for gradients within an
`autograd.Function`, whose forward and backward make tensors of the right shapes and compute nothing. Results of 512 x
768 float32 take 1.5 MB, for which torch asks the system anew in some processes and not in others: where it does not,
its layer norm makes 1950 steps a second on one thread, 1.08 of ours. `python benches/training.py`
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from _products import Part, Rows, figure, medians, row, run
from torch import Tensor, nn

import samebits as sb
import samebits.torch as st
from samebits.bench.measure import Call
from samebits.codegen import isa as isas

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
LINEAR = ((512, 768, 3072), (512, 3072, 768), (128, 768, 768))
QUANTISED = ((1, 4096, 4096), (8, 4096, 4096), (1, 768, 3072))
SMALL = (8, 64, 64)
# Sequences, heads of 64, rows, keys, and whether rows attend what is before them alone.
ATTENTION = ((1, 12, 128, 128, True), (1, 12, 512, 512, True), (8, 12, 1, 512, False))

_LIBRARY = torch.library.Library("samebits_bench", "DEF")
_LIBRARY.define("nothing(Tensor like, int rows, int columns) -> Tensor")
_LIBRARY.impl("nothing", lambda like, rows, columns: like.new_empty(rows, columns), "CompositeExplicitAutograd")
_nothing = torch.ops.samebits_bench.nothing.default


class _Nothing(torch.autograd.Function):
    """A linear that computes nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Any:
        ctx.save_for_backward(x, weight)
        return _nothing(x, len(x), len(weight))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return _nothing(dy, *x.shape), _nothing(dy, *weight.shape)


class _NothingLinear(nn.Linear):
    """A module of it."""

    def forward(self, input: Tensor) -> Tensor:
        return _Nothing.apply(input, self.weight)  # type: ignore[no-any-return]


def _both(module: nn.Module, x: Tensor, dy: Tensor) -> Call:
    """Forward and backward."""
    parameters = list(module.parameters())

    def call() -> None:
        x.grad = None
        for p in parameters:
            p.grad = None
        module(x).backward(dy)

    return call


def _without(module: nn.Module, x: Tensor) -> Call:
    """Forward with gradients off."""

    def call() -> Tensor:
        with torch.no_grad():
            return module(x)  # type: ignore[no-any-return]

    return call


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _pair(theirs: nn.Module, make: Callable[[nn.Module], nn.Module]) -> dict[str, nn.Module]:
    return {"ours": make(theirs), "torch": theirs}


def _converted(module: nn.Module) -> nn.Module:
    made: nn.Module = st.convert(module).model
    return made


def _linear(dtype: torch.dtype) -> Callable[[str, int], Rows]:
    def part(isa: str, threads: int) -> Rows:
        torch.set_num_threads(threads)
        rows = Rows()
        for m, k, n in LINEAR:
            x, dy = torch.randn(m, k, dtype=dtype).requires_grad_(), torch.randn(m, n, dtype=dtype)
            modules = _pair(nn.Linear(k, n, dtype=dtype), _converted)
            with sb.use_isa(isa):
                seconds = medians({name: _both(module, x, dy) for name, module in modules.items()}, threads, 9)
            rows.append(row(f"{m} x {k} x {n}, {_word(dtype)}", 6e-9 * m * n * k, seconds))
        return rows

    return part


def small(isa: str, threads: int) -> Rows:
    """Thousand calls a second."""
    torch.set_num_threads(threads)
    m, k, n = SMALL
    modules = _pair(nn.Linear(k, n), _converted) | {"nothing": _NothingLinear(k, n, bias=False)}
    x, dy, rows = torch.randn(m, k), torch.randn(m, n), Rows()
    needing = x.clone().requires_grad_()
    cases: dict[str, Callable[[nn.Module], Call]] = {
        "forward, gradients off": lambda module: _without(module, x),
        "forward, recorded": lambda module: lambda: module(x),
        "forward and backward": lambda module: _both(module, x, dy),
        "with the input's gradient": lambda module: _both(module, needing, dy),
    }
    for what, make in cases.items():
        with sb.use_isa(isa):
            seconds = medians({name: make(module) for name, module in modules.items()}, threads, 21)
        rates = {name: 1e-3 / value for name, value in seconds.items()}
        rows.append({"shape": what, **rates, "ratio": rates["ours"] / rates["torch"]})
    return rows


def _idle(count: int) -> tuple[Any, Any]:
    """What computes nothing of so many operands: an operator, and a function with a gradient around it."""
    _LIBRARY.define(f"idle{count}({', '.join(f'Tensor x{i}' for i in range(count))}) -> Tensor")
    _LIBRARY.impl(f"idle{count}", lambda *x: torch.empty(x[0].shape), "CompositeExplicitAutograd")
    operator = getattr(torch.ops.samebits_bench, f"idle{count}").default

    class Idle(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *operands: Tensor) -> Any:
            ctx.save_for_backward(*operands)
            return operator(*operands)

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Any:
            return tuple([torch.empty(x.shape) if x.is_floating_point() else None for x in ctx.saved_tensors])

    return operator, Idle.apply


def functions(isa: str, threads: int) -> Rows:
    """Thousand calls a second of functions."""
    torch.set_num_threads(threads)
    (m, k, n), idle = SMALL, {count: _idle(count) for count in (1, 2, 3)}
    classes = torch.randint(0, k, (m,))
    x, weight, row_, batch = torch.randn(m, k), torch.randn(k, n), torch.randn(k), torch.randn(2, m, k)
    products = {"mm": (x, weight), "addmm": (torch.randn(n), x, weight), "bmm": (batch, torch.randn(2, k, n))}
    kept: dict[str, tuple[Any, tuple[Any, ...]]] = {
        **{name: (getattr(torch, name), operands) for name, operands in products.items()},
        **{name: (getattr(torch, name), (x,)) for name in ("relu", "exp")},
        "softmax": (nn.functional.softmax, (x, -1)),
        "layer_norm": (nn.functional.layer_norm, (x, (k,), row_, row_ + 1)),
        "embedding": (nn.functional.embedding, (classes, weight)),
        "cross_entropy": (nn.functional.cross_entropy, (x, classes)),
    }
    rows = Rows()
    for name, (theirs, given) in kept.items():
        tensors = [operand for operand in given if isinstance(operand, Tensor)]
        leaves = [operand.detach().clone().requires_grad_() for operand in tensors if operand.is_floating_point()]
        found = iter(leaves)
        needing = [next(found) if isinstance(x, Tensor) and x.is_floating_point() else x for x in given]
        ours, (operator, recorded) = getattr(st, name), idle[len(tensors)]
        alone = {"ours": (ours, given), "torch": (theirs, given), "nothing": (operator, tensors)}
        seen = [operand for operand in needing if isinstance(operand, Tensor)]
        steps = {"ours": (ours, needing), "torch": (theirs, needing), "nothing": (recorded, seen)}
        for what, calls in ((f"{name}, forward", alone), (f"{name}, forward and backward", steps)):
            made = {
                key: _step(call, operands, leaves) if calls is steps else partial(call, *operands)
                for key, (call, operands) in calls.items()
            }
            with sb.use_isa(isa):
                seconds = medians(made, threads, 21)
            rates = {key: 1e-3 / value for key, value in seconds.items()}
            rows.append({"shape": what, **rates, "ratio": rates["ours"] / rates["torch"]})
    return rows


def _step(call: Any, operands: Any, leaves: list[Tensor]) -> Call:
    """Forward and backward of a function."""
    dy = torch.ones_like(call(*operands))

    def step() -> None:
        for x in leaves:
            x.grad = None
        call(*operands).backward(dy)

    return step


def others(isa: str, threads: int) -> Rows:
    """Steps a second of 512 rows of 768."""
    torch.set_num_threads(threads)
    rows = Rows()
    for dtype in DTYPES.values():
        norms = nn.LayerNorm(768), nn.RMSNorm(768)
        for theirs in (*norms, nn.GELU(), nn.SiLU(), nn.ReLU(), nn.Softmax(-1), nn.LogSoftmax(-1)):
            x, dy = torch.randn(512, 768, dtype=dtype).requires_grad_(), torch.randn(512, 768, dtype=dtype)
            modules = _pair(theirs.to(dtype), _converted)
            with sb.use_isa(isa):
                seconds = medians({name: _both(module, x, dy) for name, module in modules.items()}, threads, 9)
            rows.append(row(f"{type(theirs).__name__}, {_word(dtype)}", 1, seconds))
    return rows


def attention(isa: str, threads: int) -> Rows:
    """Calls a second of causal attention, of one row beside a cache, and of a batch."""
    torch.set_num_threads(threads)
    rows = Rows()
    for dtype in DTYPES.values():
        for n, heads, length, keys, is_causal in ATTENTION:
            shapes = ((n, heads, length, 64), (n, heads, keys, 64), (n, heads, keys, 64))
            for needs in (False, True):
                operands = [torch.randn(shape, dtype=dtype).requires_grad_(needs) for shape in shapes]
                calls = {
                    name: partial(home.scaled_dot_product_attention, *operands, is_causal=is_causal)
                    for name, home in (("ours", st), ("torch", nn.functional))
                }
                made = {name: _step(call, (), operands) for name, call in calls.items()} if needs else calls
                with sb.use_isa(isa):
                    seconds = medians(made, threads, 9)
                what = f"{n} x {heads} x {length} x {keys}{', backward too' if needs else ''}, {_word(dtype)}"
                rows.append(row(what, 1, seconds))
    return rows


def quantised(isa: str, threads: int) -> Rows:
    """Calls a second of a weight of four bits beside the layer of 16 bits that it is of."""
    torch.set_num_threads(threads)
    rows = Rows()
    for m, k, n in QUANTISED:
        x = torch.randn(m, k, dtype=torch.bfloat16)
        theirs = nn.Linear(k, n, dtype=torch.bfloat16)
        modules = _pair(theirs, lambda module: st.QuantLinear.from_torch(module, "int4-group128"))  # type: ignore[arg-type]
        with sb.use_isa(isa):
            seconds = medians({name: _without(module, x) for name, module in modules.items()}, threads, 15)
        rows.append(row(f"{m} x {k} x {n}", 1, seconds))
    return rows


TABLES = (
    *((f"Linear, {name}{{}}, GFLOP/s of steps", _linear(dtype)) for name, dtype in DTYPES.items()),
    ("Small calls{}, thousands a second", small),
    ("Small calls of functions{}, thousands a second", functions),
    ("Other modules, 512 x 768{}, steps a second", others),
    ("Attention, sequences x heads of 64 x rows x keys{}, calls a second", attention),
    ("QuantLinear, int4-group128 of bfloat16{}, calls a second", quantised),
)
ISA = isas.current().name
PARTS = tuple(
    Part(title.format(f", {many}"), table, ISA, threads)
    for threads, many in ((1, "one thread"), (2, "two threads"))
    for title, table in TABLES
    if threads == 1 or table not in (small, functions)
)

if __name__ == "__main__":
    found = run(__file__, PARTS)
    for name in DTYPES:
        what = f"512 x 768 x 3072, {name}"
        one = found.get((ISA, 1, what))
        if one is not None:
            figure(f"Linear, forward and backward, {what}, 1 thread", "GFLOP/s", one)
