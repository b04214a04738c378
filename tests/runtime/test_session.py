"""Sessions: inputs checked in full sentences, any kind of array, threads, empty batches, traces, plans."""

import copy
import os
import pathlib
import pickle
import resource
import threading
from typing import Any

import floating
import jax
import jax.numpy as jnp
import numpy as np
import protos
import pytest
import torch
from onnx import helper

from samebits import dtypes, onnx
from samebits.codegen import isa as isas
from samebits.errors import DTypeError, ModelError, OptionError, SamebitsError, ShapeError
from samebits.memory import HOST, HostResource, use_resource
from samebits.operations import dim
from samebits.operations.moves import AxisGather, ScatterND
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program
from samebits.runtime import cpu, reference
from samebits.tensor import Tensor

N = dim.symbol("n")


def two() -> Program:
    """y = x @ w + z, s = softmax-free sum of rows; x and z share n."""
    b = ProgramBuilder("two")
    x, z = b.input("x", dtypes.float32, (N, 4)), b.input("z", dtypes.float32, (N, 2))
    w = b.constant(np.arange(8, dtype=np.float32).reshape(4, 2) / 4)
    y = b.apply("add", b.contract(x, w), z)
    return b.build({"y": y, "e": b.apply("exp", z)})


def feed(n: int = 3) -> dict[str, np.ndarray]:
    """Inputs of `two`."""
    random = np.random.default_rng(n)
    return {
        "x": random.standard_normal((n, 4)).astype(np.float32),
        "z": random.standard_normal((n, 2)).astype(np.float32),
    }


SESSION = cpu.prepare(two(), threads=1)
# An Isa row that this machine does not run.
FOREIGN = next(row for row in isas.isas() if not row.available)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"q": np.zeros(1)}, "run: input 'q' is not an input, must be one of ['x', 'z']; remove or rename it"),
        ({"z": None}, "run: input 'z' is missing, must be a float32[n, 2] array; give ['x', 'z']"),
        (
            {"x": np.zeros((3, 4))},
            "run: input 'x' dtype is float64, must be float32; convert it to float32",
        ),
        (
            {"x": np.zeros((3, 4, 1), np.float32)},
            "run: input 'x' rank is 3, must be 2 (float32[n, 4]); reshape it",
        ),
        (
            {"x": np.zeros((3, 5), np.float32)},
            "run: input 'x' extent 1 is 5, must be 4 (float32[n, 4]); pad, cut or reshape it",
        ),
        (
            {"z": np.zeros((2, 2), np.float32)},
            "run: input 'z' extent 0 (n) is 2, must be 3 as in 'x'; give every input one n",
        ),
    ],
)
@pytest.mark.parametrize("runner", ["session", "reference"])
def test_bad_inputs(change: dict[str, np.ndarray | None], text: str, runner: str) -> None:
    given = {name: x for name, x in {**feed(), **change}.items() if x is not None}
    with pytest.raises(SamebitsError) as error:
        SESSION.run(given) if runner == "session" else reference.run(two(), given)
    assert str(error.value) == text


def test_outputs_by_name() -> None:
    assert list(SESSION.run(feed(), ["e"])) == ["e"]
    with pytest.raises(OptionError) as error:
        SESSION.run(feed(), ["q"])
    assert str(error.value) == "run: output 'q' is not an output, must be one of ['y', 'e']; ask for one of these"


@pytest.mark.parametrize("threads", [0, True, 256, "2"])
def test_bad_threads(threads: object) -> None:
    with pytest.raises(OptionError) as error:
        cpu.prepare(two(), threads=threads)  # type: ignore[arg-type]  # that is the test
    expected = f"prepare: threads is {threads!r}, must be an integer from 1 to 255; leave it out for every core"
    assert str(error.value) == expected


