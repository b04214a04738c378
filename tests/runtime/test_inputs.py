"""What is wrong with a run's arguments is one sentence, whatever they are; nothing is computed for it."""

from __future__ import annotations

import random
import re
import types
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from sentences import check_sentence

from samebits import dtypes
from samebits.errors import OptionError, SamebitsError
from samebits.operations import dim
from samebits.program.builder import ProgramBuilder
from samebits.runtime import cpu, reference
from samebits.tensor import Tensor

N = dim.symbol("n")


def made() -> cpu.Session:
    """y = -x, and rows of a table by ids, whose count is x's."""
    b = ProgramBuilder("made")
    x, ids = b.input("x", dtypes.float32, (N, 3)), b.input("ids", dtypes.int64, (N,))
    return cpu.prepare(b.build({"y": b.apply("neg", x), "i": b.apply("neg", ids)}), threads=1)


SESSION = made()
X, IDS = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2])
GIVEN = {"x": X, "ids": IDS}


def said(*arguments: Any) -> str:
    """The sentence of a run, which a trace and the reference say too, where it is about what is given."""
    with pytest.raises(SamebitsError) as error:
        SESSION.run(*arguments)
    check_sentence(error.value)
    if len(arguments) == 1:
        with pytest.raises(SamebitsError) as traced:
            SESSION.trace(*arguments)
        assert str(traced.value) == str(error.value)
    return str(error.value)


# -- what stands where the mapping should -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [(None, GIVEN), (["y"], GIVEN), ("y", GIVEN), (X,), ([X, IDS],), ((X, IDS),), (5,), ("x",), ({"x", "ids"},)],
    ids=lambda arguments: f"{type(arguments[0]).__name__} {len(arguments)}",
)
def test_inputs_are_a_mapping(arguments: tuple[Any, ...]) -> None:
    """ONNX Runtime has the outputs first; others take arrays in their order."""
    assert said(*arguments) == (
        f"run: given is {type(arguments[0]).__name__}, must be a mapping from the inputs' names to arrays; "
        "write run({'x': array, 'ids': array}), and the wanted outputs after it, if not all"
    )


def test_the_reference_says_the_same() -> None:
    with pytest.raises(OptionError) as error:
        reference.run(SESSION.program, X)  # type: ignore[arg-type]  # that is the test
    assert str(error.value) == said(X)


def test_any_mapping_will_do() -> None:
    due = SESSION.run(GIVEN)["y"].tobytes()
    for given in (types.MappingProxyType(GIVEN), dict(reversed(GIVEN.items())), type("Mine", (dict,), {})(GIVEN)):
        assert SESSION.run(given)["y"].tobytes() == due


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ("y", "outputs is 'y', must be a list of outputs' names; write ['y']"),
        ("yi", "outputs is 'yi', must be a list of outputs' names; write ['y', 'i']"),
        (5, "outputs is int, must be a list of outputs' names; write ['y', 'i']"),
        (GIVEN, "outputs is dict, must be a list of outputs' names; write ['y', 'i']"),
        ([5], "output of type int is not an output, must be one of ['y', 'i']; ask for one of these"),
        ([["y"]], "output of type list is not an output, must be one of ['y', 'i']; ask for one of these"),
        (["y", "x"], "output 'x' is not an output, must be one of ['y', 'i']; ask for one of these"),
    ],
)
def test_outputs_are_a_list_of_names(outputs: Any, text: str) -> None:
    assert said(GIVEN, outputs) == f"run: {text}"


def test_outputs_may_be_an_iterator() -> None:
    assert list(SESSION.run(GIVEN, iter(["i", "y"]))) == ["i", "y"]  # type: ignore[arg-type]


# -- what stands where an array should --------------------------------------------------------------------------------

