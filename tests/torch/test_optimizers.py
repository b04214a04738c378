"""Optimisers: numerics.md section 12 walked by NumPy gives the bits; torch's own are near."""

from __future__ import annotations

import copy
import math
from typing import Any

import gradients as due
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import samebits.torch as st
from samebits.errors import DeviceError, ExchangeError, LayoutError, OptionError, SamebitsError
from samebits.ops import optimizing
from samebits.torch import optimizers

Array = np.ndarray[Any, Any]
STEPS = 7


def power(base: float, count: int) -> float:
    result = 1.0
    for bit in reversed(bin(count)[2:]):
        result = result * base if bit == "1" else result
        base = base * base
    return result


def walk_adamw(
    p: Array, gradients: list[Array], lr: float, b1: float, b2: float, eps: float, decay: float,
    moments: tuple[Array, Array] | None = None, steps: int = 0,
) -> Array:  # fmt: skip
    """From moments that so many steps have left."""
    kind = p.dtype.type
    m, v = moments or (np.zeros_like(p), np.zeros_like(p))
    for t, g in enumerate(gradients, steps + 1):
        m = kind(b1) * m + kind(1 - b1) * g
        v = kind(b2) * v + (kind(1 - b2) * g) * g
        size = np.sqrt(v) / kind(math.sqrt(1 - power(b2, t))) + kind(eps)
        p = p * kind(1 - lr * decay) - kind(lr / (1 - power(b1, t))) * (m / size)
    return p


def walk_sgd(
    p: Array, gradients: list[Array], lr: float, mu: float, damp: float, decay: float, ahead: bool,
    b: Array | None = None,
) -> Array:  # fmt: skip
    """From the buffer of a momentum that steps before have left."""
    kind = p.dtype.type
    for g in gradients:
        if decay:
            g = g + kind(decay) * p
        if mu:
            b = g if b is None else kind(mu) * b + kind(1 - damp) * g
            g = g + kind(mu) * b if ahead else b
        p = p - kind(lr) * g
    return p


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def run(make: Any, dtype: torch.dtype, steps: int = STEPS) -> tuple[torch.Tensor, Array, list[Array]]:
    """A parameter after some steps, what it was before, and its gradients."""
    p = torch.nn.Parameter(normal(0, 5, 33, dtype=dtype))
    before, known, optimizer = due.numbers(p).copy(), [], make([p])
    for i in range(steps):
        p.grad = normal(i + 1, 5, 33, dtype=dtype)
        known.append(due.numbers(p.grad))
        optimizer.step()
    return p, before, known


DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)


@DTYPES
def test_adamw_is_the_walk(dtype: torch.dtype) -> None:
    p, before, known = run(lambda ps: st.AdamW(ps, 3e-3, (0.8, 0.95), 1e-6, 0.1), dtype)
    expected = walk_adamw(before, known, 3e-3, 0.8, 0.95, 1e-6, 0.1)
    assert due.bits(p) == due.bits(due.given(expected, dtype))


@DTYPES
@pytest.mark.parametrize(
    ("mu", "damp", "decay", "ahead"), [(0.0, 0.0, 0.0, False), (0.9, 0.0, 0.1, True), (0.7, 0.2, 0.0, False)]
)
def test_sgd_is_the_walk(dtype: torch.dtype, mu: float, damp: float, decay: float, ahead: bool) -> None:
    p, before, known = run(lambda ps: st.SGD(ps, 0.03, mu, damp, decay, ahead), dtype)
    assert due.bits(p) == due.bits(due.given(walk_sgd(before, known, 0.03, mu, damp, decay, ahead), dtype))


