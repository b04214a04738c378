"""The subcommands that convert files of tensors: `formats`, `cast` and `quantize`."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import click

from samebits import conversions, dtypes, errors
from samebits.checkpoint import chart, converting, reading, writing
from samebits.checkpoint.converting import ConvertedTensor
from samebits.cli import options, screen
from samebits.dtypes import DType
from samebits.kernels.quantize import dialects as dialect_rows
from samebits.kernels.quantize import formats as format_rows
from samebits.ops import block_parts
from samebits.ops.casts import cast as convert_elements
from samebits.tensor import Tensor

_include = click.option("--include", multiple=True, metavar="GLOB", help="Tensors to convert (repeatable).")
_exclude = click.option("--exclude", multiple=True, metavar="GLOB", help="Tensors to leave as they are (repeatable).")


@click.command(short_help="List element formats, block formats and dialects.")
@options.as_json
def formats(as_json: bool) -> None:
    """List the formats: elements, blocks that share a scale, dialects that find the scales, presets of conversions."""
    found = {
        "elements": [_element(row) for row in dtypes.ROWS],
        "blocks": [_block(row) for row in format_rows.ROWS],
        "dialects": [_dialect(row) for row in dialect_rows.ROWS],
        "presets": [{"name": row.name, "equals": row.equals} for row in conversions.PRESETS],
    }
    if as_json:
        click.echo(json.dumps(found | {"exit_code": 0}, indent=2))
        return
    for rows in found.values():
        header = [name.replace("_", " ") for name in rows[0]]
        screen.table(header, [[_cell(x) for x in row.values()] for row in rows])
        click.echo()


def _element(row: DType) -> dict[str, Any]:
    """The facts of an element format."""
    is_float = row.is_float
    return {
        "element": row.name,
        "bits": row.width_bits,
        "exponent": row.exponent_bits if is_float else None,
        "mantissa": row.mantissa_bits if is_float else None,
        "max": row.max,
        "min_normal": row.min_normal if is_float else None,
        "min_subnormal": row.min_subnormal if is_float and row.has_zero else None,
        "nan": row.nan if is_float else None,
        "infinity": row.has_infinity if is_float else None,
    }


def _block(row: format_rows.BlockFormat) -> dict[str, Any]:
    """The facts of a block format."""
    across, along = ("all" if n is None else n for n in row.block)
    return {
        "blocks": row.name,
        "elements": row.element.name,
        "block": f"{across} x {along}",
        "scales": row.scale.name,
        "global_scale": row.global_scale.name if row.global_scale else None,
        "zero_points": row.zero_point.name if row.zero_point else None,
        "bits_an_element": row.bits,
        "default_dialect": dialect_rows.default(row).name,
    }


def _dialect(row: dialect_rows.Dialect) -> dict[str, Any]:
    """The facts of a dialect."""
    return {"dialect": row.name, "formats": list(row.formats), "formula": row.text}


def _cell(x: Any) -> str:
    if isinstance(x, list):
        return f"{x[0]} .. {x[-1]}" if len(x) > 2 else ", ".join(x)
    if isinstance(x, bool):
        return "yes" if x else "no"
    return "" if x is None else f"{x:g}" if isinstance(x, float) else str(x)


class _Nan(options.Value):
    """`canonical`, `signed` or a code."""

    name = "canonical|signed|CODE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | int:
        if value in ("canonical", "signed") or isinstance(value, int):
            return value  # type: ignore[no-any-return]
        try:
            return int(str(value), 0)
        except ValueError:
            self.fail(f"{value!r} is neither canonical, signed nor a code such as 0x7f", param, ctx)


@click.command(short_help="Convert the tensors of a file to another format.")
@click.argument("file", type=options.READABLE, metavar="IN")
@click.argument("output", type=options.OutputFile(writing.KINDS), metavar="OUT")
@click.option("--dtype", required=True, metavar="NAME", help="The format to convert to; see samebits formats.")
@click.option(
    "--rounding", type=click.Choice(conversions.ROUNDINGS), help="Default: nearest_even; to integers toward_zero."
)
@click.option("--overflow", type=click.Choice(conversions.OVERFLOWS), help="Of numbers beyond the largest value.")
@click.option("--nan", type=_Nan(), help="What NaN becomes.")
@click.option("--inf", type=click.Choice(conversions.INFINITIES), help="What an infinity becomes.")
@click.option("--seed", type=click.IntRange(0), help="Of stochastic rounding.")
@click.option("--preset", metavar="NAME", help="A conversion by name instead; see samebits formats.")
@_include
@_exclude
@options.as_json
def cast(
    file: pathlib.Path, output: pathlib.Path, dtype: str, include: tuple[str, ...], exclude: tuple[str, ...],
    as_json: bool, **given: Any,
) -> None:  # fmt: skip
    """Convert the tensors of floats of a safetensors, .npz or .npy file to another format, one part at a time.

    OUT's name says its kind. What is converted, and how far it is from what it was, is printed at the end.
    """
    with options.asked("--dtype"):
        to = dtypes.of(dtype)
    chosen = {name: value for name, value in given.items() if value is not None}

    def convert(x: Tensor) -> Tensor:
        made: Tensor = convert_elements(x, to, **chosen)
        return made

    _try(convert)
    with reading.opened("cast", file, True) as source, screen.progress() as progress:
        made = converting.cast_file(
            "cast", source, str(output), to, convert, include=include, exclude=exclude,
            whole=chosen.get("rounding") == "stochastic", progress=progress,
        )  # fmt: skip
    _print(output, made, as_json)


def _try(convert: Callable[[Tensor], Tensor]) -> None:
    """Raise click.BadParameter for options that no conversion has, before anything is read."""
    try:
        convert(Tensor.full((1,), 1.0, "float32"))  # which every format has
    except errors.OptionError as error:
        option = f"--{error.operand.split()[0]}"
        raise click.BadParameter(options.told(error), param_hint=option) from None


@click.command(short_help="Quantise the matrices of a file to a block format.")
@click.argument("file", type=options.READABLE)
@click.option("--format", "row", required=True, metavar="NAME", help="The block format; see samebits formats.")
@click.option("--dialect", metavar="NAME", help="By which formulas; default: the format's own, which is exact.")
@_include
@_exclude
@click.option(
    "-o", "--output", type=options.OutputFile(writing.KINDS), help="Default: beside FILE, FILE-FORMAT.safetensors."
)
@click.option(
    "--chart",
    "picture",
    type=options.OutputFile(("png", "svg"), bare=True),
    help="Also the error of blocks, a PNG or an SVG.",
)
@options.as_json
def quantize(
    file: pathlib.Path, row: str, dialect: str | None, include: tuple[str, ...], exclude: tuple[str, ...],
    output: pathlib.Path | None, picture: pathlib.Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Quantise the matrices of a safetensors, .npz or .npy file to a block format, some rows at a time.

    Blocks lie along the last axis. Tensors of other formats, of one axis, or that blocks do not divide are copied;
    one that --include names must be such a matrix. How far values are from what they were is printed at the end.
    """
    with options.asked("--format"):
        to = format_rows.of(row)
    with options.asked("--dialect"):
        way = dialect_rows.default(to) if dialect is None else block_parts.dialect_of("quantize", dialect, to)
    if picture is not None:
        with options.asked("--chart"):
            chart.check()
    output = output or file.with_name(f"{file.stem}-{to.name}.safetensors")
    if picture is not None and any(_is_one(picture, other) for other in (file, output)):
        raise click.BadParameter(
            f"{str(picture)!r} is the file that is read or written; name another", param_hint="--chart"
        )
    with reading.opened("quantize", file, True) as source, screen.progress() as progress:
        made = converting.quantize_file(
            "quantize", source, str(output), to, way, include=include, exclude=exclude,
            pictured=picture is not None, progress=progress,
        )  # fmt: skip
    if picture is not None:
        with options.named("quantize", "--chart"):
            chart.draw("quantize", made, picture)
    _print(output, made, as_json)


