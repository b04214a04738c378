"""How the command ends: every exit code of docs/command.md, whatever standard output is and whenever a signal comes."""

from __future__ import annotations

import functools
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator

import models
import pytest

from samebits import checkpoint

PAGE = pathlib.Path(__file__).parent.parent.parent / "docs" / "command.md"
# Every subcommand, as it does its work: what it is started with, and whether each test takes it or the exhaustive ones.
COMMANDS = {
    "isas": ("isas", False),
    "run": ("run {model}", False),
    "help": ("--help", False),
    "version": ("--version", True),
    "dump": ("dump {model} --plan", True),
    "verify": ("verify {model} --most-elements 2097152", True),
    "doctor": ("doctor --only numpy --only ml_dtypes", True),
    "formats": ("formats", True),
    "cast": ("cast {tensors} {folder}/out.npz --dtype bfloat16", True),
    "quantize": ("quantize {tensors} --format nvfp4 -o {folder}/out.safetensors", True),
    "tune": ("tune --quick", True),
    "tune --show": ("tune --show", True),
    "bench gemm": ("bench gemm 8,8,8 --isa scalar --against numpy", True),
}
NAMES = [pytest.param(name, marks=pytest.mark.exhaustive if late else []) for name, (_, late) in COMMANDS.items()]
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A model, and a cache directory of these tests alone."""
    made = tmp_path_factory.mktemp("command")
    models.classifier(made / "model.onnx")
    checkpoint.save(made / "in.npz", {"w": models.weights(64, 256)})
    (made / "cache").mkdir(mode=0o700)
    return made


def command(folder: pathlib.Path, name: str) -> list[str]:
    names = {"model": folder / "model.onnx", "tensors": folder / "in.npz", "folder": folder}
    words = COMMANDS[name][0].format(**names).split()
    return [sys.executable, "-m", "samebits", *words]


def environment(folder: pathlib.Path, **more: str) -> dict[str, str]:
    return os.environ | {"SAMEBITS_CACHE_DIR": str(folder / "cache")} | more


def answer_to_interrupts() -> None:
    """In the child: shells start background processes with interrupts ignored, which the command keeps to."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def check_quiet(said: str) -> None:
    """No traceback, nor what Python prints of an exception that nobody can catch."""
    assert "Traceback" not in said, said
    assert "Exception ignored" not in said, said


# Streams.


@pytest.fixture(params=["closed", "full", "ascii", "piped", "deaf", "unbuffered"])
def stream(request: pytest.FixtureRequest) -> Iterator[tuple[str, int | None, int, dict[str, str]]]:
    """Its name, the descriptor for standard output (None: closed), the exit code, and what the environment adds."""
    kind = request.param
    if kind == "closed":
        yield kind, None, 3, {}
    elif kind in ("full", "unbuffered"):
        with open("/dev/full", "wb") as full:
            yield kind, full.fileno(), 3, {"PYTHONUNBUFFERED": "1"} if kind == "unbuffered" else {}
    elif kind in ("ascii", "piped"):
        yield kind, subprocess.PIPE, 0, {"PYTHONIOENCODING": "ascii"} if kind == "ascii" else {}
    else:
        reading, writing = os.pipe()
        os.close(reading)
        yield kind, writing, 141, {}
        os.close(writing)


@pytest.mark.parametrize("name", NAMES)
def test_whatever_standard_output_is_the_answer_is_a_code_and_a_sentence(
    folder: pathlib.Path, name: str, stream: tuple[str, int | None, int, dict[str, str]]
) -> None:
    kind, descriptor, code, more = stream
    run = functools.partial(subprocess.run, stderr=subprocess.PIPE, check=False, env=environment(folder, **more))
    if descriptor is None:
        done = run(["sh", "-c", 'exec "$@" >&-', "sh", *command(folder, name)])
    else:
        done = run(command(folder, name), stdout=descriptor)
    said = done.stderr.decode()
    check_quiet(said)
    assert done.returncode == code, said
    own = [line for line in said.splitlines() if "standard output" in line]
    assert len(own) == (code == 3)
    if kind in ("ascii", "piped"):
        assert done.stdout
        assert b"\x1b" not in done.stdout
    if kind == "ascii":
        done.stdout.decode("ascii")


