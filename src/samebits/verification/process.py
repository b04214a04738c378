"""A second process that runs the same model on the same inputs, row by row of the instruction sets.

`SecondProcess` starts `python -m samebits.verification.process` and asks it, a line of JSON each time; arrays go
through files, as bytes with their formats beside them. Start at `SecondProcess`.
"""

from __future__ import annotations

import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TextIO

import numpy as np

from samebits import driver, dtypes, errors, onnx
from samebits.codegen import isa as isas
from samebits.kernels.gemm.contraction import SB1, Spec
from samebits.runtime import cpu
from samebits.verification.rows import Arrays


class ProcessFailed(Exception):
    """The second process gave no answer; the text says why."""


class SecondProcess:
    """A process that lives as long as the block, and loads the model while this one works."""

    def __init__(
        self, model: pathlib.Path | bytes, digest: str, spec: Spec = SB1, bindings: Mapping[str, int] | None = None
    ) -> None:  # fmt: skip
        """Args:    model: its file, or what would be in it.   digest: of its program.   spec: the order of its sums.
        bindings: sizes that are fixed in it.
        """
        self._model, self._digest, self._spec, self._bindings = model, digest, spec, dict(bindings or {})
        self._failed: str | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        self._complaints: TextIO = tempfile.TemporaryFile("w+")
        path = pathlib.Path(self._folder.name) / "model.onnx"
        if isinstance(self._model, bytes):
            path.write_bytes(self._model)
        else:
            path = self._model
        self._child = driver.start_python(
            "samebits.verification.process",
            (str(path), self._folder.name, json.dumps(self._bindings),
             *map(str, (self._spec.chunk, self._spec.segments, self._spec.order))),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints,
        )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()
        self._child.communicate()
        self._complaints.close()
        self._folder.cleanup()

    def run(self, given: Arrays, isa: str) -> Arrays:
        """The outputs by a row of that process.

        Raises:  ProcessFailed if it does not answer, and always once it has ended.
        """
        if self._failed is not None:
            raise ProcessFailed(self._failed)
        asked, answer = (pathlib.Path(self._folder.name) / name for name in ("asked", "answer"))
        files = {"asked": str(asked), "answer": str(answer)}
        request = {"isa": isa, "program": self._digest, "given": _write(asked, given), **files}
        return _read(answer, self._ask(request)["outputs"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Raises:  ProcessFailed."""
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
            line = child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = child.wait()
            self._complaints.seek(0)
            words = self._complaints.read().strip().splitlines() or ["nothing"]
            self._failed = f"it ended with code {code} and said: {words[-1]}"
            raise ProcessFailed(self._failed)
        said: dict[str, Any] = json.loads(line)
        if "failed" in said:
            raise ProcessFailed(f"it said: {said['failed']}")
        if said["isa"] != request["isa"]:
            raise ProcessFailed(f"it ran {said['isa']}, not {request['isa']}")
        return said


_Described = list[tuple[str, str, Sequence[int]]]


def _write(path: pathlib.Path, arrays: Arrays) -> _Described:
    """The bytes of every array; returns what they mean."""
    with path.open("wb") as file:
        for x in arrays.values():
            file.write(np.ascontiguousarray(x).tobytes())
    return [(name, dtypes.of(x.dtype).name, x.shape) for name, x in arrays.items()]


def _read(path: pathlib.Path, described: _Described) -> Arrays:
    data, at, made = path.read_bytes(), 0, {}
    for name, dtype, shape in described:
        kind, count = dtypes.of(dtype).numpy, math.prod(shape)
        assert kind is not None  # NumPy arrays were written
        made[name] = np.frombuffer(data, kind, count, at).reshape(shape)
        at += count * kind.itemsize
    return made


def answers(
    path: pathlib.Path, questions: Iterable[str], spec: Spec = SB1, bindings: Mapping[str, int] | None = None
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """What the model in a file says to each line of JSON."""
    program = onnx.load(path, bindings=bindings, spec=spec)
    sessions: dict[str, cpu.Session] = {}
    for line in questions:
        asked = json.loads(line)
        if program.digest() != asked["program"]:
            yield {"failed": "the file holds another model by now"}
            continue
        try:
            if asked["isa"] not in sessions:
                sessions[asked["isa"]] = cpu.prepare(program, isa=isas.named(asked["isa"]), threads=1)
            session = sessions[asked["isa"]]
            made = session.run(_read(pathlib.Path(asked["asked"]), asked["given"]))
        except errors.SamebitsError as error:
            yield {"failed": str(error)}
            continue
        yield {"isa": session.isa.name, "outputs": _write(pathlib.Path(asked["answer"]), made)}


def main() -> None:
    """Answer every line of the standard input.

    That ends only where whoever asks was killed, since `SecondProcess` ends this process itself: then nobody else
    removes the folder.
    """
    model, folder, bindings, chunk, segments, order = sys.argv[1:]
    spec = Spec(int(chunk), int(segments), order)
    try:
        for said in answers(pathlib.Path(model), sys.stdin, spec, json.loads(bindings)):
            print(json.dumps(said), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
