"""The builder of functions that call the C API: what it emits does what the text says, and wrong text is refused."""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import pytest

from samebits.codegen import isa
from samebits.native import compile
from samebits.native.capi import FASTCALL, Function, Module


def compiled(module: Module, symbol: str) -> tuple[int, int]:
    """The addresses of the state and of one symbol."""
    host = next(row for row in isa.ROWS if row.compiled and row.available)
    state, address = compile.addresses(compile.module_unit(module.text(), host.target()), ("state", symbol))
    return state, address


def run(write: Callable[[Function], None], *arguments: int) -> int:
    """The result of a function of integers."""
    module = Module()
    write(module.function("f", "i64", *["i64"] * len(arguments), exported=True))
    _, address = compiled(module, "f")
    result: int = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(arguments))(address)(*arguments)
    return result


def test_operators_are_those_of_signed_integers() -> None:
    def write(f: Function) -> None:
        a, b = f.arguments
        f.ret(((a + b) * (a - b) & 255) | (a << 8) | (b >> 1 << 16))

    for a, b in ((5, 3), (3, 5), (7, -2)):
        assert run(write, a, b) == (((a + b) * (a - b) & 255) | (a << 8) | (b >> 1 << 16))


def test_loops_and_branches_nest() -> None:
    def write(f: Function) -> None:
        (n,) = f.arguments
        total = f.variable("i64", 0)
        with f.loop(n) as i, f.loop(i) as j:
            with f.when(j == 2):
                total.set(total.now + 100)
            with f.when(~(j == 2)):
                total.set(total.now + j)
        with f.when(total.now > 1000):
            f.ret(-1)
        f.ret(total.now)

    assert run(write, 5) == sum(100 if j == 2 else j for i in range(5) for j in range(i))
    assert run(write, 0) == 0
    assert run(write, 50) == -1


def test_widths_convert_and_unsigned_comparison_has_no_negative() -> None:
    def write(f: Function) -> None:
        (x,) = f.arguments
        byte = f.as_(x, "i8")
        with f.when(f.unsigned_below(x, 10)):
            f.ret(f.as_(byte, "i64"))
        f.ret(f.as_(byte, "i64", signed=True))

    assert (run(write, 9), run(write, 10), run(write, -1), run(write, 255)) == (9, 10, -1, -1)


def test_wrong_text_is_refused_while_it_is_written() -> None:
    f = Module().function("f", "i64", "i64", "ptr")
    number, pointer = f.arguments
    for wrong in (
        lambda: number + pointer,
        lambda: number == pointer,
        lambda: pointer == 1,
        lambda: bool(number == 1),
        lambda: f.call("Py_IncRef", number),
    ):
        with pytest.raises(TypeError):
            wrong()  # type: ignore[no-untyped-call]
    with pytest.raises(ValueError, match="zip"):
        f.call("Py_IncRef", pointer, pointer)
    with pytest.raises(KeyError):
        f.call("PyEval_EvalCode", pointer)
    with pytest.raises(ValueError, match="open end"):
        f.text()
    f.ret(0)
    with pytest.raises(ValueError, match="after a return"):
        f.ret(1)


def method(write: Callable[[Function], None], state: dict[str, object], doc: str = "") -> Any:
    """A built-in function whose body is `write`."""
    module = Module()
    f = module.function("f", "ptr", "ptr", "ptr", "i64", "ptr", exported=True)
    write(f)
    module.method("table", "f", "f", FASTCALL, doc)
    words, table = compiled(module, "table")
    assert module.words.keys() == state.keys()
    for name, value in state.items():
        ctypes.c_size_t.from_address(words + 8 * module.words[name]).value = id(value)
    new = ctypes.pythonapi["PyCFunction_NewEx"]
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t)
    return new(table, 0, 0)


def test_what_is_owned_is_given_back_on_every_way_out() -> None:
    class Thing:
        pass

    thing = Thing()

    def write(f: Function) -> None:
        _, args, nargs, _ = f.arguments
        kept = f.own(f.incref(f.state("thing")))
        with f.when(nargs == 0):
            f.ret(f.take(kept))
        f.own(f.incref(f.load(args)))
        with f.when(nargs == 1):
            f.ret(f.incref(f.load(args)))
        f.call("PyErr_SetString", f.state("error"), f.name_of('two "arguments" \\ é'))
        f.ret(None)

    function = method(write, {"thing": thing, "error": LookupError}, "f(*args)\n--\n\nGives back.")
    argument = Thing()
    before = sys.getrefcount(thing), sys.getrefcount(argument)
    for _ in range(1000):
        assert function() is thing
        assert function(argument) is argument
        with pytest.raises(LookupError, match=r'two "arguments" .* é'):
            function(argument, argument)
    assert (sys.getrefcount(thing), sys.getrefcount(argument)) == before
    assert (function.__name__, function.__doc__, function.__text_signature__) == ("f", "Gives back.", "(*args)")
