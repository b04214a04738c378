"""Tuned rows change plans and never bits; a file that is another machine's or damaged is as if absent."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from gemm_run import contraction, execute, matrix, measured, product, same
from read_only import refuse_changes
from rows import COMPILED_ROWS

import samebits as sb
from samebits import cache, driver, tuning
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.kernels import gemm
from samebits.kernels.gemm import Contraction, Matrix, Panels, reference
from samebits.kernels.gemm import machine as machines
from samebits.kernels.gemm.engine import FMA32, ROWS
from samebits.kernels.gemm.machine import DEFAULT
from samebits.kernels.gemm.tiles import Tile, tile_for
from samebits.kernels.gemm.tuned import Preferred, Sizes, Tuned

SMALL = Sizes(a_bytes=1 << 14, kc=256, kc_few_rows=512, staged_bytes=1 << 20)
# Three engines.
PAIRS = (("float32", "float32"), ("bfloat16", "bfloat16"), ("int8", "int8"))


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty cache directory in force for this test."""
    path = tmp_path / "cache"
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(path))
    return path


def record(isa: Isa, nv: int = 1, threads: int = 1) -> tuning.Record:
    """An odd tile for every engine, and an engine that no machine's row would take first."""
    rows = tuple(Tuned(engine.name, Tile(3, nv), SMALL) for engine in ROWS)
    preferred, pairs = (Preferred("int8", "int8", "int32"),), (("int8", "int8", 1.5), ("bfloat16", "bfloat16", 1.0))
    return tuning.Record(isa.name, threads, rows, tuple((row.engine, 1.25) for row in rows), preferred, pairs)


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_tuned_rows_give_the_same_bits(isa: Isa) -> None:
    for m, k, n in ((7, 300, 33), (70, 90, 65)):
        a, b = draw(m, k), draw(k, n, seed=1)
        expected = reference(a, b)
        for nv in (1, 3):
            machine = measured(Tuned(FMA32.name, Tile(2, nv), SMALL))
            if Tile(2, nv).fits(isa):
                assert same(product(a, b, isa, machine=machine), expected)
                assert same(product(a, b, isa, form="staged", machine=machine), expected)


def test_tuned_choices_are_printed() -> None:
    isa = COMPILED_ROWS[-1]
    c = contraction(50, 60, 700, Matrix(700, 1), Matrix(60, 1), Matrix(60, 1))
    plain, engine = gemm.plan(c, isa), DEFAULT.row(FMA32, isa)
    assert "tuned" not in str(plain)
    assert gemm.plan(c, isa, machine=measured(engine)) == plain
    facts = dict(gemm.plan(c, isa, machine=measured(Tuned(FMA32.name, Tile(3, 1)))).facts)
    assert facts["tile"].startswith("MR 3 NR ")
    assert facts["tile"].endswith(" panels wide (tuned)")
    assert "tuned" not in facts["blocks"]
    facts = dict(gemm.plan(c, isa, machine=measured(replace(engine, sizes=SMALL))).facts)
    assert facts["blocks"].endswith(" (tuned)")
    assert "tuned" not in facts["tile"]
    assert "tuned" not in str(gemm.plan(c, isa, tile=Tile(3, 1), machine=measured(Tuned(FMA32.name, Tile(2, 1)))))
    assert "tuned" not in str(gemm.plan(c, isa, machine=measured(Tuned("fma float64", Tile(2, 1)))))


def test_panels_of_the_shipped_width_are_taken_beside_a_tuned_tile() -> None:
    isa = COMPILED_ROWS[-1]
    nv = tile_for(isa).nv
    tuned = measured(Tuned(FMA32.name, Tile(2, nv + 1)))
    a, b = draw(5, 90), draw(90, 70, seed=1)
    for machine in (DEFAULT, tuned):
        width = gemm.panel_columns(isa, machine=machine)
        panels = np.empty(gemm.packed_elements(90, 70, isa, machine=machine), np.float32)
        execute(gemm.plan_pack(90, 70, matrix(b, b.shape), isa, machine=machine), [b, panels])
        c = contraction(5, 70, 90, Matrix(90, 1), Panels(width), Matrix(70, 1))
        out = np.empty((5, 70), np.float32)
        execute(gemm.plan(c, isa, machine=tuned), [a, panels, out])
        assert same(out, reference(a, b))
    with pytest.raises(sb.PlanError, match="panel width is"):
        gemm.plan(c, isa)


