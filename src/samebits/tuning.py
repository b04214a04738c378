"""What is fast on this machine: its row of `kernels.gemm.machine`, with what `samebits tune` measured on it.

Measurements are rows of `kernels.gemm.tuned`, one file for each Isa row.

A file lies beside the compiled objects (`cache`: private, atomic, bounded, no error where there is no
directory). Its name and its content say for which version, kernels, processor and Isa row it was measured; anything
else, and anything malformed, is as if absent. A process reads it once, when it first plans a product on that row, so
that a plan's rows never change under it. They change speed, never bits. Start at `machine`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import samebits
from samebits import cache, driver, dtypes
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.frozen import dataclass, replace
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm import machine as machines
from samebits.kernels.gemm import selection
from samebits.kernels.gemm.machine import Machine
from samebits.kernels.gemm.tiles import Tile
from samebits.kernels.gemm.tuned import Preferred, Sizes, Tuned
from samebits.native import sources

LIMIT_BYTES = 64 * 1024
# What decides how fast a tile with its blocks is, and over what that is a gain: the texts of products, how the blocks
# are cut, what is shipped for machines.
_TEXTS = ("macrokernel", "following", "stream", "pack", "tile_microkernel")
MEASURED = tuple(f"samebits.kernels.gemm.{name}" for name in (*_TEXTS, "tiles", "blocks", "tuned", "machine"))
# The least and the most that a size may be, four times what `samebits tune` tries and more: nonsense in a file is only
# slow, and takes at most 4 MB a thread and 256 MB of scratch memory.
_BOUNDS = {
    "a_bytes": (1 << 14, 1 << 22),
    "kc": (1 << 8, 1 << 13),
    "kc_few_rows": (1 << 8, 1 << 15),
    "staged_bytes": (1 << 20, 1 << 28),
}
_kept: dict[Isa, Machine] = {}


@dataclass(frozen=True, slots=True)
class Record:
    """One Isa row's measurements.

    Attributes:
        isa: Its name.
        threads: How many they were made with.
        rows: Those that beat the shipped choice of their engine.
        gains: `(engine, its speed over the shipped choice's)` for each engine that was measured.
        preferred: The engines that beat the shipped one for a pair of formats.
        pairs: `(a, b, the best engine's speed over the shipped one's)` for each pair of formats for which several were
            measured.
    """

    isa: str
    threads: int
    rows: tuple[Tuned, ...]
    gains: tuple[tuple[str, float], ...]
    preferred: tuple[Preferred, ...] = ()
    pairs: tuple[tuple[str, str, float], ...] = ()


def machine(isa: Isa) -> Machine:
    """The machine in force in this process for products on `isa`: the shipped one, with what was measured."""
    found = _kept.get(isa)
    if found is None:
        found, record = shipped(isa), read(isa)
        if record is not None:
            found = replace(found, preferred=record.preferred, tuned=record.rows)
        # The first answer stands, whoever else reads meanwhile: panels and plans must agree about their width.
        found = _kept.setdefault(isa, found)
    return found


def shipped(isa: Isa) -> Machine:
    """This machine's row where nothing was measured; the default for an Isa row that does not run on its processor."""
    return machines.current() if isa.compiled and isa.available else machines.DEFAULT


def fingerprint(isa: Isa) -> dict[str, str]:
    """What a measurement is true of."""
    return {
        "samebits": samebits.__version__,
        "kernels": sources.digest(MEASURED),
        "processor": driver.processor(),
        "isa": isa.name,
    }


def read(isa: Isa) -> Record | None:
    """What the file of `isa` holds; None where there is none that is this machine's, this version's and whole."""
    if not _is_tunable(isa):
        return None
    payload = cache.read(_key(isa), LIMIT_BYTES)
    if payload is None:
        return None
    import json  # which a process without measurements does without

    try:
        return _record(json.loads(payload), isa)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def write(record: Record) -> bool:
    """Keep a record for the processes to come; whether there was somewhere to keep it."""
    import json

    isa = isas.named(record.isa)
    made = asdict(record) | {"fingerprint": fingerprint(isa)}
    return cache.write(_key(isa), json.dumps(made, allow_nan=False).encode())


def clear(isa: Isa) -> bool:
    """Forget what was measured on `isa`; whether there was anything."""
    return _is_tunable(isa) and cache.remove(_key(isa))


def _is_tunable(isa: Isa) -> bool:
    """Whether measurements on the row can be made here at all."""
    return isa in isas.ROWS and isa.compiled and isa.available


def _key(isa: Isa) -> str:
    return "tuned-" + cache.digest(repr(sorted(fingerprint(isa).items())).encode())[:32]


def _record(found: Mapping[str, Any], isa: Isa) -> Record | None:
    """A record from plain values.

    Raises:  ValueError, KeyError, TypeError or OverflowError if they are no record's.
    """
    if found["fingerprint"] != fingerprint(isa) or found["isa"] != isa.name:
        return None
    return Record(
        isa=isa.name,
        threads=_integer(found["threads"], 1, 1 << 16),
        rows=tuple(_row(x, isa) for x in found["rows"]),
        gains=tuple((_engine(name), _gain(gain)) for name, gain in found["gains"]),
        preferred=tuple(_preferred(x, isa) for x in found["preferred"]),
        pairs=tuple((_dtype(a).name, _dtype(b).name, _gain(gain)) for a, b, gain in found["pairs"]),
    )


def _row(found: Mapping[str, Any], isa: Isa) -> Tuned:
    sizes = {x.name: _integer(found["sizes"][x.name], *_BOUNDS[x.name]) for x in fields(Sizes)}
    tile = Tile(_integer(found["tile"]["mr"], 1, isa.registers), _integer(found["tile"]["nv"], 1, isa.registers))
    if not tile.fits(isa):
        raise ValueError(f"no tile of {isa.name}: {tile}")
    return Tuned(_engine(found["engine"]), tile, Sizes(**sizes))


def _preferred(found: Mapping[str, Any], isa: Isa) -> Preferred:
    a, b, engine = _dtype(found["a"]), _dtype(found["b"]), _engine(found["engine"])
    if engine not in [row.name for row in selection.candidates(a, b, isa)]:
        raise ValueError(f"{engine} does not multiply {a.name} and {b.name} on {isa.name}")
    return Preferred(a.name, b.name, engine)


def _dtype(name: object) -> DType:
    found = next((row for row in dtypes.ROWS if row.name == name), None)
    if found is None:
        raise ValueError(f"{name!r} is no dtype")
    return found


def _gain(found: object) -> float:
    gain = float(found)  # type: ignore[arg-type]
    if not math.isfinite(gain):
        raise ValueError(f"{gain} is no speed")
    return gain


def _engine(name: object) -> str:
    if name not in [engine.name for engine in engines.ROWS]:
        raise ValueError(f"{name!r} is no engine")
    return str(name)


def _integer(value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{value!r} is not within {least} .. {most}")
    return value