@pytest.mark.parametrize("call", ["prepare", "load"])
@pytest.mark.parametrize(
    ("isa", "text"),
    [
        (5, "isa is 5, must be a row of samebits.isas() or its name; see samebits.isas()"),
        ("avx9000", "name value is 'avx9000', must be one of ["),
        (FOREIGN, f"row {FOREIGN.name!r} state is unavailable on this machine, must be one of ["),
        (FOREIGN.name, f"row {FOREIGN.name!r} state is unavailable on this machine, must be one of ["),
    ],
)
def test_a_row_that_does_not_run_here_is_refused(call: str, isa: object, text: str) -> None:
    """Before anything is read or computed."""
    function: Any = getattr(cpu, call)
    with pytest.raises(OptionError) as error:
        function("no such file" if call == "load" else two(), isa=isa)
    assert str(error.value).startswith(f"{call}: {text}")


@pytest.mark.parametrize("given", ["m.onnx", b"", None, SESSION, 5])
def test_what_is_no_program_is_not_prepared(given: object) -> None:
    with pytest.raises(OptionError) as error:
        cpu.prepare(given)  # type: ignore[arg-type]  # that is the test
    assert str(error.value) == (
        f"prepare: program is {type(given).__name__}, must be a Program; "
        "pass samebits.onnx.load(model), or call samebits.load(model)"
    )


def test_a_program_that_does_not_run_is_not_prepared() -> None:
    broken = Program("broken", {}, (), {}, (), ("q",))
    with pytest.raises(ModelError) as error:
        cpu.prepare(broken)
    assert str(error.value) == (
        "Program.check: output 'q' is made by no node, must be made by a node; report the transform that made it"
    )


def table() -> Program:
    """y = table[ids]."""
    b = ProgramBuilder("table")
    ids = b.input("ids", dtypes.int64, (N,))
    b.origin = ("lookup",)
    rows = b.constant(np.arange(12, dtype=np.float32).reshape(4, 3))
    return b.build({"y": b.add("gather", (rows, ids), AxisGather(0))[0]})


def test_a_session_says_what_it_takes_and_gives() -> None:
    session = cpu.prepare(table(), isa="scalar", threads=2)
    assert (session.input_names, session.output_names) == (("ids",), ("y",))
    assert repr(session) == "Session(ids: int64[n] -> y: float32[n, 3]; isa scalar, threads 2)"


@pytest.mark.parametrize("again", [pickle.dumps, copy.deepcopy])
def test_a_session_is_no_value_for_another_process(again: Any) -> None:
    with pytest.raises(TypeError) as error:
        again(SESSION)
    assert str(error.value) == (
        "pickle: session is bound to this process, must be what another can hold; load the model in each process, or "
        "share the session among threads"
    )


@pytest.mark.parametrize("index", [4, -5, 2**62])
def test_an_index_out_of_range(index: int) -> None:
    session = cpu.prepare(table())
    with pytest.raises(ShapeError) as error:
        session.run({"ids": np.array([0, index])})
    expected = f"run: an index of node 'lookup' is {index}, must be in [-4, 4); give indices that exist"
    assert str(error.value) == expected
    # The session is as good as new.
    assert session.run({"ids": np.array([0, -1])})["y"].tolist() == [[0, 1, 2], [9, 10, 11]]


def test_a_node_that_stands_for_none_of_a_model_is_named_by_what_it_makes() -> None:
    b = ProgramBuilder("nameless")
    rows, ids = b.input("rows", dtypes.float32, (N, 3)), b.input("ids", dtypes.int64, (2,))
    session = cpu.prepare(b.build({"y": b.gather(rows, ids, 0)}))
    given = {"rows": np.ones((4, 3), np.float32), "ids": np.array([0, 4])}
    with pytest.raises(ShapeError, match=r"^run: an index of node 'y' is 4, must be in "):
        session.run(given)
    with pytest.raises(ShapeError, match=r"^run: node 'y': gather: data extents is "):
        session.run(given | {"rows": np.ones((0, 3), np.float32)})
    traced = session.trace(given | {"ids": np.array([0, 3])})
    assert {name: value.node for name, value in traced.items()} == {"y": "y"}