# What another process plans, computes and packs; (float64, float32) and so on are drawn alike in both.
SCRIPT = """
import pickle, sys
import numpy as np, ml_dtypes
import samebits as sb

def operands(kinds):
    for i, (kind, shape) in enumerate(zip(kinds, ((37, 301), (301, 83)))):
        x = np.random.default_rng(i).integers(0, 100, shape)
        yield x.astype(kind) if "int" in kind else (x / 64 - 0.7).astype(getattr(ml_dtypes, kind, kind))

def answers(pairs, isa):
    found = {}
    with sb.use_isa(isa):
        for kinds in pairs:
            a, b = operands(kinds)
            found[kinds] = (sb.matmul(a, b).tobytes(), str(sb.plan_matmul(a, b)), sb.pack(b, left=a.dtype))
    return found

if __name__ == "__main__":
    pairs, isa, kept = pickle.load(sys.stdin.buffer)
    found = answers(pairs, isa)
    with sb.use_isa(isa):
        again = {kinds: sb.matmul(next(operands(kinds)), packed).tobytes() for kinds, packed in kept.items()}
    pickle.dump((found, again), sys.stdout.buffer)
"""


def test_a_process_uses_what_was_tuned_and_gives_the_same_bits(folder: pathlib.Path) -> None:
    isa = isas.best()
    names: dict[str, object] = {"__name__": "script"}
    exec(SCRIPT, names)
    mine = names["answers"](PAIRS, isa.name)  # type: ignore[operator]
    assert not any("tuned" in text for _, text, _ in mine.values())
    assert tuning.write(record(isa))
    asked = pickle.dumps((PAIRS, isa.name, {kinds: packed for kinds, (_, _, packed) in mine.items()}))
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=asked, capture_output=True, check=True)
    theirs, again = pickle.loads(done.stdout)
    for kinds in PAIRS:
        assert theirs[kinds][0] == mine[kinds][0] == again[kinds], kinds
        assert "MR 3 NR" in theirs[kinds][1]
        assert theirs[kinds][1].count("(tuned)") == 2 + (kinds == ("int8", "int8"))
        # Panels of a tuned width are refused where nothing is tuned, never misread; codes are read there too.
        packed = theirs[kinds][2]
        assert packed.nr != mine[kinds][2].nr
        a = next(names["operands"](kinds))  # type: ignore[operator]
        with sb.use_isa(isa):
            if packed.engine.endswith(" codes"):
                assert sb.matmul(a, packed).tobytes() == mine[kinds][0]
                continue
            with pytest.raises(sb.PlanError, match="panel width is"):
                sb.matmul(a, packed)


def test_a_plan_made_where_nothing_was_tuned_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    isa = isas.best()
    a, b = draw(9, 67, seed=7), draw(67, 41, seed=8)
    plan, expected = sb.plan_matmul(a, b), sb.matmul(a, b)
    monkeypatch.setitem(tuning._kept, isa, replace(machines.current(), tuned=record(isa).rows))
    tuned = sb.plan_matmul(a, b)
    assert tuned != plan
    for obeyed in (pickle.loads(pickle.dumps(plan)), tuned):
        assert same(sb.matmul(a, b, plan=obeyed), expected)
    with pytest.raises(sb.PlanError, match="strides, options or tiles"):
        sb.matmul(a, b, plan=gemm.plan(_contraction(a, b), isa, tile=Tile(2, 1)))


def _contraction(a: np.ndarray, b: np.ndarray) -> Contraction:
    (m, k), n = a.shape, b.shape[1]
    return contraction(m, n, k, Matrix(k, 1), Matrix(n, 1), Matrix(n, 1))


