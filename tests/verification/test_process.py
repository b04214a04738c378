"""The second process: what it is asked it answers, by the row it is asked for, and it says why where it cannot."""

import json
import pathlib
import signal
import subprocess
import sys
import time

import ml_dtypes
import models
import numpy as np
import pytest

from samebits import onnx, samples
from samebits.codegen import isa as isas
from samebits.runtime import cpu
from samebits.verification import process

ROWS = [row.name for row in isas.isas() if row.available and row.compiled]


@pytest.fixture
def classifier(tmp_path):
    return models.classifier(tmp_path / "classifier.onnx")


@pytest.mark.parametrize("as_bytes", [False, True])
def test_the_answer_has_the_bits_of_this_process(classifier, as_bytes):
    program = onnx.load(classifier)
    given = samples.feeds(program, {"batch": 3}, 0)
    expected = cpu.prepare(program).run(given)
    with process.SecondProcess(classifier.read_bytes() if as_bytes else classifier, program.digest()) as second:
        for row in ROWS:
            answer = second.run(given, row)
            assert answer.keys() == expected.keys()
            assert answer["p"].tobytes() == expected["p"].tobytes()
            assert (answer["p"].dtype, answer["p"].shape) == (expected["p"].dtype, expected["p"].shape)


def test_another_model_in_the_file_is_not_run(classifier):
    with process.SecondProcess(classifier, "0") as second:
        for _ in range(2):
            with pytest.raises(process.ProcessFailed, match=r"^it said: the file holds another model by now$"):
                second.run({}, ROWS[0])


def test_what_it_refuses_it_says_and_goes_on(classifier):
    program = onnx.load(classifier)
    with process.SecondProcess(classifier, program.digest()) as second:
        with pytest.raises(process.ProcessFailed, match=r"^it said: run: input 'x' is missing"):
            second.run({}, ROWS[0])
        assert second.run(samples.feeds(program, {"batch": 3}, 0), ROWS[0])["p"].shape == (3, 300)


def test_a_process_that_ended_is_said_to_have_every_time(tmp_path):
    with process.SecondProcess(tmp_path / "gone.onnx", "0") as second:
        for _ in range(2):
            with pytest.raises(process.ProcessFailed, match=r"^it ended with code 1 and said: .*gone\.onnx"):
                second.run({"x": models.weights(2, 2)}, ROWS[0])


def test_a_row_other_than_the_one_asked_for_is_noticed(classifier, monkeypatch):
    with process.SecondProcess(classifier, onnx.load(classifier).digest()) as second:
        monkeypatch.setattr(json, "loads", lambda line: {"isa": "another", "outputs": []})
        with pytest.raises(process.ProcessFailed, match=rf"^it ran another, not {ROWS[0]}$"):
            second.run({"x": models.weights(2, 70)}, ROWS[0])


def test_nothing_is_left_running(classifier):
    with process.SecondProcess(classifier, "0") as second:
        child, folder = second._child, pathlib.Path(second._folder.name)
    assert child.returncode is not None
    assert not folder.exists()


_KILLED = """
import os, signal, sys
from samebits import onnx, samples
from samebits.codegen import isa
from samebits.verification import process

model = open(sys.argv[1], "rb").read()
program = onnx.load(model)
with process.SecondProcess(model, program.digest()) as second:
    second.run(samples.feeds(program, {"batch": 3}, 0), isa.current().name)
    print(second._folder.name, second._child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_where_this_process_is_killed(classifier):
    done = subprocess.run([sys.executable, "-c", _KILLED, str(classifier)], capture_output=True, text=True, timeout=600)
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder, child = done.stdout.split()
    deadline = time.monotonic() + 300
    while (pathlib.Path(folder).exists() or _runs(int(child))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not pathlib.Path(folder).exists()
    assert not _runs(int(child))


def _runs(number):
    """Whether a process of that number runs; one that ended and that nobody waited for does not."""
    stat = pathlib.Path(f"/proc/{number}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    "x",
    [
        np.float32(1.5).reshape(()), np.zeros((0, 3), np.int8), np.array([[True, False]]),
        np.array([1, -0.0, np.nan], ml_dtypes.bfloat16), np.arange(6, dtype=np.int64).reshape(2, 3).T,
    ],
    ids=lambda x: f"{x.dtype}{list(x.shape)}",
)  # fmt: skip
def test_arrays_of_every_format_and_shape_go_through_files(tmp_path, x):
    made = process._read(tmp_path / "x", process._write(tmp_path / "x", {"first": np.ones(3, np.int8), "x": x}))
    assert (made["x"].dtype, made["x"].shape, made["x"].tobytes()) == (x.dtype, x.shape, x.tobytes())
