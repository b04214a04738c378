"""The subcommands and their options. Start at `command`; what each does is the library's, how it prints `screen`'s."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click
import numpy as np

import samebits
from samebits import errors, samples
from samebits.cli import measuring, screen
from samebits.codegen import isa as isas
from samebits.program.graph import Program

F = TypeVar("F", bound=Callable[..., Any])
_MODEL = click.Path(exists=True, dir_okay=False, path_type=pathlib.Path)
_FILE = click.Path(dir_okay=False, path_type=pathlib.Path)


class _Setting(click.ParamType[tuple[str, int]]):
    """`name=extent`."""

    name = "name=extent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        symbol, equals, extent = str(value).partition("=")
        if not equals or not symbol or not extent.isdecimal():
            self.fail(f"{value!r} is not name=extent with a non-negative integer", param, ctx)
        return symbol, int(extent)


def _set_symbols(program: Program, settings: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """Extents of the symbols that are set.

    Raises:  OptionError if a symbol that is set is not one of the model's.
    """
    for name, _ in settings:
        if name not in program.symbols:
            raise errors.OptionError(
                "--set", "symbol", "", repr(name), f"one of {sorted(program.symbols)}", "see samebits dump"
            )
    return dict(settings)


def _bindings(program: Program, settings: tuple[tuple[str, int], ...], default: int) -> dict[str, int]:
    """Extents of all the model's symbols: those set, `default` for the rest."""
    return dict.fromkeys(program.symbols, default) | _set_symbols(program, settings)


@contextlib.contextmanager
def _forced(isa: str | None) -> Iterator[None]:
    with isas.use_isa(isa) if isa else contextlib.nullcontext():
        yield


_set = click.option("--set", "settings", multiple=True, type=_Setting(), help="Bind a symbol of the model's shapes.")
_isa = click.option("--isa", metavar="NAME", help="Force an Isa row (see samebits isas).")
_threads = click.option("--threads", type=click.IntRange(1), help="Threads; default: every usable core.")
_seed = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the inputs made up.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(samebits.__version__, prog_name="samebits")
def command() -> None:
    """Low-precision tensors and models, with the same bits everywhere."""


@command.command()
@click.argument("model", type=_MODEL)
@click.option("--input", "given", type=_MODEL, help="An .npz with one array for each input.")
@click.option("--output", type=_FILE, help="Write the outputs to an .npz.")
@_threads
@_isa
@_set
@_seed
def run(
    model: pathlib.Path, given: pathlib.Path | None, output: pathlib.Path | None, threads: int | None,
    isa: str | None, settings: tuple[tuple[str, int], ...], seed: int,
) -> None:  # fmt: skip
    """Run an ONNX model once and print its outputs' shapes and digests.

    Without --input the inputs are made up from --seed: token ids within the table they index, masks of ones and
    zeros, normal floats.
    """
    from samebits import onnx
    from samebits.runtime import cpu
    from samebits.verification import rows

    with _forced(isa):
        program = onnx.load(model)
        if given and settings:
            raise click.UsageError(
                "--set binds the symbols of made up inputs: not with --input, whose arrays say them."
            )
        feeds = samples.read(given) if given else samples.feeds(program, _bindings(program, settings, 1), seed)
        session = cpu.prepare(program, threads=threads)
        answer = {name: np.asarray(x) for name, x in session.run(feeds).items()}
        screen.outputs(answer, rows.digest([answer]), isas.current().name)
        if output:
            samples.write(output, answer)


@command.command()
@click.argument("model", type=_MODEL)
@click.option("--plan", is_flag=True, help="Also the plan of every kernel, for the shapes given by --set.")
@_threads
@_isa
@_set
def dump(
    model: pathlib.Path, plan: bool, threads: int | None, isa: str | None, settings: tuple[tuple[str, int], ...]
) -> None:
    """Print a model as a program: one line a value, with its format, shape and operation."""
    from samebits import onnx
    from samebits.runtime import cpu

    with _forced(isa):
        program = onnx.load(model)
        click.echo(program)
        if plan:
            session = cpu.prepare(program, threads=threads)
            for text in session.plans(_bindings(program, settings, 16)):
                click.echo(text)


@command.command(name="isas")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def list_isas(as_json: bool) -> None:
    """List the Isa rows, and which of them this machine runs."""
    rows = [
        {"name": row.name, "available": row.available, "lanes": row.lanes, "default": row is isas.best()}
        for row in isas.isas()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        screen.table(
            ["row", "available", "float32 lanes", ""],
            [
                [r["name"], "yes" if r["available"] else "no", r["lanes"], "default" if r["default"] else ""]
                for r in rows
            ],
        )


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@click.option("--verbose", is_flag=True, help="Also the reason of every format that was not kept.")
@click.option("--only", multiple=True, metavar="NAME", help="Try this framework alone (repeatable).")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, verbose: bool, only: tuple[str, ...]) -> None:
    """Show this machine, and try which formats the installed frameworks exchange with samebits, both ways.

    Exits with 0, or with 1 if a format that a framework holds is not kept and samebits is to blame.
    """
    from samebits.doctor import frameworks, report

    known = [row.name for row in frameworks.ROWS]
    for name in only:
        if name not in known:
            raise errors.OptionError("--only", "framework", "", repr(name), f"one of {known}", "name one of these")
    with screen.progress() as progress:
        found = report.examine(only or None, progress=progress)
    if as_json:
        click.echo(json.dumps(screen.doctor_json(found), indent=2))
    else:
        screen.doctor(found, verbose=verbose)
    ctx.exit(found.exit_code)


@command.command()
@click.argument("model", type=_MODEL)
@click.option("--against", type=click.Choice(["onnxruntime"]), help="Also the largest difference from another runtime.")
@click.option("--interpreter", is_flag=True, help="Also the Isa row numpy, for one row; slow.")
@click.option(
    "--most-elements",
    type=click.IntRange(1),
    default=1 << 27,
    show_default=True,
    help="Elements that all values of a run may have: bounds the sizes that are tried, and the time.",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@_isa
@_set
@_seed
@click.pass_context
def verify(
    ctx: click.Context, model: pathlib.Path, against: str | None, interpreter: bool, most_elements: int,
    as_json: bool, isa: str | None, settings: tuple[tuple[str, int], ...], seed: int,
) -> None:  # fmt: skip
    """Try whether a model's answer depends on batch, position, neighbours, threads, Isa row, strides or process.

    Exits with 0 if every configuration gives the same bits, 1 if one does not, 2 if an axis could not be varied.
    """
    from samebits import onnx
    from samebits.verification import compare
    from samebits.verification import verify as verification

    with _forced(isa):
        with screen.progress() as progress:
            report = verification.verify(
                model, bindings=dict(settings), seed=seed, interpreter=interpreter, most_elements=most_elements,
                progress=progress,
            )  # fmt: skip
        compared = None
        if against:
            program = onnx.load(model)
            extents = _bindings(program, settings, verification.DEFAULT_EXTENT)
            compared = compare.against_onnxruntime(program, model, extents, seed)
        if as_json:
            click.echo(json.dumps(screen.report_json(report, compared), indent=2))
        else:
            screen.report(report, compared)
    ctx.exit(report.exit_code)


command.add_command(measuring.tune)
command.add_command(measuring.bench)
