"""Every public function on every dtype and option that it takes: a call, the same node in a program, and the reference
have the same bits on every Isa row.

The calls are listed by tests/calls.py and the nodes in tests/nodes.py; the tests here hold that nothing is missing
there: no function, no argument, no dtype. Here every dtype, layout and option of an argument is met on some row
(`calls.few`), and every row by every function (`calls.row_of_each`); `make exhaustive` runs every call on every row.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import calls
import element_calls
import nodes
import numpy as np
import product_calls
import pytest
from called import Called

import samebits as sb
from samebits import dtypes
from samebits.codegen import isa as isas
from samebits.errors import DTypeError, OptionError, PlanError
from samebits.operations.product import ACTIVATIONS, Options
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program
from samebits.runtime import cpu, reference
from samebits.tensor import Tensor

Array = np.ndarray[Any, np.dtype[Any]]
ROWS = tuple(row.name for row in isas.isas() if row.available)
FUNCTIONS = sorted(name for name in sb.__all__ if name[0].islower() and callable(getattr(sb, name)))


def called(call: Called, **more: Any) -> Any:
    """The call; what it would write on is copied first."""
    given = {**call.options, **more}
    if isinstance(call.options.get("out"), np.ndarray):
        given["out"] = np.array(call.options["out"], order="K")
    if call.name == "fill":
        out, value = call.arguments
        return sb.fill(np.array(out, order="K"), value, **given)
    if call.name == "pack":
        b = call.arguments[0] if call.arguments else given.pop("b")
        a = nodes.beside(b.shape, given.get("left") or b.dtype)
        return sb.matmul(a, sb.pack(b, **given))
    if call.name == "plan_matmul":
        return sb.matmul(*call.arguments, **given, plan=sb.plan_matmul(*call.arguments, **given))
    if call.name == "topk":  # and their places
        return sb.topk(*call.arguments, **given)[0]
    return getattr(sb, call.name)(*call.arguments, **given)


def with_values(x: Any, give: Callable[[Any], str]) -> Any:
    """The arguments with a value of a program in the place of each array."""
    if isinstance(x, np.ndarray | Tensor):
        return give(x)
    if isinstance(x, dict):
        # Sizes of groups are attributes of slices.
        return {key: value if key == "group_sizes" else with_values(value, give) for key, value in x.items()}
    return type(x)(with_values(value, give) for value in x) if isinstance(x, list | tuple) else x


def program_of(found: Iterable[Called]) -> tuple[Program, dict[str, Any]]:
    """A program with an output for each call, in order, and its inputs."""
    p, given, outputs = ProgramBuilder("calls"), dict[str, Any](), dict[str, str]()

    def give(x: Any) -> str:
        given[f"x{len(given)}"] = x
        return p.input(f"x{len(given) - 1}", dtypes.of(x.dtype), x.shape)

    for number, call in enumerate(found):
        arguments, options = with_values(call.arguments, give), with_values(dict(call.options), give)
        outputs[f"y{number}"] = nodes.NODES[call.name](p, *arguments, **options)
    return p.build(outputs), given


@functools.cache
def meant(name: str) -> list[Array]:
    """What they give by the reference."""
    program, given = program_of(calls.calls(name))
    return list(reference.run(program, {key: as_array(x) for key, x in given.items()}).values())


def as_array(x: Any) -> Array:
    """An array, an element in whole bytes."""
    return sb.to_padded(x).numpy() if isinstance(x, Tensor) else np.asarray(x)


def check(found: Array, due: Array, what: object) -> None:
    """Format, shape and bits."""
    assert found.dtype == due.dtype, what
    assert found.shape == due.shape, what
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(due).tobytes(), what


def run(name: str, chosen: Iterable[int], isa: str, of_program: str = "") -> None:
    """Some calls of a function on a row: eagerly, in a program (on a row of its own), and as they are meant."""
    numbers, every = list(chosen), calls.calls(name)
    program, given = program_of([every[number] for number in numbers])
    ran = cpu.prepare(program, isa=of_program or isa, threads=2).run(given)
    with sb.use_isa(isa):
        for number, in_program in zip(numbers, ran.values(), strict=True):
            due, what = meant(name)[number], f"{every[number]} on {isa}"
            check(as_array(in_program), due, f"{what}, in a program")
            check(as_array(called(every[number])), due, what)


@pytest.mark.parametrize("name", sorted(nodes.NODES))
def test_a_call_is_the_node_and_the_reference(name: str) -> None:
    """Each of a few calls on one row."""
    chosen = calls.row_of_each(name, ROWS)
    for isa in dict.fromkeys(chosen.values()):
        numbers = [number for number, row in chosen.items() if row == isa]
        run(name, numbers, isa, "numpy" if name in calls.MADE_OF_OTHERS else "")


def test_a_few_calls_of_each_function_meet_every_row_and_so_does_every_dtype() -> None:
    """Each dtype in every place of a product on some row that is compiled."""
    met, places = set[tuple[str, str]](), set[str]()
    for name in nodes.NODES:
        chosen = calls.row_of_each(name, ROWS)
        assert {*chosen.values(), "numpy"} == set(ROWS), name
        assert list(chosen) == calls.few(name), name
        for number, row in chosen.items():
            call = calls.calls(name)[number]
            met |= {(str(x.dtype), row) for x in arrays([list(call.arguments), dict(call.options)])}
            if row != "numpy":
                places.add(product_calls.place_of(name, call.about))
        compiled = {calls.kind(calls.calls(name)[number]) for number, row in chosen.items() if row != "numpy"}
        assert "float32" in compiled or "float32" not in element_calls.TAKEN.get(name, ()), name
    kinds = {kind for kinds in element_calls.TAKEN.values() for kind in kinds}
    assert met >= {(kind, row) for kind in kinds for row in ROWS}
    assert places >= {f"{of} {kind}" for (_, of), kinds in product_calls.VARIED.items() for kind in kinds}


@pytest.mark.exhaustive
@pytest.mark.parametrize("isa", ROWS)
@pytest.mark.parametrize("name", sorted(nodes.NODES))
def test_every_call_on_every_row(name: str, isa: str) -> None:
    run(name, range(len(calls.calls(name))), isa)


def with_argument(argument: str) -> list[str]:
    return [name for name in sorted(nodes.NODES) if argument in inspect.signature(getattr(sb, name)).parameters]


# Where out is what is computed with, calls give it.
ADDED_TO = {"fill", "grad_weight", "grad_bias"}


@pytest.mark.parametrize("name", sorted(set(with_argument("out")) - ADDED_TO))
def test_out_takes_the_same_bits(name: str) -> None:
    """In memory that runs backwards, every second element, on the row that has compiled the call above."""
    chosen = [(calls.calls(name)[number], row) for number, row in calls.row_of_each(name, ROWS).items()]
    plain = [(call, row) for call, row in chosen if not {"out", "order", "storage"} & call.options.keys()]
    for call, row in plain[::11]:
        with sb.use_isa(row):
            due = as_array(called(call))
            wide = np.zeros([2 * extent for extent in due.shape], due.dtype)
            out = wide[(..., *[slice(None, None, -2)] * due.ndim)]
            assert called(call, out=out) is out, call
            check(out, due, call)


@pytest.mark.parametrize("name", with_argument("threads"))
def test_any_number_of_threads_gives_the_same_bits(name: str) -> None:
    """On the row that has compiled the call above."""
    compiled = [(number, row) for number, row in calls.row_of_each(name, ROWS).items() if row != "numpy"]
    for number, row in compiled[::11]:
        call = calls.calls(name)[number]
        with sb.use_isa(row):
            due = as_array(called(call, threads=1))
            for threads in (2, 5):
                check(as_array(called(call, threads=threads)), due, call)


# -- that nothing is missing -------------------------------------------------------------------------------------------
def test_every_public_function_is_a_node_or_says_why() -> None:
    assert sorted(nodes.NODES | nodes.EAGER) == FUNCTIONS
    assert calls.CALLS.keys() == nodes.NODES.keys()


@pytest.mark.parametrize("name", sorted(nodes.NODES))
def test_every_argument_is_given(name: str) -> None:
    signature = inspect.signature(getattr(sb, name))
    given = set[str]()
    for call in calls.calls(name):
        given |= signature.bind(*call.arguments, **call.options).arguments.keys()
    generic = {"threads"} | ({"out"} if name not in ("grad_weight", "grad_bias", "fill") else set())
    by_plan = {"plan"} if name == "matmul" else set()  # what plan_matmul gives
    assert given == signature.parameters.keys() - generic - by_plan


def accepts(call: Callable[[], Any]) -> bool:
    """Whether a call is not refused for its dtypes or options."""
    try:
        call()
    except (DTypeError, OptionError, PlanError):
        return False
    return True


@pytest.mark.parametrize("name", sorted(element_calls.TAKEN))
def test_every_dtype_that_a_function_takes_is_listed(name: str) -> None:
    def call(row: dtypes.DType) -> Any:
        x, function = np.empty((0, 2), row.numpy), getattr(sb, name)
        if name == "cast":
            return sb.cast(x, row)
        if name == "concat":
            return sb.concat([x])
        if name == "take":
            return sb.take(x, np.empty(0, np.int64))
        if name == "topk":
            return sb.topk(x, 1)
        if name in ("take_along_axis", "scatter"):
            return getattr(sb, name)(x, np.empty((0, 2), np.int64), *[x] * (name == "scatter"))
        if name == "fill":
            return sb.fill(x, int(not row.has_zero))
        if name == "where":
            return sb.where(np.empty(0, bool)[:, None], x, x)
        more = {"axis": 1} if "axis" in inspect.signature(function).parameters else {}
        more |= {"seed": 1} if name in ("rand_like", "randn_like") else {}
        arity = element_calls.ARITY.get(name, 2) if name in nodes.ELEMENTS | nodes.COMPOSED else 1
        return function(*[x] * arity, **more)

    found = {row.name for row in dtypes.ROWS if row.numpy is not None and accepts(lambda row=row: call(row))}
    assert found == set(element_calls.TAKEN[name])


@pytest.mark.parametrize("base", product_calls.BASES)
def test_every_dtype_of_an_operand_of_a_product_is_listed(base: str) -> None:
    """And of each option that names one; what is not listed is of one dtype alone."""
    for argument, given in product_calls.BASES[base].items():
        if isinstance(given, np.ndarray) or argument.endswith("dtype"):
            own = given if isinstance(given, str) else dtypes.of(given.dtype).name
            made = functools.partial(product_calls.varied, base, argument)
            found = {row.name for row in dtypes.ROWS if accepts(lambda: sb.plan_matmul(**made(row.name)))}  # noqa: B023
            assert found == set(product_calls.VARIED.get((base, argument), (own,))), argument


@pytest.mark.parametrize(("name", "argument"), product_calls.PARTS_TAKEN)
def test_every_dtype_of_another_operand_is_listed(name: str, argument: str) -> None:
    """By the interpreter, which compiles nothing; what is listed is called on every row in turn above."""
    made = functools.partial(product_calls.part, name, argument)
    with sb.use_isa("numpy"):
        found = {row.name for row in dtypes.ROWS if accepts(lambda: getattr(sb, name)(**made(row.name)))}  # noqa: B023
    assert found == set(product_calls.PARTS_TAKEN[name, argument])


def test_every_argument_of_another_function_is_varied() -> None:
    """But sizes, orders and flags, and what BASES vary."""
    of_products = {"bias", "weight_scale", "weight_zero_point", "zero_point"}
    for name, given in product_calls.PARTS.items():
        for argument, x in given.items():
            if isinstance(x, np.ndarray) and argument not in of_products:
                alike = name in element_calls.TAKEN and argument in ("x", "y")
                assert alike or (name, argument) in product_calls.PARTS_TAKEN, (name, argument)


def test_every_option_of_a_product_is_given() -> None:
    fields = {name for call in calls.calls("matmul") for name in call.options}
    # What out holds is added to by gradients alone, and of a constant bias models say whether it fits.
    assert {field.name for field in dataclasses.fields(Options)} - {"accumulates", "bias_fits"} <= fields
    used = {call.options.get("activation") for call in calls.calls("matmul")}
    assert used == {None, *ACTIVATIONS}


def test_a_few_calls_of_products_have_every_dtype_in_every_place_and_every_base() -> None:
    """Though not each dtype in each place with each base."""
    late = product_calls.late()
    met = {key for key in product_calls.VARIED for kind in product_calls.VARIED[key] if not is_late(*key, kind)}
    assert met == product_calls.VARIED.keys()
    for argument in {argument for _, argument in product_calls.VARIED}:
        taken = [(base, kind) for (base, of), kinds in product_calls.VARIED.items() if of == argument for kind in kinds]
        met = {kind for base, kind in taken if not is_late(base, argument, kind)}
        assert met == {kind for _, kind in taken}, argument
    for function in {function for function, _ in product_calls.PARTS_TAKEN}:
        taken = [
            (of, kind) for (at, of), kinds in product_calls.PARTS_TAKEN.items() if at == function for kind in kinds
        ]
        met = {kind for of, kind in taken if (function, product_calls.part_about(of, kind)) not in late}
        assert met == {kind for _, kind in taken}, function
    for name in ("matmul", "pack", "linear", "grouped_matmul", "grad_input", "grad_weight"):
        assert len(calls.few(name)) + sum(function == name for function, _ in late) == len(calls.calls(name))


def is_late(base: str, argument: str, kind: str) -> bool:
    """Whether the default run leaves a varied call of matmul out."""
    return ("matmul", product_calls.varied_about(base, argument, kind)) in product_calls.late()


def arrays(x: Any) -> list[Array]:
    """Those among arguments."""
    if isinstance(x, np.ndarray):
        return [x]
    found = x.values() if isinstance(x, dict) else x if isinstance(x, list | tuple) else ()
    return [array for part in found for array in arrays(part)]


@pytest.mark.parametrize("name", sorted(nodes.NODES))
def test_edges_are_among_the_calls(name: str) -> None:
    """No element, an extent of one, an odd one; operands that run backwards."""
    found = [x for call in calls.calls(name) for x in arrays([call.arguments, call.options])]
    assert any(x.size == 0 for x in found)
    assert any(1 in x.shape for x in found)
    assert any(extent % 2 for x in found for extent in x.shape if extent > 1)
    assert any(step < 0 for x in found for step in x.strides)