def test_torchs_optimisers_are_near() -> None:
    for ours, theirs, options in (
        (st.AdamW, torch.optim.AdamW, {"lr": 1e-2}),
        (st.SGD, torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ):
        found, known = (run(lambda ps, c=c, o=options: c(ps, **o), torch.float32)[0] for c in (ours, theirs))
        assert torch.allclose(found, known, 1e-5, 1e-6)


def test_main_grad_comes_before_grad_and_is_forgotten_with_it() -> None:
    p, q = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    p.grad, p.main_grad, q.grad = torch.full((3,), 7.0), torch.full((3,), 2.0), torch.full((3,), 2.0)
    optimizer = st.SGD([p, q], 0.5)
    optimizer.step()
    assert torch.equal(p, q)
    optimizer.zero_grad()
    assert (p.grad, p.main_grad) == (None, None)


@pytest.mark.parametrize("make", [st.AdamW, lambda ps: st.SGD(ps, 0.1, 0.9)], ids=["AdamW", "SGD"])
def test_a_saved_state_goes_on_with_the_same_bits(make: Any) -> None:
    def steps(p: torch.nn.Parameter, optimizer: Any, first: int, last: int) -> None:
        for i in range(first, last):
            p.grad = normal(i, 40, dtype=torch.bfloat16)
            optimizer.step()

    p = torch.nn.Parameter(normal(9, 40, dtype=torch.bfloat16))
    optimizer = make([p])
    steps(p, optimizer, 0, 3)
    other = torch.nn.Parameter(p.detach().clone())
    loaded = make([other])
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert {x.dtype for x in loaded.state[other].values() if isinstance(x, torch.Tensor)} == {torch.float32}
    steps(p, optimizer, 3, 6)
    steps(other, loaded, 3, 6)
    assert due.bits(p) == due.bits(other)


def test_clipping_is_the_contract_and_near_torchs() -> None:
    shapes = [(5, 33), (2100,), ()]
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]
    for i, p in enumerate(parameters):
        p.grad = normal(i, *p.shape)
    known = [due.numbers(p.grad).copy() for p in parameters if p.grad is not None]
    theirs = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]
    for p, q in zip(parameters, theirs, strict=True):
        q.grad = None if p.grad is None else p.grad.clone()
    norm, other = st.clip_grad_norm_(parameters, 3.0), torch.nn.utils.clip_grad_norm_(theirs, 3.0)
    sums = np.concatenate([due.total((g * g).reshape(1, -1))[0] for g in known])
    expected = np.sqrt(due.total(sums[None])[0, 0])
    scale = np.minimum(np.float32(3.0) / (expected + np.float32(1e-6)), np.float32(1))
    assert due.bits(norm) == due.bits(np.asarray(expected))
    assert torch.allclose(norm, other, 1e-5)
    for p, q, g in zip(parameters, theirs, known, strict=True):
        assert p.grad is not None
        assert due.bits(p.grad) == due.bits(g * scale)
        assert torch.allclose(p.grad, q.grad, 1e-5, 1e-6)
    assert st.clip_grad_norm_([torch.nn.Parameter(torch.zeros(3))], 1.0) == 0


@pytest.mark.parametrize("kinds", [("float64", "float64"), ("float32", "float64"), ("float64", "bfloat16")])
def test_clipping_where_a_gradient_is_of_float64_is_computed_in_float64(kinds: tuple[str, str]) -> None:
    """The norm of numbers of 1e100 is no infinity, which would make all of them 0."""
    for factor in (1.0, 1e100):
        parameters = []
        for i, kind in enumerate(kinds):
            dtype = getattr(torch, kind)
            p = torch.nn.Parameter(torch.zeros(33, dtype=dtype))
            p.grad = (normal(i, 33).double() * (factor if kind == "float64" else 1.0)).to(dtype)
            parameters.append(p)
        known = [p.grad.double().numpy().copy() for p in parameters if p.grad is not None]
        wide = [np.float64 if kind == "float64" else np.float32 for kind in kinds]
        norm = st.clip_grad_norm_(parameters, 3.0)
        sums = [due.total((g.astype(w) * g.astype(w))[None])[0, 0] for g, w in zip(known, wide, strict=True)]
        expected = np.sqrt(due.total(np.array([sums], np.float64))[0, 0])
        scale = np.minimum(3.0 / (expected + 1e-6), 1.0)
        assert (norm.dtype, norm.item()) == (torch.float64, expected)
        for p, g, w in zip(parameters, known, wide, strict=True):
            assert p.grad is not None
            assert torch.equal(p.grad, torch.from_numpy(g.astype(w) * w(scale)).to(p.dtype))


