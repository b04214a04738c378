"""What options take: values that are wrong are the command line's fault, and are told with the option's own name.

Each class here is one kind of value; `asked` turns what the library says of a value into the words of its option.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

from samebits import errors
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.kernels.gemm.contraction import Spec
from samebits.native.table import MAX_THREADS
from samebits.program.graph import Program

F = TypeVar("F", bound=Callable[..., Any])
Settings = dict[str, int]


class Missing(click.ClickException):
    """What was asked for is not installed."""

    exit_code = 2


@contextlib.contextmanager
def asked(option: str, operand: str | None = None) -> Iterator[None]:
    """What the library refuses within the block, of one operand or of any, is what this option says.

    Raises:  click.BadParameter for a SamebitsError, which names a function of Python; Missing for a package.
    """
    try:
        yield
    except errors.SamebitsError as error:
        if operand not in (None, error.operand):
            raise
        if isinstance(error, errors.MissingPackageError):
            raise Missing(f"{option}: {told(error)}") from None
        raise click.BadParameter(told(error), click.get_current_context(silent=True), param_hint=option) from None


@contextlib.contextmanager
def named(call: str, option: str) -> Iterator[None]:
    """What the library refuses of a file within the block, it refuses in the words of this command and option."""
    try:
        yield
    except errors.OptionError as error:
        raise error.renamed(call, option) from error


def told(error: errors.SamebitsError) -> str:
    """An error without the name of the Python function and of its argument; arguments in its remedy are options."""
    subject = f"{error.fact} " if error.fact else ""
    actual, expected = errors.in_short(str(error.actual)), errors.in_short(str(error.expected))
    context = click.get_current_context(silent=True)
    options = {parameter.name for parameter in context.command.params} if context else set[str | None]()

    def option(found: re.Match[str]) -> str:
        return f"--{found[1]} {found[2]}".rstrip() if found[1] in options else found[0]

    remedy = re.sub(r"\b(\w+)='?(\w*)'?", option, error.remedy)
    return f"{subject}is {actual}, must be {expected}; {remedy}"


class Value(click.ParamType):  # type: ignore[type-arg]  # click before 8.4 gives it none
    """A kind of value; its `convert` says which."""


class _IsaType(Value):
    """An Isa row that this machine runs."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Isa:
        if isinstance(value, Isa):
            return value
        runs = [row for row in isas.ROWS if row.available]
        found = next((row for row in runs if row.name == value), None)
        if found is None:
            names = ", ".join(row.name for row in runs)
            self.fail(f"{value!r} is not one of {names}; see samebits isas", param, ctx)
        return found


class _SpecType(Value):
    """The order of sums: a name, perhaps with `chunk=` and `segments=` behind commas."""

    name = "ORDER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Spec:
        if isinstance(value, Spec):
            return value
        order, *rest = str(value).split(",")
        given: dict[str, int] = {}
        for part in rest:
            name, _, number = part.partition("=")
            if name not in ("chunk", "segments") or name in given or not (number.isascii() and number.isdecimal()):
                self.fail(f"{value!r} is not ORDER,chunk=C,segments=S with whole numbers", param, ctx)
            given[name] = int(number)
        try:
            return Spec(order=order, **given)
        except errors.OptionError as error:
            self.fail(f"{error.operand} {told(error)}", param, ctx)


class _Setting(Value):
    """`name=extent`."""

    name = "name=extent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        symbol, equals, extent = str(value).partition("=")
        if not equals or not symbol or not (extent.isascii() and extent.isdecimal() and len(extent) < 19):
            self.fail(f"{value!r} is not name=extent with a non-negative integer", param, ctx)
        return symbol, int(extent)


