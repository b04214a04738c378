"""The subcommands that measure this machine: `tune` and `bench gemm`."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import click

from samebits import cache, driver, dtypes, errors, tuning
from samebits.bench import chart, peers, worker
from samebits.bench import tune as tuner
from samebits.bench.trial import Problem
from samebits.cli import options, screen
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.kernels.gemm import selection
from samebits.native.table import MAX_THREADS

# A cube in cache and one that is not, a layer on a few rows, one row of a wide one.
_SHAPES = ((256, 256, 256), (1024, 1024, 1024), (8, 768, 3072), (1, 4096, 4096))


_EXTENT = re.compile("[1-9][0-9]{0,7}")


class _ProblemType(options.Value):
    """`M,K,N`."""

    name = "M,K,N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int, int]:
        if isinstance(value, tuple):
            return value
        parts = str(value).replace("x", ",").split(",")
        if len(parts) != 3 or not all(_EXTENT.fullmatch(part) for part in parts):
            self.fail(f"{value!r} is not M,K,N with three positive integers below 10^8", param, ctx)
        return int(parts[0]), int(parts[1]), int(parts[2])


class _Peers(options.Value):
    """`torch,numpy`."""

    name = "torch,numpy,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        known, names = [row.name for row in peers.ROWS], [name for name in str(value).split(",") if name]
        for name in names:
            if name not in known:
                self.fail(f"{name!r} is not one of {', '.join(known)}", param, ctx)
        return tuple(names)


def _row(row: Isa | None) -> Isa:
    """The Isa row to measure.

    Raises:  click.BadParameter if it is interpreted.
    """
    row = isas.current() if row is None else row
    if not row.compiled:
        rows = ", ".join(row.name for row in isas.ROWS if row.compiled and row.available)
        raise click.BadParameter(f"{row.name!r} is interpreted, must be one of {rows}", param_hint="--isa")
    return row


@click.command(short_help="Measure products here, and keep what is faster.")
@options.isa
@click.option(
    "--threads", type=click.IntRange(1, MAX_THREADS), default=1, show_default=True, help="Threads to measure with."
)
@click.option("--quick", is_flag=True, help="Fewer tiles and sizes.")
@click.option("--show", is_flag=True, help="Measure nothing, show what is kept.")
@click.option("--clear", is_flag=True, help="Measure nothing, forget what is kept.")
@options.as_json
def tune(isa: Isa | None, threads: int, quick: bool, show: bool, clear: bool, as_json: bool) -> None:
    """Measure tiles, cache blocks and engines of matrix products on this machine, and keep those that are faster.

    Processes started afterwards plan products with them: other speed, the same bits. They are kept in the cache
    directory for this processor, this version and one Isa row.
    """
    if show and clear:
        raise click.UsageError("--show and --clear exclude each other.")
    row = _row(isa)
    record = None
    if clear:
        tuning.clear(row)
    elif show:
        record = tuning.read(row)
    else:
        if cache.directory() is None:
            remedy = "set SAMEBITS_CACHE_DIR to a directory of your own with mode 0700"
            raise errors.OptionError("tune", "cache directory", "", "none", "one to keep rows in", remedy)
        with screen.progress() as progress:
            record = tuner.tune(row, threads, quick=quick, progress=progress)
        if not tuning.write(record):
            raise errors.OptionError(
                "tune", "cache directory", "", f"{cache.directory()}", "writable", "make room there"
            )
    if as_json:
        click.echo(json.dumps(screen.tuned_json(row, record), indent=2))
    else:
        screen.tuned(row, record)


@click.group()
def bench() -> None:
    """Measure kernels on this machine."""


@bench.command()
@click.argument("shapes", nargs=-1, type=_ProblemType(), metavar="[M,K,N]...")
@click.option("--dtype", default="float32", show_default=True, help="Of both operands, or of each: uint8,int8.")
@options.threads
@options.isa
@click.option("--packed", is_flag=True, help="Pack b before it is timed, as a weight that is kept.")
@click.option("--every", is_flag=True, help="Every form with every tile and size; slow.")
@click.option("--against", type=_Peers(), help="Libraries to measure beside; default: those installed.")
@click.option(
    "--assert", "asserts", is_flag=True, help="Exit with 1 if a picked kernel lags the best by more than 5 %."
)
@click.option("--chart", "picture", type=options.OutputFile(), help="Also a PNG.")
@options.as_json
@click.pass_context
def gemm(
    ctx: click.Context, shapes: tuple[tuple[int, int, int], ...], dtype: str, threads: int | None, isa: Isa | None,
    packed: bool, every: bool, against: tuple[str, ...] | None, asserts: bool, picture: pathlib.Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Rank the kernels that can compute products, with the picked one marked, beside other libraries.

    Rates are medians of calls in turns. Exits with 0, with --assert 1 if a picked kernel lags, 2 if something asked for
    is not installed.
    """
    row = _row(isa)
    a, b = _operands(dtype, row)
    chosen = peers.ROWS if against is None else peers.named(against)
    missing = [] if against is None else [peer for peer in chosen if not peer.installed]
    if missing:
        packages = " ".join(peer.package for peer in missing)
        raise options.Missing(f"--against: {', '.join(x.name for x in missing)} not installed; pip install {packages}")
    if picture is not None:
        with options.asked("--chart"):
            chart.check()
    problems = [Problem(m, k, n, a, b, packed) for m, k, n in shapes or _SHAPES]
    names = [peer.name for peer in chosen if peer.installed]
    with screen.progress() as progress:
        rankings = worker.ranked(
            problems,
            row.name,
            threads or min(driver.usable_cores(), MAX_THREADS),
            names,
            every=every,
            progress=progress,
        )
    exit_code = int(asserts and any(ranking.lags for ranking in rankings))
    if as_json:
        click.echo(json.dumps(screen.rankings_json(rankings, exit_code), indent=2))
    else:
        screen.rankings(rankings)
    if picture is not None:
        with options.named("bench gemm", "--chart"):
            chart.draw(rankings, picture)
    ctx.exit(exit_code)


def _operands(dtype: str, row: Isa) -> tuple[DType, DType]:
    """The dtypes of a and b.

    Raises:  click.BadParameter if there are none such, or if nothing multiplies them.
    """
    names = dtype.split(",")
    if len(names) > 2:
        raise click.BadParameter(f"{dtype!r} is not one name, or two", param_hint="--dtype")
    with options.asked("--dtype"):
        a, b = dtypes.of(names[0]), dtypes.of(names[-1])
        selection.engine_for(a, b, row, tuning.machine(row))
    return a, b