def test_an_index_out_of_range_of_a_scatter_is_named_by_its_place() -> None:
    b = ProgramBuilder("put")
    shapes = ((2, 3, 4), (N, 2), (N, 4))
    formats = (dtypes.float32, dtypes.int64, dtypes.float32)
    operands = [b.input(name, *given) for name, *given in zip(("x", "ids", "u"), formats, shapes, strict=True)]
    b.origin = ("put",)
    session = cpu.prepare(b.build({"y": b.add("scatter_nd", operands, ScatterND())[0]}))
    x, u = np.zeros((2, 3, 4), np.float32), np.ones((3, 4), np.float32)
    with pytest.raises(ShapeError) as error:
        session.run({"x": x, "ids": np.array([[0, 2], [1, 3], [2, 0]]), "u": u})
    expected = "run: indices[1, 1] of node 'put' is 3, must be in [-3, 3); give indices that exist"
    assert str(error.value) == expected
    made = session.run({"x": x, "ids": np.array([[0, 2], [-1, -3], [0, 2]]), "u": u})["y"]
    assert np.argwhere(made[:, :, 0]).tolist() == [[0, 2], [1, 0]]


def test_indices_into_what_has_no_elements_are_refused() -> None:
    b = ProgramBuilder("put")
    x, ids, u = (
        b.input("x", dtypes.float32, (N,)),
        b.input("ids", dtypes.int64, (dim.symbol("k"), 1)),
        b.scalar(1.0, dtypes.float32),
    )
    b.origin = ("put",)
    session = cpu.prepare(
        b.build({"y": b.add("scatter_nd", (x, ids, b.expand(u, (dim.symbol("k"),))), ScatterND())[0]})
    )
    empty = np.zeros(0, np.float32)
    assert session.run({"x": empty, "ids": np.zeros((0, 1), np.int64)})["y"].shape == (0,)
    with pytest.raises(ShapeError) as error:
        session.run({"x": empty, "ids": np.zeros((1, 1), np.int64)})
    remedy = "give elements to index, or no indices"
    assert str(error.value) == f"run: node 'put': scatter_nd: data extents is (0,), must be at least 1; {remedy}"


def test_an_index_is_looked_at_where_nothing_is_gathered() -> None:
    b = ProgramBuilder("rows of n")
    x, ids = b.input("x", dtypes.float32, (4, N)), b.input("ids", dtypes.int64, (2,))
    b.origin = ("lookup",)
    session = cpu.prepare(b.build({"y": b.add("gather", (x, ids), AxisGather(0))[0]}))
    for n in (0, 1, 3):
        rows = np.ones((4, n), np.float32)
        assert session.run({"x": rows, "ids": np.array([-4, 3])})["y"].shape == (2, n)
        with pytest.raises(ShapeError) as error:
            session.run({"x": rows, "ids": np.array([0, 4])})
        assert str(error.value) == "run: an index of node 'lookup' is 4, must be in [-4, 4); give indices that exist"


def test_sizes_that_fit_no_operand_name_the_node() -> None:
    b = ProgramBuilder("cut")
    x = b.input("x", dtypes.float32, (N,))
    b.origin = ("the sum",)
    places = b.slice(b.constant(np.ones(4, np.float32)), (0,), (dim.minimum(4, N),), (1,))
    session = cpu.prepare(b.build({"y": b.apply("add", x, places)}))
    assert session.run({"x": np.ones(3, np.float32)})["y"].tolist() == [2, 2, 2]
    with pytest.raises(ShapeError) as error:
        session.run({"x": np.ones(5, np.float32)})
    assert str(error.value) == (
        "run: operands of node 'the sum' shapes is [[5], [4]], must be shapes that fit each other; "
        "give inputs of other sizes"
    )


@pytest.mark.parametrize("n", [0, 1, 5])
def test_any_batch(n: int) -> None:
    made, meant = SESSION.run(feed(n)), reference.run(two(), feed(n))
    for name in meant:
        assert made[name].shape == meant[name].shape
        assert made[name].tobytes() == meant[name].tobytes()