def test_what_is_kept_is_read_and_cleared(folder: pathlib.Path) -> None:
    isa = isas.best()
    assert tuning.read(isa) is None
    assert not tuning.clear(isa)
    assert tuning.write(record(isa, 2, threads=3))
    assert tuning.read(isa) == record(isa, 2, threads=3)
    assert [path.name.startswith("tuned-") for path in folder.iterdir()] == [True]
    other = COMPILED_ROWS[0]
    assert tuning.read(other) is None
    assert tuning.write(record(other))
    assert tuning.clear(isa)
    assert (tuning.read(isa), tuning.read(other)) == (None, record(other))


def test_rows_without_code_of_this_machine_have_nothing_tuned(folder: pathlib.Path) -> None:
    for isa in isas.ROWS:
        if not (isa.compiled and isa.available):
            assert tuning.machine(isa) == DEFAULT
            assert not tuning.clear(isa)
    assert tuning.machine(replace(isas.best(), name="made up")) == machines.current()


@pytest.mark.parametrize("content", [b"", b"tuned", None, b"\0" * 100_000], ids=["empty", "short", "flipped", "long"])
def test_a_corrupt_file_is_as_if_absent(folder: pathlib.Path, content: bytes | None) -> None:
    isa = isas.best()
    assert tuning.write(record(isa))
    (path,) = folder.iterdir()
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole if content is None else content)
    assert tuning.read(isa) is None
    assert tuning.write(record(isa))
    assert tuning.read(isa) == record(isa)


def _keep(isa: Isa, changes: dict[str, object]) -> None:
    """Put a record with these changes where that of `isa` is looked for, with a right digest."""
    assert tuning.write(record(isa))
    (path,) = (x for x in (cache.directory() or pathlib.Path()).iterdir() if x.name.startswith("tuned-"))
    made = json.loads(path.read_bytes()[32:]) | changes
    assert cache.write(path.name.partition(".")[0], json.dumps(made).encode())


ROW = {"engine": "fma float32", "tile": {"mr": 3, "nv": 1}, "sizes": {"a_bytes": 1 << 20}}


@pytest.mark.parametrize(
    "changes",
    [
        {"fingerprint": {}},
        {"isa": "scalar"},
        {"threads": True},
        {"threads": 0},
        {"rows": None},
        {"rows": [ROW]},
        {"rows": [{"engine": "none", "tile": {"mr": 3, "nv": 1}, "sizes": {}}]},
        {"gains": [["fma float32", "fast"]]},
        {"gains": [["fma float32", 10**400]]},
        {"gains": [["fma float32", float("nan")]]},
        {"gains": [["fma float32", float("inf")]]},
        {"gains": [["\x1b[31m", 1.0]]},
        {"gains": 3},
        {"preferred": None},
        {"preferred": [{"a": "int8", "b": "int8", "engine": "none"}]},
        {"preferred": [{"a": "int8", "b": "float99", "engine": "int32"}]},
        {"preferred": [{"a": "float32", "b": "float32", "engine": "bfloat16 pairs"}]},
        {"preferred": [{"a": "float32", "b": "float32", "engine": "fma float64"}]},
        {"preferred": [{"a": "float32", "engine": "fma float32"}]},
        {"pairs": [["int8", "int8", float("inf")]]},
        {"pairs": [["int8", "\x1b[31m", 1.0]]},
        {"pairs": [["int8", 1.0]]},
    ],
    ids=lambda changes: str(changes)[:60],
)
def test_what_is_no_record_is_as_if_absent(folder: pathlib.Path, changes: dict[str, object]) -> None:
    isa = isas.best()
    _keep(isa, changes)
    assert tuning.read(isa) is None