T = torch.from_numpy(X)
NOT_SHARED = "is not shared by its library (*), must be memory that can be shared; {}"
NOT_NUMBERS = "type is {}, must be an array, numbers, or lists of them; convert it first"
NOT_FLOAT32 = "dtype is {}, must be float32; convert it to float32"
NOT_REAL = "dtype is complex64, must be real; pass its real and imaginary parts apart"
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "meta": (lambda: T.to("meta"), NOT_SHARED.format("make it on a device: it has a shape, and no elements")),
    "sparse": (lambda: T.to_sparse(), NOT_SHARED.format("call its to_dense() first")),
    "rows of sparse": (lambda: T.to_sparse_csr(), NOT_SHARED.format("call its to_dense() first")),
    "gradient": (lambda: T.clone().requires_grad_(), NOT_SHARED.format("call its detach() first")),
    "parameter": (lambda: torch.nn.Parameter(T), NOT_SHARED.format("call its detach() first")),
    "conjugate": (lambda: T.to(torch.complex64).conj(), NOT_REAL),
    "negative": (
        lambda: T.to(torch.complex64).conj().imag,
        "memory is still to be negated, must be what the values are; call x.resolve_neg() first",
    ),
    "complex": (lambda: T.to(torch.complex64), NOT_REAL),
    "nothing": (lambda: None, NOT_NUMBERS.format("NoneType")),
    "text": (lambda: "x", NOT_NUMBERS.format("str")),
    "unlike lists": (
        lambda: [[1.0], [1.0, 2.0]],
        "shape is lists of unlike lengths, must be as many elements in each; pad them",
    ),
    "no bytes": (lambda: np.zeros((2, 3), "V0"), NOT_FLOAT32.format("void")),
    "narrow": (lambda: Tensor.from_any(jnp.ones((2, 3), "int4")), NOT_FLOAT32.format("int4")),
    "other bytes": (lambda: X.astype(">f4"), NOT_FLOAT32.format(">f4")),
    "masked": (
        lambda: np.ma.masked_array(X, X > 2),
        "type is a masked array, must be an array without a mask; fill it first, with x.filled(value)",
    ),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR:UserWarning")
@pytest.mark.parametrize("kind", WRONG)
def test_an_input_that_is_no_array_of_this_format(kind: str) -> None:
    make, due = WRONG[kind]
    pattern = ".+".join(map(re.escape, f"run: input 'x' {due}".split("*")))
    assert re.fullmatch(pattern, said({"x": make(), "ids": IDS}))


@pytest.mark.parametrize("kind", ["gradient", "negative", "sparse"])
def test_the_remedy_helps(kind: str) -> None:
    remedies = {
        "gradient": lambda x: x.detach(),
        "negative": lambda x: x.resolve_neg(),
        "sparse": lambda x: x.to_dense(),
    }
    x = remedies[kind](WRONG[kind][0]())
    assert SESSION.run({"x": x, "ids": torch.from_numpy(IDS)})["y"].shape == (2, 3)


def test_what_an_array_raises_itself_is_not_ours_to_word() -> None:
    class Broken:
        def __array__(self, *arguments: object, **options: object) -> np.ndarray:
            raise KeyError("of the caller's own")

    with pytest.raises(KeyError, match="of the caller's own"):
        SESSION.run({"x": Broken(), "ids": IDS})


# -- noise --------------------------------------------------------------------------------------------------------