def test_the_kind_of_array_comes_back() -> None:
    expected = SESSION.run(feed())["y"]
    for convert, kind in ((torch.from_numpy, torch.Tensor), (Tensor.from_any, Tensor), (jnp.asarray, jax.Array)):
        made = SESSION.run({name: convert(x) for name, x in feed().items()})["y"]
        assert isinstance(made, kind)
        assert np.array_equal(np.asarray(made), expected)


def test_strided_inputs_are_read_where_they_lie() -> None:
    given = feed(6)
    wide = {name: np.repeat(x, 2, axis=1)[::-1, ::2] for name, x in given.items()}
    expected = SESSION.run({name: np.ascontiguousarray(x) for name, x in wide.items()})
    assert SESSION.run(wide)["y"].tobytes() == expected["y"].tobytes()


def test_an_input_given_back_and_one_value_twice() -> None:
    b = ProgramBuilder("echo")
    x = b.input("x", dtypes.float32, (N,))
    y = b.apply("neg", x)
    session = cpu.prepare(b.build({"same": x, "y": y, "again": y, "seven": b.scalar(7.0, dtypes.float32)}))
    given = np.array([1.0, -0.0, 3.0], np.float32)
    made = session.run({"x": given})
    assert made["same"].tobytes() == given.tobytes()
    assert not np.shares_memory(made["same"], given)
    assert made["y"].tobytes() == made["again"].tobytes() == (-given).tobytes()
    assert made["seven"] == 7


@pytest.mark.parametrize("n", range(1, 9))
def test_any_output_may_become_an_array_of_jax(n: int) -> None:
    """JAX takes no memory that is not aligned to 64 bytes, which small arrays of NumPy are by chance."""
    for _ in range(4):
        made = SESSION.run({name: jnp.asarray(x) for name, x in feed(n).items()})
        kept = SESSION.run({name: Tensor.from_any(x) for name, x in feed(n).items()})["y"]
        assert (
            np.asarray(made["y"]).tobytes() == np.asarray(kept.jax()).tobytes() == SESSION.run(feed(n))["y"].tobytes()
        )


def test_an_output_that_jax_has_no_format_for() -> None:
    b = ProgramBuilder("wide")
    session = cpu.prepare(b.build({"y": b.apply("cast", b.input("x", dtypes.float32, (N,)), cast_to=dtypes.int64)}))
    with pytest.raises(DTypeError, match=r"^run: output 'y' dtype is int64"):
        session.run({"x": jnp.ones(3)})


def test_a_value_given_back_under_its_own_name() -> None:
    """An output may be an initializer or an input: a copy, which is the caller's own."""
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    nodes = [helper.make_node("Add", ["x", "c"], ["y"])]
    values = {name: protos.value(name, np.float32, ["n", 3]) for name in ("c", "x", "y")}
    proto = protos.model(nodes, [values["x"]], list(values.values()), {"c": table})
    program = onnx.load(proto)
    assert program.output_names == ("c", "x", "y")
    for fuse in (True, False):
        session = cpu.prepare(program, fuse=fuse)
        first, second = session.run({"x": -table}), session.run({"x": -table})
        for name, due in (("c", table), ("x", -table), ("y", np.zeros((2, 3), np.float32))):
            assert first[name].tobytes() == due.tobytes()
            assert first[name].flags.writeable
            assert not any(np.shares_memory(first[name], other) for other in (second[name], table))
    alone = protos.model([], [], [values["c"]], {"c": table})
    assert cpu.prepare(onnx.load(alone)).run({})["c"].tobytes() == table.tobytes()