def test_small_gradients_stay_as_they_are() -> None:
    p = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    p.grad = torch.tensor([1e-3, -2e-3, 0.0], dtype=torch.bfloat16)
    before = p.grad.clone()
    st.clip_grad_norm_([p], 1.0)
    assert torch.equal(p.grad, before)


def test_a_gradient_that_has_no_elements_on_the_host_is_refused() -> None:
    p = torch.nn.Parameter(torch.zeros(3, device="meta"))
    p.grad = torch.zeros(3, device="meta")
    with pytest.raises(DeviceError) as caught:
        st.clip_grad_norm_([p], 1.0)
    assert str(caught.value) == "clip_grad_norm_: gradient 0 device is meta, must be cpu; make it on the host"


@pytest.mark.parametrize("step", [1, 2])
def test_a_gradient_that_is_still_to_be_negated_is_refused_by_its_own_name(step: int) -> None:
    parameters = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    parameters[0].grad, parameters[1].grad = torch.full((3,), 8.0), torch._neg_view(torch.ones(6)[: 3 * step : step])
    with pytest.raises(ExchangeError) as caught:
        st.clip_grad_norm_(parameters, 1.0)
    assert str(caught.value) == (
        "clip_grad_norm_: gradient 1 memory is still to be negated, must be what the values are; call "
        "x.resolve_neg() first"
    )
    assert parameters[0].grad.tolist() == [8.0] * 3