class OutputFile(Value):
    """A file to write, which is tried before anything is computed.

    Attributes:
        kinds: What its name may end with, behind a dot; nothing where that does not matter.
        bare: Whether it may have no ending, as /dev/stdout.
    """

    name = "FILE"

    def __init__(self, kinds: Sequence[str] = (), *, bare: bool = False) -> None:
        self.kinds, self.bare = kinds, bare

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> pathlib.Path:
        if str(value) == "-":
            self.fail("'-' is no file; name one, or /dev/stdout", param, ctx)
        path = pathlib.Path(os.path.realpath(value))
        if path.is_dir():
            self.fail(f"{str(path)!r} is a directory; name a file in it", param, ctx)
        folder = path.parent
        if not folder.is_dir():
            self.fail(f"{str(folder)!r} is no directory; make it first", param, ctx)
        reason = _why_unwritable(path)
        if reason:
            self.fail(f"{str(path)!r} cannot be written ({reason}); name another", param, ctx)
        ending = pathlib.Path(value).suffix
        if self.kinds and ending[1:] not in self.kinds and (ending or not self.bare):
            self.fail(f"{str(value)!r} does not end with .{', .'.join(self.kinds)}; name it so", param, ctx)
        return pathlib.Path(value)


def _why_unwritable(path: pathlib.Path) -> str:
    """Why a file cannot be opened to be written, or nothing; no file is changed, and none stays that was not there."""
    is_new = not path.exists()
    if not is_new and not path.is_file():  # a pipe or a device: opening it might wait, or be seen
        return "" if os.access(path, os.W_OK) else "Permission denied"
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        return error.strerror or str(error)
    if is_new:
        path.unlink()
    return ""


def _once(ctx: click.Context, param: click.Parameter, given: tuple[tuple[str, int], ...]) -> Settings:
    """Symbols and their extents; refused where one is bound twice."""
    settings = dict(given)
    for name in settings:
        extents = [str(extent) for symbol, extent in given if symbol == name]
        if len(extents) > 1:
            raise click.BadParameter(f"{name!r} is bound {len(extents)} times ({', '.join(extents)}); bind it once")
    return settings


def opened(model: pathlib.Path, settings: Settings, spec: Spec) -> tuple[Program, Settings]:
    """The program of a model, and what is set of its symbols: nothing where that had to be fixed in it.

    Raises:  as `samebits.onnx.load`; click.BadParameter if a symbol that is fixed is not one of the model's.
    """
    from samebits.onnx.loading import load_bound

    with asked("--set", "bindings"):
        program, is_fixed = load_bound(model, settings, spec=spec)
    return program, {} if is_fixed else settings


def bindings(program: Program, settings: Settings, default: int) -> dict[str, int]:
    """Extents of all the model's symbols: those set, `default` for the rest.

    Raises:  click.BadParameter if a symbol that is set is not one of the model's.
    """
    for name in settings:
        if name not in program.symbols:
            known = f"one of {', '.join(program.symbols)}" if program.symbols else "left out: the model has no symbol"
            raise click.BadParameter(f"symbol is {name!r}, must be {known}; see samebits dump", param_hint="--set")
    return dict.fromkeys(program.symbols, default) | settings


class _Named(click.Path):
    """A file to read; `-` is not one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-":
            self.fail("'-' is no file; name one, or /dev/stdin", param, ctx)
        return super().convert(value, param, ctx)


READABLE = _Named(exists=True, dir_okay=False, path_type=pathlib.Path)

model = click.argument("model", type=READABLE)
isa = click.option("--isa", type=_IsaType(), help="The Isa row (see samebits isas); default: the fastest.")
threads = click.option("--threads", type=click.IntRange(1, MAX_THREADS), help="Threads; default: every usable core.")
as_json = click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
set_ = click.option(
    "--set", "settings", multiple=True, type=_Setting(), callback=_once, help="Bind a symbol of the model's shapes."
)
spec = click.option(
    "--spec", type=_SpecType(), default=Spec(), show_default="sb1",
    help="The order of sums of products: sb1 or pairs32, perhaps with ,chunk=C,segments=S behind it.",
)  # fmt: skip
seed = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the inputs made up.")