def test_a_text_larger_than_every_buffer_is_told_apart_from_a_defect(tmp_path: pathlib.Path) -> None:
    path = models.save(
        tmp_path / "long.onnx",
        [models.helper.make_node("Exp", ["x"], ["y" * 100_000])],
        {"x": (models.TensorProto.FLOAT, [3])},
        {"y" * 100_000: (models.TensorProto.FLOAT, [3])},
    )
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "samebits", "dump", str(path)], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 3
    assert done.stderr == b"samebits: standard output cannot be written (No space left on device)\n"


def test_names_that_an_encoding_lacks_are_escaped(tmp_path: pathlib.Path) -> None:
    kind = {"x": (models.TensorProto.FLOAT, [3])}
    outputs = {"höhe": (models.TensorProto.FLOAT, [3])}
    path = models.save(tmp_path / "named.onnx", [models.helper.make_node("Exp", ["x"], ["höhe"])], kind, outputs)
    done = subprocess.run(
        [sys.executable, "-m", "samebits", "run", str(path)],
        capture_output=True, check=False, env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"h\xf6he" in done.stdout


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full", "<&-", "<&- 2>&-"])
def test_other_streams_change_no_code(folder: pathlib.Path, closed: str) -> None:
    for words, code in (("isas", 0), ("run missing.onnx", 2)):
        text = f'exec "$@" {words} {closed}'
        done = subprocess.run(
            ["sh", "-c", text, "sh", sys.executable, "-m", "samebits"], capture_output=True, check=False
        )
        assert done.returncode == code
        assert bool(done.stdout) == (code == 0)


# Signals.


def is_answering(process: subprocess.Popen[str]) -> bool:
    """Whether the process takes SIGTERM, which Python by itself does not."""
    try:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return False
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.M)
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def started(folder: pathlib.Path, name: str, mark: str) -> subprocess.Popen[str]:
    """The command, from the moment on at which its signals are its own to answer."""
    process = subprocess.Popen(
        command(folder, name), env=environment(folder, SAMEBITS_TEST_MARK=mark), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, preexec_fn=answer_to_interrupts, start_new_session=True,
    )  # fmt: skip
    while process.poll() is None and not is_answering(process):
        time.sleep(0.001)
    return process


