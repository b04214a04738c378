"""Isa rows: what a kernel may know of the machine it is emitted for, and which rows run here.

A row names a baseline CPU and features, never "host": with `cpu=host` LLVM lets an "avx2" kernel use thirty-two
registers. Rows are listed from the most portable to the fastest; `current()` is the last available one unless
`use_isa` forces another for the context (a thread, a task). Start at `ROWS`.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import platform
from collections.abc import Iterator
from dataclasses import dataclass

from samebits import errors


@dataclass(frozen=True, slots=True)
class Target:
    """One machine that a row compiles for: an LLVM CPU name, its features, and the host features it needs."""

    arch: str
    cpu: str
    features: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Isa:
    """One instruction set: `lanes` float32 in a vector register, `registers` of them.

    `instructions`: words of the vocabulary that are one instruction here; elsewhere they are made of plain ones.
    """

    name: str
    lanes: int
    registers: int
    targets: tuple[Target, ...] = ()
    instructions: tuple[str, ...] = ()

    @property
    def available(self) -> bool:
        """True if this machine can run the row."""
        return not self.targets or _host_target(self) is not None

    @property
    def compiled(self) -> bool:
        """False for the row that interprets kernel text with NumPy."""
        return bool(self.targets)

    def target(self, arch: str | None = None) -> Target:
        """The row's target for `arch` (default: this machine's).

        Raises:  OptionError if the row has none.
        """
        arch = arch or host_arch()
        for target in self.targets:
            if target.arch == arch:
                return target
        raise errors.OptionError(

                "isa", f"row {self.name}", "architecture", arch, f"one of {sorted(t.arch for t in self.targets)}",
                "choose a row of samebits.isas() that is available"
        )  # fmt: skip


# What the psABI's levels x86-64-v3 and x86-64-v4 add and LLVM may therefore use.
_V3 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_AARCH64 = Target("aarch64", "generic", "+neon")
_AARCH64_DOT = Target("aarch64", "generic", "+neon,+dotprod", ("dotprod",))


def _v3(*extensions: str) -> tuple[Target, ...]:
    """The target x86-64-v3 with extensions by LLVM's names."""
    return (Target("x86_64", "x86-64-v3", ",".join(f"+{x}" for x in extensions), (*_V3, *extensions)),)


def _v4(*extensions: str) -> tuple[Target, ...]:
    """The target x86-64-v4 with extensions by LLVM's names, at the full width of its registers."""
    features = ",".join([*(f"+{x}" for x in extensions), "-prefer-256-bit"])
    return (Target("x86_64", "x86-64-v4", features, (*_V4, *extensions)),)


_DOT16, _DOT8, _DOT8_SIGNED, _DOT_BF16 = "dot2_int16", "dot4_uint8_int8", "dot4_int8", "dot2_bfloat16"

ROWS: tuple[Isa, ...] = (
    Isa("numpy", 64, 1024),
    Isa("scalar", 1, 16, (Target("x86_64", "x86-64", "+fma", ("fma",)), _AARCH64)),
    Isa("neon", 4, 32, (_AARCH64,)),
    Isa("neon_dot", 4, 32, (_AARCH64_DOT,), (_DOT8_SIGNED,)),
    Isa("avx2", 8, 16, _v3(), (_DOT16,)),
    Isa("avx_vnni", 8, 16, _v3("avxvnni"), (_DOT16, _DOT8)),
    Isa("avx512", 16, 32, _v4(), ("lookup", _DOT16)),
    Isa("avx512_vnni", 16, 32, _v4("avx512vnni"), ("lookup", _DOT16, _DOT8)),
    Isa("avx512_bf16", 16, 32, _v4("avx512vnni", "avx512bf16"), ("lookup", _DOT16, _DOT8, _DOT_BF16)),
)

FORCED: contextvars.ContextVar[Isa | None] = contextvars.ContextVar("samebits_isa", default=None)


def host_arch() -> str:
    """This machine's architecture by LLVM's name."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


@functools.cache
def _host_features() -> frozenset[str]:
    import llvmlite.binding as llvm

    return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)


@functools.cache
def _host_target(isa: Isa) -> Target | None:
    for target in isa.targets:
        if target.arch == host_arch() and _host_features().issuperset(target.needs):
            return target
    return None


def isas() -> tuple[Isa, ...]:
    """Every Isa row, the most portable first; `.available` tells whether this machine runs it."""
    return ROWS


def named(name: str) -> Isa:
    """The row called `name`.

    Raises:  OptionError if there is none, or if this machine cannot run it.
    """
    for isa in ROWS:
        if isa.name == name:
            _check_available(isa)
            return isa
    raise errors.OptionError(
        "use_isa", "name", "value", repr(name), f"one of {[row.name for row in ROWS]}", "see samebits.isas()"
    )


def _check_available(isa: Isa) -> None:
    if not isa.available:
        raise errors.OptionError(

                "use_isa", f"row {isa.name!r}", "state", "unavailable on this machine",
                f"one of {[row.name for row in ROWS if row.available]}", "choose an available row"
        )  # fmt: skip


@functools.cache
def best() -> Isa:
    """The last available row: the fastest that this machine runs."""
    return [isa for isa in ROWS if isa.available][-1]


def current() -> Isa:
    """The row in force here: the one forced by `use_isa`, else `best()`."""
    return FORCED.get() or best()


@contextlib.contextmanager
def use_isa(isa: str | Isa) -> Iterator[Isa]:
    """Force one Isa row for the current context (thread, async task) until the block ends.

    Raises:  OptionError if the row is unknown or unavailable here.
    """
    row = named(isa) if isinstance(isa, str) else isa
    _check_available(row)
    token = FORCED.set(row)
    try:
        yield row
    finally:
        FORCED.reset(token)