@pytest.mark.parametrize("payload", [b"[]", b"{", b"\xff\xfe", b"null", b"[" * 60_000], ids=lambda x: repr(x[:3]))
def test_what_is_not_json_is_as_if_absent(folder: pathlib.Path, payload: bytes) -> None:
    assert cache.write(tuning._key(isas.best()), payload)
    assert tuning.read(isas.best()) is None


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("tile", {"mr": 0, "nv": 1}),
        ("tile", {"mr": 999, "nv": 1}),
        ("tile", {"mr": 20, "nv": 9}),
        ("engine", "fma float8"),
        ("sizes", {"a_bytes": -1, "kc": 256, "kc_few_rows": 256, "staged_bytes": 1 << 20}),
        ("sizes", {"a_bytes": 1 << 20, "kc": 1 << 40, "kc_few_rows": 256, "staged_bytes": 1 << 20}),
        ("sizes", {"a_bytes": 1 << 26, "kc": 256, "kc_few_rows": 256, "staged_bytes": 1 << 20}),
        ("sizes", {"a_bytes": 1 << 20, "kc": 256, "kc_few_rows": 256, "staged_bytes": 1 << 34}),
        ("sizes", {"a_bytes": 1 << 20, "kc": 256.0, "kc_few_rows": 256, "staged_bytes": 1 << 20}),
    ],
    ids=str,
)
def test_rows_out_of_bounds_are_as_if_absent(folder: pathlib.Path, part: str, value: object) -> None:
    isa = isas.best()
    good = {"engine": "fma float32", "tile": {"mr": 3, "nv": 1}}
    sizes = {"a_bytes": 1 << 20, "kc": 256, "kc_few_rows": 256, "staged_bytes": 1 << 20}
    _keep(isa, {"rows": [good | {"sizes": sizes}]})
    assert tuning.read(isa) is not None
    _keep(isa, {"rows": [good | {"sizes": sizes} | {part: value}]})
    assert tuning.read(isa) is None


def test_a_file_of_another_processor_or_version_is_not_used(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isa = isas.best()
    assert tuning.write(record(isa))
    mine = tuning._key(isa)
    with monkeypatch.context() as other:
        other.setattr(sb, "__version__", "99.0")
        assert tuning.read(isa) is None
    with monkeypatch.context() as other:
        other.setattr(driver, "processor", lambda: "another")
        assert tuning.read(isa) is None
        # Not even under the name of one of its own.
        os.replace(folder / f"{mine}.samebits", folder / f"{tuning._key(isa)}.samebits")
        assert tuning.read(isa) is None
    assert tuning.read(isa) is None


def test_without_a_directory_nothing_is_kept_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", "")
    isa = isas.best()
    assert not tuning.write(record(isa))
    assert tuning.read(isa) is None
    assert not tuning.clear(isa)


def test_a_read_only_directory_is_no_error(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isa = isas.best()
    assert tuning.write(record(isa))
    refuse_changes(monkeypatch)
    assert not tuning.write(record(isa, 2))
    assert not tuning.clear(isa)
    assert tuning.read(isa) == record(isa)


def test_writers_at_once_leave_one_whole_record(folder: pathlib.Path) -> None:
    isa = isas.best()
    assert tuning.write(record(isa))
    made = [record(isa, nv, threads=threads) for nv in (1, 2) for threads in range(1, 9)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        writing = [pool.submit(tuning.write, one) for one in made for _ in range(4)]
        seen = [tuning.read(isa) for _ in range(40)]
        assert all(done.result() for done in writing)
    assert all(one in made or one == record(isa) for one in [*seen, tuning.read(isa)])
    assert len(list(folder.iterdir())) == 1


def test_the_first_answer_of_a_process_stands(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isa = isas.best()
    monkeypatch.setattr(tuning, "_kept", {})
    assert tuning.machine(isa) == tuning.shipped(isa) == machines.current()
    assert tuning.write(record(isa))
    assert tuning.machine(isa) == machines.current()
    monkeypatch.setattr(tuning, "_kept", {})
    found = tuning.machine(isa)
    assert (found.tuned, found.preferred) == (record(isa).rows, record(isa).preferred)
    assert replace(found, tuned=(), preferred=()) == machines.current()


def test_a_processor_is_told_apart() -> None:
    assert driver.processor()
    assert driver.processor() == driver.processor()
