"""Optimisers as torch names them, `SGD` and `AdamW`, and `clip_grad_norm_`: numerics.md section 12 decides bits.

A gradient is a parameter's `main_grad` where `accumulate` left one, else its `grad`. Parameters narrower than float32
have a float32 copy in the state, which is what steps are taken on.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from samebits import tensor
from samebits.errors import DeviceError, DTypeError, LayoutError, OptionError, SamebitsError, ShapeError, shown
from samebits.kinds import note_written
from samebits.ops import casts, elementwise, optimizing, rows
from samebits.shapes import check_flag
from samebits.torch.arguments import check_tensors, eagerly, listed, number
from samebits.torch.joined_steps import JoinedSteps
from samebits.torch.operator import check_tensor, threads

__all__ = ["SGD", "AdamW", "clip_grad_norm_"]

Array = np.ndarray[Any, Any]


class _Optimizer(torch.optim.Optimizer):
    """What both share: gradients, master weights, state as it was saved."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, those of `accumulate` too."""
        super().zero_grad(set_to_none)
        for group in self.param_groups:
            for p in group["params"]:
                if getattr(p, "main_grad", None) is not None:
                    p.main_grad = None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's.

        Raises:  OptionError for an option that the optimiser itself would refuse.
        """
        if isinstance(param_group, dict):  # what is none torch refuses
            self._check({**self.defaults, **param_group})
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, but the state is float32 where the parameters have a narrower dtype. That of torch's optimiser of
        the same name will do.

        Raises:  OptionError if a group lacks an option, or has one that the optimiser would refuse.
        """
        call = f"{type(self).__name__}.load_state_dict"
        for i, saved in enumerate(state_dict["param_groups"]):
            for name in sorted(self.defaults.keys() - saved.keys()):
                remedy = "load the state of the same optimiser"
                raise OptionError(call, f"param_groups[{i}]", name, "missing", "there", remedy)
            self._check(saved)
        super().load_state_dict(state_dict)
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            for p, place in zip(group["params"], saved["params"], strict=True):
                if place in state_dict["state"]:
                    self.state[p] = {k: _own(k, v, p) for k, v in state_dict["state"][place].items()}

    @eagerly("optimizer.step")
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step on every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        joined = JoinedSteps()
        try:
            for i, group in enumerate(self.param_groups):
                joined.numbers.clear()
                for place, p in enumerate(group["params"]):
                    g = gradient_of(p)
                    if g is not None and not self._joins(p, g, group, joined):
                        joined.run()
                        name = f"parameter {place} of group {i}"
                        _check_gradient(type(self).__name__, name, p, g)
                        _check_state(type(self).__name__, name, p, self.state[p])
                        self._step(p, g.detach(), group)
        finally:  # what was gathered counts as taken, also where a later one is refused
            joined.run()
        return loss

    def _check(self, options: dict[str, Any]) -> None:
        """Raise OptionError unless these options of a group can be taken."""
        raise NotImplementedError

    def _joins(self, p: Tensor, g: Tensor, group: dict[str, Any], joined: JoinedSteps) -> bool:
        """Whether the step is taken among others of its kind."""
        raise NotImplementedError

    def _step(self, p: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        """Take one by itself, after its operands were looked at."""
        raise NotImplementedError

    def _weights(self, p: Tensor) -> Tensor:
        """What the step is taken on: the parameter's own memory, or its wider copy."""
        if p.dtype in (torch.float32, torch.float64):
            return p.detach()
        state = self.state[p]
        if "master" not in state:
            state["master"] = p.detach().float()
        master: Tensor = state["master"]
        kept = p.detach()
        written = _rounded(master, p).view(torch.int16) != kept.view(torch.int16)
        if written.any():  # by others, since the last step: the copy follows
            master[written] = kept[written].float()
        return master

    def _numbers(self, p: Tensor, *values: float) -> Array:
        """Numbers of a step, each rounded once to what is computed in."""
        return _rounded_numbers(struct.pack(f"{len(values)}d", *values), p.dtype is torch.float64)


def _joined_numbers(*values: float) -> Array:
    """Numbers of steps that are joined: float32, whatever the parameter that asked for them first is."""
    return _rounded_numbers(struct.pack(f"{len(values)}d", *values), False)


@functools.lru_cache(maxsize=64)
def _rounded_numbers(values: bytes, is_double: bool) -> Array:
    """Numbers of float64, told apart by their bits, as an array for all parameters of a step, which nobody writes. It
    is NumPy's: modes of torch, as that of its fake tensors, change what torch makes, and this is kept beyond them."""
    return np.frombuffer(values).astype(np.float64 if is_double else np.float32)


def _own(name: str, value: Any, p: Tensor) -> Any:
    """A saved value as it is kept: a count of steps as an int, other tensors apart, in the dtype of p's steps."""
    if not isinstance(value, Tensor):
        return value
    if name == "step":
        return int(value)
    return value.detach().clone().to(_wide(p))


def _wide(p: Tensor) -> torch.dtype:
    """What steps of a parameter are taken in."""
    return torch.float64 if p.dtype is torch.float64 else torch.float32


def _check_gradient(call: str, name: str, p: Tensor, g: Tensor) -> None:
    """Raise unless a parameter and its gradient, which may be a `main_grad` of any kind, go together."""
    check_tensors(call, **{f"gradient of {name}": g})
    check_tensor(call, name, p)
    check_tensor(call, f"gradient of {name}", g, *dict.fromkeys([p.dtype, _wide(p)]))
    if g.shape != p.shape:
        remedy = "let it be None, or the gradient"
        raise ShapeError(call, f"gradient of {name}", "shape", tuple(g.shape), tuple(p.shape), remedy)


def _check_state(call: str, name: str, p: Tensor, state: dict[str, Any]) -> None:
    """Raise unless what is kept of a parameter fits it: its data may have been replaced since."""
    remedy = "make a new optimiser of it"
    for key, kept in state.items():
        if not isinstance(kept, Tensor):
            continue
        if kept.shape != p.shape:
            raise ShapeError(call, f"{key} of {name}", "shape", tuple(kept.shape), tuple(p.shape), remedy)
        if key != "master" and kept.dtype is not _wide(p):
            actual, expected = (str(dtype).removeprefix("torch.") for dtype in (kept.dtype, _wide(p)))
            raise DTypeError(call, f"{key} of {name}", "dtype", actual, expected, remedy)


def _are_apart(*tensors: Tensor) -> bool:
    """Whether no two of their storages meet, as two can that lie in memory of NumPy's. Steps that write several look at
    nothing else when they are repeated."""
    end = 0
    for first, size in sorted([(s.data_ptr(), s.nbytes()) for s in [x.untyped_storage() for x in tensors]]):
        if first < end:
            return False
        end = first + size
    return True


def _given_back(w: Tensor, p: Tensor) -> None:
    """A parameter that is narrower than its weights takes them, rounded once."""
    if w.dtype != p.dtype:
        _rounded(w, p, p.detach())


def _rounded(w: Tensor, p: Tensor, out: Tensor | None = None) -> Tensor:
    """Weights in the dtype of their parameter."""
    name = str(p.dtype).removeprefix("torch.")
    return casts.cast(w, name, out=out, threads=threads())  # type: ignore[no-any-return]


def gradient_of(p: Tensor) -> Tensor | None:
    """The gradient that a step takes."""
    main: Tensor | None = getattr(p, "main_grad", None)
    return p.grad if main is None else main


class SGD(_Optimizer):
    """`torch.optim.SGD`: g = g + weight_decay * p; b = momentum * b + (1 - dampening) * g; p = p - lr * b.

    Raises:  OptionError for a number that is negative.
    """

    def __init__(
        self, params: Any, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
        })  # fmt: skip

    def _check(self, options: dict[str, Any]) -> None:
        _check("SGD", **{name: options[name] for name in ("lr", "momentum", "weight_decay")})
        dampening = number("SGD", "dampening", options["dampening"])
        is_ahead = check_flag("SGD", "nesterov", options["nesterov"])
        if is_ahead and (options["momentum"] == 0 or dampening != 0):
            expected = "given with a momentum, and without dampening"
            raise OptionError("SGD", "nesterov", "", "given without", expected, "leave it out")
        _check_left_out("SGD", options)

    def _joins(self, p: Tensor, g: Tensor, group: dict[str, Any], joined: JoinedSteps) -> bool:
        if group["weight_decay"] or group["nesterov"]:
            return False
        mu, numbers = group["momentum"], joined.numbers.get(0)
        if not mu:
            if numbers is None:
                numbers = joined.numbers[0] = _joined_numbers(group["lr"])
            return joined.add("descent", (p,), g, numbers)
        b = self.state[p].get("momentum_buffer")
        if b is None:
            return False
        if numbers is None:
            numbers = joined.numbers[0] = _joined_numbers(mu, 1.0 - group["dampening"], group["lr"])
        return joined.add("momentum_descent", (p, b), g, numbers)

    def _step(self, p: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        w, state, mu = self._weights(p), self.state[p], group["momentum"]
        g = g.to(w.dtype)
        if group["weight_decay"]:
            g = optimizing.momentum(
                g, w, self._numbers(p, 1.0, group["weight_decay"]), out=torch.empty_like(w), threads=threads()
            )
        if mu:
            b = state.get("momentum_buffer")
            if b is None:
                b = state["momentum_buffer"] = g.clone()
            elif not group["nesterov"] and _are_apart(w, b, g):
                numbers = self._numbers(p, mu, 1.0 - group["dampening"], group["lr"])
                optimizing.momentum_descent(w, b, g, numbers, out=w, threads=threads())
                note_written(b)
                _given_back(w, p)
                return
            else:
                optimizing.momentum(b, g, self._numbers(p, mu, 1.0 - group["dampening"]), out=b, threads=threads())
            ahead = group["nesterov"]
            g = (
                optimizing.momentum(g, b, self._numbers(p, 1.0, mu), out=torch.empty_like(w), threads=threads())
                if ahead
                else b
            )
        optimizing.descent(w, g, self._numbers(p, group["lr"]), out=w, threads=threads())
        _given_back(w, p)


class AdamW(_Optimizer):
    """`torch.optim.AdamW` without amsgrad: decoupled weight decay, moments in float32.

    Raises:  OptionError for a number that is negative, and for betas that are not below 1.
    """

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def _check(self, options: dict[str, Any]) -> None:
        _check("AdamW", **{name: options[name] for name in ("lr", "eps", "weight_decay")})
        betas = options["betas"]
        fits = isinstance(betas, tuple | list) and len(betas) == 2
        if not fits or not all(0 <= number("AdamW", "betas", beta) < 1 for beta in betas):
            raise OptionError("AdamW", "betas", "", shown(betas), "two numbers in [0, 1)", "leave them out")
        _check_left_out("AdamW", options)

    def _joins(self, p: Tensor, g: Tensor, group: dict[str, Any], joined: JoinedSteps) -> bool:
        state = self.state[p]
        if "step" not in state:
            return False
        before = state["step"]
        numbers = joined.numbers.get(before)
        if numbers is None:
            moments, step = _adam_numbers(group, before + 1)
            numbers = joined.numbers[before] = _joined_numbers(*moments, *step)
        if not joined.add("adam", (p, state["exp_avg"], state["exp_avg_sq"]), g, numbers):
            return False
        state["step"] = before + 1
        return True

    def _step(self, p: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        w, state = self._weights(p), self.state[p]
        if "step" not in state:
            state.update(step=0, exp_avg=torch.zeros_like(w), exp_avg_sq=torch.zeros_like(w))
        state["step"] += 1
        m, v = state["exp_avg"], state["exp_avg_sq"]
        moments, step = _adam_numbers(group, state["step"])
        if _are_apart(w, m, v, g):
            optimizing.adam(w, m, v, g, self._numbers(p, *moments, *step), out=w, threads=threads())
            note_written(m)
            note_written(v)
        else:  # what shares memory is looked at each time
            optimizing.momentum(m, g, self._numbers(p, *moments[:2]), out=m, threads=threads())
            optimizing.second_moment(v, g, self._numbers(p, *moments[2:]), out=v, threads=threads())
            optimizing.adam_step(w, m, v, self._numbers(p, *step), out=w, threads=threads())
        _given_back(w, p)


def _adam_numbers(group: dict[str, Any], count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Those of the moments, and those of what follows from them, in step `count`."""
    (first, second), lr = group["betas"], group["lr"]
    rate, root = lr / (1.0 - power(first, count)), math.sqrt(1.0 - power(second, count))
    return (first, 1.0 - first, second, 1.0 - second), (1.0 - lr * group["weight_decay"], rate, root, group["eps"])


def power(base: float, count: int) -> float:
    """base ** count in float64, by squaring: no library's own power has a say."""
    result = 1.0
    while count:
        if count & 1:
            result *= base
        base *= base
        count >>= 1
    return result


def _lies_apart(x: Tensor, name: str) -> bool:
    """Whether each element of a gradient has a place of its own."""
    try:
        return bool(tensor.Tensor.from_any(x.detach()).layout.is_unique())
    except SamebitsError as error:
        raise error.renamed("clip_grad_norm_", name) from error


@eagerly("clip_grad_norm_")
@torch.no_grad()
def clip_grad_norm_(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale gradients so that their 2-norm together is at most max_norm, as `torch.nn.utils.clip_grad_norm_`.

    Returns: the norm before, float32, or float64 where a gradient is.
    Raises:  OptionError for a max_norm that is negative. LayoutError for a gradient whose elements share memory.
             DeviceError for one that is not on the host.
    """
    _check("clip_grad_norm_", max_norm=max_norm)
    parameters = listed("clip_grad_norm_", "parameters", parameters)
    found = [g for p in parameters if (g := gradient_of(p)) is not None]
    for i, g in enumerate(found):
        check_tensor("clip_grad_norm_", f"gradient {i}", g)
        if g.is_meta:
            raise DeviceError("clip_grad_norm_", f"gradient {i}", "device", g.device, "cpu", "make it on the host")
        if not (g.is_contiguous() or _lies_apart(g, f"gradient {i}")):
            expected, remedy = "strides with a place for each element", "set the parameter's grad to its clone()"
            raise LayoutError("clip_grad_norm_", f"gradient {i}", "strides", g.stride(), expected, remedy)
    if not found:
        return torch.zeros(())
    many, squares = threads(), []
    for i, g in enumerate(found):
        try:
            squares.append(optimizing.sum_of_squares(g, threads=many))
        except SamebitsError as error:
            raise error.renamed("clip_grad_norm_", f"gradient {i}") from error
    widest = max((x.dtype for x in squares), key=lambda dtype: dtype.itemsize)
    norm = elementwise.sqrt(rows.sum(torch.stack([x.to(widest) for x in squares])))
    scale = elementwise.minimum(elementwise.divide(float(max_norm), elementwise.add(norm, 1e-6)), 1.0)
    for g, square in zip(found, squares, strict=True):
        optimizing.scaled(g, scale.to(square.dtype), out=g, threads=many)
    return norm  # type: ignore[no-any-return]


# What options of torch's optimisers must be, where a group has them, since ours do nothing else.
_LEFT_OUT = {"maximize": False, "amsgrad": False, "decoupled_weight_decay": True}


def _check_left_out(call: str, options: dict[str, Any]) -> None:
    """Raise unless what only torch's optimisers can do is not asked for."""
    for name, due in _LEFT_OUT.items():
        value = options.get(name, due)
        if value != due:
            raise OptionError(call, name, "", shown(value), shown(due), "leave it out, or keep torch's optimiser")


def _check(call: str, **numbers: float) -> None:
    """Raise unless numbers are at least 0."""
    for name, value in numbers.items():
        if not number(call, name, value) >= 0:
            raise OptionError(call, name, "", shown(value), "a number of at least 0", "pass a float")