def marked(mark: str) -> list[int]:
    """Processes that were started with this in their environment."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@functools.cache
def seconds(folder: pathlib.Path, name: str) -> float:
    """How long the command takes from then on."""
    process = started(folder, name, "measured")
    begun = time.monotonic()
    process.communicate()
    return time.monotonic() - begun


def check_ended_by(
    folder: pathlib.Path,
    name: str,
    number: signal.Signals,
    wait: Callable[[subprocess.Popen[str], str], None],
    *,
    whole_group: bool = False,
) -> None:
    """Start the command with a mark, wait, send the signal, and look at what is left."""
    mark = uuid.uuid4().hex
    process = started(folder, name, mark)
    wait(process, mark)
    if process.poll() is None:
        os.killpg(process.pid, number) if whole_group else process.send_signal(number)
    _, said = process.communicate(timeout=600)
    check_quiet(said)
    # What is through with its work before the signal comes ends as ever.
    assert process.returncode in (128 + number, 0), (process.returncode, said)
    if process.returncode:
        assert said.endswith({2: "samebits: interrupted\n", 15: "samebits: terminated\n"}[number])
    until = time.monotonic() + 300
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.05)
    assert marked(mark) == []


@pytest.mark.parametrize("number", SIGNALS, ids=lambda x: x.name)
@pytest.mark.parametrize("part", [0.0, 0.1, 0.5])
def test_a_signal_ends_a_command_with_its_code(folder: pathlib.Path, number: signal.Signals, part: float) -> None:
    check_ended_by(folder, "run", number, lambda *_: time.sleep(part * seconds(folder, "run")))


@pytest.mark.parametrize("number", SIGNALS, ids=lambda x: x.name)
def test_a_signal_ends_the_measuring_process_too(folder: pathlib.Path, number: signal.Signals) -> None:
    def until_it_runs(process: subprocess.Popen[str], mark: str) -> None:
        while process.poll() is None and len(marked(mark)) < 2:
            time.sleep(0.01)

    check_ended_by(folder, "bench gemm", number, until_it_runs, whole_group=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", SIGNALS, ids=lambda x: x.name)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_signal_at_any_moment_ends_every_command_with_its_code(
    folder: pathlib.Path, name: str, number: signal.Signals
) -> None:
    r = random.Random(f"{name} {number}")
    for turn in range(20):
        delay = r.uniform(0, 1.05 * seconds(folder, name))
        check_ended_by(folder, name, number, lambda *_, s=delay: time.sleep(s), whole_group=turn % 2 == 1)


INJECTED = """
import os, signal, sys, time
from samebits.codegen import isa
def broken():
{body}
isa.isas = broken
sys.argv = ["samebits", "isas"]
from samebits.cli import main
main()
"""


def injected(body: str) -> subprocess.CompletedProcess[str]:
    """`samebits isas`, whose list of rows does this instead."""
    text = INJECTED.format(body="\n".join(f"    {line}" for line in body.splitlines()))
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, preexec_fn=answer_to_interrupts
    )


SWALLOWED = "class D:\n    def __del__(self): os.kill(os.getpid(), signal.{0}); time.sleep(1)\nD()\nreturn isa.ROWS"
PASSED_OVER = "try: os.kill(os.getpid(), signal.{0}); time.sleep(9)\nexcept BaseException: pass\nreturn isa.ROWS"
TURNED = "try: os.kill(os.getpid(), signal.{0}); time.sleep(9)\nexcept BaseException: raise ImportError('from C')"


@pytest.mark.parametrize("body", [SWALLOWED, PASSED_OVER, TURNED], ids=["destructor", "swallowed", "another error"])
@pytest.mark.parametrize("number", SIGNALS, ids=lambda x: x.name)
def test_a_signal_counts_wherever_its_exception_ends(body: str, number: signal.Signals) -> None:
    done = injected(body.format(number.name))
    assert done.returncode == 128 + number
    assert done.stderr == {2: "samebits: interrupted\n", 15: "samebits: terminated\n"}[number]


# The command, which loads onnx and is sent SIGTERM when a compiled module that is being loaded first calls a function.
LOADING = """
import importlib.machinery, os, signal, sys
loader = importlib.machinery.ExtensionFileLoader
loading = loader.create_module.__code__, loader.exec_module.__code__
def look(frame, event, _):
    outer = frame
    if event == "call" and frame.f_code.co_qualname == "{function}":
        while outer is not None:
            if outer.f_code in loading:
                sys.setprofile(None)
                print("sent", flush=True)
                os.kill(os.getpid(), signal.SIGTERM)
                return
            outer = outer.f_back
from samebits.codegen import isa
def broken():
    sys.setprofile(look)
    import onnx
isa.isas = broken
sys.argv = ["samebits", "isas"]
from samebits.cli import main
main()
"""


@pytest.mark.parametrize("function", ["EnumType.__call__", "EnumType.__setattr__", "Enum.__init__"])
def test_a_signal_waits_for_a_compiled_module_that_is_being_loaded(function: str) -> None:
    """onnx's own would end the process by SIGSEGV or SIGABRT if an exception came back to it."""
    text = LOADING.format(function=function)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "sent\n", "samebits: terminated\n")


def test_a_second_signal_is_not_waited_for() -> None:
    done = injected(
        "try: os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)\n"
        "finally: os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"
    )
    assert done.returncode == 143


def test_an_ignored_interrupt_stays_ignored() -> None:
    text = INJECTED.format(body="    os.kill(os.getpid(), signal.SIGINT); return isa.ROWS[:1]")
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


# Codes.

