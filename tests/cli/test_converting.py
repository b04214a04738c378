"""`samebits formats`, `cast` and `quantize`: what they print, the files they leave, and what ends them."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from typing import Any

import apart
import commands
import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner, Result

import samebits as sb
from samebits import checkpoint, conversions, dtypes
from samebits.cli.command import command
from samebits.kernels.quantize import dialects, formats

R = np.random.default_rng(0)
W = R.standard_normal((64, 128)).astype(ml_dtypes.bfloat16)
B = R.standard_normal(64).astype(np.float32)


@pytest.fixture(name="file")
def _file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "in.safetensors"
    checkpoint.save(path, {"w": W, "b": B, "ids": np.arange(5)}, metadata={"made": "here"})
    return path


def samebits(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)


def answer(*arguments: object) -> Any:
    """What it prints with --json."""
    done = samebits(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_formats_lists_every_row() -> None:
    found = answer("formats")
    assert [x["element"] for x in found["elements"]] == [row.name for row in dtypes.ROWS]
    assert [x["blocks"] for x in found["blocks"]] == [row.name for row in formats.ROWS]
    assert [x["dialect"] for x in found["dialects"]] == [row.name for row in dialects.ROWS]
    assert [x["name"] for x in found["presets"]] == [row.name for row in conversions.PRESETS]
    text = samebits("formats").stdout
    assert all(row.name in text for rows in (dtypes.ROWS, formats.ROWS, dialects.ROWS) for row in rows)


@pytest.mark.parametrize("kind", ["safetensors", "npz"])
def test_cast_converts_floats_and_says_how_far_they_are(file: pathlib.Path, kind: str) -> None:
    out = file.with_name(f"out.{kind}")
    found = answer("cast", file, out, "--dtype", "float8_e4m3fn", "--rounding", "toward_zero", "--overflow", "saturate")
    made = checkpoint.load(out)
    for name, x in (("w", W), ("b", B)):
        due = sb.cast(sb.Tensor.from_any(x), "float8_e4m3fn", rounding="toward_zero", overflow="saturate")
        assert made[name].equal_bits(due)
    assert made["ids"].dtype.name == "int64"
    assert found["output"] == str(out)
    by_name = {x["name"]: x for x in found["tensors"]}
    assert by_name["ids"]["kept"] == "no floats"
    assert by_name["w"]["to"] == "float8_e4m3fn"
    error = W.astype(np.float64) - made["w"].numpy().astype(np.float64)
    due_db = 10 * np.log10((W.astype(np.float64) ** 2).sum() / (error**2).sum())
    assert abs(by_name["w"]["sqnr_db"] - due_db) < 1e-9
    assert by_name["w"]["largest_error"] == abs(error).max()
    with checkpoint.open(out) as again:
        assert again.metadata == {"made": "here"}


def test_cast_takes_every_option_of_the_function(file: pathlib.Path) -> None:
    out, x = file.with_name("out.npz"), sb.Tensor.from_any(B)
    for words, options in (
        (["--preset", "torch-2.13"], {"preset": "torch-2.13"}),
        (["--rounding", "stochastic", "--seed", "7"], {"rounding": "stochastic", "seed": 7}),
        (["--nan", "0x7f", "--inf", "nan"], {"nan": 0x7F, "inf": "nan"}),
        (["--nan", "signed"], {"nan": "signed"}),
    ):
        answer("cast", file, out, "--dtype", "float8_e4m3fn", *words)
        assert checkpoint.load(out)["b"].equal_bits(sb.cast(x, "float8_e4m3fn", **options))


def test_options_are_tried_on_a_number_that_every_format_has(file: pathlib.Path) -> None:
    path = file.with_name("one.safetensors")
    checkpoint.save(path, {"x": np.ones((2, 3), np.float32)})
    answer("cast", path, path, "--dtype", "float8_e8m0fnu", "--overflow", "error")
    assert checkpoint.load(path)["x"].values().tolist() == [[1.0] * 3] * 2


def test_a_file_may_be_converted_in_place(file: pathlib.Path) -> None:
    answer("cast", file, file, "--dtype", "float16", "--include", "w")
    made = checkpoint.load(file)
    assert (made["w"].dtype.name, made["b"].dtype.name) == ("float16", "float32")


def test_quantize_writes_beside_the_file_what_quantize_gives(file: pathlib.Path) -> None:
    found = answer("quantize", file, "--format", "nvfp4", "--dialect", "nvfp4/torchao-0.18")
    out = file.with_name("in-nvfp4.safetensors")
    assert found["output"] == str(out)
    made = checkpoint.load(out)
    assert made["w"].equal_bits(sb.quantize(W, "nvfp4", dialect="nvfp4/torchao-0.18"))
    assert made["b"].equal_bits(sb.Tensor.from_any(B))
    by_name = {x["name"]: x for x in found["tensors"]}
    assert (by_name["b"]["kept"], by_name["ids"]["kept"], by_name["w"]["kept"]) == ("no matrix", "of int64", None)
    assert by_name["w"]["bytes_after"] == made["w"].nbytes
    report = sb.report(W, made["w"])
    assert abs(by_name["w"]["sqnr_db"] - report.sqnr_db) < 1e-9
    assert by_name["w"]["largest_error"] == report.largest_error
    text = samebits("quantize", file, "--format", "nvfp4", "-o", out).stdout
    assert re.search(rf"{re.escape(str(out))}: 1 of 3 tensors converted, \d+ of \d+ bytes", text)
    assert "kept: no matrix" in text


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_quantize_draws_the_error_of_blocks(file: pathlib.Path, kind: str) -> None:
    out, picture = file.with_name("out.npz"), file.with_name(f"x.{kind}")
    answer("quantize", file, "--format", "mxfp4", "-o", out, "--chart", picture)
    assert picture.read_bytes()[:4] == {"png": b"\x89PNG", "svg": b"<?xm"}[kind]


WRONG: list[tuple[str, int, str]] = [
    ("cast {file} {folder}/o.npz", 2, "Missing option '--dtype'"),
    (
        "cast {file} {folder}/o.npz --dtype float9",
        2,
        "Invalid value for --dtype: is 'float9', must be an element format",
    ),
    ("cast {file} {folder}/o.zip --dtype int8", 2, "does not end with .safetensors, .npz, .npy; name it so"),
    ("cast {file} {folder}/no/o.npz --dtype int8", 2, "is no directory; make it first"),
    ("cast {folder}/none.npz {folder}/o.npz --dtype int8", 2, "does not exist"),
    (
        "cast {file} {folder}/o.npz --dtype int8 --rounding odd",
        2,
        "Invalid value for '--rounding': 'odd' is not one of",
    ),
    ("cast {file} {folder}/o.npz --dtype int8 --nan x", 2, "'x' is neither canonical, signed nor a code such as 0x7f"),
    ("cast {file} {folder}/o.npz --dtype int8 --preset x", 2, "Invalid value for --preset: is 'x', must be one of"),
    ("cast {file} {folder}/o.npz --dtype int8 --seed 1", 2, "Invalid value for --seed: is 1, must be left out where"),
    ("cast {file} {folder}/o.npz --dtype int8 --seed 1", 2, "pass --rounding stochastic, or leave seed away"),
    ("cast {file} {folder}/o.npz --dtype int8 --preset x", 2, "say --rounding, --overflow, --nan and --inf"),
    ("cast {file} {folder}/o.npz --dtype int8 --include x", 3, "cast: --include is 'x', must be a pattern of a name"),
    ("cast {file} {folder}/o.npy --dtype int8", 3, "cast: an .npy file content is 3 tensors, must be one tensor alone"),
    (
        "cast {text} {folder}/o.npz --dtype int8",
        3,
        "samebits: cast: {text} content is of another kind (it begins with b'no tenso'), must",
    ),
    ("cast {folder} {folder}/o.npz --dtype int8", 2, "is a directory"),
    ("quantize {file}", 2, "Missing option '--format'"),
    ("quantize {file} --format nvfp5", 2, "Invalid value for --format: is 'nvfp5', must be one of"),
    (
        "quantize {file} --format nvfp4 --dialect x",
        2,
        "Invalid value for --dialect: is 'x', must be one that makes nvfp4: nvfp4/exact-1",
    ),
    (
        "quantize {file} --format nvfp4 --dialect mx/floor",
        2,
        "Invalid value for --dialect: is mx/floor, must be one that",
    ),
    ("quantize {file} --format nvfp4 --include ids", 3, "tensor 'ids' is of int64, must be a matrix of float32"),
    ("quantize {file} --format nvfp4 -o {folder}/o.onnx", 2, "does not end with .safetensors"),
    ("quantize {file} --format nvfp4 --chart {folder}", 2, "is a directory"),
    ("quantize {file} --format nvfp4 --chart {file}", 2, "in.safetensors' does not end with .png, .svg; name it so"),
    ("quantize {file} --format nvfp4 --chart {folder}/c.pdf", 2, "c.pdf' does not end with .png, .svg; name it so"),
    (
        "quantize {file} --format nvfp4 --chart {picture}",
        2,
        "in.png' is the file that is read or written; name another",
    ),
    (
        "quantize {text} --format nvfp4",
        3,
        "samebits: quantize: {text} content is of another kind (it begins with b'no tenso')",
    ),
]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, pathlib.Path], list[commands.Ended]]:
    """The names in WRONG, and how its lines ended."""
    folder = tmp_path_factory.mktemp("wrong")
    path, text = folder / "in.safetensors", folder / "text.npz"
    checkpoint.save(path, {"w": W, "b": B, "ids": np.arange(5)})
    text.write_text("no tensors at all")
    picture = tmp_path_factory.mktemp("pictures") / "in.png"
    picture.symlink_to(path)
    names = {"file": path, "folder": folder, "text": text, "picture": picture}
    lines = [words.format(**names).split() for words, _, _ in WRONG]
    return names, commands.each(lines, tmp_path_factory.mktemp("streams"))


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_what_is_wrong_is_one_sentence_and_leaves_no_file(
    wrong: tuple[dict[str, pathlib.Path], list[commands.Ended]], number: int
) -> None:
    names, ended = wrong
    (_, code, said), done = WRONG[number], ended[number]
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert said.format(**names) in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(os.listdir(names["folder"])) == ["in.safetensors", "text.npz"]


# What ends them on the way: a command that has begun to write leaves what was there.
SLOW = """
import sys, time
from samebits.checkpoint import writing
write = writing.NewCheckpoint.write
def slow(self, name, x):
    write(self, name, x)
    print("writing", file=sys.stderr, flush=True)
    time.sleep(30)
