"""The command: what it prints, its files and its exit codes."""

import json
import subprocess
import sys

import models
import numpy as np
import pytest
from click.testing import CliRunner

from samebits.cli.command import command


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


def test_verify_exit_codes_and_json(classifier, tmp_path):
    code, text = samebits("verify", classifier, "--json", "--against", "onnxruntime")
    report = json.loads(text)
    assert (code, report["exit_code"], report["difference"]) == (0, 0, None)
    assert report["against"]["absolute"] < 1e-5
    code, text = samebits("verify", models.quantising(tmp_path / "quantising.onnx"))
    assert code == 1
    assert "first at node quantise" in text
    assert samebits("verify", models.fixed(tmp_path / "fixed.onnx"))[0] == 2


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
    assert done.stdout.rstrip().endswith("configurations gave the same bits")
