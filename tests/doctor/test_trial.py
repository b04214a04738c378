"""A cell of the matrix: each outcome, by frameworks that are made to give it; and children that die."""

import dataclasses
import types

import numpy as np
import pytest

from samebits import dtypes
from samebits.doctor import frameworks, trial
from samebits.doctor.framework import CannotHold, Framework, Held
from samebits.doctor.witness import codes_for
from samebits.errors import ExchangeError
from samebits.tensor import Tensor

F32 = dtypes.float32


def read(module, x):
    return Held(F32, "float32", x.shape, x.view(np.uint32), x.ctypes.data)


GOOD = Framework(
    "good",
    "numpy",
    "numpy",
    make=lambda module, dtype, codes: codes.view(np.float32),
    read=read,
    take=lambda module, tensor, copy: tensor.numpy(),
)


def refuse(*_):
    raise ExchangeError("take", "x", "", "y", "z", "w\nmore")


def lack(*_):
    raise CannotHold("no such type")


def only_copies(module, tensor, copy):
    return tensor.numpy().copy() if copy else refuse()


def both(row):
    return [f(row, np, F32) for f in (trial.incoming, trial.outgoing)]


def outcomes(row):
    return [cell.outcome for cell in both(row)]


def with_(**fields):
    return dataclasses.replace(GOOD, **fields)


def test_outcomes():
    assert outcomes(GOOD) == ["zero-copy", "zero-copy"]
    assert outcomes(with_(make=lack)) == ["bytes", "bytes"]
    assert outcomes(with_(make=refuse)) == ["bytes", "bytes"]
    assert outcomes(with_(make=lack, take=refuse)) == ["cannot hold", "cannot hold"]
    assert outcomes(with_(take=only_copies)) == ["zero-copy", "copy"]
    assert outcomes(with_(take=refuse)) == ["zero-copy", "refused"]
    doubled = with_(take=lambda module, tensor, copy: tensor.numpy() * 2)
    assert outcomes(doubled) == ["zero-copy", "wrong"]
    other = with_(read=lambda module, x: dataclasses.replace(read(module, x), dtype=dtypes.of(x.dtype)))
    renamed = dataclasses.replace(other, take=lambda module, tensor, copy: tensor.numpy().view(np.int32))
    assert outcomes(renamed) == ["zero-copy", "relabelled"]
    swapped = with_(make=lack, take=lambda module, tensor, copy: tensor.numpy()[::-1].copy())
    assert outcomes(swapped) == ["wrong", "wrong"]


def test_the_rows_own_way_out_is_tried_last():
    put = with_(take=refuse, put=lambda module, tensor: tensor.numpy())
    cell = both(put)[1]
    assert (cell.outcome, cell.way, cell.reason) == ("zero-copy", "row", "ExchangeError: take: x is y, must be z; w")
    assert both(with_(take=only_copies, put=refuse))[1].way == "direct"
    assert both(with_(take=refuse, put=refuse))[1].outcome == "refused"


def test_narrow_elements_are_tried_packed_and_padded():
    seen = []

    def take(module, tensor, copy):
        seen.append((tensor.layout.storage, copy))
        refuse()

    row = dataclasses.replace(frameworks.named("ml_dtypes"), take=take)
    trial.outgoing(row, np, dtypes.float4_e2m1fn)
    assert seen == [("packed", False), ("padded", False), ("packed", True), ("padded", True)]


def test_ways_in():
    # from_any refuses a type that says it exports and then does not; the row's own way is tried next.
    class Silent:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **_):
            raise BufferError("not today")

    reason = (
        "ExchangeError: Tensor.from_any: x is not shared by its library (not today), must be memory that can be "
        "shared; do what it says"
    )
    silent = with_(make=lambda module, dtype, codes: Silent(codes), read=lambda module, x: read(module, x.array))
    cell = trial.incoming(silent, np, F32)
    assert (cell.outcome, cell.reason) == ("refused", reason)
    given = dataclasses.replace(silent, give=lambda module, x: Tensor.from_any(x.array.view(np.float32)))
    cell = trial.incoming(given, np, F32)
    assert (cell.outcome, cell.way, cell.reason) == ("zero-copy", "row", reason)
    copied = dataclasses.replace(silent, give=lambda module, x: Tensor.from_any(x.array.view(np.float32).copy()))
    assert trial.incoming(copied, np, F32).outcome == "copy"
    lied = dataclasses.replace(silent, give=lambda module, x: Tensor.from_any(x.array))
    assert trial.incoming(lied, np, F32).reason == reason