def _array(noise: random.Random) -> Any:
    """Something array-like of another shape, format, kind, layout; now and then the right one."""
    kinds: list[Any] = [
        np.float32, np.float64, np.int64, np.int32, np.uint8, np.bool_, np.complex64, np.float16, ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn, ml_dtypes.int4, ">f4", "U3", "S2", "M8[s]", "V0", "V4", object, "f4,i4", "g",
    ]  # fmt: skip
    shape = tuple(noise.choice([0, 1, 2, 3, 5]) for _ in range(noise.choice([0, 1, 1, 2, 2, 2, 3, 7])))
    x: Any = np.zeros(shape, noise.choice(kinds) if noise.random() < 0.7 else np.float32)
    way = noise.randrange(16)
    if way == 0 and x.ndim and len(x):
        return np.broadcast_to(x[:1], (4, *x.shape[1:]))
    if way == 1 and x.ndim:
        return x[::-1]
    if way == 2:
        return x.T
    if way == 3 and x.dtype == np.float32:
        return noise.choice([torch.from_numpy, jnp.asarray, Tensor.from_any, np.ma.asarray, memoryview])(x)
    if way == 4 and x.dtype == np.float32:
        t = torch.from_numpy(x)
        return noise.choice([
            lambda: t.requires_grad_(), lambda: t.to("meta"), lambda: t.to_sparse(),
            lambda: t.to(torch.complex64).conj(), lambda: t.to(torch.complex64).conj().imag,
            lambda: t.half(), lambda: t.to_mkldnn() if 0 < t.ndim < 6 else t,
            lambda: torch.quantize_per_tensor(t, 1.0, 0, torch.qint8), lambda: torch._neg_view(t),
        ])()  # fmt: skip
    if way == 5:
        return x.tolist() if x.dtype.kind in "fiub" else list(shape)
    if way == 6:
        return noise.choice([None, "x", b"bytes", 5, 2.5, 10**400, object(), {"a": 1}, int, [[1], [1, 2]], {1, 2}, ...])
    if way == 7:
        return np.zeros(4 * max(1, x.size) + 1, np.uint8)[1:].view(np.float32)
    if way == 8:
        return Tensor.empty((2, 3), noise.choice(["int4", "float6_e2m3fn", "uint1", "float8_e5m2"]))
    return x


def _arguments(noise: random.Random) -> tuple[Any, ...]:
    """The arguments of a run, most often wrong."""
    if noise.random() < 0.1:
        n = noise.randrange(5)
        return ({"x": np.full((n, 3), n, np.float32), "ids": np.arange(n)},)
    given: Any = {"x": _array(noise), "ids": noise.choice([IDS, _array(noise)])}
    way = noise.randrange(12)
    if way == 0:
        given.pop(noise.choice(["x", "ids"]))
    elif way == 1:
        given[noise.choice(["y", "", 5, None, ("x",), "X", b"x", float("nan")])] = X
    elif way == 2:
        given = noise.choice([None, X, [X, IDS], (X,), "x", 5, given.items(), {"x", "ids"}, iter(given), b"", T])
    if noise.random() < 0.7:
        return (given,)
    outputs = [None, ["y"], [], "y", "ids", 5, ["q"], [["y"]], [None], GIVEN, X, {"y"}, ("i", "y"), b"y", [X], T]
    return given, noise.choice(outputs)


def refusals(count: int, seed: int) -> dict[str, int]:
    """How many wrong runs were refused, and how many right ones answered; each refusal is one sentence of ours."""
    noise, found = random.Random(seed), {"refused": 0, "answered": 0}
    while found["refused"] < count:
        arguments = _arguments(noise)
        try:
            answer = SESSION.run(*arguments)
        except SamebitsError as error:
            check_sentence(error)
            found["refused"] += 1
            continue
        x = arguments[0]["x"]
        values = np.asarray(x.numpy() if isinstance(x, Tensor) else x, np.float32)
        if "y" in answer:
            assert np.asarray(answer["y"]).tobytes() == np.ascontiguousarray(-values).tobytes()
        found["answered"] += 1
    assert SESSION.run(GIVEN)["y"].tobytes() == (-X).tobytes()
    return found


@pytest.mark.filterwarnings("ignore")  # torch warns of kinds of tensors that it will change
def test_a_wrong_run_is_one_sentence() -> None:
    assert refusals(150, seed=1)["answered"]


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(4))
def test_2000_wrong_runs_are_one_sentence_each(seed: int) -> None:
    assert refusals(500, seed=10 + seed)["answered"]