def test_a_gradient_whose_elements_share_memory_is_refused_before_any_is_scaled() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    parameters[0].grad, parameters[1].grad = torch.full((3,), 8.0), torch.ones(()).expand(3)
    with pytest.raises(LayoutError) as caught:
        st.clip_grad_norm_(parameters, 1.0)
    assert str(caught.value) == (
        "clip_grad_norm_: gradient 1 strides is (0,), must be strides with a place for each element; set the "
        "parameter's grad to its clone()"
    )
    assert torch.equal(parameters[0].grad, torch.full((3,), 8.0))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda p: st.SGD(p, -1.0), "SGD: lr is -1.0, must be a number of at least 0; pass a float"),
        (lambda p: st.SGD(p, 0.1, nesterov=True),
         "SGD: nesterov is given without, must be given with a momentum, and without dampening; leave it out"),
        (lambda p: st.AdamW(p, betas=(0.9, 1.0)),
         "AdamW: betas is (0.9, 1.0), must be two numbers in [0, 1); leave them out"),
        (lambda p: st.AdamW(p, weight_decay=-0.1),
         "AdamW: weight_decay is -0.1, must be a number of at least 0; pass a float"),
        (lambda p: st.clip_grad_norm_(p, -1.0),
         "clip_grad_norm_: max_norm is -1.0, must be a number of at least 0; pass a float"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_a_sentence(call: Any, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        call([torch.nn.Parameter(torch.zeros(3))])
    assert str(caught.value) == text


@pytest.mark.parametrize("make", [st.AdamW, lambda ps: st.SGD(ps, 0.1)], ids=["AdamW", "SGD"])
def test_autograd_knows_that_a_step_wrote_a_parameter(make: Any) -> None:
    p, x = torch.nn.Parameter(torch.ones(2, 3)), torch.ones(4, 3, requires_grad=True)
    y = st.linear(x, p)
    p.grad = torch.ones(2, 3)
    make([p]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_a_state_of_torchs_optimiser_goes_on(name: str, dtype: torch.dtype) -> None:
    options: dict[str, Any] = {"lr": 0.1} if name == "AdamW" else {"lr": 0.1, "momentum": 0.9}
    p = torch.nn.Parameter(torch.linspace(-1, 1, 6, dtype=dtype))
    q = torch.nn.Parameter(p.detach().clone())
    theirs, ours = getattr(torch.optim, name)([p], **options), getattr(st, name)([q], **options)
    for optimizer in (theirs, ours):
        p.grad = q.grad = torch.linspace(2, 1, 6, dtype=dtype)
        optimizer.step()
    with torch.no_grad():
        q.copy_(p)
    ours = getattr(st, name)([q], **options)
    ours.load_state_dict(theirs.state_dict())
    assert {x.dtype for x in ours.state[q].values() if isinstance(x, torch.Tensor)} == {torch.float32}
    left, before = {key: due.numbers(x) for key, x in theirs.state[p].items()}, due.numbers(q).copy()
    q.grad = torch.linspace(1, -1, 6, dtype=dtype)
    ours.step()
    known = [due.numbers(q.grad)]
    if name == "AdamW":
        moments = left["exp_avg"], left["exp_avg_sq"]
        expected = walk_adamw(before, known, 0.1, 0.9, 0.999, 1e-8, 0.01, moments, 1)
    else:
        expected = walk_sgd(before, known, 0.1, 0.9, 0.0, 0.0, False, left["momentum_buffer"])
    assert due.bits(q) == due.bits(due.given(expected, dtype))


def _group(make: Any, **options: Any) -> Any:
    return lambda p: make([{"params": p, **options}])


def _with(make: Any, **attributes: Any) -> Any:
    def step(p: Any) -> None:
        for name, value in attributes.items():
            setattr(p[0], name, value)
        make(p).step()

    return step


def _loaded(saved: Any, **options: Any) -> Any:
    return lambda p: st.AdamW(p).load_state_dict(saved(p, **options).state_dict())


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (_group(st.SGD, lr=-5), "SGD: lr is -5, must be a number of at least 0; pass a float"),
        (_group(st.AdamW, betas=(2, 3)), "AdamW: betas is (2, 3), must be two numbers in [0, 1); leave them out"),
        (_group(st.SGD, dampening="a"), "SGD: dampening is 'a', must be a number; pass a float"),
        (_group(st.SGD, momentum=0.9, nesterov="no"),
         "SGD: nesterov is 'no', must be True or False; pass one of the two"),
        (_group(st.SGD, maximize=True),
         "SGD: maximize is True, must be False; leave it out, or keep torch's optimiser"),
        (_loaded(torch.optim.AdamW, amsgrad=True),
         "AdamW: amsgrad is True, must be False; leave it out, or keep torch's optimiser"),
        (_loaded(torch.optim.Adam),
         "AdamW: decoupled_weight_decay is False, must be True; leave it out, or keep torch's optimiser"),
        (lambda p: st.SGD(p).load_state_dict(torch.optim.Adadelta(p).state_dict()),
         ("SGD.load_state_dict: param_groups[0] dampening is missing, must be there; load the state of the same "
         "optimiser")),
        (_with(st.SGD, main_grad=torch.zeros(2)),
         "SGD: gradient of parameter 0 of group 0 shape is (2,), must be (3,); let it be None, or the gradient"),
        (_with(st.AdamW, main_grad=torch.zeros(3, dtype=torch.float64)),
         "AdamW: gradient of parameter 0 of group 0 dtype is float64, must be float32; convert it first"),
        (_with(st.AdamW, main_grad="x"),
         "AdamW: gradient of parameter 0 of group 0 type is str, must be a torch.Tensor; convert it first"),
        (_with(st.SGD, grad=torch.zeros(3).to_sparse()),
         ("SGD: gradient of parameter 0 of group 0 layout is torch.sparse_coo, must be torch.strided; call its "
         "to_dense() first")),
        (_with(lambda p: type("Clip", (), {"step": lambda _: st.clip_grad_norm_(p, 1.0)})(),
               grad=torch.zeros(3).to_sparse()),
         "clip_grad_norm_: gradient 0 layout is torch.sparse_coo, must be torch.strided; call its to_dense() first"),
    ],
)  # fmt: skip
def test_options_of_groups_and_gradients_that_do_not_fit_are_refused(call: Any, text: str) -> None:
    p = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(SamebitsError) as caught:
        call([p])
    assert str(caught.value) == text
    assert not p.any()


@pytest.mark.parametrize(
    ("make", "data", "text"),
    [
        (st.AdamW, torch.ones(3, dtype=torch.float64),
         ("AdamW: exp_avg of parameter 0 of group 0 dtype is float32, must be float64; make a new optimiser of it")),
        (lambda ps: st.SGD(ps, 0.1, 0.9), torch.ones(1),
         ("SGD: momentum_buffer of parameter 0 of group 0 shape is (3,), must be (1,); make a new optimiser of it")),
    ],
)  # fmt: skip
def test_a_state_that_no_longer_fits_its_parameter_is_refused_and_kept(make: Any, data: Any, text: str) -> None:
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = make([p])
    p.grad = torch.ones(3)
    optimizer.step()
    before = copy.deepcopy(optimizer.state_dict()["state"])
    p.grad = None
    p.data = data
    p.grad = torch.ones_like(p)
    with pytest.raises(SamebitsError) as caught:
        optimizer.step()
    assert str(caught.value) == text
    after = optimizer.state_dict()["state"]
    assert all(torch.equal(torch.as_tensor(after[0][key]), torch.as_tensor(x)) for key, x in before[0].items())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "make", [lambda p: st.SGD([p], lr=2**-12), lambda p: st.AdamW([p], lr=2**-12)], ids=["SGD", "AdamW"]
)
def test_what_others_write_into_a_narrow_parameter_stays(make: Any, dtype: torch.dtype) -> None:
    p = torch.nn.Parameter(torch.ones(4, dtype=dtype))
    optimizer = make(p)
    p.grad = torch.ones(4, dtype=dtype)
    for _ in range(3):
        optimizer.step()
    master = optimizer.state[p]["master"]
    assert (master != master.to(dtype)).any()  # what the parameter does not show is kept
    stays = master[2:].clone()
    p.data[0], p.data[1] = 5.0, float("nan")  # `data` has a version of its own
    p.grad.zero_()
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    assert p[0] == master[0] == 5.0
    assert p[1].isnan()
    assert master[1].isnan()
    assert master[2:].equal(stays)