@pytest.mark.parametrize("kind", [np.asarray, Tensor.from_any])
def test_outputs_without_room(kind: Any) -> None:
    """As many bytes as the machine has are planned for, but this process may not have them."""
    nodes = [helper.make_node("Expand", ["x", "c"], ["y"])]
    x, y = protos.value("x", np.float32, [1]), protos.value("y", np.float32, [1])
    session = cpu.prepare(onnx.load(protos.model(nodes, [x], [y], {"c": np.array([2**29])})))
    given = {"x": kind(np.ones(1, np.float32))}
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, before[1]))
    try:
        with pytest.raises(MemoryError) as error:
            session.run(given)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    expected = "more, must be what the system has left; give smaller inputs, or a part at a time"
    assert str(error.value) == f"run: memory for its outputs is {expected}"


def test_many_threads_share_a_session() -> None:
    session = cpu.prepare(two(), threads=2)
    expected = {n: reference.run(two(), feed(n))["y"].tobytes() for n in range(1, 9)}
    wrong: list[int] = []

    def work(n: int) -> None:
        for _ in range(50):
            if session.run(feed(n))["y"].tobytes() != expected[n]:
                wrong.append(n)

    workers = [threading.Thread(target=work, args=(n,)) for n in expected]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_results_are_not_overwritten_by_the_next_run() -> None:
    first = SESSION.run(feed())["y"]
    kept = first.copy()
    SESSION.run({name: x * 2 for name, x in feed().items()})
    assert first.tobytes() == kept.tobytes()


def test_trace_names_the_nodes_of_the_model() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], "product"),
        helper.make_node("Relu", ["xw"], ["r"], "cut off"),
        helper.make_node("Softmax", ["r"], ["y"], "soft"),
    ]
    proto = protos.model(
        nodes,
        [protos.value("x", np.float32, ["n", 4])],
        [protos.value("y", np.float32, ["n", 2])],
        {"w": np.ones((4, 2), np.float32)},
    )
    program = onnx.load(proto)
    given = {"x": feed()["x"]}
    alone = cpu.prepare(program, fuse=False).trace(given)
    assert {name: value.node for name, value in alone.items()} == {"xw": "product", "r": "cut off", "y": "soft"}
    fused = cpu.prepare(program).trace(given)
    assert {name: value.node for name, value in fused.items()} == {"r": "product+cut off", "y": "soft"}
    meaning = reference.run_all(program, given)
    for name, value in [*alone.items(), *fused.items()]:
        assert value.array.tobytes() == np.ascontiguousarray(meaning[name]).tobytes()


def test_plans_print_what_runs() -> None:
    texts = list(SESSION.plans({"n": 3}))
    assert len(texts) == 2
    assert "matmul a[3,4] packed[4,2]" in texts[0]


def test_per_tensor_quantisation_depends_on_its_neighbours() -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantise")
    back = helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], "back")
    value = protos.value("x", np.float32, ["batch", 4])
    program = onnx.load(protos.model([node, back], [value], [protos.value("y", np.float32, ["batch", 4])]))
    session = cpu.prepare(program)
    row = np.array([[0.1, 0.2, -0.3, 0.4]], np.float32)
    alone = session.run({"x": row})["y"]
    beside = session.run({"x": np.concatenate([row, 100 * row])})["y"][:1]
    assert alone.tobytes() != beside.tobytes()
    assert "q" in session.trace({"x": row}) or "y" in session.trace({"x": row})


def test_elements_of_another_byte_order_are_refused() -> None:
    given = feed()
    with pytest.raises(DTypeError) as error:
        SESSION.run({**given, "x": given["x"].astype(">f4")})
    assert str(error.value) == "run: input 'x' dtype is >f4, must be float32; convert it to float32"


@pytest.mark.parametrize("shape", [(), (3,)])
def test_elements_that_are_not_aligned(shape: tuple[int, ...]) -> None:
    b = ProgramBuilder("unaligned")
    session = cpu.prepare(b.build({"y": b.apply("neg", b.input("x", dtypes.float32, shape))}))
    count = max(1, *shape) if shape else 1
    x = np.zeros(4 * count + 1, np.uint8)[1:].view(np.float32).reshape(shape)
    x[...] = 5
    assert session.run({"x": x})["y"].tobytes() == np.full(shape, -5, np.float32).tobytes()