RAISED = {
    "raise KeyError('a bug')": (70, "KeyError: 'a bug'"),
    "raise OSError(28, 'No space left on device', 'elsewhere')": (70, "OSError: [Errno 28] No space left"),
    "raise ZeroDivisionError": (70, "ZeroDivisionError"),
    "raise BrokenPipeError": (70, "BrokenPipeError"),
}


@pytest.mark.parametrize("body", RAISED)
def test_a_defect_is_reported_whole_and_ends_with_70(body: str) -> None:
    code, told = RAISED[body]
    done = injected(body)
    assert done.returncode == code
    *trace, last = done.stderr.splitlines()
    assert trace[0] == "Traceback (most recent call last):"
    assert any("in broken" in line for line in trace)
    assert last.startswith(f"samebits: internal error ({told}")
    assert last.endswith("; this is a defect: report it with the lines above")


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("raise MemoryError('too big')", 3, "samebits: out of memory: too big\n"),
        (
            "from samebits.errors import ShapeError\nraise ShapeError(*'abcdef')",
            3,
            "samebits: a: b c is d, must be e; f\n",
        ),
        (
            "from samebits import optional\nraise optional.missing('load', 'torch')",
            2,
            "samebits: load: package torch is not installed, must be installed; pip install 'samebits[torch]'\n",
        ),
    ],
)
def test_what_is_no_defect_is_one_sentence(body: str, code: int, said: str) -> None:
    done = injected(body)
    assert (done.returncode, done.stderr) == (code, said)


BARRED = """
import sys
for name in {names}:
    sys.modules[name] = None
sys.argv = ["samebits", *{words}]
from samebits.cli import main
main()
"""


def barred(names: list[str], words: list[str]) -> subprocess.CompletedProcess[str]:
    """The command where these packages are not installed."""
    text = BARRED.format(names=names, words=words)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["run", "dump", "verify"])
def test_models_are_read_without_onnx_and_protobuf(folder: pathlib.Path, name: str) -> None:
    done = barred(["onnx", "google"], [name, str(folder / "model.onnx")])
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_another_runtime_that_is_missing_is_told_before_anything_is_run(folder: pathlib.Path) -> None:
    done = barred(["onnxruntime"], ["verify", str(folder / "model.onnx"), "--against", "onnxruntime"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: --against: onnxruntime is not installed; pip install onnxruntime\n"


@pytest.mark.parametrize("name", ["click", "rich"])
def test_without_the_extra_the_command_says_so_and_its_version(name: str) -> None:
    for words in (["--help"], ["isas"]):
        done = barred([name], words)
        assert (done.returncode, done.stdout) == (2, "")
        expected = f"samebits: package {name} is not installed, must be installed; pip install 'samebits[cli]'\n"
        assert done.stderr == expected
    done = barred([name], ["--version"])
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout
        == subprocess.run(
            [sys.executable, "-m", "samebits", "--version"], capture_output=True, text=True, check=True
        ).stdout
    )


def documented() -> set[int]:
    """The codes of the page's table."""
    table = PAGE.read_text().split("## Exit codes")[1].split("\n## ")[0]
    return {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.M)}


def test_every_documented_code_is_given_and_no_other(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    model = str(folder / "model.onnx")
    quantising = str(models.quantising(tmp_path / "quantising.onnx"))
    fixed = str(models.fixed(tmp_path / "fixed.onnx"))

    def code(*words: str) -> int:
        done = subprocess.run([sys.executable, "-m", "samebits", *words], capture_output=True, check=False)
        return done.returncode

    given = {
        0: code("run", model),
        1: code("verify", quantising, "--most-elements", "65536"),
        2: code("verify", fixed),
        3: code("run", model, "--input", model),
        70: injected("raise KeyError").returncode,
        130: injected("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)").returncode,
        141: subprocess.run(
            ["bash", "-c", f"{sys.executable} -m samebits isas | true; exit ${{PIPESTATUS[0]}}"], check=False
        ).returncode,
        143: injected("os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)").returncode,
    }
    assert given == {code: code for code in documented()}