@pytest.mark.parametrize("make", [st.AdamW, lambda params: st.SGD(params, momentum=0.9)], ids=["AdamW", "SGD"])
def test_states_in_one_storage_are_stepped_as_those_apart(make: Any) -> None:
    found = []
    for shares in (False, True):
        p = torch.nn.Parameter(torch.linspace(-1, 1, 40).reshape(5, 8))
        optimizer = make([p])
        for step in range(4):
            p.grad = torch.sin(p.detach() * (step + 1))
            state = optimizer.state[p]
            kept = {name: x for name, x in state.items() if isinstance(x, torch.Tensor)}
            if shares and kept:
                one = torch.cat([*[x.flatten() for x in kept.values()], p.grad.flatten()])
                p.grad = one[-40:].view(5, 8)
                for i, name in enumerate(kept):
                    state[name] = one[i * 40 : i * 40 + 40].view(5, 8)
            versions = [x._version for x in state.values() if isinstance(x, torch.Tensor)]
            optimizer.step()
            now = [x._version for x in state.values() if isinstance(x, torch.Tensor)]
            assert all(after > before for before, after in zip(versions, now, strict=False))
        found.append([x.tolist() for x in (p.detach(), *[x for x in state.values() if isinstance(x, torch.Tensor)])])
    assert found[0] == found[1]