@pytest.mark.parametrize(
    ("bindings", "text"),
    [
        ({}, "symbol 'n' is without a value, must be a size; give it one"),
        ({"n": 3, "m": 4}, "symbol 'm' is not a symbol, must be one of ['n']; remove or rename it"),
        ({"n": -1}, "symbol 'n' is -1, must be an integer in [0, 2**63); give it a size"),
        ({"n": 2**63}, "symbol 'n' is 9223372036854775808, must be an integer in [0, 2**63); give it a size"),
        ({"n": 2.0}, "symbol 'n' is 2.0, must be an integer in [0, 2**63); give it a size"),
        ({"n": True}, "symbol 'n' is True, must be an integer in [0, 2**63); give it a size"),
        ({"n": "3"}, "symbol 'n' is '3', must be an integer in [0, 2**63); give it a size"),
        (None, "bindings is NoneType, must be a mapping from symbols to sizes; bind ['n']"),
        (["n"], "bindings is list, must be a mapping from symbols to sizes; bind ['n']"),
    ],
)
def test_plans_need_a_size_for_every_symbol(bindings: object, text: str) -> None:
    with pytest.raises(OptionError) as error:
        list(SESSION.plans(bindings))  # type: ignore[arg-type]  # that is the test
    assert str(error.value) == f"plans: {text}"
    with pytest.raises(OptionError) as error:
        SESSION.shared_steps(bindings)  # type: ignore[arg-type]
    assert str(error.value) == f"shared_steps: {text}"


def test_steps_are_shared_where_there_is_enough_to_do_for_several_threads() -> None:
    one, three = (cpu.prepare(SESSION.program, threads=threads) for threads in (1, 3))
    assert [one.shared_steps({"n": n}) for n in (3, 1 << 17)] == [0, 0]
    assert three.shared_steps({"n": 3}) == 0
    assert three.shared_steps({"n": 1 << 13}) > 0


def test_results_are_the_callers_own() -> None:
    first = SESSION.run(feed(5))
    kept = {name: x.copy() for name, x in first.items()}
    for n in (5, 9, 5):
        SESSION.run({name: x + 1 for name, x in feed(n).items()})
    for name, x in first.items():
        assert x.tobytes() == kept[name].tobytes()
        assert x.flags.writeable


def test_shapes_used_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    session = cpu.prepare(two(), threads=1)
    session.run(feed(1))
    for n in range(2, 100):
        session.run(feed(n))
        session.run(feed(1))
    assert len(session._cache) == cpu._CACHE
    monkeypatch.setattr(session, "_bound", None)
    assert session.run(feed(1)).keys() == {"y", "e"}


def test_eight_threads_of_other_shapes() -> None:
    session = cpu.prepare(two(), threads=2)
    expected = {n: SESSION.run(feed(n)) for n in range(20)}
    wrong: list[int] = []

    def work(start: int) -> None:
        for i in range(60):
            n = (start * 7 + i) % 20
            made = session.run(feed(n))
            if any(made[name].tobytes() != x.tobytes() for name, x in expected[n].items()):
                wrong.append(n)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from 3.12 on, where other threads live
def test_a_forked_child_runs_it_too() -> None:
    session = cpu.prepare(two(), threads=2)
    expected = session.run(feed(4))["y"].tobytes()
    child = os.fork()
    if not child:
        same = session.run(feed(4))["y"].tobytes() == expected and len(session.run(feed(7))["y"]) == 7
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert session.run(feed(4))["y"].tobytes() == expected


# -- the caller's float environment ---------------------------------------------------------------------------------