def test_a_reason_is_the_first_line_of_the_error():
    cell = both(with_(take=refuse))[1]
    assert cell.reason == "ExchangeError: take: x is y, must be z; w"
    assert both(with_(make=lack))[0].reason == "no such type"
    assert both(with_(make=refuse))[0].reason == "ExchangeError: take: x is y, must be z; w"


@pytest.mark.parametrize("dtype", dtypes.ROWS, ids=repr)
def test_our_own_sample_is_read_back(dtype):
    codes = codes_for(dtype)
    ours = trial.tensor_of(dtype, codes)
    assert (ours.shape, ours.dtype, ours.address % 64) == (codes.shape, dtype, 0)
    assert np.array_equal(trial.codes_of(ours), codes)


# Children.


def test_a_framework_is_tried_whole():
    cells, failure = trial.attempt(frameworks.named("numpy"))
    assert failure == ""
    assert [(cell.dtype, cell.direction) for cell in cells] == [
        (row.name, direction) for row in dtypes.ROWS for direction in ("in", "out")
    ]


def fake(monkeypatch, tmp_path, text):
    """A module that the child takes for numkong."""
    (tmp_path / "numkong.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return frameworks.named("numkong")


def test_a_child_that_dies_is_a_cell(monkeypatch, tmp_path):
    text = "import os\ndef Tensor(x, dtype):\n    os.write(2, b'the end is near')\n    os.abort()\n"
    cells, failure = trial.attempt(fake(monkeypatch, tmp_path, text))
    assert [(cell.dtype, cell.direction, cell.outcome) for cell in cells] == [("float64", "in", "crashed")]
    assert failure == cells[0].reason == "died of SIGABRT: the end is near"


def test_a_framework_that_does_not_import_is_a_line(monkeypatch, tmp_path):
    cells, failure = trial.attempt(fake(monkeypatch, tmp_path, "raise ImportError('libfoo.so is missing')"))
    assert cells == []
    assert failure == "ended with 1: ImportError: libfoo.so is missing"


def test_a_framework_that_ends_the_process_quietly_is_not_taken_for_tried(monkeypatch, tmp_path):
    cells, failure = trial.attempt(fake(monkeypatch, tmp_path, "import os; os._exit(0)"))
    assert cells == []
    assert failure == "ended with 0: without a word"


def test_a_framework_that_makes_a_tensor_of_no_format_is_a_line(monkeypatch, tmp_path):
    cells, failure = trial.attempt(fake(monkeypatch, tmp_path, "x = 1"))
    assert len(cells) == 2 * len(dtypes.ROWS)
    assert failure.startswith("made a tensor of no format: AttributeError: ")


def test_a_child_that_hangs_is_ended(monkeypatch, tmp_path):
    asleep = "import os, time\nparent = os.getppid()\nwhile os.getppid() == parent: time.sleep(0.05)"
    cells, failure = trial.attempt(fake(monkeypatch, tmp_path, asleep), seconds=0.5)
    assert cells == []
    assert failure.startswith("died of SIGKILL")


def test_what_a_framework_prints_is_not_taken_for_cells(monkeypatch, tmp_path):
    text = 'print(\'["float64", "in"]\')\ndef Tensor(x, dtype):\n    raise ValueError(dtype)\n'
    cells, failure = trial.attempt(fake(monkeypatch, tmp_path, text))
    assert {cell.outcome for cell in cells} == {"cannot hold"}
    assert cells[0].reason.startswith("float64; as bytes: AttributeError: ")
    assert failure == f"made a tensor of no format: {cells[0].reason}"


def test_modules_are_handed_in():
    seen = []
    row = with_(make=lambda module, dtype, codes: seen.append(module) or codes.view(np.float32))
    module = types.ModuleType("m")
    trial.incoming(row, module, F32)
    assert seen == [module]