@pytest.mark.parametrize("make", [st.AdamW, lambda params: st.SGD(params, momentum=0.9)], ids=["AdamW", "SGD"])
def test_a_state_that_meets_the_gradient_in_memory_of_numpy_is_refused(make: Any) -> None:
    p, memory = torch.nn.Parameter(torch.zeros(8)), np.ones(12, np.float32)
    optimizer = make([p])
    for _ in range(3):  # so that calls are remembered
        p.grad = torch.ones(8)
        optimizer.step()
    name = next(name for name, x in optimizer.state[p].items() if isinstance(x, torch.Tensor))
    optimizer.state[p][name], p.grad = torch.from_numpy(memory[:8]), torch.from_numpy(memory[4:])
    with pytest.raises(LayoutError) as caught:
        optimizer.step()
    assert str(caught.value) == (
        "momentum: out memory is that of an operand, must be its own, or exactly an operand's; leave out= away"
    )


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_a_step_on_fake_tensors_leaves_nothing_to_later_ones() -> None:
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = st.SGD([p], lr=0.25)
    p.grad = torch.ones(3)
    with FakeTensorMode():
        fake = torch.nn.Parameter(torch.ones(3))
        fake.grad = torch.ones(3)
        with pytest.raises(SamebitsError):
            st.SGD([fake], lr=0.25).step()
    optimizer.step()
    assert p.tolist() == [0.75] * 3