def of_constants() -> protos.onnx.ModelProto:
    """Quotients and products of constants and of sizes, folded in every way that there is."""
    f = np.float32
    node = helper.make_node
    nodes = [
        node("Div", ["many", "three"], ["thirds"]),
        node("Mul", ["thirds", "tiny"], ["subnormal"]),
        node("Cast", ["wide"], ["narrow"], to=1),
        node("Div", ["narrow", "seven"], ["small"]),
        node("Range", ["zero", "one", "tenth"], ["steps"]),
        node("ReduceSum", ["steps"], ["total"]),
        node("Shape", ["x"], ["sizes"]),
        node("Cast", ["sizes"], ["lengths"], to=1),
        node("Div", ["lengths", "seven"], ["part"]),
        node("Gemm", ["x", "w", "small"], ["g"], alpha=0.1, beta=0.3),
        node("LayerNormalization", ["g", "small"], ["l"], epsilon=1e-5),
        node("Mul", ["l", "part"], ["m"]),
        node("Add", ["m", "total"], ["y"]),
        node("Add", ["thirds", "subnormal"], ["z"]),
    ]
    constants = {
        "many": np.arange(3000, dtype=f), "three": f(3), "tiny": f(2.0**-135), "seven": f(7), "zero": f(0),
        "wide": np.array([0.1, 0.7]), "one": f(1), "tenth": f(0.1), "w": np.arange(4, dtype=f).reshape(2, 2) / f(7),
    }  # fmt: skip
    outputs = [protos.value("y", f, ["n", 2]), protos.value("z", f, [3000]), protos.value("subnormal", f, [3000])]
    return protos.model(nodes, [protos.value("x", f, ["n", 2])], outputs, constants, opset=19)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("mode", floating.MODES)
def test_the_callers_float_environment_changes_no_bit_of_a_model(mode: str, fuse: bool) -> None:
    proto, x = of_constants(), {"x": np.array([[1.1, -0.3], [2.0**-130, 3]], np.float32)}

    def run() -> dict[str, bytes]:
        program = onnx.load(proto)
        made = {"digest": program.digest().encode()}
        made |= {name: y.tobytes() for name, y in cpu.prepare(program, threads=1, fuse=fuse).run(x).items()}
        made |= {f"{name} due": y.tobytes() for name, y in reference.run(program, x).items()}
        traced = cpu.prepare(program, threads=1, fuse=fuse).trace(x)
        return made | {f"{name} traced": each.array.tobytes() for name, each in traced.items()}

    due = run()
    assert due["z"] == due["z due"]
    with floating.environment(mode):
        found = run()
    assert found == due


@pytest.mark.parametrize("kind", [np.asarray, Tensor.from_any, torch.from_numpy], ids=["numpy", "tensor", "torch"])
def test_big_results_take_memory_that_was_used_and_outlive_their_session(kind: Any) -> None:
    x, y = (protos.value(name, np.float32, ["n"]) for name in "xy")
    session = cpu.prepare(onnx.load(protos.model([helper.make_node("Neg", ["x"], ["y"])], [x], [y])))
    given = np.arange(1 << 17, dtype=np.float32)
    before = HOST.statistics
    for _ in range(5):
        made = session.run({"x": kind(given)})["y"]
    del session
    after = HOST.statistics
    assert after.lent_bytes - before.lent_bytes == given.nbytes
    assert after.reuses - before.reuses >= 3  # the run after the first holds two
    assert after.lent_blocks + after.kept_blocks <= before.lent_blocks + before.kept_blocks + 2
    assert Tensor.from_any(made).numpy().tobytes() == (-given).tobytes()
    del made
    assert HOST.statistics.lent_bytes == before.lent_bytes


def test_big_results_are_of_the_resource_in_use() -> None:
    x, y = (protos.value(name, np.float32, ["n"]) for name in "xy")
    session = cpu.prepare(onnx.load(protos.model([helper.make_node("Neg", ["x"], ["y"])], [x], [y])))
    mine = HostResource()
    with use_resource(mine):
        made = session.run({"x": np.ones(1 << 17, np.float32)})["y"]
    assert mine.statistics.lent_bytes == made.nbytes
