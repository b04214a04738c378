"""Calls of fusions that emitted code knows: the bits are those of other runs, and nothing else changes."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import remembering
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import samebits as sb
from samebits.errors import FusionError
from samebits.fusion import DataType, FusionDefinition, PythonProfiler
from samebits.fusion.cache import LRUCache
from samebits.fusion.direct import Direct
from samebits.native import calls
from samebits.tensor import Tensor

F32 = np.float32
KINDS = {"numpy": np.asarray, "torch": torch.from_numpy, "tensor": Tensor.from_any}
# By name, what is computed of x of 40 rows and columns; kernels that meet in the arena, and constants, are among them.
MADE = {
    "one kernel": lambda ops, x: ops.mul(ops.relu(x), 2.0),
    "a truth": lambda ops, x: ops.gt(x, 0.5),
    "rows": lambda ops, x: ops.div(ops.exp(x), ops.sum(x, dims=[1], keepdim=True)),
    "arena": lambda ops, x: ops.matmul(ops.neg(x), ops.permute(ops.relu(x), [1, 0])),
    "constants": lambda ops, x: ops.add(ops.triu(x, 0), ops.cast(ops.iota(40), DataType.Float)),
}


TRACERS = {
    "real": lambda f, x: make_fx(f, tracing_mode="real")(x),
    "before dispatch": lambda f, x: make_fx(f, tracing_mode="real", pre_dispatch=True)(x),
    "fake": lambda f, x: make_fx(f, tracing_mode="fake")(x),
    "symbolic": lambda f, x: make_fx(f, tracing_mode="symbolic")(x),
    "script": lambda f, x: torch.jit.trace(f, (x,)),
}


@pytest.mark.parametrize("calls_before", [0, 5])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("tracer", TRACERS)
def test_what_torch_traces_to_run_again_is_refused(calls_before, tracer):
    fd, x = defined(lambda ops, x: ops.exp(x), DataType.Float), torch.from_numpy(normal(2, 3))
    for _ in range(calls_before):
        fd.execute([x])
    with pytest.raises(FusionError) as error:
        TRACERS[tracer](lambda x: fd.execute([x])[0], x)
    assert str(error.value) == (
        "execute: call is within what torch traces, must be outside of it; "
        "call functions of samebits.torch there, which are operators of torch"
    )
    (made,) = fd.execute([x])
    assert torch.equal(made, sb.exp(x))


@pytest.fixture(autouse=True)
def known(monkeypatch):
    remembering.begin_emitted(monkeypatch)


def defined(make, *dtypes, rank=2, **options):
    """A definition of tensors and what `make` gives of them, with a cache of its own."""
    with FusionDefinition() as fd:
        fd.add_output(make(fd.ops, *[fd.define_tensor([-1] * rank, dtype=dtype) for dtype in dtypes]), **options)
    fd.fec = LRUCache().cache_compile(fd.fusion)
    return fd


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, F32)


def in_emitted_code_alone(patch):
    """From here on runs that Python does fail."""
    patch.setattr(Direct, "run", None)
    patch.setattr("samebits.runtime.cpu.Session.run", None)


def bits(x):
    return Tensor.from_any(x).numpy(copy=True).tobytes()


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("kind", KINDS)
def test_a_known_call_gives_what_the_reference_does_in_memory_of_its_own(kind, made, monkeypatch):
    fd, held = defined(MADE[made], DataType.Float), []
    for rows in (40, 4000) if made in ("one kernel", "a truth", "rows") else (40,):  # the latter of pooled memory
        for run in range(5):
            x = KINDS[kind](normal(rows, 40, seed=run))
            with monkeypatch.context() as patch:
                if run > 1:
                    in_emitted_code_alone(patch)
                (found,) = fd.execute([x])
            assert type(found) is type(x)
            assert bits(found) == bits(fd.fec.reference([x])[0])
            held.append((found, bits(found)))
    assert all(bits(x) == had for x, had in held)


def test_views_numbers_and_other_extents_are_calls_of_their_own(monkeypatch):
    fd, x = defined(lambda ops, x, y: ops.sub(x, y), DataType.Float, DataType.Float), normal(12, 8)
    pairs = [(x, x), (x[::2], x[1::2]), (x.T, x.T), (x[:, ::-1], x), (x[:1], x[:1]), (x[4:8].copy(), x[::3])]
    for pair in pairs * 3:
        (found,) = fd.execute(pair)
        assert found.tobytes() == (pair[0] - pair[1]).tobytes()
    in_emitted_code_alone(monkeypatch)
    for pair in pairs:
        (found,) = fd.execute(list(pair))
        assert found.tobytes() == (pair[0] - pair[1]).tobytes()


def test_of_torch_memory_alone_counts(monkeypatch):
    fd, x = defined(MADE["one kernel"], DataType.Float), torch.randn(4, 8)
    for _ in range(2):  # whether or not what is learned from needs gradients
        fd.execute([x.clone().requires_grad_()])
    in_emitted_code_alone(monkeypatch)
    for given in (x, x.clone().requires_grad_(), torch.nn.Parameter(x)):
        (found,) = fd.execute([given])
        assert type(found) is torch.Tensor
        assert not found.requires_grad
        assert torch.equal(found, x.relu() * 2)


def test_what_is_refused_is_refused_after_calls_like_it():
    fd, x = defined(MADE["one kernel"], DataType.Float), Tensor.from_any(normal(3, 4))
    for _ in range(4):
        fd.execute([Tensor.from_any(normal(3, 4))])
        fd.execute([normal(3, 4)])
    x.buffer.close()
    for given, said in (
        ([x], "execute: input 0 buffer is closed, must be open; close it after its last use"),
        ([], "execute: inputs count is 0, must be 1; pass one for each that is defined"),
        ({0: x}, "execute: inputs is dict, must be a list with a value for each input; write [x] for one tensor"),
    ):
        with pytest.raises(FusionError) as caught:
            fd.execute(given)
        assert str(caught.value) == said
    with pytest.raises(FusionError, match="of dtype double, must be of dtype float"):
        fd.execute([normal(3, 4).astype(np.float64)])


def test_what_emitted_code_cannot_tell_is_left_to_python():
    """Numbers that a run is given, what is drawn, written or refused by the data, and a second program."""
    x, y = normal(4, 5), normal(4, 5)
    scaled = FusionDefinition()
    with scaled as fd:
        fd.add_output(fd.ops.mul(fd.define_tensor([-1, -1]), fd.define_scalar(DataType.Float)))
    for number in (1.0, 2.0, 3.0, 4.0):
        assert scaled.execute([x, number])[0].tobytes() == (x * F32(number)).tobytes()
    drawn = defined(lambda ops, x: ops.rand_like(x), DataType.Float)
    assert len({drawn.execute([x])[0].tobytes() for _ in range(4)}) == 4
    with FusionDefinition() as fd:
        given = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.neg(given), given)
    for _ in range(4):
        before = y.copy()
        assert fd.execute([y]) == []
        assert (y == -before).all()
    with FusionDefinition() as fd:
        given = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.neg(given))
        fd.add_output(fd.ops.mul(given, 2.0), given)
    for _ in range(4):
        before = y.copy()
        (found,) = fd.execute([y])
        assert (found == -before).all()
        assert (y == before * 2).all()
    picked = defined(lambda ops, x, i: ops.index_select(x, ops.squeeze(i, [0]), 0), DataType.Float, DataType.Int)
    for place in (3, 0, 2, 1):
        (found,) = picked.execute([x, np.array([[place]])])
        assert (found == x[place]).all()
    with pytest.raises(FusionError, match="index"):
        picked.execute([x, np.array([[4]])])


def test_the_program_that_ran_last_is_the_right_one():
    with FusionDefinition() as fd:
        x, size = fd.define_tensor([-1]), fd.define_scalar(DataType.Int)
        fd.add_output(fd.ops.slice(fd.ops.exp(x), [0], [size]))
    x = normal(9)
    for size in (3, 3, 3, 3, 5, 3, 5, 5, 5, 3):
        (found,) = fd.execute([x, size])
        assert found.tobytes() == bits(fd.fec.reference([x, size])[0])
        assert f"min({size}, i0)" in fd.fec.get_most_recent_scheduled_ir()


def test_a_profiler_sees_calls_that_are_known():
    fd, x = defined(MADE["one kernel"], DataType.Float), normal(2, 3)
    for _ in range(4):
        fd.execute([x])
    with PythonProfiler() as profiler:
        fd.execute([x])
    assert len(profiler.profile.kernel_profiles) == 1


def test_calls_are_forgotten_with_their_fusion_and_are_not_too_many():
    fd = defined(MADE["one kernel"], DataType.Float)
    for rows in range(1, 81):
        for _ in range(3):
            fd.execute([normal(rows, 2)])
    assert len(calls._records) == 64
    del fd
    gc.collect()
    assert not calls._records


def test_threads_and_instruction_sets_share_a_fusion():
    fd, x = defined(MADE["rows"], DataType.Float), [normal(30, 40, seed=k) for k in range(4)]
    due = [fd.execute([each])[0].tobytes() for each in x]

    def run(k):
        return all(fd.execute([x[k]])[0].tobytes() == due[k] for _ in range(200))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(run, range(4)))
    for isa in sb.isas():
        if isa.available:
            with sb.use_isa(isa):
                assert all(fd.execute([x[0]])[0].tobytes() == due[0] for _ in range(3))


@pytest.mark.parametrize("kind", KINDS)
def test_several_results_are_known(kind, monkeypatch):
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1]) for _ in range(2))
        for made in (fd.ops.add(x, y), fd.ops.gt(x, y), fd.ops.sum(x, dims=[1])):
            fd.add_output(made)
    fd.fec = LRUCache().cache_compile(fd.fusion)
    for run in range(5):
        given = [KINDS[kind](normal(30, 40, seed=seed)) for seed in (run, run + 1)]
        with monkeypatch.context() as patch:
            if run > 1:
                in_emitted_code_alone(patch)
            found = fd.execute(given)
        assert all(type(x) is type(given[0]) for x in found)
        assert [*map(bits, found)] == [*map(bits, fd.fec.reference(given))]