class _Watching(TorchDispatchMode):
    """A mode that does nothing: beside one steps are taken one by one."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        return function(*arguments, **(options or {}))


_TOGETHER = [st.AdamW, lambda params: st.SGD(params, momentum=0.9), st.SGD]


@pytest.mark.parametrize("make", _TOGETHER, ids=["AdamW", "momentum", "SGD"])
def test_steps_that_are_taken_together_are_those_taken_one_by_one(make: Any) -> None:
    def parameters() -> list[torch.Tensor]:
        whole = normal(9, 40, dtype=torch.float32)
        made = [
            normal(k, *shape, dtype=torch.float32) for k, shape in enumerate([(7,), (5, 33), (70_000,), (), (0, 3)])
        ]
        others = [
            normal(6, 8, dtype=torch.bfloat16),
            normal(7, 8, dtype=torch.float64),
            normal(8, 4, 6, dtype=torch.float32).T,
        ]
        made += [*others, whole[:16], whole[12:28]]  # the last two meet
        return [x.requires_grad_() for x in made]

    together, alone = parameters(), parameters()
    groups = [{"params": together[:4]}, {"params": together[4:], "lr": 0.01}], [
        {"params": alone[:4]}, {"params": alone[4:], "lr": 0.01}
    ]  # fmt: skip
    first, second = make(groups[0]), make(groups[1])
    for step in range(3):
        for k, (x, y) in enumerate(zip(together, alone, strict=True)):
            g = normal(100 * step + k, *x.shape, dtype=x.dtype)
            x.grad, y.grad = (None, None) if (k + step) % 5 == 4 else (g, g.clone())
        asked, versions = optimizing.joined.cache_info(), [x._version for x in together[:2]]
        first.step()
        found = optimizing.joined.cache_info()
        assert step == 0 or found.hits + found.misses > asked.hits + asked.misses
        stepped = [x.grad is not None for x in together[:2]]
        assert [x._version > before for x, before in zip(together[:2], versions, strict=True)] == stepped
        with _Watching():
            second.step()
        assert optimizing.joined.cache_info() == found
        for x, y in zip(together, alone, strict=True):
            assert due.bits(x.detach()) == due.bits(y.detach())
            ours, theirs = first.state[x], second.state[y]
            assert ours.keys() == theirs.keys()
            for name, value in ours.items():
                other = theirs[name]
                assert due.bits(value) == due.bits(other) if isinstance(value, torch.Tensor) else value == other


def test_what_does_not_fit_among_steps_taken_together_is_refused_after_those_before_it() -> None:
    before, wrong = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = st.SGD([before, wrong], lr=0.5)
    before.grad, wrong.grad = torch.ones(3), torch.ones(3)
    wrong.data = torch.ones(4)
    with pytest.raises(SamebitsError) as caught:
        optimizer.step()
    remedy = "let it be None, or the gradient"
    assert str(caught.value) == f"SGD: gradient of parameter 1 of group 0 shape is (3,), must be (4,); {remedy}"
    assert before.tolist() == [0.5, 0.5, 0.5]


_WIDER = (torch.float64, torch.float32, torch.float64, torch.float32)


@pytest.mark.parametrize("make", _TOGETHER, ids=["AdamW", "momentum", "SGD"])
def test_a_parameter_of_float64_before_others_leaves_their_steps_as_they_are(make: Any) -> None:
    together, alone = ([normal(k, 5, dtype=d).requires_grad_() for k, d in enumerate(_WIDER)] for _ in range(2))
    made = [make(together), *[make([x]) for x in alone]]
    for step in range(3):
        for k, (x, y) in enumerate(zip(together, alone, strict=True)):
            x.grad = y.grad = normal(10 * step + k, 5, dtype=x.dtype)
        for optimizer in made:
            optimizer.step()
    assert [due.bits(x.detach()) for x in together] == [due.bits(x.detach()) for x in alone]


@pytest.mark.parametrize(
    ("of", "start", "at"), [("p", 0, "NULL"), ("g", 0, "NULL"), ("p", 4, "0x10"), ("g", 4, "0x10")]
)
def test_what_has_no_memory_any_more_is_refused(of: str, start: int, at: str) -> None:
    p = torch.nn.Parameter(torch.ones(16)[start:])
    p.grad = torch.ones(16)[start:]
    (p if of == "p" else p.grad).untyped_storage().resize_(0)
    with pytest.raises(SamebitsError) as caught:
        st.SGD([p], lr=0.5).step()
    remedy = "must be that of its elements; report it to the producer"
    assert str(caught.value) == f"descent: {of} data pointer is {at}, {remedy}"


def test_steps_that_were_gathered_are_taken_where_options_of_a_later_group_end_the_call() -> None:
    before, after = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = st.AdamW([{"params": [before]}, {"params": [after]}], lr=0.5, weight_decay=0.0)
    before.grad, after.grad = torch.ones(3), torch.ones(3)
    optimizer.step()
    first = before.tolist()
    optimizer.param_groups[1]["lr"] = "fast"
    with pytest.raises(TypeError):
        optimizer.step()
    assert optimizer.state[before]["step"] == 2
    assert before.tolist() != first


@pytest.mark.parametrize("make", _TOGETHER, ids=["AdamW", "momentum", "SGD"])
def test_a_gradient_that_has_a_graph_is_its_values(make: Any) -> None:
    plain, graph = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    made = make([plain]), make([graph])
    for _ in range(2):  # the first makes the state by itself, later ones are joined
        plain.grad = torch.ones(3)
        graph.grad = torch.ones(3, requires_grad=True) * 1
        for optimizer in made:
            optimizer.step()
    assert due.bits(plain.detach()) == due.bits(graph.detach())


def test_an_interruption_leaves_whole_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(np.ndarray[Any, Any]):
        """Numbers that nobody may look for."""

        @property
        def ctypes(self) -> Any:
            raise KeyboardInterrupt

    before, after = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = st.SGD([{"params": [before]}, {"params": [after], "lr": 0.25}], lr=0.5)
    before.grad, after.grad = torch.ones(3), torch.ones(3)
    numbers = iter([np.full(1, 0.5, np.float32), np.full(1, 0.25, np.float32).view(Interrupted)])
    monkeypatch.setattr(optimizers, "_joined_numbers", lambda *values: next(numbers))
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    assert (before.tolist(), after.tolist()) == ([0.5] * 3, [1.0] * 3)
