"""Runs of sessions that emitted code knows: the bits are those of other runs, and nothing else changes."""

from __future__ import annotations

import functools
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
import remembering
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

import samebits as sb
from samebits import dtypes
from samebits.errors import ClosedError, DTypeError, ExchangeError, OptionError, ShapeError
from samebits.memory import HostResource, use_resource
from samebits.native import calls
from samebits.native.argument_text import MOST_RESULTS
from samebits.operations import dim
from samebits.operations.moves import AxisGather
from samebits.ops import memo
from samebits.program.builder import ProgramBuilder
from samebits.runtime import cpu, reference
from samebits.runtime.known import KnownCalls
from samebits.runtime.specialised import Specialised

pytestmark = pytest.mark.usefixtures("emitted")
F32 = np.float32
N = dim.symbol("n")
KINDS = {"numpy": np.asarray, "torch": torch.from_numpy, "tensor": sb.Tensor.from_any}


@pytest.fixture
def emitted(monkeypatch):
    """Emitted code is there from the first run on, and knows no call."""
    remembering.begin_emitted(monkeypatch)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, F32)


def program(*outputs):
    """Of x and z: a product with a constant, sums that meet in the arena, comparisons, and an input as it is."""
    b = ProgramBuilder("known")
    x, z = b.input("x", dtypes.float32, (N, 4)), b.input("z", dtypes.float32, (N, 2))
    y = b.apply("add", b.contract(x, b.constant(np.arange(8, dtype=F32).reshape(4, 2) / 4)), z)
    e = b.apply("exp", y)
    made = {"y": y, "e": e, "s": b.apply("add", b.apply("neg", e), y), "g": b.apply("greater", x, x), "same": z}
    return b.build({name: made[name] for name in outputs})


def feeds(n=3, seed=0):
    return {"x": normal(n, 4, seed=seed), "z": normal(n, 2, seed=seed + 1)}


def due(of, given):
    return {name: x.tobytes() for name, x in reference.run(of, given).items()}


def bits(made):
    return {name: sb.Tensor.from_any(x).numpy(copy=True).tobytes() for name, x in made.items()}


def in_emitted_code_alone(patch):
    patch.setattr(Specialised, "run", None)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("outputs", [("y",), ("s", "e"), ("g", "y", "same", "s", "e")])
@pytest.mark.parametrize("kind", KINDS)
def test_a_known_run_gives_what_the_reference_does_in_memory_of_its_own(kind, outputs, threads, monkeypatch):
    of, held = program(*outputs), []
    session = cpu.prepare(of, threads=threads)
    for n in (3, 0, 1, 20_000):  # the last makes arrays of pooled memory
        for run in range(5):
            given = feeds(n, seed=run)
            with monkeypatch.context() as patch:
                # The first run like one before begins with no key; torch's tensors without elements have none.
                if run > 2 and (n or kind != "torch"):
                    in_emitted_code_alone(patch)
                made = session.run({name: KINDS[kind](x) for name, x in given.items()})
            assert list(made) == list(outputs)
            assert all(type(x) is type(KINDS[kind](normal(1))) for x in made.values())
            assert bits(made) == due(of, given)
            held.append((made, bits(made)))
    assert all(bits(made) == had for made, had in held)


def test_inputs_are_told_by_their_names_and_the_first_gives_the_kind(monkeypatch):
    session, x, z = cpu.prepare(program("y", "e")), normal(3, 4), normal(3, 2)
    orders = [
        {"x": x, "z": z},
        {"z": z, "x": x},
        {"x": torch.from_numpy(x), "z": z},
        {"z": z, "x": torch.from_numpy(x)},
        {"z": sb.Tensor.from_any(z), "x": x},
    ]
    expected = due(session.program, {"x": x, "z": z})
    for run in range(5):
        with monkeypatch.context() as patch:
            if run == 4:
                in_emitted_code_alone(patch)
            for given in orders:
                made = session.run(given)
                assert bits(made) == expected
                assert type(made["y"]) is type(next(iter(given.values())))


def test_views_types_and_sizes_are_runs_of_their_own(monkeypatch):
    session, x, z = cpu.prepare(program("s", "e")), normal(12, 8), normal(12, 4)
    cases = [
        {"x": x[:, :4], "z": z[:, :2]},
        {"x": x[:, ::2], "z": z[:, ::-2]},
        {"x": x[::-3, 3::-1], "z": z[:4, 1:3]},
        {"x": np.asfortranarray(x[:5, :4]), "z": np.broadcast_to(z[0, :2], (5, 2))},
        {"x": x[:1, :4], "z": z[:1, :2]},
    ]
    for _ in range(4):
        for given in cases:
            assert bits(session.run(given)) == due(session.program, given)
    in_emitted_code_alone(monkeypatch)
    for given in cases:
        assert bits(session.run(given)) == due(session.program, given)


