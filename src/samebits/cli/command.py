"""The subcommands and their options. Start at `command`; what each does is the library's, how it prints `screen`'s."""

from __future__ import annotations

import contextlib
import json
import pathlib

import click
import numpy as np

import samebits
from samebits import checkpoint, samples
from samebits.cli import converting, measuring, options, screen
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.kernels.gemm.contraction import Spec


def _forced(isa: Isa | None) -> contextlib.AbstractContextManager[object]:
    """The Isa row in force, if one is asked for."""
    return isas.use_isa(isa) if isa else contextlib.nullcontext()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(samebits.__version__, prog_name="samebits")
def command() -> None:
    """Low-precision tensors and models, with the same bits everywhere."""


@command.command(short_help="Run an ONNX model once, and print what came out.")
@options.model
@click.option("--input", "given", type=options.READABLE, help="An .npz, .safetensors or .npy of all inputs.")
@click.option(
    "--output", type=options.OutputFile(checkpoint.KINDS, bare=True),
    help="Write the outputs to an .npz, .safetensors or .npy.",
)  # fmt: skip
@options.threads
@options.isa
@options.set_
@options.seed
@options.spec
@options.as_json
def run(
    model: pathlib.Path, given: pathlib.Path | None, output: pathlib.Path | None, threads: int | None,
    isa: Isa | None, settings: options.Settings, seed: int, spec: Spec, as_json: bool,
) -> None:  # fmt: skip
    """Run an ONNX model once and print its outputs' shapes and digests.

    Without --input the inputs are made up from --seed, and the answer says so: token ids within the table they index,
    masks of ones and zeros, normal floats. Formats that NumPy lacks are carried as their bits (see samebits.samples).
    """
    from samebits.runtime import cpu
    from samebits.verification import rows

    with _forced(isa):
        program, free = options.opened(model, settings, spec)
        if given and free:
            told = "--set binds the symbols of made up inputs: not with --input, whose arrays say them."
            raise click.UsageError(told)
        if output is not None:
            with options.asked("--output"):
                samples.check_written(output, {name: fact.dtype for name, fact in program.outputs.items()})
        made_up: dict[str, int] | None = None
        if given:
            with options.named("run", "--input"):
                feeds = samples.read(given)
        else:
            extents = options.bindings(program, free, 1)
            feeds = samples.feeds(program, extents, seed)
            made_up = extents | settings
        session = cpu.prepare(program, threads=threads)
        answer = {name: np.asarray(x) for name, x in session.run(feeds).items()}
        if output is not None:
            with options.named("run", "--output"):
                samples.write(output, answer)
        found = screen.Answer(answer, rows.digest([answer]), isas.current().name, made_up, seed)
        if as_json:
            click.echo(json.dumps(screen.outputs_json(found), indent=2))
        else:
            screen.outputs(found)


@command.command(short_help="Print a model as a program, and its kernels' plans.")
@options.model
@click.option("--plan", is_flag=True, help="Also the plan of every kernel, for the shapes given by --set.")
@options.threads
@options.isa
@options.set_
@options.spec
@options.as_json
def dump(
    model: pathlib.Path, plan: bool, threads: int | None, isa: Isa | None, settings: options.Settings, spec: Spec,
    as_json: bool,
) -> None:  # fmt: skip
    """Print a model as a program: one line a value, with its format, shape and operation."""
    from samebits.runtime import cpu

    with _forced(isa):
        program, free = options.opened(model, settings, spec)
        bindings = options.bindings(program, free, 16)
        plans = [*cpu.prepare(program, threads=threads).plans(bindings)] if plan else None
    if as_json:
        click.echo(json.dumps(screen.program_json(program, bindings if plan else None, plans), indent=2))
    else:
        click.echo("\n".join([str(program), *(plans or ())]))


@command.command(name="isas")
@options.as_json
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


@command.command(short_help="Show this machine, and try what its frameworks exchange.")
@options.as_json
@click.option("--verbose", is_flag=True, help="Also the reason of every format that was not kept.")
@click.option("--only", multiple=True, metavar="NAME", help="Try this framework alone (repeatable).")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, verbose: bool, only: tuple[str, ...]) -> None:
    """Show this machine, and try which formats the installed frameworks exchange with samebits, both ways.

    Exits with 0, with 1 if a format that a framework holds is not kept and samebits is to blame, with 2 if a framework
    could not be tried to the end or one that is named is not installed.
    """
    from samebits.doctor import frameworks, report

    known = [row.name for row in frameworks.ROWS]
    for name in only:
        if name not in known:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(known)}", ctx, param_hint="--only")
    with screen.progress() as progress:
        found = report.examine(only or None, progress=progress)
    if as_json:
        click.echo(json.dumps(screen.doctor_json(found), indent=2))
    else:
        screen.doctor(found, verbose=verbose)
    ctx.exit(found.exit_code)


@command.command(short_help="Try whether a model's answer depends on anything else.")
@options.model
@click.option("--against", type=click.Choice(["onnxruntime"]), help="Also the largest difference from another runtime.")
@click.option("--interpreter", is_flag=True, help="Also the Isa row numpy, for one row; slow.")
@click.option(
    "--most-elements",
    type=click.IntRange(1),
    default=1 << 27,
    show_default=True,
    help="Elements that all values of a run may have: bounds the sizes that are tried, and the time.",
)
@options.as_json
@options.isa
@options.set_
@options.seed
@options.spec
@click.pass_context
def verify(
    ctx: click.Context, model: pathlib.Path, against: str | None, interpreter: bool, most_elements: int,
    as_json: bool, isa: Isa | None, settings: options.Settings, seed: int, spec: Spec,
) -> None:  # fmt: skip
    """Try whether a model's answer depends on batch, position, neighbours, threads, Isa row, strides or process.

    Exits with 0 if every configuration gives the same bits, 1 if one does not, 2 if an axis could not be varied.
    """
    from samebits import optional
    from samebits.verification import compare
    from samebits.verification import verify as verification

    if against and not optional.is_installed(against):
        raise options.Missing(f"--against: {against} is not installed; pip install {optional.requirement(against)}")
    with _forced(isa):
        with screen.progress() as progress, options.asked("--set", "bindings"):
            report = verification.verify(
                model, bindings=settings, seed=seed, interpreter=interpreter, most_elements=most_elements,
                spec=spec, progress=progress,
            )  # fmt: skip
        compared = None
        if against:
            program, free = options.opened(model, settings, spec)
            extents = options.bindings(program, free, verification.DEFAULT_EXTENT)
            compared = compare.against_onnxruntime(program, model, extents, seed)
        if as_json:
            click.echo(json.dumps(screen.report_json(report, compared), indent=2))
        else:
            screen.report(report, compared)
    ctx.exit(report.exit_code)


command.add_command(converting.formats)
command.add_command(converting.cast)
command.add_command(converting.quantize)
command.add_command(measuring.tune)
command.add_command(measuring.bench)
