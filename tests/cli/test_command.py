"""The command: what it prints, its files and its exit codes."""

import json
import os
import subprocess
import sys

import ml_dtypes
import models
import numpy as np
import pytest
from click.testing import CliRunner

import samebits as sb
from samebits import cli, samples
from samebits.cli import screen
from samebits.cli.command import command
from samebits.codegen import isa as isas
from samebits.doctor import frameworks, report
from samebits.doctor.trial import Cell
from samebits.verification.compare import Comparison
from samebits.verification.report import Configuration, Difference, Verification


def samebits(*arguments):
    """The command in this process: (exit code, standard output)."""
    result = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)
    return result.exit_code, result.output


def in_a_process(*arguments):
    """The command as a user starts it."""
    return subprocess.run(
        [sys.executable, "-m", "samebits", *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.fixture
def classifier(tmp_path):
    return models.classifier(tmp_path / "classifier.onnx")


def test_run_reads_and_writes_npz(classifier, tmp_path):
    x = models.weights(4, 70)
    np.savez(tmp_path / "x.npz", x=x)
    code, text = samebits("run", classifier, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    assert code == 0
    assert "[4, 300]" in text
    p = np.load(tmp_path / "y.npz")["p"]
    z = x @ models.weights(70, 300) + models.weights(300, seed=1)
    e = np.exp((z - z.max(1, keepdims=True)).astype(np.float64))
    # The float32 products' rounding moves z by at most K ulp of the largest partial sum: 70 * 2^-24 * 64.
    assert np.abs(p - e / e.sum(1, keepdims=True)).max() < 70 * 64 * 2.0**-24


def test_digest_ignores_threads_and_isa(classifier):
    digests = set()
    for options in ([], ["--threads", "1"], ["--threads", "3"], ["--isa", "scalar"]):
        code, text = samebits("run", classifier, "--set", "batch=5", *options)
        assert code == 0
        digests.add(text.split("digest ")[1].split()[0])
    assert len(digests) == 1


def test_dump_prints_the_program_and_its_plans(classifier):
    assert "x: float32[batch, 70]" in samebits("dump", classifier)[1]
    planned = samebits("dump", classifier, "--plan", "--set", "batch=3")[1]
    assert "matmul a[3,70]" in planned
    assert "MR" in planned


def test_isas_lists_rows():
    code, text = samebits("isas", "--json")
    rows = json.loads(text)
    assert code == 0
    assert [row["name"] for row in rows][:2] == ["numpy", "scalar"]
    assert sum(row["default"] for row in rows) == 1
    assert "numpy" in samebits("isas")[1]


def test_doctor_says_what_is_kept(monkeypatch):
    monkeypatch.setattr(frameworks, "ROWS", (frameworks.named("numpy"), frameworks.named("pyarrow")))
    code, text = samebits("doctor", "--only", "numpy")
    assert code == 0
    lines = text.splitlines()
    assert lines[0].startswith(f"samebits {sb.__version__}, Python ")
    assert [line.split()[0] for line in lines[1:5]] == ["isa", "cache", "cuda", "tried"]
    first, last = lines.index(next(x for x in lines if x.startswith("dtype"))) + 1, lines.index(screen._LEGEND) - 1
    assert lines[first].split() == ["float64", "..", "float16", "=="]
    assert lines[last].split() == ["bool", "=="]
    assert lines[-1] == "nothing of samebits is broken"
    assert len(lines) < 30
    code, text = samebits("doctor", "--json", "--only", "numpy")
    made = json.loads(text)
    assert (code, made["exit_code"], made["broken"]) == (0, 0, [])
    found = {(cell["dtype"], cell["direction"]): cell["outcome"] for cell in made["tried"][0]["cells"]}
    assert (found["int8", "out"], found["float4_e2m1fn", "in"]) == ("zero-copy", "bytes")
    assert made["machine"]["cores"] == len(os.sched_getaffinity(0))


def test_doctor_ends_with_1_where_something_is_broken(monkeypatch):
    def broken(row):
        made = [Cell(row.name, "int8", "in", "wrong", "int8: other bits"), Cell(row.name, "int8", "out", "zero-copy")]
        return [*made, Cell(row.name, "int16", "in", "wrong", "int16: other bits")], "died of SIGABRT: why"

    found = report.examine(["numpy"], attempt=broken)
    monkeypatch.setattr(report, "examine", lambda *_, **__: found)
    code, text = samebits("doctor")
    assert code == 1
    assert "was not tried to the end: died of SIGABRT: why" in text
    assert "numpy in, wrong: int8, int16: int8: other bits" in text
    assert text.splitlines()[-1] == "2 cells are broken"


@pytest.mark.parametrize(
    ("make", "code", "said"),
    [
        (models.classifier, 0, "configurations that were tried gave the same bits"),
        (models.quantising, 1, "first at node quantise"),
        (models.fixed, 2, "batch: not varied: no symbol is the first axis of every input, and only that"),
    ],
)
@pytest.mark.parametrize("option", [(), ("--json",)], ids=["text", "json"])
def test_verify_ends_with_what_it_found(tmp_path, make, code, said, option):
    found, text = samebits("verify", make(tmp_path / "m.onnx"), "--most-elements", 1 << 21, *option)
    assert found == code
    made = json.loads(text) if option else None
    assert said in (text if made is None else made["verdict"])
    if made is not None:
        assert (made["exit_code"], made["same"], made["ok"]) == (code, code != 1, code == 0)


def test_verify_prints_what_the_library_returns(classifier):
    report = sb.verify(classifier, most_elements=1 << 21)
    code, text = samebits("verify", classifier, "--most-elements", 1 << 21)
    assert (code, text) == (report.exit_code, f"{report}\n")
    made = json.loads(samebits("verify", classifier, "--most-elements", 1 << 21, "--json")[1])
    assert made == json.loads(json.dumps(report.as_dict())) | {"against": None}


def test_verify_measures_against_another_runtime(classifier):
    code, text = samebits("verify", classifier, "--json", "--against", "onnxruntime")
    made = json.loads(text)
    assert (code, made["difference"]) == (0, None)
    assert made["against"]["absolute"] < 1e-5


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run", "{model}", "--set", "rows=3"], 3, "samebits: --set: symbol is 'rows', must be one of ['batch']"),
        (["run", "{model}", "--set", "batch=x"], 2, "'batch=x' is not name=extent"),
        (["run", "{model}", "--isa", "sse9"], 3, "samebits: use_isa: name value is 'sse9'"),
        (["run", "{model}", "--threads", "0"], 2, "0 is not in the range x>=1"),
        (["run", "{model}", "--input", "{model}"], 3, "must be an .npz of arrays"),
        (["run", "missing.onnx"], 2, "does not exist"),
        (["run", "{text}"], 3, "is malformed"),
        (["doctor", "--only", "numpyy"], 3, "samebits: --only: framework is 'numpyy', must be one of ['numpy', "),
        (["run", "{model}", "--seed", "-1"], 2, "-1 is not in the range x>=0"),
        (["run", "{model}", "--input", "{text}", "--set", "batch=3"], 2, "--set binds the symbols of made up inputs"),
        (["run", "{model}", "--output", "{text}/y.npz"], 3, "samebits: write: file is "),
        (["verify", "{model}", "--set", "batch=3"], 3, "leave it out, verify varies it"),
    ],
)
def test_bad_input_is_one_sentence(classifier, tmp_path, arguments, code, said):
    text = tmp_path / "text.onnx"
    text.write_text("not a model")
    done = in_a_process(*(a.format(model=classifier, text=text) for a in arguments))
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_output_to_a_file_has_no_colours(classifier):
    done = in_a_process("verify", classifier)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("configurations that were tried gave the same bits")


def test_every_damaged_input_file_is_one_sentence(classifier, tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=models.weights(4, 70))
    whole = path.read_bytes()
    np.save(tmp_path / "one.npy", models.weights(4, 70))
    np.savez(tmp_path / "objects.npz", x=np.array([object()]))
    damaged = {
        "empty": b"",
        "cut": whole[: len(whole) // 2],
        "flipped": whole[:200] + bytes(255 - x for x in whole[200:300]) + whole[300:],
        "one": (tmp_path / "one.npy").read_bytes(),
        "objects": (tmp_path / "objects.npz").read_bytes(),
    }
    for name, content in damaged.items():
        path = tmp_path / f"{name}.npz"
        path.write_bytes(content)
        with pytest.raises(
            sb.OptionError, match=r"read: file is .*, must be an .npz of arrays; write it with numpy.savez"
        ):
            samples.read(path)


def test_output_is_the_very_path_and_any_name(tmp_path):
    arrays = {"file": np.arange(3), "a/b": np.float32(1).reshape(()), "": np.zeros((0, 2), bool)}
    samples.write(tmp_path / "y.bin", arrays)
    read = samples.read(tmp_path / "y.bin")
    assert {name: (x.dtype, x.shape, x.tobytes()) for name, x in read.items()} == {
        name: (x.dtype, x.shape, x.tobytes()) for name, x in arrays.items()
    }
    with pytest.raises(sb.DTypeError) as caught:
        samples.write(tmp_path / "y.npz", {"y": np.zeros(3, ml_dtypes.bfloat16)})
    assert (
        str(caught.value)
        == "write: 'y' dtype is bfloat16, must be one of NumPy's own; write its bytes, x.view('uint8')"
    )


def test_names_are_printed_as_they_are_and_whole(tmp_path, capsys):
    names = ["/encoder[/red]/[bold]x", "long" * 40]
    screen.outputs({name: np.zeros(2, np.float32) for name in names}, "0", "scalar")
    difference = Difference("batch", "batches of 2", names[0], names[1], 1)
    found = Verification((Configuration("batch", "b", "wide", "0", False),), (), difference, (), (), 1)
    screen.report(found, None)
    printed = capsys.readouterr().out
    assert all(printed.count(name) == 2 for name in names)


def test_infinite_difference_is_valid_json():
    compared = Comparison("onnxruntime", "y", float("inf"), 3)
    made = json.dumps(screen.report_json(Verification((), (), None, (), (), 1), compared), allow_nan=False)
    assert json.loads(made)["against"] == {"runtime": "onnxruntime", "output": "y", "absolute": None, "ulp": 3}


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "samebits: interrupted\n"),
        (MemoryError("too big"), 3, "samebits: out of memory: too big\n"),
        (sb.ShapeError("a", "b", "", "c", "d", "e"), 3, "samebits: a: b is c, must be d; e\n"),
        (ZeroDivisionError("a bug"), 70, "ZeroDivisionError: a bug\n"),
        (BrokenPipeError(), 70, ""),
    ],
    ids=lambda x: type(x).__name__,
)
def test_only_a_difference_of_bits_ends_with_1(monkeypatch, capfd, raised, code, said):
    def broken():
        raise raised

    monkeypatch.setattr(isas, "isas", broken)
    monkeypatch.setattr(sys, "argv", ["samebits", "isas"])
    if isinstance(raised, BrokenPipeError):
        monkeypatch.setattr(os, "dup2", lambda *ends: None)  # this process goes on printing
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == code
    assert capfd.readouterr().err.endswith(said)


def test_closed_pipe_is_silent(classifier):
    done = subprocess.run(
        f"{sys.executable} -m samebits dump {classifier} --plan | head -c 1",
        shell=True,
        capture_output=True,
        check=False,
    )
    assert done.stderr == b""


def test_missing_extra_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 3
    assert capsys.readouterr().err == "samebits: the command needs click and rich; pip install 'samebits[cli]'\n"


def test_a_table_into_a_closed_pipe_does_not_end_with_1():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "samebits", "isas"], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (70, b"")