def test_an_array_that_lies_otherwise_is_copied_each_time():
    session, given = cpu.prepare(program("y")), feeds()
    raw = np.zeros(given["x"].nbytes + 1, np.uint8)
    odd = np.ndarray((3, 4), F32, raw, 1)
    for run in range(6):
        odd[:] = normal(3, 4, seed=run)
        assert bits(session.run({"x": odd, "z": given["z"]})) == due(
            session.program, {"x": odd.copy(), "z": given["z"]}
        )
        assert bits(session.run(given)) == due(session.program, given)


def test_some_outputs_are_asked_for_among_runs_that_are_known():
    session, given = cpu.prepare(program("y", "e", "s")), feeds()
    expected = due(session.program, given)
    for _ in range(4):
        assert bits(session.run(given)) == expected
        assert bits(session.run(given, ["s", "y"])) == {name: expected[name] for name in ("s", "y")}
        assert session.run(given, []) == {}


def test_what_is_refused_is_refused_after_runs_like_it():
    session, given = cpu.prepare(program("y")), feeds()
    closed = sb.Tensor.from_any(given["x"].copy())
    tensors = {name: sb.Tensor.from_any(x) for name, x in given.items()}
    learning = {name: torch.from_numpy(x) for name, x in given.items()}
    for _ in range(4):
        for each in (given, tensors, learning):
            session.run(each)
    closed.buffer.close()
    wrong = given | {"x": given["x"].astype(np.float64)}
    for each, error, said in (
        (given | {"q": given["x"]}, OptionError, "input 'q' is not an input"),
        ({"x": given["x"]}, OptionError, "input 'z' is missing"),
        ({"x": given["z"], "z": given["x"]}, ShapeError, "input 'x' extent 1"),
        (wrong, DTypeError, "input 'x' dtype"),
        (tensors | {"x": closed}, ClosedError, "closed"),
        (learning | {"x": learning["x"].clone().requires_grad_()}, ExchangeError, "call its detach"),
        ([given], OptionError, "given is list"),
    ):
        with pytest.raises(sb.SamebitsError, match=said) as caught:
            session.run(each)
        assert isinstance(caught.value, error)
    assert bits(session.run(given)) == due(session.program, given)


def test_names_are_told_by_what_they_are_equal_to():
    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            return False

    session, given = cpu.prepare(program("y")), feeds()
    for _ in range(4):
        session.run(given)
    with pytest.raises(OptionError, match="input 'x' is not an input"):
        session.run({Name(name): x for name, x in given.items()})


def test_an_input_that_is_taken_out_while_torch_describes_it_is_the_one_that_was_given():
    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            given["x"] = torch.zeros(3, 4)
            return function(*args, **kwargs or {})

    session, given = cpu.prepare(program("y")), {name: torch.from_numpy(x) for name, x in feeds().items()}
    for _ in range(5):
        session.run(given)
    with Mode():
        made = session.run(given)
    assert not given["x"].any()
    assert bits(made) == due(session.program, feeds())


def test_a_key_of_another_owner_is_not_learned():
    """As where two threads have each begun to know the runs of one session."""
    x = normal(3)
    owners = [KnownCalls() for _ in range(2)]
    b = ProgramBuilder("negative")
    session = cpu.prepare(b.build({"y": b.apply("neg", b.input("x", dtypes.float32, (3,)))}))
    made = session.run({"x": x})
    call = (), {"x": x}, [(0, x)], session.bound({"x": x}), tuple(made.values())
    owners[0].learn(owners[1].answer((), {"x": x}), *call)
    assert not calls._records
    owners[1].learn(owners[1].answer((), {"x": x}), *call)
    assert (owners[1].answer((), {"x": x}) == -x).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_an_index_that_a_known_run_refuses_is_named_by_python(threads, monkeypatch):
    """Of several that are picked by in one run, after which the next run is a known one again."""
    b = ProgramBuilder("pick")
    table, places = b.input("table", dtypes.float32, (5, 3)), [b.input(x, dtypes.int64, (2,)) for x in "abcdef"]
    rows = [b.add("gather", (b.apply("neg", table), place), AxisGather(0))[0] for place in places]
    session = cpu.prepare(b.build({"rows": b.concat(rows, 0)}), threads=threads)
    given = {"table": normal(5, 3)} | {x: np.array([4, -5]) for x in "abcdef"}
    rights = (-given["table"][[4, 0] * 6]).tobytes()
    for _ in range(4):
        assert session.run(given)["rows"].tobytes() == rights
    for wrong in "af":
        for index in (5, -6, 2**62):
            with pytest.raises(ShapeError, match=f"is {index}, must be in"):
                session.run(given | {wrong: np.array([1, index])})
        with monkeypatch.context() as patch:
            in_emitted_code_alone(patch)
            assert session.run(given)["rows"].tobytes() == rights