def _is_one(x: pathlib.Path, y: pathlib.Path) -> bool:
    """Whether two paths lead to one file, which may have two names, or to where one would be."""
    return x.samefile(y) if x.exists() and y.exists() else x.resolve() == y.resolve()


def _print(output: pathlib.Path, made: Sequence[ConvertedTensor], as_json: bool) -> None:
    """What became of each tensor."""
    if as_json:
        click.echo(json.dumps({"output": str(output), "tensors": [*map(_plain, made)], "exit_code": 0}, indent=2))
        return
    rows = [
        [x.name, list(x.shape), x.before, x.after, *_distance(x), f"{x.bytes_after / max(x.bytes_before, 1):.3f}"]
        for x in made
    ]
    screen.table(["tensor", "shape", "from", "to", "SQNR dB", "largest error", "of its bytes"], rows)
    before, after = sum(x.bytes_before for x in made), sum(x.bytes_after for x in made)
    changed = sum(not x.reason for x in made)
    size = f"{after / 1e6:.1f} of {before / 1e6:.1f} MB" if before >= 1e6 else f"{after} of {before} bytes"
    click.echo(f"{output}: {changed} of {len(made)} tensors converted, {size}")


def _distance(x: ConvertedTensor) -> tuple[str, str]:
    """How far a tensor is from what it was, or why it is as it was."""
    if x.difference is None:
        return f"kept: {x.reason}", ""
    lost = x.difference
    sqnr = "exact" if lost.sqnr_db == math.inf else f"{lost.sqnr_db:.2f}"
    return sqnr, f"{lost.largest:.4g}" + (f", {lost.not_finite} not finite" if lost.not_finite else "")


def _plain(x: ConvertedTensor) -> dict[str, Any]:
    """The same as plain values; an infinite SQNR, for which JSON has no number, is None."""
    found: dict[str, Any] = {
        "name": x.name, "shape": list(x.shape), "from": x.before, "to": x.after, "kept": x.reason or None,
        "bytes_before": x.bytes_before, "bytes_after": x.bytes_after,
    }  # fmt: skip
    if x.difference is not None:
        lost = x.difference
        sqnr = lost.sqnr_db if math.isfinite(lost.sqnr_db) else None
        found |= {
            "sqnr_db": sqnr, "exact": lost.sqnr_db == math.inf, "largest_error": lost.largest,
            "underflowed": lost.lost, "not_finite": lost.not_finite,
        }  # fmt: skip
    return found
