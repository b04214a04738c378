"""Isa rows: what runs here, and what `use_isa` forces for whom."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest
import rows

from samebits.codegen import isa
from samebits.codegen.isa import Isa, Target
from samebits.errors import OptionError

ABSENT = Isa("absent", 4, 16, (Target(isa.host_arch(), "generic", "", ("no such feature",)),))


def test_rows_are_listed_from_the_most_portable_to_the_fastest() -> None:
    assert [row.name for row in isa.isas()] == [
        "numpy", "scalar", "neon", "neon_dot", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16",
        "avx512_amx",
    ]  # fmt: skip
    available = [row for row in isa.isas() if row.available]
    assert available[0].name == "numpy"
    assert isa.best() is available[-1]
    assert isa.current() is available[-1]


def test_no_row_names_the_host() -> None:
    for row in (*isa.isas(), rows.FAKE3):
        assert all(target.cpu not in ("", "host", "native") for target in row.targets)


def test_a_row_is_available_only_with_every_feature_it_needs() -> None:
    assert not ABSENT.available
    assert rows.FAKE3.available == (isa.host_arch() == "aarch64" or "fma" in isa._host_features())
    elsewhere = replace(ABSENT, targets=(Target("riscv64", "generic", ""),))
    assert not elsewhere.available
    with pytest.raises(OptionError) as caught:
        elsewhere.target()
    assert str(caught.value) == (
        f"isa: row absent architecture is {isa.host_arch()}, must be one of ['riscv64']; "
        "choose a row of samebits.isas() that is available"
    )


def test_a_forced_row_is_in_force_until_its_block_ends() -> None:
    before = isa.current()
    with isa.use_isa("numpy") as row:
        assert isa.current() is row is isa.ROWS[0]
        with isa.use_isa(rows.ALL_ROWS[-1]):
            assert isa.current() is rows.ALL_ROWS[-1]
        assert isa.current() is row
        with pytest.raises(ZeroDivisionError), isa.use_isa("numpy"):
            raise ZeroDivisionError
        assert isa.current() is row
    assert isa.current() is before


def test_a_forced_row_is_not_seen_by_other_threads_and_tasks() -> None:
    best, seen = isa.best(), []

    async def forced(started: asyncio.Event, other: asyncio.Event) -> str:
        with isa.use_isa("numpy"):
            started.set()
            await other.wait()
            return isa.current().name

    async def unforced(started: asyncio.Event, other: asyncio.Event) -> str:
        await started.wait()
        found = isa.current().name
        other.set()
        return found

    async def both() -> list[str]:
        events = asyncio.Event(), asyncio.Event()
        return list(await asyncio.gather(forced(*events), unforced(*events)))

    assert asyncio.run(both()) == ["numpy", best.name]
    with isa.use_isa("numpy"):
        thread = threading.Thread(target=lambda: seen.append(isa.current()))
        thread.start()
        thread.join()
    assert seen == [best]


def test_a_row_that_is_unknown_or_unavailable_is_refused() -> None:
    names = [row.name for row in isa.ROWS]
    with pytest.raises(OptionError) as caught, isa.use_isa("sse9"):
        pass
    assert str(caught.value) == f"use_isa: name value is 'sse9', must be one of {names}; see samebits.isas()"
    absent = [row for row in isa.ROWS if not row.available]
    here = [row.name for row in isa.ROWS if row.available]
    for row in absent:
        for given in (row, replace(row), row.name):
            with pytest.raises(OptionError) as caught, isa.use_isa(given):
                pass
            assert str(caught.value) == (
                f"use_isa: row {row.name!r} state is unavailable on this machine, must be one of {here}; "
                "choose an available row"
            )


@pytest.mark.parametrize(
    "given",
    [None, 5, ["numpy"], Target("x86_64", "generic", ""), np.zeros(3), "", "Numpy", b"numpy"],
    ids=lambda x: type(x).__name__,
)
def test_what_is_no_row_is_refused_in_a_sentence(given: object) -> None:
    with pytest.raises(OptionError) as caught:
        isa.use_isa(given)  # type: ignore[arg-type]
    if isinstance(given, str):
        expected = f"use_isa: name value is {given!r}, must be one of {[row.name for row in isa.ROWS]}; "
    else:
        expected = f"use_isa: isa is {given!r}, must be a row of samebits.isas() or its name; "
    assert str(caught.value) == expected + "see samebits.isas()"


def test_a_made_up_row_is_refused_unless_a_test_admits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM ends the process over features that a target lacks, and a processor over instructions that it does."""
    best = isa.best()
    (target,) = (x for x in best.targets if x.arch == isa.host_arch())
    made_up = [
        replace(best, targets=(replace(target, features="+no-such-feature", needs=()),)),
        replace(best, lanes=2 * best.lanes),
        replace(best, name="made up"),
        replace(best, targets=(replace(target, cpu="no such"),)),
        replace(best, targets=[target]),  # type: ignore[arg-type]
        Isa("x", 1, 1, (Target(isa.host_arch(), "generic", ""),)),
    ]
    for row in made_up:
        with pytest.raises(OptionError) as caught:
            isa.use_isa(row)
        assert str(caught.value) == (
            f"use_isa: isa is a made-up row, {row.name!r}, must be a row of samebits.isas() or its name; "
            "see samebits.isas()"
        )
    monkeypatch.setattr(isa, "_admitted", [])
    with pytest.raises(OptionError, match="a made-up row, 'fake3'"):
        isa.use_isa(rows.FAKE3)
    isa.admit(rows.FAKE3)
    isa.admit(rows.FAKE3)
    if rows.FAKE3.available:
        with isa.use_isa("fake3") as row:
            assert row is rows.FAKE3
    assert rows.FAKE3 not in isa.isas()


def test_an_equal_row_is_the_row() -> None:
    row = isa.ROWS[0]
    with isa.use_isa(replace(row)) as forced:
        assert forced is row


def test_a_row_that_no_block_entered_says_that_it_is_not_in_force() -> None:
    before = isa.current()
    left = isa.use_isa("numpy")
    assert isa.current() is before
    told = "<use_isa('numpy'), not in force: write `with use_isa('numpy'):`>"
    assert repr(left) == told
    with left:
        assert repr(left) == "<use_isa('numpy'), in force>"
    assert repr(left) == told


def test_a_block_is_entered_once_at_a_time() -> None:
    before, block = isa.current(), isa.use_isa("numpy")
    for _ in range(2):
        with block:
            with pytest.raises(OptionError) as caught, block:
                pass
            assert isa.current() is isa.ROWS[0]
        assert isa.current() is before
    assert str(caught.value) == (
        "use_isa: block state is entered already, must be entered once at a time; call use_isa for each block"
    )


def test_a_function_may_run_under_a_row() -> None:
    @isa.use_isa("numpy")
    def depth(n: int) -> list[str]:
        return [isa.current().name, *(depth(n - 1) if n else [])]

    before = isa.current()
    assert depth(3) == ["numpy"] * 4
    assert isa.current() is before


def test_the_processor_has_llvms_name() -> None:
    llvm = pytest.importorskip("llvmlite.binding")
    assert isa.host_cpu() == llvm.get_host_cpu_name() != ""
