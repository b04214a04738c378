"""The command: what it prints, its files and its exit codes."""

import ast
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import commands
import models
import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper
from sentences import check_sentence

import samebits as sb
from samebits import cli, dtypes, samples
from samebits.cli import screen
from samebits.cli.command import command
from samebits.codegen import isa as isas
from samebits.doctor import frameworks, report
from samebits.doctor.trial import Cell
from samebits.runtime import cpu
from samebits.verification.compare import Comparison
from samebits.verification.report import Configuration, Difference, Verification


def samebits(*arguments):
    """The command in this process: (exit code, standard output)."""
    result = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)
    return result.exit_code, result.stdout


def in_a_process(*arguments):
    """The command as a user starts it."""
    return subprocess.run(
        [sys.executable, "-m", "samebits", *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.fixture
def classifier(tmp_path):
    return models.classifier(tmp_path / "classifier.onnx")


def test_help_says_of_every_subcommand_what_it_does_in_a_whole_sentence():
    lines = CliRunner().invoke(command, ["--help"], terminal_width=80).output.partition("Commands:")[2].splitlines()
    said = [line.split(maxsplit=1)[1] for line in lines if line.strip()]
    assert len(said) == len(command.commands)
    assert all(sentence.endswith(".") and not sentence.endswith("..") for sentence in said)


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
        made = json.loads(samebits("run", classifier, "--set", "batch=5", "--json", *options)[1])
        digests.add(made["digest"])
    assert len(digests) == 1


def test_another_order_of_sums_is_asked_for_by_name(classifier):
    def digest(*arguments):
        code, text = samebits("run", classifier, "--set", "batch=5", "--json", *arguments)
        assert code == 0
        return json.loads(text)["digest"]

    assert digest("--spec", "sb1") == digest()
    assert digest("--spec", "pairs32", "--threads", "2") == digest("--spec", "pairs32", "--isa", "scalar") != digest()
    code, text = samebits("dump", classifier, "--spec", "pairs32,chunk=64,segments=2")
    assert (code, "transform by_spec Spec(chunk=64, segments=2, order='pairs32')" in text) == (0, True)


def test_run_says_that_inputs_are_made_up(classifier, tmp_path):
    text = samebits("run", classifier, "--set", "batch=5", "--seed", 7)[1]
    assert "inputs made up from seed 7, batch=5; --input gives your own" in text.splitlines()
    made = json.loads(samebits("run", classifier, "--json")[1])
    assert made["made_up"] == {"seed": 0, "bindings": {"batch": 1}}
    assert made["outputs"] == {"p": {"dtype": "float32", "shape": [1, 300]}}
    assert (made["isa"], made["exit_code"]) == (isas.current().name, 0)
    np.savez(tmp_path / "x.npz", x=models.weights(4, 70))
    assert "made up" not in samebits("run", classifier, "--input", tmp_path / "x.npz")[1]
    given = json.loads(samebits("run", classifier, "--json", "--input", tmp_path / "x.npz")[1])
    assert given["made_up"] is None


def test_dump_prints_the_program_and_its_plans(classifier):
    assert "x: float32[batch, 70]" in samebits("dump", classifier)[1]
    planned = samebits("dump", classifier, "--plan", "--set", "batch=3")[1]
    assert "matmul a[3,70]" in planned
    assert "MR" in planned
    assert planned.startswith(samebits("dump", classifier)[1])


def test_dump_as_json_is_the_program(classifier):
    code, text = samebits("dump", classifier, "--json")
    made = json.loads(text)
    assert (code, made["exit_code"], made["plans"], made["bindings"]) == (0, 0, None, None)
    assert (made["symbols"], made["inputs"], made["outputs"]) == (["batch"], ["x"], ["p"])
    assert made["values"]["x"] == {"dtype": "float32", "shape": ["batch", 70]}
    assert sorted(made["constants"]) == ["b", "w"]
    last = made["nodes"][-1]
    assert (last["inputs"], last["outputs"], last["origin"]) == (["z"], ["p"], ["softmax"])
    planned = json.loads(samebits("dump", classifier, "--json", "--plan", "--set", "batch=3")[1])
    assert planned["bindings"] == {"batch": 3}
    assert any("matmul a[3,70]" in plan for plan in planned["plans"])
    assert planned["digest"] == made["digest"]


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
    assert [line.split()[0] for line in lines[1:6]] == ["isa", "cache", "linker", "cuda", "tried"]
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
    def broken(row, children):
        made = [Cell(row.name, "int8", "in", "wrong", "int8: other bits"), Cell(row.name, "int8", "out", "zero-copy")]
        return [*made, Cell(row.name, "int16", "in", "wrong", "int16: other bits")], "died of SIGABRT: why"

    found = report.examine(["numpy"], attempt=broken)
    monkeypatch.setattr(report, "examine", lambda *_, **__: found)
    code, text = samebits("doctor")
    assert code == 1
    assert "was not tried to the end: died of SIGABRT: why" in text
    assert "numpy in, wrong: int8, int16: int8: other bits" in text
    assert text.splitlines()[-1] == "2 cells are broken; not tried to the end: numpy"
    code, text = samebits("doctor", "--json")
    assert (code, json.loads(text)["exit_code"], len(json.loads(text)["broken"])) == (1, 1, 2)


def test_doctor_tells_what_it_was_asked_for_and_is_not_there(monkeypatch):
    row = dataclasses.replace(frameworks.named("jax"), module="nonesuch_of_all")
    monkeypatch.setattr(frameworks, "ROWS", (frameworks.named("numpy"), row))
    code, text = samebits("doctor", "--only", "jax")
    assert code == 2
    assert "jax was not tried to the end: not installed; pip install jax" in text
    assert text.splitlines()[-1] == "nothing of samebits is broken; not tried to the end: jax"
    code, text = samebits("doctor", "--only", "jax", "--json")
    assert (code, json.loads(text)["exit_code"]) == (2, 2)


def test_doctor_does_not_call_kept_what_from_any_or_the_library_refuses(monkeypatch):
    def found(row, children):
        made = [Cell(row.name, "int8", direction, "zero-copy") for direction in ("in", "out")]
        return [
            *made,
            Cell(row.name, "int4", "in", "zero-copy", "refused", "row"),
            Cell(row.name, "int4", "out", "copy"),
        ], ""

    diagnosed = report.examine(["numpy"], attempt=found)
    monkeypatch.setattr(report, "examine", lambda *_, **__: diagnosed)
    lines = samebits("doctor")[1].splitlines()
    assert {"int8": "==", "int4": "rc"}.items() <= dict(
        line.split() for line in lines if len(line.split()) == 2
    ).items()


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


@pytest.fixture
def image(tmp_path):
    """A model whose windows slide along extents that are open."""
    nodes = [helper.make_node("MaxPool", ["x"], ["y"], "p", kernel_shape=[2, 2])]
    ends = {"x": (TensorProto.FLOAT, ["n", 1, "h", "w"])}, {"y": (TensorProto.FLOAT, ["n", 1, "a", "b"])}
    return models.save(tmp_path / "image.onnx", nodes, *ends)


def test_extents_that_must_be_known_are_set(image, tmp_path):
    sizes = ("--set", "h=5", "--set", "w=4")
    code, text = samebits("run", image, *sizes)
    assert (code, "[1, 1, 4, 3]" in text, "n=1, h=5, w=4" in text) == (0, True, True)
    assert "input x: float32[n, 1, 5, 4]" in samebits("dump", image, *sizes)[1]
    np.savez(tmp_path / "x.npz", x=np.ones((2, 1, 5, 4), np.float32))
    assert "[2, 1, 4, 3]" in samebits("run", image, "--input", tmp_path / "x.npz", *sizes)[1]
    made = json.loads(samebits("verify", image, "--json", "--most-elements", 5000, *sizes)[1])
    assert made["same"]
    assert made["bindings"] == {"h": 5, "n": 1, "w": 4}
    assert {found["name"] for found in made["configurations"] if found["axis"] == "process"}


def test_verify_measures_against_another_runtime(classifier):
    code, text = samebits("verify", classifier, "--json", "--against", "onnxruntime")
    made = json.loads(text)
    assert (code, made["difference"]) == (0, None)
    assert made["against"]["absolute"] < 1e-5


WRONG = [
    (["run", "{model}", "--set", "rows=3"], 2, "Invalid value for --set: symbol is 'rows', must be one of batch"),
    (["run", "{model}", "--set", "batch=x"], 2, "'batch=x' is not name=extent"),
    (["run", "{model}", "--set", "batch=\u0663"], 2, "is not name=extent"),
    (
        ["run", "{model}", "--set", "batch=2", "--set", "batch=3"],
        2,
        "'batch' is bound 2 times (2, 3); bind it once",
    ),
    (["run", "{model}", "--isa", "sse9"], 2, "Invalid value for '--isa': 'sse9' is not one of numpy, scalar"),
    (["run", "{model}", "--threads", "0"], 2, "0 is not in the range 1<=x<=255"),
    (
        ["run", "{model}", "--input", "{model}"],
        3,
        "samebits: run: --input {model} content is of another kind (it begins with ",
    ),
    (["run", "missing.onnx"], 2, "does not exist"),
    (["run", "{model}", "--spec", "tree"], 2, "order is 'tree', must be 'sb1' or 'pairs32'; leave it out for sb1"),
    (
        ["dump", "{model}", "--spec", "pairs32,chunk=100"],
        2,
        "chunk is 100, must be a multiple of 32 in order pairs32",
    ),
    (["verify", "{model}", "--spec", "sb1,128"], 2, "'sb1,128' is not ORDER,chunk=C,segments=S with whole numbers"),
    (["run", "-"], 2, "'-' is no file; name one, or /dev/stdin"),
    (["run", "{text}"], 3, "is malformed"),
    (["doctor", "--only", "numpyy"], 2, "Invalid value for --only: 'numpyy' is not one of numpy, ml_dtypes"),
    (["run", "{model}", "--seed", "-1"], 2, "-1 is not in the range x>=0"),
    (["run", "{model}", "--input", "{text}", "--set", "batch=3"], 2, "--set binds the symbols of made up inputs"),
    (["run", "{model}", "--output", "{text}/y.npz"], 2, "is no directory; make it first"),
    (["run", "{text}", "--output", "{text}/y.npz"], 2, "is no directory; make it first"),
    (["run", "{model}", "--output", "y.txt"], 2, "'y.txt' does not end with .safetensors, .npz, .npy; name it so"),
    (["run", "{model}", "--output", "-"], 2, "'-' is no file; name one, or /dev/stdout"),
    (["run", "{model}", "--output", "{folder}"], 2, "is a directory; name a file in it"),
    (["run", "{model}", "--output", "/proc/version"], 2, "cannot be written (Invalid argument); name another"),
    (["run", "{model}", "--output", "/proc/new"], 2, "cannot be written (No such file or directory); name another"),
    (
        ["run", "{model}", "--output", "/dev/full"],
        3,
        "run: --output /dev/full is unwritable (No space left on device)",
    ),
    (
        ["verify", "{model}", "--set", "batch=3"],
        2,
        "'batch' (3), must be left out: the model has no other",
    ),
    (
        ["verify", "{fixed}", "--set", "batch=4"],
        2,
        "'batch' (4), must be left out: the model has no other",
    ),
    (["dump", "{fixed}", "--set", "batch=4"], 2, "is 'batch', must be left out: the model has no symbol"),
]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """The names in WRONG, and how its command lines ended."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "text.onnx").write_text("not a model")
    names = {
        "model": models.classifier(folder / "classifier.onnx"), "text": folder / "text.onnx", "folder": folder,
        "fixed": models.fixed(folder / "fixed.onnx"),
    }  # fmt: skip
    lines = [[word.format(**names) for word in words] for words, _, _ in WRONG]
    return names, commands.each(lines, tmp_path_factory.mktemp("streams"))


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_bad_input_is_one_sentence(wrong, number):
    names, ended = wrong
    (_, code, said), done = WRONG[number], ended[number]
    assert done.returncode == code
    assert said.replace("{model}", str(names["model"])) in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_output_is_tried_before_anything_is_computed_and_leaves_nothing(classifier, tmp_path):
    path = tmp_path / "y.npz"
    assert samebits("run", classifier, "--set", "rows=1", "--output", path)[0] == 2
    assert not path.exists()
    path.write_text("kept")
    assert samebits("run", classifier, "--set", "rows=1", "--output", path)[0] == 2
    assert path.read_text() == "kept"
    (tmp_path / "link.npz").symlink_to(tmp_path / "target.npz")
    assert samebits("run", classifier, "--output", tmp_path / "link.npz")[0] == 0
    assert "p" in samples.read(tmp_path / "target.npz")


def test_an_npy_holds_the_only_output(classifier, tmp_path):
    assert samebits("run", classifier, "--output", tmp_path / "y.npy")[0] == 0
    assert samebits("run", classifier, "--output", tmp_path / "y.npz")[0] == 0
    one = np.load(tmp_path / "y.npy")
    assert isinstance(one, np.ndarray)
    assert one.dtype == np.float32
    assert one.tobytes() == samples.read(tmp_path / "y.npz")["p"].tobytes()


def test_an_npy_of_several_outputs_is_refused_before_anything_is_computed(tmp_path, monkeypatch):
    nodes = [helper.make_node("Exp", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])]
    kind = (TensorProto.FLOAT, [3])
    model = models.save(tmp_path / "two.onnx", nodes, {"x": kind}, {"y": kind, "z": kind})
    monkeypatch.setattr(cpu, "prepare", None)
    result = CliRunner().invoke(command, ["run", str(model), "--output", str(tmp_path / "y.npy")])
    assert result.exit_code == 2
    assert (
        "Invalid value for --output: is an .npy beside 2 outputs, must be an .npz, whose arrays have names;"
        " name the file .npz" in result.stderr
    )


NAMED_BY_A_FIELD = [row for row in dtypes.ROWS if row.numpy is not None and row.numpy.isbuiltin != 1]


@pytest.mark.parametrize("dtype", NAMED_BY_A_FIELD, ids=repr)
def test_formats_without_a_name_in_npz_keep_every_code(dtype, tmp_path):
    codes = np.arange(1 << dtype.width_bits, dtype=f"u{dtype.numpy.itemsize}").reshape(2, -1)
    given = {"x": codes.view(dtype.numpy), "0": codes.view(dtype.numpy)[0, 0], "plain": np.arange(3)}
    samples.write(tmp_path / "x.npz", given)
    read = samples.read(tmp_path / "x.npz")
    assert {name: (x.dtype, x.shape, x.tobytes()) for name, x in read.items()} == {
        name: (x.dtype, x.shape, x.tobytes()) for name, x in given.items()
    }
    # To whoever knows nothing of it the array has the bits, under the format's name.
    with np.load(tmp_path / "x.npz") as plain:
        assert np.array_equal(plain["x"][dtype.name], codes)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_run_gives_and_takes_every_format_of_a_model(name, tmp_path):
    dtype = dtypes.of(name)
    kind = (dtype.onnx, ["batch", 3])
    nodes = [helper.make_node("Transpose", ["x"], ["y"])]
    model = models.save(tmp_path / "m.onnx", nodes, {"x": kind}, {"y": (dtype.onnx, [3, "batch"])}, opset=21)
    codes = np.arange(12, dtype=f"u{dtype.numpy.itemsize}").reshape(4, 3)
    samples.write(tmp_path / "x.npz", {"x": codes.view(dtype.numpy)})
    code, text = samebits("run", model, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    assert code == 0, text
    read = samples.read(tmp_path / "y.npz")["y"]
    assert (read.dtype, read.shape, read.tobytes()) == (dtype.numpy, (3, 4), codes.T.tobytes())
    for kind in ("npy", "safetensors"):
        path = tmp_path / f"y.{kind}"
        assert samebits("run", model, "--input", tmp_path / "x.npz", "--output", path)[0] == 0
        assert samples.read(path)["y"].tobytes() == read.tobytes()


def test_output_to_a_file_has_no_colours(classifier):
    done = in_a_process("verify", classifier)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("configurations that were tried gave the same bits")


def test_every_damaged_input_file_is_one_sentence(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=models.weights(4, 70))
    whole = path.read_bytes()
    np.savez(tmp_path / "objects.npz", x=np.array([object()]))
    damaged = {
        "empty": b"",
        "cut": whole[: len(whole) // 2],
        "flipped": whole[:200] + bytes(255 - x for x in whole[200:300]) + whole[300:],
        "objects": (tmp_path / "objects.npz").read_bytes(),
    }
    for name, content in damaged.items():
        path = tmp_path / f"{name}.npz"
        path.write_bytes(content)
        with pytest.raises(sb.OptionError, match=r"^read: file .* is .*, must be ") as error:
            samples.read(path)
        check_sentence(error.value)


def test_output_is_the_very_path_and_any_name(tmp_path):
    arrays = {"file": np.arange(3), "a/b": np.float32(1).reshape(()), "": np.zeros((0, 2), bool)}
    samples.write(tmp_path / "y.bin", arrays)
    read = samples.read(tmp_path / "y.bin")
    assert {name: (x.dtype, x.shape, x.tobytes()) for name, x in read.items()} == {
        name: (x.dtype, x.shape, x.tobytes()) for name, x in arrays.items()
    }


def test_names_are_printed_as_they_are_and_whole(tmp_path, capsys):
    names = ["/encoder[/red]/[bold]x", "long" * 40]
    answer = {name: np.zeros(2, np.float32) for name in names}
    screen.outputs(screen.Answer(answer, "0", "scalar", None, 0))
    listed = capsys.readouterr().out
    assert [line.split()[:3] for line in listed.splitlines()[1:3]] == [[name, "float32", "[2]"] for name in names]
    difference = Difference("batch", "batches of 2", names[0], names[1], 1)
    found = Verification((Configuration("batch", "b", "wide", "0", False),), (), difference, (), (), 1)
    screen.report(found, None)
    printed = capsys.readouterr().out
    assert all(printed.count(name) == 1 for name in names)


ESCAPE = "\x1b]0;owned\x07\x1b[31m\nred"


def test_no_terminal_obeys_the_names_of_a_file(tmp_path, capsys):
    """Of symbols, values, nodes, the program, and what an .npy calls its elements; their text is escaped everywhere."""
    kind = TensorProto.FLOAT
    nodes = [
        helper.make_node(op, [x], [y], name=ESCAPE)
        for op, x, y in (("Relu", f"x{ESCAPE}", "t"), ("Exp", "t", f"y{ESCAPE}"))
    ]
    given, made = (helper.make_tensor_value_info(f"{name}{ESCAPE}", kind, [ESCAPE, "M"]) for name in "xy")
    graph = helper.make_graph(nodes, ESCAPE, [given], [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    header = f"{{'descr': '{ESCAPE.splitlines()[0]}', 'fortran_order': False, 'shape': (3,)}}".ljust(117) + "\n"
    array = tmp_path / "x.npy"
    array.write_bytes(b"\x93NUMPY\x01\x00v\x00" + header.encode("latin1") + bytes(12))
    session = sb.load(path)
    refused = []
    for call in (
        lambda: session.run({f"x{ESCAPE}": np.ones(3, np.float32)}),
        lambda: session.run({f"x{ESCAPE}": np.ones((3, 2))}),
        lambda: session.run({ESCAPE: 1}),
        lambda: sb.checkpoint.load(array),
    ):
        with pytest.raises(sb.SamebitsError) as error:
            call()
        refused.append(str(error.value))
    difference = Difference("batch", "batches of 2", ESCAPE, ESCAPE, 1)
    found = Verification((Configuration("batch", "b", ESCAPE, "0", False),), (), difference, (), (), 1)
    screen.report(found, Comparison("onnxruntime", ESCAPE, 1.0, 3))
    texts = [*refused, repr(session), str(session.program), repr(session.program), str(found), capsys.readouterr().out]
    for words in (
        ["dump", path],
        ["dump", "--plan", path],
        ["run", path],
        ["cast", array, tmp_path / "y.npy", "--dtype", "float16"],
    ):
        done = in_a_process(*words)
        texts.append(done.stdout + done.stderr)
    for text in texts:
        assert r"\x1b]0;owned\x07" in text
        assert {"\x1b", "\x07"}.isdisjoint(text)


def test_infinite_difference_is_valid_json():
    compared = Comparison("onnxruntime", "y", float("inf"), 3)
    made = json.dumps(screen.report_json(Verification((), (), None, (), (), 1), compared), allow_nan=False)
    assert json.loads(made)["against"] == {"runtime": "onnxruntime", "output": "y", "absolute": None, "ulp": 3}


def test_the_command_subscripts_no_class_that_older_clicks_leave_plain():
    """The extra allows click 8.1, whose `ParamType` is not generic: a base `click.ParamType[...]` fails there."""
    for path in pathlib.Path(cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
            assert [base for base in bases if base.startswith("click.") and "[" in base] == [], path.name