def test_a_program_without_inputs_and_one_with_many_outputs(monkeypatch):
    b = ProgramBuilder("constant")
    session = cpu.prepare(b.build({"y": b.apply("exp", b.constant(np.ones(3, F32)))}))
    many = ProgramBuilder("many")
    x = many.input("x", dtypes.float32, (3,))
    wide = cpu.prepare(
        many.build({f"y{i}": many.apply("add", x, many.constant(F32([i, 1, 2]))) for i in range(MOST_RESULTS + 1)})
    )
    for _ in range(4):
        assert bits(session.run({})) == due(session.program, {})
        assert bits(wide.run({"x": normal(3)})) == due(wide.program, {"x": normal(3)})
    monkeypatch.setattr(memo, "teach", None)  # what is never known is not told again at each run
    assert bits(wide.run({"x": normal(3)})) == due(wide.program, {"x": normal(3)})


def test_narrow_and_half_formats():
    for dtype, kind in ((dtypes.bfloat16, ml_dtypes.bfloat16), (dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fn)):
        b = ProgramBuilder("half")
        x = b.input("x", dtype, (N, 3))
        session = cpu.prepare(b.build({"y": b.apply("abs", x)}))
        given = {"x": normal(4, 3).astype(kind)}
        for _ in range(4):
            assert bits(session.run(given)) == due(session.program, given)


def test_runs_are_forgotten_with_their_session_and_are_not_too_many():
    session = cpu.prepare(program("y"))
    for n in range(1, 81):
        for _ in range(3):
            session.run(feeds(n))
    assert len(calls._records) == 64
    alive = weakref.ref(session.program)
    del session
    gc.collect()
    assert not calls._records
    assert alive() is None


def test_threads_share_a_session_and_rows_are_sessions_of_their_own():
    given = [feeds(30, seed=k) for k in range(4)]
    expected = [due(program("s", "e"), each) for each in given]
    for isa in sb.isas():
        if isa.available:
            session = cpu.prepare(program("s", "e"), isa=isa)
            assert all(bits(session.run(given[0])) == expected[0] for _ in range(4))
    session = cpu.prepare(program("s", "e"))

    def run(k):
        return all(bits(session.run(given[k])) == expected[k] for _ in range(200))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(run, range(4)))


def test_results_come_from_the_resource_in_use():
    taken = []

    class Counting(HostResource):
        def take(self, size_bytes):
            taken.append(size_bytes)
            return super().take(size_bytes)

    session = cpu.prepare(program("y", "e"))
    for kind, make in KINDS.items():
        given = {name: make(x) for name, x in feeds(20_000).items()}
        for run in range(5):
            taken.clear()
            with use_resource(Counting()):
                made = session.run(given)
            assert [size for size in taken if size >= 160_000], (kind, run)
            assert bits(made) == due(session.program, feeds(20_000))


def test_memory_that_there_is_not_is_said_and_nothing_is_lost():
    class Empty(HostResource):
        def take(self, size_bytes):
            raise MemoryError("none")

    session, given = cpu.prepare(program("y", "e")), feeds(20_000)
    for _ in range(4):
        session.run(given)
    with use_resource(Empty()), pytest.raises(MemoryError, match="run: memory for its outputs"):
        session.run(given)
    assert bits(session.run(given)) == due(session.program, given)


@pytest.mark.parametrize("runs_before", [0, 5])
def test_runs_within_what_torch_traces_are_refused(runs_before):
    session, x = cpu.prepare(program("y")), torch.from_numpy(normal(3, 4))
    z = torch.from_numpy(normal(3, 2))
    for _ in range(runs_before):
        session.run({"x": x, "z": z})

    def tried(order, x):
        return torch.as_tensor(session.run(order(x))["y"])

    orders = (lambda x: {"x": x, "z": z}), (lambda x: {"z": z.numpy(), "x": x})
    for order in orders:  # the first gives the kind of the results
        with pytest.raises(ExchangeError) as error:
            make_fx(functools.partial(tried, order), tracing_mode="real")(x)
        assert str(error.value) == (
            "run: call is within what torch traces, must be outside of it; "
            "call functions of samebits.torch there, which are operators of torch"
        )
    assert torch.is_tensor(session.run({"x": x, "z": z})["y"])
