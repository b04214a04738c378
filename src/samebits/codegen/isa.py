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

from samebits import errors
from samebits.codegen.host import host
from samebits.frozen import dataclass


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

    `instructions`: words of the vocabulary that are one instruction here; elsewhere they are made of plain ones. And
    `float16`, if one converts float16 from and to float32.
    """

    name: str
    lanes: int
    registers: int
    targets: tuple[Target, ...] = ()
    instructions: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)  # a part of every key that plans and kernels are found by

    @property
    def available(self) -> bool:
        """True if this machine can run the row."""
        return not self.targets or _host_target(self) is not None

    @property
    def has_tiles(self) -> bool:
        """Whether one instruction multiplies tiles, for which a process needs leave (`permission`)."""
        return any(word.startswith("tile_") for word in self.instructions)

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


_LOOKUP_AT, _BYTES, _HALF = "lookup_at", "lookup_bytes", "float16"
_DOT16, _DOT8, _DOT8_SIGNED, _DOT_BF16 = "dot2_int16", "dot4_uint8_int8", "dot4_int8", "dot2_bfloat16"
_TILES = (
    *(f"tile_dot4_{signs}" for signs in ("int8", "int8_uint8", "uint8_int8", "uint8")), "tile_dot2_bfloat16",
)  # fmt: skip

ROWS: tuple[Isa, ...] = (
    Isa("numpy", 64, 1024),
    Isa("scalar", 1, 16, (Target("x86_64", "x86-64", "+fma", ("fma",)), _AARCH64)),
    Isa("neon", 4, 32, (_AARCH64,), (_BYTES, _HALF)),
    Isa("neon_dot", 4, 32, (_AARCH64_DOT,), (_BYTES, _HALF, _DOT8_SIGNED)),
    Isa("avx2", 8, 16, _v3(), (_LOOKUP_AT, _BYTES, _HALF, _DOT16)),
    Isa("avx_vnni", 8, 16, _v3("avxvnni"), (_LOOKUP_AT, _BYTES, _HALF, _DOT16, _DOT8)),
    Isa("avx512", 16, 32, _v4(), ("lookup", _LOOKUP_AT, _BYTES, _HALF, _DOT16)),
    Isa("avx512_vnni", 16, 32, _v4("avx512vnni"), ("lookup", _LOOKUP_AT, _BYTES, _HALF, _DOT16, _DOT8)),
    Isa(
        "avx512_bf16",
        16,
        32,
        _v4("avx512vnni", "avx512bf16"),
        ("lookup", _LOOKUP_AT, _BYTES, _HALF, _DOT16, _DOT8, _DOT_BF16),
    ),
    Isa(
        "avx512_amx",
        16,
        32,
        _v4("avx512vnni", "avx512bf16", "amx-tile", "amx-int8", "amx-bf16"),
        ("lookup", _LOOKUP_AT, _BYTES, _HALF, _DOT16, _DOT8, _DOT_BF16, *_TILES),
    ),
)

# Rows beside these that may be given; empty but in tests.
_admitted: list[Isa] = []
FORCED: contextvars.ContextVar[Isa | None] = contextvars.ContextVar("samebits_isa", default=None)


def host_arch() -> str:
    """This machine's architecture by LLVM's name."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def host_cpu() -> str:
    """This machine's processor by LLVM's name, as `znver4`; a baseline's or `generic` where LLVM does not know it."""
    return host().cpu


def _host_features() -> frozenset[str]:
    return host().features


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
    return given("use_isa", name)


def given(call: str, isa: object) -> Isa:
    """The row that a public function was given, or given the name of.

    LLVM ends the process over a target that it does not know, and a processor over an instruction: so a row is one of
    `ROWS`, whatever else an `Isa` could say.

    Raises:  OptionError if it is none, or if this machine cannot run it.
    """
    name = isa.name if isinstance(isa, Isa) else isa
    for row in (*ROWS, *_admitted):
        # Names first: to compare all of two rows takes longer than the rest of a `use_isa` block.
        if isinstance(name, str) and name == row.name and (name is isa or isa == row):
            _check_available(call, row)
            return row
    if isinstance(isa, str):
        expected = f"one of {[row.name for row in ROWS]}"
        raise errors.OptionError(call, "name", "value", repr(isa), expected, "see samebits.isas()")
    actual = f"a made-up row, {errors.shown(isa.name)}" if isinstance(isa, Isa) else errors.shown(isa)
    raise errors.OptionError(call, "isa", "", actual, "a row of samebits.isas() or its name", "see samebits.isas()")


def admit(row: Isa) -> None:
    """Take a row for one of `ROWS` wherever one is given: for tests, whose made-up rows no machine has."""
    if row not in _admitted:
        _admitted.append(row)


def _check_available(call: str, isa: Isa) -> None:
    if not isa.available:
        raise errors.OptionError(

                call, f"row {isa.name!r}", "state", "unavailable on this machine",
                f"one of {[row.name for row in ROWS if row.available]}", "choose an available row"
        )  # fmt: skip


@functools.cache
def best() -> Isa:
    """The last available row: the fastest that this machine runs."""
    return [isa for isa in ROWS if isa.available][-1]


def current() -> Isa:
    """The row in force here: the one forced by `use_isa`, else `best()`."""
    return FORCED.get() or best()


class use_isa(contextlib.ContextDecorator):
    """Force one Isa row, given by itself or by name, for the current context (thread, async task) until a block ends.

    It is for `with use_isa("scalar"):`, or for `@use_isa("scalar")` over a function; by itself it forces nothing.

    Raises:  OptionError if the row is unknown or unavailable here.
    """

    def __init__(self, isa: str | Isa) -> None:
        self._row = given("use_isa", isa)
        self._token: contextvars.Token[Isa | None] | None = None

    def __enter__(self) -> Isa:
        if self._token is not None:
            remedy = "call use_isa for each block"
            raise errors.OptionError("use_isa", "block", "state", "entered already", "entered once at a time", remedy)
        self._token = FORCED.set(self._row)
        return self._row

    def __exit__(self, *_: object) -> None:
        token, self._token = self._token, None
        if token is not None:
            FORCED.reset(token)

    def __repr__(self) -> str:
        if self._token is not None:
            return f"<use_isa({self._row.name!r}), in force>"
        return f"<use_isa({self._row.name!r}), not in force: write `with use_isa({self._row.name!r}):`>"

    def _recreate_cm(self) -> use_isa:
        """One of its own for each call of a function that it decorates, which may be called in several threads."""
        return use_isa(self._row)