writing.NewCheckpoint.write = slow
sys.argv = ["samebits", *sys.argv[1:]]
from samebits.cli import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda x: x.name)
@pytest.mark.parametrize("words", ["cast {} {} --dtype float16", "quantize {} -o {} --format mxfp8-e4m3"])
def test_a_signal_leaves_what_was_there(file: pathlib.Path, number: signal.Signals, words: str) -> None:
    for kind, before in (("safetensors", None), ("npz", "kept")):
        out = file.with_name(f"out.{kind}")
        if before:
            out.write_text(before)
        process = subprocess.Popen(
            [sys.executable, "-c", SLOW, *words.format(file, out).split()], stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        assert process.stderr is not None
        while "writing" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(0.05)
        process.send_signal(number)
        _, said = process.communicate(timeout=600)
        assert process.returncode == 128 + number, said
        assert said.endswith({2: "samebits: interrupted\n", 15: "samebits: terminated\n"}[number])
        assert "Traceback" not in said
        assert "Exception ignored" not in said
        assert sorted(os.listdir(file.parent)) == sorted({"in.safetensors", *([out.name] if before else [])})
        assert out.read_text() == before if before else not out.exists()


# Peaks of memory of command lines. They are started by a process that is itself small: the system counts it with them.
PEAKS = """
import json, os, subprocess, sys
import apart
apart.without_huge_pages()
peaks = {}
for name, words in json.loads(sys.argv[1]).items():
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}  # a slow one says how far it is
    process = subprocess.Popen([sys.executable, "-m", "samebits", *words], **quiet)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0
    peaks[name] = used.ru_maxrss >> 10
print(json.dumps(peaks))
"""


def test_memory_is_bounded_by_parts(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "in.safetensors"
    with checkpoint.create(path, {"w": ("bfloat16", (8192, 8192)), "v": ("float32", (1, 1 << 25))}) as new:
        for _ in range(64):
            new.write("w", np.repeat(W.reshape(1, -1), 128, axis=0))
            new.write("v", np.full(1 << 19, 0.25, np.float32))
    words = {
        "isas": ["isas"],
        "cast": ["cast", str(path), f"{tmp_path}/c.npz", "--dtype", "float8_e5m2"],
        "quantize": ["quantize", str(path), "--format", "fp8-row", "-o", f"{tmp_path}/q.npz", "--include", "w"],
    }
    peaks = json.loads(apart.printed_by(PEAKS, json.dumps(words)))
    assert path.stat().st_size > 250 << 20
    assert peaks["cast"] - peaks["isas"] < 128, peaks  # MiB
    assert peaks["quantize"] - peaks["isas"] < 200, peaks
